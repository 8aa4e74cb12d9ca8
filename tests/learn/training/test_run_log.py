"""The record of a training: lines in order, once, and the loggers beside it."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from learn.training.small_training import assert_same_network, told
from likewise.config import Train
from likewise.types import LikewiseError

from likewise.data import load
from likewise.learn.training.build import build_state, make_samples
from likewise.learn.training.defaults import resolve
from likewise.learn.training.fit import train
from likewise.learn.training.interrupts import Interrupted
from likewise.learn.training.logger_dispatch import LoggerDispatch
from likewise.learn.training.run_log import RunLog
from likewise.runs.folder import Run
from likewise.runs.usage import Session


@pytest.fixture
def heard():
    """What loggers hear."""
    return []


@pytest.fixture
def make_log(tmp_path, heard):
    def make(**how):
        loggers = LoggerDispatch.__new__(LoggerDispatch)
        loggers.send = heard.append
        return RunLog(Run(tmp_path), Session.__new__(Session), loggers, **how)

    return make


def test_a_note_comes_after_what_was_on_its_way(make_log, heard):
    log = make_log()
    came = SimpleNamespace(query=lambda: False, synchronize=lambda: None)
    entry = SimpleNamespace(names=("loss",), values=torch.tensor([0.5]), copied=came, write=log.write)
    log.scalars.pending.append(entry)
    log.note({"step": 7, "val": 1.0})
    assert log.run.read_log() == heard == [{"loss": 0.5}, {"step": 7, "val": 1.0}]


def test_only_the_first_process_writes(make_log, heard):
    log = make_log(writes=False)
    log.note({"step": 7})
    assert log.run.read_log() == heard == []


def test_how_the_network_runs_is_said_once(make_log):
    log, tried = make_log(), {"eager": 2.2501, "compile": math.inf}
    assert log.mode_facts(None, tried) == {}
    assert log.mode_facts("eager", tried) == {"execution": "eager", "speed_ms": {"eager": 2.25}}
    assert log.mode_facts("eager", tried) == {}


@pytest.mark.parametrize("broken", ["loss", "weight"])
def test_a_diverged_network_is_not_sound(make_log, settings, broken):
    log, device = make_log(), torch.device("cpu")
    items = load(settings["data"])
    config = resolve(Train(**settings), items)
    state = build_state(config, make_samples(config, items, device), device)
    state.step, state.total, state.counted = 7, torch.tensor(3.0), 2
    log.check_finite(state)
    if broken == "loss":
        state.total = torch.tensor(math.nan)
    else:
        with torch.no_grad():
            next(state.components.embedder.parameters()).view(-1)[0] = math.inf
    with pytest.raises(LikewiseError, match="step 7"):
        log.check_finite(state)


def losses_by_hand(config):
    """The loop again, a sample at a time: for each pass, the losses that every training sample had in it."""
    items = load(config.data)
    device = torch.device("cpu")
    config = resolve(config, items)
    samples = make_samples(config, items, device)
    state = build_state(config, samples, device)
    components = state.components
    x, y = torch.as_tensor(items.x[samples.rows]), torch.as_tensor(samples.labels)
    components.embedder.train()
    lines = []
    for step in range(state.plan.steps):
        number, within = divmod(step, state.plan.steps_per_epoch)
        if within == 0:
            lines.append({})
        chosen = state.sampler.epoch_batches(number)[within]
        each = components.loss(components.embedder(x[chosen]).z, y[chosen])
        for place, loss in zip(chosen, each.tolist(), strict=True):
            lines[-1].setdefault(place, []).append(loss)
        state.optimizer.zero_grad()
        (samples.weight[samples.rows[chosen]] * each).mean().backward()
        state.optimizer.step()
        components.loss.after_step(step + 1)
    return lines


def test_losses_over_time_are_those_of_a_loop_by_hand(settings, tmp_path):
    """Of two passes and a half, unweighted; rows are those of the data."""
    with np.load(settings["data"]) as data:
        weight = np.linspace(0.5, 2, 288)
        np.savez(tmp_path / "weighted.npz", x=data["x"], label=data["label"], weight=weight)
    settings |= {"data": str(tmp_path / "weighted.npz"), "loss": "ProxyNCA()", "evaluate": False, "steps": 15}
    config = Train(**settings, record_losses=True)
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
    settings |= {"noise": "Uniform(share=0.3)", "loss": "NormSoftmax()", "evaluate": False, "steps": 20} | parts
    plain = train(Train(**settings | {"out": str(tmp_path / "plain")}))
    whole = train(Train(**settings | {"out": str(tmp_path / "whole")}, record_losses=True))
    assert plain.losses() is None
    assert_same_network(plain, whole)
    assert told(plain) == told(whole)
    first, second = plain.load_state(), whole.load_state()
    assert first["total"] == second["total"]
    with pytest.raises(Interrupted):
        train(Train(**settings, record_losses=True), hooks=stop_at(11))
    assert Run(settings["out"]).losses().step.tolist() == [6]
    resumed = train(Train(**settings))
    assert (resumed.path / "losses.npz").read_bytes() == (whole.path / "losses.npz").read_bytes()
    assert whole.losses().step.tolist() == [6, 12, 18, 20]


def test_losses_over_time_are_of_the_labels_trained_with(settings, monkeypatch):
    """Those that a verdict leaves out have none; a repaired label's loss is that of the new one."""
    from likewise.confidence import LabelPosterior
    from likewise.types import Relabelling

    def relabel(self, e):
        y, w = e.y.clone(), torch.ones(len(e.y))
        y[:12], w[12:20] = 1, 0.0
        return Relabelling(y, w)

    monkeypatch.setattr(LabelPosterior, "relabel", relabel)
    settings |= {"confidence": "LabelPosterior()", "loss": "ProxyNCA()", "evaluate": False, "steps": 120}
    loss = train(Train(**settings, record_losses=True)).losses().loss
    assert np.isnan(loss[:, 12:20]).all() and not np.isnan(loss[:, :12]).all(0).any()
    assert np.nanmean(loss[-3:, :12]) < 0.7 * np.nanmean(loss[0, :12])  # learned, though of class 0


def test_of_two_networks_the_first_ones_losses_are_kept(settings, tmp_path):
    """It starts as it would alone."""
    settings |= {"loss": "NormSoftmax()", "evaluate": False, "steps": 1}
    alone, first = (
        train(Train(**settings | {"out": str(tmp_path / str(doubt))}, confidence=doubt, record_losses=True))
        .losses()
        .loss
        for doubt in (None, "CoTeaching(share=0.2)")
    )
    assert np.array_equal(alone, first, equal_nan=True) and (~np.isnan(first)).sum() == 24
