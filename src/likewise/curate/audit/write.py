"""Writer of the tables of an audit folder."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import SupportsFloat

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from likewise.core.files import atomic_write, text_column, write_csv
from likewise.core.types import Items
from likewise.curate.audit.copy_evidence import Copies
from likewise.curate.audit.label_probability import MIN_LISTED_PROBABILITY
from likewise.curate.audit.label_quality import ScoredSets, scored_sets
from likewise.curate.audit.read import OWN_FILE, UNSPLIT_NAME, ClassLine, Duplicate, Pair
from likewise.curate.audit.records import ExplainedErrors, SplitQuality, Subject
from likewise.curate.audit.weighed_votes import WeighedVotes, write_votes
from likewise.data.label_sets import split_labels
from likewise.data.schema import BOX_CORNERS
from likewise.labels.neighbour_search import SIMILARITY_BLOCK_SIZE

FIXED_COLUMNS = (
    "row",
    "path",
    "label",
    "score",
    "state",
    "suggested",
    "confidence",
    "margin",
    "reason",
    "split",
    "same_as",
)
"""Columns of audit.csv that every audit has; `off_topic` if computed, the single scores and the carried columns follow."""

STORED_EXAMPLES_COUNT = 4
"""Number of nearest samples with a label, and without it, that are listed for each question."""

QUESTION_COLUMNS = ("row", "path", "label", "kind", "chance", "state", "reason", "nearest_with", "nearest_without")
"""Columns of labels.csv."""


def write_tables(
    folder: Path,
    subject: Subject,
    quality: dict[str, SplitQuality],
    explained: ExplainedErrors,
    copies: Copies,
    about: dict,
    weighed: WeighedVotes | None = None,
) -> None:
    """Write audit.csv and audit.parquet, the other tables of an audit, and neighbours.npz."""
    if weighed is not None:
        write_votes(folder, weighed, subject.items)
    if subject.own is not None:
        write_csv(folder / OWN_FILE, tuple(subject.own), zip(*subject.own.values(), strict=True))
    scores = [name for name in about["scores"] if name != "score"]
    carried = carried_columns(subject.items)
    extra = ["off_topic"] * any(one.quality.off_topic is not None for one in quality.values())
    head, first = [*FIXED_COLUMNS, *extra, *scores, *carried], copies.first_row()
    parts = [sample_columns(subject, name, quality[name], first, [*extra, *scores], carried) for name in subject.splits]
    columns = [list(chain.from_iterable(some)) for some in zip(*parts, strict=True)]
    write_csv(folder / "audit.csv", head, zip(*columns, strict=True))
    write_parquet(folder / "audit.parquet", head, columns)
    write_csv(folder / "pairs.csv", (*Pair._fields, "query_path", "other_path"), pair_lines(subject, explained))
    causes = ("error", "kind", "direction", "place", "row", "influence", "relative", "path")
    write_csv(folder / "causes.csv", causes, cause_lines(subject, explained))
    write_csv(folder / "classes.csv", ClassLine._fields, class_lines(subject, quality))
    write_csv(folder / "duplicates.csv", (*Duplicate._fields, "path", "other_path"), duplicate_lines(subject, copies))
    if subject.items.label_sets is not None:
        write_csv(folder / "labels.csv", QUESTION_COLUMNS, question_lines(subject, quality))
    row = np.concatenate([split.e.row.numpy() for split in subject.splits.values()])
    near = []
    for name, split in subject.splits.items():
        own, place = split.e.row.numpy(), quality[name].near
        near.append(np.where(place >= 0, own[place.clip(0)], -1))
    with atomic_write(folder / "neighbours.npz") as aside, aside.open("wb") as file:
        np.savez_compressed(file, row=row, near=np.concatenate(near))


def path_of(items: Items, row: int) -> str:
    """Return the path of a row as in the data's own table; empty if the data has no paths."""
    return "" if items.path is None else items.path[row]


def carried_columns(items: Items) -> dict[str, Sequence]:
    """Return the columns of the data's own table that audit.csv copies, for the corrected table."""
    columns = {
        name: own
        for name in ("query", "gallery", "group", "camera", "weight")
        if (own := getattr(items, name)) is not None
    }
    if items.gallery is not None and items.gallery_name is not None:
        columns["gallery"] = np.where(items.gallery, items.gallery_name, "")
    if items.group is not None:
        columns["group"] = np.where(items.group < 0, "", items.group.astype(str))
    found = {name: (own.astype(int) if own.dtype == bool else own).tolist() for name, own in columns.items()}
    if items.box is not None:
        found |= {name: ["" if np.isnan(v) else f"{v:g}" for v in side] for name, side in zip(BOX_CORNERS, items.box.T)}
    return found


def sample_columns(
    subject: Subject, name: str, found: SplitQuality, first: dict[int, int], scores: list[str], carried: dict
) -> list[list]:
    """Return the columns of audit.csv for one split.

    Args:
        first: row -> lowest row among its exact copies, for rows that have exact copies.
        scores: names of the single scores, after "off_topic" if that is written.
    """
    split, items, state = subject.splits[name], subject.items, found.state
    known = found.single if found.quality.off_topic is None else {"off_topic": found.quality.off_topic, **found.single}
    rows, shown = split.e.row.tolist(), "" if name == UNSPLIT_NAME else name
    suggestion: list[list[str]] = [[""] * len(rows) for _ in range(4)]
    flagged = found.flagged.numpy()
    told = (state != "ok") | flagged
    told[list(found.copies)] = True
    for place in np.flatnonzero(told).tolist():
        for column, cell in zip(
            suggestion, suggestion_cells(subject, name, found, place, str(state[place]), flagged), strict=True
        ):
            column[place] = cell
    return [
        rows, [path_of(items, row) for row in rows], [split.names[n] for n in split.e.y.tolist()],
        numbers(found.quality.score.tolist()), state.tolist(), *suggestion, [shown] * len(rows),
        [first.get(row, "") for row in rows],
        *(numbers(known[s].tolist()) if s in known else [""] * len(rows) for s in scores),
        *([column[row] for row in rows] for column in carried.values()),
    ]  # fmt: skip


def suggestion_cells(
    subject: Subject, name: str, found: SplitQuality, place: int, state: str, flagged: Bool[np.ndarray, "N"]
) -> list[str]:
    """Return suggested label, confidence, margin and reason of a sample; without a suggestion unless its label is suspect.

    Args:
        flagged: `found.flagged`, which is computed anew at every access.
    """
    evidence = found.copies.get(place)
    said = "" if evidence is None else evidence.reason
    if state == "unknown":
        return ["", "", "", said or found.quality.unknown_reason]
    if state == "off-topic":
        return ["", "", "", found.blank.get(place) or said or "fits no class"]
    if not flagged[place]:
        return ["", "", "", said]
    split = subject.splits[name]
    own, (other, sure, ahead) = split.names[int(split.e.y[place])], found.suggestion(place, subject.items.class_name)
    labels = [split.names[int(split.e.y[n])] for n in found.near[place] if n >= 0]
    if other == own:  # all other classes have one sample, so that none can be suggested
        return ["", "", "", said]
    if subject.items.label_sets is not None:
        return [other, number(sure), number(ahead), said or changed_labels(own, other)]
    return [other, number(sure), number(ahead), said or reason(labels, own, other)]


def reason(labels: list[str], own: str, other: str) -> str:
    """Return the labels of the nearest neighbours in a few words."""
    if not labels:
        return ""
    return f"{len(labels)} nearest: {labels.count(other)} with the suggested label, {labels.count(own)} with the given label"


def changed_labels(own: str, other: str) -> str:
    """Return the labels that a suggested set adds and takes away, in a few words."""
    given, suggested = split_labels(own), split_labels(other)
    missing, superfluous = (", ".join(x for x in a if x not in b) for a, b in ((suggested, given), (given, suggested)))
    return "; ".join(
        f"{word}: {names}" for word, names in (("missing", missing), ("superfluous", superfluous)) if names
    )


def question_lines(subject: Subject, quality: dict[str, SplitQuality]) -> Iterable[list]:
    """Yield the lines of labels.csv (`QUESTION_COLUMNS`), the most suspect first.

    Given labels that cannot be scored come last, with the state unknown.
    """
    names, lines = subject.items.label_name or (), []
    for found in scored_sets(subject, quality):
        states, wrong = found.states, found.states.wrong
        kept = (wrong >= MIN_LISTED_PROBABILITY) | wrong.isnan()
        place, label = states.row[kept], states.label[kept]
        beside = zip(*(near_rows(found, place, label, given) for given in (True, False)), strict=True)
        facts = zip(
            place.tolist(), label.tolist(), wrong[kept].tolist(), states.has[kept].tolist(), beside, strict=True
        )
        for one, n, chance, given, near in facts:
            row = int(found.row[one])
            unknown = math.isnan(chance)
            state = "unknown" if unknown else "flagged" if chance > 0.5 else "ok"
            kind = "superfluous" if given else "missing"
            cells = [row, path_of(subject.items, row), names[n], kind, number(chance), state]
            lines.append(((unknown, 0 if unknown else -chance, row, n), [*cells, states.reason[n], *near]))
    yield from (line for _, line in sorted(lines))


def near_rows(found: ScoredSets, place: Int[Tensor, "q"], label: Int[Tensor, "q"], has: bool) -> list[str]:
    """Return for each question the rows of the nearest samples that surely have the label, or surely have it not."""
    rows, z, states = found
    surely, flagged, listed = states.has & ~states.flagged, states.flagged, []
    for some in torch.arange(len(place)).split(max(1, SIMILARITY_BLOCK_SIZE // max(1, len(z)))):
        similarity = z[place[some]] @ z.T
        similarity[torch.arange(len(some)), place[some]] = -torch.inf
        for n in label[some].unique().tolist():
            mine = states.label == n
            sure = torch.zeros(len(z), dtype=torch.bool)
            if has:
                sure[states.row[mine & surely]] = True
            else:
                sure[:] = True
                sure[states.row[mine & (states.has | flagged)]] = False
            similarity[label[some] == n] = similarity[label[some] == n].masked_fill(~sure, -torch.inf)
        top = similarity.topk(min(STORED_EXAMPLES_COUNT, len(z)), 1)
        for values, near in zip(top.values, top.indices, strict=True):
            listed.append(" ".join(str(int(rows[n])) for n in near[values > -torch.inf]))
    return listed


def pair_lines(subject: Subject, explained: ExplainedErrors) -> Iterable[list]:
    """Yield the lines of pairs.csv."""
    row = np.append(subject.test.e.row.numpy(), -1)  # position -1, no sample, gives row -1
    found = explained.pairs
    for kind, pairs in (("confusion", found.confusion), ("mis-similar", found.mis_similar)):
        query, partner, wrong, mate = (row[t.numpy()].tolist() for t in pairs[:4])
        for q, p, d, w, m in zip(query, partner, pairs.distance.tolist(), wrong, mate):
            yield [q, p, kind, number(d), w, m, path_of(subject.items, q), path_of(subject.items, p)]


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
                cells = [error, kind, way, rank, row[at], number(value), number(value / spread)]
                yield [*cells, path_of(subject.items, int(row[at]))]


def class_lines(subject: Subject, quality: dict[str, SplitQuality]) -> Iterable[list]:
    """Yield the lines of classes.csv."""
    names = subject.items.class_name
    for name in subject.splits:
        c = quality[name].classes
        for at, label in enumerate(c.label.tolist()):
            target = names[c.target[at]] if c.target[at] >= 0 else ""
            share = number(c.moved[at] / c.size[at])
            shown = "" if name == UNSPLIT_NAME else name
            line = [shown, names[label], c.size[at], c.moved[at], share, target, number(c.entropy[at]), c.kind[at]]
            if c.partner is None or c.overlap is None:
                yield [*line, "", "", "unknown"]
                continue
            partner = names[c.partner[at]] if c.partner[at] >= 0 else ""
            yield [*line, partner, number(c.overlap[at]), c.state[at]]


def duplicate_lines(subject: Subject, copies: Copies) -> Iterable[list]:
    """Yield the lines of duplicates.csv."""
    names, y, (row, split_of, found) = list(subject.splits), subject.items.y, copies
    columns = (found.row, found.other, found.similarity, found.bits, found.kind, found.probability)
    for a, b, similarity, bits, kind, probability in zip(*columns, strict=True):
        splits = f"{names[split_of[a]]}-{names[split_of[b]]}"
        same = int(y[row[a]] == y[row[b]])
        numbers = [number(similarity), "" if bits < 0 else int(bits)]
        paths = [path_of(subject.items, int(row[at])) for at in (a, b)]
        yield [row[a], row[b], *numbers, kind, splits, same, number(probability), *paths]


def number(value: SupportsFloat) -> str:
    """Return a number as text with six digits; empty for NaN."""
    return "" if math.isnan(value) else f"{float(value):.6g}"


def numbers(values: Iterable[float]) -> list[str]:
    """Return numbers as text; see `number`."""
    return ["" if value != value else f"{value:.6g}" for value in values]


def write_parquet(file: Path, head: Sequence[str], columns: Sequence[Sequence]) -> None:
    """Write a table as Parquet: numbers as numbers, empty cells as null."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    text = {"path", "label", "state", "suggested", "reason", "split", "group", "camera", "gallery"}
    written = {}
    for name, column in zip(head, columns, strict=True):
        if name in text:
            written[name] = text_column([str(v) for v in column])
        else:
            kind = int if name in ("row", "query", "same_as") else float
            written[name] = [None if v == "" else kind(v) for v in column]
    with atomic_write(file) as aside:
        pq.write_table(pa.table(written), aside)
