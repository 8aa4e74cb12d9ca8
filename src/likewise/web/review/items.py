"""Which items the page asks for, and what it shows of one."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from likewise.audit.read import Findings

MAX_SHOWN_SAMPLES = 6
"""Exemplars of a class, neighbours, and causes of each direction."""


@dataclass(frozen=True)
class ItemFilter:
    """Which items the page wants: where it says so, of one class (claimed or suggested), among one split of the samples or one
    type of the pairs, and up to a score."""

    kind: Literal["sample", "pair"]
    label: str = ""
    among: str = ""
    most: float = math.inf
    show: Literal["open", "all", "disputed"] = "open"


def matches_filter(findings: Findings, item: str, asked: ItemFilter) -> bool:
    if asked.kind == "pair":
        pair = findings.pair[item]
        labels, among, score = [findings.sample[row].label for row in (pair.query, pair.wrong)], pair.type, -math.inf
    else:
        one = findings.sample[int(item)]
        labels, among, score = [one.label, one.suggested], one.split, one.score
    return asked.label in ("", *labels) and asked.among in ("", among) and score <= asked.most


def shown(findings: Findings, item: str) -> dict:
    """What the page shows of an item.

    A pair has three panels: the query, its nearest of another class, and its nearest of its own, unless it is alone there.
    """
    pair = findings.pair.get(item)
    rows = [row for row in (pair.query, pair.wrong, pair.mate) if row >= 0] if pair else [int(item)]
    panels = [
        {
            **{k: v for k, v in findings.sample[row]._asdict().items() if k != "carried"},
            "claimed": exemplars(findings, row, findings.sample[row].label, rows),
            "instead": exemplars(findings, row, findings.sample[row].suggested, rows),
            "near": [named(findings, other) for other in findings.near.get(row, [])[:MAX_SHOWN_SAMPLES]],
        }
        for row in rows
    ]
    if pair is None:
        return {"panels": panels}
    found = findings.causes.get((pair.type, item), {})
    causes = {
        name: [{**named(findings, c.row), "relative": c.relative} for c in found.get(name, [])[:MAX_SHOWN_SAMPLES]]
        for name in ("harmful", "helpful")
    }
    return {"panels": panels, "type": pair.type, "distance": pair.distance, **causes}


def named(findings: Findings, row: int) -> dict:
    return {"row": row, "label": findings.sample[row].label}


def exemplars(findings: Findings, row: int, label: str, but: list[int]) -> list[dict]:
    """Samples of a class in the row's own part, the least suspect first."""
    members = findings.members.get((findings.sample[row].split, label), [])[: MAX_SHOWN_SAMPLES + len(but)]
    return [named(findings, row) for row in members if row not in but][:MAX_SHOWN_SAMPLES]
