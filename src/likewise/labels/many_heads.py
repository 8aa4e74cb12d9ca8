"""Many linear heads trained at once on the same features, each with its own labels and seed, and their retrieval quality."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from likewise.labels.neighbour_search import SIMILARITY_BLOCK_SIZE

SAMPLES_PER_CLASS, CLASSES_PER_BATCH = 4, 28
"""Samples of a class that come together in a batch, and the number of such groups: the default batch of a run."""

LOSS_ALPHA, LOSS_BETA, LOSS_BASE, LOSS_MARGIN = 2.0, 40.0, 0.5, 0.1
"""Constants of the Multi-Similarity loss and of its miner, as in `losses.MultiSimilarity`."""

MAX_SCORED_QUERIES = 20_000
"""Maximum number of queries that a head is scored on; each is ranked against all samples."""

HEADS_PER_BLOCK = 32
"""Number of heads that are trained at once."""


class HeadSettings(NamedTuple):
    """Budget of a head: size of the embedding, number of epochs, learning rate of Adam."""

    dim: int = 64
    epochs: int = 12
    lr: float = 1e-3


class Quality(NamedTuple):
    """R@1 and MAP@R of every head, shares from 0 to 1."""

    r1: Float[Tensor, "H"]
    mapr: Float[Tensor, "H"]


def train_heads(
    x: Float[Tensor, "N F"], y: Int[Tensor, "H N"], seed: Int[Tensor, "H"], settings: HeadSettings = HeadSettings()
) -> Float[Tensor, "H F D"]:
    """Return the weights of H linear heads, trained with the Multi-Similarity loss, each from its own labels and seed.

    Heads with the same seed start with the same weights. A head does not depend on the others.

    Args:
        y: labels of the N samples for every head; -1: the sample is left out.
    """
    groups = min(CLASSES_PER_BATCH, len(y[y >= 0].unique()))
    blocks = zip(y.split(HEADS_PER_BLOCK), seed.split(HEADS_PER_BLOCK))
    return torch.cat([_train_block(x, labels, seeds, groups, settings) for labels, seeds in blocks])


def _train_block(x: Tensor, y: Tensor, seed: Tensor, groups: int, settings: HeadSettings) -> Tensor:
    random = [torch.Generator().manual_seed(int(one)) for one in seed]
    bound = x.shape[1] ** -0.5
    start = [(torch.rand(x.shape[1], settings.dim, generator=g) * 2 - 1) * bound for g in random]
    w = torch.stack(start).to(x)
    optimiser = torch.optim.Adam([w], lr=settings.lr)
    for _ in range(settings.epochs):
        batches = torch.stack([draw_batches(labels, groups, g) for labels, g in zip(y, random)])
        for rows in batches.unbind(1):
            w.grad = head_slope(x[rows], y.gather(1, rows), w)
            optimiser.step()
    return w


def draw_batches(y: Int[Tensor, "N"], groups: int, random: torch.Generator) -> Int[Tensor, "S B"]:
    """Return the rows of the batches of one epoch: a few samples of each of some classes, all classes equally often.

    The rule of `samplers.SamplesPerClass`: classes, and samples of a class, are drawn once before any is drawn again. The number
    of batches depends on N alone, so that heads with other labels can be trained beside. Samples with the label -1, and classes
    of one sample, are left out unless there are no others.

    Args:
        groups: number of classes in a batch.
    """
    order = (y + torch.rand(len(y), generator=random, dtype=torch.float64)).argsort()
    order = order[int((y < 0).sum()) :]
    size = y[order].unique_consecutive(return_counts=True)[1]
    first = size.cumsum(0) - size
    usable = (size > 1).nonzero()[:, 0] if bool((size > 1).any()) else torch.arange(len(size))
    slots = max(1, len(y) // SAMPLES_PER_CLASS // groups) * groups
    rounds = -(-slots // len(usable))
    chosen = torch.cat([usable[torch.randperm(len(usable), generator=random)] for _ in range(rounds)])[:slots]
    turn = torch.arange(slots) // len(usable)  # how often the class was drawn before
    place = turn[:, None] * SAMPLES_PER_CLASS + torch.arange(SAMPLES_PER_CLASS)
    rows = order[first[chosen, None] + place % size[chosen, None]]
    return rows.reshape(-1, groups * SAMPLES_PER_CLASS)


def head_slope(x: Float[Tensor, "H B F"], y: Int[Tensor, "H B"], w: Float[Tensor, "H F D"]) -> Float[Tensor, "H F D"]:
    """Return the gradient of the Multi-Similarity loss of one batch by the weights of every head.

    It is written out, because autograd takes twice as long for heads of this size.
    """
    e = x @ w
    norm = e.norm(dim=2, keepdim=True).clamp_min(1e-12)
    z = e / norm
    slope = pair_slope(z @ z.transpose(1, 2), y)
    by_z = (slope + slope.transpose(1, 2)) @ z
    by_e = (by_z - (by_z * z).sum(2, keepdim=True) * z) / norm
    return x.transpose(1, 2) @ by_e


def pair_slope(sim: Float[Tensor, "H B B"], y: Int[Tensor, "H B"]) -> Float[Tensor, "H B B"]:
    """Return the gradient of the Multi-Similarity loss, with its mining of hard pairs, by the similarities.

    Formula: with a pull e^(-a (s_ip - m)) / (1 + sum of its row) of the positives, and a push e^(b (s_in - m)) / (1 + sum of its
        row) of the negatives, the gradient is (push - pull) / B
    """
    same = y[:, :, None] == y[:, None, :]
    pos = same & ~torch.eye(y.shape[1], dtype=torch.bool)
    easiest = torch.where(pos, sim, torch.inf).amin(2, keepdim=True) - LOSS_MARGIN
    hardest = torch.where(same, -torch.inf, sim).amax(2, keepdim=True) + LOSS_MARGIN
    above = sim - LOSS_BASE
    pull = (-LOSS_ALPHA * above).exp_() * (pos & (sim < hardest))
    push = (LOSS_BETA * above).exp_() * (~same & (sim > easiest))
    return (push / (1 + push.sum(2, keepdim=True)) - pull / (1 + pull.sum(2, keepdim=True))) / y.shape[1]


class QueryScores(NamedTuple):
    """Queries of one head with their R@1 and MAP@R, and the class of the nearest result of another class (-1: none)."""

    place: Int[Tensor, "Q"]  # of the query among the samples
    r1: Float[Tensor, "Q"]
    mapr: Float[Tensor, "Q"]
    rival: Int[Tensor, "Q"]


@torch.no_grad()
def score_queries(x: Float[Tensor, "T F"], y: Int[Tensor, "T"], w: Float[Tensor, "F D"]) -> QueryScores:
    """Return the scores of one head on some samples, each a query among the others; -1: neither query nor result.

    Formula: MAP@R of a query = 1/R sum_{i <= R} [result i is relevant] precision@i, R the number of its relevant samples.
    Samples without a relevant one are no queries. Of more than `MAX_SCORED_QUERIES`, evenly spaced ones are scored.
    """
    known = (y >= 0).nonzero()[:, 0]
    z, (names, label) = F.normalize(x[known] @ w, dim=1), y[known].unique(return_inverse=True)
    relevant = torch.bincount(label)[label] - 1
    most = int(relevant.max()) if len(known) else 0
    if most < 1:
        return QueryScores(known[:0], x.new_zeros(0), x.new_zeros(0), known[:0])
    asked, place, found = (relevant > 0).nonzero()[:, 0], torch.arange(1, most + 1), []
    asked = asked[torch.linspace(0, len(asked) - 1, min(len(asked), MAX_SCORED_QUERIES)).round().long()]
    for rows in asked.split(max(1, SIMILARITY_BLOCK_SIZE // len(z))):
        sim = z[rows] @ z.T
        sim[torch.arange(len(rows)), rows] = -torch.inf
        near = sim.topk(most, 1).indices
        hit = (label[near] == label[rows, None]) & (place <= relevant[rows, None])
        precision = (hit.cumsum(1) / place * hit).sum(1) / relevant[rows]
        other = sim.masked_fill_(label == label[rows, None], -torch.inf).max(1)
        rival = torch.where(other.values > -torch.inf, names[label[other.indices]], -1)
        found.append((hit[:, 0].to(x), precision.to(x), rival))
    return QueryScores(known[asked], *(torch.cat(column) for column in zip(*found, strict=True)))


def score_heads(x: Float[Tensor, "T F"], y: Int[Tensor, "H T"], w: Float[Tensor, "H F D"]) -> Quality:
    """Return the mean R@1 and MAP@R of every head; see `score_queries`. A head without queries has NaN."""
    found = [score_queries(x, labels, one) for labels, one in zip(y, w)]
    return Quality(*(torch.stack([getattr(one, name).mean() for one in found]) for name in ("r1", "mapr")))
