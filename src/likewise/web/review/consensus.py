"""What comes out of a review: how far reviewers agree, and the tables of what they changed."""

from __future__ import annotations

import csv
import io
import itertools
import math
import operator
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from likewise.audit.read import Findings
from likewise.web.review.store import Decision

FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n")
"""First signs of what a spreadsheet takes for a formula."""


class Consensus(NamedTuple):
    """What reviewers make of an item together, and who said so."""

    choice: str
    label: str
    by: list[Decision]


def agreement(decisions: Iterable[Decision]) -> list[tuple[str, str, str, int, float]]:
    """Cohen's kappa for every kind and two reviewers: (kind, one, other, items of both, kappa); NaN where undefined.

    Formula: (p - q) / (1 - q), p the share of items judged alike, q the share expected of two who judge independently.
    """
    said = defaultdict(dict)
    for d in decisions:
        said[d.kind, d.reviewer][d.item] = (d.choice, d.label)
    found = []
    for (kind, one), (same, other) in itertools.combinations(sorted(said), 2):
        both = sorted(said[kind, one].keys() & said[same, other].keys()) if kind == same else []
        if both:
            mine, theirs = ([said[kind, who][item] for item in both] for who in (one, other))
            p = sum(map(operator.eq, mine, theirs)) / len(both)
            count, again = Counter(mine), Counter(theirs)
            q = sum(count[v] * again[v] for v in count) / len(both) ** 2
            found.append((kind, one, other, len(both), (p - q) / (1 - q) if q < 1 else math.nan))
    return found


def find_consensus(decisions: Iterable[Decision]) -> dict[str, Consensus]:
    """By item. Unsure ones have no say. Where the others differ it is "disputed", and nothing changes until they agree."""
    said = defaultdict(list)
    for d in decisions:
        if d.choice != "unsure":
            said[d.item].append(d)
    found = {}
    for item, by in said.items():
        views = {(d.choice, d.label) for d in by}
        found[item] = Consensus(*(views.pop() if len(views) == 1 else ("disputed", "")), by)
    return found


def corrected(findings: Findings, decisions: Iterable[Decision], root: str = "") -> list[tuple]:
    """The data's table with the changes made, for `likewise train`: removed rows are gone, relabelled ones have their new label.

    Without pictures it is a table of labels for embeddings (`--labels`), a line for every one of them: removed rows stay, in no
    split, and so do those that the audit did not look at.
    """
    settled, samples = find_consensus(decisions), findings.sample
    names = tuple(next(iter(samples.values())).carried)
    if any(s.path for s in samples.values()):
        table: list[tuple] = [("path", "label", *names, "row")]
        for s in samples.values():
            choice, label, _ = settled.get(str(s.row), ("keep", "", ()))
            if choice != "remove":
                table.append((os.path.join(root, s.path), label or s.label, *s.carried.values(), s.row))
        return table
    table = [("label", *names, "row")]
    empty = {name: "0" if name == "weight" else "" for name in names}
    for row in range(findings.about["rows"]):
        s, (choice, label, _) = samples.get(row), settled.get(str(row), ("keep", "", ()))
        carried = empty if s is None else {**s.carried, "split": ""} if choice == "remove" else s.carried
        table.append((label or (s.label if s else "not audited"), *carried.values(), row))
    return table


def changes(findings: Findings, decisions: Iterable[Decision]) -> list[tuple]:
    """One line for every sample that is removed, relabelled or disputed."""
    table: list[tuple] = [("row", "path", "label", "change", "new_label", "reviewers", "notes")]
    settled = find_consensus(d for d in decisions if d.kind == "sample")
    for item, (choice, label, by) in sorted(settled.items(), key=lambda one: int(one[0])):
        if choice != "keep":
            s, who = findings.sample[int(item)], "; ".join(f"{d.reviewer}: {d.choice} {d.label}".strip() for d in by)
            table.append((s.row, s.path, s.label, choice, label, who, "; ".join(d.note for d in by if d.note)))
    return table


def as_csv(table: Iterable[Iterable]) -> str:
    """Return a table as CSV with every value as it is, which programs read back."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(table)
    return out.getvalue()


def escape_formulas(table: Iterable[Iterable]) -> Iterator[list]:
    """Yield the lines of a table with texts that a spreadsheet would run as formulas behind an apostrophe.

    `corrected` does without: a class may be called "-", and training must read the very label.
    """
    for line in table:
        yield [f"'{cell}" if isinstance(cell, str) and cell.startswith(FORMULA_STARTS) else cell for cell in line]
