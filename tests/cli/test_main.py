"""The command line and the front door in Python, as people use them."""

import inspect
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from likewise.config import Evaluate
from likewise.errors import LikewiseError
from PIL import Image

from likewise.cli import commands
from likewise.cli import main as cli
from likewise.core.errors import print_text
from likewise.learn.recipes import read
from likewise.papers.published import published_view


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    """Twelve classes of ten feature vectors, in a folder with a space and an umlaut."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(12), 10)
    x = rng.normal(size=(12, 6))[y] * 2 + rng.normal(size=(120, 6))
    file = tmp_path_factory.mktemp("my data ü") / "toy set.npz"
    np.savez(file, x=x.astype(np.float32), label=y)
    return file


FEW = {"dim": 4, "steps": 4, "sampler": "SamplesPerClass(batch=8, per_class=2)", "device": "cpu", "quiet": True}
FLAGS = ["--dim", "4", "--steps", "4", "--sampler", FEW["sampler"], "--device", "cpu"]


def call(*words, cwd=None, python=()):
    """A real process, as a user would start it."""
    done = subprocess.run(
        [sys.executable, *python, "-m", "likewise", *map(str, words)], capture_output=True, text=True, timeout=600,
        check=False, cwd=cwd,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def loaded(*words):
    """Modules that a command loads."""
    code = (
        "import sys\nfrom likewise.cli import main as cli\n"
        f"try:\n    cli.main({list(words)!r})\nexcept SystemExit:\n    pass\n"
        "print('LOADED', *sorted(m for m in sys.modules if '.' not in m), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600, check=True)
    return set(done.stderr.rsplit("LOADED", 1)[1].split()), done.stdout


def fail_with(words, capsys):
    """What a command that must fail says: one line on stderr, exit code 2."""
    with pytest.raises(SystemExit) as stop:
        cli.main([str(w) for w in words])
    out, err = capsys.readouterr()
    assert stop.value.code == 2
    assert out == ""
    assert err.startswith("likewise: "), err
    assert err.count("\n") == 1, err
    return err


HEAVY = {"torch", "torchvision", "timm", "matplotlib", "pyarrow"}


def test_help_is_light():
    modules, out = loaded("--help")
    assert not modules & (HEAVY | {"numpy", "tyro", "rich", "PIL"})
    assert all(
        f"  {name}" in out for name in ("likewise demo", "train", "evaluate", "embed", "search", "list", "recipe")
    )


def test_help_takes_little_processor_time():
    code, out, err = call("--help", python=["-X", "importtime"])
    total = sum(
        int(line.split("|")[0].split(":")[1])
        for line in err.splitlines()
        if line.startswith("import time:") and "self" not in line
    )
    assert code == 0
    assert "  train DATA" in out
    assert total < 400_000, f"importing takes {total / 1e6:.2f} s"


@pytest.mark.parametrize(
    "words",
    [
        ("train", "--help"),
        ("train", "--help-all"),
        ("recipe", "triplet"),
        ("recipe", "triplet", "margin"),
        ("search", "--help"),
    ],
)
def test_reading_about_a_command_does_not_load_torch(words):
    modules, out = loaded(*words)
    assert not modules & HEAVY
    assert len(out) > 300


def test_importing_the_package_does_not_load_torch():
    code = (
        "import sys, likewise\nassert 'torch' not in sys.modules and 'numpy' not in sys.modules\n"
        "from likewise import train, evaluate, embed, losses\nassert 'torch' in sys.modules\n"
        "names = [part.__name__ for part in (train, evaluate, embed, likewise.metrics)]\n"
        "print(losses.Triplet(margin=0.1).margin, *names)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600, check=False)
    assert done.stdout == "0.1 train evaluate embed likewise.score.metrics\n", done.stderr


def test_a_name_that_is_not_there_is_an_attribute_error():
    import likewise

    with pytest.raises(AttributeError, match="likewise has no attribute 'trian'; its names are: train, evaluate"):
        likewise.trian  # noqa: B018
    assert not hasattr(likewise, "Run")


def test_version_and_no_words_at_all(capsys):
    from importlib.metadata import version

    from likewise import __version__

    for word in ("--version", "-V"):
        cli.main([word])
        assert capsys.readouterr().out == f"likewise {__version__} (torch {version('torch')})\n"
    for words in ([], ["-h"], ["help"], ["--help-all"]):
        cli.main(words)
        assert capsys.readouterr().out == cli.usage()


def test_every_command_prints_what_it_found(toy, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cli.main(["train", str(toy), "--out", "my run", *FLAGS])
    out, err = capsys.readouterr()
    assert "60 queries scored, 0 not (no relevant rows)" in out
    assert out.endswith("run: my run\n") and err.endswith("next: likewise report 'my run'\n")
    scores = json.loads(Path("my run/scores.json").read_text())
    for name, value in scores["metrics"].items():
        assert f"{name} " in out
        assert f"{100 * value:.1f} %" in out
    cli.main(["evaluate", "my run", "--metrics", "R@1", "P@3"])
    out = capsys.readouterr().out
    assert "P@3" in out
    assert "MAP@R" not in out
    assert "test split (95 % interval)" in out
    cli.main(["embed", "my run", str(toy), "--out", "z.npz"])
    assert "120 embeddings of 4 numbers: z.npz" in capsys.readouterr().out
    cli.main(["evaluate", "z.npz"])
    assert "120 queries scored" in capsys.readouterr().out
    cli.main(["search", "z.npz", "--query", "3", "--k", "2", "--out", "found.png"])
    lines = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert len(lines) == 3 and lines[2] == ["figure: found.png"]
    assert [len(line) for line in lines[:2]] == [4, 4] and float(lines[0][0]) >= float(lines[1][0])
    assert Image.open("found.png").width > 300
    cli.main(["audit", "my run", "--max-errors", "2", "--max-classes", "1"])
    out, err = capsys.readouterr()
    assert "my run/audit/audit.html" in out and Path("my run/audit/audit.html").exists()
    assert err.endswith("next: likewise review 'my run/audit'\n")
    cli.main(["audit", "z.npz"])
    assert capsys.readouterr().err.endswith("next: likewise review audit/z\n")
    cli.main(["train", str(toy), "--out", "my run", *FLAGS])
    assert "finished already" in capsys.readouterr().out


def test_quiet_is_quiet(toy, tmp_path, capsys):
    cli.main(["train", str(toy), "--out", str(tmp_path / "run"), "--quiet", *FLAGS])
    cli.main(["evaluate", str(tmp_path / "run"), "--quiet"])
    cli.main(["audit", str(tmp_path / "run"), "--quiet", "--max-errors", "1", "--max-classes", "0"])
    assert capsys.readouterr() == ("", "")


def test_names_with_brackets_are_printed_as_they_are(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    np.savez(tmp_path / "z.npz", x=np.eye(3, dtype=np.float32), label=np.asarray(["[red]cat", "[/]dog", "plain"]))
    cli.main(["search", str(tmp_path / "z.npz"), "--query", "2"])
    out = capsys.readouterr().out
    assert "[red]cat" in out
    assert "[/]dog" in out


def test_a_folder_that_may_not_be_written_is_named(toy, tmp_path, capsys):
    (tmp_path / "file").write_text("x")
    err = fail_with(["train", toy, "--out", tmp_path / "file" / "run", "--quiet", *FLAGS], capsys)
    assert str(tmp_path / "file") in err


@pytest.mark.parametrize("words", [["--help"], ["recipe", "triplet"]])
def test_a_reader_that_goes_away_is_no_error(words):
    code = f"import sys\nsys.stdin.readline()\nfrom likewise.cli import main as cli\ncli.main({words!r})"
    first = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    first.stdout.close()
    first.stdin.write(b"now\n")
    first.stdin.close()
    assert first.stderr.read() == b""
    first.wait(timeout=600)


def test_given_epochs_win_over_the_steps_of_a_recipe(toy):
    assert read("prism").values["steps"]
    for words in (["--epochs", "10", "--recipe", "prism"], ["--recipe", "prism", "--epochs=10"]):
        config = cli.parse("train", [str(toy), *words])
        assert (config.epochs, config.steps) == (10, None)
    config = cli.parse("train", [str(toy), "--recipe", "prism", "--epochs", "10", "--steps", "7"])
    assert config.steps == 7
    assert cli.parse("train", [str(toy), "--recipe", "prism"]).steps == read("prism").values["steps"]
    assert cli.parse("train", [str(toy), "--batch-size", "64"]).batch_size == 64


def test_robust_training_and_its_recipe(toy, tmp_path, capsys):
    out = tmp_path / "run"
    cli.main(["train", str(toy), "--robust", "--noise", "Uniform(share=0.2)", "--out", str(out), *FLAGS])
    config = json.loads((out / "config.json").read_text())["config"]
    assert config["confidence"].startswith("LabelPosterior(") and config["steps"] == 4
    assert '"relabelling"' in (out / "log.jsonl").read_text() and (out / "sample_weights.npz").exists()
    capsys.readouterr()
    cli.main(["recipe", "triplet+robust"])
    said = capsys.readouterr().out
    assert "Triplet, semi-hard + Training with wrong labels" in said and '--confidence "LabelPosterior()"' in said
    cli.main(["recipe", "robust", str(out)])
    said = capsys.readouterr().out
    assert "steps" in said and "confidence" not in said.split("the same in both: ")[0] and f"values for {toy}" in said
    for name in ("confidence", "terms"):
        cli.main(["list", name])
        assert ("ProcSim" in capsys.readouterr().out) == (name == "confidence")


def test_robust_training_with_votes(toy, tmp_path):
    """The labels of class 0 are exchanged with those of class 1; three workers vote for the true ones."""
    with np.load(toy) as data:
        x, true = data["x"], data["label"]
    given = np.where(true < 2, 1 - true, true)
    given[[0, 1, 10, 11]] = true[[0, 1, 10, 11]]
    np.savez(tmp_path / "noisy.npz", x=x, label=given)
    lines = [f"{row},{who},{true[row]}" for row in range(120) for who in ("ann", "bob", "cid")]
    (tmp_path / "votes.csv").write_text("\n".join(["row,worker,label", *lines]))
    words = [str(tmp_path / "noisy.npz"), "--votes", str(tmp_path / "votes.csv"), "--protocol", "SeenClasses()", *FLAGS]
    cli.main(["train", *words, "--robust", "--out", str(tmp_path / "run")])
    said = (tmp_path / "run" / "log.jsonl").read_text()
    assert "consensus, expected wrong" in said and '"relabelling"' in said
    with pytest.raises(SystemExit):
        cli.main(["train", *words, "--out", str(tmp_path / "other")])


def test_the_front_door_takes_what_python_has(toy, tmp_path):
    """Paths, parts as objects, numbers of numpy, counts as integers: the same run as the command's."""
    from likewise import embed, evaluate, losses, noise, samplers, train

    labels = np.repeat(np.arange(6), 10)
    run = train(
        toy, out=tmp_path / "run", loss=losses.Triplet(margin=0.1), noise=noise.Uniform(share=0.2), steps=4,
        sampler=samplers.SamplesPerClass(labels, batch=8, per_class=2), seed=np.int64(3), lr=np.float32(0.5), dim=4,
        metrics=["R@1", "RP"], device="cpu", quiet=True,
    )  # fmt: skip
    config = run.about["config"]
    miner = "DistanceWeighted(lower=0.5, upper=None)"
    assert config["loss"] == f"Triplet(margin=0.1, squared=False, miner={miner}, space='cosine')"
    assert config["noise"] == "Uniform(share=0.2, exact=True)"
    assert config["seed"] == 3
    assert config["steps"] == 4
    assert config["lr"] == 0.5
    assert list(run.scores["metrics"]) == ["R@1", "RP"]
    e = embed(run, toy, out=tmp_path / "z.npz", device="cpu", quiet=True)
    assert e.z.shape == (120, 4)
    assert (tmp_path / "z.npz").exists()
    assert embed(run.path, str(toy), device="cpu", quiet=True).z.shape == (120, 4)
    for target in (run, run.path, str(run.path)):
        assert evaluate(target, metrics=["R@1", "RP"], device="cpu", quiet=True) == run.scores
    np.save(tmp_path / "z.npy", e.z.numpy())
    np.save(tmp_path / "y.npy", np.repeat(np.arange(12), 10))
    assert evaluate(tmp_path / "z.npy", labels=tmp_path / "y.npy", device="cpu")["queries"] == 120


def test_command_and_python_find_the_same_run(toy, tmp_path, capsys, monkeypatch):
    from likewise import losses, train

    monkeypatch.chdir(tmp_path)
    run = train(toy, loss=losses.Triplet(margin=0.3), evaluate=False, **FEW)
    cli.main(["train", os.path.relpath(toy, tmp_path), "--loss", "Triplet( margin = 0.3 )", "--no-evaluate", *FLAGS])
    assert "finished already" in capsys.readouterr().out
    assert [p.name for p in Path("runs").iterdir()] == [run.path.name]


def test_metrics_are_checked_before_training(toy, tmp_path):
    from likewise import train

    for metrics, says in [
        (["mAQ"], "there is no 'mAQ'"),
        ([], "needs at least one metric"),
        (["R@60"], "need 60 results of every query, but the test split has 59"),
    ]:
        with pytest.raises(LikewiseError, match=says):
            train(toy, out=tmp_path / "run", metrics=metrics, **FEW)
    assert not (tmp_path / "run").exists()


def test_a_test_part_that_cannot_be_scored_is_told_before_training(tmp_path):
    from likewise import train

    x = np.random.default_rng(0).normal(size=(24, 4)).astype(np.float32)
    y = np.repeat(np.arange(2), 12)
    np.savez(tmp_path / "two.npz", x=x, label=y)
    np.savez(tmp_path / "none.npz", x=x, label=y, split=np.full(24, "train"))
    settings = FEW | {"sampler": "SamplesPerClass(batch=2, per_class=2)"}
    for name, got in (("two", 1), ("none", 0)):
        with pytest.raises(LikewiseError, match=f"'{name}' must hold two classes or more, got {got}"):
            train(tmp_path / f"{name}.npz", out=tmp_path / "run", **settings)
        assert not (tmp_path / "run").exists()
        train(tmp_path / f"{name}.npz", out=tmp_path / f"{name} run", evaluate=False, **settings)


def test_closed_streams_are_no_obstacle(monkeypatch):
    for name in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(sys, name, None)
    cli.main(["--version"])
    assert sys.stdout.write("x") and not sys.stdin.read()


def test_a_ctrl_c_that_a_library_made_another_error_of_is_still_one(monkeypatch, capsys):
    """While numpy or torch is loaded, it may come out as an ImportError."""

    def work(config, say):
        try:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(10)
        except KeyboardInterrupt:
            raise ImportError("cannot load a module") from None

    before = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(published_view, "published", work)
    with pytest.raises(SystemExit) as stop:
        cli.main(["published"])
    assert stop.value.code == 130 and capsys.readouterr().err == "\nstopped\n"
    assert signal.getsignal(signal.SIGINT) is before
    monkeypatch.setattr(published_view, "published", lambda config, say: int("no Ctrl-C"))
    with pytest.raises(ValueError, match="no Ctrl-C"):
        cli.main(["published"])


def test_exhausted_memory_is_one_line(monkeypatch, capsys):
    monkeypatch.setattr(published_view, "published", lambda config, say: bytearray(2**62))
    assert "memory is exhausted; use smaller batches" in fail_with(["published"], capsys)


@pytest.mark.skipif(os.name == "nt", reason="such a folder cannot be removed there")
def test_a_folder_that_is_gone_is_one_line(monkeypatch, tmp_path, capsys):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert "the current folder was deleted" in fail_with(["published"], capsys)


def test_processes_that_libraries_start_import_nothing_from_the_current_folder(monkeypatch):
    """Readers of pictures where they are not forked, for one. Who calls `main` from Python decides that for itself."""
    for variables, words, wanted in (({}, None, "1"), ({"PYTHONSAFEPATH": ""}, None, ""), ({}, ["--version"], None)):
        monkeypatch.setattr(os, "environ", variables)
        monkeypatch.setattr(sys, "argv", ["likewise", "--version"])
        cli.main(words)
        assert variables.get("PYTHONSAFEPATH") == wanted


def test_flags_that_may_be_left_to_us_are_switches_too():
    for words, wanted in (
        (["x/"], None),
        (["x/", "--freeze-bn"], True),
        (["x/", "--no-freeze-bn"], False),
        (["--freeze-bn", "False", "x/"], False),
        (["x/", "--freeze-bn", "--dim", "8"], True),
    ):
        assert cli.parse("train", words).freeze_bn is wanted
    assert cli.parse("train", ["x/", "--no-pretrained"]).pretrained is False


def test_the_usage_has_every_command_once_and_fits_a_terminal():
    grouped = [name for names in commands.GROUPS.values() for name in names]
    assert sorted([*grouped, "demo"]) == sorted(commands.COMMANDS)
    lines = cli.usage().splitlines()
    calls = [line for line in lines if line.startswith("  ")]
    assert len(calls) == len(cli.START) + len(grouped) and max(map(len, lines[1:])) <= 80
    for name, call in zip(grouped, calls[len(cli.START) :], strict=True):
        assert call.startswith(f"  {name}") and call[24] == " " and call.endswith(commands.COMMANDS[name].summary)
    for call, _ in cli.START:
        name, *rest = call.split()[1:]
        assert cli.parse(name, rest)


def test_the_seven_main_commands_are_bold_on_a_terminal(monkeypatch, capsys):
    bold = re.findall(r"\x1b\[1m  (\w+) .*\x1b\[0m", cli.usage(is_bold=True))
    assert tuple(bold) == commands.MAIN_COMMANDS and len(bold) == 7
    assert re.sub(r"\x1b\[[01]m", "", cli.usage(is_bold=True)) == cli.usage()
    cli.main([])
    assert "\x1b" not in capsys.readouterr().out  # not a terminal


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
