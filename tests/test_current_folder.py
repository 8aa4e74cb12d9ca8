"""No command runs Python files of the current folder, however it is started and whatever PYTHONPATH has empty entries."""

import importlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MARK = 'import os\nopen(os.path.join(os.environ["MARKS"], __name__), "w").close()\n'
NAMES = (
    "_bootlocale", "abc", "argparse", "ast", "codecs", "collections", "contextlib", "csv", "dataclasses", "enum", "fcntl",
    "functools", "hashlib", "importlib", "inspect", "json", "likewise", "logging", "numpy", "os", "pathlib", "pip", "pytest",
    "random", "re", "shutil", "signal", "site", "sitecustomize", "statistics", "string", "struct", "subprocess", "tempfile",
    "threading", "time", "tokenize", "tomllib", "torch", "types", "typing", "tyro", "usercustomize", "venv", "zipfile",
)  # fmt: skip
EMPTY = ("", os.pathsep, f"{os.pathsep}{ROOT / 'tests'}", f"{ROOT / 'tests'}{os.pathsep}")
"""Values of PYTHONPATH: unset, and with an empty entry, which Python takes as the current folder."""


@pytest.fixture
def hostile(tmp_path, monkeypatch):
    """The current folder has a module and a package of every name above; `hostile()` returns those that were imported."""
    folder, marks = tmp_path / "hostile", tmp_path / "marks"
    marks.mkdir()
    for name in NAMES:
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text(MARK)
        (folder / name / "__main__.py").write_text(MARK)
        (folder / f"{name}.py").write_text(MARK)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("MARKS", str(marks))
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    return lambda: sorted(os.listdir(marks))


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A stand-in for the environment of the launchers: its Python is the one that runs the tests."""
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    stamp = f"{importlib.import_module('environment').dependencies()} developers"
    for minor in range(11, 20):
        place = tmp_path / "cache" / "likewise" / f"venv-3.{minor}"
        (place / "bin").mkdir(parents=True)
        (place / "likewise-stamp").write_text(stamp)
        (place / "bin" / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
        (place / "bin" / "python").chmod(0o755)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3").symlink_to(sys.executable)  # what the first line of a launcher finds
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def start(*words, path=""):
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    variables |= {"PYTHONPATH": path} if path else {}
    return subprocess.run(words, env=variables, capture_output=True, text=True, timeout=600, check=False)


def test_the_folder_would_run_code_if_it_were_on_the_path(hostile):
    """Otherwise the tests below could not fail."""
    done = start(sys.executable, "-c", "import csv, tyro, likewise")
    assert done.returncode == 0 and {"csv", "tyro", "likewise"} <= set(hostile())


@pytest.mark.process
@pytest.mark.skipif(os.name == "nt", reason="the first line of a script is not obeyed there")
@pytest.mark.parametrize("path", EMPTY)
def test_the_launchers(hostile, installed, path):
    done = start(ROOT / "likewise", "recipe", "triplet", path=path)
    assert done.returncode == 0 and "Triplet" in done.stdout, done.stderr
    assert hostile() == []
    done = start(ROOT / "test", "--version", path=path)
    assert done.returncode == 0 and "pytest" in done.stdout + done.stderr
    assert hostile() == []


@pytest.mark.process
def test_a_launcher_that_is_given_to_python(hostile, installed):
    done = start(sys.executable, ROOT / "likewise", "--version")
    assert done.returncode == 0 and done.stdout.startswith("likewise ") and hostile() == []
    done = start(
        sys.executable, "-S", ROOT / "likewise", "--version", path=os.pathsep
    )  # -S: Python itself imports no site
    assert done.returncode == 0 and done.stdout.startswith("likewise ") and hostile() == []


def test_empty_entries_of_the_path_are_left_out(installed, monkeypatch):
    module, called = importlib.import_module("environment"), []
    monkeypatch.setattr(module, "ensure", lambda needs: "python")
    monkeypatch.setattr(module.os, "execve", lambda *words: called.append(words))
    for path in ("", os.pathsep, f"{os.pathsep}a", f"a{os.pathsep}", f"a{os.pathsep}{os.pathsep}b"):
        monkeypatch.setenv("PYTHONPATH", path)
        module.run("-m", "likewise")
        _, words, variables = called.pop()
        assert words == ["python", "-P", "-m", "likewise"]
        assert variables["PYTHONPATH"].split(os.pathsep) == [str(ROOT / "src"), *filter(None, path.split(os.pathsep))]


@pytest.mark.process
def test_python_with_the_option_m(hostile):
    """Python itself imports a few modules before `likewise` can take the folder off the path; these stay away here."""
    late = (
        "csv",
        "json",
        "logging",
        "numpy",
        "random",
        "statistics",
        "subprocess",
        "tempfile",
        "tomllib",
        "torch",
        "tyro",
    )
    for name in set(NAMES) - set(late):
        shutil.rmtree(name)
        os.unlink(f"{name}.py")
    done = start(sys.executable, "-m", "likewise", "recipe", "triplet", path=str(ROOT / "src"))
    assert done.returncode == 0 and "Triplet" in done.stdout, done.stderr
    assert hostile() == []


@pytest.mark.process
def test_python_with_the_option_m_in_the_folder_of_the_package():
    done = subprocess.run(
        [sys.executable, "-m", "likewise", "--version"], cwd=ROOT / "src", capture_output=True, text=True, timeout=600,
        check=False, env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
    )  # fmt: skip
    assert done.returncode == 0 and done.stdout.startswith("likewise ")
