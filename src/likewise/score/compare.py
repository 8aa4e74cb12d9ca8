"""compare: the differences of the metrics of two runs, with intervals, and the classes and queries that changed."""

from __future__ import annotations

import dataclasses
import shlex
import textwrap
from pathlib import Path, PurePath
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from rich.console import Console
from rich.table import Table

from likewise.core.devices import choose_device
from likewise.core.errors import nearest_name, print_text
from likewise.core.files import atomic_write, check_output_path, write_csv
from likewise.core.notebook import table, view
from likewise.core.render.figures import BETTER_COLOUR, FAINT_COLOUR, INK_COLOUR, SOFT_COLOUR, WORSE_COLOUR, save_figure
from likewise.core.render.gallery import one_line
from likewise.core.render.tables import escape
from likewise.core.settings import Compare, Evaluate, check
from likewise.core.types import LikewiseError
from likewise.data.dataset import load_items, protocol_for
from likewise.runs.folder import Run
from likewise.runs.open import OpenRun
from likewise.runs.scores import PER_QUERY, PerQuery, as_per_query, read_per_query
from likewise.score.checks import check_input, rows_of
from likewise.score.evaluate import OtherData, describe_classes, open_scoring, without_trained
from likewise.score.intervals import MIN_INTERVAL_UNITS, MeanInterval, mean_interval, paired_interval
from likewise.score.metrics import import_metrics, is_graded, is_set_metric, low_is_good, needs_triplets, reach
from likewise.score.retrieve import count_relevant_rows, max_results
from likewise.score.same_queries import join, words_of
from likewise.score.scoring import score_all

ROUNDING_TOLERANCE = 1e-12
"""Smaller differences of a metric count as equal."""


class Compared(dict):
    """The comparison of run B with run A."""

    def _repr_pretty_(self, printer, cycle: bool) -> None:
        printer.text(conclusion(self))  # printing every changed query would take seconds

    @view
    def _repr_html_(self) -> str:
        lines = []
        for name, about in self["metrics"].items():
            ends = about[f"over_{self['over']}"]
            span = "" if ends["low"] is None else f"{100 * ends['low']:+.2f} to {100 * ends['high']:+.2f}"
            sides = (f"{100 * about[side]:.2f}" for side in "ab")
            lines.append((name, *sides, f"{100 * about['difference']:+.2f}", span))
        heads = ("points", "A", "B", "B - A", f"95 % interval over {self['over']}")
        notes = [f"A: {self['a']}", f"B: {self['b']}", *sample_note(self), *no_interval_lines(self), INTERVAL_SCOPE]
        notes = [headline(self), self["on"]["sentence"], *notes] if "on" in self else notes
        return table(f"{conclusion(self)}.", heads, lines, notes)


def compare(config: Compare, say=print) -> Compared:
    """Return B - A for every metric, with 95 % intervals over queries and over classes, as a dict for JSON.

    With `config.on`, both runs are first scored on that data; "on" then has facts about it.
    """
    check(config)
    out = check_output_path(config.out, ".png", "compare") if config.out else None
    changed = check_output_path(config.csv, ".csv", "compare", "--csv") if config.csv else None
    facts = {}
    if config.on:
        ((a, about_a), (b, about_b)), facts["on"] = score_sides(config, say)
        a, b = same_relevance(a, b, config.metrics)
        a, b = join(a, b, False) if config.queries else (a, b)
    else:
        for name in ("root", "strict", "queries"):
            if getattr(config, name):
                raise LikewiseError(f"compare: --{name} is for the data of --on; drop it, or give --on DATA")
        (a, about_a), (b, about_b) = open_side(config.run_a), open_side(config.run_b)
        moved = about_a is not None and about_b is not None and about_a["data"] != about_b["data"]
        shared_metrics(a, b, config.metrics)
        a, b = same_relevance(a, b, config.metrics)
        a, b = join(a, b, moved, advice=on_command(config))
    result = differences(config, a, b) | facts
    result["same"] = same(a, b, about_a, about_b)
    if out:
        with atomic_write(out) as aside:
            save_figure(draw_comparison(result), aside)
    if changed:
        write_changes(changed, result)
    return Compared(result)


def differences(config: Compare, a: PerQuery, b: PerQuery) -> dict:
    """Return the result of a comparison of sides with the same queries."""
    compared = shared_metrics(a, b, config.metrics)
    found = {name: difference_intervals(a, b, name) for name in compared if has_queries(a, b, name)}
    if not found:
        raise LikewiseError("compare: no query has a value in A and in B; compare other metrics, such as R@1")
    names = list(found)
    decides = names[0] if config.metrics or "MAP@R" not in names else "MAP@R"
    by_query, classes = found[decides]["queries"], found[decides]["classes"].n
    return {
        "a": config.run_a,
        "b": config.run_b,
        "same": None,
        "queries": by_query.n,
        "classes": classes,
        "unscored": len(a.row) - by_query.n,
        **({"sample": a.sample} if a.sample else {}),
        "decides": decides,
        "over": over(classes),
        "metrics": {
            name: {
                "a": float(np.nanmean(a.each[name])),
                "b": float(np.nanmean(b.each[name])),
                "difference": found[name]["queries"].mean,
                "over_classes": ends(found[name]["classes"]),
                "over_queries": ends(found[name]["queries"]),
                "conclusion": conclude(name, found[name]),
                "classes": by_classes(a, b.each[name] - a.each[name], sign(name)),
                **changes(a, a.each[name], b.each[name], sign(name)),
            }
            for name in names
        },
    }


def sign(name: str) -> int:
    """Return 1 if a high value of a metric is good, else -1."""
    return -1 if low_is_good(name) else 1


def has_queries(a: PerQuery, b: PerQuery, name: str) -> bool:
    """Return whether a query has a value of a metric in A and in B."""
    return not np.isnan(b.each[name] - a.each[name]).all()


def open_side(target: str) -> tuple[PerQuery, dict | None]:
    """Return the queries of a run folder or a per_query.parquet, and the config.json of the run; None for a file."""
    path = Path(target).expanduser()
    if not path.is_dir():
        return read_per_query(path, "compare"), None
    about = Run(path).about
    if not (path / PER_QUERY).exists():
        raise LikewiseError(f"compare: '{target}' has no per_query.parquet; run `likewise evaluate {target}` first")
    return read_per_query(path / PER_QUERY, "compare"), about


def on_command(config: Compare) -> str:
    """Return the call that scores both runs on the data of B, below a sentence; a per_query.parquet stands for its run folder."""
    paths = [Path(run).expanduser() for run in (config.run_a, config.run_b)]
    runs = [path if path.is_dir() else path.parent for path in paths]
    if not all((run / "config.json").is_file() for run in runs):
        return "; compare run folders with --on DATA, which scores both on the same"
    settings = Run(runs[1]).about["config"]
    root = ["--root", settings["root"]] if settings.get("root") else []
    words = ["likewise", "compare", *map(str, runs), "--on", settings["data"], *root]
    return f"\nscore both on the same data:\n  {shlex.join(words)}"


def shared_metrics(a: PerQuery, b: PerQuery, wanted: tuple[str, ...] | None) -> list[str]:
    """Return the metrics to compare: `wanted`, or all that A and B share."""
    both = [name for name in a.each if name in b.each]
    for name in wanted or ():
        if name not in both:
            raise LikewiseError(
                f"compare: '{name}' must have been measured in A ({', '.join(a.each)}) and in B ({', '.join(b.each)})"
                f"{nearest_name(name, both)} Run `likewise evaluate RUN --metrics {name} ...` for both"
            )
    if not both:
        raise LikewiseError(
            f"compare: A and B must share a metric, got {', '.join(a.each)} and {', '.join(b.each)}; "
            "run `likewise evaluate RUN` for both with the same --metrics"
        )
    return list(dict.fromkeys(wanted or both))


def same_relevance(a: PerQuery, b: PerQuery, wanted: tuple[str, ...] | None) -> tuple[PerQuery, PerQuery]:
    """Return A and B with the metrics that mean the same in both; raises if other rows are relevant in A than in B.

    If the same rows are relevant in both, metrics that only count relevant rows are the same in both.
    """
    if a.relevance == b.relevance:
        return a, b
    graded = [name for name in wanted or a.each if depends_on_values(name) and name in b.each]
    only = graded and (wanted or len(graded) == len(a.each.keys() & b.each.keys()))
    if a.meaning != b.meaning or only:
        what = f"{graded[0]} depends on it" if only else f"relevant are: {a.meaning}, and {b.meaning}"
        raise LikewiseError(
            f"compare: A and B must be scored with the same relevance, but A has {a.spec} and B has {b.spec} ({what}); run "
            "`likewise evaluate RUN --relevance NAME(...) --per-query FILE.parquet` for both, and compare the files"
        )
    plain = [{name: value for name, value in side.each.items() if not depends_on_values(name)} for side in (a, b)]
    return dataclasses.replace(a, each=plain[0]), dataclasses.replace(b, each=plain[1])


def depends_on_values(name: str) -> bool:
    """Return whether a metric depends on more of a relevance than on which rows are relevant."""
    return is_graded(name) or needs_triplets([name])


def sample_note(result: dict) -> list[str]:
    """Return a sentence about the sample of queries that both sides have; [] if they have all queries."""
    return [f"Both are scored on the same {words_of(result['sample'])}."] if "sample" in result else []


def same(a: PerQuery, b: PerQuery, about_a: dict | None, about_b: dict | None) -> str | None:
    """Return the reason if A and B have equal results; None if they differ."""
    shown = min(a.nearest.shape[1], b.nearest.shape[1])
    pairs = [(a.nearest[:, :shown], b.nearest[:, :shown]), (a.similarity[:, :shown], b.similarity[:, :shown])]
    pairs += [(value, b.each[name]) for name, value in a.each.items() if name in b.each]
    if all(np.array_equal(old, new, equal_nan=True) for old, new in pairs):
        again = about_a and about_b and about_a["identity"] == about_b["identity"]
        why = "A and B are the same run" if again else "A and B hold the same embeddings"
        return f"{why}: every query finds the same neighbours at the same similarity"
    return None


def difference_intervals(a: PerQuery, b: PerQuery, name: str) -> dict[str, MeanInterval]:
    """Return the intervals of B - A for one metric, over queries and over classes."""
    rivals = None if a.rival is None or b.rival is None else (a.rival, b.rival)
    sides = a.each[name], b.each[name]
    return {"queries": paired_interval(*sides), "classes": paired_interval(*sides, a.label, rivals)}


def over(classes: int) -> str:
    """Return what decides: classes, or queries if there are too few classes for an interval."""
    return "queries" if classes < MIN_INTERVAL_UNITS else "classes"


def ends(found: MeanInterval) -> dict:
    """Return an interval for JSON; its ends and p are None if there is a reason for no interval."""
    named = {name: None if found.reason else getattr(found, name) for name in ("low", "high", "p")}
    return named | {"n": found.n, "reason": found.reason}


def conclude(name: str, found: dict[str, MeanInterval]) -> str:
    """Return the result as a sentence, by the interval over classes; over queries if there are too few classes."""
    classes = found["classes"].n
    units = over(classes)
    mean, low, high = (100 * value for value in found[units][:3])
    limits = "" if units == "classes" else f" of these {classes} classes, too few to generalise to other classes"
    if reason := found[units].reason:
        return f"no difference in {name} can be shown: B - A is {mean:+.2f} points, and there is no 95 % interval: {reason}"
    if low <= 0 <= high:
        span = f"{low:+.2f} to {high:+.2f}"
        return f"no difference in {name} can be shown: B - A is {mean:+.2f} points (95 % interval {span} over {units}{limits})"
    word = "better" if mean * sign(name) > 0 else "worse"
    near, far = (low, high) if mean > 0 else (-high, -low)
    return (
        f"B is {word} by {abs(mean):.2f} points of {name} (95 % interval {near:.2f} to {far:.2f} over {units}{limits})"
    )


def by_classes(a: PerQuery, difference: Float[np.ndarray, "Q"], sign: int = 1) -> dict:
    """Return the number of better, equal and worse classes, and every class with the interval over its queries, best first.

    Args:
        sign: -1 if low values are good.
    """
    scored = np.flatnonzero(~np.isnan(difference))
    order = scored[np.argsort(a.label[scored], kind="stable")]
    starts = np.flatnonzero(np.diff(a.label[order])) + 1
    each = []
    for members in np.split(order, starts):
        interval = mean_interval(difference[members], share=False)
        mean, low, high = (None if np.isnan(v) else float(v) for v in interval[:3])
        name = str(a.class_name[members[0]])
        each.append({"class": name, "queries": interval.n, "difference": mean, "low": low, "high": high})
    each.sort(key=lambda c: -sign * c["difference"])
    better = sum(sign * c["difference"] > ROUNDING_TOLERANCE for c in each)
    worse = sum(sign * c["difference"] < -ROUNDING_TOLERANCE for c in each)
    return {"better": better, "equal": len(each) - better - worse, "worse": worse, "each": each}


def changes(a: PerQuery, old: Float[np.ndarray, "Q"], new: Float[np.ndarray, "Q"], sign: int = 1) -> dict:
    """Return the queries that became better and worse, largest changes first; `sign` is -1 if low values are good.

    "right_or_wrong": the metric has only the values 0 and 1.
    """
    either = np.concatenate([old, new])
    found: dict[str, Any] = {"right_or_wrong": bool(np.isin(either[~np.isnan(either)], (0, 1)).all())}
    for word, gain in (("better", sign * (new - old)), ("worse", sign * (old - new))):
        place = np.flatnonzero(gain > ROUNDING_TOLERANCE)
        place = place[np.argsort(-gain[place], kind="stable")]
        found[word] = [
            {"row": int(a.row[q]), "class": str(a.class_name[q]), "a": float(old[q]), "b": float(new[q])}
            | ({} if a.path is None else {"path": str(a.path[q])})
            for q in place
        ]
    return found


def write_changes(file: Path, result: dict) -> None:
    """Write the queries that changed as a .csv file, with one line for each query and metric."""
    lines = [
        {"metric": name, **query}
        for name, about in result["metrics"].items()
        for query in about["better"] + about["worse"]
    ]
    head = ("metric", "row", "class", "a", "b", "path")
    write_csv(file, head, [[line.get(name, "") for name in head] for line in lines])


def score_sides(config: Compare, say) -> tuple[list[tuple[PerQuery, dict]], dict]:
    """Return the queries of A and B on the data of `config.on`, each with its config.json, and facts about the data for JSON."""
    assert config.on is not None
    runs = [open_side_on(target, config, say) for target in (config.run_a, config.run_b)]
    items = load_items(
        config.on, config.root, strict=config.strict, workers=config.workers, quiet=config.quiet, say=say,
        allow_imports=config.allow_imports,
    )  # fmt: skip
    for opened in runs:
        check_input("compare", str(opened.run.path), opened.run.about["features"], items, config.on)
    data = without_trained(items, config.on, runs)
    metrics = metrics_for(config, data)
    sides = []
    for opened in runs:
        evaluation = Evaluate(str(opened.run.path), metrics=metrics, queries=config.queries)
        e, scoring = open_scoring(opened, data.items, protocol_for(data.items), "test", evaluation)
        _, scores, found = score_all(e, scoring)
        assert found is not None  # `metrics_for` gives metrics per query
        sides.append((as_per_query(scores, found, e, data.items), opened.run.about))
    facts = {"data": config.on, "rows": data.rows, "left_out": data.left_out, "trained": list(data.trained)}
    return sides, facts | {"noun": data.noun, "classes": list(data.classes), "sentence": describe_on(data)}


def open_side_on(target: str, config: Compare, say) -> OpenRun:
    """Return a run to score on other data; raises for a per_query.parquet, which has no network."""
    path = Path(target).expanduser()
    if not path.is_dir():
        raise LikewiseError(
            f"compare: --on scores both runs, so A and B must be run folders, got '{target}'; give its run folder, or drop --on"
        )
    run = Run(path)
    if not run.done:
        say(f"this run is not finished, so its last checkpoint is scored: {run.path}")
    device, quiet = choose_device(config.device), config.quiet
    return OpenRun(run, device=device, allow_imports=config.allow_imports, workers=config.workers, quiet=quiet, say=say)


def metrics_for(config: Compare, data: OtherData) -> tuple[str, ...]:
    """Return the metrics to compare; by default those of `likewise evaluate` that the gallery is large enough for.

    Raises if too few queries are left for an interval, or if a metric is not one per query.
    """
    import_metrics(config.metrics or (), config.allow_imports)
    if whole := [name for name in config.metrics or () if is_set_metric(name)]:
        raise LikewiseError(
            f"compare: the metrics must have a value per query, got '{whole[0]}'; leave it out, or run "
            "`likewise evaluate RUN --data DATA` for both runs"
        )
    left, queries, protocol = data.rows - data.left_out - data.remainder, 0, protocol_for(data.items)
    if left:
        queries = int((count_relevant_rows(data.items, protocol, rows_of(protocol, data.items, "test")) > 0).sum())
    if queries < MIN_INTERVAL_UNITS:
        of_a, of_b = data.trained
        raise LikewiseError(
            f"compare: at least {MIN_INTERVAL_UNITS} queries are needed that neither run trained on, got {queries}: of the "
            f"{data.rows:,} {data.noun} of '{Path(data.name).name}', A trained on {of_a:,} and B on {of_b:,}, {left:,} are left, "
            f"and {queries} of them have another one of their class among these; give new {data.noun}, or train both with the "
            "same test split (column `split`)"
        )
    if config.metrics:
        return config.metrics
    usual: Any = next(f.default for f in dataclasses.fields(Evaluate) if f.name == "metrics")
    available = max_results(*protocol.query_gallery(data.items, rows_of(protocol, data.items, "test")))
    return tuple(name for name in usual if reach([name]).k <= available)


def describe_on(data: OtherData) -> str:
    """Return a sentence about the samples that are left out, and about classes that a run trained on."""
    of_a, of_b = data.trained
    if not data.left_out:
        return f"neither run trained on any of these {data.rows:,} {data.noun}{describe_classes(data)}"
    return (
        f"{data.left_out:,} of the {data.rows:,} {data.noun} are left out, because a run trained on them (A on {of_a:,}, B on "
        f"{of_b:,}){describe_classes(data)}"
    )


MAX_NAMED_CLASSES = 40
"""Largest number of classes that the figure names."""

MAX_LISTED_ITEMS = 3
"""Classes and queries that the terminal lists, for gains and for losses."""

INTERVAL_SCOPE = (
    "Intervals are over the test queries and classes of these two networks. Each network is one training: the intervals do not "
    "cover the variation between seeds (`likewise bench` with several seeds measures it)."
)
"""Sentence below a comparison: what the intervals cover."""


def conclusion(result: dict) -> str:
    """Return the conclusion of a comparison as a sentence without its full stop."""
    sentence = result["same"] or result["metrics"][result["decides"]]["conclusion"]
    return sentence[0].upper() + sentence[1:]


def headline(result: dict) -> str:
    """Return the scores of A and B on the data of `--on` in one line, R@1 first; "" for a comparison of stored scores."""
    if "on" not in result:
        return ""
    on, shown = result["on"], dict.fromkeys(n for n in ("R@1", result["decides"]) if n in result["metrics"])
    values = ", ".join(
        f"{n} {100 * result['metrics'][n]['a']:.1f} -> {100 * result['metrics'][n]['b']:.1f}" for n in shown
    )
    return f"{values} on the same {result['queries']:,} {on['noun']}, by the labels of {PurePath(on['data']).name or on['data']}"


def show_comparison(result: dict, config: Compare) -> None:
    """Print the differences, the classes and queries that changed most, the conclusion, and the files that were written."""
    console, name = Console(highlight=False), result["decides"]
    console.print(f"A  {escape(result['a'])}\nB  {escape(result['b'])}")
    words = [f"95 % over {result[unit]} {unit}" for unit in ("classes", "queries")]
    table = Table("points", "A", "B", "B - A", *words, f"p over {result['over']}")
    moved = Table("", "classes better", "equal", "worse", "queries better", "worse")
    for metric, about in result["metrics"].items():
        table.add_row(
            metric, *(f"{100 * about[side]:.2f}" for side in "ab"), f"{100 * about['difference']:+.2f}",
            _span(about["over_classes"]), _span(about["over_queries"]),
            _p(about[f"over_{result['over']}"]),
        )  # fmt: skip
        counts = [about["classes"][word] for word in ("better", "equal", "worse")]
        kinds = ("fixed", "broken") if about["right_or_wrong"] else ("", "")
        counts += [f"{len(about[word])} {kind}".strip() for word, kind in zip(("better", "worse"), kinds)]
        moved.add_row(metric, *map(str, counts))
    console.print(table, moved)
    show_extremes(console, name, result["metrics"][name])
    for line in [*sample_note(result), *no_interval_lines(result)]:
        console.print(escape(line), style="dim")
    if "on" in result:
        sentence = result["on"]["sentence"]
        console.print(f"{escape(sentence[0].upper() + sentence[1:])}.")
    console.print(f"Queries without relevant rows, left out: {result['unscored']}. {INTERVAL_SCOPE}", style="dim")
    for what, file in (("figure", config.out), ("queries that changed", config.csv)):
        if file:
            print_text(f"{what}: {file}")
    if "on" in result:
        console.print(f"[bold]{escape(headline(result))}.[/]")
    console.print(f"[bold]{escape(conclusion(result))}.[/]")


def no_interval_lines(result: dict) -> list[str]:
    """Return one line for each reason for no interval over classes or over queries, with its metrics."""
    metrics: dict[tuple[str, str], list[str]] = {}
    for name, about in result["metrics"].items():
        for unit in ("classes", "queries"):
            if reason := about[f"over_{unit}"]["reason"]:
                metrics.setdefault((unit, reason), []).append(name)
    return [f"No interval over {unit} for {', '.join(names)}: {reason}." for (unit, reason), names in metrics.items()]


def show_extremes(console: Console, name: str, about: dict) -> None:
    """Print the classes and queries with the largest gains and losses. A class without an interval is left out."""
    classes = [c for c in about["classes"]["each"] if c["low"] is not None]
    gains = [c for c in classes if c["difference"] > 0][:MAX_LISTED_ITEMS]
    losses = [c for c in classes if c["difference"] < 0][-MAX_LISTED_ITEMS:]
    table = Table(f"{name}: class", "queries", "B - A", "95 % over its queries")
    for c in gains + losses:
        table.add_row(escape(c["class"]), str(c["queries"]), f"{100 * c['difference']:+.2f}", _span(c))
    queries = Table(f"{name}: query", "class", "A", "B")
    moved = about["better"][:MAX_LISTED_ITEMS] + about["worse"][:MAX_LISTED_ITEMS]
    if any("path" in q for q in moved):
        queries.add_column("path", overflow="fold")
    for q in moved:
        path = [escape(q["path"])] if "path" in q else []
        queries.add_row(f"row {q['row']}", escape(q["class"]), *(f"{100 * q[side]:.1f}" for side in "ab"), *path)
    for filled in (t for t in (table, queries) if t.row_count):
        console.print(filled)


def _span(ends: dict) -> str:
    if ends["low"] is None:
        return "none"
    return f"{100 * ends['low']:+.2f} to {100 * ends['high']:+.2f}"


def _p(ends: dict) -> str:
    return "" if ends["p"] is None else "< 0.001" if ends["p"] < 0.001 else f"{ends['p']:.3f}"


def draw_comparison(result: dict) -> Figure:
    """Return a figure: left, the difference of every metric with both intervals; right, of every class for the main metric."""
    main = result["metrics"][result["decides"]]
    classes = main["classes"]["each"]
    lines = len(classes) if len(classes) <= MAX_NAMED_CLASSES else MAX_NAMED_CLASSES // 2
    height = max(3.6, 1.5 + 0.19 * lines, 1.7 + 0.6 * len(result["metrics"]))
    figure = Figure(figsize=(11, height), facecolor="white", layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1, 1.15))
    draw_metrics(left, result)
    draw_classes(right, classes, f"{result['decides']} by class, B \N{MINUS SIGN} A")
    figure.suptitle(
        textwrap.fill(one_line(conclusion(result)), 110), x=0.012, ha="left", fontsize=12, fontweight="bold", color=INK_COLOUR,
        parse_math=False,
    )  # fmt: skip
    figure.supxlabel(
        f"A  {_short(result['a'])}      B  {_short(result['b'])}      a point is a hundredth of the metric's range",
        x=0.012, ha="left", fontsize=8, color=SOFT_COLOUR, parse_math=False,
    )  # fmt: skip
    return figure


def draw_metrics(axes: Axes, result: dict) -> None:
    looks = {"classes": (INK_COLOUR, "o", 2.2, -0.11), "queries": (SOFT_COLOUR, "s", 1.4, 0.11)}
    for unit, (colour, mark, width, shift) in looks.items():
        label = f"over {result[unit]} {unit}"
        for place, about in enumerate(result["metrics"].values()):
            ends, mean = about[f"over_{unit}"], 100 * about["difference"]
            if ends["low"] is not None:
                axes.plot([100 * ends["low"], 100 * ends["high"]], [place + shift] * 2, color=colour, lw=width)
            axes.plot(mean, place + shift, mark, color=colour, ms=5, label=None if place else label)
    _tidy(axes, "difference, B \N{MINUS SIGN} A, with 95 % intervals", dict(enumerate(result["metrics"])))
    axes.set_ylim(len(result["metrics"]) - 0.4, -0.9)  # room for the legend
    axes.legend(frameon=False, fontsize=8.5, labelcolor=INK_COLOUR, loc="upper left", ncols=2, handletextpad=0.2)


def draw_classes(axes: Axes, classes: list[dict], title: str) -> None:
    """Draw the difference of every class: few classes with names and intervals, many as an area with its two ends named."""
    value = [100 * c["difference"] for c in classes]
    places, last = range(len(classes)), len(classes) - 1
    if last < MAX_NAMED_CLASSES:
        named, title = places, f"{title}, with 95 % intervals"
        colours = [BETTER_COLOUR if v > 0 else WORSE_COLOUR if v < 0 else SOFT_COLOUR for v in value]
        known = [(p, 100 * c["low"], 100 * c["high"]) for p, c in enumerate(classes) if c["low"] is not None]
        if known:
            axes.hlines(*zip(*known), colors=FAINT_COLOUR, lw=3.5)
        axes.scatter(value, places, s=22, c=colours, zorder=3)
        axes.hlines(places, 0, value, colors=colours, lw=1.4)
    else:
        named = (0, last)
        for colour, side in ((BETTER_COLOUR, max), (WORSE_COLOUR, min)):
            axes.fill_betweenx(places, 0, [side(v, 0) for v in value], step="mid", color=colour, lw=0)
    _tidy(axes, title, {place: _short(classes[place]["class"], 26) for place in named})
    axes.set_ylim(len(classes) - 0.3, -0.7)


def _tidy(axes: Axes, title: str, names: dict[int, str]) -> None:
    axes.axvline(0, color=INK_COLOUR, lw=0.8, zorder=0)
    axes.set_title(title, loc="left", fontsize=10, color=INK_COLOUR, parse_math=False)
    axes.set_xlabel(
        "points   (\N{LEFTWARDS ARROW} A better    B better \N{RIGHTWARDS ARROW})", fontsize=9, color=INK_COLOUR
    )
    axes.set_yticks(
        list(names), names.values(), fontsize=10 if len(names) < 8 else 8, color=INK_COLOUR, parse_math=False
    )
    axes.xaxis.set_major_locator(MaxNLocator(7))
    axes.tick_params(length=0, colors=INK_COLOUR)
    axes.margins(x=0.06)
    axes.grid(axis="x", color=FAINT_COLOUR, lw=0.7)
    axes.set_axisbelow(True)
    for side in axes.spines.values():
        side.set_visible(False)


def _short(text: str, most: int = 44) -> str:
    text = one_line(text)
    return text if len(text) <= most else "…" + text[1 - most :]
