"""PeriodicWork at the whole data: validation, relabelling, and true labels that nothing uses."""

import dataclasses

import numpy as np
import pytest
import torch
from learn.training.small_training import assert_same_network, told, weights
from likewise.config import Train
from likewise.types import LikewiseError

from likewise.data import load
from likewise.learn.training import fit as module
from likewise.learn.training.fit import train
from likewise.learn.training.loop import Hooks
from likewise.runs.folder import Run
from likewise.runs.open import read_config


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
    from likewise.runs.engine.embed import embed_rows
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
