"""Model of label noise: given labels are right, exchanged with any other class, or exchanged with a similar class.

The evidence about classes is a table of scores, out of fold or computed without the sample itself. The sharpness of the
scores and
the shares of the three kinds of labels are fitted by the likelihood of the given labels.
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

SHARPNESS_GRID = tuple(0.02 * 1.5**i for i in range(13))  # up to 2.6
"""Factors of discriminant scores that are tried; the one with the highest likelihood is used."""

MAX_SIMILARITY_CLASSES = 2048
"""Maximum number of classes for which exchanges of similar classes are modelled; the table of more would not fit in memory."""

MIN_TABLE_PROBABILITY = 1e-19
"""Probabilities up to this count as 0 in the table of similar classes.

Products of such values are below the normal range of float32, and about sixty times slower."""


@runtime_checkable
class Evidence(Protocol):
    """Scores of every class for any of N samples, fitted without the sample itself. `Discriminant` is one."""

    @property
    def classes(self) -> int: ...

    def blocks(self) -> Iterator[Int[Tensor, "b"]]: ...

    def scores(self, rows: Int[Tensor, "b"]) -> Float[Tensor, "b C"]: ...


@dataclass(frozen=True, eq=False)
class StoredScores:
    """Scores that are computed already, such as log probabilities."""

    table: Float[Tensor, "N C"]

    @property
    def classes(self) -> int:
        return self.table.shape[1]

    def blocks(self) -> Iterator[Int[Tensor, "b"]]:
        rows = torch.arange(len(self.table), device=self.table.device)
        yield from rows.split(max(1, lda.SCORE_BLOCK_SIZE // self.classes))

    def scores(self, rows: Int[Tensor, "b"]) -> Float[Tensor, "b C"]:
        return self.table[rows]


class Noise(NamedTuple):
    """Fitted label noise: share of labels exchanged with any class, and share exchanged with a similar class."""

    sharpness: float
    any: float
    similar: float
    table: Float[Tensor, "C C"] | None  # P(given | true) of labels exchanged with a similar class

    def posterior(self, scores: Float[Tensor, "b C"], y: Int[Tensor, "b"]) -> Float[Tensor, "b C"]:
        """Return P(true class | features, given label)."""
        q = torch.softmax(self.sharpness * scores, 1)
        true = q.gather(1, y[:, None]) * (1 - self.any - self.similar)
        uniform = self.any / (q.shape[1] - 1)
        q = q * (uniform if self.table is None else uniform + self.similar * self.table.T.contiguous()[y])
        q = q.scatter(1, y[:, None], true)
        return q / q.sum(1, keepdim=True).clamp_min(1e-30)


def discriminate(
    x: Float[Tensor, "N F"], y: Int[Tensor, "N"], classes: int, *, rounds: int = 2, folds: int = 5, shrink: float = 0.4,
    seed: int = 0, by: Int[Tensor, "n"] | None = None, proven: bool = False,
) -> tuple[Discriminant, Noise]:  # fmt: skip
    """Return linear discriminants and the noise model, fitted in turn: each round uses the posteriors of the last one.

    In the first round, a sample's label has no effect on its own scores. From the second round on it has a small effect,
    through the
    posteriors of other samples: this makes the posteriors less extreme, mostly where features carry little information.

    Args:
        rounds: number of rounds; the first one uses the given labels.
        folds: number of folds; each fold is scored by discriminants fitted on the others.
        shrink: weight of a multiple of the unit matrix in the covariance, 0 to 1.
        seed: seed of the folds.
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
    """Return the sharpness and shares under which the given labels are most likely.

    Args:
        sharpness: values to try.
        similar: model exchanges with similar classes; not possible for classes with few samples.
        by: rows to fit on, whose scores must fit in memory; None: all rows, block by block.
        proven: return sharpness 0 and no noise unless the scores make the labels more likely than chance, by more than the
        gain of
            fitting three free parameters (half of log n each): otherwise uninformative features look like wrong labels.
            Also ignore
            exchanges with similar classes if they would explain more than half of all labels.
    """
    if by is not None:
        rows = by.split(max(1, lda.SCORE_BLOCK_SIZE // each.classes))
        each, y = StoredScores(torch.cat([each.scores(some) for some in rows])), y[by]
    similar = similar and each.classes <= MAX_SIMILARITY_CLASSES

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
    """Return the log likelihood of the given labels at this sharpness, and the shares that maximise it."""
    table, given, own, similar = None, None, [], []
    if mixed:
        sums: Tensor | Any = 0
        for rows in each.blocks():
            p = threshold(torch.softmax(sharpness * each.scores(rows), 1), min_probability, 0)
            sums = sums + p.T @ p
        table = sums.fill_diagonal_(0) / sums.sum(1, keepdim=True).clamp_min(1e-30)
        given = table.T.contiguous()  # one row per given label
    for rows in each.blocks():
        p = torch.softmax(sharpness * each.scores(rows), 1)
        own.append(p.gather(1, y[rows, None]).squeeze(1))
        if given is not None:
            similar.append((p * given[y[rows]]).sum(1))
    own = torch.cat(own)
    ways = [own, (1 - own) / (each.classes - 1), *([torch.cat(similar)] if similar else [])]
    shares, likelihood = fit_shares(torch.stack(ways))
    return likelihood, Noise(sharpness, shares[1], shares[2] if similar else 0.0, table)


def fit_shares(ways: Float[Tensor, "W N"], steps: int = 100) -> tuple[list[float], float]:
    """Return the shares of a mixture that maximise the likelihood, by expectation-maximisation, and the log likelihood."""
    shares = ways.new_full((len(ways),), 0.2 / (len(ways) - 1))
    shares[0] = 0.8
    for _ in range(steps):
        joint = shares[:, None] * ways
        shares = (joint / joint.sum(0).clamp_min(1e-30)).mean(1)
    return shares.tolist(), float((shares[:, None] * ways).sum(0).clamp_min(1e-30).log().sum())
