"""Section "Labels": how often each single label occurs and is found again, if samples have several labels each."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.sparse import csr_matrix

from likewise.report.section import Pool, Section, Study


class LabelLine(NamedTuple):
    """One label: samples with it, queries with it, the share of these whose nearest neighbour has it, and what is expected."""

    label: int
    samples: int
    queries: int
    found: float | None  # None: no query has the label
    chance: float  # the share of all samples that have the label: what a random neighbour gives
    recall: float | None = None  # R@1 of the queries with this label in scores.json; None: not there


def count_labels(
    pool: Pool, query: Int[np.ndarray, "Q"], first: Int[np.ndarray, "Q"], recall: dict[str, float] | None = None
) -> tuple[LabelLine, ...]:
    """Return a line for every label, the most frequent first.

    Args:
        query: places of the queries.
        first: place of the nearest neighbour of each query; -1: none.
        recall: label -> R@1, as the evaluation wrote it.
    """
    assert pool.label_name is not None
    samples = np.asarray(label_matrix(pool, np.arange(len(pool.label))).sum(0)).ravel()
    query, first = query[first >= 0], first[first >= 0]
    ours, theirs = label_matrix(pool, query), label_matrix(pool, first)
    asked, found = (np.asarray(one.sum(0)).ravel() for one in (ours, ours.multiply(theirs)))
    share: Float[np.ndarray, "L"] = found / np.maximum(asked, 1)
    order = np.argsort(-samples, kind="stable")
    known = recall or {}
    return tuple(
        LabelLine(
            int(i), int(samples[i]), int(asked[i]), float(share[i]) if asked[i] else None,
            float(samples[i] / len(pool.label)), known.get(pool.label_name[i]),
        )
        for i in order
        if samples[i]
    )  # fmt: skip


def recall_of(scores: dict) -> dict[str, float]:
    """Return label -> R@1 from `per_label` of scores.json; {} if it is missing or has another form."""
    found = scores.get("per_label")
    found = found.get("R@1", found) if isinstance(found, dict) else {}
    known = {}
    for label, value in found.items() if isinstance(found, dict) else ():
        value = value.get("R@1", value.get("metrics", {}).get("R@1")) if isinstance(value, dict) else value
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            known[str(label)] = float(value)
    return known


def of_run(study: Study) -> tuple[LabelLine, ...]:
    if study.pool is None or study.pool.label_sets is None or study.queries is None or study.near is None:
        return ()
    place = study.queries[0]
    return count_labels(study.pool, place, study.near[place, 0], recall_of(study.one.scores))


def label_matrix(pool: Pool, place: Int[np.ndarray, "n"]) -> csr_matrix:
    """Return a matrix with a line per place and a column per label: 1 if the sample has the label."""
    assert pool.label_sets is not None and pool.label_name is not None
    sets = [pool.label_sets[one] for one in pool.label[place].tolist()]
    start = np.concatenate([[0], np.cumsum([len(one) for one in sets], dtype=np.int64)])
    column = np.array([name for one in sets for name in one], np.int64)
    return csr_matrix((np.ones(len(column), np.int64), column, start), shape=(len(sets), len(pool.label_name)))


SECTION = Section(
    "labels",
    "Labels",
    "Labels",
    "Every label with the share of its queries whose nearest neighbour has it too. The mark shows what a random neighbour gives.",
    of_run=of_run,
)
