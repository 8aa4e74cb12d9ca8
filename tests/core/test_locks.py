"""Locks: one owner at a time, waiting and refusing, owners that are killed, suspended, or elsewhere."""

import json
import os
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

import likewise
from likewise.core import locks
from likewise.core.locks import HeartbeatLock, LockHeld, file_lock, share_lock
from likewise.core.processes import mark

HOLDER = """
import sys
from pathlib import Path
from likewise.core.locks import file_lock
with file_lock(Path(sys.argv[1])):
    print(flush=True)
    input()
"""


@pytest.fixture
def holder(tmp_path):
    """A child process that holds the lock until a line comes."""
    child = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path / "lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    child.stdout.readline()
    yield child
    child.kill()
    child.wait()


@pytest.mark.skipif(os.name == "nt", reason="flock")
def test_a_held_file_is_refused_or_waited_for(tmp_path, holder):
    file, waited = tmp_path / "lock", []
    with file_lock(file, wait=False) as locked:
        assert not locked
    with file_lock(file, before_waiting=lambda: waited.append(holder.communicate("\n"))) as locked:
        assert locked and len(waited) == 1
    with file_lock(file, wait=False) as locked:
        assert locked


@pytest.mark.skipif(os.name == "nt", reason="flock")
def test_a_killed_owner_holds_no_file(tmp_path, holder):
    holder.kill()
    holder.wait()
    with file_lock(tmp_path / "lock", wait=False) as locked:
        assert locked


@pytest.mark.skipif(os.name == "nt", reason="flock")
def test_a_shared_file_is_in_use_until_it_is_closed(tmp_path):
    file = tmp_path / "pixels"
    file.write_text("content")
    with file.open() as one, file.open() as other:
        share_lock(one)
        share_lock(other)
        with file_lock(file, wait=False) as locked:
            assert not locked
    with file_lock(file, wait=False) as locked:
        assert locked and file.read_text() == "content"


def test_without_flock_every_process_gets_the_lock(tmp_path, monkeypatch):
    monkeypatch.setattr(locks, "fcntl", None)
    with file_lock(tmp_path / "lock") as one, file_lock(tmp_path / "lock", wait=False) as other:
        assert one and other
    with (tmp_path / "lock").open() as file:
        share_lock(file)


def test_a_bare_python_can_import_the_locks():
    """tools/environment.py uses them before anything is installed."""
    source = Path(likewise.__file__).parent.parent
    code = f"import sys; sys.path.insert(0, {str(source)!r}); import likewise.core.locks"
    subprocess.run([sys.executable, "-I", "-S", "-c", code], check=True)


@contextmanager
def held(file, **how):
    lock = HeartbeatLock(file, **how)
    lock.acquire()
    try:
        yield lock
    finally:
        lock.release()


@pytest.fixture
def file(tmp_path):
    return tmp_path / "lock"


def test_one_owner_and_locks_left_behind(file):
    with held(file):
        assert file.exists()
        with pytest.raises(LockHeld) as refused, held(file):
            pass
        assert refused.value.owner["pid"] == os.getpid()
        assert file.exists()  # the refused process must not delete the owner's lock
    assert not file.exists()
    file.write_text(json.dumps(mark() | {"pid": 2**22 + 1}))
    with held(file):  # its process is gone
        pass
    file.write_text(json.dumps(mark() | {"born": 1}))
    with held(file):  # another process got its number
        pass


def test_where_process_numbers_mean_nothing_the_heartbeat_decides(file, monkeypatch):
    """Another machine, or a container with the same host name: it may live although its number is not there."""
    gone = mark() | {"pid": 2**22 + 1, "host": socket.gethostname()}
    for text in (json.dumps(gone | {"space": "another boot pid:[7]"}), json.dumps({"pid": 7}), "", "[" * 9999, "\xff"):
        file.write_text(text, "latin-1")
        with pytest.raises(LockHeld), held(file):
            pass
        with monkeypatch.context() as patch:  # a clock that differs from that of the disk decides nothing
            patch.setattr(locks.time, "time", lambda: time.time_ns() / 1e9 + 10 * locks.STALE_LOCK_SECONDS)
            with pytest.raises(LockHeld), held(file):
                pass
        old = file.stat().st_mtime - locks.STALE_LOCK_SECONDS - 1
        os.utime(file, (old, old))
        with held(file):  # no heartbeat for too long
            pass


def test_a_suspended_owner_keeps_its_lock(file):
    """Its heart does not beat, but its process is there and will go on."""
    with held(file):
        old = time.time() - 10 * locks.STALE_LOCK_SECONDS
        os.utime(file, (old, old))
        with pytest.raises(LockHeld) as refused, held(file):
            pass
        assert refused.value.owner["host"] == socket.gethostname()


def test_the_heartbeat_beats(file):
    with held(file, stale=0.1):
        first = file.stat().st_mtime_ns
        deadline = time.monotonic() + 60
        while file.stat().st_mtime_ns == first:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_the_heart_stops_with_the_file(file):
    before = threading.active_count()
    with held(file, stale=0.06):
        file.unlink()
        deadline = time.monotonic() + 60
        while threading.active_count() > before:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_of_two_who_find_a_lock_left_behind_one_wins(file, monkeypatch):
    """Both saw that it was stale; the slower one must not delete the faster one's new lock."""
    file.write_text(json.dumps(mark() | {"pid": 2**22 + 1}))
    real, taken = locks.remove_stale, []

    def slow(path, stale):
        if not taken:  # between the check and the removal, another process acquires the lock
            taken.append(HeartbeatLock(file))
            taken[0].acquire()
        real(path, stale)

    monkeypatch.setattr(locks, "remove_stale", slow)
    with pytest.raises(LockHeld), held(file):
        pass
    assert json.loads(file.read_text())["pid"] == os.getpid()
    taken[0].release()
    assert not file.exists()


def test_a_lock_that_another_process_took_over_stays(file):
    with held(file):
        file.write_text(json.dumps(mark() | {"pid": 1}))
    assert file.exists()
