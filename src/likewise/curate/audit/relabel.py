"""Suggested labels by a vote of neighbours, and what they and the overlap of classes mean for whole classes."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from likewise.core.errors import LikewiseError
from likewise.curate.audit.label_scores import VOTE_TEMPERATURE, votes
from likewise.curate.audit.records import ClassFindings, Kind
from likewise.labels.class_overlap import ClassOverlap, OverlapState


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
    if foreign and len(y.unique()) < 2:
        raise LikewiseError(
            "suggest: labels must have two classes or more, got one; add another class, or use foreign=False"
        )
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


def class_findings(
    y: Int[Tensor, "N"], suggested: Int[Tensor, "N"], many: float = 0.1, spread: float = 0.35
) -> ClassFindings:
    """Return which classes should be merged and which are diffuse, from the suggested labels of their samples.

    Args:
        suggested: a label for every sample, the own label among the candidates: `suggest(z, y, foreign=False).y`.
        many: share of a class that must leave it for a finding about the class, and at least two samples.
        spread: maximum entropy of the suggested labels for a merge into one class. Both defaults are the paper's.
    """
    if y.shape != suggested.shape or not len(y):
        raise LikewiseError(
            f"class_findings: suggested must have one label per sample, got {len(suggested)} for {len(y)}"
        )
    given, wanted = y.cpu().numpy(), suggested.cpu().numpy()
    label, own, size = np.unique(given, return_inverse=True, return_counts=True)
    away = wanted != given
    moved = np.bincount(own[away], minlength=len(label))
    (leaving, goal), count = np.unique(np.stack([own[away], wanted[away]]), axis=1, return_counts=True)
    share = count / moved[leaving]
    entropy = np.bincount(leaving, -share * np.log(share), len(label)) + 0.0
    target = np.full(len(label), -1)
    order = np.lexsort((-goal, count))
    target[leaving[order]] = goal[order]  # later entries overwrite earlier ones
    big = (moved >= many * size) & (moved >= 2)
    kind = np.select([moved == 0, ~big, entropy <= spread], ["clean", "individual", "merge"], "diffuse")
    touched = size[moved > 0].sum()
    of_touched = float(away.sum() / touched) if touched else 0.0
    return ClassFindings(label, size, moved, target, entropy, tuple(kind.tolist()), float(away.mean()), of_touched)


def with_overlap(found: ClassFindings, overlap: ClassOverlap, label: Int[np.ndarray, "L"]) -> ClassFindings:
    """Return the findings with the partner, overlap and state of each class; only these make a "merge".

    Args:
        overlap: of the classes numbered by their place in `label`, which may have more classes than `found`.
    """
    first, second, chance = (t.cpu().numpy() for t in (overlap.first, overlap.second, overlap.probability))
    rank = np.nan_to_num(chance) + np.array([{"merge": 2, "unknown": 1}.get(one, 0) for one in overlap.state])
    order = np.argsort(np.tile(rank, 2), kind="stable")  # later entries overwrite earlier ones
    pair, partner = np.full((2, len(label)), -1)
    mine, other = np.append(first, second)[order], np.append(second, first)[order]
    pair[mine], partner[mine] = order % max(1, len(first)), label[other]
    own = np.searchsorted(label, found.label)
    pair, partner = pair[own], partner[own]
    state: tuple[OverlapState, ...] = tuple(overlap.state[at] if at >= 0 else "unknown" for at in pair.tolist())
    shown = np.array([np.nan if one == "unknown" else chance[at] for one, at in zip(state, pair)])
    kind: list[Kind] = ["mixed" if one == "merge" else one for one in found.kind]
    kind = ["merge" if one == "merge" else old for one, old in zip(state, kind, strict=True)]
    return dataclasses.replace(found, partner=partner, overlap=shown, state=state, kind=tuple(kind))
