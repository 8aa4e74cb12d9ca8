"""Processes that train one run: started, asked to stop, lost, and started again."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch
from likewise.config import Train
from likewise.errors import OutOfMemory
from likewise.types import LikewiseError

from likewise.core.processes import command
from likewise.learn.training.fit import train
from likewise.learn.training.launch import check_gpus, is_started, launch, outcome
from likewise.runs.folder import Run

TRAIN = "likewise.learn.training.fit:train"


def command_line(settings: dict) -> list[str]:
    words = ["-m", "likewise", "train", settings["data"]]
    for name, value in settings.items():
        if name not in ("data", "quiet"):
            words += [f"--{name.replace('_', '-')}", str(value)]
    return words


def steps_of(out: str) -> int:
    log = Run(out).read_log() if Path(out).exists() else []
    return log[-1]["step"] if log else 0


def process_of(rank: int, out: str) -> int:
    """The number of the process that trains there with this rank."""
    for folder in Path("/proc").iterdir():
        try:
            words = (folder / "cmdline").read_bytes() if folder.name.isdigit() else b""
            settings = (
                (folder / "environ").read_bytes() if b"likewise.learn.training.launch import work" in words else b""
            )
        except OSError:  # it has ended
            continue
        told = Path(os.fsdecode(words.split(b"\0")[-2]), "config.json") if settings else None
        if f"\0RANK={rank}\0".encode() in settings and out in told.read_text("utf-8"):
            return int(folder.name)
    raise AssertionError(f"process {rank} is not there")


def once_at(step: int, out: str, act) -> threading.Thread:
    """Do something when a training has come so far."""

    def wait() -> None:
        deadline = time.monotonic() + 600
        while steps_of(out) < step and time.monotonic() < deadline:
            time.sleep(0.01)
        act()

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return thread


def saved(out: str, least: int) -> int:
    """The step of a run that can go on, nothing in it torn."""
    run = Run(out)
    step = run.load_state()["step"]
    assert not run.done and least <= step and run.load_tensors("model.safetensors")
    return step


@pytest.mark.slow
@pytest.mark.process
def test_whatever_happens_on_the_way_the_end_is_that_of_one_process(settings, tmp_path):
    """One run: Ctrl-C on the command line, one process killed, the other one killed; then nothing happens."""
    settings |= {
        "loss": "ProxyAnchor()", "steps": 200, "checkpoint_every": "10", "confidence": "ProcSim()", "optimizer": "sgd",
        "noise": "Uniform(share=0.2)",
    }  # fmt: skip
    alone = train(Train(**settings | {"out": str(tmp_path / "alone")}))
    out, many = settings["out"], settings | {"gpus": 2}
    words = [sys.executable, *command_line(many)]
    child = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    once_at(10, out, lambda: child.send_signal(signal.SIGINT))
    _, err = child.communicate(timeout=600)
    step = saved(out, 10)
    assert child.returncode == 130 and "Traceback" not in err
    assert err.strip().splitlines()[-1] == f"stopped at step {step} of 200; run the same command to resume ({out})"
    for rank in (1, 0):
        thread = once_at(step + 20, out, lambda rank=rank: os.kill(process_of(rank, out), signal.SIGKILL))
        with pytest.raises(LikewiseError, match=rf"process {rank} of 2 ended unexpectedly \(exit code -9\)"):
            train(Train(**many))
        thread.join()
        step = saved(out, step + 10)
    run = train(Train(**many))
    names = [{file.name for file in r.path.iterdir()} for r in (alone, run)]
    assert run.done and run.path == Path(out) and names[0] == names[1]
    first, second = (r.load_tensors("model.safetensors") for r in (alone, run))
    for name in first:
        assert torch.allclose(first[name], second[name], rtol=1e-3, atol=1e-5), name
    losses = [[line["loss"] for line in r.read_log() if "loss" in line] for r in (alone, run)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-3) and len(losses[0]) == 20
    assert run.scores["metrics"] == pytest.approx(alone.scores["metrics"], abs=0.01)


def test_an_error_in_the_settings_is_one_line(settings, capfd):
    """Found by the processes, told once."""
    with pytest.raises(LikewiseError, match="^SamplesPerClass: .* needs 24 classes"):
        train(Train(**settings | {"gpus": 2, "sampler": "SamplesPerClass(batch=96, per_class=4)"}))
    out, err = capfd.readouterr()
    assert out == err == "" and not Path(settings["out"]).exists()


@pytest.mark.slow
@pytest.mark.process
def test_torchrun_trains_too(settings):
    settings |= {"steps": 6, "log_every": 2, "metrics": "R@1"}
    words = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *command_line(settings)]
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    run = Run(settings["out"])
    assert run.done and done.stdout.count("R@1") == 1
    alone = train(Train(**settings | {"metrics": ("R@1",), "out": settings["out"] + " alone"}))
    losses = [[line["loss"] for line in r.read_log()] for r in (alone, run)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5) and len(losses[0]) == 3


def test_processes_import_nothing_from_the_current_folder(settings, monkeypatch):
    started = []

    def start(words, environment):
        started.append(words)
        raise FileNotFoundError

    monkeypatch.setattr("likewise.learn.training.launch.Child", start)
    with pytest.raises(FileNotFoundError):
        launch(Train(**settings | {"gpus": 2}), TRAIN)
    (words,) = started
    assert words == command("likewise.learn.training.launch:work", TRAIN, "stdout", words[-1])
    for quiet, stream in ((True, "none"), (False, "stderr")):  # messages for somebody else than the terminal
        with pytest.raises(FileNotFoundError):
            launch(Train(**settings | {"gpus": 2, "quiet": quiet}), TRAIN, lambda line: None)
        assert started[-1][-2] == stream


def test_as_many_gpus_as_asked_for(settings, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(LikewiseError, match=r"--gpus 2 needs 2 GPUs, .* has 1;.*--device cpu"):
        launch(Train(**settings | {"gpus": 2, "device": None}), TRAIN)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    with pytest.raises(LikewiseError, match=r"--gpus 2 .*--device cuda:1 .*omit --device"):
        launch(Train(**settings | {"gpus": 2, "device": "cuda:1"}), TRAIN)
    check_gpus(Train(**settings | {"gpus": 9}))  # the CPU is shared by any number


def test_what_the_user_is_told():
    """An error before a request to stop, before a process that was lost; of those, one that was killed from outside."""
    stopped, error, lost = {"stopped": "stopped at step 3"}, {"error": "train: no"}, {}
    with pytest.raises(LikewiseError, match="^train: no$"):
        outcome([stopped, error, lost], [130, 2, -9])
    with pytest.raises(OutOfMemory, match="^train: no$"):
        outcome([error | {"kind": "OutOfMemory"}], [2])
    with pytest.raises(LikewiseError, match="^train: no$"):
        outcome([error | {"kind": "BadImage"}], [2])
    with pytest.raises(KeyboardInterrupt, match="^stopped at step 3$"):
        outcome([lost, stopped], [1, 130])
    with pytest.raises(LikewiseError, match="process 2 of 3 ended unexpectedly .exit code -9."):
        outcome([lost, lost, lost], [1, 1, -9])
    assert outcome([{"run": "there"}, {"run": "there"}], [0, 0]).path == Path("there")


def test_one_of_several_starts_no_others(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert not is_started()
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert is_started()


def test_one_process_alone_has_not_been_started_by_others(monkeypatch):
    for many, started in (("1", False), ("2", True)):
        monkeypatch.setenv("WORLD_SIZE", many)
        assert is_started() is started


def test_a_stop_that_nobody_was_asked_about_is_a_stop():
    with pytest.raises(KeyboardInterrupt, match="^stopped; "):
        outcome([{}, {}], [-15, -15], stopped=True)
    assert outcome([{"run": "a"}, {"run": "a"}], [0, 0], stopped=True).path.name == "a"
