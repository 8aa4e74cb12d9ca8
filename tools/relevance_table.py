"""Table of the losses by what they take of a relevance, for docs/relevance.md, from the contracts of the losses."""

from __future__ import annotations

from likewise.core.settings.spec import find

BEGIN, END = "<!-- losses begin -->", "<!-- losses end -->"
"""Lines around the table in the page."""

TAKES = {"pairs": "pairs", "targets": "several labels or soft targets for proxies", "triplets": "judged triplets"}
"""Input of a relevance -> words of the table."""


def table() -> str:
    """Return one row per loss: what it takes, and whether it uses the value or a threshold."""
    lines = ["| loss | takes | how |", "|---|---|---|"]
    for name, loss in find("losses").items():
        takes = ", ".join(TAKES[one] for one in loss.relevance_inputs) or "-"
        how = "the value" if loss.graded else "the threshold" if loss.relevance_inputs else "single labels only"
        lines.append(f"| [{name}](components/losses.md#{name.lower()}) | {takes} | {how} |")
    return "\n".join(lines)


def with_table(page: str) -> str:
    """Return the text of a page with the table between its two marks."""
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n\n{table()}\n\n{END}{after}"
