"""Items of the review page: filter and content."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from likewise.audit.read import Findings

MAX_SHOWN_SAMPLES = 6
"""Maximum number of exemplars of a class, of neighbours, and of causes of each direction."""


@dataclass(frozen=True)
class ItemFilter:
    """Items that the page requests.

    They may be limited to one class (given or suggested), to one split (samples) or type (pairs), to a maximum score, and to one
    state.
    """

    kind: Literal["sample", "pair"]
    label: str = ""
    among: str = ""
    most: float = math.inf
    show: Literal["open", "all", "disputed"] = "open"
    state: str = ""


def matches_filter(findings: Findings, item: str, wanted: ItemFilter) -> bool:
    """Return whether an item matches the filter."""
    if wanted.kind == "pair":
        pair = findings.pair[item]
        labels, among, score = [findings.sample[row].label for row in (pair.query, pair.wrong)], pair.type, -math.inf
        state = wanted.state
    else:
        one = findings.sample[int(item)]
        labels, among, score, state = [one.label, one.suggested], one.split, one.score, one.state
        score = -math.inf if score is None else score
    return (
        wanted.label in ("", *labels)
        and wanted.among in ("", among)
        and wanted.state in ("", state)
        and score <= wanted.most
    )


def shown(findings: Findings, item: str) -> dict:
    """Return the content of an item, a sample or a pair, for the page.

    A sample has one panel. A pair has up to three: the query, its nearest sample of another class, and its nearest sample of its
    own class.
    """
    pair = findings.pair.get(item)
    rows = [row for row in (pair.query, pair.wrong, pair.mate) if row >= 0] if pair else [int(item)]
    panels = [
        {
            **{k: v for k, v in findings.sample[row]._asdict().items() if k != "carried"},
            "advice": findings.sample[row].decision,
            "copies": [named(findings, other) for other in findings.copies_of(row)[:MAX_SHOWN_SAMPLES]],
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
    """Return the row and the label of a sample."""
    return {"row": row, "label": findings.sample[row].label}


def exemplars(findings: Findings, row: int, label: str, but: list[int]) -> list[dict]:
    """Return samples of a class, from the split of `row` if it has the class, the least suspect first."""
    split = findings.sample[row].split
    return [named(findings, one) for one in findings.exemplars(split, label, MAX_SHOWN_SAMPLES, but)]
