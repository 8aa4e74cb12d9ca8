import os
import signal
import subprocess
import sys

import pytest

from likewise.core import processes
from likewise.core.processes import command, is_stopped, lives, mark, pid_scope


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
