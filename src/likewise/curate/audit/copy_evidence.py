"""Copies among the samples of an audit as evidence: an image that exists under two labels has a wrong label.

Exact copies are certain evidence: at most one of their labels is right. Near copies count by their probability of being the
same image.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from PIL import Image

from likewise.core.progress import bar
from likewise.core.types import Items, LikewiseError
from likewise.curate.audit.near_duplicates import Duplicates, NearCopies, near_duplicates
from likewise.curate.audit.records import CopyEvidence, SplitQuality, Subject
from likewise.data.copies import exact_copies, file_clusters, whole_or_box
from likewise.data.images import image_of
from likewise.labels.neighbour_search import is_large
from likewise.labels.neighbour_votes import MAX_CONFLICT_SHARE

PROBABILITY_EPSILON = 1e-7
"""Scores are clamped to this distance from 0 and 1 before odds are computed."""


class Copies(NamedTuple):
    """Near duplicates of an audit: row of the data and number of the split of each sample, and pairs of these samples."""

    row: Int[np.ndarray, "N"]
    split_of: Int[np.ndarray, "N"]
    found: Duplicates

    def first_row(self) -> dict[int, int]:
        """Return row -> lowest row among its exact copies, for rows that have exact copies."""
        cluster = self.found.cluster
        lowest = np.full(int(cluster.max(initial=-1)) + 1, np.iinfo(np.int64).max)
        np.minimum.at(lowest, cluster, self.row)
        several = np.bincount(cluster, minlength=len(lowest))[cluster] > 1
        return dict(zip(self.row[several].tolist(), lowest[cluster[several]].tolist()))


def find_copies(subject: Subject, quality: dict[str, SplitQuality], quiet: bool = False) -> Copies:
    """Find exact and near duplicates over all splits.

    Args:
        quality: results of the splits; of one large split, the approximate neighbours are used again.
    """
    row = np.concatenate([split.e.row.numpy() for split in subject.splits.values()])
    split_of = np.concatenate([np.full(len(split.e.row), n) for n, split in enumerate(subject.splits.values())])
    z = torch.cat([split.e.z for split in subject.splits.values()])
    items = subject.items
    show = None if items.path is None else lambda place: load_image(items, int(row[place]))
    vectors = exact_copies(items, row) if items.x is not None else None
    place = None
    if items.path is not None and items.box is not None:
        place = (file_clusters(items, row), [whole_or_box(items, one) for one in row.tolist()])
    known = next(iter(quality.values())).near if len(quality) == 1 and is_large(len(z), z) else None
    with bar("find near duplicates", 100, quiet=quiet) as progress:
        found = near_duplicates(z, show, split_of, progress=progress.reach, vectors=vectors, place=place, known=known)
    if found.unread:
        subject.notes.append(f"{found.unread} images could not be read, so near duplicates of them are not found")
    return Copies(row, split_of, found)


def load_image(items: Items, row: int) -> Image.Image | None:
    """Return the image of a row; None if the data has no images, or if this one cannot be read."""
    if items.path is None:
        return None
    try:
        return image_of(items, row)
    except (LikewiseError, OSError):
        return None


class Judged(NamedTuple):
    """Labels, scores and suggested labels of all samples of an audit; labels are class numbers of the data."""

    label: Int[np.ndarray, "N"]
    score: Float[np.ndarray, "N"]
    suggested: Int[np.ndarray, "N"]  # best other label without copies
    confidence: Float[np.ndarray, "N"]


def in_conflict(label: Int[np.ndarray, "N"], cluster: Int[np.ndarray, "N"]) -> Bool[np.ndarray, "N"]:
    """Return whether an exact copy of each sample has another label."""
    distinct = np.unique(np.stack([cluster, label]), axis=1)[0]
    return np.bincount(distinct, minlength=int(cluster.max(initial=-1)) + 1)[cluster] > 1


def add_copies(
    subject: Subject, quality: dict[str, SplitQuality], copies: Copies, across: bool = True
) -> dict[str, SplitQuality]:
    """Return the label scores with the evidence of copies that have other labels.

    If more than `MAX_CONFLICT_SHARE` of the rows conflict, the scores stay as they are: images may have several labels. They also
    stay for data with several labels per sample.

    Args:
        across: whether copies in other splits count. For a training they must not: it would learn from the test labels.
    """
    judged, found = gather(subject, quality, copies), copies.found
    if subject.items.label_sets is not None or not len(judged.label) or conflicts_are_many(subject, copies):
        return quality
    cluster, near = found.cluster, found.near
    if not across:
        cluster = np.unique(np.stack([cluster, copies.split_of]), axis=1, return_inverse=True)[1].reshape(-1)
        inside = copies.split_of[near.pair[:, 0]] == copies.split_of[near.pair[:, 1]]
        near = NearCopies(near.pair[inside], near.probability[inside])
    names, called = subject.items.class_name, [sample_name(subject.items, row) for row in copies.row.tolist()]
    score, evidence = exact_evidence(judged, cluster, copies.row, names, called)
    score, weak = near_evidence(judged._replace(score=score), near, names, called)
    evidence = weak | evidence
    result, start = {}, 0
    for name, split in quality.items():
        end = start + len(split.alone)
        new = torch.as_tensor(score[start:end], dtype=split.quality.score.dtype)
        scored = dataclasses.replace(split.quality, score=new, unknown=new.isnan())
        own = {place - start: one for place, one in evidence.items() if start <= place < end}
        result[name] = dataclasses.replace(split, quality=scored, copies=own)
        start = end
    return result


def gather(subject: Subject, quality: dict[str, SplitQuality], copies: Copies) -> Judged:
    """Return the scores of all splits as one table, in the order of `copies`."""
    parts = [one.quality for one in quality.values()]
    return Judged(
        subject.items.y[copies.row],
        np.concatenate([q.score.double().numpy() for q in parts]),
        np.concatenate([q.suggested.numpy() for q in parts]),
        np.nan_to_num(np.concatenate([q.confidence.double().numpy() for q in parts])),
    )


def conflicts_are_many(subject: Subject, copies: Copies) -> bool:
    """Return whether the share of conflicting rows is so large that several labels per image are probably intended."""
    share = in_conflict(subject.items.y[copies.row], copies.found.cluster).mean() if len(copies.row) else 0.0
    return bool(share > MAX_CONFLICT_SHARE)


def note_conflicts(subject: Subject, copies: Copies) -> dict:
    """Return the number of rows in conflicting exact copies and whether they count as errors; if not, add a note."""
    count = int(in_conflict(subject.items.y[copies.row], copies.found.cluster).sum())
    if subject.items.label_sets is not None:
        if count:
            subject.notes.append(
                f"{count:,} of {len(copies.row):,} rows are exact copies of a row with other labels, so labels are missing or "
                "superfluous there; duplicates.csv lists them (same_label 0), and label scores do not use them"
            )
        return {"rows": count, "counted": False}
    many = conflicts_are_many(subject, copies)
    if many:
        subject.notes.append(
            f"{count:,} of {len(copies.row):,} rows ({count / len(copies.row):.1%}) are exact copies of a row with another "
            "label: do images of this data have several labels? These copies are not counted as wrong labels"
        )
    return {"rows": count, "counted": not many}


def label_odds(score: Float[np.ndarray, "N"]) -> Float[np.ndarray, "N"]:
    """Return score / (1 - score); 1 for an unknown score."""
    p = np.clip(np.where(np.isnan(score), 0.5, score), PROBABILITY_EPSILON, 1 - PROBABILITY_EPSILON)
    return p / (1 - p)


def at_most_one_right(score: Float[np.ndarray, "L"]) -> Float[np.ndarray, "L"]:
    """Return P(label is right) for the distinct labels of one image, of which at most one is right.

    Formula: o_l / (1 + sum o), o = score / (1 - score). An unknown score counts as 1 / L; if all are unknown, so is the result.

    Args:
        score: P(right) of each label by other evidence, NaN if unknown.
    """
    if np.isnan(score).all():
        return np.full(len(score), 1 / len(score))
    odds = label_odds(np.where(np.isnan(score), 1 / len(score), score))
    return odds / (1 + odds.sum())


def exact_evidence(
    judged: Judged, cluster: Int[np.ndarray, "N"], row: Int[np.ndarray, "N"], names: tuple[str, ...], called: list[str]
) -> tuple[Float[np.ndarray, "N"], dict[int, CopyEvidence]]:
    """Return the scores after exact copies were counted, and the evidence of each sample whose copies have other labels.

    Args:
        called: name of every sample, for the reason.
    """
    score, evidence = judged.score.copy(), {}
    conflict = np.flatnonzero(in_conflict(judged.label, cluster))
    order = conflict[np.lexsort((row[conflict], cluster[conflict]))]
    for members in np.split(order, np.flatnonzero(np.diff(cluster[order])) + 1) if len(order) else ():
        labels, own = np.unique(judged.label[members], return_inverse=True)
        known = [judged.score[members][own == at] for at in range(len(labels))]
        right = at_most_one_right(np.array([mean_known(one) for one in known]))
        for place, at in zip(members.tolist(), own.tolist()):
            score[place] = right[at]
            chance = dict(zip(labels.tolist(), right.tolist()))
            del chance[int(labels[at])]
            outside = int(judged.suggested[place])
            if outside not in labels:
                chance[outside] = (1 - right.sum()) * float(judged.confidence[place])
            others = [(called[m], names[judged.label[m]]) for m in members if judged.label[m] != labels[at]]
            evidence[place] = CopyEvidence(copy_reason(others), *best_label(chance, 1 - float(right[at]), names))
    return score, evidence


def mean_known(score: Float[np.ndarray, "n"]) -> float:
    """Return the mean of the known scores; NaN if none is known."""
    known = score[~np.isnan(score)]
    return float(known.mean()) if len(known) else float("nan")


def best_label(chance: dict[int, float], wrong: float, names: tuple[str, ...]) -> tuple[str, float, float]:
    """Return the likeliest label, its probability if the given label is wrong, and its lead over the next label."""
    ranked = sorted(chance.items(), key=lambda one: (-one[1], one[0]))
    second = ranked[1][1] if len(ranked) > 1 else 0.0
    wrong = max(wrong, PROBABILITY_EPSILON)
    best = float(ranked[0][1])
    return names[ranked[0][0]], min(1.0, best / wrong), min(1.0, (best - second) / wrong)


def sample_name(items: Items, row: int) -> str:
    """Return the path of a sample as in the data's own table, or its row if the data has no paths."""
    return f"row {row}" if items.path is None else items.path[row]


def copy_reason(others: list[tuple[str, str]]) -> str:
    """Return which samples show the same image under other labels: one sample of every label."""
    first: dict[str, str] = {}
    for name, label in others:
        first.setdefault(label, name)
    return "same image as " + " and ".join(f"{name}, labelled {label}" for label, name in first.items())


def near_evidence(
    judged: Judged, near: NearCopies, names: tuple[str, ...], called: list[str]
) -> tuple[Float[np.ndarray, "N"], dict[int, CopyEvidence]]:
    """Return the scores after near copies with other labels were counted, and the evidence of each sample that has such.

    Formula: score * product over near copies of (1 - p + p (1 + o) / (1 + o + o')), p the probability of being the same image,
        o and o' the odds of both labels: with probability p at most one of them is right. An unknown score stays unknown.

    Args:
        called: name of every sample, for the reason.
    """
    differs = judged.label[near.pair[:, 0]] != judged.label[near.pair[:, 1]]
    pair, p = near.pair[differs], near.probability[differs]
    pair, p = np.concatenate([pair, pair[:, ::-1]]), np.concatenate([p, p])  # each sample of a pair first
    a, b = pair.T
    odds = label_odds(judged.score)
    factor = 1 - p + p * (1 + odds[a]) / (1 + odds[a] + odds[b])
    score, evidence = judged.score.copy(), {}
    np.multiply.at(score, a, factor)
    for at in np.argsort(-factor, kind="stable").tolist():  # the strongest evidence last, which stays
        mine, other = int(a[at]), int(b[at])
        label, suggested = int(judged.label[other]), int(judged.suggested[mine])
        total = 1 + odds[mine] + odds[other]
        rest = p[at] / total + (1 - p[at]) / (1 + odds[mine])  # neither label is right, or they are different images
        chance = {label: p[at] * odds[other] / total}
        if suggested != judged.label[mine]:
            chance[suggested] = chance.get(suggested, 0.0) + rest * float(judged.confidence[mine])
        reason = f"probably the same image (probability {p[at]:.2f}) as {called[other]}, labelled {names[label]}"
        wrong = 1 - float(np.nan_to_num(score[mine], nan=0.5))
        evidence[mine] = CopyEvidence(reason, *best_label(chance, wrong, names), exact=False)
    return score, evidence
