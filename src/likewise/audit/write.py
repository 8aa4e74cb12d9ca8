"""Writer of the tables of an audit folder."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import SupportsFloat

import numpy as np

from likewise.audit.read import UNSPLIT_NAME
from likewise.audit.records import ExplainedErrors, SplitQuality, Subject
from likewise.data.schema import BOX_CORNERS
from likewise.io.files import atomic_write, write_csv
from likewise.types import Items

FIXED_COLUMNS = ("row", "path", "label", "score", "suggested", "confidence", "margin", "reason", "split")
"""Columns of audit.csv that every audit has; the single scores and the carried columns follow."""


def write_tables(
    folder: Path,
    subject: Subject,
    quality: dict[str, SplitQuality],
    explained: ExplainedErrors,
    copies: tuple,
    about: dict,
) -> None:
    """Write audit.csv and audit.parquet, pairs.csv, causes.csv, classes.csv, duplicates.csv and neighbours.npz."""
    scores = [name for name in about["scores"] if name != "score"]
    carried = carried_columns(subject.items)
    head = [*FIXED_COLUMNS, *scores, *carried]
    lines = [line for name in subject.splits for line in sample_lines(subject, name, quality[name], scores, carried)]
    write_csv(folder / "audit.csv", head, lines)
    write_parquet(folder / "audit.parquet", head, lines)
    write_csv(
        folder / "pairs.csv", ("query", "other", "type", "distance", "wrong", "mate"), pair_lines(subject, explained)
    )
    causes = ("error", "kind", "direction", "place", "row", "influence", "relative")
    write_csv(folder / "causes.csv", causes, cause_lines(subject, explained))
    classes = ("split", "label", "size", "moved", "share", "target", "entropy", "kind", "partner", "overlap", "state")
    write_csv(folder / "classes.csv", classes, class_lines(subject, quality))
    pairs = ("row", "other", "similarity", "bits", "kind", "parts", "same_label")
    write_csv(folder / "duplicates.csv", pairs, duplicate_lines(subject, *copies))
    row = np.concatenate([split.e.row.numpy() for split in subject.splits.values()])
    near = []
    for name, split in subject.splits.items():
        own, place = split.e.row.numpy(), quality[name].near
        near.append(np.where(place >= 0, own[place.clip(0)], -1))
    with atomic_write(folder / "neighbours.npz") as aside, aside.open("wb") as file:
        np.savez_compressed(file, row=row, near=np.concatenate(near))


def carried_columns(items: Items) -> dict[str, Sequence]:
    """Return the columns of the data's own table that audit.csv copies, for the corrected table."""
    columns = {
        name: own for name in ("query", "gallery", "group", "weight") if (own := getattr(items, name)) is not None
    }
    if items.gallery is not None and items.gallery_name is not None:
        columns["gallery"] = np.where(items.gallery, items.gallery_name, "")
    if items.group is not None:
        columns["group"] = np.where(items.group < 0, "", items.group.astype(str))
    found = {name: (own.astype(int) if own.dtype == bool else own).tolist() for name, own in columns.items()}
    if items.box is not None:
        found |= {name: ["" if np.isnan(v) else f"{v:g}" for v in side] for name, side in zip(BOX_CORNERS, items.box.T)}
    return found


def sample_lines(subject: Subject, name: str, found: SplitQuality, scores: list[str], carried: dict) -> Iterable[list]:
    """Yield the lines of audit.csv for one split."""
    split, items, scored = subject.splits[name], subject.items, found.quality
    nothing = [math.nan] * len(split.e.y)
    single = [found.single[s].tolist() if s in found.single else nothing for s in scores]
    label, flagged, near = split.e.y.tolist(), found.flagged.tolist(), found.near
    score, sure, ahead, instead = (
        t.tolist() for t in (scored.score, scored.confidence, scored.margin, scored.suggested)
    )
    for place, row in enumerate(split.e.row.tolist()):
        labels = [split.names[label[n]] for n in near[place] if n >= 0]
        own, other = split.names[label[place]], split.names[instead[place]]
        suspect = (
            [other, number(sure[place]), number(ahead[place]), reason(labels, own, other)]
            if flagged[place] else ["", "", "", ""]
        )  # fmt: skip
        yield [
            row, "" if items.path is None else items.path[row], own, number(score[place]), *suspect,
            "" if name == UNSPLIT_NAME else name, *(number(s[place]) for s in single), *(c[row] for c in carried.values()),
        ]  # fmt: skip


def reason(labels: list[str], own: str, other: str) -> str:
    """Return the labels of the nearest neighbours in a few words."""
    if not labels:
        return ""
    return f"{len(labels)} nearest: {labels.count(other)} with the suggested label, {labels.count(own)} with the given label"


def pair_lines(subject: Subject, explained: ExplainedErrors) -> Iterable[list]:
    """Yield the lines of pairs.csv."""
    row = np.append(subject.test.e.row.numpy(), -1)  # position -1, no sample, gives row -1
    found = explained.pairs
    for kind, pairs in (("confusion", found.confusion), ("mis-similar", found.mis_similar)):
        query, partner, wrong, mate = (row[t.numpy()].tolist() for t in pairs[:4])
        for q, p, d, w, m in zip(query, partner, pairs.distance.tolist(), wrong, mate):
            yield [q, p, kind, number(d), w, m]


def cause_lines(subject: Subject, explained: ExplainedErrors) -> Iterable[list]:
    """Yield the lines of causes.csv."""
    if explained.causes is None:
        return
    found, row = explained.causes, subject.splits["train"].e.row.numpy()
    for place, (error, kind) in enumerate(explained.errors.name):
        spread = float(found.spread[place]) or 1.0
        for way, rows, values in (
            ("harmful", found.harmful_row[place], found.harmful[place]),
            ("helpful", found.helpful_row[place], found.helpful[place]),
        ):
            for rank, (at, value) in enumerate(zip(rows.tolist(), values.tolist()), 1):
                yield [error, kind, way, rank, row[at], number(value), number(value / spread)]


def class_lines(subject: Subject, quality: dict[str, SplitQuality]) -> Iterable[list]:
    """Yield the lines of classes.csv."""
    for name, split in subject.splits.items():
        c = quality[name].classes
        for at, label in enumerate(c.label.tolist()):
            target = split.names[c.target[at]] if c.target[at] >= 0 else ""
            share = number(c.moved[at] / c.size[at])
            shown = "" if name == UNSPLIT_NAME else name
            line = [
                shown,
                split.names[label],
                c.size[at],
                c.moved[at],
                share,
                target,
                number(c.entropy[at]),
                c.kind[at],
            ]
            if c.partner is None or c.overlap is None:
                yield [*line, "", "", "unknown"]
                continue
            partner = split.names[c.label[c.partner[at]]] if c.partner[at] >= 0 else ""
            yield [*line, partner, number(c.overlap[at]), c.state[at]]


def duplicate_lines(subject: Subject, row: np.ndarray, split_of: np.ndarray, found) -> Iterable[list]:
    """Yield the lines of duplicates.csv; `split_of` is the split number of each sample."""
    names, y = list(subject.splits), subject.items.y
    for a, b, similarity, bits, kind in zip(found.row, found.other, found.similarity, found.bits, found.kind):
        splits = f"{names[split_of[a]]}-{names[split_of[b]]}"
        same = int(y[row[a]] == y[row[b]])
        yield [row[a], row[b], number(similarity), "" if bits < 0 else int(bits), kind, splits, same]


def number(value: SupportsFloat) -> str:
    """Return a number as text with six digits; empty for NaN."""
    return "" if math.isnan(value) else f"{float(value):.6g}"


def write_parquet(file: Path, head: Sequence[str], lines: Sequence[Sequence]) -> None:
    """Write the same table as Parquet: numbers as numbers, empty cells as null."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    text = {"path", "label", "suggested", "reason", "split", "group", "gallery"}
    columns = {}
    for name, column in zip(head, zip(*lines, strict=True), strict=True):
        if name in text:
            columns[name] = [str(v) for v in column]
        else:
            columns[name] = [None if v == "" else int(v) if name in ("row", "query") else float(v) for v in column]
    with atomic_write(file) as aside:
        pq.write_table(pa.table(columns), aside)
