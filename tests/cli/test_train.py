"""Training in Python leaves what the command leaves, scores before training included."""

import json
import subprocess
import sys

import pytest
from likewise.config import Train
from safetensors.torch import save_file

import likewise
from likewise.cli import main as cli
from likewise.core import devices
from likewise.learn.train import sentences, train
from likewise.learn.training import loop
from likewise.models.backbones import ConvSmall
from likewise.runs.folder import Run


@pytest.fixture
def words(pictures, tmp_path):
    """A training that starts from somebody's weights and forgets them at once: for Python and as flags."""
    save_file(ConvSmall().state_dict(), tmp_path / "theirs.safetensors")
    settings = {
        "backbone": "conv_small", "weights": tmp_path / "theirs.safetensors", "size": 16, "dim": 8, "lr": 0.3, "steps": 5,
        "sampler": "SamplesPerClass(batch=6, per_class=2)", "augment": "none", "workers": 0, "device": "cpu",
        "confidence": "LabelPosterior()",
    }  # fmt: skip
    flags = [str(word) for name, value in settings.items() for word in (f"--{name}", value)]
    return settings, [str(pictures), *flags]


def test_python_and_the_command_leave_the_same_scores(words, pictures, tmp_path, capsys):
    settings, flags = words
    run = likewise.train(pictures, out=tmp_path / "python", **settings)
    out, err = capsys.readouterr()
    cli.main(["train", *flags, "--out", str(tmp_path / "command")])
    told = capsys.readouterr().out
    quiet = likewise.train(pictures, out=tmp_path / "quiet", quiet=True, **settings)
    written = [json.loads((tmp_path / name / "scores.json").read_text()) for name in ("python", "command", "quiet")]
    assert written[0] == written[1] == written[2] == run.scores and "before" in run.scores
    lines = sentences(run)
    assert lines and out == "" and all(line in err for line in lines)
    assert all(line in told for line in sentences(Run(tmp_path / "command"))) and "before training" in told
    assert capsys.readouterr() == ("", "") and sentences(quiet)


def test_one_process_of_several_scores_what_was_before(words, pictures, tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    settings, _ = words
    assert "before" not in likewise.train(pictures, out=tmp_path / "run", **settings).scores


def test_a_finished_run_drops_the_state_of_its_training_and_is_shown_again(settings):
    config = Train(**settings)
    run = train(config, say=lambda line: None)
    assert run.done and not (run.path / "state.pt").exists() and run.scores is not None
    lines = []
    assert train(config, say=lines.append).path == run.path and "this run is finished already" in lines[0]


@pytest.mark.process
def test_before_its_first_step_a_training_imports_neither_matplotlib_nor_scipy():
    """They take half a second, and only an evaluation needs them."""
    look = "import sys, likewise.learn.train, likewise.learn.training.fit; print({'matplotlib', 'scipy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_the_device_is_started_before_and_waited_for_before_the_first_step(words, pictures, tmp_path, monkeypatch):
    settings, _ = words
    seen = []

    class Thread:
        def join(self):
            seen.append("joined")

    monkeypatch.setattr(devices, "start_device", lambda *given: seen.append(given) or Thread())
    monkeypatch.setattr(loop, "step", lambda *given, usual=loop.step: seen.append("step") or usual(*given))
    likewise.train(pictures, out=tmp_path / "run", quiet=True, evaluate=False, **settings)
    assert seen == [("cpu", False), "joined", *["step"] * 5]
