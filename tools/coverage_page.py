"""Generate docs/coverage.md from src/likewise/papers/published/coverage.toml."""

from __future__ import annotations

from pathlib import Path

from likewise.papers.published import papers
from likewise.papers.published.coverage import STATUS_NAMES, STATUS_SIGNS, Covered, coverage, status_counts, title

NOTE = "<!-- Made from src/likewise/papers/published/coverage.toml by tools/docs.py; change that. -->"
ABOUT = """# Coverage of the papers

After this page you know, for every section, table, figure and equation of the five papers that `likewise` follows, which command
runs it, which files define it, and whether it is what the paper states. Of four papers only the supplement was available to us;
what only their main text states is known from public code.

- ✓ **faithful**: what the paper states; where print and public code differ, the remark names what runs.
- ≈ **deviates**: otherwise, and how. Tables mark such numbers with a † ([tables](tables.md)).
- ✕ **cannot**: not possible, and why.

`likewise list tables` prints the tables and figures. A `bench` needs `--root FOLDER` with the data, or `--quick` for a small
test. Misprints, and components that differ from their paper on purpose, are in
[losses](losses.md#differences-from-papers-and-public-code).
"""


def page() -> str:
    """Return the page: the counts, and one table per paper."""
    keys = dict.fromkeys(one.paper for one in coverage())
    heads = [f"{STATUS_SIGNS[name]} {name}" for name in STATUS_NAMES]
    lines = [NOTE, "", ABOUT, f"| paper | {' | '.join(heads)} | all |", f"|---|{'---:|' * (len(heads) + 1)}"]
    lines += [counts(f"[{key}](#{key})", status_counts(key)) for key in keys]
    lines += [counts("all", status_counts()), ""]
    for key in keys:
        lines += [
            f"## {key}",
            "",
            f"{title(papers()[key])}.",
            "",
            "| | where | what | command, files |",
            "|---|---|---|---|",
        ]
        lines += [line(one) for one in coverage() if one.paper == key] + [""]
    return "\n".join(lines)


def counts(name: str, found: dict[str, int]) -> str:
    """Return the counts of a paper as a line of a Markdown table."""
    return f"| {name} | {' | '.join(map(str, found.values()))} | {sum(found.values())} |"


def line(one: Covered) -> str:
    """Return an item as a line of a Markdown table."""
    remark = one.remark and f"<small>{one.remark}</small>"
    remark = remark if one.status == "faithful" else f"**{one.status}**: {one.remark}"
    files = ", ".join(f"[{Path(name).name}](../src/likewise/{name})" for name in one.files)
    cells = [STATUS_SIGNS[one.status], one.where, [one.what, remark], [one.command and f"`{one.command}`", files]]
    texts = ["<br>".join(filter(None, cell)) if isinstance(cell, list) else cell for cell in cells]
    return f"| {' | '.join(text.replace('|', chr(92) + '|') for text in texts)} |"
