"""What the network sees: pictures that are held, batches, and what terms may look at."""

import dataclasses

import numpy as np
import pytest
import torch
from learn.training.small_training import CPU, GLYPHS, assert_same_network, built, told, weights
from likewise.config import Train
from likewise.types import LikewiseError
from torch.nn import functional as F

from likewise.data import load
from likewise.learn.training import fit as module
from likewise.learn.training.fit import train
from likewise.learn.training.inputs import fit_heads, open_inputs, prepare_terms
from likewise.learn.training.loop import Hooks
from likewise.models.heads import PCA
from likewise.runs.folder import Run
from likewise.runs.open import read_config


def test_what_is_held_covers_who_trains_validates_and_is_peeked_at(pictures, small, tmp_path):
    asked = []
    config = {"data": str(pictures), "out": str(tmp_path / "run"), "cache": "device", "cache_memory": "2GB", **small}
    given = load(str(pictures))
    for changes, rows in (({"short_side": 9}, 18), ({"test_every": "1e"}, 36)):
        state = built(Train(**config | changes), given)
        inputs = open_inputs(state, hold=lambda *args, **settings: asked.append((args, settings)))
        (_, held, device, keep, side), settings = asked.pop()
        assert sorted(held.tolist()) == list(range(rows)) and (device, keep, side) == (
            CPU,
            "device",
            9 if rows < 36 else None,
        )
        assert settings["budget"] == 2 * 2**30
        assert inputs.augment.side == inputs.plain.side == side


@pytest.mark.parametrize("layer_norm", [False, True])
def test_principal_components_are_those_of_the_training_samples_before_training(items, make, layer_norm):
    state = make(items, head="PCA()", dim=3, layer_norm=layer_norm, steps=0)
    fit_heads(state, open_inputs(state))
    x = torch.as_tensor(items.x[144:])
    own = PCA(x.shape[1], 3)
    own.fit(F.layer_norm(x, x.shape[1:]) if layer_norm else x)
    torch.testing.assert_close(state.components.embedder.head.components, own.components)


def test_a_run_without_training_stores_its_principal_components(pictures, small, tmp_path):
    config = Train(data=str(pictures), out=str(tmp_path / "run"), head="PCA()", **small | {"steps": 0})
    run = train(config)
    components = run.load_tensors("model.safetensors")["embedder.head.components"]
    assert (components != torch.eye(*components.shape)).any()
    torch.testing.assert_close(components @ components.T, torch.eye(len(components)), rtol=0, atol=1e-5)


def test_terms_are_given_the_training_samples_in_order(items, make, tmp_path, monkeypatch):
    from likewise.terms import SelfDistillation

    from likewise.runs.folder import Run

    seen = []
    monkeypatch.setattr(SelfDistillation, "prepare", lambda self, given: seen.append(given))
    state = make(items, terms=("SelfDistillation()",), noise="Uniform(share=0.3)")
    inputs = open_inputs(state)
    prepare_terms(state, inputs, Run(tmp_path))
    (given,) = seen
    x, place = (torch.cat(t) for t in zip(*given.pictures(None)))
    assert place.tolist() == list(range(144)) and torch.equal(x, torch.as_tensor(items.x[144:]))
    assert np.array_equal(given.labels, state.samples.labels) and given.class_names == state.samples.class_names


def test_terms_may_look_at_pictures_with_the_usual_workers(pictures, small, tmp_path, monkeypatch):
    from likewise.terms import SelfDistillation

    from likewise.runs.folder import Run

    seen = []
    monkeypatch.setattr(SelfDistillation, "prepare", lambda self, given: seen.extend(given.pictures(None)))
    given = load(str(pictures))
    config = Train(data=str(pictures), terms=("SelfDistillation()",), **small | {"workers": -1})
    state = built(config, given)
    inputs = open_inputs(state)
    prepare_terms(state, inputs, Run(tmp_path))
    assert [place for _, places in seen for place in places.tolist()] == list(range(18))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_pass_is_chosen_when_the_one_before_was_seen(tmp_path, monkeypatch, workers):
    """Workers read ahead, but not past the end of a pass of a sampler that looks at embeddings; of others, they do."""
    from likewise.samplers import GreedyCoreset, SamplesPerClass

    asked, steps = [], [0]

    def watch(sampler):
        real = sampler.epoch_batches
        monkeypatch.setattr(sampler, "epoch_batches", lambda self, n: asked.append((n, steps[0])) or real(self, n))

    hooks = Hooks(after_step=lambda state: steps.__setitem__(0, state.step))
    watch(GreedyCoreset)
    watch(SamplesPerClass)
    settings = GLYPHS | {"workers": workers, "cache": "files"}
    train(Train(**settings, sampler="GreedyCoreset(batch=8)", out=str(tmp_path / "one")), hooks=hooks)
    assert asked == [(0, 0), (1, 3), (2, 6)]
    asked.clear()
    steps[0] = 0
    train(Train(**settings, sampler="SamplesPerClass(batch=8)", out=str(tmp_path / "two")), hooks=hooks)
    assert [n for n, _ in asked[:3]] == [0, 1, 2] and (asked[1][1] < 3) == (workers > 0)


def test_a_sampler_is_shown_the_embeddings_of_its_own_rows(settings, tmp_path):
    """Training rows that are not the first of the table: what is observed goes to the row it is of."""
    data = load(settings["data"])
    file = str(tmp_path / "late.npz")
    np.savez(file, x=data.x, label=data.y, split=np.where(data.y < 12, "test", "train"))

    def check_rows(state, batch):
        assert (batch.row >= 144).all()
        return batch

    def check_bank(state):
        bank = torch.as_tensor(state.sampler.latest())
        with torch.no_grad():
            z = state.components.embedder(torch.as_tensor(data.x[144:])).z
        assert torch.allclose(bank, z, atol=1e-6)  # the network stands still, and has no augmentation

    settings = settings | {"data": file, "sampler": "FrechetMatching(batch=24)", "lr": 0.0, "steps": 7}
    train(Train(**settings | {"evaluate": False}), hooks=Hooks(before_step=check_rows, after_step=check_bank))


def test_sixteen_bit_training_fills_a_float32_bank(settings):
    settings = settings | {"sampler": "GreedyCoreset(batch=24)", "precision": "bf16", "steps": 8, "evaluate": False}
    bank = train(Train(**settings)).load_state()["sampler"]["bank"]
    assert bank.dtype == torch.float32 and bank.norm(dim=1).sub(1).abs().max() < 0.02


def test_two_views_double_the_batch_each_with_its_own_augmentation(tmp_path):
    seen = []

    def look(state, batch):
        seen.append(batch)
        return batch

    settings = GLYPHS | {"steps": 2, "views": 2, "sampler": "SamplesPerClass(batch=8)", "workers": 0}
    train(Train(**settings, augment="crop", out=str(tmp_path / "run")), hooks=Hooks(before_step=look))
    for batch in seen:
        first, second = batch.row.chunk(2)
        assert len(batch.row) == 16 and torch.equal(first, second)
        assert not torch.equal(*batch.x.chunk(2))


def test_validation_chooses_and_stops_and_test_labels_have_no_say(settings, tmp_path):
    settings = settings | {
        "protocol": "UnseenClasses(val=0.3)", "validate_every": "10", "patience": 2, "steps": 400, "lr": 0.0,
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
    from likewise.data.dataset import make_protocol
    from likewise.runs.embed import embed_rows
    from likewise.runs.network import open_embedder
    from likewise.score.retrieve import Scoring
    from likewise.score.scoring import mean_score

    config, data = read_config(run), load(settings["data"])
    protocol = make_protocol(config)
    cpu = torch.device("cpu")
    e = embed_rows(
        open_embedder(run, config, "best", cpu), data, protocol.rows(data, "val"), None, device=cpu, quiet=True
    )
    value = mean_score(e, Scoring(data, protocol, ["MAP@R"], quiet=True))
    assert value == pytest.approx(max(line["val MAP@R"] for line in log))


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


def test_patience_is_the_number_of_validations_without_a_new_best(settings):
    settings = settings | {"protocol": "UnseenClasses(val=0.3)", "validate_every": "5", "steps": 100, "lr": 0.0}
    run = train(Train(**settings | {"patience": 3, "evaluate": False}))
    assert [line["step"] for line in run.read_log() if "val MAP@R" in line] == [5, 10, 15, 20]


@pytest.mark.slow
def test_a_verdict_is_told_once(settings, tmp_path):
    """Lost with what came after a checkpoint, it is reached again, and the log holds it once."""
    settings = settings | {"noise": "Uniform(share=0.3)", "evaluate": False, "confidence": "LabelPosterior(every='10')"}
    whole = train(Train(**settings | {"out": str(tmp_path / "whole")}))
    assert [line["step"] for line in whole.read_log() if "relabelling" in line] == [1, 11, 21, 31]

    class Lost(Exception):
        pass

    for at in (5, 23):  # before the first checkpoint, and after that of step 20

        def lose(state, at=at):
            if state.step == at:
                raise Lost

        with pytest.raises(Lost):
            train(Train(**settings), hooks=Hooks(after_step=lose))
    resumed = train(Train(**settings))
    assert_same_network(whole, resumed)
    assert told(whole) == told(resumed)


def test_labels_left_out_are_not_drawn_and_repaired_ones_are_used(settings, monkeypatch):
    from likewise.confidence import LabelPosterior
    from likewise.types import Relabelling

    seen = []

    def relabel(self, e):
        y, w = e.y.clone(), torch.ones(len(e.y))
        y[:5], w[5:10] = 1, 0.0
        return Relabelling(y, w)

    def look(state, batch):
        place = state.samples.position[batch.row]
        assert (state.y[place] == torch.as_tensor(state.samples.labels)[place].where(place >= 5, 1)).all()
        seen.extend(place.tolist())
        return batch

    monkeypatch.setattr(LabelPosterior, "relabel", relabel)
    settings = settings | {"confidence": "LabelPosterior()", "evaluate": False}
    run = train(Train(**settings), hooks=Hooks(before_step=look))
    assert set(range(5)) <= set(seen) and not set(range(5, 10)) & set(seen)
    trust = np.load(run.path / "sample_weights.npz")
    assert trust["label"][:5].tolist() == ["1"] * 5 and trust["given"][:5].tolist() == ["0"] * 5
    assert (trust["weight"][5:10] == 0).all() and trust["row"].tolist() == list(range(144))


@pytest.mark.parametrize("confidence", ["ProcSim()", "LabelPosterior(every='5')", "PRISM(share=0.3)"])
def test_what_is_true_never_reaches_a_part(settings, tmp_path, monkeypatch, confidence):
    """True labels that are garbage, of classes that train nowhere too: other numbers in the log, the same training."""
    data = load(settings["data"])
    rng = np.random.default_rng(0)
    half = np.flatnonzero(data.y < 12)
    y = data.y.copy()
    y[half] = np.where(rng.random(len(half)) < 0.3, rng.permutation(y[half]), y[half])
    garbage = rng.integers(0, 24, len(y))
    settings = settings | {"confidence": confidence, "steps": 12, "loss": "ProxyAnchor()"}
    runs = []
    for name, clean in (("true", data.y), ("garbage", garbage), ("unknown", None)):
        split = np.where(data.y < 12, "train", "test")  # without one, true labels say who tests, as they must
        items = dataclasses.replace(data, y=y, y_clean=clean, split=split)
        monkeypatch.setattr(module, "training_items", lambda *_, items=items, **__: items)
        runs.append(train(Train(**settings | {"out": str(tmp_path / name)})))
    for other in runs[1:]:
        assert_same_network(runs[0], other)
    trust = [[line.get("sample_weights") or line.get("relabelling") for line in run.read_log()] for run in runs]
    assert trust[0] != trust[1] and "AUROC" in str(trust[0]) and "AUROC" not in str(trust[2])
