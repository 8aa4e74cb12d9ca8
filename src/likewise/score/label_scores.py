"""R@k of every label, where samples have several: the queries that have the label, and as relevant the rows that have it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Bool, Int

from likewise.core.retrieval.integer_scores import Exclusions
from likewise.core.retrieval.relevant_rows import count_relevant, excluded_pairs
from likewise.core.types import Embedded, Items, Retrieval
from likewise.score.intervals import MIN_INTERVAL_UNITS, mean_interval
from likewise.score.metrics import last_rank
from likewise.score.retrieve import Scoring, exclusions_of

MAX_STORED_LABELS = 1000
"""Labels in scores.json, those of the most queries first."""

CHUNK_CELLS = 2**22
"""Cells (query, label, result) that are compared at a time."""


class LabelTable:
    """Which class has which label: a class is a set of labels."""

    def __init__(self, label_sets: Sequence[Sequence[int]]):
        self.size = np.array([len(one) for one in label_sets])
        self.flat = np.concatenate([np.asarray(one, np.int64) for one in label_sets])
        self.start = np.cumsum(self.size) - self.size
        self.labels = int(self.flat.max()) + 1
        self.code = np.sort(np.repeat(np.arange(len(self.size)), self.size) * self.labels + self.flat)

    def has(self, y: Int[np.ndarray, "*S"], label: Int[np.ndarray, "*S"]) -> Bool[np.ndarray, "*S"]:
        """Return whether classes have labels."""
        code = y * self.labels + label
        return self.code[np.searchsorted(self.code, code).clip(max=len(self.code) - 1)] == code

    def expand(self, y: Int[np.ndarray, "N"]) -> tuple[Int[np.ndarray, "M"], Int[np.ndarray, "M"]]:
        """Return a pair (position in `y`, label) for every label of every sample, by position."""
        count = self.size[y]
        place = np.repeat(np.arange(len(y)), count)
        offset = np.arange(len(place)) - np.repeat(np.cumsum(count) - count, count)
        return place, self.flat[self.start[y[place]] + offset]


def score_labels(found: Retrieval, e: Embedded, scoring: Scoring) -> dict:
    """Return "labels" of scores.json: for each label the queries, and R@k with its interval; and the mean over labels.

    R@k is measured for every R@k of the metrics that the stored results reach. A query without another row of the label is left
    out of that label.
    """
    names = {
        name: k for name in scoring.metrics if name.startswith("R@") and (k := last_rank(name)) and ":" not in name
    }
    names = {name: k for name, k in names.items() if k <= found.row.shape[1]}
    items = scoring.items
    assert items.label_sets is not None and items.label_name is not None
    if not names:
        return {}
    table = LabelTable(items.label_sets)
    query, label = table.expand(e.y[found.query].numpy())
    scored = _count_relevant(query, label, found, e, scoring, table) > 0
    query, label = query[scored], label[scored]
    first = _first_hit(query, label, found, e.y.numpy(), table)
    unit = e.y[found.query].numpy()[query]
    order = np.argsort(label, kind="stable")
    used, start = np.unique(label[order], return_index=True)
    each = {}
    for one, members in zip(used, np.split(order, start[1:]), strict=True):
        classes = len(np.unique(unit[members])) >= MIN_INTERVAL_UNITS
        value, interval = {}, {}
        for name, k in names.items():
            about = mean_interval(
                (first[members] < k).astype(np.float64), unit[members] if classes else None, share=True
            )
            value[name] = about.mean
            interval |= {} if about.reason else {name: [about.low, about.high]}
        over = "label sets" if classes else "queries"
        each[items.label_name[one]] = {"metrics": value, "interval": interval, "queries": len(members), "over": over}
    mean = {name: float(np.mean([one["metrics"][name] for one in each.values()])) for name in names if each}
    most = dict(sorted(each.items(), key=lambda pair: -pair[1]["queries"])[:MAX_STORED_LABELS])
    return {"labels": {"count": len(each), "mean": mean, "each": most}}


def _first_hit(query, label, found: Retrieval, y: Int[np.ndarray, "N"], table: LabelTable) -> Int[np.ndarray, "M"]:
    """Return the place from 0 of the first result with the label, for pairs of a query and a label; a large number without."""
    row, none = found.row.numpy(), np.iinfo(np.int64).max
    first = np.full(len(query), none)
    for at in range(0, len(query), step := max(1, CHUNK_CELLS // row.shape[1])):
        some = slice(at, at + step)
        results = row[query[some]]
        hit = table.has(y[results.clip(min=0)], np.broadcast_to(label[some, None], results.shape))
        hit &= results >= 0
        first[some] = np.where(hit.any(1), hit.argmax(1), none)
    return first


def _count_relevant(query, label, found: Retrieval, e: Embedded, scoring: Scoring, table: LabelTable):
    """Return the number of gallery rows of a label, for pairs of a query and a label, without rows excluded for the query.

    Every pair counts as a query of the class `label`, and so does every pair of a gallery row and one of its labels.
    """
    items, rows = scoring.items, e.row.numpy()
    q, g = rows[found.query.numpy()], rows[scoring.sides(e)[1]]
    whole = exclusions_of(items, q, g, _given_pairs(scoring.exclude, items, q, g))
    row, row_label = table.expand(items.y[g])
    start = torch.as_tensor(np.searchsorted(query, np.arange(len(q) + 1)))
    code = row * table.labels + row_label  # labels of a set ascend, so codes do
    of_query, of_row = (side.numpy() for side in excluded_pairs(whole))
    count = (start[1:] - start[:-1]).numpy()[of_query]
    mine = (
        np.repeat(start[:-1].numpy()[of_query], count)
        + np.arange(count.sum())
        - np.repeat(np.cumsum(count) - count, count)
    )
    wanted = np.repeat(of_row, count) * table.labels + label[mine]
    at = np.searchsorted(code, wanted).clip(max=len(code) - 1)
    there = code[at] == wanted
    pairs = torch.as_tensor(np.stack([mine[there], at[there]], 1))
    pairs = pairs.unique(dim=0) if len(pairs) else pairs.reshape(0, 2)
    groups = [(a[torch.as_tensor(query)], b[torch.as_tensor(row)]) for a, b in whole.groups]
    alone = Exclusions(len(query), None, pairs, groups)
    return count_relevant(torch.as_tensor(label), torch.as_tensor(row_label), alone).numpy()


def _given_pairs(
    exclude, items: Items, q: Int[np.ndarray, "Q"], g: Int[np.ndarray, "G"]
) -> Int[torch.Tensor, "M 2"] | None:
    """Return excluded pairs of rows of the data as (query number, gallery number), in both directions, sorted by query."""
    if exclude is None or not len(exclude):
        return None
    places = [np.full(len(items), -1), np.full(len(items), -1)]
    for place, side in zip(places, (q, g), strict=True):
        place[side] = np.arange(len(side))
    both = np.concatenate([exclude, exclude[:, ::-1]])
    both = both[both[:, 0] != both[:, 1]]
    pairs = np.stack([places[0][both[:, 0]], places[1][both[:, 1]]], 1)
    return torch.as_tensor(np.unique(pairs[(pairs >= 0).all(1)], axis=0))
