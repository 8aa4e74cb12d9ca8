"""Progress: lines where there is no terminal, a bar where there is one, nothing when quiet."""

import os
import re
import subprocess
import sys

import pytest
from rich.progress import Task, TaskID

from likewise.core import progress

SCRIPT = """
import time
from likewise.core.progress import bar
with bar("learn", 5, start=1, quiet={quiet}) as shown:
    for step in range(4):
        time.sleep(0.15)
        shown.advance(1, facts=f"loss 0.{{step}}")
print("the end")
"""


def test_lines_where_there_is_no_terminal(capsys, monkeypatch):
    monkeypatch.setattr(progress, "LINE_INTERVAL_SECONDS", 0.0)
    with progress.bar("learn", 4, start=1) as shown:
        shown.advance(1, facts="loss 0.5")
        shown.advance(2)
    out, err = capsys.readouterr()
    lines = err.splitlines()
    assert out == ""
    assert len(lines) == 2
    assert lines[0].startswith("learn 2/4 loss 0.5")
    assert re.search(r"\d+ s left", lines[0])
    assert lines[1].startswith("learn 4/4")
    assert "0 s left" in lines[1]
    assert shown.done == 4


def test_lines_come_only_now_and_then(capsys):
    with progress.bar("learn", 1000) as shown:
        for _ in range(1000):
            shown.advance()
    assert capsys.readouterr().err == ""  # over long before a line is due


def test_quiet_prints_nothing(capsys, monkeypatch):
    monkeypatch.setattr(progress, "LINE_INTERVAL_SECONDS", 0.0)
    with progress.bar("learn", 4, quiet=True) as shown:
        shown.advance(4, facts="loss 0.5")
    assert capsys.readouterr() == ("", "")
    assert shown.done == 4


@pytest.mark.parametrize("quiet", [False, True])
def test_a_terminal_shows_a_bar(quiet):
    pty = pytest.importorskip("pty")
    ours, theirs = pty.openpty()
    environment = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "TERM")} | {
        "TERM": "xterm",
        "COLUMNS": "100",
    }
    child = subprocess.Popen(
        [sys.executable, "-c", SCRIPT.format(quiet=quiet)],
        stderr=theirs,
        stdout=subprocess.PIPE,
        env=environment,
        text=True,
    )
    os.close(theirs)
    seen = b""
    while True:
        try:
            chunk = os.read(ours, 4096)
        except OSError:  # the other side has gone
            break
        if not chunk:
            break
        seen += chunk
    os.close(ours)
    out = child.communicate(timeout=600)[0]
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen.decode())
    assert child.returncode == 0
    assert out == "the end\n"
    if quiet:
        assert text == ""
        return
    assert "learn" in text
    assert "━" in text
    assert re.search(r"[1-5]/5", text)
    assert "loss 0." in text
    assert "left" in text
    assert re.search(r"0:00:0\d", text)


def test_a_share_of_the_whole_moves_the_bar_there():
    with progress.bar("look", 200, quiet=True) as shown:
        shown.reach(0.25)
        shown.reach(0.5)
        assert shown.done == 100


def test_a_stage_is_named_beside_its_share(capsys, monkeypatch):
    monkeypatch.setattr(progress, "LINE_INTERVAL_SECONDS", 0.0)
    with progress.bar("score labels", 100) as shown:
        shown.reach(0.5, "classes that are one")
    assert capsys.readouterr().err.startswith("score labels 50/100 classes that are one 0 s left")


def test_the_time_left_is_known_after_one_piece_of_work():
    """4 of 10 units were done before, 1 of the other 6 took 3 seconds, so 5 more take 15 seconds."""
    task = Task(TaskID(0), "score", 10, 5, _get_time=lambda: 3.0, fields={"first": 4})
    task.start_time = 0.0
    assert progress.TimeLeft().render(task).plain == "0:00:15"
    task.completed = 4
    assert progress.TimeLeft().render(task).plain == "-:--:--"
