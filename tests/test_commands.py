"""What commands print, and that each is told of."""

import pytest

from likewise import cli, commands
from likewise.configs import Evaluate


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
    from likewise.configs import Search

    found = [{"row": 3, "similarity": 0.25, "class": "a b", "path": "x y.jpg"}]
    monkeypatch.setattr(stage, "search", lambda config: found)
    commands.run_search(Search("x", query="1"))
    assert capsys.readouterr().out == "0.2500\ta b\t3\tx y.jpg\n"
