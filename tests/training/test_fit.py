"""Training end to end: it learns, it resumes exactly, it never overwrites, and it loses nothing."""

import dataclasses
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from likewise.config import Train
from likewise.data import load
from likewise.errors import OutOfMemory
from likewise.runs.folder import Run
from likewise.runs.settings import read_config
from likewise.training import fit as module
from likewise.training.fit import Interrupted, train
from likewise.training.state import Parts
from likewise.types import LikewiseError


def weights(run, name="model.safetensors"):
    return run.load_tensors(name)


def assert_same_network(a, b):
    first, second = weights(a), weights(b)
    assert first.keys() == second.keys()
    for name in first:
        assert torch.equal(first[name], second[name]), name


def test_it_learns_and_fills_the_folder(settings):
    run = train(Train(**settings | {"length": "150"}))
    names = {p.name for p in run.path.iterdir()}
    assert names == {
        "config.json", "environment.json", "log.jsonl", "model.safetensors", "state.pt", "scores.json",
        "per_query.parquet", "embeddings.npz", "cost.json", "done",
    }  # fmt: skip
    log = run.read_log()
    assert [line["step"] for line in log] == list(range(10, 151, 10))
    assert log[-1]["loss"] < 0.8 * log[0]["loss"]
    from likewise import evaluate

    before = evaluate(run, which="untrained", quiet=True)["metrics"]["MAP@R"]
    assert run.scores["metrics"]["MAP@R"] > before + 0.1
    assert run.scores["queries"] == 144 and run.scores["unscored"] == 0
    environment = run.read_json("environment.json")
    assert environment["versions"]["torch"] and environment["device"]["type"] == "cpu"


@pytest.mark.parametrize(
    "loss",
    [
        "Triplet()",
        "ProxyAnchor()",
        "Hierarchical(loss=ProxyAnchor(), every=6)",
        "Hierarchical(loss=ProxyNCA(), every=6, by='means')",
    ],
)
def test_a_stopped_training_goes_on_to_the_same_numbers(settings, tmp_path, stop_at, loss):
    """Stopped in the middle of a pass and of a logging interval: weights, log and scores equal an uninterrupted run's."""
    settings = settings | {"loss": loss, "noise": "Uniform(share=0.2)", "schedule": "cosine", "checkpoint_every": "7"}
    whole = train(Train(**settings | {"out": str(tmp_path / "whole")}))
    stop_at(23)
    with pytest.raises(Interrupted, match="stopped at step 23 of 40; the same command goes on"):
        train(Train(**settings))
    half = Run(settings["out"])
    assert not half.done and half.load_state()["step"] == 23
    resumed = train(Train(**settings))
    assert resumed.done
    assert_same_network(whole, resumed)
    assert resumed.scores == whole.scores
    assert [line["step"] for line in resumed.read_log()] == [10, 20, 30, 40]


@pytest.mark.slow
@pytest.mark.process
def test_a_killed_training_goes_on_from_its_checkpoint(settings, tmp_path):
    """Killed without a chance to save: the steps since the last checkpoint are done again, to the same end."""
    whole = train(Train(**settings | {"out": str(tmp_path / "whole")}))
    code = (
        "import os\nfrom likewise.config import Train\nfrom likewise.stages import train as m\n"
        "real = m.Training.one_step\n"
        "def die(self, batch):\n    out = real(self, batch)\n    os._exit(9) if self.step == 27 else None\n    return out\n"
        f"m.Training.one_step = die\nm.train(Train(**{settings!r}))\n"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=600, check=False).returncode == 9
    run = Run(settings["out"])
    assert run.load_state()["step"] == 20 and (run.path / "lock").exists()
    train(Train(**settings))
    assert_same_network(whole, run)
    whole_losses, losses = ([line["loss"] for line in r.read_log()] for r in (whole, run))
    assert whole_losses[2:] == pytest.approx(losses[2:]) and len(losses) == 4


def test_pictures_resume_exactly_with_workers(tmp_path):
    """The augmentation of step n is the same whether or not training began there, in whatever process, from files or not."""
    settings = {
        "data": "glyphs(classes=8, per_class=6, size=16)", "size": 16, "sampler": "SamplesPerClass(batch=8, per_class=2)",
        "dim": 8, "length": "6", "checkpoint_every": "3", "quiet": True, "evaluate": False, "device": "cpu",
    }  # fmt: skip
    whole = train(Train(**settings, workers=1, keep="files", out=str(tmp_path / "whole")))
    half = train(Train(**settings | {"length": "3"}, workers=0, out=str(tmp_path / "half")))
    other, items = Run(tmp_path / "other"), load(settings["data"])
    config = module.resolve(Train(**settings, out=str(other.path)), items)
    with other.owned():
        module.take(module.find_run(config, items), config, torch.device("cpu"))
    (other.path / "state.pt").write_bytes((half.path / "state.pt").read_bytes())
    train(Train(**settings, workers=0, out=str(other.path)))
    assert_same_network(whole, other)


GLYPHS = {
    "data": "glyphs(classes=8, per_class=6, size=16)", "size": 16, "dim": 8, "length": "8", "log_every": 2, "lr": 0.01,
    "checkpoint_every": "5", "quiet": True, "evaluate": False, "device": "cpu",
}  # fmt: skip


@pytest.mark.parametrize(("sampler", "at"), [("DistanceMatching", 4), ("GreedyCoreset", 3)])
def test_a_sampler_that_looks_at_embeddings_resumes_exactly(tmp_path, monkeypatch, stop_at, sampler, at):
    """Stopped in the middle of its second pass, or right after its first, of three steps; with and without workers."""
    settings = GLYPHS | {"sampler": f"{sampler}(batch=8, pool=16)"}
    whole = train(Train(**settings, workers=1, keep="files", out=str(tmp_path / "whole")))
    stop_at(at)
    with pytest.raises(Interrupted):
        train(Train(**settings, workers=0, out=str(tmp_path / "half")))
    monkeypatch.setattr(module.Training, "embed", lambda *_: pytest.fail("the bank was filled again"))
    resumed = train(Train(**settings, workers=0, out=str(tmp_path / "half")))
    assert_same_network(whole, resumed)
    banks = [r.load_state()["sampler"] for r in (whole, resumed)]
    assert torch.equal(banks[0]["bank"], banks[1]["bank"]) and banks[0]["bank"].shape == (24, 8)
    assert torch.equal(banks[0]["batches"], banks[1]["batches"]) and banks[0]["pass"] == banks[1]["pass"] == 2


@pytest.mark.parametrize("workers", [0, 2])
def test_a_pass_is_chosen_when_the_one_before_was_seen(tmp_path, monkeypatch, workers):
    """Workers read ahead, but not past the end of a pass of a sampler that looks at embeddings; of others, they do."""
    from likewise.samplers import GreedyCoreset, SamplesPerClass

    asked, steps = [], [0]

    def watch(sampler):
        real = sampler.one_pass
        monkeypatch.setattr(sampler, "one_pass", lambda self, n: asked.append((n, steps[0])) or real(self, n))

    def count(self, batch, real=module.Training.one_step):
        real(self, batch)
        steps[0] = self.step

    watch(GreedyCoreset)
    watch(SamplesPerClass)
    monkeypatch.setattr(module.Training, "one_step", count)
    settings = GLYPHS | {"workers": workers, "keep": "files"}
    train(Train(**settings, sampler="GreedyCoreset(batch=8)", out=str(tmp_path / "one")))
    assert asked == [(0, 0), (1, 3), (2, 6)]
    asked.clear()
    steps[0] = 0
    train(Train(**settings, sampler="SamplesPerClass(batch=8)", out=str(tmp_path / "two")))
    assert [n for n, _ in asked[:3]] == [0, 1, 2] and (asked[1][1] < 3) == (workers > 0)


def test_a_sampler_is_shown_the_embeddings_of_its_own_rows(settings, monkeypatch, tmp_path):
    """Training rows that are not the first of the table: what is observed goes to the row it is of."""
    data = load(settings["data"])
    file = str(tmp_path / "late.npz")
    np.savez(file, x=data.x, label=data.y, split=np.where(data.y < 12, "test", "train"))
    seen = []

    def look(self, batch, real=module.Training.one_step):
        assert (batch.row >= 144).all()
        if not seen:
            seen.append(self.embed(self.rows))
        real(self, batch)
        bank = torch.as_tensor(self.sampler._bank.read())
        assert torch.allclose(bank, seen[0].z, atol=1e-6)  # the network stands still, and has no augmentation

    monkeypatch.setattr(module.Training, "one_step", look)
    sampler = "FrechetMatching(batch=24)"
    train(Train(**settings | {"data": file, "sampler": sampler, "lr": 0.0, "length": "7", "evaluate": False}))


def test_sixteen_bit_training_fills_a_float32_bank(settings):
    settings = settings | {"sampler": "GreedyCoreset(batch=24)", "precision": "bf16", "length": "8", "evaluate": False}
    bank = train(Train(**settings)).load_state()["sampler"]["bank"]
    assert bank.dtype == torch.float32 and bank.norm(dim=1).sub(1).abs().max() < 0.02


def test_a_finished_run_is_kept_unless_asked(settings):
    lines = []
    run = train(Train(**settings), lines.append)
    first = (run.path / "model.safetensors").stat().st_mtime_ns
    again = train(Train(**settings), lines.append)
    assert again.path == run.path and (run.path / "model.safetensors").stat().st_mtime_ns == first
    assert "finished already" in lines[-1]
    train(Train(**settings | {"again": True}))
    assert (run.path / "model.safetensors").stat().st_mtime_ns != first


def test_the_same_settings_find_the_same_folder(settings, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings = {k: v for k, v in settings.items() if k != "out"} | {"length": "2", "evaluate": False}
    one = train(Train(**settings))
    two = train(Train(**settings | {"loss": "MultiSimilarity( )", "workers": 0}))
    assert one.path == two.path and one.path.parts[0] == "runs"
    assert train(Train(**settings | {"seed": 1})).path != one.path


def test_another_runs_folder_is_refused(settings, tmp_path):
    train(Train(**settings | {"length": "2", "evaluate": False}))
    with pytest.raises(LikewiseError, match="holds another run .lr: 0.003 there, 0.01 here.*another --out"):
        train(Train(**settings | {"length": "2", "lr": 0.01}))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("x")
    with pytest.raises(LikewiseError, match="exists and is not a run"):
        train(Train(**settings | {"out": str(tmp_path / "mine")}))
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "x"


def test_exhausted_memory_is_one_sentence(settings):
    with pytest.raises(
        OutOfMemory, match="^train: memory is exhausted.*; lower the sampler's batch, --size or --dim, or give"
    ):
        train(Train(**settings | {"dim": 10**15}))


def test_two_cannot_train_in_one_folder(settings):
    run = train(Train(**settings | {"length": "2", "evaluate": False}))
    (run.path / "done").unlink()
    with run.owned(), pytest.raises(LikewiseError, match="another process is training in"):
        train(Train(**settings | {"length": "2"}))


def test_validation_chooses_and_stops_and_test_labels_have_no_say(settings, tmp_path):
    settings = settings | {
        "protocol": "UnseenClasses(val=0.3)", "validate_every": "10", "patience": 2, "length": "400", "lr": 0.0,
        "schedule": "plateau", "schedule_patience": 0, "evaluate": False,
    }  # fmt: skip
    run = train(Train(**settings))
    log = run.read_log()
    scores = [line["val MAP@R"] for line in log if "val MAP@R" in line]
    assert len(scores) == 3  # the first is the best; two more without progress, and it is over
    assert (run.path / "best.safetensors").exists()
    rates = [line["lr"]["head"] for line in log if "lr" in line]
    assert rates == [0.0, 0.0, 0.0]
    data = load(settings["data"])
    shuffled = data.y.copy()
    shuffled[144:] = np.random.default_rng(0).permutation(shuffled[144:])
    other = tmp_path / "shuffled.npz"
    np.savez(other, x=data.x, label=shuffled)
    again = train(Train(**settings | {"data": str(other), "out": str(tmp_path / "again")}))
    assert [line["val MAP@R"] for line in again.read_log() if "val MAP@R" in line] == scores
    assert_same_network(run, again)


def test_the_best_and_the_last_network_are_both_kept(settings):
    settings = settings | {"protocol": "UnseenClasses(val=0.3)", "validate_every": "5", "lr": 0.03, "evaluate": False}
    run = train(Train(**settings))
    log = [line for line in run.read_log() if "val MAP@R" in line]
    best = max(log, key=lambda line: line["val MAP@R"])["step"]
    same = all(torch.equal(a, b) for a, b in zip(weights(run).values(), weights(run, "best.safetensors").values()))
    assert same == (best == 40)
    from likewise.engine.embed import embed_rows
    from likewise.evaluation.scoring import mean_score
    from likewise.runs.network import open_embedder
    from likewise.runs.settings import make_protocol, read_config

    config, data = read_config(run), load(settings["data"])
    protocol = make_protocol(config)
    cpu = torch.device("cpu")
    e = embed_rows(
        open_embedder(run, config, "best", cpu), data, protocol.rows(data, "val"), None, device=cpu, quiet=True
    )
    value = mean_score(e, data, protocol, "MAP@R", "cosine", cpu)
    assert value == pytest.approx(max(line["val MAP@R"] for line in log))


def test_noise_spoils_training_labels_only(settings):
    from likewise.protocols import UnseenClasses
    from likewise.runs.dataset import spoil

    data = load(settings["data"])
    protocol = UnseenClasses(val=0.25)
    noisy = spoil(data, protocol, "Uniform(share=0.5)", 0)
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
    start = train(Train(**settings, length="0", out=str(tmp_path / "0")))
    warm = train(Train(**settings, length="3", out=str(tmp_path / "3")))
    after = train(Train(**settings, length="5", out=str(tmp_path / "5")))
    trained = [k for k in weights(start) if "backbone" in k and k.endswith("weight")]
    for name in trained:
        assert torch.equal(weights(start)[name], weights(warm)[name]), name
    assert any(not torch.equal(weights(start)[k], weights(after)[k]) for k in trained)
    head = next(k for k in weights(start) if "head" in k)
    assert not torch.equal(weights(start)[head], weights(warm)[head])


def test_sixteen_bit_trains(settings):
    run = train(Train(**settings | {"precision": "bf16", "length": "10"}))
    assert all(torch.isfinite(v).all() and v.dtype != torch.bfloat16 for v in weights(run).values())


def test_a_diverged_training_says_so_and_keeps_the_last_sound_state(settings, monkeypatch):
    real = module.Training.one_step

    def poison(self, batch):
        if self.step == 14:
            next(self.embedder.head_parameters()).data.fill_(float("nan"))
        return real(self, batch)

    monkeypatch.setattr(module.Training, "one_step", poison)
    with pytest.raises(LikewiseError, match="the loss became nan before step 20; lower lr"):
        train(Train(**settings))
    assert Run(settings["out"]).load_state()["step"] == 10


def pictures(folder: Path, classes=4, each=6):
    rng = np.random.default_rng(0)
    for c in range(classes):
        for i in range(each):
            (folder / f"class{c}").mkdir(parents=True, exist_ok=True)
            Image.fromarray(rng.integers(0, 255, (20, 20, 3), dtype=np.uint8)).save(folder / f"class{c}" / f"{i}.png")
    return folder


SMALL = {
    "backbone": "conv_small", "size": 16, "sampler": "SamplesPerClass(batch=4, per_class=2)", "dim": 8, "length": "12",
    "checkpoint_every": "100", "quiet": True, "device": "cpu",
}  # fmt: skip


@pytest.mark.parametrize(("keep", "workers"), [("files", 0), ("files", 1), ("auto", 1), ("disk", 0)])
def test_a_broken_picture_is_named_and_nothing_learned_is_lost(tmp_path, keep, workers):
    folder = pictures(tmp_path / "data")
    broken = folder / "class1" / "3.png"
    broken.write_bytes(broken.read_bytes()[:60])
    out = str(tmp_path / "run")
    with pytest.raises(
        LikewiseError, match="class1/3.png.*cannot be decoded.*--skip-bad leaves such pictures out"
    ) as caught:
        train(Train(data=str(folder), out=out, keep=keep, workers=workers, **SMALL))
    assert "Traceback" not in str(caught.value)
    assert (Path(out) / "state.pt").exists() == (keep == "files")  # others decode all of them before the first step
    lines = []
    more = {"keep": keep, "workers": workers, "skip_bad": True}
    run = train(Train(data=str(folder), out=str(tmp_path / "two"), **more, **SMALL), lines.append)
    assert run.done and "1 of 24 pictures are broken and left out" in lines[0] and "class1/3.png" in lines[0]


def test_missing_and_empty_files_are_found_before_training(tmp_path):
    folder = pictures(tmp_path / "data")
    (folder / "class2" / "1.png").write_bytes(b"")
    with pytest.raises(LikewiseError, match="class2/1.png .empty"):
        train(Train(data=str(folder), out=str(tmp_path / "run"), **SMALL))
    assert not (tmp_path / "run").exists()


def test_settings_that_cannot_work_fail_before_the_first_step(settings, features):
    for change, says in [
        ({"loss": "Tripet()"}, "no part called 'Tripet'; did you mean 'Triplet'"),
        ({"loss": "HardPairs()"}, "makes a HardPairs, but a Loss is wanted"),
        ({"select": "MAP"}, "there is no 'MAP'"),
        ({"length": "5 epochs"}, "length is a number of steps"),
        ({"patience": 3}, "no validation part"),
        ({"schedule": "plateau"}, "no validation part"),
        ({"backbone": "resnet50"}, "holds features, so backbone 'resnet50' does not fit"),
        ({"device": "cuda:99"}, "device 'cuda:99' cannot be used here"),
        ({"sampler": "SamplesPerClass(batch=100, per_class=2)"}, "wants 50 classes, but the labels hold 12"),
        ({"loss": "likewise.losses.triplet.Triplet()"}, "--allow-imports"),
    ]:
        with pytest.raises(LikewiseError, match=says):
            train(Train(**settings | change))
        assert not Path(settings["out"]).exists()


def test_a_dotted_loss_is_imported_only_with_permission_and_the_run_does_not_carry_it(settings):
    settings = settings | {"loss": "likewise.losses.triplet.Triplet(margin=0.1)", "length": "2"}
    run = train(Train(**settings, allow_imports=True))
    from likewise import evaluate

    with pytest.raises(LikewiseError, match="would be imported, which runs its code"):
        evaluate(run, quiet=True)
    assert evaluate(run, quiet=True, allow_imports=True)["queries"] == 144


@pytest.mark.slow
@pytest.mark.process
def test_ctrl_c_on_the_command_line(settings, features):
    """A real process, a real signal: exit code 130, a resumable run, and the same command finishes it."""
    words = [
        sys.executable,
        "-m",
        "likewise",
        "train",
        features,
        "--out",
        settings["out"],
        "--length",
        "400",
        "--dim",
        "8",
    ]
    words += ["--sampler", settings["sampler"], "--log-every", "2", "--device", "cpu"]
    child = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    log = Path(settings["out"]) / "log.jsonl"
    deadline = time.time() + 300
    while time.time() < deadline and (not log.exists() or not log.read_text()):
        time.sleep(0.01)
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=300)
    assert child.returncode == 130 and "the same command goes on from there" in err and "Traceback" not in err
    step = Run(settings["out"]).load_state()["step"]
    assert 0 < step < 400
    done = subprocess.run(words, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0 and "R@1" in done.stdout
    steps = [json.loads(line)["step"] for line in log.read_text().splitlines()]
    assert steps == sorted(set(steps)) and steps[-1] == 400


def test_configs_are_frozen_and_flat():
    config = Train(data="x")
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.lr = 1.0


def test_a_rows_weight_multiplies_its_loss(settings, tmp_path):
    """Rows of weight 0 teach nothing: without their classes the same training ends the same."""
    data = load(settings["data"])
    settings = settings | {"sampler": "Shuffled(batch=144)", "loss": "NormSoftmax()", "evaluate": False, "length": "3"}
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
        "length": "0",
        "evaluate": False,
        "weights": str(tmp_path / "start.safetensors"),
    }
    run = train(Train(**settings, out=str(tmp_path / "run")))
    for name, value in start.items():
        assert torch.equal(weights(run)[f"embedder.backbone.{name}"], value), name
    from likewise.runs.network import open_embedder

    for which in ("untrained", "last"):
        found = open_embedder(run, read_config(run), which, torch.device("cpu")).backbone.state_dict()
        assert all(torch.equal(found[k], v) for k, v in start.items())


def test_scores_of_a_state_on_the_way_never_pass_for_the_final_ones(settings, monkeypatch):
    """Somebody evaluates while training runs: the finished run shows the finished network's scores."""
    from likewise import evaluate

    real = module.Training.one_step

    def look(self, batch):
        real(self, batch)
        if self.step == 11:
            evaluate(self.run.path, quiet=True, device="cpu")

    monkeypatch.setattr(module.Training, "one_step", look)
    run = train(Train(**settings | {"length": "80", "lr": 0.02}))
    assert run.scores == evaluate(run, quiet=True, device="cpu")


def test_again_removes_what_a_run_writes_and_nothing_else(settings):
    run = train(Train(**settings | {"length": "2"}))
    (run.path / "notes").mkdir()
    (run.path / "notes" / "mine.txt").write_text("keep")
    (run.path / "z.npz").write_text("keep")
    train(Train(**settings | {"length": "2", "again": True}))
    assert (run.path / "notes" / "mine.txt").read_text() == (run.path / "z.npz").read_text() == "keep"


@pytest.mark.parametrize(
    "change", [{"checkpoint_every": "3"}, {"protocol": "UnseenClasses(val=0.3)", "validate_every": "3"}]
)
def test_a_network_that_diverged_is_neither_saved_nor_scored(settings, monkeypatch, change):
    real = module.Training.one_step

    def poison(self, batch):
        if self.step == 13:
            next(self.embedder.head_parameters()).data.fill_(float("nan"))
        real(self, batch)

    monkeypatch.setattr(module.Training, "one_step", poison)
    with pytest.raises(LikewiseError, match="the loss became nan before step .*lower lr"):
        train(Train(**settings | change))
    tensors = Run(settings["out"]).load_state()["tensors"]
    assert all(torch.isfinite(v).all() for v in tensors.values())


def test_an_error_while_validating_does_not_skip_a_validation(settings, tmp_path, monkeypatch):
    """The disk is full when the best network is to be kept: going on validates that step again."""
    settings = settings | {"protocol": "UnseenClasses(val=0.3)", "validate_every": "5", "evaluate": False}
    whole = train(Train(**settings | {"out": str(tmp_path / "whole")}))
    real, calls = Run.save_tensors, []

    def full(self, name, tensors):
        calls.append(name)
        if name == "best.safetensors" and calls.count(name) == 1:
            raise LikewiseError("run: there is no room left on the disk")
        real(self, name, tensors)

    monkeypatch.setattr(Run, "save_tensors", full)
    with pytest.raises(LikewiseError, match="no room"):
        train(Train(**settings))
    resumed = train(Train(**settings))
    assert_same_network(whole, resumed)
    scores = [[line for line in r.read_log() if "val MAP@R" in line] for r in (whole, resumed)]
    assert scores[0] == scores[1]


def test_the_log_goes_on_to_the_same_numbers(settings, tmp_path, stop_at):
    whole = train(Train(**settings | {"out": str(tmp_path / "whole"), "evaluate": False}))
    for step, how in ((17, signal.SIGTERM), (31, signal.SIGHUP)):  # a scheduler; a terminal that is closed
        stop_at(step, how)
        with pytest.raises(Interrupted, match=f"stopped at step {step} of 40"):
            train(Train(**settings | {"evaluate": False}))
    resumed = train(Train(**settings | {"evaluate": False}))
    assert [x["loss"] for x in resumed.read_log()] == [x["loss"] for x in whole.read_log()]


def test_patience_is_the_number_of_validations_without_a_new_best(settings):
    settings = settings | {"protocol": "UnseenClasses(val=0.3)", "validate_every": "5", "length": "100", "lr": 0.0}
    run = train(Train(**settings | {"patience": 3, "evaluate": False}))
    assert [line["step"] for line in run.read_log() if "val MAP@R" in line] == [5, 10, 15, 20]


def test_a_training_that_ends_early_tells_what_it_believed(settings):
    settings = settings | {"protocol": "UnseenClasses(val=0.3)", "validate_every": "5", "length": "100", "lr": 0.0}
    run = train(Train(**settings | {"patience": 1, "evaluate": False, "confidence": "ProcSim()"}))
    assert max(line["step"] for line in run.read_log()) < 100
    assert np.isfinite(np.load(run.path / "trust.npz")["weight"]).any()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"optimizer": "lion"}, "optimizer must be 'adam' or 'adamw' or 'rmsprop' or 'sgd', got 'lion'"),
        ({"schedule": "cosin"}, "schedule must be"),
        ({"precision": "fp16"}, "precision must be 'fp32' or 'bf16', got 'fp16'"),
        ({"lr": float("nan")}, "lr must be 0 or more, got nan"),
        ({"lr": -1.0}, "lr must be 0 or more, got -1"),
        ({"eps": -1.0}, "eps must be 0 or more"),
        ({"seed": -1}, "seed must be between 0 and"),
        ({"log_every": 0}, "log_every must be 1 or more, got 0"),
        ({"dim": 0}, "dim must be 1 or more, got 0"),
        ({"views": 0}, "views must be 1 or more, got 0"),
        ({"keep_side": 0}, "keep_side must be 1 or more, got 0"),
        ({"loss_weight": -1.0}, r"loss_weight must be 0 or more, got -1\.0"),
        ({"patience": -1}, "patience must be 1 or more"),
        ({"clip_norm": -1.0}, "clip_norm must be"),
        ({"momentum": 5.0}, "momentum must be between 0 and"),
        ({"checkpoint_every": "0"}, "checkpoint_every must be a step or more"),
        ({"schedule_every": "0"}, "schedule_every must be a step or more"),
        ({"dim": "8"}, "dim must be a whole number, got '8'"),
        ({"loss": "ProxyAnchor(classes=3)"}, "has classes=3, but this training has 12; leave classes out"),
        ({"loss": "NormSoftmax(dim=3)"}, "has dim=3, but this training has 8"),
        ({"protocol": "UnseenClasses(val=0.2)", "metrics": ("R@144",)}, "look at 144 answers"),
    ],
)
def test_settings_out_of_range_are_named(settings, change, says, unchecked):
    with pytest.raises(LikewiseError, match=says):
        train(Train(**settings | change))
    assert not Path(settings["out"]).exists()


def test_without_a_sampler_the_batch_fits_the_data(settings):
    run = train(Train(**settings | {"sampler": None, "length": "1", "evaluate": False}))
    assert (
        run.about["config"]["sampler"]
        == "SamplesPerClass(batch=48, per_class=4, lonely='error', with_replacement=False)"
    )


def test_a_folder_left_at_the_very_start_is_no_obstacle(settings):
    folder = Path(settings["out"])
    folder.mkdir()
    (folder / "environment.json").write_text("{}")
    assert train(Train(**settings | {"length": "1", "evaluate": False})).done


def test_a_recipe_for_pictures_works_on_features(settings):
    from likewise.recipes import apply

    values = {k: v for k, v in settings.items() if k not in ("data", "lr")}
    run = train(apply("proxy-anchor", settings["data"], **values | {"length": "2"}))
    assert run.about["config"]["backbone"] == "features" and run.about["config"]["loss"].startswith(
        "ProxyAnchor(alpha=32"
    )


def test_a_runs_own_network_can_be_where_another_starts(tmp_path):
    folder = pictures(tmp_path / "data")
    first = train(Train(data=str(folder), out=str(tmp_path / "one"), evaluate=False, **SMALL))
    settings = SMALL | {"length": "0", "evaluate": False, "weights": str(first.path / "model.safetensors"), "dim": 4}
    second = train(Train(data=str(folder), out=str(tmp_path / "two"), **settings))
    for name, value in weights(first).items():
        if name.startswith("embedder.backbone") and "num_batches" not in name:
            assert torch.equal(weights(second)[name], value)


def test_a_gallery_that_cannot_answer_is_found_before_training(settings, tmp_path):
    data = load(settings["data"])
    split = np.where(data.y < 12, "train", "test")
    for name, gallery, says in (
        ("few", (split == "test") & (np.arange(288) % 12 == 1), "look at 13 answers"),
        ("none", (split == "train"), "no query has an answer|has 0 for a query"),
    ):
        file = str(tmp_path / f"{name}.npz")
        query = (split == "test") & (np.arange(288) % 12 == 0)
        np.savez(file, x=data.x, label=data.y, split=split, query=query, gallery=gallery)
        with pytest.raises(LikewiseError, match=says):
            train(Train(**settings | {"data": file, "metrics": ("R@1", "R@13")}))


ROBUST = [
    {"confidence": "LabelPosterior(every='15')"},
    {"confidence": "ProcSim(lam=0.1)", "terms": ("SelfDistillation()",)},
    {"confidence": "ProcSim(threshold='mean', judge_by='loss')", "views": 2, "precision": "bf16"},
    {"confidence": "CoTeaching(share=0.2, ramp='2e')", "loss": "NormSoftmax()"},
    {"confidence": "CoTeachingPlus(share=0.2, start='1e', ramp='2e')", "loss": "ProxyNCA()"},
    {"confidence": "PRISM(share=0.2)", "loss": "CrossBatchMemory(size=100)"},
    {"terms": ("S2SD(dims=(16, 12), delay=20)",), "loss": "ProxyAnchor()", "loss_weight": 0.5},
]


def told(run):
    """The log without the clock."""
    return [{k: v for k, v in line.items() if k != "images_per_s"} for line in run.read_log()]


@pytest.mark.parametrize(
    "parts", ROBUST, ids=lambda parts: (parts.get("confidence") or parts["terms"][0]).split("(")[0]
)
def test_a_training_that_doubts_its_labels_resumes_exactly(settings, tmp_path, stop_at, parts):
    """Stopped between two verdicts, in the middle of a pass and of a logging interval: weights, log and trust are equal."""
    settings = settings | {"noise": "Uniform(share=0.3)", "evaluate": False} | parts
    whole = train(Train(**settings | {"out": str(tmp_path / "whole")}))
    stop_at(23)
    with pytest.raises(Interrupted):
        train(Train(**settings))
    resumed = train(Train(**settings))
    assert_same_network(whole, resumed)
    assert told(whole) == told(resumed)
    states = [run.load_state()["tensors"] for run in (whole, resumed)]
    assert states[0].keys() == states[1].keys() and all(torch.equal(v, states[1][k]) for k, v in states[0].items())
    if "confidence" in parts:
        files = [dict(np.load(run.path / "trust.npz")) for run in (whole, resumed)]
        assert all(np.array_equal(v, files[1][k], equal_nan=v.dtype.kind == "f") for k, v in files[0].items())


def test_a_verdict_is_told_once(settings, tmp_path, monkeypatch):
    """Lost with what came after a checkpoint, it is reached again, and the log holds it once."""
    settings = settings | {"noise": "Uniform(share=0.3)", "evaluate": False, "confidence": "LabelPosterior(every='10')"}
    whole = train(Train(**settings | {"out": str(tmp_path / "whole")}))
    assert [line["step"] for line in whole.read_log() if "verdict" in line] == [1, 11, 21, 31]
    real = module.Training.one_step

    class Lost(Exception):
        pass

    for at in (5, 23):  # before the first checkpoint, and after that of step 20

        def lose(self, batch, at=at):
            real(self, batch)
            if self.step == at and not (tmp_path / str(at)).exists():
                (tmp_path / str(at)).touch()
                raise Lost

        monkeypatch.setattr(module.Training, "one_step", lose)
        with pytest.raises(Lost):
            train(Train(**settings))
    resumed = train(Train(**settings))
    assert_same_network(whole, resumed)
    assert told(whole) == told(resumed)


def test_labels_left_out_are_not_drawn_and_repaired_ones_are_used(settings, monkeypatch):
    from likewise.confidence import LabelPosterior
    from likewise.types import Verdict

    seen = []

    def judge(self, e):
        y, w = e.y.clone(), torch.ones(len(e.y))
        y[:5], w[5:10] = 1, 0.0
        return Verdict(y, w)

    def look(self, batch, real=module.Training.one_step):
        place = self.place[batch.row]
        assert (self.y[place] == torch.as_tensor(self.labels)[place].where(place >= 5, 1)).all()
        seen.extend(place.tolist())
        real(self, batch)

    monkeypatch.setattr(LabelPosterior, "judge", judge)
    monkeypatch.setattr(module.Training, "one_step", look)
    run = train(Train(**settings | {"confidence": "LabelPosterior()", "evaluate": False}))
    assert set(range(5)) <= set(seen) and not set(range(5, 10)) & set(seen)
    trust = np.load(run.path / "trust.npz")
    assert trust["label"][:5].tolist() == ["1"] * 5 and trust["given"][:5].tolist() == ["0"] * 5
    assert (trust["weight"][5:10] == 0).all() and trust["row"].tolist() == list(range(144))


@pytest.mark.parametrize("term", ["SelfDistillation(weight={})", "S2SD(dims=(16,), distill={0}, distill_feature={0})"])
def test_with_an_infinite_lambda_proc_sim_is_not_there_bit_for_bit(tmp_path, term):
    """Beside a term that draws its own start, too; and a term of weight 0 is not there either."""
    settings = GLYPHS | {"workers": 0, "sampler": "SamplesPerClass(batch=8)", "log_every": 3}
    settings |= {"loss": "MultiSimilarity(beta=40)", "noise": "Uniform(share=0.3)", "length": "6"}
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


@pytest.mark.parametrize("confidence", ["ProcSim()", "LabelPosterior(every='5')", "PRISM(share=0.3)"])
def test_what_is_true_never_reaches_a_part(settings, tmp_path, monkeypatch, confidence):
    """True labels that are garbage, of classes that train nowhere too: other numbers in the log, the same training."""
    data = load(settings["data"])
    rng = np.random.default_rng(0)
    half = np.flatnonzero(data.y < 12)
    y = data.y.copy()
    y[half] = np.where(rng.random(len(half)) < 0.3, rng.permutation(y[half]), y[half])
    garbage = rng.integers(0, 24, len(y))
    settings = settings | {"confidence": confidence, "length": "12", "loss": "ProxyAnchor()"}
    runs = []
    for name, clean in (("true", data.y), ("garbage", garbage), ("unknown", None)):
        split = np.where(data.y < 12, "train", "test")  # without one, true labels say who tests, as they must
        items = dataclasses.replace(data, y=y, y_clean=clean, split=split)
        monkeypatch.setattr(module, "load_items", lambda *_, items=items, **__: items)
        runs.append(train(Train(**settings | {"out": str(tmp_path / name)})))
    for other in runs[1:]:
        assert_same_network(runs[0], other)
    trust = [[line.get("trust") or line.get("verdict") for line in run.read_log()] for run in runs]
    assert trust[0] != trust[1] and "AUROC" in str(trust[0]) and "AUROC" not in str(trust[2])


def test_seeds_reproduce_with_noise_confidence_terms_and_views(settings, tmp_path):
    parts = {
        "noise": "Uniform(share=0.3)", "confidence": "ProcSim()", "terms": ("SelfDistillation()",), "views": 2,
        "length": "10", "evaluate": False,
    }  # fmt: skip
    one, same, other = (
        train(Train(**settings | parts | {"out": str(tmp_path / name), "seed": seed}))
        for name, seed in (("one", 3), ("same", 3), ("other", 4))
    )
    assert_same_network(one, same)
    assert told(one) == told(same) != told(other)


def test_two_views_double_the_batch_each_with_its_own_augmentation(tmp_path, monkeypatch):
    seen = []

    def look(self, batch, real=module.Training.one_step):
        seen.append(batch)
        real(self, batch)

    monkeypatch.setattr(module.Training, "one_step", look)
    settings = GLYPHS | {"length": "2", "views": 2, "sampler": "SamplesPerClass(batch=8)", "workers": 0}
    train(Train(**settings, augment="crop", out=str(tmp_path / "run")))
    for batch in seen:
        first, second = batch.row.chunk(2)
        assert len(batch.row) == 16 and torch.equal(first, second)
        assert not torch.equal(*batch.x.chunk(2))


@pytest.mark.parametrize(
    "parts", [{"confidence": "ProcSim()"}, {"terms": ("SelfDistillation()",)}, {"confidence": "LabelPosterior()"}]
)
def test_mixtures_cannot_be_judged(settings, parts):
    with pytest.raises(LikewiseError, match=r"(ProcSim|SelfDist|LabelPost).* judges samples, and mixup .*leave one"):
        train(Train(**settings | parts, mixup=2.0))
    assert not Path(settings["out"]).exists()


@pytest.mark.parametrize("loss", ["CrossBatchMemory(size=64)", "Hierarchical(loss=ProxyAnchor(), by='means')"])
def test_mixtures_are_not_remembered(settings, loss):
    with pytest.raises(LikewiseError, match="would remember embeddings of mixtures"):
        train(Train(**settings | {"loss": loss}, mixup=2.0))


def test_a_state_whose_optimiser_was_told_otherwise_is_refused(settings, stop_at):
    stop_at(1)
    with pytest.raises(Interrupted):
        train(Train(**settings))
    run = Run(settings["out"])
    state = run.load_state()
    state["optimizer"]["param_groups"] = state["optimizer"]["param_groups"][:-1]
    run.save_state(state)
    with pytest.raises(LikewiseError, match="is of another likewise.*--again starts anew"):
        train(Train(**settings))


def test_pictures_held_on_the_device_train_and_are_evaluated(tmp_path):
    settings = {
        "data": str(pictures(tmp_path / "pictures")), "backbone": "conv_small", "size": 16, "dim": 8, "workers": 0,
        "sampler": "SamplesPerClass(batch=4, per_class=2)", "length": "6", "device": "cpu", "augment": "crop",
        "confidence": "ProcSim()", "keep": "device", "peek_every": "3", "metrics": ("R@1",), "quiet": True,
    }  # fmt: skip
    run = train(Train(**settings, out=str(tmp_path / "held")))
    assert run.scores["queries"] == 12
    assert [line["step"] for line in run.read_log() if "peek at test R@1" in line] == [3, 6]
    for augment in ("crop", "affine"):
        held, read = (
            train(Train(**settings | {"augment": augment, "keep": keep}, out=str(tmp_path / f"{augment} {keep}")))
            for keep in ("device", "files")
        )
        assert_same_network(held, read)


@pytest.mark.parametrize("compiled", [False, True])
def test_a_run_folder_of_an_older_likewise_opens_and_goes_on(settings, tmp_path, stop_at, compiled):
    """It has a setting that is called otherwise now, lacks the new ones, and holds a state of random numbers."""
    whole = train(Train(**settings | {"out": str(tmp_path / "whole")}))
    stop_at(23)
    with pytest.raises(Interrupted):
        train(Train(**settings))
    run = Run(settings["out"])
    about = run.about
    for name in ("speed", "chunk", "recompute", "gpus", "shard", "jitter", "keep_budget"):
        del about["config"][name]
    about["config"] |= {"compile": compiled, "keep": "files", "checkpoint_every": "1e"}
    run.write_json("config.json", about)
    state = run.load_state()
    del state["way"]
    run.save_state(state | {"rng": {"cpu": torch.Generator().manual_seed(5).get_state()}})
    opened = read_config(run)
    assert opened.speed == ("compile" if compiled else "auto") and opened.checkpoint_every == "1e"
    assert_same_network(whole, train(Train(**settings)))


def losses_by_hand(config):
    """The loop again, a sample at a time: for each pass, the losses that every training sample had in it."""
    items = load(config.data)
    parts = Parts(module.resolve(config, items), items, torch.device("cpu"))
    x, y = torch.as_tensor(items.x[parts.rows]), torch.as_tensor(parts.labels)
    parts.embedder.train()
    lines = []
    for step in range(parts.steps):
        number, within = divmod(step, parts.per_pass)
        if within == 0:
            lines.append({})
        chosen = parts.sampler.one_pass(number)[within]
        each = parts.loss(parts.embedder(x[chosen]).z, y[chosen])
        for place, loss in zip(chosen, each.tolist(), strict=True):
            lines[-1].setdefault(place, []).append(loss)
        parts.optimizer.zero_grad()
        (parts.weight[parts.rows[chosen]] * each).mean().backward()
        parts.optimizer.step()
        parts.loss.after_step(step + 1)
    return lines


def test_losses_over_time_are_those_of_a_loop_by_hand(settings, tmp_path):
    """Of two passes and a half, unweighted; rows are those of the data."""
    with np.load(settings["data"]) as data:
        weight = np.linspace(0.5, 2, 288)
        np.savez(tmp_path / "weighted.npz", x=data["x"], label=data["label"], weight=weight)
    settings |= {"data": str(tmp_path / "weighted.npz"), "loss": "ProxyNCA()", "evaluate": False, "length": "15"}
    config = Train(**settings, keep_losses=True)
    run = train(config)
    row, loss, step = run.losses()
    by_hand = losses_by_hand(config)
    assert step.tolist() == [6, 12, 15] and loss.dtype == np.float32 and loss.shape == (3, 144)
    assert row.tolist() == list(range(144)) and len(by_hand) == 3
    for line, seen in zip(loss, by_hand, strict=True):
        assert set(np.flatnonzero(~np.isnan(line))) == seen.keys()
        assert [line[i] for i in seen] == pytest.approx([sum(v) / len(v) for v in seen.values()], rel=1e-5)
    assert np.isnan(loss[2]).sum() >= 72 and np.nanmean(loss[2]) < np.nanmean(loss[0])


KEEPING = [{}, {"confidence": "LabelPosterior(every='10')"}, {"confidence": "CoTeaching(share=0.2)"}, {"views": 2}]


@pytest.mark.parametrize("parts", KEEPING, ids=lambda parts: "".join(map(str, parts.values())).split("(")[0] or "plain")
def test_losses_over_time_change_nothing_and_resume_exactly(settings, tmp_path, stop_at, parts):
    """Stopped in the middle of a pass and asked to go on without them, it keeps them still."""
    settings |= {"noise": "Uniform(share=0.3)", "loss": "NormSoftmax()", "evaluate": False, "length": "20"} | parts
    plain = train(Train(**settings | {"out": str(tmp_path / "plain")}))
    whole = train(Train(**settings | {"out": str(tmp_path / "whole")}, keep_losses=True))
    assert plain.losses() is None
    assert_same_network(plain, whole)
    assert told(plain) == told(whole)
    first, second = plain.load_state(), whole.load_state()
    assert first["total"] == second["total"]
    stop_at(11)
    with pytest.raises(Interrupted):
        train(Train(**settings, keep_losses=True))
    assert Run(settings["out"]).losses().step.tolist() == [6]
    resumed = train(Train(**settings))
    assert (resumed.path / "losses.npz").read_bytes() == (whole.path / "losses.npz").read_bytes()
    assert whole.losses().step.tolist() == [6, 12, 18, 20]


def test_losses_over_time_are_of_the_labels_trained_with(settings, monkeypatch):
    """Those that a verdict leaves out have none; a repaired label's loss is that of the new one."""
    from likewise.confidence import LabelPosterior
    from likewise.types import Verdict

    def judge(self, e):
        y, w = e.y.clone(), torch.ones(len(e.y))
        y[:12], w[12:20] = 1, 0.0
        return Verdict(y, w)

    monkeypatch.setattr(LabelPosterior, "judge", judge)
    settings |= {"confidence": "LabelPosterior()", "loss": "ProxyNCA()", "evaluate": False, "length": "120"}
    loss = train(Train(**settings, keep_losses=True)).losses().loss
    assert np.isnan(loss[:, 12:20]).all() and not np.isnan(loss[:, :12]).all(0).any()
    assert np.nanmean(loss[-3:, :12]) < 0.7 * np.nanmean(loss[0, :12])  # learned, though of class 0


def test_of_two_networks_the_first_ones_losses_are_kept(settings, tmp_path):
    """It starts as it would alone."""
    settings |= {"loss": "NormSoftmax()", "evaluate": False, "length": "1"}
    alone, first = (
        train(Train(**settings | {"out": str(tmp_path / str(doubt))}, confidence=doubt, keep_losses=True)).losses().loss
        for doubt in (None, "CoTeaching(share=0.2)")
    )
    assert np.array_equal(alone, first, equal_nan=True) and (~np.isnan(first)).sum() == 24


def test_a_finished_run_without_losses_says_so(settings):
    settings |= {"evaluate": False, "length": "6"}
    lines = []
    train(Train(**settings))
    run = train(Train(**settings, keep_losses=True), lines.append)
    assert run.losses() is None and "finished already" in lines[0] and "without --keep-losses" in lines[1]
    train(Train(**settings, keep_losses=True, again=True), lines.append)
    assert len(lines) == 2 and run.losses().step.tolist() == [6]
    train(Train(**settings, keep_losses=True), lines.append)
    assert len(lines) == 3 and "finished already" in lines[2]
    train(Train(**settings, again=True), lines.append)
    assert run.losses() is None


def test_a_mixture_has_no_loss_of_its_own(settings):
    with pytest.raises(LikewiseError, match="keep_losses wants the loss of every sample, and mixup .*leave one"):
        train(Train(**settings, keep_losses=True, mixup=2.0))
    assert not Path(settings["out"]).exists()


def test_weights_that_are_not_finite_are_never_saved(settings, tmp_path, monkeypatch):
    """The loss of a step is from before its update, so that it may be finite where the weights are not any more."""
    step = module.Training.one_step

    def one_step(self, batch):
        step(self, batch)
        if self.step == 4:
            next(self.embedder.parameters()).data.flatten()[0] = torch.nan

    monkeypatch.setattr(module.Training, "one_step", one_step)
    where = tmp_path / "nan"
    with pytest.raises(LikewiseError, match=r"a weight became nan before step 4; .* The last sound state is kept in"):
        train(Train(**settings | {"checkpoint_every": "1", "length": "9", "out": str(where)}))
    tensors = Run(where).load_state()["tensors"]
    assert Run(where).load_state()["step"] == 3 and all(t.isfinite().all() for t in tensors.values())


def test_a_slip_in_a_spec_is_told_before_weights_are_looked_for(pictures, small, tmp_path, monkeypatch):
    def looked_for(*_):
        raise LikewiseError("weights were looked for")

    monkeypatch.setattr("likewise.models.backbones.download", looked_for)
    settings = small | {"data": str(pictures), "out": str(tmp_path / "run"), "backbone": "resnet18", "size": 32}
    for slip, says in [
        ({"loss": "Tripplet()"}, "did you mean 'Triplet'"),
        ({"loss": "Triplet(margn=1)"}, "did you mean 'margin'"),
        ({"sampler": "Shufled()"}, "did you mean 'Shuffled'"),
        ({"confidence": "ProcSimm()"}, "did you mean 'ProcSim'"),
        ({"terms": ("S2SD(wait=1)",)}, "S2SD has no argument 'wait'"),
        ({"length": "5x"}, "length"),
        ({}, "weights were looked for"),
    ]:
        with pytest.raises(LikewiseError, match=says):
            train(Train(**settings | slip))
    assert not (tmp_path / "run").exists()


def test_a_training_on_everything_is_not_scored(settings):
    said = []
    run = train(Train(**settings | {"protocol": "UnseenClasses(train=1)", "length": "2"}), said.append)
    assert said == ["all classes train, so none is left to test and nothing is scored"]
    assert run.done and run.scores is None
    from likewise import evaluate

    with pytest.raises(LikewiseError, match=r"no test part, for all of it trained .*so there is nothing to score"):
        evaluate(run, quiet=True)
    assert evaluate(run, part="train", quiet=True)["queries"] == 288


def test_classes_with_one_sample_are_said_to_be_left_out(settings, tmp_path):
    rng = np.random.default_rng(0)
    y = np.asarray([0] * 4 + [1] * 4 + [2] + [3] * 4 + [4] * 4 + [5] * 4)  # the first half trains
    np.savez(tmp_path / "few.npz", x=rng.normal(size=(21, 4)).astype(np.float32), label=y)
    settings |= {"data": str(tmp_path / "few.npz"), "length": "2", "metrics": ("R@1",)}
    said = []
    train(Train(**settings | {"sampler": None}), said.append)
    assert said == ["classes with one sample are left out of training: 1 of 3"]
    with pytest.raises(LikewiseError, match="lonely"):
        train(Train(**settings | {"sampler": "SamplesPerClass(batch=8, per_class=4)", "out": str(tmp_path / "other")}))
