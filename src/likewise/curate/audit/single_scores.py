"""Single label scores, each a value in [0, 1] of how well a label fits (low = probably wrong), and suggestions by the same votes.

A sample that is alone in its class has no samples to compare with: it gets the median of the other scores.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from likewise.core.errors import LikewiseError
from likewise.core.retrieval.ranking import nearest, rank
from likewise.core.similarity import distance
from likewise.labels.neighbour_search import MIN_FAISS_PRODUCTS, is_large, nearest_neighbours

SCORE_BLOCK_SIZE = 2**23
"""Maximum number of similarities or votes that are held in memory at a time."""

MAX_VOTING_NEIGHBOURS = 200
"""Default maximum of neighbours that vote: in larger classes, farther neighbours would have a weight of almost 0."""

MAX_SQUARABLE_VALUE = 1e15
"""Values above this may leave the range of float32 when they are squared and summed."""

STORED_NEIGHBOURS = 6
"""Number of nearest neighbours that are stored for each sample."""

VOTE_TEMPERATURE = 0.05
"""Temperature of the distances between unit vectors.

On pretrained features of birds, suggestions were right more often than at 0.02 or 0.1."""


@torch.no_grad()
def neighbour_vote(
    z: Float[Tensor, "N D"], y: Int[Tensor, "N"], k: int | None = None, temperature: float = VOTE_TEMPERATURE,
    known: NearSamples | None = None,
) -> Float[Tensor, "N"]:  # fmt: skip
    """Return the share of the nearest neighbours' votes for a sample's own label; the sample itself has no vote.

    Formula: sum over the k nearest others j of [y_j = y_i] e^(-d_ij / temperature), divided by the sum over all of them;
        d the distance of unit vectors. For a class of n samples at most n - 1 neighbours vote: small classes can win too.

    Args:
        k: number of neighbours that vote; by default the median class size, at most 200.
        known: neighbours of every sample, k or more; None: they are searched.
    """
    check_labelled("neighbour_vote", z, y)
    rows = torch.arange(len(z), device=z.device)
    k = voting_count(y) if k is None else k
    if known is None:
        blocks = votes(z, y, rows, k, temperature)
    else:
        size = class_sizes(y)
        blocks = (
            (some, *weigh(y, known.row[some, :k], known.sim[some, :k], size[some] - 1, temperature))
            for some in rows.split(max(1, SCORE_BLOCK_SIZE // k))
        )
    found = [(w * (label == y[some, None])).sum(1) for some, label, w in blocks]
    return fill_singletons(torch.cat(found), y)


def rank_by_loss(loss: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    """Return the share of the other samples with a higher loss; ties count half."""
    bad = loss.isnan().nonzero()[:, 0]
    if len(bad) or not len(loss):
        raise LikewiseError(
            f"rank_by_loss: every sample must have a loss, got {len(loss)} of which {len(bad)} are NaN"
            + (f" (first: row {int(bad[0])})" if len(bad) else "")
        )
    n, order = len(loss), loss.detach().sort().values
    upto = torch.searchsorted(order, loss.detach(), right=True)
    tied = upto - torch.searchsorted(order, loss.detach()) - 1
    return (n - upto + tied / 2).double() / (n - 1) if n > 1 else torch.full_like(loss, 0.5, dtype=torch.float64)


def loss_over_time(history: Float[Tensor, "T N"]) -> Float[Tensor, "N"]:
    """Return the mean of `rank_by_loss` over all records of the losses: labels that are learned late are suspect.

    Args:
        history: the loss of every sample in every record; NaN where a sample was not trained. A sample without any loss gets the
            median.
    """
    share = torch.full_like(history, torch.nan, dtype=torch.float64)
    for record, loss in zip(share, history, strict=True):
        known = ~loss.isnan()
        if known.any():
            record[known] = rank_by_loss(loss[known])
    mean = share.nanmean(0)
    return mean.where(~mean.isnan(), mean.nanmedian())


def self_gradient(slope: Float[Tensor, "N D"], f: Float[Tensor, "N F"]) -> Float[Tensor, "N"]:
    """Return the share of the other samples with a larger gradient by the head's weights; ties count half.

    Formula: the gradient of a sample's own loss by the head's weights is slope f^T, its norm |slope| |f|

    Args:
        slope: the gradient of each sample's own loss by its embedding before the norm.
        f: input of the head.
    """
    return rank_by_loss(torch.linalg.vector_norm(slope.double(), dim=1) * torch.linalg.vector_norm(f.double(), dim=1))


def votes(
    z: Float[Tensor, "N D"],
    y: Int[Tensor, "N"],
    rows: Int[Tensor, "M"],
    k: int | None = None,
    temperature: float = VOTE_TEMPERATURE,
    foreign: bool = False,
) -> Iterator[tuple[Int[Tensor, "m"], Int[Tensor, "m K"], Float[Tensor, "m K"]]]:
    """Yield blocks of rows: the rows, the labels of their nearest neighbours, and the weight of each vote.

    The weights of a row sum to 1, or are all 0 if no neighbour votes. `foreign`: samples with the row's own label have no
    vote.
    """
    check_labelled("votes", z, y)
    size, own = class_sizes(y), y.unique(return_inverse=True)[1]
    k = voting_count(y) if k is None else k
    for some in rows.split(max(1, SCORE_BLOCK_SIZE // k)) if len(rows) else ():
        if foreign:
            found = rank(z[some], y[some], z, y, k=k, own=some, group=own[some], gallery_group=own)
            row, sim, voters = found.row, found.sim, torch.full_like(some, k)
        else:
            row, sim = nearest(z[some], z, k, own=some)
            voters = size[some] - 1
        yield some, *weigh(y, row, sim, voters, temperature)


def weigh(
    y: Int[Tensor, "N"],
    row: Int[Tensor, "m K"],
    sim: Float[Tensor, "m K"],
    voters: Int[Tensor, "m"],
    temperature: float,
) -> tuple[Int[Tensor, "m K"], Float[Tensor, "m K"]]:
    """Return the labels of neighbours and the weights of their votes; only the first `voters` of a sample have a vote."""
    counted = (row >= 0) & (torch.arange(row.shape[1], device=row.device) < voters[:, None])
    w = (-distance(sim) / temperature).masked_fill(~counted, -torch.inf).softmax(1).nan_to_num(0.0)
    return y[row.clamp_min(0)], w


def voting_count(y: Int[Tensor, "N"]) -> int:
    """Return the default number of neighbours that vote: the median class size, at most 200."""
    return min(median_class_size(y), MAX_VOTING_NEIGHBOURS)


def class_sizes(y: Int[Tensor, "N"]) -> Int[Tensor, "N"]:
    """Return for every sample the number of samples with its label."""
    _, own, size = y.unique(return_inverse=True, return_counts=True)
    return size[own]


def median_class_size(y: Int[Tensor, "N"]) -> int:
    """Return the median class size; of two in the middle, the smaller."""
    return int(y.unique(return_counts=True)[1].median())


def fill_singletons(score: Float[Tensor, "N"], y: Int[Tensor, "N"]) -> Float[Tensor, "N"]:
    """Return the scores with the median of the others for samples that are alone in their class; 0.5 if all are."""
    alone, score = class_sizes(y) == 1, score.clamp(0, 1)  # rounding may leave the range
    return score.masked_fill(alone, float(score[~alone].median()) if not alone.all() else 0.5)


def check_labelled(owner: str, z: Tensor, y: Tensor) -> None:
    """Raise unless every sample has a finite embedding (or feature vector) and an integer label."""
    whole = not (y.is_floating_point() or y.is_complex() or y.dtype == torch.bool)
    if z.ndim != 2 or len(z) < 2 or not whole or y.shape != z.shape[:1]:
        raise LikewiseError(
            f"{owner}: z must be a table of two rows or more, and y one integer per row, "
            f"got z of shape {tuple(z.shape)} and y of {y.dtype} and shape {tuple(y.shape)}"
        )
    bad = (~(z.abs() < MAX_SQUARABLE_VALUE)).any(1).nonzero()[:, 0]  # also true for NaN
    if len(bad):
        raise LikewiseError(
            f"{owner}: values must be finite and below {MAX_SQUARABLE_VALUE:g}, but {len(bad)} of {len(z)} rows have others "
            f"(first: row {int(bad[0])}); leave out these rows, or check the network that made them"
        )


class NearSamples(NamedTuple):
    """The nearest other samples of every sample, and their cosines."""

    row: Int[Tensor, "N k"]
    sim: Float[Tensor, "N k"]
    recall: float = 1.0  # share of the exact nearest samples that were found; 1: exact


def nearest_samples(z: Float[Tensor, "N D"], k: int) -> NearSamples:
    """Return the k nearest other samples of every sample by cosine, exact to the last digit while that is cheap."""
    k = min(k, len(z) - 1)
    if k < 1:
        return NearSamples(torch.zeros((len(z), 0), dtype=torch.long, device=z.device), z.new_zeros(len(z), 0))
    if not is_large(len(z), z, MIN_FAISS_PRODUCTS):
        return NearSamples(*nearest(z, z, k, own=torch.arange(len(z), device=z.device)))
    found = nearest_neighbours(F.normalize(z.float(), dim=1), k)
    return NearSamples(found.row, 1 - found.distance.square() / 2, found.recall)


def neighbours(z: Float[Tensor, "N D"], known: NearSamples | None = None) -> Int[np.ndarray, "N K"]:
    """Return the positions of the nearest neighbours of every sample, padded with -1."""
    found = nearest_samples(z, STORED_NEIGHBOURS) if known is None else known
    near = found.row[:, :STORED_NEIGHBOURS].cpu().numpy()
    return np.pad(near, ((0, 0), (0, STORED_NEIGHBOURS - near.shape[1])), constant_values=-1)


class Suggestions(NamedTuple):
    """A label for each of these rows, its share of the votes, and its lead over the next label."""

    row: Int[Tensor, "M"]
    y: Int[Tensor, "M"]
    confidence: Float[Tensor, "M"]
    margin: Float[Tensor, "M"]


@torch.no_grad()
def suggest(
    z: Float[Tensor, "N D"],
    y: Int[Tensor, "N"],
    rows: Int[Tensor, "M"] | None = None,
    *,
    foreign: bool = True,
    k: int | None = None,
    temperature: float = VOTE_TEMPERATURE,
) -> Suggestions:
    """Return the label with the most votes of a sample's nearest neighbours, each with weight e^(-distance / temperature).

    Differs: in the paper (Liu et al., empirical influence functions), raw embeddings vote at temperature 1, and the present
        label may win.

    Args:
        rows: the suspects; None: all samples.
        foreign: exclude the present label, for samples that are suspect already. False: it may win again, and for a class of n
            samples at most n - 1 neighbours vote. A sample alone in its class then keeps its label, at confidence 0.
        k: number of neighbours that vote; by default the median class size, at most 200.
    """
    rows = torch.arange(len(z), device=z.device) if rows is None else rows
    found = [_elect(some, y[some], label, w) for some, label, w in votes(z, y, rows, k, temperature, foreign)]
    if not found:
        return Suggestions(rows, y[rows], *z.new_zeros(2, 0, dtype=torch.float64))
    return Suggestions(*(torch.cat(column) for column in zip(*found, strict=True)))


def _elect(
    rows: Int[Tensor, "m"], y: Int[Tensor, "m"], label: Int[Tensor, "m K"], w: Float[Tensor, "m K"]
) -> Suggestions:
    """Return the label with the most votes; of ties, the label of the nearest neighbour."""
    kinds, label_of = label.unique(return_inverse=True)
    ballot = torch.arange(len(rows), device=rows.device)[:, None] * len(kinds) + label_of
    _, at = ballot.unique(return_inverse=True)
    share = torch.zeros(int(at.max()) + 1, dtype=w.dtype, device=w.device).index_add_(0, at.flatten(), w.flatten())[at]
    best = share.amax(1, keepdim=True)
    first = torch.arange(label.shape[1], 0, -1, device=rows.device).where(share == best, 0).argmax(1, keepdim=True)
    won = label.gather(1, first)
    second = share.masked_fill(label == won, 0).amax(1)
    has_votes = w.sum(1) > 0
    return Suggestions(rows, won[:, 0].where(has_votes, y), best[:, 0], best[:, 0] - second)
