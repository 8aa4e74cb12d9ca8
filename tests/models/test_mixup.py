"""Mixed states by hand at every place, nothing left behind, and trainings with it from end to end."""

import numpy as np
import pytest
import torch
from likewise.config import Train
from likewise.losses import NormSoftmax
from likewise.types import LikewiseError
from torch.nn import functional as F

from likewise.data import load
from likewise.learn.training.build import build_state, make_samples
from likewise.learn.training.defaults import resolve
from likewise.learn.training.fit import train
from likewise.learn.training.loop import Interrupted
from likewise.models import Embedder
from likewise.models.mixup import BACKBONE_STAGES, Mixup
from likewise.runs.folder import Run
from likewise.runs.identity import find_run

PERM = torch.tensor([2, 0, 1, 4, 3])


def mixed(h, lam):
    return torch.stack([lam * h[i] + (1 - lam) * h[PERM[i]] for i in range(len(h))])


def network(name, **more) -> Embedder:
    torch.manual_seed(0)
    return Embedder(name, 6, pretrained=False, **more).eval()


def pictures(side=64):
    return torch.randint(0, 256, (5, 3, side, side), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))


def conv_small_by_hand(net, h, place, lam):
    for number, name in enumerate(("block1", "block2", "block3", "block4")):
        h = net.residual(h) + h if name == "block4" else h
        h = getattr(net, name)(mixed(h, lam) if number == place else h)
    return h


def resnet_by_hand(net, h, place, lam):
    h = net.maxpool(net.act1(net.bn1(net.conv1(mixed(h, lam) if place == 0 else h))))
    for number in (1, 2, 3, 4):
        h = getattr(net, f"layer{number}")(mixed(h, lam) if number == place else h)
    return h


def efficientnet_by_hand(net, h, place, lam):
    h = net.bn1(net.conv_stem(mixed(h, lam) if place == 0 else h))
    for number, blocks in enumerate(net.blocks):
        h = blocks(mixed(h, lam) if number == place > 0 else h)
    return net.bn2(net.conv_head(h))


def googlenet_by_hand(net, h, place, lam):
    before = {"conv1": 0, "conv2": 1, "inception3a": 2, "inception4a": 3}
    for name, part in net.named_children():
        h = part(mixed(h, lam) if before.get(name) == place else h)
    return h


def bn_inception_by_hand(net, h, place, lam):
    def halve(x):
        return F.max_pool2d(x, 3, stride=2, ceil_mode=True)

    h = halve(net.unit("conv1_7x7_s2", mixed(h, lam) if place == 0 else h))
    h = halve(net.unit("conv2_3x3", net.unit("conv2_3x3_reduce", mixed(h, lam) if place == 1 else h)))
    for name in ("3a", "3b", "3c", "4a", "4b", "4c", "4d", "4e", "5a", "5b"):
        h = net.block(f"inception_{name}", mixed(h, lam) if {"3a": 2, "4a": 3}.get(name) == place else h)
    return h


BY_HAND = {
    "conv_small": conv_small_by_hand,
    "resnet18": resnet_by_hand,
    "efficientnet_lite0": efficientnet_by_hand,
    "googlenet": googlenet_by_hand,
    "bn_inception": bn_inception_by_hand,
}


@pytest.mark.parametrize("place", [0, 1, 2, 3])
@pytest.mark.parametrize(
    "name", [one if one == "conv_small" else pytest.param(one, marks=pytest.mark.slow) for one in BY_HAND]
)
@torch.no_grad()
def test_mixed_states_by_hand(name, place):
    # With the batch's own statistics, since the states of an untrained network are all but equal without.
    embedder, x, lam = network(name).double().train(), pictures(), 0.3
    f = BY_HAND[name](embedder.backbone.net, embedder.normalise(x), place, lam).mean((2, 3))
    out = Mixup(embedder, 2.0).mix(x, place, lam, PERM)
    torch.testing.assert_close(out.f, f)
    torch.testing.assert_close(out.z, F.normalize(embedder.head(f)))
    assert not torch.allclose(out.z, embedder(x).z, atol=1e-2)
    assert all(not part._forward_pre_hooks for part in embedder.modules())  # nothing of it is left in the network


@pytest.mark.parametrize("place", [0, 1, 2, 3])
@torch.no_grad()
def test_a_whole_share_is_no_mixup(place):
    embedder, x = network("conv_small"), pictures(32)
    plain = embedder(x)
    assert torch.equal(Mixup(embedder, 2.0).mix(x, place, 1.0, PERM).z, plain.z)
    swapped = Mixup(embedder, 2.0).mix(x, place, 0.0, PERM)
    torch.testing.assert_close(swapped.z, plain.z[PERM])


def test_one_draw_a_batch_and_shares_that_sum_to_one():
    embedder, x = network("conv_small"), pictures(32)
    mixup, places, lams = Mixup(embedder, 2.0), [], []
    mix = mixup.mix
    mixup.mix = lambda x, place, lam, perm: places.append(place) or mix(x, place, lam, perm)
    torch.manual_seed(0)
    with torch.no_grad():
        for _ in range(300):
            _, [(own, lam), (perm, rest)] = mixup(x)
            assert own.tolist() == [0, 1, 2, 3, 4] == sorted(perm.tolist()) and lam + rest == pytest.approx(1)
            lams.append(lam)
    assert set(places) == {0, 1, 2, 3} and min(places.count(p) for p in range(4)) > 50
    # Beta(2, 2) has mean 1/2 and deviation sqrt(1/20)
    assert np.mean(lams) == pytest.approx(0.5, abs=0.04) and np.std(lams) == pytest.approx(0.05**0.5, abs=0.03)
    at_input = Mixup(embedder, 2.0, "input")
    assert len(at_input.places) == 1 and at_input.places[0] == (embedder.backbone,)


def test_draws_come_from_the_default_generator():
    embedder, x = network("conv_small"), pictures(32)
    found = []
    for _ in range(2):
        torch.manual_seed(7)
        with torch.no_grad():
            found.append(Mixup(embedder, 0.5)(x))
    assert torch.equal(found[0][0].z, found[1][0].z) and found[0][1][0][1] == found[1][1][0][1]


def test_an_error_in_the_network_leaves_no_mixture_behind():
    embedder = network("conv_small")
    with pytest.raises(LikewiseError, match="x must be images"):
        Mixup(embedder, 2.0).mix(torch.zeros(5, 3, 8), 1, 0.5, PERM)
    assert all(not m._forward_pre_hooks for m in embedder.modules())


def test_features_are_mixed_at_the_input():
    embedder, x = network("features", features=4), torch.randn(5, 4)
    out = Mixup(embedder, 2.0, "input").mix(x, 0, 0.3, PERM)
    torch.testing.assert_close(out.f, mixed(x, 0.3))


@pytest.mark.parametrize("name", ["features", "vit_tiny_patch16_224"])
def test_unknown_stages_are_an_error_and_the_input_always_works(name):
    embedder = network(name, features=4) if name == "features" else network(name, size=32)
    with pytest.raises(LikewiseError, match=f"got '{name}'; mix only at the input"):
        Mixup(embedder, 2.0)
    assert len(Mixup(embedder, 2.0, "input").places) == 1
    with pytest.raises(LikewiseError, match="alpha must be above 0, got 0"):
        Mixup(embedder, 0.0, "input")


@pytest.mark.parametrize("name", ["convnext_atto", "regnety_002", "mobilenetv3_small_050"])
def test_other_networks_have_their_three_stages(name):
    mixup = Mixup(network(name), 2.0)
    assert len(mixup.places) == 4 and all(len(parts) == 1 for parts in mixup.places)
    with torch.no_grad():
        found = [mixup.mix(pictures(), place, 0.5, PERM).z for place in range(4)]
    assert all(not torch.allclose(found[0], z, atol=1e-4) for z in found[1:])


def test_every_layout_names_three_stages():
    assert all(len(stages) == 3 for stages in BACKBONE_STAGES.values())


# In training.

GLYPHS = {
    "data": "glyphs(classes=16, per_class=8, size=16)", "size": 16, "sampler": "SamplesPerClass(batch=16, per_class=4)",
    "dim": 8, "lr": 3e-3, "quiet": True, "workers": 0, "device": "cpu", "metrics": ("MAP@R", "rho"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["NormSoftmax()", "Triplet()"])
def test_glyphs_are_learned_from_mixtures(tmp_path, loss):
    from likewise import evaluate

    larger = {"data": "glyphs(classes=16, per_class=12, size=24)", "size": 24, "evaluate": False}
    larger["sampler"] = "SamplesPerClass(batch=32, per_class=4)"
    run = train(Train(**GLYPHS | larger, loss=loss, mixup=2.0, steps=80, out=str(tmp_path / "run"), log_every=20))
    assert all(np.isfinite(line["loss"]) for line in run.read_log())
    asked = {"split": "train", "metrics": ["MAP@R"], "quiet": True, "device": "cpu"}
    before, after = (
        evaluate(run, checkpoint=checkpoint, **asked)["metrics"]["MAP@R"] for checkpoint in ("untrained", "last")
    )
    assert after > before + 0.1


def test_a_mixed_training_is_another_run():
    items = load(GLYPHS["data"])
    settings = [{}, {"mixup": 2.0}, {"mixup": 1.0}, {"mixup": 2.0, "mixup_at": "input"}]
    found = [find_run(resolve(Train(**GLYPHS | more), items), items) for more in settings]
    assert len({claim.about["identity"] for claim in found}) == 4


def test_the_objective_by_hand(tmp_path):
    """One step on features: both labellings with their shares, and each label with the weight of its own row."""
    y = np.repeat(np.arange(4), 6)
    x = np.random.default_rng(0).normal(size=(24, 5)).astype(np.float32)
    weight = np.linspace(0.5, 2, 24)
    np.savez(tmp_path / "toy.npz", x=x, label=y, weight=weight, split=np.full(24, "train"))
    settings = {
        "data": str(tmp_path / "toy.npz"), "sampler": "Shuffled(batch=24)", "loss": "NormSoftmax()", "dim": 3, "seed": 3,
        "steps": 1, "log_every": 1, "mixup": 2.0, "mixup_at": "input", "evaluate": False, "quiet": True, "device": "cpu",
    }  # fmt: skip
    run = train(Train(**settings, out=str(tmp_path / "run")))
    items = load(settings["data"])
    config, device = resolve(Train(**settings), items), torch.device("cpu")
    start = build_state(config, make_samples(config, items, device), device)
    rows = next(iter(start.sampler))
    alpha = torch.tensor(2.0, dtype=torch.float64)
    start.seed(1)
    torch.randint(1, ())
    lam = float(torch.distributions.Beta(alpha, alpha).sample())
    perm = torch.randperm(24)
    assert isinstance(start.components.loss, NormSoftmax)
    h = torch.as_tensor(x[rows])
    z = start.components.embedder(lam * h + (1 - lam) * h[perm]).z
    total = 0.0
    for i, row in enumerate(rows):
        for share, label_row in ((lam, row), (1 - lam, rows[perm[i]])):
            logits = z[i] @ F.normalize(start.components.loss.proxies, dim=1).T / start.components.loss.temperature
            total -= share * weight[label_row] * logits.log_softmax(0)[y[label_row]].item() / 24
    assert run.read_log()[0]["loss"] == pytest.approx(total, rel=1e-5)


def test_a_training_whose_shares_are_whole_is_a_training_without(tmp_path, monkeypatch):
    settings = GLYPHS | {"loss": "NormSoftmax()", "steps": 8, "evaluate": False}
    plain = train(Train(**settings, out=str(tmp_path / "plain")))
    monkeypatch.setattr(torch.distributions.Beta, "sample", lambda self: torch.tensor(1.0))
    whole = train(Train(**settings, mixup=2.0, out=str(tmp_path / "whole")))
    first, second = (r.load_tensors("model.safetensors") for r in (plain, whole))
    assert first.keys() == second.keys() and all(torch.equal(first[k], second[k]) for k in first)


def test_a_stopped_training_goes_on_to_the_same_numbers(tmp_path, stop_at):
    settings = GLYPHS | {"mixup": 2.0, "steps": 14, "checkpoint_every": "5", "loss": "Triplet()"}
    whole = train(Train(**settings, out=str(tmp_path / "whole")))
    with pytest.raises(Interrupted):
        train(Train(**settings, out=str(tmp_path / "run")), hooks=stop_at(7))
    assert Run(tmp_path / "run").load_state()["step"] == 7
    resumed = train(Train(**settings, out=str(tmp_path / "run")))
    first, second = (r.load_tensors("model.safetensors") for r in (whole, resumed))
    assert first.keys() == second.keys() and all(torch.equal(first[k], second[k]) for k in first)
    assert resumed.scores == whole.scores


def test_validation_sees_no_mixture(tmp_path):
    settings = GLYPHS | {"mixup": 2.0, "lr": 0.0, "freeze_bn": True, "protocol": "UnseenClasses(val=0.4)"}
    run = train(Train(**settings, steps=6, validate_every="2", evaluate=False, out=str(tmp_path / "run")))
    scores = [line["val MAP@R"] for line in run.read_log() if "val MAP@R" in line]
    assert len(scores) == 3 and len(set(scores)) == 1  # a network that does not learn scores the same each time


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            {"backbone": "vit_tiny_patch16_224", "pretrained": False, "size": 32},
            "must be known, got .*; mix only at the input",
        ),
    ],
)
def test_settings_that_cannot_work_are_named(tmp_path, change, says, unchecked):
    with pytest.raises(LikewiseError, match=says):
        train(Train(**GLYPHS | {"mixup": 2.0, "out": str(tmp_path / "run")} | change))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "change", [{"sampler": "GreedyCoreset(batch=12)"}, {"loss": "CrossBatchMemory()"}], ids=["sampler", "loss"]
)
def test_parts_that_remember_embeddings_are_refused(tmp_path, change):
    with pytest.raises(LikewiseError, match="would store embeddings of mixtures under one class"):
        train(Train(**GLYPHS | change | {"mixup": 2.0, "out": str(tmp_path / "run")}))
    assert not (tmp_path / "run").exists()
