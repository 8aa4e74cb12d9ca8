"""Scores with their intervals on the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table

from likewise.errors import printable
from likewise.metrics import as_text, is_set_metric
from likewise.render.tables import escape

COLUMN_HEADS = ("metric", "mean", "95 % interval", "mean over classes")
"""Heads of the table of scores."""

CORRECTED_HEAD = "under true labels"
"""Head of the column of scores that are corrected for wrong test labels."""


def by_gallery(title: str, scores: dict) -> dict[str, dict]:
    """Return a column of scores for the whole gallery and one for each named gallery: title -> scores."""
    alone = {f"gallery {name}": found for name, found in scores.get("galleries", {}).items()}
    return {"all galleries" if alone else title: scores, **alone}


def show_scores(columns: dict[str, dict]) -> None:
    """Print scores with their intervals, and the number of queries that could not be scored."""
    first = next(iter(columns.values()))
    has_queries, has_intervals = "interval_over" in first, bool(first.get("interval"))
    titles = (escape(f"{title} (95 % interval)" if has_intervals else title) for title in columns)
    table = Table("", *titles, show_edge=len(columns) < 3)  # three columns fit into 80 characters without edges
    alone = len(columns) == 1 and has_queries
    corrected = first.get("corrected") if alone else None
    if corrected:
        table.add_column(CORRECTED_HEAD)
    if alone:
        table.add_column("mean over classes")
    for name in first["metrics"]:
        cells = []
        for scores in columns.values():
            value, ends = scores["metrics"].get(name), scores.get("interval", {}).get(name)
            cells.append("" if value is None else with_interval(name, value, ends))
        cells += [corrected_cell(name, first)] if corrected else []
        cells += [as_text(name, first["class_mean"][name]) if name in first["class_mean"] else ""] if alone else []
        table.add_row(name, *cells)
    Console().print(table)
    if not has_queries:
        print(f"{first['rows']} rows of {first['dim']} dimensions, scaled to unit length; no queries")
        return
    apart = len({scores["unscored"] for scores in columns.values()}) > 1
    for title, scores in columns.items() if apart else [("", first)]:
        print(
            f"{title and f'{printable(title)}: '}{scores['queries']} queries scored, {scores['unscored']} not (no relevant rows)"
        )
    over = f"intervals: bootstrap over {first['interval_over']}" if has_intervals else "too few queries for intervals"
    print(f"{first['similarity']} similarity in {first['dim']} dimensions; {over}")
    for line in corrected_notes(first) if corrected else ():
        print(printable(line))
    if first["similarity"] != "cosine" and any(map(is_set_metric, first["metrics"])):
        print("metrics of the whole set use unit vectors for every similarity")
    if "length" in first:
        print("embeddings of length {:.3g} to {:.3g}".format(*first["length"]))
    if first.get("leaks"):
        print(printable(first["leaks"]))
    if first.get("best_test_epoch"):
        best = ", ".join(f"{name} {as_text(name, value)}" for name, value in first["best_test_epoch"].items())
        print(f"best test epoch (selected on the test split, so not a valid result): {best}")


def with_interval(name: str, value: float, ends: Sequence[float] | None) -> str:
    """Return a value as text, with the ends of its interval in percent: "49.6 % (46.9 to 52.2)"."""
    return as_text(name, value) + (" ({:.1f} to {:.1f})".format(*(100 * end for end in ends)) if ends else "")


def corrected_cell(name: str, scores: Mapping) -> str:
    """Return the corrected score of a metric as text: with its interval, or "unknown"; "" if nothing was corrected."""
    found = (scores.get("corrected") or {"metrics": {}})["metrics"].get(name)
    if found:
        return with_interval(name, found[0], found[1:])
    return "unknown" if scores.get("corrected") else ""


def corrected_notes(scores: Mapping) -> list[str]:
    """Return sentences about corrected scores: their source, what the interval covers, and why a metric has none."""
    corrected = scores.get("corrected")
    if not corrected:
        return []
    reasons: dict[str, list[str]] = {}
    for name, reason in corrected["unknown"].items():
        reasons.setdefault(reason, []).append(name)
    source = {"audit": "posterior of the labels"}.get(corrected["source"], corrected["source"])
    first = (
        f"{CORRECTED_HEAD}: estimated from {source}; the interval covers the labels of these rows, not other classes"
    )
    return [first, *(f"unknown {', '.join(names)}: {reason}" for reason, names in reasons.items())]


def score_heads(scores: Mapping) -> list[str]:
    """Return the heads of the columns of `score_lines`."""
    return [*COLUMN_HEADS, *([CORRECTED_HEAD] if scores.get("corrected") else [])]


def score_lines(scores: Mapping) -> list[list[str]]:
    """Return one row of texts per metric: name, mean, interval, mean over classes, and the corrected score if there is one."""
    lines = []
    for name, value in scores["metrics"].items():
        ends, mean = scores.get("interval", {}).get(name), scores.get("class_mean", {}).get(name)
        span = "" if ends is None else " to ".join(as_text(name, end) for end in ends)
        lines.append([name, as_text(name, value), span, "" if mean is None else as_text(name, mean)])
        lines[-1] += [corrected_cell(name, scores)] if scores.get("corrected") else []
    return lines
