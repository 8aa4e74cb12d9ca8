"""tools/check.py: which tools run, and that the first failure ends it. The tools themselves are not started."""

import sys
from pathlib import Path

import pytest


@pytest.fixture
def run(monkeypatch):
    """`run(*arguments, fails=tool)`: the exit code, and the tools that were started."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent.parent / "tools"))
    import check

    def start(*arguments: str, fails: str = "") -> tuple[int, list[str]]:
        started = []

        def call(command: list[str], cwd: Path) -> int:
            if command[-1] == "tools/advice.py":
                return 1  # advice fails nothing
            assert command[:3] == [sys.executable, "-P", "-m"] and (cwd / "pyproject.toml").exists()
            started.append(" ".join(command[3:5]) if command[3] == "ruff" else command[3])
            return 3 if started[-1] == fails else 0

        monkeypatch.setattr(check, "ensure", lambda: sys.executable)
        monkeypatch.setattr(check.subprocess, "call", call)
        return check.main(list(arguments)), started

    return start


def test_all_tools_run_and_fast_leaves_pyright_out(run, capsys):
    fast = ["ruff check", "ruff format", "codespell_lib"]
    assert run() == (0, [*fast, "pyright"])
    assert "check: ruff check .\n" in capsys.readouterr().out
    assert run("--fast") == (0, fast)


def test_the_first_failure_ends_it(run, capsys):
    assert run(fails="ruff format") == (3, ["ruff check", "ruff format"])
    assert "check: ruff failed with exit code 3" in capsys.readouterr().err
    assert run("--quick") == (2, [])
    assert "the only argument is --fast, got --quick" in capsys.readouterr().err
