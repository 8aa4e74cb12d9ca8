"""The loop: an exact resume after every kind of end, and no diverged state is saved."""

import json
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from learn.training.small_training import GLYPHS, SMALL, assert_resumes_exactly, assert_same_network, built, pictures
from likewise.config import Train
from likewise.types import Batch, LikewiseError

from likewise import samplers
from likewise.data import load
from likewise.learn.training.defaults import resolve
from likewise.learn.training.fit import train
from likewise.learn.training.loop import Hooks, Interrupted, StepTimer, describe_time, seconds_per_image, with_estimate
from likewise.runs.folder import Run
from likewise.runs.identity import find_run, prepare_folder


@pytest.mark.parametrize(
    "loss",
    [
        "Triplet()",
        "ProxyAnchor()",
        "Hierarchical(loss=ProxyAnchor(), every=6)",
        "Hierarchical(loss=ProxyNCA(), every=6, by='means')",
    ],
)
def test_a_stopped_training_goes_on_to_the_same_numbers(settings, tmp_path, stop_at, loss):
    """Stopped in the middle of a pass and of a logging interval: weights, log and scores equal an uninterrupted run's."""
    settings = settings | {"loss": loss, "noise": "Uniform(share=0.2)", "schedule": "cosine", "checkpoint_every": "7"}
    whole = train(Train(**settings | {"out": str(tmp_path / "whole")}))
    with pytest.raises(Interrupted, match="stopped at step 23 of 40; run the same command to resume"):
        train(Train(**settings), hooks=stop_at(23))
    half = Run(settings["out"])
    assert not half.done and half.load_state()["step"] == 23
    resumed = train(Train(**settings))
    assert resumed.done
    assert_same_network(whole, resumed)
    assert resumed.scores == whole.scores
    assert [line["step"] for line in resumed.read_log()] == [10, 20, 30, 40]


@pytest.mark.parametrize("share", [0.0, 0.2, 0.5])
def test_the_saved_network_has_the_averaged_weights(settings, tmp_path, share):
    """By hand over the weights of the head after every step; a share of 0 saves the last weights."""
    seen = []
    hooks = Hooks(
        after_step=lambda state: seen.append(state.components.embedder.head.fc.weight.detach().double().clone())
    )
    run = train(Train(**settings | {"average": share}), hooks=hooks)
    average = seen[-1]
    if share:
        average = torch.zeros_like(seen[0])
        for t, weight in enumerate(seen, 1):
            average += min(1.0, 1 / (share * t)) * (weight - average)
        assert not torch.allclose(average, seen[-1], atol=1e-4)
    saved = run.load_tensors("model.safetensors")["embedder.head.fc.weight"].double()
    assert torch.allclose(saved, average, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
@pytest.mark.process
def test_a_killed_training_goes_on_from_its_checkpoint(settings, tmp_path):
    """Killed without a chance to save: the steps since the last checkpoint are done again, to the same end."""
    whole = train(Train(**settings | {"out": str(tmp_path / "whole")}))
    code = (
        "import os\nfrom likewise.config import Train\n"
        "from likewise.learn.training.fit import train\nfrom likewise.learn.training.loop import Hooks\n"
        "hooks = Hooks(after_step=lambda state: state.step == 27 and os._exit(9))\n"
        f"train(Train(**{settings!r}), hooks=hooks)\n"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=600, check=False).returncode == 9
    run = Run(settings["out"])
    assert run.load_state()["step"] == 20 and (run.path / "lock").exists()
    train(Train(**settings))
    assert_same_network(whole, run)
    whole_losses, losses = ([line["loss"] for line in r.read_log()] for r in (whole, run))
    assert whole_losses[2:] == pytest.approx(losses[2:]) and len(losses) == 4


def test_pictures_resume_exactly_with_workers(tmp_path):
    """The augmentation of step n is the same whether or not training began there, in whatever process, from files or not."""
    settings = {
        "data": "glyphs(classes=8, per_class=6, size=16)", "size": 16, "sampler": "SamplesPerClass(batch=8, per_class=2)",
        "dim": 8, "steps": 6, "checkpoint_every": "3", "quiet": True, "evaluate": False, "device": "cpu",
    }  # fmt: skip
    whole = train(Train(**settings, workers=1, cache="files", out=str(tmp_path / "whole")))
    half = train(Train(**settings | {"steps": 3}, workers=0, out=str(tmp_path / "half")))
    other, items = Run(tmp_path / "other"), load(settings["data"])
    config = resolve(Train(**settings, out=str(other.path)), items)
    with other.owned():
        prepare_folder(find_run(config, items), config, torch.device("cpu"))
    (other.path / "state.pt").write_bytes((half.path / "state.pt").read_bytes())
    train(Train(**settings, workers=0, out=str(other.path)))
    assert_same_network(whole, other)


@pytest.mark.parametrize(("sampler", "at"), [("DistanceMatching", 4), ("GreedyCoreset", 3)])
def test_a_sampler_that_looks_at_embeddings_resumes_exactly(tmp_path, monkeypatch, stop_at, sampler, at):
    """Stopped in the middle of its second pass, or right after its first, of three steps; with and without workers."""
    settings, start = GLYPHS | {"sampler": f"{sampler}(batch=8, pool=16)"}, getattr(samplers, sampler).start
    whole = train(Train(**settings, workers=1, cache="files", out=str(tmp_path / "whole")))
    with pytest.raises(Interrupted):
        train(Train(**settings, workers=0, out=str(tmp_path / "half")), hooks=stop_at(at))
    kind = getattr(samplers, sampler)
    monkeypatch.setattr(
        kind, "start", lambda self, embed: start(self, lambda: pytest.fail("the bank was filled again"))
    )
    resumed = train(Train(**settings, workers=0, out=str(tmp_path / "half")))
    assert_same_network(whole, resumed)
    banks = [r.load_state()["sampler"] for r in (whole, resumed)]
    assert torch.equal(banks[0]["bank"], banks[1]["bank"]) and banks[0]["bank"].shape == (24, 8)
    assert torch.equal(banks[0]["batches"], banks[1]["batches"]) and banks[0]["pass"] == banks[1]["pass"] == 2


def poison(at: int) -> Hooks:
    """A weight of the head becomes NaN before the step after `at`."""

    def before_step(state, batch):
        if state.step == at:
            next(state.components.embedder.head_parameters()).data.fill_(float("nan"))
        return batch

    return Hooks(before_step=before_step)


def test_a_diverged_training_says_so_and_keeps_the_last_sound_state(settings):
    with pytest.raises(LikewiseError, match="became nan before step 20; lower --lr"):
        train(Train(**settings), hooks=poison(14))
    assert Run(settings["out"]).load_state()["step"] == 10


@pytest.mark.parametrize(("keep", "workers"), [("files", 0), ("files", 1), ("auto", 1), ("disk", 0)])
def test_a_broken_picture_is_skipped_or_stops_a_strict_training_before_it_starts(tmp_path, keep, workers):
    folder = pictures(tmp_path / "data")
    broken = folder / "class1" / "3.png"
    broken.write_bytes(broken.read_bytes()[:60])
    out, more = str(tmp_path / "run"), {"cache": keep, "workers": workers}
    with pytest.raises(LikewiseError, match="class1/3.png.*strict: no image is skipped") as caught:
        train(Train(data=str(folder), out=out, strict=True, **more, **SMALL))
    assert "Traceback" not in str(caught.value) and not Path(out).exists()
    lines = []
    run = train(Train(data=str(folder), out=out, **more, **SMALL), lines.append)
    assert run.done and run.skipped == [[9, "class1/3.png"]]
    assert "skipped 1 of 24 images" in lines[0] and "class1/3.png" in lines[0]


def test_a_picture_that_breaks_during_the_training_is_named_and_nothing_learned_is_lost(tmp_path):
    folder = pictures(tmp_path / "data")
    out = str(tmp_path / "run")

    def damage(state):
        if state.step == 2:
            for file in folder.glob("class1/*.png"):
                file.write_bytes(b"no picture")

    settings = Train(data=str(folder), out=out, cache="files", workers=0, **SMALL)
    with pytest.raises(LikewiseError, match=r"class1/\d.png.*Training stopped at step "):
        train(settings, hooks=Hooks(after_step=damage))
    assert (Path(out) / "state.pt").exists()


@pytest.mark.slow
@pytest.mark.process
def test_ctrl_c_on_the_command_line(settings, features):
    """A real process, a real signal: exit code 130, a resumable run, and the same command finishes it."""
    words = [
        sys.executable,
        "-m",
        "likewise",
        "train",
        features,
        "--out",
        settings["out"],
        "--steps",
        "400",
        "--dim",
        "8",
    ]
    words += ["--sampler", settings["sampler"], "--log-every", "2", "--device", "cpu"]
    child = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    log = Path(settings["out"]) / "log.jsonl"
    deadline = time.time() + 300
    while time.time() < deadline and (not log.exists() or not log.read_text()):
        time.sleep(0.01)
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=300)
    assert child.returncode == 130 and "run the same command to resume" in err and "Traceback" not in err
    step = Run(settings["out"]).load_state()["step"]
    assert 0 < step < 400
    done = subprocess.run(words, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0 and "R@1" in done.stdout
    steps = [json.loads(line)["step"] for line in log.read_text().splitlines()]
    assert steps == sorted(set(steps)) and steps[-1] == 400


@pytest.mark.parametrize(
    "change", [{"checkpoint_every": "3"}, {"protocol": "UnseenClasses(val=0.3)", "validate_every": "3"}]
)
def test_a_network_that_diverged_is_neither_saved_nor_scored(settings, change):
    with pytest.raises(LikewiseError, match="became nan before step .*lower --lr"):
        train(Train(**settings | change), hooks=poison(13))
    tensors = Run(settings["out"]).load_state()["tensors"]
    assert all(torch.isfinite(v).all() for v in tensors.values())


def test_the_log_goes_on_to_the_same_numbers(settings, tmp_path, stop_at):
    whole = train(Train(**settings | {"out": str(tmp_path / "whole"), "evaluate": False}))
    for step, how in ((17, signal.SIGTERM), (31, signal.SIGHUP)):  # a scheduler; a terminal that is closed
        with pytest.raises(Interrupted, match=f"stopped at step {step} of 40"):
            train(Train(**settings | {"evaluate": False}), hooks=stop_at(step, how))
    resumed = train(Train(**settings | {"evaluate": False}))
    assert [x["loss"] for x in resumed.read_log()] == [x["loss"] for x in whole.read_log()]


ROBUST = [
    {"confidence": "LabelPosterior(every='15')"},
    {"confidence": "ProcSim(lam=0.1)", "terms": ("SelfDistillation()",)},
    {"confidence": "ProcSim(threshold='mean', score_by='loss')", "views": 2, "precision": "bf16"},
    {"confidence": "CoTeaching(share=0.2, ramp='2e')", "loss": "NormSoftmax()"},
    {"confidence": "CoTeachingPlus(share=0.2, start='1e', ramp='2e')", "loss": "ProxyNCA()"},
    {"confidence": "PRISM(share=0.2)", "loss": "CrossBatchMemory(size=100)"},
    {"terms": ("S2SD(dims=(16, 12), delay=20)",), "loss": "ProxyAnchor()", "loss_weight": 0.5},
]


@pytest.mark.parametrize(
    "parts", ROBUST, ids=lambda parts: (parts.get("confidence") or parts["terms"][0]).split("(")[0]
)
def test_a_training_that_doubts_its_labels_resumes_exactly(settings, tmp_path, stop_at, parts):
    """Stopped between two verdicts, in the middle of a pass and of a logging interval."""
    del settings["out"]
    assert_resumes_exactly(settings | {"noise": "Uniform(share=0.3)", "evaluate": False} | parts, tmp_path, stop_at, 23)


def test_weights_that_are_not_finite_are_never_saved(settings, tmp_path):
    """The loss of a step is from before its update, so that it may be finite where the weights are not any more."""

    def spoil_a_weight(state):
        if state.step == 4:
            next(state.components.embedder.parameters()).data.flatten()[0] = torch.nan

    hooks = Hooks(after_step=spoil_a_weight)
    where = tmp_path / "nan"
    with pytest.raises(LikewiseError, match=r"a parameter .*became nan before step 4"):
        train(Train(**settings | {"checkpoint_every": "1", "steps": 9, "out": str(where)}), hooks=hooks)
    tensors = Run(where).load_state()["tensors"]
    assert Run(where).load_state()["step"] == 3 and all(t.isfinite().all() for t in tensors.values())


@pytest.fixture
def state(pictures, small):
    return built(Train(data=str(pictures), **small | {"steps": 63, "quiet": False}), load(str(pictures)))


def walk(state, seconds, hooks=None):
    """Return what is printed in ten steps, with a line before the first of them.

    The clock shows this many seconds more at every look.
    """
    lines, now = [], [0.0]

    def clock():
        now[0] += seconds
        return now[0]

    hooks = with_estimate(hooks or Hooks(), state, lines.append, clock)
    batch = Batch(
        torch.randint(256, (16, 3, 32, 32), dtype=torch.uint8), torch.zeros(16, dtype=torch.long), torch.arange(16)
    )
    for number in range(10):
        state.step = number
        assert hooks.before_step(state, batch) is batch
        lines += ["first step"] * (number == 0)
        state.step = number + 1
        hooks.after_step(state)
    return lines


def test_a_training_on_images_is_estimated_before_its_first_step(state):
    line, *rest = walk(state, 10)  # 8 images take 10 s, so the 63 steps of 16 images take 21 minutes
    assert (
        line.startswith("about 21 minutes on this CPU for 63 steps; faster: ") and "likewise train features.npz" in line
    )
    assert rest == ["first step"]
    assert walk(state, 1) == ["about 2 minutes on this CPU for 63 steps", "first step"]
    assert walk(state, 0.03) == ["first step"]


def test_a_training_on_features_is_estimated_after_its_first_steps(state, monkeypatch):
    monkeypatch.setattr(type(state.samples), "features", 8)
    first, line = walk(state, 20)  # after step 6 of 63, 57 steps of 20 seconds are left
    assert first == "first step" and line.startswith("about 19 minutes on this CPU for 57 steps; faster: ")
    assert walk(state, 0.125) == [
        "first step",
        "about 7 seconds on this CPU for 54 steps",
    ]  # 4 steps take half a second
    assert walk(state, 0.05) == ["first step"]  # unknown after ten steps


def test_steps_are_timed_after_the_first_five():
    now = iter([10.0, 10.2, 10.4, 10.6])
    timer = StepTimer(lambda: next(now))
    found = [timer.after_step() for _ in range(12)]
    assert found[:7] == [None] * 7 and found[7] == pytest.approx(0.2, abs=1e-9) and found[8:] == [None] * 4


def test_the_timed_pass_changes_nothing(state):
    embedder = state.components.embedder.train()
    before = {name: value.clone() for name, value in embedder.state_dict().items()}
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    assert seconds_per_image(state, torch.rand(8, 3, 32, 32), time.monotonic) > 0
    torch.manual_seed(3)
    assert seconds_per_image(state, torch.full((8, 3, 32, 32), 0.5), time.monotonic) > 0
    assert torch.equal(torch.rand(2), expected)
    assert all(torch.equal(before[name], value) for name, value in embedder.state_dict().items())
    assert all(parameter.grad is None for parameter in embedder.parameters())


def test_the_hooks_of_the_caller_are_still_called(state):
    called = []

    def before(state, batch):
        called.append(-state.step)
        return batch

    walk(state, 20, Hooks(before_step=before, after_step=lambda state: called.append(state.step)))
    assert called == [number for step in range(10) for number in (-step, step + 1)]


def test_a_training_on_a_gpu_is_estimated_by_its_first_steps(state, monkeypatch):
    waited = []
    monkeypatch.setattr("likewise.learn.training.loop.wait_for_device", waited.append)
    state.device = torch.device("meta")
    assert walk(state, 0.125) == [
        "first step",
        "about 7 seconds on this GPU (by the time of its first steps) for 54 steps",
    ]
    assert waited == [state.device] * 9  # not after the estimate


def test_a_quiet_training_has_no_estimate(state):
    hooks = Hooks()
    state.config = replace(state.config, quiet=True)
    assert with_estimate(hooks, state, print) is hooks


def test_what_is_suggested():
    config = Train("photos", backbone="resnet18")
    embed = "likewise embed resnet18 photos --layer feature --out features.npz; likewise train features.npz"
    assert describe_time(config, 4.9, 7, 224) == ""
    assert describe_time(config, 5, 1, 224) == "about 5 seconds on this CPU for 1 step"
    assert describe_time(config, 119, 1200, 224) == "about 119 seconds on this CPU for 1,200 steps"
    assert describe_time(config, 599, 7, 224) == "about 10 minutes on this CPU for 7 steps"
    about = "about 23 minutes on this CPU for 7 steps; faster: "
    assert describe_time(config, 1380, 7, 224) == (
        f"{about}--size 128 (about 8 minutes), or train a head on features: {embed}"
    )
    assert describe_time(config, 1380, 7, 96) == f"{about}train a head on features: {embed}"
    named = Train("cub200", root="/data/CUB", backbone="resnet18")
    assert "likewise embed resnet18 cub200 --root /data/CUB --layer" in describe_time(named, 1380, 7, 224)
    assert describe_time(config, 10 * 3600, 7, 256).startswith(
        "about 10 hours on this CPU for 7 steps; faster: --size 128 (about 2 hours)"
    )
    assert describe_time(config, 1380, 7, None) == f"{about}fewer --epochs"


def test_the_estimate_changes_no_training(settings, tmp_path):
    """The progress bar is shown in one of two trainings, so the network is timed in that one only."""
    one, two = (
        train(Train(**settings | {"out": str(tmp_path / str(quiet)), "quiet": quiet}), say=lambda line: None)
        for quiet in (True, False)
    )
    a, b = one.load_tensors("model.safetensors"), two.load_tensors("model.safetensors")
    assert all((a[name] == b[name]).all() for name in a) and one.about["identity"] == two.about["identity"]
