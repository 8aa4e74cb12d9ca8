"""Many linear heads trained at once on the same features, each with its own labels and seed, and their retrieval quality."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

SAMPLES_PER_CLASS, CLASSES_PER_BATCH = 4, 28
"""Samples of a class that come together in a batch, and the number of such groups: the default batch of a run."""

LOSS_ALPHA, LOSS_BETA, LOSS_BASE, LOSS_MARGIN = 2.0, 40.0, 0.5, 0.1
"""Constants of the Multi-Similarity loss and of its miner, as in `losses.MultiSimilarity`."""

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


@torch.no_grad()
def score_heads(x: Float[Tensor, "T F"], y: Int[Tensor, "H T"], w: Float[Tensor, "H F D"]) -> Quality:
    """Return R@1 and MAP@R of every head on some samples, each a query among the others; -1: neither query nor result.

    Formula: MAP@R of a query = 1/R sum_{i <= R} [result i is relevant] precision@i, R the number of its relevant samples.
    A head whose samples have no relevant pair has NaN.
    """
    r1, mapr = [], []
    for labels, one in zip(y, w):
        known = (labels >= 0).nonzero()[:, 0]
        z, label = F.normalize(x[known] @ one, dim=1), labels[known].unique(return_inverse=True)[1]
        relevant = torch.bincount(label)[label] - 1
        most = int(relevant.max()) if len(known) else 0
        if most < 1:
            r1.append(x.new_tensor(torch.nan))
            mapr.append(x.new_tensor(torch.nan))
            continue
        near = (z @ z.T).fill_diagonal_(-torch.inf).topk(most, 1).indices
        place = torch.arange(1, most + 1)
        hit = (label[near] == label[:, None]) & (place <= relevant[:, None])
        precision = (hit.cumsum(1) / place * hit).sum(1) / relevant.clamp_min(1)
        asked = relevant > 0
        r1.append((label[near[:, 0]] == label)[asked].to(x).mean())
        mapr.append(precision[asked].to(x).mean())
    return Quality(torch.stack(r1), torch.stack(mapr))
