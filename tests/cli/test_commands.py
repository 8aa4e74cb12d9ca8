"""What commands print, and that each is told of."""

import pytest

from likewise.cli import commands
from likewise.cli import main as cli
from likewise.config import Evaluate


@pytest.mark.parametrize("name", commands.COMMANDS)
def test_the_usage_tells_of_every_command(name):
    assert f"  likewise {name}" in cli.USAGE


def test_of_several_processes_the_first_alone_talks(monkeypatch):
    monkeypatch.setenv("RANK", "1")
    assert commands.shown_once(Evaluate("x")).quiet
    monkeypatch.setenv("RANK", "0")
    assert not commands.shown_once(Evaluate("x")).quiet


def test_answers_for_programs_are_lines_with_tabs(monkeypatch, capsys):
    import likewise.stages.search as stage
    from likewise.config import Search

    found = [{"row": 3, "similarity": 0.25, "class": "a b", "path": "x y.jpg"}]
    monkeypatch.setattr(stage, "search", lambda config: found)
    commands.run_search(Search("x", query="1"))
    assert capsys.readouterr().out == "0.2500\ta b\t3\tx y.jpg\n"


def test_names_in_data_do_not_steer_the_terminal(monkeypatch, capsys):
    """Escape sequences can retitle a window, hide lines or move the cursor."""
    import likewise.stages.search as stage
    from likewise.config import Search

    found = [{"row": 3, "similarity": 0.25, "class": "a\x1b[2J\tb\nc", "path": "\x9b1m\u202e\udce9ü", "same": False}]
    monkeypatch.setattr(stage, "search", lambda config: found)
    commands.run_search(Search("x", query="1"))
    assert capsys.readouterr().out == "0.2500\ta\\x1b[2J\\tb\\nc\t3\t\\x9b1m\\u202e\\udce9ü\n"
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")
    commands.run_search(Search("x", query="1\x1b[2J"))
    out = capsys.readouterr().out
    assert "\x1b[2J" not in out and "\\x1b[2J" in out and "\x9b" not in out
    with pytest.raises(SystemExit):
        cli.fail("no class 'a\x1b[2J'\nnext line")
    assert capsys.readouterr().err == "likewise: no class 'a\\x1b[2J'\nnext line\n"
