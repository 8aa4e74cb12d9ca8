"""The record of a training: lines in order, once, and the loggers beside it."""

import math
from types import SimpleNamespace

import pytest
import torch

from likewise.runs.folder import Run
from likewise.runs.usage import Session
from likewise.training.logger_dispatch import Telling
from likewise.training.run_log import Recording
from likewise.types import LikewiseError


@pytest.fixture
def recording(tmp_path):
    """A record without a training around it; `told` is what loggers hear."""
    made, told, telling = Recording.__new__(Recording), [], Telling.__new__(Telling)
    telling.tell = told.append
    made.keep_record(Run(tmp_path), Session.__new__(Session), telling)
    made.embedders, made.losses, made.terms = [torch.nn.Linear(2, 2)], [], []
    made.step, made.total, made.counted = 7, torch.tensor(3.0), 2
    made.heard = told
    return made


def test_a_note_comes_after_what_was_on_its_way(recording):
    came = SimpleNamespace(query=lambda: False, synchronize=lambda: None)
    entry = SimpleNamespace(names=("loss",), numbers=torch.tensor([0.5]), came=came, write=lambda n: recording.write(n))
    recording.journal.waiting.append(entry)
    recording.note({"step": 7, "val": 1.0})
    assert recording.run.read_log() == recording.heard == [{"loss": 0.5}, {"step": 7, "val": 1.0}]


def test_only_the_first_process_writes(recording, monkeypatch):
    monkeypatch.setattr("likewise.training.run_log.world", lambda: (1, 2))
    recording.note({"step": 7})
    assert recording.run.read_log() == recording.heard == []


def test_how_the_network_runs_is_said_once(recording):
    fast = SimpleNamespace(known=None, tried={"eager": 2.2501, "compile": math.inf})
    recording.fast = [fast]
    assert recording.tried() == {}
    fast.known = "eager"
    assert recording.tried() == {"speed": "eager", "speed_ms": {"eager": 2.25}}
    assert recording.tried() == {}


@pytest.mark.parametrize("broken", ["loss", "weight"])
def test_a_diverged_network_is_not_sound(recording, broken):
    recording.must_be_sound()
    if broken == "loss":
        recording.total = torch.tensor(math.nan)
    else:
        with torch.no_grad():
            recording.embedders[0].weight[0, 0] = math.inf
    with pytest.raises(LikewiseError, match="step 7"):
        recording.must_be_sound()
