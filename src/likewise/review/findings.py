"""What an audit found, as its folder says:

- `audit.csv`: `row,path,label,score,suggested,confidence,margin,reason,split` and any others, a line a sample. `row` is its
  line in the items table; `score` is in [0, 1], low = suspect. `suggested` is empty where the label is not suspected,
  `path` where there are no images; `confidence` and `margin` may be.
- `pairs.csv` (may be missing): `query,other,type,distance,wrong,mate`, a test error a line: two rows of audit.csv, the
  `type` ("confusion", "mis-similar"), how far apart they are, and beside the query its nearest of another class and of its
  own (-1: there is none). A pair goes by its rows, "12-40": a new audit keeps verdicts.
- `causes.csv` (may be missing): `error,direction,row,relative` and others, the training samples that matter most for a pair,
  the strongest first; those of whole classes are not shown here.
- `neighbours.npz` (may be missing): `row`, and `near`, the nearest rows of each, nearest first; -1 = there is none.
"""

from __future__ import annotations

import csv
import hashlib
import math
import os
import zipfile
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from likewise.errors import LikewiseError, nearest_name

VERDICTS = {"sample": ("keep", "relabel", "remove", "unsure"), "pair": ("agreeable", "disagreeable")}
CORNERS = ("left", "top", "right", "bottom")
CARRIED = ("split", "query", "gallery", "group", *CORNERS, "weight")
"""Columns of the data's own table: where audit.csv has them, the corrected table has them too."""


class Sample(NamedTuple):
    row: int
    path: str
    label: str
    score: float
    suggested: str
    confidence: float | None
    margin: float | None
    reason: str
    split: str
    carried: dict[str, str]

    @property
    def box(self) -> list[float] | None:
        """left, top, right, bottom; None: the whole picture."""
        corners = [self.carried.get(name, "") for name in CORNERS]
        return [float(corner) for corner in corners] if all(corners) else None


class Pair(NamedTuple):
    query: int
    other: int
    type: str
    distance: float
    wrong: int
    mate: int


class Cause(NamedTuple):
    """A training sample, and its influence divided by the root mean square over all of them."""

    row: int
    relative: float


@dataclass(frozen=True, eq=False)
class Findings:
    """An audit, read. Pairs go by their item, such as "12-40"; `members` are a class's rows, least suspect first; `causes` go by
    a pair's item and by "harmful" or "helpful", the strongest first."""

    sample: dict[int, Sample]
    pair: dict[str, Pair]
    causes: dict[tuple[str, str], list[Cause]]
    near: dict[int, list[int]]
    members: dict[str, list[int]]
    fingerprint: str

    def kind(self, item: str) -> str:
        """Whether an item is a "sample" or a "pair"; raises where there is no such item."""
        if item in self.pair:
            return "pair"
        if not (item.isascii() and item.isdecimal() and len(item) < 19 and int(item) in self.sample):
            raise LikewiseError(f"review: an item is a row or a pair of this audit, got {item!r}; reload the page")
        return "sample"

    def check(self, item: str, verdict: str, label: str) -> str:
        """The kind of an item; raises where there is no such item, or where the verdict does not fit it."""
        kind = self.kind(item)
        if verdict not in VERDICTS[kind]:
            known = ", ".join(VERDICTS[kind])
            raise LikewiseError(f"review: a {kind}'s verdict is one of {known}, got {verdict!r}; choose one of these")
        if verdict == "relabel" and label not in self.members:
            near = nearest_name(label, self.members)
            raise LikewiseError(f"review: a new label must be a class of this audit, got {label!r}{near}")
        if verdict == "relabel" and label == self.sample[int(item)].label:
            raise LikewiseError(f"review: row {item} is labelled {label!r} already; keep it, or choose another class")
        return kind


def read_findings(folder: str | os.PathLike) -> Findings:
    folder = Path(folder)
    sample = {}
    for line, cells in lines(folder / "audit.csv", Sample._fields[:-1]):
        one = read_sample(cells, line)
        if one.row in sample:
            raise LikewiseError(
                f"review: a row stands in audit.csv once, got {one.row} again in line {line}; audit again"
            )
        sample[one.row] = one
    if not sample:
        raise LikewiseError("review: audit.csv must hold samples, and it has none; audit again")
    members = defaultdict(list)
    for one in sorted(sample.values(), key=lambda s: (-s.score, s.row)):
        members[one.label].append(one.row)
    named = "\0".join(f"{s.row}\0{s.path}\0{s.label}" for s in sample.values())
    pair = read_pairs(folder / "pairs.csv", sample)
    causes = read_causes(folder / "causes.csv", sample, pair)
    near = read_near(folder / "neighbours.npz", sample)
    return Findings(sample, pair, causes, near, dict(members), hashlib.sha256(named.encode()).hexdigest())


def read_sample(cells: dict[str, str], line: int) -> Sample:
    one = Sample(
        number(cells, "row", line, int),
        cells["path"],
        cells["label"],
        number(cells, "score", line),
        cells["suggested"],
        number(cells, "confidence", line) if cells["confidence"] else None,
        number(cells, "margin", line) if cells["margin"] else None,
        cells["reason"],
        cells["split"],
        {name: cells[name] for name in CARRIED if name in cells},
    )
    [number(cells, name, line) for name in CORNERS if cells.get(name)]
    return one


def read_pairs(file: Path, sample: dict[int, Sample]) -> dict[str, Pair]:
    pair = {}
    for line, cells in lines(file, Pair._fields) if file.exists() else ():
        rows = [number(cells, name, line, int) for name in ("query", "other", "wrong")]
        mate = -1 if cells["mate"] == "-1" else number(cells, "mate", line, int)
        must_be_rows([*rows, *([mate] if mate >= 0 else [])], sample, f"pairs.csv line {line}")
        query, other, wrong = rows
        pair[f"{query}-{other}"] = Pair(query, other, cells["type"], number(cells, "distance", line), wrong, mate)
    return pair


def read_causes(file: Path, sample: dict[int, Sample], pair: dict[str, Pair]) -> dict[tuple[str, str], list[Cause]]:
    found = defaultdict(list)
    for line, cells in lines(file, ("error", "direction", "row", "relative")) if file.exists() else ():
        if cells["error"] in pair:
            row = number(cells, "row", line, int)
            must_be_rows([row], sample, f"causes.csv line {line}")
            found[cells["error"], cells["direction"]].append(Cause(row, number(cells, "relative", line)))
    return dict(found)


def lines(file: Path, columns: Iterable[str]) -> Iterator[tuple[int, dict[str, str]]]:
    try:
        with open(file, encoding="utf-8-sig", newline="") as text:
            reader = csv.DictReader(text, restval="")
            missing = [name for name in columns if name not in (reader.fieldnames or ())]
            if missing:
                raise LikewiseError(
                    f"review: {file.name} must have the column {missing[0]!r}, it has {reader.fieldnames}; audit again"
                )
            yield from ((reader.line_num, cells) for cells in reader)
    except FileNotFoundError:
        raise LikewiseError(
            f"review: a folder with {file.name} is wanted, got {file.parent}; run `likewise audit` first"
        ) from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise LikewiseError(f"review: {file} cannot be read ({error}); audit again") from None


def number(cells: dict[str, str], name: str, line: int, kind: type = float) -> float | int:
    try:
        value = kind(cells[name])
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or (kind is int and value < 0):
        wanted = "a row's number" if kind is int else "a number"
        raise LikewiseError(f"review: {name} must be {wanted}, got {cells[name]!r} in line {line}; audit again")
    return value


def must_be_rows(rows: Iterable[int], sample: dict[int, Sample], where: str) -> None:
    strange = next((row for row in rows if row not in sample), None)
    if strange is not None:
        raise LikewiseError(f"review: {where} must name rows of audit.csv, got {strange}; audit again")


def read_near(file: Path, sample: dict[int, Sample]) -> dict[int, list[int]]:
    if not file.exists():
        return {}
    try:
        with np.load(file, allow_pickle=False) as arrays:
            row, near = arrays["row"], arrays["near"]
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise LikewiseError(
            f"review: {file.name} must hold the arrays 'row' and 'near' ({error}); audit again"
        ) from None
    if (
        row.ndim != 1
        or near.ndim != 2
        or len(row) != len(near)
        or row.dtype.kind not in "iu"
        or near.dtype.kind not in "iu"
    ):
        raise LikewiseError(
            f"review: {file.name} must hold a line of 'near' a 'row', got {near.shape} and {row.shape}; audit again"
        )
    must_be_rows(np.unique(np.append(row, near[near >= 0])).tolist(), sample, file.name)
    return {
        one: [other for other in others if other >= 0] for one, others in zip(row.tolist(), near.tolist(), strict=True)
    }
