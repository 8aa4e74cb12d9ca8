"""Completion scripts: every command and flag is in them, and bash completes by them."""

import shutil
import subprocess

import pytest
from likewise.errors import LikewiseError

from likewise.cli import completion
from likewise.cli.commands import COMMANDS
from likewise.cli.help import flags_of
from likewise.cli.main import config_class, main


def test_every_flag_and_every_choice_has_its_word():
    words = completion.all_words()
    assert set(words) == {name.split()[0] for name in COMMANDS}
    train = words["train"]
    for flag in flags_of(config_class("train")):
        assert flag.is_positional or f"--{flag.field.replace('_', '-')}" in train.flags
    assert "--no-evaluate" in train.flags and "--no-quiet" not in train.flags and "--data" not in train.flags
    assert train.choices["--optimizer"] == ("adam", "adamw", "rmsprop", "sgd")
    assert "Triplet" in train.choices["--loss"] and "robust" in train.choices["--recipe"]
    assert train.choices["--device"] == ("cpu", "cuda", "mps") and "--size" not in train.choices
    assert words["export"].choices["--to"] == ("onnx", "safetensors") and "losses" in words["list"].names


def complete(*words):
    """Return what bash offers for the last word."""
    spelled = " ".join(f"'{word}'" for word in ("likewise", *words))
    code = (
        f"{completion.script('bash')}\nCOMP_WORDS=({spelled}); COMP_CWORD={len(words)}; _likewise; "
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(["bash", "--norc", "-c", code], capture_output=True, text=True, check=True, timeout=600)
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.process
@pytest.mark.skipif(not shutil.which("bash"), reason="needs bash")
def test_bash_completes(subtests):
    for words, offered in {
        ("tr",): ["train"],
        ("train", "photos", "--optimizer", "ad"): ["adam", "adamw"],
        ("train", "photos", "--batch"): ["--batch-size"],
        ("train", "photos", "--loss", "Trip"): ["Triplet", "TripletNCA"],
        ("recipe", "s"): ["show"],
        ("list", "loss"): ["losses"],
        ("train", "pho"): [],  # left to the file names of readline
        ("--vers",): ["--version"],
    }.items():
        with subtests.test(" ".join(words)):
            assert complete(*words) == offered


@pytest.mark.process
@pytest.mark.parametrize("shell", completion.SHELL_NAMES)
def test_a_script_has_no_syntax_error(shell, tmp_path):
    if not shutil.which(shell):
        pytest.skip(f"needs {shell}")
    file = tmp_path / "script"
    file.write_text(completion.script(shell))
    subprocess.run([shell, "-n", str(file)], check=True, timeout=600)


@pytest.mark.parametrize("shell", completion.SHELL_NAMES)
def test_installing_writes_one_file_and_says_which(shell, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    monkeypatch.setenv("SHELL", f"/bin/{shell}")
    main(["--install-completion"])
    (file,) = [found for found in tmp_path.rglob("*") if found.is_file()]
    out = capsys.readouterr().out
    assert out.startswith(f"completion: {file}\nto activate it: ") and file.read_text() == completion.script(shell)
    main(["--print-completion", shell])
    assert capsys.readouterr().out == completion.script(shell) + "\n"
    assert all(
        f"--{name}" in completion.script(shell) or f"-l {name}" in completion.script(shell) for name in ("lr", "robust")
    )


def test_an_unknown_shell_is_named(monkeypatch):
    with pytest.raises(LikewiseError, match="must be one of bash, zsh, fish, got 'bahs'; did you mean 'bash'"):
        completion.script("bahs")
    monkeypatch.setenv("SHELL", "/bin/tcsh")
    with pytest.raises(LikewiseError, match="got 'tcsh' from the variable SHELL; name it"):
        completion.current_shell()
