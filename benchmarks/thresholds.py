"""Measure whether the thresholds of `likewise calibrate` keep their promise: random splits of the classes of real features.

    python benchmarks/thresholds.py FEATURES.npz [FEATURES.npz ...] --splits 200 --out thresholds.json

    python benchmarks/thresholds.py --worlds 500

FEATURES: x and label (or y), as `likewise embed` writes them. Every split draws validation classes and as many test classes,
chooses thresholds with the former and counts errors on the latter:
- pair: two images. unknown: a gallery of the other classes of the same side. index: a third set of classes is the gallery.
- held: share of splits whose test classes keep the asked rate (or precision), of those that were not refused. The precision of
  pairs is counted at the share of same pairs of the validation classes, as promised.
- probability: the curve of the validation classes on the test classes: its error (mean |predicted - observed| over ten bins of
  queries), and its log loss beside that of a constant, the share of right neighbours of the validation classes.
- true accepts: as a share of those at the oracle threshold, the lowest that keeps the rate on the test classes; mean of splits.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from likewise.types import LikewiseError

from likewise.core.progress import bar
from likewise.deploy.calibration.fit_calibration import RELIABILITY_BINS, fit_probability
from likewise.deploy.calibration.threshold_promises import (
    Nearest,
    PairRates,
    Promise,
    accepted,
    choose,
    compare,
    make_grid,
    prepare,
    promise_of_neighbours,
    promise_of_pairs,
    sample_different,
    share_of_wrong,
    weights,
)

AIMS = {"false accepts": (0.2, 0.1, 0.05, 0.01, 0.001), "precision": (0.2, 0.1, 0.05)}
"""Asked shares of errors."""

FEW_CLASSES = 25
"""Validation classes of the smaller splits."""


class Table(NamedTuple):
    """Similarities of a data set by class: shares of accepted pairs of classes, and the nearest sample of each class."""

    y: np.ndarray
    threshold: np.ndarray
    pairs: np.ndarray  # C C K; the diagonal: pairs of one class
    best: np.ndarray  # N C


def main(words: list[str] | None = None) -> None:
    asked = parse(words)
    lines = []
    for file in asked.features:
        z, y = read(file, asked.quick)
        table = tabulate(z, y, file.stem)
        classes = int(y.max()) + 1
        lines.append({"data": file.stem, **measure_probability(table, classes // 2, asked.splits)})
        for kind, most in (("pair", classes // 2), ("unknown", classes // 2), ("index", classes // 3)):
            for count in dict.fromkeys((most, min(most, FEW_CLASSES))):
                lines += [{"data": file.stem, **line} for line in measure(table, kind, count, asked.splits, file.stem)]
    for count in asked.world_classes if asked.worlds else ():
        lines += measure_worlds(asked.worlds, count)
    show(lines)
    if asked.out:
        asked.out.write_text(json.dumps(lines, indent=2) + "\n", "utf-8")


def parse(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("features", nargs="*", type=Path, help=".npz with x and label; --quick needs none")
    parser.add_argument("--splits", type=int, default=200)
    parser.add_argument("--worlds", type=int, default=0, help="simulated worlds, each with new classes; 0: none")
    parser.add_argument(
        "--world-classes", type=int, nargs="+", default=[20, 50, 100], help="validation classes of a world"
    )
    parser.add_argument("--quick", action="store_true", help="toy size, simulated features")
    parser.add_argument("--out", type=Path, help="file for the lines of the table (.json)")
    asked = parser.parse_args(words)
    if asked.quick:
        asked.splits, asked.features = min(asked.splits, 5), asked.features or [Path("simulated")]
        asked.worlds, asked.world_classes = min(asked.worlds, 2), [12]
    if not asked.features and not asked.worlds:
        raise LikewiseError("thresholds: give files of features, --worlds or --quick")
    return asked


def draw_world(seed: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Return simulated unit features and labels: classes in families of uneven sizes, with uneven spreads and 5 to 20 images."""
    rng = np.random.default_rng(seed)
    dim, families = int(rng.integers(8, 64)), max(2, int(classes * rng.uniform(0.05, 0.5)))
    family = rng.choice(families, classes, p=rng.dirichlet(np.ones(families)))
    centre = rng.normal(size=(families, dim))[family] + rng.uniform(0.3, 1) * rng.normal(size=(classes, dim))
    spread = rng.uniform(0.3, 0.8) * rng.lognormal(0, 0.3, classes)
    y = np.repeat(np.arange(classes), rng.integers(5, 21, classes))
    return prepare(centre[y] + spread[y, None] * rng.normal(size=(len(y), dim)), "cosine"), y


def measure_worlds(worlds: int, count: int) -> list[dict]:
    """Return one line for every kind and rate: each split is a world of its own, with as many classes on each side."""
    results: dict[tuple[str, float], list[tuple[float, float, float]]] = {}
    with bar(f"worlds: {count} classes", worlds) as shown:
        for seed in range(worlds):
            table = tabulate(*draw_world(seed, 3 * count), "world", quiet=True)
            for kind in ("pair", "unknown", "index"):
                side = next(draw(table, kind, count, "false accepts", 1))
                for rate in AIMS["false accepts"]:
                    results.setdefault((kind, rate), []).append(compare_with_oracle(side, rate, "false accepts"))
            shown.advance()
    return [
        line_of(found, {"data": "worlds", "what": kind, "aim": "false accepts", "classes": count, "rate": rate})
        for (kind, rate), found in results.items()
    ]


def read(file: Path, quick: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return unit features and labels 0 to C - 1, sorted by label; simulated ones at toy size if there is no such file."""
    if quick and not file.exists():
        rng = np.random.default_rng(0)
        y = np.repeat(np.arange(60), 8)
        return prepare(rng.normal(size=(60, 16))[y] + 0.5 * rng.normal(size=(480, 16)), "cosine"), y
    with np.load(file) as arrays:
        x, label = arrays["x"], arrays["label"] if "label" in arrays.files else arrays["y"]
    y = np.unique(label, return_inverse=True)[1]
    order = np.argsort(y, kind="stable")
    return prepare(x[order], "cosine"), y[order]


def tabulate(z: np.ndarray, y: np.ndarray, title: str, quiet: bool = False) -> Table:
    """Return all similarities of a data set by class, so that a split only selects."""
    count, start = np.bincount(y), np.searchsorted(y, np.arange(int(y.max()) + 1))
    classes, threshold = len(count), make_grid(sample_different(z, y, "cosine"), "cosine")
    pairs = np.zeros((classes, classes, len(threshold)), np.float32)
    best = np.zeros((len(y), classes), np.float32)
    with bar(f"{title}: similarities", classes, quiet=quiet) as shown:
        for c in range(classes):
            rows = np.arange(start[c], start[c] + count[c])
            sim = compare(z[rows], z, "cosine")
            sim[np.arange(len(rows)), rows] = -np.inf
            best[rows] = np.maximum.reduceat(sim, start, axis=1)
            several = count[c] * np.where(np.arange(classes) == c, count[c] - 1, count)
            unit = np.broadcast_to(y, sim.shape).ravel()
            pairs[c] = accepted(sim.ravel(), unit, 1 / several[unit], threshold, classes)
            shown.advance()
    return Table(y, threshold, pairs, best)


def select_pairs(table: Table, classes: np.ndarray) -> PairRates:
    """Return the shares of accepted pairs of some classes."""
    part = table.pairs[np.ix_(classes, classes)].astype(np.float64)
    own = np.arange(len(classes))
    same = part[own, own].copy()
    part[own, own] = 0
    size = np.bincount(table.y)[classes]
    inside = (size * (size - 1)).sum() / 2
    every = size.sum() * (size.sum() - 1) / 2
    return PairRates(table.threshold, part.sum(1) / (len(classes) - 1), same, own, inside / every)


def select_neighbours(table: Table, classes: np.ndarray, gallery: np.ndarray | None = None) -> Nearest:
    """Return the nearest neighbours of the samples of some classes, among each other or in a gallery of other classes."""
    rows = np.flatnonzero(np.isin(table.y, classes))
    place = np.zeros(table.best.shape[1], np.int64)
    place[classes] = np.arange(len(classes))
    y, each = place[table.y[rows]], np.arange(len(rows))
    own = table.best[rows, table.y[rows]]
    if gallery is not None:
        return Nearest(y, own, table.best[np.ix_(rows, gallery)].max(1))
    best = table.best[np.ix_(rows, classes)]
    best[each, y] = -np.inf
    nearest = best.argmax(1)
    other = best[each, nearest].copy()
    best[each, nearest] = -np.inf
    return Nearest(y, own, other, nearest, best.max(1))


class Sides(NamedTuple):
    """One split: what a threshold is chosen from, and errors and true accepts of the test classes at ascending thresholds."""

    promise: Promise
    threshold: np.ndarray
    errors: np.ndarray
    true_accepts: np.ndarray


def draw(table: Table, kind: str, count: int, aim: str, splits: int) -> Iterator[Sides]:
    """Yield splits into as many validation and test classes."""
    rng, classes = np.random.default_rng(0), table.best.shape[1]
    for _ in range(splits):
        order = rng.permutation(classes)
        val, test, rest = (
            np.sort(order[:count]),
            np.sort(order[count : 2 * count]),
            np.sort(order[2 * count : 3 * count]),
        )
        if kind == "pair":
            seen, new = select_pairs(table, val), select_pairs(table, test)
            far, tar = new.different.mean(0), new.same.mean(0)
            errors = far if aim == "false accepts" else share_of_wrong(far, tar, seen.prevalence)
            yield Sides(promise_of_pairs(seen, aim), table.threshold, errors, tar)
            continue
        gallery = rest if kind == "index" else None
        seen, new = select_neighbours(table, val, gallery), select_neighbours(table, test, gallery)
        known = select_neighbours(table, gallery) if gallery is not None else new
        promise = promise_of_neighbours(seen, "cosine", aim)
        yield Sides(promise, *measured(new, known, promise.threshold, aim))


def measured(
    new: Nearest, known: Nearest, threshold: np.ndarray, aim: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return ascending thresholds, and the errors and the true accepts of test classes there."""
    grid = np.unique(np.concatenate([threshold, make_grid(new.other, "cosine")]))
    ones = {name: np.zeros(len(side.y), np.int64) for name, side in (("new", new), ("known", known))}
    near = np.maximum(known.own, known.other)
    right = accepted(near, ones["known"], weights(known) / (known.y.max() + 1), grid, 1)[0]
    if aim == "false accepts":
        return grid, accepted(new.other, ones["new"], weights(new) / (new.y.max() + 1), grid, 1)[0], right
    all_near, mistaken = np.maximum(new.own, new.other), np.where(new.other > new.own, new.other, -np.inf)
    every, wrong = (accepted(sim, ones["new"], weights(new), grid, 1)[0] for sim in (all_near, mistaken))
    return grid, np.divide(wrong, every, out=np.zeros_like(every), where=every > 0), right


def measure(table: Table, kind: str, count: int, splits: int, title: str) -> list[dict]:
    """Return one line for every aim and rate."""
    lines = []
    for aim, rates in AIMS.items():
        results: dict[float, list[tuple[float, float, float]]] = {rate: [] for rate in rates}
        with bar(f"{title}: {kind}, {count} classes, {aim}", splits) as shown:
            for side in draw(table, kind, count, aim, splits):
                for rate in rates:
                    results[rate].append(compare_with_oracle(side, rate, aim))
                shown.advance()
        for rate, found in results.items():
            lines.append(line_of(found, {"what": kind, "aim": aim, "classes": count, "rate": rate}))
    return lines


def line_of(found: list[tuple[float, float, float]], about: dict) -> dict:
    """Return a line of the table: means over the splits that were not refused."""
    values = np.asarray(found)
    made = values[~np.isnan(values[:, 0])]
    line = about | {"refused": 1 - len(made) / len(values)}
    if not len(made):
        return line
    return line | {
        name: float(np.nanmean(made[:, place])) for place, name in enumerate(("held", "true_accepts", "of_oracle"))
    }


def measure_probability(table: Table, count: int, splits: int) -> dict:
    """Return error and log loss of the probability curve of validation classes, on test classes."""
    rng, results = np.random.default_rng(0), []
    for _ in range(splits):
        order = rng.permutation(table.best.shape[1])
        seen, new = (select_neighbours(table, np.sort(part)) for part in (order[:count], order[count : 2 * count]))
        near, right = (np.maximum(side.own, side.other) for side in (seen, new)), new.own >= new.other
        sim, other = near
        weight = weights(new) / weights(new).sum()
        knots = fit_probability(sim, seen.own >= seen.other, weights(seen))
        constant = np.average(seen.own >= seen.other, weights=weights(seen))
        predicted = np.interp(other, *knots)
        bins = np.array_split(np.argsort(predicted, kind="stable"), RELIABILITY_BINS)
        error = sum(abs((weight[part] * (predicted[part] - right[part])).sum()) for part in bins)
        losses = [
            -(weight * np.log(np.where(right, p, 1 - p))).sum() for p in (predicted, np.full(len(right), constant))
        ]
        results.append([error, *losses])
    error, loss, plain = np.mean(results, axis=0).tolist()
    return {"what": "probability", "classes": count, "error": error, "log_loss": loss, "constant_log_loss": plain}


def compare_with_oracle(side: Sides, rate: float, aim: str) -> tuple[float, float, float]:
    """Return whether the test classes keep the rate, true accepts, and these as a share of the oracle's; nan if refused."""
    chosen = choose(side.promise, rate, rate, aim)
    if chosen.value is None:
        return np.nan, np.nan, np.nan
    at = int(np.searchsorted(side.threshold, chosen.value))
    within = np.flatnonzero(side.errors <= rate)
    oracle = side.true_accepts[within[0]] if len(within) else 0.0
    share = side.true_accepts[at] / oracle if oracle > 0 else np.nan
    return float(side.errors[at] <= rate), float(side.true_accepts[at]), float(share)


def show(lines: list[dict]) -> None:
    """Print the table."""
    print(
        "| data | what | aim | validation classes | rate | held | true accepts | of oracle | refused |\n"
        + "|---" * 9
        + "|"
    )
    for line in (line for line in lines if "aim" in line):
        cells = [
            f"{100 * line[name]:.1f} %" if name in line else ""
            for name in ("held", "true_accepts", "of_oracle", "refused")
        ]
        words = [line["data"], line["what"], line["aim"], str(line["classes"]), f"{line['rate']:g}"]
        print(f"| {' | '.join([*words, *cells])} |")
    print("\n| data | classes | error of the probability | log loss | log loss of a constant |\n" + "|---" * 5 + "|")
    for line in (line for line in lines if "error" in line):
        losses = f"{line['log_loss']:.3f} | {line['constant_log_loss']:.3f}"
        print(f"| {line['data']} | {line['classes']} | {100 * line['error']:.1f} % | {losses} |")


if __name__ == "__main__":
    main()
