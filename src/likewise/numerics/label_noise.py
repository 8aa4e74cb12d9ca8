"""How given labels come about: right ones, any other, and those of a similar class; shares fitted, so that labels can be doubted.

Evidence about classes comes as scores, out of folds or without the sample itself; how far they are to be believed (their
sharpness) is fitted with the shares, by the likelihood of the labels as given.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import one_hot, threshold

from likewise.numerics import lda
from likewise.numerics.lda import Discriminant

SHARPNESS_GRID = tuple(0.02 * 1.5**i for i in range(13))  # to 2.6
"""Of discriminants' scores, what is tried."""

CONFUSABLE = 2048
"""Classes up to which mix-ups of similar classes are told from any other; beyond, their table would not fit."""

MIN_TABLE_PROBABILITY = 1e-19
"""Probabilities up to this count for nothing in the table of similar classes: products of such are too small for the normal range
of float32, and some sixty times slower."""


@runtime_checkable
class Evidence(Protocol):
    """Scores of every class for any of N samples, fitted without the sample itself. `Discriminant` is one."""

    @property
    def classes(self) -> int: ...

    def blocks(self) -> Iterator[Int[Tensor, "b"]]: ...

    def scores(self, rows: Int[Tensor, "b"]) -> Float[Tensor, "b C"]: ...


@dataclass(frozen=True, eq=False)
class StoredScores:
    """Scores at hand, such as logarithms of probabilities."""

    table: Float[Tensor, "N C"]

    @property
    def classes(self) -> int:
        return self.table.shape[1]

    def blocks(self) -> Iterator[Int[Tensor, "b"]]:
        rows = torch.arange(len(self.table), device=self.table.device)
        yield from rows.split(max(1, lda.AT_ONCE // self.classes))

    def scores(self, rows: Int[Tensor, "b"]) -> Float[Tensor, "b C"]:
        return self.table[rows]


class Noise(NamedTuple):
    """How given labels come about: which share of them is any other class's, and which that of a similar one."""

    sharpness: float
    any: float
    similar: float
    table: Float[Tensor, "C C"] | None  # P(given | true), of those mixed up with a similar class

    def posterior(self, scores: Float[Tensor, "b C"], y: Int[Tensor, "b"]) -> Float[Tensor, "b C"]:
        """P(true class | features, given label)."""
        q = torch.softmax(self.sharpness * scores, 1)
        true = q.gather(1, y[:, None]) * (1 - self.any - self.similar)
        said = self.any / (q.shape[1] - 1)
        q = q * (said if self.table is None else said + self.similar * self.table.T.contiguous()[y])
        q = q.scatter(1, y[:, None], true)
        return q / q.sum(1, keepdim=True).clamp_min(1e-30)


def discriminate(
    x: Float[Tensor, "N F"], y: Int[Tensor, "N"], classes: int, *, rounds: int = 2, folds: int = 5, shrink: float = 0.4,
    seed: int = 0, by: Int[Tensor, "n"] | None = None, proven: bool = False,
) -> tuple[Discriminant, Noise]:  # fmt: skip
    """Linear discriminants and how labels come about, fitted in turn: every round goes by what the last one believed.

    In the first, no label speaks for itself. From the second on it does a little, through what others were taken for: this
    makes verdicts milder, most of all where features say little.

    Args:
        rounds: how often; the first believes the labels.
        folds: parts that the samples are cut into; each is judged by the others.
        shrink: how far the covariance is drawn towards a multiple of the unit matrix.
        seed: of the cut.
        by, proven: as in `fit_noise`.
    """
    x = (x - x.mean(0)) / x.std().clamp_min(1e-12)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
    each = Discriminant(x, (order % folds).to(x.device), folds, classes)
    noise = None
    for _ in range(rounds):
        for rows in each.blocks():
            q = one_hot(y[rows], classes).to(x) if noise is None else noise.posterior(each.scores(rows), y[rows])
            each.add(rows, q)
        each.fit(shrink)
        noise = fit_noise(each, y, by=by, proven=proven)
    assert noise is not None  # rounds is 1 or more
    return each, noise


def fit_noise(
    each: Evidence, y: Int[Tensor, "N"], sharpness: Sequence[float] = SHARPNESS_GRID, similar: bool = True,
    by: Int[Tensor, "n"] | None = None, proven: bool = False,
) -> Noise:  # fmt: skip
    """The sharpness and shares under which the given labels are most likely.

    Args:
        sharpness: what is tried.
        similar: classes may be mixed up with similar ones; of classes with few samples, that cannot be told.
        by: rows to fit by, whose scores must fit in memory; all of them by default, a block at a time.
        proven: believe no score (sharpness 0, nobody wrong) unless labels are likelier by them than by chance, and by more than
            fitting three numbers gives for nothing (half of log n each): else "features say nothing" looks like "all labels
            are wrong". And without mix-ups of similar classes where they would explain more than half of all labels away.
    """
    if by is not None:
        rows = by.split(max(1, lda.AT_ONCE // each.classes))
        each, y = StoredScores(torch.cat([each.scores(some) for some in rows])), y[by]
    similar = similar and each.classes <= CONFUSABLE

    def likeliest(mixed: bool) -> tuple[float, Noise]:
        found = (fit_at_sharpness(each, y, t, mixed, MIN_TABLE_PROBABILITY if proven else 0.0) for t in sharpness)
        return max(found, key=lambda pair: pair[0])

    if not proven:
        return likeliest(similar)[1]
    likelihood, plain = likeliest(mixed=False)
    chance = -len(y) * math.log(each.classes)
    if likelihood <= chance + 1.5 * math.log(len(y)) or plain.any >= 1 - 1 / each.classes:
        return Noise(0.0, 0.0, 0.0, None)
    noise = likeliest(mixed=True)[1] if similar else plain
    return noise if noise.any + noise.similar <= 0.5 else plain


def fit_at_sharpness(
    each: Evidence, y: Int[Tensor, "N"], sharpness: float, mixed: bool, min_probability: float = 0.0
) -> tuple[float, Noise]:
    """The likelihood (its logarithm) of the given labels at this sharpness, and the shares that make it largest."""
    table, said, own, similar = None, None, [], []
    if mixed:
        sums: Tensor | Any = 0
        for rows in each.blocks():
            p = threshold(torch.softmax(sharpness * each.scores(rows), 1), min_probability, 0)
            sums = sums + p.T @ p
        table = sums.fill_diagonal_(0) / sums.sum(1, keepdim=True).clamp_min(1e-30)
        said = table.T.contiguous()  # a row for each given label
    for rows in each.blocks():
        p = torch.softmax(sharpness * each.scores(rows), 1)
        own.append(p.gather(1, y[rows, None]).squeeze(1))
        if said is not None:
            similar.append((p * said[y[rows]]).sum(1))
    own = torch.cat(own)
    ways = [own, (1 - own) / (each.classes - 1), *([torch.cat(similar)] if similar else [])]
    shares, likelihood = fit_shares(torch.stack(ways))
    return likelihood, Noise(sharpness, shares[1], shares[2] if similar else 0.0, table)


def fit_shares(ways: Float[Tensor, "W N"], steps: int = 100) -> tuple[list[float], float]:
    """Shares of a mixture that make what was seen most likely, by expectation-maximisation, and that likelihood's logarithm."""
    shares = ways.new_full((len(ways),), 0.2 / (len(ways) - 1))
    shares[0] = 0.8
    for _ in range(steps):
        part = shares[:, None] * ways
        shares = (part / part.sum(0).clamp_min(1e-30)).mean(1)
    return shares.tolist(), float((shares[:, None] * ways).sum(0).clamp_min(1e-30).log().sum())
