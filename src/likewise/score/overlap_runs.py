"""overlap: compare the test classes with the most retrieval errors of several evaluated runs; heat map, table and numbers."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int

from likewise.core.argument_checks import misfit
from likewise.core.files import atomic_write, make_folder, write_csv, write_json
from likewise.core.render.figures import save_figure
from likewise.core.settings import check
from likewise.core.settings.audit import Audit
from likewise.core.settings.spec import brief
from likewise.core.types import LikewiseError
from likewise.data.label_sets import split_labels
from likewise.runs.folder import Run
from likewise.runs.per_query import PER_QUERY, read_per_query
from likewise.score.error_overlap import error_overlap, most_wrong
from likewise.score.error_overlap_view import ErrorOverlap, Named, draw_overlap

ERROR_METRIC = "R@1"
"""A query with the value 0 of this metric is a retrieval error."""


@dataclasses.dataclass(frozen=True, eq=False)
class RunErrors:
    """The retrieval errors of one run, by class. Queries without a relevant gallery row are not included.

    If samples have several labels, the classes are the single labels, and a query counts for each of its labels.
    """

    run: str
    method: str
    names: tuple[str, ...]
    label: Int[np.ndarray, "Q"]  # into names
    value: Float[np.ndarray, "Q"]
    relevance: str = "same class"  # which gallery rows are right

    @property
    def size(self) -> Int[np.ndarray, "C"]:
        return np.bincount(self.label, minlength=len(self.names))

    @property
    def wrong(self) -> Int[np.ndarray, "C"]:
        return np.bincount(self.label[self.value == 0], minlength=len(self.names))


def overlap(config: Audit, say=print) -> ErrorOverlap:
    """Return the worst classes of each run, by count and by rate of errors, and their overlap between runs."""
    check(config)
    runs = [read_errors(target) for target in config.targets]
    if len(runs) < 2:
        raise LikewiseError(f"overlap: two runs or more must be given, got {len(runs)}; give more runs")
    check_same_queries(runs, config)
    rank = {method: place for place, method in enumerate(dict.fromkeys(one.method for one in runs))}
    runs = sorted(runs, key=lambda one: rank[one.method])
    out = Path(config.out or "overlap").expanduser()
    found = ErrorOverlap(
        tuple(one.run for one in runs), tuple(one.method for one in runs), config.k, len(runs[0].names),
        {by: named_by(by, runs, config.k) for by in ("count", "rate")}, out,
    )  # fmt: skip
    write(out, found, runs)
    say(f"overlap.json, overlap.csv and overlap.png: {out}")
    return found


def read_errors(target: str) -> RunErrors:
    """Return the retrieval errors of an evaluated run, and its training method."""
    run = Run(target)
    settings = {"loss": None, "confidence": None, "terms": []} | run.about["config"]
    if (wrong := misfit(settings, {"loss": str, "confidence": str | None, "terms": list[str]})) is not None:
        raise LikewiseError(
            f"overlap: '{target}' must name its {wrong}, got {settings[wrong]!r}; restore its config.json"
        )
    file = run.path / PER_QUERY
    if not file.exists():
        raise LikewiseError(f"overlap: '{target}' has no per_query.parquet; run `likewise evaluate {target}` first")
    queries = read_per_query(file, "overlap")
    if ERROR_METRIC not in queries.each:
        raise LikewiseError(
            f"overlap: '{target}' must have been evaluated with {ERROR_METRIC}, got {', '.join(queries.each)}; "
            f"run `likewise evaluate {target} --metrics {ERROR_METRIC}`"
        )
    scored = ~np.isnan(queries.each[ERROR_METRIC])
    value, given = queries.each[ERROR_METRIC][scored], queries.class_name[scored].astype(str)
    units = (queries.relevance or {}).get("units", "classes")
    if units == "label sets":  # a query counts for each of its labels
        sets = [split_labels(name) for name in given.tolist()]
        value, given = np.repeat(value, [len(one) for one in sets]), np.array([name for one in sets for name in one])
    names, label = np.unique(given, return_inverse=True)
    components = [settings["loss"], settings["confidence"], *settings["terms"]]
    method = " + ".join(brief(component) for component in components if component)
    return RunErrors(target, method, tuple(names.tolist()), label, value, queries.meaning)


def check_same_queries(runs: list[RunErrors], config: Audit) -> None:
    """Raise unless all runs have the same test classes and queries, there are `k` classes, and every run has errors."""
    first = runs[0]
    if len({Path(one.run).expanduser().resolve() for one in runs}) < len(runs):
        raise LikewiseError(
            f"overlap: every run must be given once, got {', '.join(config.targets)}; drop the repeated ones"
        )
    for one in runs[1:]:
        if one.relevance != first.relevance:
            raise LikewiseError(
                f"overlap: the same rows must be right in all runs, but '{one.run}' was scored with \"{one.relevance}\" and "
                f"'{first.run}' with \"{first.relevance}\"; evaluate all with the same relevance"
            )
        differing = sorted(set(one.names) ^ set(first.names))
        if differing:
            raise LikewiseError(
                f"overlap: all runs must have the same test classes, but '{one.run}' and '{first.run}' differ in "
                f"{len(differing)} (first: '{differing[0]}'); compare runs on the same data and protocol"
            )
        if (one.size != first.size).any():
            c = int(np.flatnonzero(one.size != first.size)[0])
            raise LikewiseError(
                f"overlap: all runs must have the same test queries, but '{one.run}' has {one.size[c]} of class "
                f"'{first.names[c]}' where '{first.run}' has {first.size[c]}; compare runs on the same data and protocol"
            )
    if not 1 <= config.k <= len(first.names):
        raise LikewiseError(f"overlap: k must be between 1 and the {len(first.names)} test classes, got k={config.k}")
    if perfect := [one.run for one in runs if not one.wrong.any()]:
        raise LikewiseError(
            f"overlap: every run must have errors, but '{perfect[0]}' has none at {ERROR_METRIC}; drop this run"
        )


def named_by(by: str, runs: list[RunErrors], k: int) -> Named:
    """Return the worst classes of all runs: first those of most runs; ties by the number of errors."""
    worst = [most_wrong(torch.from_numpy(one.value == 0), torch.from_numpy(one.label), k, by) for one in runs]
    if without := [one.run for one, some in zip(runs, worst) if not len(some)]:
        raise LikewiseError(
            f"overlap: a run must have errors in a class of two queries or more to be compared by rate, but '{without[0]}' has "
            "none; drop this run"
        )
    found = error_overlap(worst, [one.method for one in runs], len(runs[0].names))
    label, heat = found.label.numpy(), found.heat.numpy()
    wrong = np.sum([one.wrong for one in runs], 0)[label]
    order = np.lexsort((label, -wrong, -heat.sum(0)))
    classes = tuple(runs[0].names[c] for c in label[order])
    return Named(classes, heat[:, order], found.within, found.between, found.chance)


def write(out: Path, found: ErrorOverlap, runs: list[RunErrors]) -> None:
    """Write overlap.json, overlap.csv (every class of every run) and overlap.png."""
    make_folder(out, "overlap")
    means = ("within", "between", "chance")
    about = {
        "runs": [{"run": run, "method": method} for run, method in zip(found.runs, found.methods)],
        "k": found.k, "classes": found.of, "metric": ERROR_METRIC,
        **{
            by: {
                **{m: None if np.isnan(v := getattr(named, m)) else v for m in means},
                "named": {c: int(n) for c, n in zip(named.classes, named.heat.sum(0))},
            }
            for by, named in found.by.items()
        },
    }  # fmt: skip
    write_json(out / "overlap.json", about)
    lines = []
    for row, one in enumerate(runs):
        ways = {by: {c for c, hit in zip(n.classes, n.heat[row]) if hit} for by, n in found.by.items()}
        for name, wrong, size in zip(one.names, one.wrong.tolist(), one.size.tolist()):
            named = " ".join(by for by, some in ways.items() if name in some)
            lines.append((one.run, one.method, name, wrong, size, f"{wrong / size:.4f}", named))
    write_csv(out / "overlap.csv", ("run", "method", "class", "wrong", "size", "rate", "named"), lines)
    with atomic_write(out / "overlap.png") as aside:
        save_figure(draw_overlap(found), aside)
