"""compare: the differences of the metrics of two evaluated runs, with intervals, and the classes and queries that changed."""

from __future__ import annotations

import dataclasses
from pathlib import Path, PurePath
from typing import Any

import numpy as np
from jaxtyping import Float

from likewise.core.errors import nearest_name
from likewise.core.files import atomic_write, check_output_path, write_csv
from likewise.core.render.figures import save_figure
from likewise.core.settings import Compare, check
from likewise.core.types import LikewiseError
from likewise.runs.folder import Run
from likewise.runs.per_query import PER_QUERY, PerQuery, read_per_query
from likewise.score.comparison_table import draw_comparison
from likewise.score.intervals import MIN_INTERVAL_UNITS, MeanInterval, mean_interval, paired_interval
from likewise.score.metrics import is_graded, low_is_good, needs_triplets
from likewise.score.result_views import Compared

ROUNDING_TOLERANCE = 1e-12
"""Smaller differences of a metric count as equal."""


def compare(config: Compare, say=print) -> Compared:
    """Return B - A for every metric, with 95 % intervals over queries and over classes, as a dict for JSON.

    With `config.on`, both runs are first scored on that data; "on" then has facts about it.
    """
    check(config)
    out = check_output_path(config.out, ".png", "compare") if config.out else None
    changed = check_output_path(config.csv, ".csv", "compare", "--csv") if config.csv else None
    facts = {}
    if config.on:
        from likewise.score.compare_on import score_sides

        ((a, about_a), (b, about_b)), facts["on"] = score_sides(config, say)
        a, b = same_relevance(a, b, config.metrics)
    else:
        check_without_on(config)
        (a, about_a), (b, about_b) = open_side(config.run_a), open_side(config.run_b)
        moved = about_a is not None and about_b is not None and about_a["data"] != about_b["data"]
        shared_metrics(a, b, config.metrics)
        a, b = same_relevance(a, b, config.metrics)
        a, b = join(a, b, moved)
    result = differences(config, a, b) | facts
    result["same"] = same(a, b, about_a, about_b)
    if out:
        with atomic_write(out) as aside:
            save_figure(draw_comparison(result), aside)
    if changed:
        write_changes(changed, result)
    return Compared(result)


def check_without_on(config: Compare) -> None:
    """Raise for settings that only --on uses."""
    for name in ("root", "strict"):
        if getattr(config, name):
            raise LikewiseError(
                f"compare: --{name.replace('_', '-')} is for the data of --on; drop it, or give --on DATA"
            )


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
            "`likewise evaluate RUN --relevance SPEC --per-query FILE.parquet` for both, and compare the files"
        )
    plain = [{name: value for name, value in side.each.items() if not depends_on_values(name)} for side in (a, b)]
    return dataclasses.replace(a, each=plain[0]), dataclasses.replace(b, each=plain[1])


def depends_on_values(name: str) -> bool:
    """Return whether a metric depends on more of a relevance than on which rows are relevant."""
    return is_graded(name) or needs_triplets([name])


def join(a: PerQuery, b: PerQuery, other_data: bool) -> tuple[PerQuery, PerQuery]:
    """Return A and B with their queries in the same order; raises if the queries differ.

    Args:
        other_data: the runs have different data. A corrected table may have the same queries in other rows: these are then
            matched by their image files.
    """
    if other_data and (renamed := by_files(a, b)) is not None:
        b, other_data = renamed, False
    row, of_a, of_b = np.intersect1d(a.row, b.row, assume_unique=True, return_indices=True)
    alone = len(a.row) + len(b.row) - 2 * len(row)
    a, b = (
        dataclasses.replace(
            side,
            each={name: value[place] for name, value in side.each.items()},
            **{
                f.name: getattr(side, f.name)[place]
                for f in dataclasses.fields(side)
                if f.name not in ("each", "relevance") and getattr(side, f.name) is not None
            },
        )
        for side, place in ((a, of_a), (b, of_b))
    )
    changed = int(((a.label != b.label) | (a.class_name != b.class_name) | (a.relevant != b.relevant)).sum())
    if alone or changed or other_data:
        hint = "; the runs were trained with different data (files, features, labels or splits)" if other_data else ""
        raise LikewiseError(
            f"compare: A and B must have the same queries of the same data, but {alone} queries are in one of "
            f"them only, and of the {len(row)} in both, {changed} differ in their class or in the number of relevant gallery "
            f"rows{hint}; `likewise compare A B --on DATA` scores both on the same images and compares them"
            + (", or give their per_query.parquet if you know the queries to be the same" if other_data else "")
        )
    return a, b


def by_files(a: PerQuery, b: PerQuery) -> PerQuery | None:
    """Return B with the rows and labels of A for the same image files; None if A and B have different files."""
    if a.path is None or b.path is None:
        return None
    depth = min(
        len(PurePath(path[0]).parts) for path in (a.path, b.path)
    )  # one table may have absolute paths, the other relative ones
    names_a, names_b = (["/".join(PurePath(p).parts[-depth:]) for p in path] for path in (a.path, b.path))
    place = {name: i for i, name in enumerate(names_a)}
    if len(place) < len(names_a) or set(names_b) != place.keys() or len(names_b) != len(names_a):
        return None
    own = np.array([place[name] for name in names_b])
    known = dict(zip(b.row.tolist(), a.row[own].tolist(), strict=True))
    nearest = np.array([known.get(row, -1) for row in b.nearest.ravel().tolist()]).reshape(b.nearest.shape)
    label = np.where(a.class_name[own] == b.class_name, a.label[own], -1)
    if b.rival is None:
        return dataclasses.replace(b, row=a.row[own], label=label, nearest=nearest)
    number = dict(zip(b.label.tolist(), label.tolist(), strict=True))
    rival = np.array([number.get(one, -1) for one in b.rival.tolist()])
    return dataclasses.replace(b, row=a.row[own], label=label, nearest=nearest, rival=rival)


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
