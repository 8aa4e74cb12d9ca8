"""What commands print, and that each is told of."""

import pytest
from likewise.config import Evaluate

from likewise.cli import commands
from likewise.cli import main as cli


@pytest.mark.parametrize("name", commands.COMMANDS)
def test_the_usage_tells_of_every_command(name):
    assert f"  likewise {name}" in cli.usage()


def test_of_several_processes_the_first_alone_talks(monkeypatch):
    monkeypatch.setenv("RANK", "1")
    assert commands.shown_once(Evaluate("x")).quiet
    monkeypatch.setenv("RANK", "0")
    assert not commands.shown_once(Evaluate("x")).quiet


def test_names_in_errors_do_not_steer_the_terminal(capsys):
    with pytest.raises(SystemExit):
        cli.fail("no class 'a\x1b[2J'\nnext line")
    assert capsys.readouterr().err == "likewise: no class 'a\\x1b[2J'\nnext line\n"


def test_a_command_is_named_by_the_words_of_its_call(monkeypatch):
    for name in ("COMMANDS", "USAGE"):
        monkeypatch.setattr(commands, name, dict(getattr(commands, name)))
    made = commands.command("recipe copy NAME --to [FILE]", "copy a recipe")(print)
    assert made is commands.COMMANDS["recipe copy"] is print
    assert "  likewise recipe copy NAME --to [FILE]  copy a recipe\n" in cli.usage()


def test_printed_lines_keep_line_breaks_and_escape_other_control_characters(capsys):
    commands.show("a\n\tb\x1b[2J\udcff\u202e\r")
    assert capsys.readouterr().out == "a\n\\tb\\x1b[2J\\udcff\\u202e\\r\n"
