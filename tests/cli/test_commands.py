"""The table of commands, and what all commands print."""

import inspect

import pytest
from likewise.config import Evaluate

from likewise.cli import commands
from likewise.cli import main as cli
from likewise.core.errors import print_text


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


@pytest.mark.parametrize("name", commands.COMMANDS)
def test_every_row_names_a_class_and_two_functions(name):
    command = commands.COMMANDS[name]
    assert command.call.startswith(name) and commands.config_class(name).__name__ == command.settings
    function = commands.function_at(command.function)
    assert list(inspect.signature(function).parameters)[:2] == ["config", "say"] and function.__doc__
    if command.show:
        assert len(inspect.signature(commands.function_at(command.show)).parameters) == 2


def test_printed_lines_keep_line_breaks_and_escape_other_control_characters(capsys):
    print_text("a\n\tb\x1b[2J\udcff\u202e\r")
    assert capsys.readouterr().out == "a\n\\tb\\x1b[2J\\udcff\\u202e\\r\n"
