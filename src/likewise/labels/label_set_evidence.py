"""Evidence about every single label of samples with several labels: has the sample this label, or has it not?

All labels are treated at once, each as a problem of two classes. No score of a label depends on whether the sample was given it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from likewise.labels.copy_clusters import copy_clusters, nearest_neighbours
from likewise.labels.label_evidence import (
    ADDED_VOTES_SHARE,
    SHRINK_GRID,
    VOTING_NEIGHBOURS_COUNT,
    Votes,
    draw_folds,
    neighbour_votes,
    principal_components,
)
from likewise.labels.label_noise import row_blocks

MAX_RELATED_LABELS = 2048
"""Maximum number of labels whose dependence on each other is modelled; the matrix of more would not fit in memory."""

RELATED_SHRINK_SHARE = 0.5
"""Weight of the variances alone in the covariance of labels: one label that implies another is weak evidence, as it may be wrong.

Chosen with `MAX_RELATED_ODDS` on planted errors in CUB200 with its tree: at 0.1 without a limit, the features lost all weight,
and 17 % of the superfluous labels were found in place of 84 %."""

MAX_RELATED_ODDS = 2.0
"""Largest log odds by the other labels, in units of the logarithm of the number of samples: n samples do not make surer."""

MIN_WITHIN_SHARE = 1e-3
"""Smallest variance within the two classes of a label along their difference, as a share of the whole variance."""


class LinearOdds(NamedTuple):
    """Log odds of every label as a linear function: log p(v | has the label) - log p(v | has it not)."""

    weight: Float[Tensor, "F L"]
    offset: Float[Tensor, "L"]

    def scores(self, values: Float[Tensor, "b F"]) -> Float[Tensor, "b L"]:
        return torch.addmm(self.offset, values, self.weight)


class Sums(NamedTuple):
    """Sums over some samples: their number, features, products of features, labels, and features by label."""

    n: Float[Tensor, ""]
    x: Float[Tensor, "F"]
    square: Float[Tensor, "F F"]
    count: Float[Tensor, "L"]
    total: Float[Tensor, "L F"]


def but(parts: list[Tensor], k: int) -> Tensor:
    """Return the sum of all parts but one; a difference to the whole would keep traces of that part in its rounding."""
    return torch.stack([one for place, one in enumerate(parts) if place != k]).sum(0)


def sums_of(x: Float[Tensor, "n F"], has: Float[Tensor, "n L"]) -> Sums:
    """Return the sums over these samples."""
    return Sums(x.new_tensor(float(len(x))), x.sum(0), x.T @ x, has.sum(0), has.T @ x)


def density_odds(sums: Sums, shrink: float) -> LinearOdds:
    """Return the log odds of two Gaussians of equal covariance, with and without each label, for all labels at once.

    Formula: S = shrunk covariance of all samples, d = difference of the two means, p = share of samples with the label. The
        covariance within the two classes is S - p (1 - p) d d', so w = S^-1 d / (1 - p (1 - p) d' S^-1 d), by the formula of
        Sherman and Morrison, and the log odds are w (x - middle of the two means). One factorisation serves all labels.

    Args:
        shrink: weight of a multiple of the unit matrix in S, 0 to 1.
    """
    mean, without = sums.x / sums.n, sums.n - sums.count
    high, low = sums.total / sums.count.clamp_min(1)[:, None], (sums.x - sums.total) / without.clamp_min(1)[:, None]
    difference = (high - low) * ((sums.count > 0) & (without > 0))[:, None]
    spread = sums.square / sums.n - torch.outer(mean, mean)
    size = spread.diagonal().mean().clamp_min(1e-12)
    rounding = 8 * torch.finfo(spread.dtype).eps * sums.square.diagonal().sum() / sums.n
    spread = (1 - shrink) * spread + (shrink * size + rounding) * torch.eye(len(spread)).to(spread)
    device = "cpu" if spread.device.type == "mps" else spread.device  # MPS has no float64
    root = torch.linalg.cholesky(spread.to(device, torch.float64))
    solved = torch.cholesky_solve(difference.T.to(device, torch.float64), root).to(spread)
    share = sums.count / sums.n
    within = 1 - share * (1 - share) * (difference.T * solved).sum(0)
    weight = solved / within.clamp_min(MIN_WITHIN_SHARE)
    return LinearOdds(weight, -0.5 * ((high + low).T * weight).sum(0))


def related_odds(n: float, count: Float[Tensor, "L"], both: Float[Tensor, "L L"]) -> LinearOdds:
    """Return the log odds of every label, given the other labels of the sample.

    Formula: P = inverse of the shrunk covariance of the labels; log odds = -sum over j != l of P_lj (t_j - share_j): the odds of
        two Gaussians of equal covariance for the vector of the other labels, up to a constant per label.

    Args:
        n, count, both: number of samples, and sums of their labels and of products of two labels.
    """
    share = (count / n).double()
    covariance = both.double() / n - torch.outer(share, share)
    shrunk = (1 - RELATED_SHRINK_SHARE) * covariance
    shrunk.diagonal().copy_(covariance.diagonal().clamp_min(1 / n**2))
    weight = -torch.linalg.inv(shrunk).fill_diagonal_(0)
    return LinearOdds(weight.to(both), -(share @ weight).to(both))


@dataclass(frozen=True, eq=False)
class LabelSetEvidence:
    """Two or three tables of log odds of every label: by densities, by votes of neighbours, and by the other labels.

    Every sample is scored by models that were fitted without its fold.
    """

    x: Float[Tensor, "N F"]
    has: Float[Tensor, "N L"]  # 1: the sample was given the label
    fold: Int[Tensor, "N"]
    density: list[LinearOdds]
    votes: Votes
    cluster: Int[Tensor, "N"]  # number of the cluster of near copies
    cleaned: Float[Tensor, "N L"] | None = (
        None  # P(the sample has the label) by densities, votes and its own given state
    )
    related: list[LinearOdds] | None = None  # of `cleaned`; None: two tables

    @property
    def labels(self) -> int:
        return self.has.shape[1]

    def blocks(self) -> Iterator[Int[Tensor, "b"]]:
        return row_blocks(len(self.x), 3 * self.labels, self.x.device)

    def scores(self, rows: Int[Tensor, "b"]) -> Float[Tensor, "M b L"]:
        limit = MAX_RELATED_ODDS * math.log(len(self.x))
        found = self.x.new_empty(2 if self.related is None else 3, len(rows), self.labels)
        for k, density in enumerate(self.density):
            mine = self.fold[rows] == k
            found[0, mine] = density.scores(self.x[rows[mine]])
            if self.related is not None and self.cleaned is not None:
                found[2, mine] = self.related[k].scores(self.cleaned[rows[mine]]).clamp(-limit, limit)
        found[1] = vote_odds(self.votes, self.has, rows)
        return found

    def with_related(self, cleaned: Float[Tensor, "N L"]) -> LabelSetEvidence:
        """Return the evidence with a third table, of the other labels of each sample; as it is if there are too many, or one.

        A label that is probably wrong must not imply others, so the labels are given as probabilities.

        Args:
            cleaned: P(the sample has the label), each without the other labels of the sample.
        """
        if not 2 <= self.labels <= MAX_RELATED_LABELS:
            return self
        parts = [cleaned[self.fold == k] for k in range(len(self.density))]
        count, both = [one.sum(0) for one in parts], [one.T @ one for one in parts]
        related = [related_odds(len(cleaned) - len(one), but(count, k), but(both, k)) for k, one in enumerate(parts)]
        return replace(self, cleaned=cleaned, related=related)


def vote_odds(votes: Votes, has: Float[Tensor, "N L"], rows: Int[Tensor, "b"]) -> Float[Tensor, "b L"]:
    """Return the log odds of the weighted share of a sample's neighbours that have each label."""
    weight = (-votes.distance[rows]).softmax(1).nan_to_num(0.0)
    share = F.embedding_bag(votes.near[rows], has, mode="sum", per_sample_weights=weight.to(has))
    others = (has.sum(0) - has[rows]) / (len(has) - 1)
    share = (share + ADDED_VOTES_SHARE * others) / (weight.sum(1, keepdim=True) + ADDED_VOTES_SHARE)
    least = ADDED_VOTES_SHARE / len(has)
    return torch.logit(share, eps=least)


def weigh_labels(
    x: Float[Tensor, "N F"], has: Float[Tensor, "N L"], gain: Callable[[LabelSetEvidence], float], *, folds: int = 10,
    setting: tuple[bool, float] | None = None, seed: int = 0, group: Int[Tensor, "N"] | None = None,
) -> tuple[LabelSetEvidence, tuple[bool, float]]:  # fmt: skip
    """Return the evidence about every label, and its setting: whether features have unit length, and the shrinkage.

    Args:
        has: 1 where a sample was given a label, otherwise 0.
        gain: returns how well evidence explains the given labels; the setting with the highest gain is used.
        folds: number of folds; near copies and samples of one group are in one fold.
        setting: the setting, if it is known.
        seed: seed of the folds.
        group: samples with the same number, 0 or more, belong together (a burst, a listing); -1: none.
    """
    centred = principal_components(x)
    unit = F.normalize(centred, dim=1)
    near, distance = nearest_neighbours(unit, VOTING_NEIGHBOURS_COUNT)
    y = has.unique(dim=0, return_inverse=True)[1]
    cluster = copy_clusters(near, distance, y, group)
    votes = neighbour_votes(near, distance, y, cluster, 1)
    fold = draw_folds(cluster, folds, seed)
    scaled = {False: centred, True: unit * unit.shape[1] ** 0.5}
    parts = {way: [sums_of(values[fold == k], has[fold == k]) for k in range(folds)] for way, values in scaled.items()}

    def fitted(way: bool, shrink: float) -> LabelSetEvidence:
        each = [list(one) for one in zip(*parts[way], strict=True)]
        others = [Sums(*(but(one, k) for one in each)) for k in range(folds)]
        return LabelSetEvidence(scaled[way], has, fold, [density_odds(one, shrink) for one in others], votes, cluster)

    if setting is not None:
        return fitted(*setting), setting
    tried = {(way, SHRINK_GRID[0]): gain(fitted(way, SHRINK_GRID[0])) for way in scaled}
    way = max(tried, key=lambda one: tried[one])[0]
    tried |= {(way, shrink): gain(fitted(way, shrink)) for shrink in SHRINK_GRID[1:]}
    best = max(tried, key=lambda one: tried[one])
    return fitted(*best), best
