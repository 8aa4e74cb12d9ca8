"""Scores under the true labels of samples, when some given labels are wrong: draw labels from their posterior, score the draws.

Draws are independent given the features, and the fitted noise is uncertain, so the mean over draws is biased (usually low: near
neighbours agree more often than independent draws). The bias is measured on labels that are known: the most probable labels are
taken as true, the fitted noise is injected into them, and they are imputed again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from likewise.core.similarity import full_precision_matmul
from likewise.labels.label_evidence import discriminate
from likewise.labels.label_noise import (
    MAX_FITTED_SCORES,
    MAX_SIMILARITY_CLASSES,
    Evidence,
    Noise,
    row_blocks,
    similar_classes,
)

LABEL_DRAWS_COUNT = 20
"""Number of draws of all labels."""

REPLICATES_COUNT = 3
"""Number of times that the bias is measured on labels with injected noise."""

BIAS_ERROR_SHARE = 0.4
"""Standard error of the measured bias, as a share of it: the most probable labels are cleaner than the true ones."""

OUTLIER_ERROR_SHARE = 0.008
"""Standard error from unusual samples with right labels, which look like wrong labels, as a share of the score."""

CORRECTION_ERROR_SHARE = 0.04
"""Smallest standard error of a correction, as a share of it."""

PROBE_NOISE_SHARE = 0.2
"""Share of labels that a probe exchanges with a similar class, to see whether such noise is noticed in these data."""

MIN_RECOVERED_SHARE = 0.5
"""Smallest share of a probe's effect on a score that must be recovered for the score to be corrected."""


class Imputation(NamedTuple):
    """M scores under the true labels, and their parts. `recovered`: share of the effect of a probe that was corrected."""

    plain: Float[np.ndarray, "M"]  # scores of the given labels
    mean: Float[np.ndarray, "M"]  # over draws
    spread: Float[np.ndarray, "M"]  # variance over draws or over replicates, the larger
    bias: Float[np.ndarray, "M"]
    recovered: Float[np.ndarray, "M"]
    wrong: float  # estimated share of wrong labels

    @property
    def value(self) -> Float[np.ndarray, "M"]:
        return self.mean - self.bias

    @property
    def error(self) -> Float[np.ndarray, "M"]:
        """Standard errors for uncertainty about the labels; infinite where a probe was not noticed."""
        correction = np.maximum(CORRECTION_ERROR_SHARE, np.abs(1 - self.recovered)) * (self.value - self.plain)
        parts = (BIAS_ERROR_SHARE * self.bias, OUTLIER_ERROR_SHARE * self.value, correction)
        error = np.sqrt(self.spread + sum(part**2 for part in parts))
        return np.where(self.recovered >= MIN_RECOVERED_SHARE, error, np.inf)


@torch.no_grad()
def impute_scores(
    x: Float[Tensor, "N F"], y: Int[Tensor, "N"], classes: int, score: Callable[[Tensor], np.ndarray], *,
    group: Int[Tensor, "N"] | None = None, draws: int = LABEL_DRAWS_COUNT, replicates: int = REPLICATES_COUNT, seed: int = 0,
) -> Imputation | None:  # fmt: skip
    """Return the scores under the true labels; None if the features explain the labels no better than class frequencies do.

    Formula: value = mean over draws - bias; bias = mean over replicates of (mean over draws - score of the labels before noise
        was injected); error^2 = max(variance over draws, variance of the bias over replicates) + (share x bias)^2
        + (share x value)^2 + (share x (value - plain))^2, with the shares above. The last one is at least |1 - recovered|, from a
        probe: noise between similar classes may look like classes that overlap, and then it stays unnoticed.

    Args:
        x: features, or embeddings.
        y: given labels, 0 to classes - 1.
        score: returns M scores of labels.
        group: samples with the same number, 0 or more, belong together; -1: none.
        draws: number of draws; replicates use half as many.
        replicates: number of copies of the labels with injected noise, 2 or more.
    """
    random = torch.Generator().manual_seed(seed)
    with full_precision_matmul(x):
        each, noise = discriminate(x, y, classes, seed=seed, group=group)
        if not noise.informative:
            return None
        drawn, top = draw_labels(each, noise, y, draws, random)
        value, known = np.stack([score(labels) for labels in drawn]), score(top)

        def impute_again(given: Tensor, number: int) -> np.ndarray:
            how = {"setting": each.setting, "cluster": each.cluster, "seed": seed + 1 + number}
            again = draw_labels(*discriminate(x, given, classes, **how), given, max(1, draws // 2), random)[0]
            return np.mean([score(labels) for labels in again], 0)

        gap = [impute_again(inject(top, noise, random), number) - known for number in range(replicates)]
        recovered = np.zeros_like(known)
        if classes <= MAX_SIMILARITY_CLASSES:
            probe = inject(top, as_probe(each, noise, len(y), random), random)
            effect = known - score(probe)
            recovered = 1 - (known - impute_again(probe, replicates)) / np.where(effect == 0, np.nan, effect)
    spread = np.maximum(value.var(0, ddof=1) * (1 + 1 / draws), np.var(gap, 0, ddof=1) * (1 + 1 / replicates))
    wrong = float((drawn != y.cpu()).double().mean())
    return Imputation(score(y), value.mean(0), spread, np.mean(gap, 0), np.nan_to_num(recovered), wrong)


def as_probe(each: Evidence, noise: Noise, count: int, random: torch.Generator) -> Noise:
    """Return noise of `PROBE_NOISE_SHARE` between the classes that the features of some of the samples confuse most."""
    rows = torch.randperm(count, generator=random)[: max(2 * each.classes, MAX_FITTED_SCORES // each.classes)]
    table = similar_classes(noise.probabilities(each.scores(rows.to(noise.prior.device)).double()))
    return noise._replace(any=0.0, similar=PROBE_NOISE_SHARE, table=table)


def draw_labels(
    each: Evidence, noise: Noise, y: Int[Tensor, "N"], draws: int, random: torch.Generator
) -> tuple[Int[Tensor, "draws N"], Int[Tensor, "N"]]:
    """Return labels that are drawn from the posterior of every sample, and the most probable labels, on the CPU."""
    drawn, top = torch.empty(draws, len(y), dtype=torch.int64), torch.empty(len(y), dtype=torch.int64)
    for rows in each.blocks():
        q = noise.posterior(each.scores(rows).double(), y[rows]).cpu()
        drawn[:, rows.cpu()] = torch.multinomial(q, draws, replacement=True, generator=random).T
        top[rows.cpu()] = q.argmax(1)
    return drawn, top


def inject(true: Int[Tensor, "N"], noise: Noise, random: torch.Generator) -> Int[Tensor, "N"]:
    """Return labels with the fitted noise, given true labels."""
    classes, given = len(noise.prior), true.clone()
    kind = torch.rand(len(true), generator=random)
    other = (true + torch.randint(1, classes, true.shape, generator=random)) % classes
    given = torch.where(kind < noise.any, other, given)
    if noise.table is not None:
        table = noise.table.cpu()
        able = table.sum(1) > 0  # a class without similar ones keeps its labels
        swapped = ((kind >= noise.any) & (kind < noise.any + noise.similar) & able[true]).nonzero()[:, 0]
        for some in row_blocks(len(swapped), classes, true.device):
            rows = swapped[some]
            given[rows] = torch.multinomial(table[true[rows]], 1, generator=random)[:, 0]
    return given
