"""The record of a training: lines in order, once, and the loggers beside it."""

import math
import shutil
import sys
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from learn.training.small_training import assert_same_network
from learn.training.small_training import told as log_of
from likewise.config import Train
from likewise.contracts import Logger
from likewise.types import LikewiseError

from likewise.data import load
from likewise.learn.training import run_log as module
from likewise.learn.training.build import build_state, make_samples
from likewise.learn.training.defaults import resolve
from likewise.learn.training.fit import train
from likewise.learn.training.loop import Hooks, Interrupted
from likewise.learn.training.run_log import AsyncScalars, LoggerDispatch, RunLog, make_loggers, numbers_of
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
    assert log_of(plain) == log_of(whole)
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


def test_on_the_cpu_numbers_are_written_at_once_and_in_order():
    journal, written = AsyncScalars(), []
    for step in range(3):
        values = {"loss": torch.tensor(step + 0.5, requires_grad=True), "share": torch.tensor([0.0, 1.0, step])}
        values |= {"filled": torch.tensor(7), "on": torch.tensor([True, False])}
        journal.add(values, written.append)
        assert len(written) == step + 1 and not journal.pending
    more = {"filled": 7.0, "on": 0.5}
    assert written == [{"loss": step + 0.5, "share": pytest.approx((1 + step) / 3), **more} for step in range(3)]
    journal.flush()
    journal.flush(wait=True)
    assert len(written) == 3


def test_what_is_not_a_number_reaches_the_writer():
    """Who decides what to do about it, and may raise."""
    written = []
    AsyncScalars().add({"loss": torch.tensor(torch.nan), "lr": torch.tensor(torch.inf)}, written.append)
    assert math.isnan(written[0]["loss"]) and written[0]["lr"] == math.inf

    def refuse(numbers):
        raise ArithmeticError(numbers)

    with pytest.raises(ArithmeticError):
        AsyncScalars().add({"loss": torch.tensor(torch.nan)}, refuse)


class Came:
    """An event of a device, which happens when it is told to."""

    def __init__(self):
        self.there, self.waited = False, 0

    def query(self):
        return self.there

    def synchronize(self):
        self.waited += not self.there
        self.there = True


def late(journal, count, written, write=None):
    """Entries as a device leaves them behind, none of them there yet."""
    events = [Came() for _ in range(count)]
    for number, came in enumerate(events):
        journal.pending.append(entry(number, came, write or written.append))
    return events


def entry(number, came, write):
    made = object.__new__(module.PendingScalars)  # without a look at its kinds: the event is a stand-in
    vars(made).update(names=("n",), values=torch.tensor([float(number)]), copied=came, write=write)
    return made


def test_what_has_not_come_holds_up_what_came_after_it_and_nothing_is_waited_for():
    journal, written = AsyncScalars(), []
    first, second, third, fourth = late(journal, 4, written)
    journal.flush()
    assert written == []
    second.there = third.there = True
    journal.flush()
    assert written == []
    first.there = True
    journal.flush()
    assert [line["n"] for line in written] == [0, 1, 2] and not any(e.waited for e in (first, second, third, fourth))


def test_asked_to_wait_it_writes_all_there_is():
    journal, written = AsyncScalars(), []
    events = late(journal, 3, written)
    journal.flush(wait=True)
    assert [line["n"] for line in written] == [0, 1, 2] and [e.waited for e in events] == [1, 1, 1]
    assert not journal.pending


def test_a_line_that_is_refused_is_not_written_twice():
    journal, written = AsyncScalars(), []

    def refuse_the_first(numbers):
        if numbers["n"] == 0:
            raise ArithmeticError
        written.append(numbers)

    late(journal, 2, written, refuse_the_first)
    with pytest.raises(ArithmeticError):
        journal.flush(wait=True)
    journal.flush(wait=True)
    assert [line["n"] for line in written] == [1]


@pytest.mark.gpu
def test_on_a_gpu_nothing_is_written_before_it_has_come():
    journal, written = AsyncScalars(), []
    # Pinning new memory and loading a kernel wait for the device, so there is memory in torch's cache, and kernels are loaded.
    pinned = [torch.empty(4, pin_memory=True) for _ in range(16)]
    del pinned
    journal.add({"loss": torch.full((), 1.0, device="cuda"), "host": torch.tensor(5)}, lambda numbers: None)
    torch.cuda._sleep(1)
    journal.flush(wait=True)
    torch.cuda._sleep(10**9)  # the device is busy for about half a second
    for step in range(3):
        journal.add({"loss": torch.full((), float(step), device="cuda"), "host": torch.tensor(5)}, written.append)
    assert written == [] and len(journal.pending) == 3
    torch.cuda.synchronize()
    journal.flush()
    assert written == [{"loss": float(step), "host": 5.0} for step in range(3)] and not journal.pending


@pytest.mark.gpu
def test_on_a_gpu_what_is_not_a_number_reaches_the_writer():
    journal, written = AsyncScalars(), []
    journal.add({"loss": torch.full((), torch.nan, device="cuda")}, written.append)
    journal.flush(wait=True)
    assert math.isnan(written[0]["loss"])


CALLS = []


class Listed(Logger):
    """Notes every call.

    Args:
        name: to tell two apart.
        fails: the call that it fails at.
    """

    def __init__(self, name: str = "a", fails: str = ""):
        self.name = name
        self.fails = fails

    def note(self, call, *values):
        CALLS.append((self.name, call, *values, threading.current_thread().name))
        if call == self.fails:
            raise OSError("no way out")

    def start(self, name, folder, config, key):
        self.note("start", name, config["dim"], key)
        return f"key of {self.name}"

    def log(self, step, numbers):
        self.note("log", step, numbers)

    def end(self, scores):
        self.note("end", scores)


@pytest.fixture(autouse=True)
def calls(monkeypatch):
    """Every call as (what, ...), in order."""
    CALLS.clear()
    monkeypatch.setitem(sys.modules, "lab", SimpleNamespace(Listed=Listed))
    return lambda what=None, name="a": [c[1:-1] for c in CALLS if c[0] == name and what in (None, c[1])]


@pytest.fixture
def told(settings):
    return settings | {"loggers": ("lab.Listed()",), "allow_imports": True, "log_every": 5}


def test_numbers_of_a_line_by_hand():
    line = {
        "step": 5,
        "loss": 1,
        "lr": {"head": 0.5, "deep": {"er": 2}},
        "execution": "graph",
        "yes": True,
        "none": None,
    }
    line["suspicion"] = {"edges": [0, 1], "threshold": 0.5}
    assert numbers_of(line) == {"loss": 1.0, "lr/head": 0.5, "lr/deep/er": 2.0, "suspicion/threshold": 0.5}


def test_a_logger_hears_what_the_log_says_and_the_scores_in_the_end(told, calls):
    run = train(Train(**told))
    (start,), *logs, end = calls("start"), *calls("log"), *calls("end")
    assert start == ("start", "run", 8, None) and len(calls()) == len(logs) + 2
    assert [(step, numbers) for _, step, numbers in logs] == [(e["step"], numbers_of(e)) for e in run.read_log()]
    assert end == ("end", {f"test {k}": v for k, v in run.scores["metrics"].items()})
    assert all(call[-1].startswith("loggers") for call in CALLS), "training waits for a logger"
    CALLS.clear()
    train(Train(**told))  # it is finished
    assert CALLS == []


def test_loggers_change_no_run(told):
    plain = train(Train(**told | {"loggers": ()}))
    assert train(Train(**told)).path == plain.path and CALLS == []


def test_going_on_tells_every_number_once_and_keeps_the_key(told, calls, stop_at, tmp_path):
    """Killed at step 23, with the state of step 10: what came between is worked out again, and told no more."""
    state_file, kept = Path(told["out"]) / "state.pt", tmp_path / "kept.pt"

    def keep_the_first(state):
        if state.step == 10:
            shutil.copy(state_file, kept)

    def killed_at(step):  # the checkpoints after step 10 are lost
        return replace(stop_at(step), saved=keep_the_first)

    with pytest.raises(Interrupted):
        train(Train(**told), hooks=killed_at(23))
    shutil.copy(kept, state_file)
    assert calls()[-1] == ("end", None)
    # and once more, before that point is reached again
    with pytest.raises(Interrupted):
        train(Train(**told), hooks=killed_at(18))
    shutil.copy(kept, state_file)
    run = train(Train(**told))
    assert [key for _, _, _, key in calls("start")] == [None, "key of a", "key of a"]
    assert [step for _, step, _ in calls("log")] == [5, 10, 15, 20, 25, 30, 35, 40]
    heard = {step: numbers["loss"] for _, step, numbers in calls("log")}
    assert heard == {line["step"]: line["loss"] for line in run.read_log()}


def test_a_logger_that_comes_later_gets_the_log_so_far(told, calls, stop_at):
    with pytest.raises(Interrupted):
        train(Train(**told | {"loggers": ()}), hooks=stop_at(20))
    train(Train(**told))
    assert [step for _, step, _ in calls("log")] == [5, 10, 15, 20, 25, 30, 35, 40]


@pytest.mark.parametrize("stored", ["[]", '{"x": 1}', '{"x": {"key": 1}}', '{"x": {"key": "k", "sent": [["a", 1]]}}'])
def test_damaged_records_of_the_loggers(told, stop_at, stored):
    with pytest.raises(Interrupted):
        train(Train(**told), hooks=stop_at(20))
    Path(told["out"], "loggers.json").write_text(stored)
    with pytest.raises(LikewiseError, match="loggers.json .*damaged.*delete it"):
        train(Train(**told))


def test_trained_anew_is_told_anew(told, calls):
    train(Train(**told))
    train(Train(**told, restart=True))
    assert [key for *_, key in calls("start")] == [None, None] and len(calls("log")) == 16


@pytest.mark.parametrize("call", ["start", "log", "end"])
def test_one_that_fails_is_told_of_once_and_the_others_go_on(told, calls, capsys, call):
    told["loggers"] = (f"lab.Listed(name='b', fails='{call}')", "lab.Listed()")
    run = train(Train(**told))
    assert run.done and len(calls("log")) == 8 and calls("end")[0][1]
    assert (
        len(calls(call, "b")) == 1
        and capsys.readouterr().out.count("failed (no way out); training continues without it") == 1
    )


def test_a_training_that_fails_ends_its_loggers(told, calls):
    def fall(state):
        raise RuntimeError("a fault of ours")

    with pytest.raises(RuntimeError, match="a fault of ours"):
        train(Train(**told), hooks=Hooks(after_step=fall))
    assert [c[0] for c in calls()] == ["start", "end"] and calls("end") == [("end", None)]


def test_what_cannot_be_made_is_said_before_anything_else(settings, monkeypatch):
    monkeypatch.setattr("likewise.learn.training.fit.training_items", lambda *_, **__: pytest.fail("the work began"))
    for text, words in (
        ("Triplet()", "describes a Triplet, but a Logger is needed here"),
        ("TensorBord()", "did you mean 'TensorBoard'"),
        ("WandB(mode='of')", "mode must be 'online' or 'offline', got 'of'"),
        ("lab.Listed()", "add --allow-imports"),
    ):
        with pytest.raises(LikewiseError, match=words):
            train(Train(**settings | {"loggers": (text,)}))
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *_: None)
    monkeypatch.delitem(sys.modules, "mlflow", raising=False)
    with pytest.raises(LikewiseError, match=r"pip install .*'likewise\[mlflow\]'"):
        make_loggers(Train(**settings | {"loggers": ("MLflow()",)}))


def test_tensor_board_has_every_step_of_a_training_that_was_cut_short(settings, stop_at):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    settings |= {"protocol": "UnseenClasses(val=0.3)", "validate_every": "20", "loggers": ("TensorBoard()",)}
    with pytest.raises(Interrupted):
        train(Train(**settings), hooks=stop_at(23))
    run = train(Train(**settings))
    read = EventAccumulator(str(run.path / "tensorboard"), size_guidance={"scalars": 0}).Reload()
    found = {name: {e.step: e.value for e in read.Scalars(name)} for name in read.Tags()["scalars"]}
    assert len(read.Scalars("loss")) == 4
    assert found["loss"] == pytest.approx({line["step"]: line["loss"] for line in run.read_log() if "loss" in line})
    assert list(found["val MAP@R"]) == [20, 40] and {"lr/head", "images_per_s"} <= found.keys()
    assert found["test R@1"] == pytest.approx({40: run.scores["metrics"]["R@1"]})
