"""Loggers beside a training: told everything once, never waited for, and free to fail."""

import shutil
import sys
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from likewise.config import Train
from likewise.contracts import Logger
from likewise.types import LikewiseError

from likewise.learn.training.fit import train
from likewise.learn.training.interrupts import Interrupted
from likewise.learn.training.logger_dispatch import make_loggers, numbers_of
from likewise.learn.training.loop import Hooks

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
    with pytest.raises(LikewiseError, match=r"pip install 'likewise\[mlflow\]'"):
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
