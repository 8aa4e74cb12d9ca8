"""Whatever ends a training on its way, nothing is torn, little is lost, and the same command comes to the same end."""

import multiprocessing
import random
import signal
from pathlib import Path

import pytest
import torch
from learn.training.faults_work import LINE, fill_the_disk, train_until_killed
from likewise.config import Train
from likewise.types import LikewiseError

from likewise.data import load
from likewise.data.images import BadImage
from likewise.learn.training.build import build_state, make_samples
from likewise.learn.training.defaults import resolve
from likewise.learn.training.fit import train
from likewise.learn.training.loop import Hooks, Interrupted, next_batch
from likewise.learn.training.run_log import RunLog
from likewise.runs.folder import Run


@pytest.fixture(scope="module")
def process():
    """`process(work, *arguments)`: a real process, forked from one that has loaded everything, so that it starts at once."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["likewise.learn.training.fit", "torch._dynamo"])  # what every optimiser loads

    def start(work, *arguments):
        child = context.Process(target=work, args=arguments, daemon=True)
        child.start()
        return child

    return start


def assert_same_end(a: Run, b: Run) -> None:
    """To the bit."""
    assert (a.path / "model.safetensors").read_bytes() == (b.path / "model.safetensors").read_bytes()
    first, second = ([{k: v for k, v in line.items() if k != "images_per_s"} for line in r.read_log()] for r in (a, b))
    assert first == second and len(first) > 1
    assert a.done and b.done and a.scores == b.scores


def steps_told(file: Path) -> list[int]:
    return [int(line) for line in file.read_text().splitlines() if len(line) == LINE - 1] if file.exists() else []


@pytest.mark.slow
@pytest.mark.process
def test_twenty_kills(settings, tmp_path, process):
    """At random moments: between steps, while saving, at the start. At most the steps since the last state are done again."""
    settings |= {
        "loss": "ProxyAnchor()", "steps": 150, "checkpoint_every": "3", "noise": "Uniform(share=0.2)", "record_losses": True,
        "confidence": "ProcSim()",
    }  # fmt: skip
    whole = train(Train(**settings | {"out": str(tmp_path / "whole")}))
    chance, run, told = random.Random(0), Run(settings["out"]), tmp_path / "told"
    saved, done = 0, 0
    for kill in range(20):
        moment = chance.randint(1, 100) if kill % 5 else chance.randint(1, 25)  # some are killed before a new state
        child = process(train_until_killed, settings, str(told), moment)
        child.join()
        assert child.exitcode == -signal.SIGKILL, "it ended before it was killed"
        now = (run.load_state() or {"step": 0})["step"] if run.path.exists() else 0
        lines = steps_told(told)
        starts = [-line - 1 for line in lines[done:] if line < 0]
        assert starts in ([], [saved]), "it goes on from what was saved"
        reached = max((line for line in lines if line > 0), default=0)
        assert now >= saved and now % 3 == 0 and reached - now <= 3, "no more than an interval is lost"
        if 0 in lines:  # before the first save has come to its end, there may be a state and no network yet
            assert run.load_tensors("model.safetensors")
        assert all(line["step"] <= reached for line in run.read_log())
        saved, done = now, len(lines)
    assert 30 < saved < 150
    train(Train(**settings))
    assert_same_end(whole, run)
    assert {p.name for p in run.path.iterdir()} == {p.name for p in whole.path.iterdir()}
    for name in ("losses.npz", "sample_weights.npz"):
        assert (run.path / name).read_bytes() == (whole.path / name).read_bytes()


def test_a_kill_at_the_very_start_is_no_obstacle(settings):
    """While the first files were written."""
    folder = Path(settings["out"])
    folder.mkdir()
    for name in (".environment.json.123.part", ".config.json.123.part"):
        (folder / name).write_text('{"for')
    run = train(Train(**settings | {"steps": 1, "evaluate": False}))
    assert run.done and not list(folder.glob(".*"))


def test_a_full_disk(settings, tmp_path, process):
    """One line says so; the state before is whole, and the same command goes on from it."""
    settings |= {"loss": "ProxyAnchor()", "steps": 20, "checkpoint_every": "5"}
    told = tmp_path / "told"
    process(fill_the_disk, settings, str(told)).join()
    run = Run(settings["out"])
    message = f"run: no space left on the disk to write {run.path / 'state.pt'}; the previous file is unchanged. "
    assert told.read_text() == message + "Free some space and run the same command again"
    assert run.load_state()["step"] == 10 and run.load_tensors("model.safetensors")
    assert not list(run.path.glob(".*.part"))
    train(Train(**settings))
    assert_same_end(train(Train(**settings | {"out": str(tmp_path / "whole")})), run)


PICTURES = {
    "data": "glyphs(classes=8, per_class=6, size=16)", "size": 16, "sampler": "SamplesPerClass(batch=8, per_class=2)", "dim": 8,
    "steps": 12, "checkpoint_every": "100", "log_every": 2, "quiet": True, "device": "cpu",
}  # fmt: skip


def test_a_killed_reader_of_pictures(tmp_path):
    """It is told in one line, what was learned until then is saved, and the same command goes on."""
    settings = PICTURES | {"cache": "files", "workers": 1}
    whole = train(Train(**settings | {"workers": 0}, out=str(tmp_path / "whole")))
    others = set(multiprocessing.active_children())

    def kill_readers(state):
        if state.step == 5:
            for reader in set(multiprocessing.active_children()) - others:
                reader.kill()

    killed = r"a process that reads images was killed.*Training stopped at step \d"
    with pytest.raises(LikewiseError, match=killed) as told:
        train(Train(**settings, out=str(tmp_path / "run")), hooks=Hooks(after_step=kill_readers))
    assert "\n" not in str(told.value)
    run = Run(tmp_path / "run")
    assert 5 <= run.load_state()["step"] < 12
    train(Train(**settings, out=str(run.path)))
    assert_same_end(whole, run)


def test_a_damaged_cache(tmp_path, monkeypatch, stop_at, capsys):
    """Between two halves of a training: what is damaged is decoded again, and the end is that of pictures read from files."""
    whole = train(Train(**PICTURES, cache="files", workers=0, out=str(tmp_path / "whole")))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    settings = PICTURES | {"cache": "disk", "out": str(tmp_path / "run"), "workers": 0}
    with pytest.raises(Interrupted):
        train(Train(**settings), hooks=stop_at(5))
    (pixels,) = (tmp_path / "cache").rglob("pixels.bin")
    held = bytearray(pixels.read_bytes())
    held[len(held) // 3] ^= 1
    pixels.write_bytes(held)
    run = train(Train(**settings))
    assert "is damaged" in capsys.readouterr().out
    assert_same_end(whole, run)


@pytest.mark.parametrize("processes", [1, 2])
def test_one_of_several_does_not_save_alone(processes, settings):
    """The others are in the middle of a step: waiting for them would never end."""
    items, device, saved = load(settings["data"]), torch.device("cpu"), []
    config = resolve(Train(**settings), items)
    state = build_state(config, make_samples(config, items, device), device, rank=processes - 1, processes=processes)
    state.step, log = 5, RunLog.__new__(RunLog)
    log.save = saved.append

    def feed():
        raise BadImage("images: broken")
        yield

    with pytest.raises(LikewiseError, match="^images: broken. Training stopped at step 5"):
        next_batch(feed(), state, log)
    assert saved == ([state] if processes == 1 else [])
