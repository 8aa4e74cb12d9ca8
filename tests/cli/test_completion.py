"""Completion: what may come next, the scripts of three shells, and where they are installed."""

import os
import shutil
import subprocess
import sys

import pytest
from likewise.errors import LikewiseError

from likewise.cli import completion
from likewise.cli.completion import SCRIPTS, offered_words
from likewise.cli.flags import flags_of
from likewise.cli.main import config_class, main


def test_the_offered_words():
    commands, flags = offered_words(["tr"]), offered_words(["train", "photos", "--b"])
    assert "train" in commands and commands.count("recipe") == 1 and "--version" in commands
    for flag in flags_of(config_class("train")):
        assert flag.is_positional or f"--{flag.field.replace('_', '-')}" in flags
    assert "--no-evaluate" in flags and "--no-quiet" not in flags and "--data" not in flags
    assert offered_words(["train", "photos", "--optimizer", ""]) == ["adam", "adamw", "rmsprop", "sgd"]
    assert offered_words(["export", "runs/a", "--format", ""]) == ["onnx", "safetensors"]
    assert "Triplet" in offered_words(["train", "x", "--loss", "Tr"])
    assert "robust" in offered_words(["train", "--recipe", ""])
    assert offered_words(["train", "photos", "--device", ""]) == ["cpu", "cuda", "mps"]
    assert "losses" in offered_words(["list", ""]) and "procsim-table5" in offered_words(["bench", ""])
    assert "robust" in offered_words(["recipe", ""])
    for files in (["train", "pho"], ["train", "photos", "--size", ""], ["list", "losses", ""], ["nothing", ""]):
        assert offered_words(files) == []


@pytest.mark.process
@pytest.mark.skipif(not shutil.which("bash"), reason="needs bash")
def test_bash_completes(tmp_path):
    command = tmp_path / "likewise"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m likewise "$@"\n')
    command.chmod(0o755)
    code = SCRIPTS["bash"] + "COMP_WORDS=({}); COMP_CWORD={}; _likewise; printf '%s\\n' \"${{COMPREPLY[@]}}\"\n"
    for words, wanted in (
        (("train", "photos", "--batch"), ["--batch-size"]),
        (("train", "photos", "--loss", "Trip"), ["Triplet", "TripletNCA"]),
        (("train", "pho"), []),  # left to the names of files
    ):
        ending = code[len(SCRIPTS["bash"]) :].format(" ".join(["likewise", *words]), len(words))
        done = subprocess.run(
            ["bash", "--norc", "-c", SCRIPTS["bash"] + ending], capture_output=True, text=True, check=True, timeout=600,
            env=os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        )  # fmt: skip
        assert done.stdout.split() == wanted and done.stderr == ""


@pytest.mark.process
@pytest.mark.parametrize("shell", SCRIPTS)
def test_a_script_has_no_syntax_error(shell):
    if not shutil.which(shell):
        pytest.skip(f"needs {shell}")
    subprocess.run([shell, "-n"], input=SCRIPTS[shell], text=True, check=True, timeout=600)


@pytest.mark.parametrize("shell", SCRIPTS)
def test_installing_writes_one_file_and_says_which(shell, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    monkeypatch.setenv("SHELL", f"/bin/{shell}")
    main(["--install-completion"])
    (file,) = [found for found in tmp_path.rglob("*") if found.is_file()]
    assert capsys.readouterr().out.startswith(f"completion: {file}\nto activate it: ")
    main(["--print-completion", shell])
    assert capsys.readouterr().out == SCRIPTS[shell] + "\n" == file.read_text() + "\n"
    main(["--complete", "export", "runs/a", "--to", ""])
    assert capsys.readouterr().out == "onnx\nsafetensors\n"


def test_an_unknown_shell_is_named(monkeypatch):
    with pytest.raises(LikewiseError, match="must be one of bash, zsh, fish, got 'bahs'; did you mean 'bash'"):
        completion.script("bahs")
    monkeypatch.setenv("SHELL", "/bin/tcsh")
    with pytest.raises(LikewiseError, match="got 'tcsh' from the variable SHELL; name it"):
        completion.install()
