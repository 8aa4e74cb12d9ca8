"""Every part on a shelf keeps its contract, and every check catches a part made to break it."""

import numpy as np
import pytest
import torch
from bare_work import check_fault, check_spec

from likewise import losses, metrics, miners, noise, samplers
from likewise.contracts import BatchSampler, Miner, NoiseModel
from likewise.metrics.ranking import metric
from likewise.spec import build
from likewise.testing import CLASSES, check_metric, check_miner, check_noise, check_sampler
from likewise.types import Pairs


@pytest.mark.parametrize("name", losses.__all__)
def test_every_loss(name, bare):
    bare(check_spec, name)


@pytest.mark.parametrize(
    "text",
    [
        "MultiSimilarity(miner=None)",
        "Contrastive(miner=SemiHard())",
        "Contrastive(miner=HardPairs())",
        "Triplet(squared=True)",
        "Triplet(miner=Random(per_anchor=False))",
        "AdaptiveHierarchical(space='hyperbolic')",
        "ForwardCorrection(share=0.0)",
        *(f"Triplet(miner={name}())" for name in miners.__all__ if getattr(miners, name).gives == "triplets"),
    ],
)
def test_losses_with_other_miners(text, bare):
    bare(check_spec, text)


@pytest.mark.parametrize("name", miners.__all__)
def test_every_miner(name):
    check_miner(lambda: build(name, Miner, classes=CLASSES))


@pytest.mark.parametrize("name", samplers.__all__)
def test_every_sampler(name):
    check_sampler(lambda labels, seed: build(f"{name}(batch=6)", BatchSampler, labels=labels, seed=seed), 6)


@pytest.mark.parametrize(
    "text",
    [
        "SamplesPerClass(batch=6, with_replacement=True)",
        "SamplesRandom(batch=6, with_replacement=True)",
        "GreedyCoreset(batch=6, pool=12, published_indices=True)",
        "GreedyCoreset(batch=6, per_class=3, pool=12)",
        "DistanceMatching(batch=6, per_class=1, pool=12, published_cost=True)",
        "DistanceMatching(batch=6, pool=12, candidates=3)",
        "FrechetMatching(batch=6, pool=12, candidates=3)",
    ],
)
def test_samplers_with_other_settings(text):
    check_sampler(lambda labels, seed: build(text, BatchSampler, labels=labels, seed=seed), 6)


@pytest.mark.parametrize("name", noise.__all__)
def test_every_noise_model(name):
    names = [f"class {number}" for number in range(70)]
    facts = {
        "class_names": names,
        "taxonomy": {one: (f"kind {number % 3}",) for number, one in enumerate(names)},
        "features": np.random.default_rng(2).normal(size=(2000, 3)).astype(np.float32),
    }
    share = 0.28 if name == "SmallCluster" else 0.3  # whole classes of a tenth each: three pass 0.28 by little
    check_noise(lambda share: build(f"{name}(share={share})", NoiseModel, **facts), share)


@pytest.mark.parametrize("name", [n.replace("@k", "@1") for n in metrics.NAMES])
def test_every_metric(name):
    check_metric(
        metric(name), best=0.5 if name.endswith(("/C", "@C")) else 1.0
    )  # the study counts the query: R / (R + 1)


def test_the_plain_loss_passes(bare):
    bare(check_fault, "")


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
        ("argument", "spec does not come back"),
        ("curvature", "second derivative differs"),
        ("graph", "does not compile as one graph"),
        ("compiled", "compiled, it gives other numbers"),
        ("waits", "an accelerator must wait"),
    ],
)
def test_a_faulty_loss_is_caught(fault, says, bare):
    with pytest.raises(AssertionError, match=says):
        bare(check_fault, fault)


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


class Watcher(BatchSampler):
    """Sorts rows by their embeddings; one that looks at embeddings can fail in ways of its own."""

    def __init__(self, labels, seed, fault):
        self.labels, self.seed, self.fault, self.z, self.chosen = labels, seed, fault, None, (-1, [])

    def __len__(self):
        return 3

    def start(self, embed):
        if self.z is None or self.fault == "refills":
            self.z = embed().z[:, 0].clone()

    def observe(self, z, row):
        self.z[row] = z[:, 0]

    def one_pass(self, number):
        if self.chosen[0] != number:
            order = (self.z + np.random.default_rng((self.seed, number)).normal(size=len(self.z))).argsort()
            self.chosen = (number, order[:18].reshape(3, 6).tolist())
        return self.chosen[1]

    def state_dict(self):
        z = self.z.numpy() if self.fault == "arrays" else self.z
        return super().state_dict() | {"z": z, "chosen": (-1, []) if self.fault == "forgets" else self.chosen}

    def load_state_dict(self, state):
        super().load_state_dict(state)
        self.z, self.chosen = state["z"], state["chosen"]


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("refills", "asked for new ones"),
        ("forgets", "goes on elsewhere after step 1"),
        ("arrays", "tensors and plain values only"),
    ],
)
def test_a_faulty_sampler_that_looks_at_embeddings_is_caught(fault, says):
    check_sampler(lambda labels, seed: Watcher(labels, seed, ""), 6)
    with pytest.raises(AssertionError, match=says):
        check_sampler(lambda labels, seed: Watcher(labels, seed, fault), 6)


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
