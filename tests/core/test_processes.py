"""Child processes: command lines, who lives, and children that are asked to stop, deaf, suspended, lost, or without a parent."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from likewise.core import processes
from likewise.core import processes as supervisor
from likewise.core.processes import Child, _born, command, is_stopped, lives, mark, pid_scope, stop_all, wait_together


def test_a_child_imports_what_its_parent_does_and_nothing_from_the_current_folder(tmp_path, monkeypatch):
    """A user's own module is found where the parent found it; a file with the name of a module of Python is not."""
    own, here = tmp_path / "own", tmp_path / "here"
    own.mkdir()
    here.mkdir()
    (here / "statistics.py").write_text("open('ran', 'w')")
    (own / "mine.py").write_text("import statistics, sys\ndef work(): print(statistics.mean([1, 3]), sys.argv[1])")
    monkeypatch.syspath_prepend(str(own))
    monkeypatch.chdir(here)
    words = command("mine:work", "told")
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["2", "told"] and not (here / "ran").exists()
    assert words[:2] == [sys.executable, "-P"]
    monkeypatch.syspath_prepend(str(here))  # where the parent itself would run it, so does the child
    subprocess.run(command("mine:work", "told"), capture_output=True, check=False)
    assert (here / "ran").exists()


def test_who_lives():
    assert lives(mark()) is (True if sys.platform == "linux" else None)
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    for pid in (gone.pid, 10**15):
        assert lives(mark() | {"pid": pid}) is (None if os.name == "nt" else False)
    for odd in (
        None,
        [],
        ["host", os.getpid()],
        {},
        {"pid": "7"},
        mark() | {"pid": -1},
        mark() | {"space": "elsewhere"},
    ):
        assert lives(odd) is None


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
def test_a_number_that_another_process_got_and_one_that_waits_for_its_parent(monkeypatch):
    assert lives(mark() | {"born": 1}) is False
    ended = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
    assert lives(mark() | {"pid": ended.pid}) is False  # killed, and not yet waited for
    ended.wait()
    assert pid_scope().split()[-1] == os.readlink("/proc/self/ns/pid")
    monkeypatch.setattr(processes, "pid_scope", lambda: None)
    assert lives(mark()) is None


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
def test_a_suspended_process_is_seen():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        assert not is_stopped(child.pid)
        child.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, child.pid, os.WSTOPPED)
        assert is_stopped(child.pid)
    finally:
        child.kill()
        child.wait()
    assert not is_stopped(child.pid)


pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals")

DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(60)"
POLITE = "import signal, time; signal.signal(signal.SIGTERM, lambda *_: exit(130)); print(flush=True); time.sleep(60)"


def child_of(code: str) -> Child:
    return Child([sys.executable, "-c", code], answers=True)


def ready(code: str) -> Child:
    """A child that has come to its first line."""
    child = child_of(code)
    child.stdout.readline()
    return child


def test_who_does_not_end_is_ended():
    """One is lost; the other is asked, and then killed."""
    assert wait_together([ready(DEAF), child_of("exit(3)")], threading.Event(), grace=0.1) == [-signal.SIGKILL, 3]


def test_a_request_to_stop_is_passed_on():
    """To every process; how they end is their own business."""
    stop = threading.Event()
    stop.set()
    children = [ready(POLITE), ready(POLITE)]
    assert wait_together(children, stop) == [130, 130]
    assert not any(child.lost for child in children)


def test_a_suspended_child_ends_when_it_is_asked_to():
    child = ready(POLITE)
    child.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, child.pid, os.WSTOPPED)
    assert is_stopped(child.pid) is (sys.platform == "linux")
    if sys.platform != "linux":
        child.send_signal(signal.SIGCONT)
    stop_all([child])
    assert child.returncode == 130


def test_a_second_ctrl_c_kills(monkeypatch):
    child = ready(DEAF)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(supervisor, "request_stop", lambda children: signal.raise_signal(signal.SIGINT))
        stop_all([child])
    assert child.wait() == -signal.SIGKILL


def test_questions_answers_and_last_words():
    child = child_of("import sys\nprint(input() + '!', flush=True)\nprint('why', file=sys.stderr)\nexit(4)")
    assert child.ask("hear") == "hear!\n"
    assert child.ask("more") == ""
    assert child.exit_summary() == "the process ended with code 4: why" and child.lost


WORK = """
import sys, time
from likewise.core.processes import stop_with_parent
def work():
    lines = stop_with_parent()
    print(lines.get().strip(), sys.stdin.read() == "", flush=True)
    time.sleep(60)
def parent():
    from likewise.core.processes import command
    from likewise.core.processes import Child
    child = Child(command("mine:work"), answers=True)
    print(child.pid, child.ask("hear").strip(), flush=True)
    time.sleep(60)
"""


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """A module whose functions run in children."""
    (tmp_path / "mine.py").write_text(WORK)
    monkeypatch.syspath_prepend(str(tmp_path))


def test_a_child_stops_when_its_parent_closes_stdin(mine):
    """And its own stdin is empty: a forked process that reads it must not wait."""
    child = Child(command("mine:work"), answers=True)
    assert child.ask("hear") == "hear True\n"
    child.stdin.close()
    assert child.wait(60) == -signal.SIGTERM


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
def test_a_child_stops_when_its_parent_is_killed(mine):
    parent = subprocess.Popen(command("mine:parent"), stdout=subprocess.PIPE, text=True)
    number, *heard = parent.stdout.readline().split()
    assert heard == ["hear", "True"]
    owner = mark() | {"pid": int(number), "born": _born(int(number))}
    assert lives(owner)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    for _ in range(600):
        if lives(owner) is False:
            return
        time.sleep(0.1)
    pytest.fail("the child outlives its parent")


def test_a_child_hears_ctrl_c_although_its_parent_was_started_deaf(mine):
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as a shell starts what it puts into the background
    try:
        child = Child(command("mine:work"), answers=True)
    finally:
        signal.signal(signal.SIGINT, before)
    child.ask("hear")
    child.send_signal(signal.SIGINT)
    assert child.wait(60) not in (None, 0) and "KeyboardInterrupt" in child.exit_summary()
