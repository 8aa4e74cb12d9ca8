"""Every part on a shelf keeps its contract, and every check catches a part made to break it."""

import numpy as np
import pytest
import torch

from likewise import losses, metrics, miners, noise, samplers
from likewise.contracts import BatchSampler, Loss, Miner, NoiseModel
from likewise.metrics.ranking import metric
from likewise.similarity import compare
from likewise.spec import build
from likewise.testing import CLASSES, DIM, check_loss, check_metric, check_miner, check_noise, check_sampler
from likewise.types import Pairs


@pytest.mark.parametrize("name", losses.__all__)
def test_every_loss(name):
    check_loss(lambda: build(name, Loss, classes=CLASSES, dim=DIM))


@pytest.mark.parametrize(
    "text",
    [
        "MultiSimilarity(miner=None)",
        "Contrastive(miner=SemiHard())",
        "Contrastive(miner=HardPairs())",
        "Triplet(squared=True)",
    ],
)
def test_losses_with_other_miners(text):
    check_loss(lambda: build(text, Loss))


@pytest.mark.parametrize("name", miners.__all__)
def test_every_miner(name):
    check_miner(lambda: build(name, Miner))


@pytest.mark.parametrize("name", samplers.__all__)
def test_every_sampler(name):
    check_sampler(lambda labels, seed: build(f"{name}(batch=6)", BatchSampler, labels=labels, seed=seed), 6)


@pytest.mark.parametrize("name", noise.__all__)
def test_every_noise_model(name):
    check_noise(lambda share: build(f"{name}(share={share})", NoiseModel))


@pytest.mark.parametrize("name", [n.replace("@k", "@1") for n in metrics.NAMES])
def test_every_metric(name):
    check_metric(metric(name))


class Plain(Loss):
    """A sound loss, to spoil in one way at a time. Its arguments are the ways."""

    def __init__(self, fault: str = ""):
        super().__init__()
        self.fault = fault
        self.count = torch.nn.Parameter(torch.ones(()))

    def forward(self, z, y, ref=None):
        sim, pairs = compare(z, y, ref)
        each = (sim * pairs.pos).sum(1) * 0.1 * self.count
        match self.fault:
            case "mean":
                return each.mean()
            case "nan":
                return each / pairs.neg.sum(1)
            case "root":
                return each + (z[:, None] - z[None]).square().sum(2).sqrt().sum(1)  # the root's slope at 0
            case "order":
                return each * torch.arange(1, len(y) + 1)
            case "inputs":
                y += 1
            case "types":
                self.double()
            case "sixteen":
                return each.bfloat16()
            case "state":
                return each + id(self) % 1000
            case "reference":
                return each if ref is None else each + 1
            case "float labels":
                return each + (y.float() == y.float()[:, None]).sum(0)
        return each


def test_the_plain_loss_passes():
    check_loss(Plain)


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("mean", "12 samples must give 12 numbers"),
        ("nan", "not finite"),
        ("root", "gradient not finite where"),
        ("order", "order of samples matters"),
        ("inputs", "inputs were changed"),
        ("types", "parameters changed their type"),
        ("sixteen", "must give|not finite float32"),
        ("state", "restored from its state differs"),
        ("reference", "batch as reference"),
        ("float labels", "labels above 2.24"),
    ],
)
def test_a_faulty_loss_is_caught(fault, says):
    with pytest.raises(AssertionError, match=says):
        check_loss(lambda: Plain(fault))


def test_a_forgotten_argument_is_caught():
    with pytest.raises(AssertionError, match="spec does not come back"):
        check_loss(lambda: Moody(1))


class Moody(Plain):
    """Stores something else than it was given."""

    def __init__(self, scale: int = 0):
        super().__init__()
        self.scale = scale + 1


class TakesAll(Miner):
    def __call__(self, sim, pairs, dim, margin=None):
        return Pairs(torch.ones_like(pairs.pos), pairs.neg)


class Unseeded(Miner):
    def __call__(self, sim, pairs, dim, margin=None):
        draw = torch.as_tensor(np.random.default_rng().random(sim.shape)) < 0.5
        return Pairs(pairs.pos & draw, pairs.neg & draw)


@pytest.mark.parametrize(("bad", "says"), [(TakesAll, "no positive"), (Unseeded, "same seed")])
def test_a_faulty_miner_is_caught(bad, says):
    with pytest.raises(AssertionError, match=says):
        check_miner(bad)


class Stuck(BatchSampler):
    def __init__(self, labels, seed, fault):
        self.labels, self.seed, self.fault = labels, seed, fault

    def __len__(self):
        return 3

    def one_pass(self, number):
        seed = 0 if self.fault == "seed" else self.seed
        size = 5 if self.fault == "size" else 6
        order = np.random.default_rng((seed, number)).permutation(len(self.labels))
        if self.fault == "rows":
            order = order + len(order)
        batches = order[: 3 * size].reshape(3, size).tolist()
        return batches[:2] if self.fault == "short" else batches

    def load_state_dict(self, state):
        if self.fault != "state":
            super().load_state_dict(state)


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("seed", "another seed"),
        ("size", "wrong size"),
        ("rows", "does not exist"),
        ("short", "pass has not"),
        ("state", "restored"),
    ],
)
def test_a_faulty_sampler_is_caught(fault, says):
    check_sampler(lambda labels, seed: Stuck(labels, seed, ""), 6)
    with pytest.raises(AssertionError, match=says):
        check_sampler(lambda labels, seed: Stuck(labels, seed, fault), 6)


class Sloppy(NoiseModel):
    """Draws any class, the own one included: fewer labels become wrong than asked for."""

    def __init__(self, share):
        self.share = share

    def __call__(self, y, rng):
        return np.where(rng.random(len(y)) < self.share, rng.permutation(y), y) if self.share else y


def test_a_faulty_noise_model_is_caught():
    with pytest.raises(AssertionError, match="of the labels are wrong"):
        check_noise(lambda share: Sloppy(share / 2))


def test_a_faulty_metric_is_caught():
    with pytest.raises(AssertionError, match="NaN"):
        check_metric(lambda found: torch.ones(len(found.relevant)))
    with pytest.raises(AssertionError, match="must score 1"):
        check_metric(lambda found: metric("RP")(found) * 0.9)
