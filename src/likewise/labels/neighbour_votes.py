"""Nearest neighbours by features, clusters of near copies among them, and the votes of neighbours for labels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from likewise.labels.candidate_classes import CandidateClasses, Columns
from likewise.labels.given_sets import GivenSets, label_counts
from likewise.labels.label_noise import row_blocks
from likewise.labels.neighbour_search import SIMILARITY_BLOCK_SIZE

MAX_COPY_DISTANCE = 0.35
"""Maximum distance of two near copies, as a share of the distance to the neighbour `SCALE_NEIGHBOURS_COUNT` of both."""

MAX_CONFLICT_SHARE = 0.05
"""Largest share of rows in conflicting exact copies that is taken for wrong labels; above it, images may have several labels."""

SCALE_NEIGHBOURS_COUNT = 16
"""Rank of the neighbour whose distance is the local scale; more copies of one image than this are not recognised."""

VOTING_NEIGHBOURS_COUNT = 60
"""Number of neighbours that vote."""

VOTE_TEMPERATURE = 0.07
"""Temperature of the distances of voting neighbours, as a share of the median distance to the last of them."""

MIN_VOTE_SHARE = 1e-3
"""Smallest probability of a candidate class that a neighbour with soft labels votes for."""

ADDED_VOTES_SHARE = 0.02
"""Votes that are added and spread over all classes: a class without votes is unlikely, not impossible."""


@dataclass(frozen=True, eq=False)
class ClassVotes:
    """Log share of the votes of a sample's nearest neighbours for every class, or for each of its candidates."""

    near: Int[Tensor, "N k"]
    distance: Float[Tensor, "N k"]  # infinite: this neighbour has no vote
    y: Int[Tensor, "M"]  # class of every sample
    classes: int
    candidates: CandidateClasses | None = None
    silent: Bool[Tensor, "M"] | None = None  # samples that have no vote

    def blocks(self) -> Iterator[Int[Tensor, "b"]]:
        width = self.classes if self.candidates is None else self.candidates.width
        return row_blocks(len(self.near), width, self.near.device)

    def scores(self, rows: Int[Tensor, "b"]) -> Float[Tensor, "1 b W"]:
        near, distance = self.near[rows].long(), self.distance[rows]
        if self.silent is not None:
            distance = distance.masked_fill(self.silent[near], torch.inf)
        weight = (-distance).softmax(1).nan_to_num(0.0)
        if self.candidates is None:
            column, width = self.y[near], self.classes
        else:  # one more column for votes for other classes
            column, width = self.candidates.slot[rows].long(), self.candidates.width + 1
        votes = weight.new_full((len(rows), width), ADDED_VOTES_SHARE / self.classes)
        votes = votes.scatter_add_(1, column, weight).log()[None]
        return votes if self.candidates is None else votes[:, :, :-1]

    def without(self, voter: Bool[Tensor, "M"]) -> ClassVotes:
        """Return the votes without those of some samples."""
        return replace(self, silent=voter)


@dataclass(frozen=True, eq=False)
class LabelVotes:
    """Log odds of the weighted share of a sample's nearest neighbours that have each label."""

    near: Int[Tensor, "N k"]
    distance: Float[Tensor, "N k"]  # infinite: this neighbour has no vote
    has: Float[Tensor, "N L"] | GivenSets  # 1: the sample was given the label

    @property
    def classes(self) -> int:
        return self.has.shape[1]

    def blocks(self) -> Iterator[Int[Tensor, "b"]]:
        return row_blocks(len(self.near), 3 * self.classes, self.near.device)  # for up to three tables

    def scores(self, rows: Int[Tensor, "b"]) -> Float[Tensor, "1 b L"]:
        weight = (-self.distance[rows]).softmax(1).nan_to_num(0.0)
        if isinstance(self.has, GivenSets):
            share = weighted_votes(weight, self.near[rows], self._given).toarray()
            share = torch.as_tensor(share).to(weight)
        else:
            share = F.embedding_bag(
                self.near[rows].long(), self.has, mode="sum", per_sample_weights=weight.to(self.has)
            )
        others = (label_counts(self.has) - self.has[rows]) / (len(self.has) - 1)
        share = (share + ADDED_VOTES_SHARE * others) / (weight.sum(1, keepdim=True) + ADDED_VOTES_SHARE)
        return torch.logit(share, eps=ADDED_VOTES_SHARE / len(self.has))[None]

    @cached_property
    def _given(self) -> Any:
        """Return the given labels as a sparse matrix."""
        assert isinstance(self.has, GivenSets)
        return self.has.sparse


def weighted_votes(weight: Float[Tensor, "b k"], near: Int[Tensor, "b k"], votes: Any) -> Any:
    """Return the weighted votes of neighbours as a sparse matrix, from a sparse matrix of the votes of all samples."""
    from scipy.sparse import csr_matrix  # slow to import

    start = torch.arange(len(weight) + 1) * weight.shape[1]
    values, column = weight.cpu().flatten().numpy(), near.cpu().flatten().numpy()
    return csr_matrix((values, column, start.numpy()), (len(weight), votes.shape[0])) @ votes


@dataclass(frozen=True, eq=False)
class SoftVotes:
    """Log share of the votes of a sample's nearest neighbours for every column; a vote is the probabilities of a neighbour."""

    near: Int[Tensor, "N k"]
    distance: Float[Tensor, "N k"]  # infinite: this neighbour has no vote
    q: Float[Tensor, "N W"]
    columns: Columns | None  # of all samples; None: column c is class c
    classes: int

    def blocks(self) -> Iterator[Int[Tensor, "b"]]:
        return row_blocks(len(self.near), self.q.shape[1], self.near.device)

    def scores(self, rows: Int[Tensor, "b"]) -> Float[Tensor, "1 b W"]:
        if self.columns is not None:
            return self._column_scores(rows, self.columns.label[rows])[None]
        block = max(1, SIMILARITY_BLOCK_SIZE // (self.near.shape[1] * self.classes))
        return torch.cat([self._scores(some) for some in rows.split(block)])[None]

    def _scores(self, rows: Int[Tensor, "b"]) -> Float[Tensor, "b C"]:
        weight = (-self.distance[rows]).softmax(1).nan_to_num(0.0)
        votes = torch.bmm(weight[:, None], self.q[self.near[rows].long()])[:, 0]
        return (votes + ADDED_VOTES_SHARE / self.classes).log()

    def _column_scores(self, rows: Int[Tensor, "b"], label: Int[Tensor, "b W"]) -> Float[Tensor, "b W"]:
        """Return the scores of candidate classes, by a product of sparse matrices: weights of neighbours, and their votes."""
        weight = (-self.distance[rows]).softmax(1).nan_to_num(0.0)
        found = weighted_votes(weight, self.near[rows], self._sparse_votes)
        found.sort_indices()
        row = torch.arange(len(rows)).repeat_interleave(torch.as_tensor(found.indptr.astype("int64")).diff())
        code = row * self.classes + torch.as_tensor(found.indices).long()
        wanted = torch.arange(len(rows))[:, None] * self.classes + label
        at = torch.searchsorted(code, wanted).clamp_max(max(0, len(code) - 1))
        share = torch.as_tensor(found.data)[at].where(code[at] == wanted, 0) if len(code) else torch.zeros_like(wanted)
        return (share.to(weight) + ADDED_VOTES_SHARE / self.classes).log()

    @cached_property
    def _sparse_votes(self) -> Any:
        """Return the votes of all samples as a sparse matrix, without probabilities below `MIN_VOTE_SHARE`."""
        from scipy.sparse import csr_matrix  # slow to import

        assert self.columns is not None
        row, column = (self.q >= MIN_VOTE_SHARE).nonzero(as_tuple=True)
        place = (row.numpy(), self.columns.label[row, column].numpy())
        return csr_matrix((self.q[row, column].numpy(), place), (len(self.q), self.classes))

    def without(self, voter: Bool[Tensor, "N"]) -> SoftVotes:
        """Return the votes without those of some samples."""
        return replace(self, distance=self.distance.masked_fill(voter[self.near.long()], torch.inf))


def vote_distances(
    near: Int[Tensor, "N k"], distance: Float[Tensor, "N k"], cluster: Int[Tensor, "N"]
) -> Float[Tensor, "N k"]:
    """Return the distances in units of the temperature; infinite for neighbours of the same cluster, which do not vote."""
    temperature = VOTE_TEMPERATURE * distance[:, -1].median().clamp_min(1e-12)
    own = cluster[near] == cluster[:, None]
    return (distance / temperature).masked_fill(own, torch.inf)


def copy_clusters(
    near: Int[Tensor, "N k"], distance: Float[Tensor, "N k"], y: Int[Tensor, "N"], group: Int[Tensor, "N"] | None = None
) -> Int[Tensor, "N"]:
    """Return the number of the cluster of every sample: near copies, and samples of one group, are in one cluster.

    Two samples are near copies if their distance is far below the distance to the neighbours number `SCALE_NEIGHBOURS_COUNT` of
    both. A cluster that has more than half of the samples of a label is not taken for copies but for a compact class, and is
    divided again.

    Args:
        near, distance: as `nearest_neighbours` returns them.
        group: samples with the same number, 0 or more, belong together; -1: none.
    """
    scale = distance[:, min(SCALE_NEIGHBOURS_COUNT, distance.shape[1]) - 1]
    limit = MAX_COPY_DISTANCE * torch.minimum(scale[:, None], scale[near])
    i, place = ((distance < limit) & (distance.shape[1] >= SCALE_NEIGHBOURS_COUNT)).nonzero(as_tuple=True)
    cluster = connected(len(y), i, near[i, place])
    classes = int(y.max()) + 1
    pair, at, count = (cluster * classes + y).unique(return_inverse=True, return_counts=True)
    shared = torch.bincount(cluster, minlength=len(y))[pair // classes] > 1
    compact = (shared & (2 * count > torch.bincount(y, minlength=classes)[pair % classes]))[at]
    divided = torch.zeros_like(y, dtype=torch.bool).index_fill_(0, cluster[compact], True)[cluster]
    cluster = torch.where(divided, torch.arange(len(y), device=y.device), cluster)
    if group is None:
        return cluster.unique(return_inverse=True)[1]
    known = (group >= 0).nonzero()[:, 0]
    first = torch.full((int(group.max()) + 1 if len(known) else 1,), len(y), device=y.device)
    first.scatter_reduce_(0, group[known], known, "amin")
    rows = torch.arange(len(y), device=y.device)
    joined = connected(len(y), torch.cat([rows, known]), torch.cat([cluster, first[group[known]]]))
    return joined.unique(return_inverse=True)[1]


def connected(count: int, i: Int[Tensor, "E"], j: Int[Tensor, "E"]) -> Int[Tensor, "N"]:
    """Return the smallest row of the connected component of every row of a graph with the edges (i, j)."""
    root = torch.arange(count, device=i.device)
    while True:
        low = torch.minimum(root[i], root[j])
        after = root.scatter_reduce(0, i, low, "amin").scatter_reduce(0, j, low, "amin")
        after = after[after]
        if torch.equal(after, root):
            return root
        root = after
