"""Scores with their intervals on the terminal."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from likewise.core.errors import print_text, printable
from likewise.core.notebook import table, view
from likewise.core.render.tables import escape
from likewise.core.settings import Evaluate
from likewise.score.metrics import as_text, is_set_metric

COLUMN_HEADS = ("metric", "mean", "95 % interval", "mean over classes")
"""Heads of the table of scores."""

CORRECTED_HEAD = "under true labels"
"""Head of the column of scores that are corrected for wrong test labels."""

MAX_SHOWN_LABELS = 10
"""Labels in the table of labels, those of the lowest scores."""


class Scored(dict):
    """The content of scores.json."""

    @view
    def _repr_html_(self) -> str:
        if "interval_over" not in self:  # only metrics of the whole set
            return table(
                "scores", score_heads(self)[:2], [line[:2] for line in score_lines(self)], interval_lines(self)
            )
        notes = [f"{self['queries']} queries scored, {self['unscored']} not (no relevant rows)", *sample_lines(self)]
        notes += [f"{self['similarity']} similarity in {self['dim']} dimensions", *interval_lines(self)]
        notes += [*corrected_notes(self), *label_lines(self)]
        notes += [self["leaks"]] if self.get("leaks") else []
        title = f"scores, {self['split']} split" if "split" in self else "scores"
        return table(title, score_heads(self), score_lines(self), notes)


def by_gallery(title: str, scores: dict) -> dict[str, dict]:
    """Return a column of scores for the whole gallery and one for each named gallery: title -> scores."""
    alone = {f"gallery {name}": found for name, found in scores.get("galleries", {}).items()}
    return {"all galleries" if alone else title: scores, **alone}


def show_scores(columns: dict[str, dict], run: str | Path = "RUN") -> None:
    """Print scores with their intervals, and the number of queries that could not be scored.

    Args:
        run: the folder of the run, in the calls that are printed.
    """
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
    for scores in columns.values():
        if "other_cameras" in scores:
            show_cameras(scores)
    if not has_queries:
        print(f"{first['rows']} rows of {first['dim']} dimensions, scaled to unit length; no queries")
        for line in [*sample_lines(first), *interval_lines(first)]:
            print(printable(line))
        return
    apart = len({scores["unscored"] for scores in columns.values()}) > 1
    for title, scores in columns.items() if apart else [("", first)]:
        print(
            f"{title and f'{printable(title)}: '}{scores['queries']} queries scored, {scores['unscored']} not (no relevant rows)"
        )
    for line in [*metric_lines(first["metrics"]), *sample_lines(first), *relevance_lines(first), *tree_lines(first)]:
        print(printable(line))
    if first.get("labels"):
        show_labels(first["labels"])
    print(f"{first['similarity']} similarity in {first['dim']} dimensions")
    notes: dict[str, list[str]] = {}  # line -> columns that it is about
    for title, scores in columns.items():
        for line in interval_lines(scores):
            notes.setdefault(line, []).append(title)
    for line, titles in notes.items():
        print(line if len(titles) == len(columns) else f"{printable(', '.join(titles))}: {line}")
    for line in [*(corrected_notes(first) if corrected else ()), *label_lines(first, run)]:
        print(printable(line))
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


def sample_lines(scores: Mapping) -> list[str]:
    """Return a line about the sample of queries, with the intervals of the means over all queries; [] without a sample."""
    sample, pairs, lines = scores.get("sample"), scores.get("pairs_sample"), []
    if sample:
        lines.append(
            f"estimates from a random sample of {sample['queries']:,} of {sample['of']:,} queries (stratified by class, seed "
            f"{sample['seed']}), each ranked exactly against the whole gallery"
        )
    if pairs:
        lines.append(
            f"metrics over pairs: estimates from {pairs['rows']:,} random rows of {pairs['of']:,} with all others"
        )
    ends = {
        name: " to ".join(as_text(name, end) for end in both)
        for name, both in scores.get("sample_interval", {}).items()
    }
    spans = ", ".join(f"{name} {span}" for name, span in ends.items())
    return lines + ([f"95 % intervals of the values without sampling, on the same rows: {spans}"] if spans else [])


def relevance_lines(scores: Mapping) -> list[str]:
    """Return a line about what is relevant, if not rows of the query's class; [] otherwise."""
    facts = scores.get("relevance")
    if not facts:
        return []
    judged = f"; {facts['triplets']:,} judged triplets" if "triplets" in facts else ""
    spec = facts["spec"]
    if facts["relevant"] == "any label shared":  # the threshold is that of a training
        spec = re.sub(r",? ?threshold=[^,)]*", "", spec)
    return [f"relevance: {spec}; relevant: {facts['relevant']}{judged}"]


def show_labels(labels: Mapping) -> None:
    """Print R@k of the labels with the lowest values, and the mean over labels."""
    names = list(labels["mean"])
    worst = sorted(labels["each"].items(), key=lambda pair: pair[1]["metrics"][names[0]])[:MAX_SHOWN_LABELS]
    table = Table("label", *map(escape, names), "queries")
    for label, one in worst:
        cells = (with_interval(name, one["metrics"][name], one["interval"].get(name)) for name in names)
        table.add_row(escape(label), *cells, str(one["queries"]))
    table.add_row("mean over labels", *(as_text(name, labels["mean"][name]) for name in names), "")
    Console().print(table)
    if labels["count"] > len(worst):
        print(
            f"the {len(worst)} labels of lowest {names[0]} of {labels['count']:,}; relevant here: rows with that label"
        )


def with_interval(name: str, value: float, ends: Sequence[float] | None) -> str:
    """Return a value as text, with the ends of its interval in percent: "49.6 % (46.9 to 52.2)"."""
    return as_text(name, value) + (" ({:.1f} to {:.1f})".format(*(100 * end for end in ends)) if ends else "")


def interval_lines(scores: Mapping) -> list[str]:
    """Return what the intervals hold for, and for each reason for no interval, or for no value, its metrics."""
    over, lines = scores.get("interval_over"), []
    if scores.get("interval"):
        claims = {"classes": "other classes", "label sets": "other sets of the same labels, not for other labels"}
        claim = claims.get(over or "", "other queries of these few classes, not for other classes")
        lines.append(f"intervals over {over}: they hold for {claim}")
    for part, noun in (("no_value", "value"), ("no_interval", "interval")):
        metrics: dict[str, list[str]] = {}
        for name, reason in scores.get(part, {}).items():
            metrics.setdefault(reason, []).append(name)
        lines += [f"no {noun} for {', '.join(names)}: {reason}" for reason, names in metrics.items()]
    return lines


def metric_lines(metrics: Collection[str]) -> list[str]:
    """Return a line for each default metric whose name does not explain itself."""
    lines = {
        "RP": "RP: share of relevant rows among a query's R nearest, if R rows are relevant to it",
        "MAP@R": "MAP@R: mean over a query's R nearest rows of the precision up to a relevant row, 0 for other rows",
    }
    return [line for name, line in lines.items() if name in metrics]


def label_lines(scores: Mapping, run: str | Path = "RUN") -> list[str]:
    """Return a line if many labels of the scored rows look wrong, with the calls that show and correct them; [] if not."""
    wrong = scores.get("wrong_labels")
    if not wrong:
        return []
    name = shlex.quote(str(run))
    return [
        f"about {wrong['count']:,} of {wrong['of']:,} test labels look wrong, which lowers the scores; "
        f"see `likewise audit {name}`, `likewise evaluate {name} --correct-test-labels review.csv` (writes a form to fill in)"
    ]


def tree_lines(scores: Mapping) -> list[str]:
    """Return lines about the class tree of the scores: its levels, the queries of its metrics, and how bad mistakes are."""
    tree = scores.get("tree")
    if not tree:
        return []
    sizes = ", ".join(
        f"{name} {groups} {'group' if groups == 1 else 'groups'}" for name, groups in tree["levels"].items()
    )
    fewer = ", ".join(f"{name} {n}" for name, n in scores.get("scored", {}).items())
    lines = [f"class tree of height {tree['height']}, coarsest level first: {sizes or 'no levels'}"]
    lines += [f"queries of metrics that are not defined for all: {fewer}"] if fewer else []
    if mistakes := tree.get("mistakes_by_height"):
        count = sum(mistakes.values())
        shares = ", ".join(f"{height}: {100 * n / count:.1f} %" for height, n in mistakes.items())
        mean = sum(int(height) * n for height, n in mistakes.items()) / count
        lines.append(
            f"{count} first results are wrong, by height of the lowest common ancestor: {shares} (mean {mean:.2f})"
        )
    return lines


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
    source = corrected["source"]
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


def show_evaluation(scores: dict, config: Evaluate) -> None:
    """Print the scores of `likewise evaluate`, and where they are stored; nothing with --quiet."""
    if config.quiet:
        return
    title = config.checkpoint if "checkpoint" in scores else "embeddings"
    if config.split != "test":
        title = f"{title}, {config.split} split"
    else:
        title = {"best": "test split", "untrained": "before training"}.get(title, title)
    show_scores(by_gallery(f"{title} of other data" if "data" in scores else title, scores), config.target)
    if config.out:
        print_text(f"scores: {config.out}")
    elif "data" in scores:
        print_text("not stored; the run keeps the scores of its own data (--out FILE.json stores these)")
