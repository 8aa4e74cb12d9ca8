"""Around a long loop: cores for readers, a polite end on request, and when a state is saved."""

import os
import signal
import threading

import pytest
import torch
from likewise.types import LikewiseError

from likewise.learn.training import loop as guard
from likewise.learn.training.loop import CheckpointTimer, leave_cores_for, stop_on_signal
from likewise.learn.training.run_log import raise_unless_finite


def test_readers_get_their_cores_and_the_network_gets_them_back():
    torch.set_num_threads(3)
    with leave_cores_for(2, torch.device("cpu")):
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 3
    with leave_cores_for(9, torch.device("cpu")):
        assert torch.get_num_threads() == 1  # never none
    with leave_cores_for(2, torch.device("cuda")):
        assert torch.get_num_threads() == 3  # the CPU is not what computes there


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_request_is_noted_and_a_second_ctrl_c_stops(number):
    before = signal.getsignal(number)
    with stop_on_signal() as stop:
        assert not stop.is_set()
        os.kill(os.getpid(), number)
        assert stop.wait(600)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
            threading.Event().wait(600)
    assert signal.getsignal(number) is before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_kill_after_a_request_is_the_same_request(number):
    """Who started the process may pass a Ctrl-C on as a kill, so that it comes twice."""
    with stop_on_signal() as stop:
        os.kill(os.getpid(), number)
        assert stop.wait(600)
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGTERM)
            sum(range(1000))  # a handler runs between two lines
        assert stop.is_set()


def test_who_is_to_outlive_the_terminal_does(monkeypatch):
    """nohup starts a process that ignores SIGHUP; it goes on ignoring it."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stop_on_signal() as stop:
            os.kill(os.getpid(), signal.SIGHUP)
            sum(range(1000))
            assert not stop.is_set() and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_only_the_main_thread_may_listen():
    seen = []

    def elsewhere():
        with stop_on_signal() as stop:
            seen.append(stop.is_set())

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert seen == [False]


class Clock:
    """A time that passes when it is told to."""

    def __init__(self, monkeypatch):
        self.now = 100.0
        monkeypatch.setattr(guard.time, "monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


def save(saves, clock, seconds):
    """A state whose saving takes so long."""
    with saves:
        clock.now += seconds


def test_every_so_many_steps_whatever_the_time(clock):
    saves = CheckpointTimer(4)
    assert [step for step in range(1, 13) if saves.due(step)] == [4, 8, 12]
    save(saves, clock, 1000)
    assert saves.due(16) and not saves.due(17)


def test_every_so_many_seconds_whatever_the_steps(clock):
    saves = CheckpointTimer("30s")
    due = []
    for step in range(1, 131):  # a step a second, and saving takes half of one
        clock.now += 1
        if saves.due(step):
            due.append(step)
            save(saves, clock, 0.5)
    assert due == [30, 60, 90, 120]


def test_saving_never_takes_more_than_a_twentieth_of_the_time(clock):
    """Of states that take 0.1, 9 and 0.1 s, the time between two grows with what the last one took."""
    saves, began, spent, due = CheckpointTimer("30s"), clock.now, 0.0, []
    for step in range(1, 600):
        clock.now += 1
        if saves.due(step):
            due.append(step)
            takes = 9.0 if len(due) == 2 else 0.1
            save(saves, clock, takes)
            spent += takes
    assert due == [30, 60, 240, 270, 300, 330, 360, 390, 420, 450, 480, 510, 540, 570]
    assert spent <= (clock.now - began) / 20


def test_a_state_that_could_not_be_saved_counts_too(clock):
    """Else a full disk would be tried again after every step."""
    saves = CheckpointTimer("2s")
    clock.now += 3
    with pytest.raises(OSError, match="full"), saves:
        clock.now += 1
        raise OSError("full")
    assert not saves.due(1)
    clock.now += 19
    assert not saves.due(1)
    clock.now += 1
    assert saves.due(1)


def test_what_is_not_finite_is_named(tmp_path):
    raise_unless_finite(1.5, 3, tmp_path)
    with pytest.raises(LikewiseError, match=r"the loss must .*became nan before step 3; lower --lr"):
        raise_unless_finite(float("nan"), 3, tmp_path)
    with pytest.raises(LikewiseError, match="a weight must stay finite, but became inf before step 4"):
        raise_unless_finite(float("inf"), 4, tmp_path, "a weight")
