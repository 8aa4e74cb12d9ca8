"""Worlds of benchmarks/coverage.py: values of the queries of classes that are drawn anew, and embeddings that are ranked."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from scipy.special import expit

TRUTH_DRAWS = 2_000_000
"""Number of classes from which a true mean is computed, where it has no formula."""

BLOCK_PAIRS = 4_000_000
"""Maximum number of similarities at a time."""

SIZES: dict[str, Callable] = {
    "equal": lambda rng, shape: np.full(shape, 12),
    "uneven": lambda rng, shape: 3 + rng.exponential(15, shape).astype(int),
    "long tail": lambda rng, shape: np.minimum(2 + (2 * rng.pareto(1.2, shape)).astype(int), 300),
}
"""Numbers of queries of classes. Mean over standard deviation of "uneven": 1.2; most of "long tail" has 2 to 5 queries."""


def bernoulli_world(level: Callable) -> Callable:
    """Return a world of queries that are right or wrong, from a function that draws the share of right ones of each class."""

    def world(rng: np.random.Generator, runs: int, classes: int, kind: str):
        count = SIZES[kind](rng, (runs, classes))
        sizes = SIZES[kind](rng, TRUTH_DRAWS)
        truth = float((sizes * level(rng, sizes)).sum() / sizes.sum())
        return rng.binomial(count, level(rng, count)).astype(float), count.astype(float), truth

    return world


def graded_world(rng: np.random.Generator, runs: int, classes: int, kind: str):
    """Values between 0 and 1, as MAP@R: classes between 0.05 and 0.55, whose queries vary between 0 and twice their mean."""
    count = SIZES[kind](rng, (runs, classes))
    mean = 0.05 + 0.5 * rng.random(count.shape)
    each = 2 * np.repeat(mean.ravel(), count.ravel())
    each = np.minimum(each, 1) * rng.random(len(each)) + np.maximum(each - 1, 0) / 2
    total = np.add.reduceat(each, np.r_[0, np.cumsum(count.ravel())[:-1]]).reshape(count.shape)
    return total, count.astype(float), 0.3


def size_world(rng: np.random.Generator, runs: int, classes: int, kind: str):
    """Large classes are harder; the true mean is that of other classes of the same sizes."""
    count = SIZES[kind](rng, (runs, classes))
    node, weight = np.polynomial.hermite_e.hermegauss(32)
    expected = expit(harder(count)[..., None] + node) @ weight / weight.sum()
    total = rng.binomial(count, expit(harder(count) + rng.standard_normal(count.shape)))
    return total.astype(float), count.astype(float), (count * expected).sum(1) / count.sum(1)


def harder(size: np.ndarray) -> np.ndarray:
    return 1.5 - 0.5 * np.log(size / 10)


def hard_quarter(rng: np.random.Generator, size: np.ndarray) -> np.ndarray:
    return np.where(rng.random(size.shape) < 0.25, 0.44, 0.92) * rng.uniform(0.92, 1.08, size.shape)


def logit_normal(middle: float, spread: float) -> Callable:
    return lambda rng, size: expit(middle + spread * rng.standard_normal(size.shape))


SHARE_WORLDS: dict[str, Callable] = {
    "R@1 0.50": bernoulli_world(logit_normal(0.0, 1.5)),
    "R@1 0.69": bernoulli_world(logit_normal(1.0, 1.2)),
    "R@1 0.80, a quarter of the classes hard": bernoulli_world(hard_quarter),
    "R@1 0.88": bernoulli_world(logit_normal(2.5, 1.2)),
    "R@1 0.95": bernoulli_world(logit_normal(3.6, 1.2)),
    "R@1, large classes harder": size_world,
    "the same, for other sizes": bernoulli_world(
        lambda rng, size: expit(harder(size) + rng.standard_normal(size.shape))
    ),
    "MAP@R 0.30": graded_world,
}
"""Name -> world: (rng, simulations, classes, kind of sizes) -> sums and counts of each class, and the true mean."""


def pair_world(shift: float, spread: float, changed: float = 1.0) -> Callable:
    """Return a world of differences between two networks: half of the queries are as hard for both, half are independent.

    Args:
        shift: how much better B is on average, in log-odds of each class that changed.
        spread: standard deviation of either network in log-odds of a class.
        changed: share of the classes that are not the same for both.
    """

    def sides(rng: np.random.Generator, shape):
        middle = 1.0 + rng.standard_normal(shape)
        a, b = (spread * rng.standard_normal(shape) for _ in "ab")
        b = np.where(rng.random(shape) < changed, b + shift, a)
        return expit(middle + a), expit(middle + b)

    def world(rng: np.random.Generator, runs: int, classes: int, kind: str):
        count = SIZES[kind](rng, (runs, classes))
        a, b = sides(rng, count.shape)
        same = rng.binomial(count, 0.5 if changed == 1 else 1.0)
        other = count - same
        moved = np.sign(b - a) * rng.binomial(same, np.abs(b - a)) + rng.binomial(other, b) - rng.binomial(other, a)
        one, two = sides(rng, TRUTH_DRAWS)
        return moved.astype(float), count.astype(float), float((two - one).mean()) if shift else 0.0

    return world


PAIR_WORLDS: dict[str, Callable] = {
    "two equal networks": pair_world(0.0, 0.4),
    "two equal networks, half of the classes unchanged": pair_world(0.0, 0.8, 0.5),
    "B better": pair_world(0.4, 0.4),
    "B better in half of the classes": pair_world(1.0, 0.3, 0.5),
}
"""Name -> world, as `SHARE_WORLDS`, of differences."""

RANKING_WORLDS: dict[str, dict] = {
    "classes in 12 groups": {"dim": 32, "groups": 12, "noise": 1.0, "tails": False},
    "long tails": {"dim": 12, "groups": 0, "noise": 0.5, "tails": True},
}
"""Name -> shape of embeddings."""


class Ranked(NamedTuple):
    """Values of R@1 and MAP@R of two networks, and the class of the nearest wrong result of each, in B simulations."""

    value: np.ndarray  # networks, simulations, metrics, queries
    rival: np.ndarray  # networks, simulations, queries
    label: np.ndarray  # of the queries, the same in all of these simulations


def ranking_world(rng: np.random.Generator, classes: int, kind: str, dim: int, groups: int, noise: float, tails: bool):
    """Return a function that draws embeddings of two equal networks, and labels, for at most the given number of simulations."""
    generator = torch.Generator().manual_seed(int(rng.integers(1 << 31)))

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator)

    among = normal(groups, dim)  # the groups stay the same, the classes do not

    def draw(most: int) -> tuple[torch.Tensor, np.ndarray]:
        size = np.full(classes, 6) if kind == "equal" else np.minimum(3 + rng.exponential(5, classes).astype(int), 30)
        label = np.repeat(np.arange(classes), size)
        runs = max(1, min(most, BLOCK_PAIRS // len(label) ** 2, 100))
        centre = normal(runs, classes, dim)
        if groups:
            centre = 0.7 * centre + among[torch.as_tensor(rng.integers(groups, size=(runs, classes)))]
        x = noise * torch.exp(0.2 * normal(runs, classes, 1)) * torch.ones(1, 1, dim)
        x = x[:, label] * normal(runs, len(label), dim)
        if tails:
            x = x / torch.as_tensor(rng.chisquare(5, (runs, len(label), 1)) / 5).float().sqrt()
        shared = centre[:, label] + x
        sides = [
            shared + 0.3 * normal(runs, classes, dim)[:, label] + 0.4 * noise * normal(*shared.shape) for _ in "ab"
        ]
        return torch.stack(sides), label

    return draw


def feature_world(rng: np.random.Generator, x: np.ndarray, y: np.ndarray, classes: int, images: int = 8):
    """Return a function that draws classes and images of real features, which two networks have half of the dimensions of.

    The dimensions are 128 principal directions; the networks are the same in all simulations.
    """
    z = torch.as_tensor(x, dtype=torch.float32)
    z = torch.nn.functional.normalize(z - z.mean(0), dim=1)
    z = z @ torch.pca_lowrank(z, 128)[2]
    rows = [np.flatnonzero(y == name) for name in np.unique(y)]

    def draw(most: int) -> tuple[torch.Tensor, np.ndarray]:
        label = np.repeat(np.arange(classes), images)
        runs = max(1, min(most, BLOCK_PAIRS // len(label) ** 2, 50))
        chosen = [
            [rng.choice(rows[c], images, replace=False) for c in rng.choice(len(rows), classes, False)]
            for _ in range(runs)
        ]
        some = z[np.array(chosen).reshape(runs, -1)]
        return torch.stack([some[..., 0::2], some[..., 1::2]]), label

    return draw


def ranked_block(z: torch.Tensor, label: np.ndarray) -> Ranked:
    """Return R@1, MAP@R and the nearest wrong class of every query, with all others as its gallery."""
    y = torch.as_tensor(label)
    relevant = torch.bincount(y)[y] - 1
    same, place = y[:, None] == y, torch.arange(1, int(relevant.max()) + 1)
    inside = place <= relevant[:, None]
    values, rivals = [], []
    for side in torch.nn.functional.normalize(z, dim=-1):
        sim = side @ side.mT
        sim.diagonal(dim1=1, dim2=2).fill_(-torch.inf)
        hit = (y[sim.topk(len(place), -1).indices] == y[:, None]) & inside
        precision = hit.cumsum(-1) / place
        values.append(torch.stack([hit[..., 0].float(), (precision * hit).sum(-1) / relevant], 1))
        rivals.append(y[sim.masked_fill_(same, -torch.inf).argmax(-1)])
    return Ranked(torch.stack(values).double().numpy(), torch.stack(rivals).numpy(), label)
