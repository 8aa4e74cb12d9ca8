"""Training end to end: it learns, it resumes exactly, it never overwrites, and it loses nothing."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from learn.training.small_training import GLYPHS, SMALL, assert_same_network, pictures, told, weights
from likewise.config import Train
from likewise.errors import OutOfMemory
from likewise.types import LikewiseError

from likewise.data import load
from likewise.learn.training.fit import train
from likewise.learn.training.loop import Hooks, Interrupted
from likewise.runs.folder import Run
from likewise.runs.open import read_config


def test_it_learns_and_fills_the_folder(settings):
    run = train(Train(**settings | {"steps": 150}))
    names = {p.name for p in run.path.iterdir()}
    assert names == {
        "config.json", "environment.json", "log.jsonl", "model.safetensors", "state.pt", "scores.json",
        "per_query.parquet", "embeddings.npz", "usage.json", "trained.npz", "done",
    }  # fmt: skip
    log = run.read_log()
    assert [line["step"] for line in log] == list(range(10, 151, 10))
    assert log[-1]["loss"] < 0.8 * log[0]["loss"]
    from likewise import evaluate

    before = evaluate(run, checkpoint="untrained", quiet=True)["metrics"]["MAP@R"]
    assert run.scores["metrics"]["MAP@R"] > before + 0.1
    assert run.scores["queries"] == 144 and run.scores["unscored"] == 0
    environment = run.read_json("environment.json")
    assert environment["versions"]["torch"] and environment["device"]["type"] == "cpu"


def test_a_finished_run_is_kept_unless_asked(settings):
    lines = []
    run = train(Train(**settings), lines.append)
    first = (run.path / "model.safetensors").stat().st_mtime_ns
    again = train(Train(**settings), lines.append)
    assert again.path == run.path and (run.path / "model.safetensors").stat().st_mtime_ns == first
    assert "finished already" in lines[-1]
    train(Train(**settings | {"restart": True}))
    assert (run.path / "model.safetensors").stat().st_mtime_ns != first


def test_the_same_settings_find_the_same_folder(settings, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings = {k: v for k, v in settings.items() if k != "out"} | {"steps": 2, "evaluate": False}
    one = train(Train(**settings))
    two = train(Train(**settings | {"loss": "MultiSimilarity( )", "workers": 0}))
    assert one.path == two.path and one.path.parts[0] == "runs"
    assert train(Train(**settings | {"seed": 1})).path != one.path


def test_exhausted_memory_is_one_sentence(settings):
    with pytest.raises(OutOfMemory, match="^train: memory is exhausted.*--chunk-size"):
        train(Train(**settings | {"dim": 10**15}))


def test_noise_spoils_training_labels_only(settings):
    from likewise.protocols import UnseenClasses

    from likewise.data.dataset import inject_noise

    data = load(settings["data"])
    protocol = UnseenClasses(val=0.25)
    noisy = inject_noise(data, protocol, "Uniform(share=0.5)", 0)
    test, half = protocol.rows(data, "test"), np.union1d(protocol.rows(data, "train"), protocol.rows(data, "val"))
    assert np.array_equal(noisy.y[test], data.y[test]) and np.array_equal(noisy.y_clean, data.y)
    assert (noisy.y[half] != data.y[half]).mean() == 0.5 and set(noisy.y[half]) <= set(data.y[half])
    val = protocol.rows(noisy, "val")  # who validates is decided by the labels as they are
    assert np.array_equal(protocol.rows(noisy, "test"), test) and set(val) <= set(half)
    held = np.unique(data.y[half])[-round(0.25 * len(np.unique(data.y[half]))) :]
    assert np.array_equal(val, half[np.isin(noisy.y[half], held)])


def test_a_frozen_backbone_stays_put_during_warm_up(tmp_path):
    settings = {
        "data": "glyphs(classes=8, per_class=6, size=16)", "size": 16, "sampler": "SamplesPerClass(batch=8, per_class=2)",
        "dim": 8, "lr": 0.01, "quiet": True, "evaluate": False, "workers": 0, "device": "cpu", "warmup": "3",
    }  # fmt: skip
    start = train(Train(**settings, steps=0, out=str(tmp_path / "0")))
    warm = train(Train(**settings, steps=3, out=str(tmp_path / "3")))
    after = train(Train(**settings, steps=5, out=str(tmp_path / "5")))
    trained = [k for k in weights(start) if "backbone" in k and k.endswith("weight")]
    for name in trained:
        assert torch.equal(weights(start)[name], weights(warm)[name]), name
    assert any(not torch.equal(weights(start)[k], weights(after)[k]) for k in trained)
    head = next(k for k in weights(start) if "head" in k)
    assert not torch.equal(weights(start)[head], weights(warm)[head])


def test_sixteen_bit_trains(settings):
    run = train(Train(**settings | {"precision": "bf16", "steps": 10}))
    assert all(torch.isfinite(v).all() and v.dtype != torch.bfloat16 for v in weights(run).values())


def test_empty_files_are_found_before_training_and_skipped_unless_strict(tmp_path):
    folder = pictures(tmp_path / "data")
    (folder / "class2" / "1.png").write_bytes(b"")
    config = Train(data=str(folder), out=str(tmp_path / "run"), **SMALL)
    with pytest.raises(LikewiseError, match="class2/1.png"):
        train(dataclasses.replace(config, strict=True))
    assert not (tmp_path / "run").exists()
    assert [path for _, path in train(config).skipped] == ["class2/1.png"]


def test_a_dotted_loss_is_imported_only_with_permission_and_the_run_does_not_carry_it(settings):
    settings = settings | {"loss": "likewise.learn.losses.triplet.Triplet(margin=0.1)", "steps": 2}
    run = train(Train(**settings, allow_imports=True))
    from likewise import evaluate

    with pytest.raises(LikewiseError, match="would be imported, which runs its code"):
        evaluate(run, quiet=True)
    assert evaluate(run, quiet=True, allow_imports=True)["queries"] == 144


def test_a_rows_weight_multiplies_its_loss(settings, tmp_path):
    """Rows of weight 0 teach nothing: without their classes the same training ends the same."""
    data = load(settings["data"])
    settings = settings | {"sampler": "Shuffled(batch=144)", "loss": "NormSoftmax()", "evaluate": False, "steps": 3}
    files = {}
    for name, weight in (("ones", np.ones(288)), ("twos", np.full(288, 2.0)), ("zeros", np.zeros(288))):
        files[name] = str(tmp_path / f"{name}.npz")
        np.savez(files[name], x=data.x, label=data.y, weight=weight)
    plain = train(Train(**settings))
    same = train(Train(**settings | {"data": files["ones"], "out": str(tmp_path / "ones")}))
    assert_same_network(plain, same)
    double = train(Train(**settings | {"data": files["twos"], "out": str(tmp_path / "twos"), "log_every": 1}))
    single = train(Train(**settings | {"out": str(tmp_path / "single"), "log_every": 1}))
    assert double.read_log()[0]["loss"] == pytest.approx(2 * single.read_log()[0]["loss"])
    nothing = train(Train(**settings | {"data": files["zeros"], "out": str(tmp_path / "zeros"), "log_every": 1}))
    assert [line["loss"] for line in nothing.read_log()] == [0.0, 0.0, 0.0]


def test_a_local_weight_file_is_where_training_starts(tmp_path):
    from safetensors.torch import save_file

    from likewise.models import Embedder

    torch.manual_seed(9)
    start = Embedder("conv_small", 8, pretrained=False).backbone.state_dict()
    save_file(start, tmp_path / "start.safetensors")
    folder = pictures(tmp_path / "data")
    settings = SMALL | {
        "data": str(folder),
        "steps": 0,
        "evaluate": False,
        "weights": str(tmp_path / "start.safetensors"),
    }
    run = train(Train(**settings, out=str(tmp_path / "run")))
    for name, value in start.items():
        assert torch.equal(weights(run)[f"embedder.backbone.{name}"], value), name
    from likewise.runs.network import open_embedder

    for checkpoint in ("untrained", "last"):
        found = open_embedder(run, read_config(run), checkpoint, torch.device("cpu")).backbone.state_dict()
        assert all(torch.equal(found[k], v) for k, v in start.items())


def test_a_training_that_ends_early_tells_what_it_believed(settings):
    settings = settings | {"protocol": "UnseenClasses(val=0.3)", "validate_every": "5", "steps": 100, "lr": 0.0}
    run = train(Train(**settings | {"patience": 1, "evaluate": False, "confidence": "ProcSim()"}))
    assert max(line["step"] for line in run.read_log()) < 100
    assert np.isfinite(np.load(run.path / "sample_weights.npz")["weight"]).any()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"loss": "Tripet()"}, "no component called 'Tripet'; did you mean 'Triplet'"),
        ({"loss": "HardPairs()"}, "describes a HardPairs, but a Loss is needed"),
        ({"loss": "likewise.learn.losses.triplet.Triplet()"}, "--allow-imports"),
        ({"select": "MAP"}, "there is no 'MAP'"),
        ({"warmup": "5 epochs"}, "warmup must be a number of steps"),
        ({"patience": 3}, "need a validation split"),
        ({"schedule": "plateau"}, "need a validation split"),
        ({"backbone": "resnet50"}, "holds features, got --backbone resnet50"),
        ({"device": "cuda:99"}, "device: 'cuda:99' cannot be used on this machine"),
        ({"sampler": "SamplesPerClass(batch=100, per_class=2)"}, "needs 50 classes, but the labels have 12"),
        ({"optimizer": "lion"}, "optimizer must be .*, got 'lion'"),
        ({"lr": float("nan")}, "lr must be 0 or more, got nan"),
        ({"seed": -1}, "seed must be between 0 and"),
        ({"dim": 0}, "dim must be 1 or more, got 0"),
        ({"momentum": 5.0}, "momentum must be between 0 and"),
        ({"checkpoint_every": "0"}, "checkpoint_every must be at least 1 step"),
        ({"schedule_every": "0"}, "schedule_every must be at least 1 step"),
        ({"dim": "8"}, "dim must be a whole number, got '8'"),
        ({"loss": "ProxyAnchor(classes=3)"}, "has classes=3, but this training has classes=12; drop classes"),
        ({"loss": "NormSoftmax(dim=3)"}, "has dim=3, but this training has dim=8"),
        ({"protocol": "UnseenClasses(val=0.2)", "metrics": ("R@144",)}, "need 144 results"),
    ],
)
def test_settings_that_cannot_work_fail_before_the_first_step(settings, change, says, unchecked):
    with pytest.raises(LikewiseError, match=says):
        train(Train(**settings | change))
    assert not Path(settings["out"]).exists()


def test_without_a_sampler_the_batch_fits_the_data(settings):
    run = train(Train(**settings | {"sampler": None, "steps": 1, "evaluate": False}))
    assert (
        run.about["config"]["sampler"]
        == "SamplesPerClass(batch=48, per_class=4, lonely='error', with_replacement=False)"
    )


def test_a_recipe_for_pictures_works_on_features(settings):
    from likewise.learn.recipes import apply

    values = {k: v for k, v in settings.items() if k not in ("data", "lr")}
    run = train(apply("proxy-anchor", settings["data"], **values | {"steps": 2}))
    assert run.about["config"]["backbone"] == "features" and run.about["config"]["loss"].startswith(
        "ProxyAnchor(alpha=32"
    )


def test_a_runs_own_network_can_be_where_another_starts(tmp_path):
    folder = pictures(tmp_path / "data")
    first = train(Train(data=str(folder), out=str(tmp_path / "one"), evaluate=False, **SMALL))
    settings = SMALL | {"steps": 0, "evaluate": False, "weights": str(first.path / "model.safetensors"), "dim": 4}
    second = train(Train(data=str(folder), out=str(tmp_path / "two"), **settings))
    for name, value in weights(first).items():
        if name.startswith("embedder.backbone") and "num_batches" not in name:
            assert torch.equal(weights(second)[name], value)


def test_a_gallery_that_cannot_answer_is_found_before_training(settings, tmp_path):
    data = load(settings["data"])
    split = np.where(data.y < 12, "train", "test")
    for name, gallery, says in (
        ("few", (split == "test") & (np.arange(288) % 12 == 1), "need 13 results"),
        ("none", (split == "train"), "no query has a relevant gallery row|but the test split has 0"),
    ):
        file = str(tmp_path / f"{name}.npz")
        query = (split == "test") & (np.arange(288) % 12 == 0)
        np.savez(file, x=data.x, label=data.y, split=split, query=query, gallery=gallery)
        with pytest.raises(LikewiseError, match=says):
            train(Train(**settings | {"data": file, "metrics": ("R@1", "R@13")}))


@pytest.mark.parametrize("term", ["SelfDistillation(weight={})", "S2SD(dims=(16,), distill={0}, distill_feature={0})"])
def test_with_an_infinite_lambda_proc_sim_is_not_there_bit_for_bit(tmp_path, term):
    """Beside a term that draws its own start, too; and a term of weight 0 is not there either."""
    settings = GLYPHS | {"workers": 0, "sampler": "SamplesPerClass(batch=8)", "log_every": 3}
    settings |= {"loss": "MultiSimilarity(beta=40)", "noise": "Uniform(share=0.3)", "steps": 6}
    sure, doubt = {"confidence": "ProcSim(lam=1e999)"}, {"confidence": "ProcSim(lam=0.1)"}
    runs = [
        train(Train(**settings | parts | {"terms": (term.format(5.0),)}, out=str(tmp_path / str(number))))
        for number, parts in enumerate(({}, sure, doubt))
    ]
    assert_same_network(runs[0], runs[1])
    losses = [[line["loss"] for line in run.read_log() if "loss" in line] for run in runs]
    assert losses[0] == losses[1] != losses[2]
    if "weight" in term:
        plain = train(Train(**settings, out=str(tmp_path / "plain")))
        none = train(Train(**settings | sure, terms=(term.format(0.0),), out=str(tmp_path / "none")))
        assert_same_network(plain, none)
        assert not torch.equal(*(weights(r)["embedder.head.fc.bias"] for r in (plain, runs[0])))


def test_seeds_reproduce_with_noise_confidence_terms_and_views(settings, tmp_path):
    parts = {
        "noise": "Uniform(share=0.3)", "confidence": "ProcSim()", "terms": ("SelfDistillation()",), "views": 2,
        "steps": 10, "evaluate": False,
    }  # fmt: skip
    one, same, other = (
        train(Train(**settings | parts | {"out": str(tmp_path / name), "seed": seed}))
        for name, seed in (("one", 3), ("same", 3), ("other", 4))
    )
    assert_same_network(one, same)
    assert told(one) == told(same) != told(other)


def test_a_state_whose_optimiser_was_told_otherwise_is_refused(settings, stop_at):
    with pytest.raises(Interrupted):
        train(Train(**settings), hooks=stop_at(1))
    run = Run(settings["out"])
    state = run.load_state()
    state["optimizer"]["param_groups"] = state["optimizer"]["param_groups"][:-1]
    run.save_state(state)
    with pytest.raises(LikewiseError, match="other parameter groups .*--restart"):
        train(Train(**settings))


def test_pictures_held_on_the_device_train_and_are_evaluated(tmp_path):
    settings = {
        "data": str(pictures(tmp_path / "pictures")), "backbone": "conv_small", "size": 16, "dim": 8, "workers": 0,
        "sampler": "SamplesPerClass(batch=4, per_class=2)", "steps": 6, "device": "cpu", "augment": "crop",
        "confidence": "ProcSim()", "cache": "device", "test_every": "3", "metrics": ("R@1",), "quiet": True,
    }  # fmt: skip
    run = train(Train(**settings, out=str(tmp_path / "held")))
    assert run.scores["queries"] == 12
    assert [line["step"] for line in run.read_log() if "test R@1" in line] == [3, 6]
    for augment in ("crop", "affine"):
        held, read = (
            train(Train(**settings | {"augment": augment, "cache": keep}, out=str(tmp_path / f"{augment} {keep}")))
            for keep in ("device", "files")
        )
        assert_same_network(held, read)


def test_a_finished_run_without_losses_says_so(settings):
    settings |= {"evaluate": False, "steps": 6}
    lines = []
    train(Train(**settings))
    run = train(Train(**settings, record_losses=True), lines.append)
    assert run.losses() is None and "finished already" in lines[0] and "without --record-losses" in lines[1]
    train(Train(**settings, record_losses=True, restart=True), lines.append)
    assert len(lines) == 2 and run.losses().step.tolist() == [6]
    train(Train(**settings, record_losses=True), lines.append)
    assert len(lines) == 3 and "finished already" in lines[2]
    train(Train(**settings, restart=True), lines.append)
    assert run.losses() is None


def test_a_slip_in_a_spec_is_told_before_weights_are_looked_for(pictures, small, tmp_path, monkeypatch):
    def looked_for(*_):
        raise LikewiseError("weights were looked for")

    monkeypatch.setattr("likewise.models.pretrained.networks.download", looked_for)
    settings = small | {"data": str(pictures), "out": str(tmp_path / "run"), "backbone": "resnet18", "size": 32}
    for slip, says in [
        ({"loss": "Triplet(margn=1)"}, "did you mean 'margin'"),
        ({"terms": ("S2SD(wait=1)",)}, "S2SD has no argument 'wait'"),
        ({"warmup": "5x"}, "warmup"),
        ({}, "weights were looked for"),
    ]:
        with pytest.raises(LikewiseError, match=says):
            train(Train(**settings | slip))
    assert not (tmp_path / "run").exists()


def test_a_training_on_everything_is_not_scored(settings):
    said = []
    run = train(Train(**settings | {"protocol": "UnseenClasses(train=1)", "steps": 2}), said.append)
    assert said == ["--protocol assigns all classes to training, so there is no test split to score"]
    assert run.done and run.scores is None
    from likewise import evaluate

    with pytest.raises(LikewiseError, match=r"no test split, since all of it trained"):
        evaluate(run, quiet=True)
    assert evaluate(run, split="train", quiet=True)["queries"] == 288


def test_another_runs_folder_is_refused(settings, tmp_path):
    train(Train(**settings | {"steps": 2, "evaluate": False}))
    with pytest.raises(LikewiseError, match="lr: 0.003 there, 0.01 here.*another --out"):
        train(Train(**settings | {"steps": 2, "lr": 0.01}))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("x")
    with pytest.raises(LikewiseError, match="exists and is not a run"):
        train(Train(**settings | {"out": str(tmp_path / "mine")}))
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "x"


def test_two_cannot_train_in_one_folder(settings):
    run = train(Train(**settings | {"steps": 2, "evaluate": False}))
    (run.path / "done").unlink()
    with run.owned(), pytest.raises(LikewiseError, match="another process is training in"):
        train(Train(**settings | {"steps": 2}))


def test_scores_of_a_state_on_the_way_never_pass_for_the_final_ones(settings):
    """Somebody evaluates while training runs: the finished run shows the finished network's scores."""
    from likewise import evaluate

    def look(state):
        if state.step == 11:
            evaluate(settings["out"], quiet=True, device="cpu")

    run = train(Train(**settings | {"steps": 80, "lr": 0.02}), hooks=Hooks(after_step=look))
    assert run.scores == evaluate(run, quiet=True, device="cpu")


def test_again_removes_what_a_run_writes_and_nothing_else(settings):
    run = train(Train(**settings | {"steps": 2}))
    (run.path / "notes").mkdir()
    (run.path / "notes" / "mine.txt").write_text("keep")
    (run.path / "z.npz").write_text("keep")
    train(Train(**settings | {"steps": 2, "restart": True}))
    assert (run.path / "notes" / "mine.txt").read_text() == (run.path / "z.npz").read_text() == "keep"


def test_a_folder_left_at_the_very_start_is_no_obstacle(settings):
    folder = Path(settings["out"])
    folder.mkdir()
    (folder / "environment.json").write_text("{}")
    assert train(Train(**settings | {"steps": 1, "evaluate": False})).done


def test_classes_with_one_sample_are_said_to_be_left_out(settings, tmp_path):
    rng = np.random.default_rng(0)
    y = np.asarray([0] * 4 + [1] * 4 + [2] + [3] * 4 + [4] * 4 + [5] * 4)  # the first half trains
    np.savez(tmp_path / "few.npz", x=rng.normal(size=(21, 4)).astype(np.float32), label=y)
    settings |= {"data": str(tmp_path / "few.npz"), "steps": 2, "metrics": ("R@1",)}
    said = []
    train(Train(**settings | {"sampler": None}), said.append)
    assert said == ["training skips 1 of 3 classes, because they have one sample only: '2'"]
    with pytest.raises(LikewiseError, match="lonely"):
        train(Train(**settings | {"sampler": "SamplesPerClass(batch=8, per_class=4)", "out": str(tmp_path / "other")}))


def test_sets_of_labels_with_one_sample_train(settings, tmp_path):
    """Their labels are shared by others, so the default sampler of several labels draws them, and nothing is said."""
    rng = np.random.default_rng(0)
    labels = ["a|b", "a|c", "b|c", "a|b|c"] * 5 + ["a|b|d", "c|d"]
    split = ["train"] * 16 + ["test"] * 4 + ["train"] * 2
    np.savez(tmp_path / "sets.npz", x=rng.normal(size=(22, 4)).astype(np.float32), labels=labels, split=split)
    settings |= {"data": str(tmp_path / "sets.npz"), "steps": 2, "metrics": ("NDCG@3",), "sampler": None}
    said = []
    assert train(Train(**settings), said.append).done and not [line for line in said if "skips" in line]
