"""Odd inputs to every command: a right result with exit code 0, or one sentence with exit code 2 that leaves the inputs alone."""

import os
import re
import shutil
import subprocess
import sys

import pytest
from odd_inputs import CASES, make_inputs

from likewise.cli import main as cli

NEEDS = {"tune": "optuna", "search": "faiss", "receive": "faiss", "review": "fastapi", "clean": "fastapi"}
"""Command -> package of an extra that its cases need."""

USAGE = re.compile(r"required|Required")
CASE = re.compile(r"(.*?) ([!=]) ?(.*)")


@pytest.fixture(scope="module")
def inputs(finished, features, pictures, tmp_path_factory):
    folder = tmp_path_factory.mktemp("odd") / "in"
    make_inputs(folder, finished.path, features, pictures)
    return folder


@pytest.fixture
def start(inputs, tmp_path, monkeypatch, capsys):
    """`start(words)` runs a command in-process and returns its exit code, its output and its errors."""
    (tmp_path / "in").symlink_to(inputs)
    monkeypatch.chdir(tmp_path)

    def run(words):
        shutil.rmtree("out", ignore_errors=True)
        os.mkdir("out")
        if copy := re.search(r"%(\w+)", words):
            shutil.copytree(inputs / copy[1], "out/run")
            words = words.replace(copy[0], "out/run")
        capsys.readouterr()
        code = 0
        try:
            cli.main([word.strip('"') for word in re.findall(r'"[^"]*"|\S+', words)])
        except SystemExit as stop:
            code = stop.code
        return code, *capsys.readouterr()

    return run


def cases(command):
    return [CASE.fullmatch(line.strip()).groups() for line in CASES[command].strip().splitlines()]


def state(folder):
    """Return size, time of change and number of all files and folders below a folder."""
    found = {path: path.stat() for path in folder.rglob("*")}
    return {path: (one.st_size, one.st_mtime_ns, one.st_ino) for path, one in found.items()}


@pytest.mark.parametrize("command", CASES)
def test_odd_inputs(command, start, inputs, subtests, unchecked):
    pytest.importorskip(NEEDS.get(command, "numpy"))
    before = state(inputs)
    for words, kind, wanted in cases(command):
        with subtests.test(words):
            code, out, err = start(words)
            assert "Traceback" not in err
            if kind == "=":
                assert code == 0, err
                assert wanted in " ".join(out.split())
            elif wanted == "required":
                assert code == 2 and USAGE.search(err)
            else:
                _, _, error = err.rpartition("likewise: ")
                assert code == 2 and wanted in error and len(error.splitlines()) == 1
            assert state(inputs) == before
            assert set(os.listdir()) <= ({"in", "out", "audit"} if command == "clean" else {"in", "out"})


def test_how_many_there_are():
    every = [case for command in CASES for case in cases(command)]
    assert len({words for words, *_ in every}) == len(every)


@pytest.mark.process
@pytest.mark.parametrize(
    ("words", "code"),
    [("evaluate in/cut.npz", 2), ("bench in/deep.toml", 2), ("list losses triplet", 0), ("trian x", 2)],
)
def test_in_a_process_of_its_own(inputs, words, code):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, "-P", "-m", "likewise", *words.split()], cwd=inputs.parent, env=environment, capture_output=True,
        text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == code and "Traceback" not in done.stderr
    [line] = done.stderr.splitlines()
    assert line.startswith("likewise: " if code else "next: likewise ")
