"""Scores with their intervals on the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table

from likewise.errors import printable
from likewise.metrics import as_text, is_set_metric
from likewise.render.tables import escape


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
    if alone:
        table.add_column("mean over classes")
    for name in first["metrics"]:
        cells = []
        for scores in columns.values():
            value, ends = scores["metrics"].get(name), scores.get("interval", {}).get(name)
            cells.append("" if value is None else with_interval(name, value, ends))
        cells += [as_text(name, first["class_mean"][name]) if name in first["class_mean"] else ""] if alone else []
        table.add_row(name, *cells)
    Console().print(table)
    for scores in columns.values():
        if "other_cameras" in scores:
            show_cameras(scores)
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
    if first["similarity"] != "cosine" and any(map(is_set_metric, first["metrics"])):
        print("metrics of the whole set use unit vectors for every similarity")
    if "length" in first:
        print("embeddings of length {:.3g} to {:.3g}".format(*first["length"]))
    if first.get("note"):
        print(printable(first["note"]))
    if first.get("leaks"):
        print(printable(first["leaks"]))
    if first.get("best_test_epoch"):
        best = ", ".join(f"{name} {as_text(name, value)}" for name, value in first["best_test_epoch"].items())
        print(f"best test epoch (selected on the test split, so not a valid result): {best}")


def by_camera(scores: Mapping) -> dict[str, dict]:
    """Return the scores of the queries of each camera, and of a gallery of the other cameras only: title -> scores."""
    alone = {f"camera {name}": found for name, found in scores.get("cameras", {}).items()}
    return alone | ({"other cameras only": scores["other_cameras"]} if "other_cameras" in scores else {})


def show_cameras(scores: Mapping) -> None:
    """Print the scores of the queries of each camera, and of a gallery without the camera of the query."""
    names = list(scores["other_cameras"]["metrics"])
    table = Table("", *map(escape, names), "queries")
    for title, found in by_camera(scores).items():
        cells = [as_text(name, found["metrics"][name]) if found["metrics"] else "" for name in names]
        table.add_row(escape(title), *cells, str(found["queries"]))
    Console().print(table)
    print(
        "camera: the queries of one camera; other cameras only: all queries, without gallery rows of the query's camera"
    )


def with_interval(name: str, value: float, ends: Sequence[float] | None) -> str:
    """Return a value as text, with the ends of its interval in percent: "49.6 % (46.9 to 52.2)"."""
    return as_text(name, value) + (" ({:.1f} to {:.1f})".format(*(100 * end for end in ends)) if ends else "")


def score_lines(scores: Mapping) -> list[list[str]]:
    """Return one row of texts per metric: name, mean, interval, mean over classes."""
    lines = []
    for name, value in scores["metrics"].items():
        ends, mean = scores.get("interval", {}).get(name), scores.get("class_mean", {}).get(name)
        span = "" if ends is None else " to ".join(as_text(name, end) for end in ends)
        lines.append([name, as_text(name, value), span, "" if mean is None else as_text(name, mean)])
    return lines
