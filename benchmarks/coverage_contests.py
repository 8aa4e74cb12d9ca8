"""Null rejection rates and power of the tests between methods (`bench`) and between label scores, in simulated worlds.

    python benchmarks/coverage_contests.py --out rates.json    # 5,000 runs a cell: about ten minutes on one core
    python benchmarks/coverage_contests.py --only scores       # contests, power, scores or orders

`contest_rates`, `score_rates` and `order_rate` return the rates of one cell, for other scripts.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from measure import parse_with_quick
from score_intervals import count_without_groups, jackknife_interval

from likewise.score.significance import agreement, compare_pairs, holm

SIGNIFICANCE_LEVEL = 0.05
BLOCK_VALUES = 4_000_000
"""Maximum number of class sums that are simulated at a time."""

POWER_DIVISOR = 5
"""Cells of power have this many times fewer runs than null cells."""

UNEVEN_SIZES = (3, 6, 12, 25, 50)
"""Numbers of queries from which the sizes of uneven classes are drawn."""

SPREADS = {
    "equal": lambda m: np.ones(m),
    "one 5x": lambda m: np.r_[np.ones(m - 1), 5.0],
    "1x to 5x": lambda m: np.geomspace(1, 5, m),
}
"""Name -> number of methods -> factors by which the trainings of each method vary."""


@dataclass(frozen=True)
class Bench:
    """A simulated bench: methods are equally good on average over classes and trainings, the first one better by `gain`.

    `training` is the standard deviation of a training and `interaction` that of a method on a class (the same in all trainings),
    both as shares: 0.01 is a point. A method on a class in one training varies by two points more, and queries are drawn.
    """

    classes: int = 100
    seeds: int = 5
    methods: int = 6
    training: float = 0.01
    interaction: float = 0.0
    spread: str = "equal"
    uneven: bool = False
    gain: float = 0.0


@dataclass(frozen=True)
class Scores:
    """Two simulated label scores, b better than a by `gain` standard deviations between right and wrong labels."""

    samples: int = 300
    wrong: float = 0.05
    correlation: float = 0.0
    gain: float = 0.0


def simulate_bench(rng: np.random.Generator, bench: Bench, runs: int) -> tuple[np.ndarray, np.ndarray]:
    """Return hits summed over the queries of a class, (runs, classes, seeds, methods), and the sizes of the classes."""
    classes, seeds, methods = bench.classes, bench.seeds, bench.methods
    size = rng.choice(UNEVEN_SIZES, (runs, classes)) if bench.uneven else np.full((runs, classes), 20)
    level = rng.beta(6, 2.5, (runs, classes, 1, 1)) + bench.interaction * rng.normal(size=(runs, classes, 1, methods))
    luck = rng.standard_t(5, (runs, 1, seeds, methods)) / np.sqrt(
        5 / 3
    )  # unit variance, with longer tails than a normal
    level = level + bench.training * SPREADS[bench.spread](methods) * luck
    level = level + 0.02 * rng.normal(size=(runs, classes, seeds, methods))
    level[..., 0] += bench.gain
    return rng.binomial(size[:, :, None, None], level.clip(0.005, 0.995)).astype(np.float64), size


def contest_rates(bench: Bench, runs: int = 5000, seed: int = 0) -> dict[str, float]:
    """Return how often a contest errs: any pair "better" or "worse" (Holm), one pair without Holm, and interval coverage.

    With a gain: `told`, the share of the pairs of the better method that are reported, and `reversed`, how often it is "worse".
    """
    rng, step = np.random.default_rng(seed), max(1, BLOCK_VALUES // (bench.classes * bench.seeds * bench.methods))
    rates: dict[str, list] = {"family": [], "pair": [], "coverage": [], "told": [], "reversed": []}
    own = bench.methods - 1  # the pairs of the first method come first
    for first in range(0, runs, step):
        found = compare_pairs(*simulate_bench(rng, bench, min(step, runs - first)))
        corrected = np.stack([holm(p) for p in found.p])
        apart, truth = corrected < SIGNIFICANCE_LEVEL, np.zeros(found.p.shape[1])
        truth[:own] = -bench.gain
        rates["family"].append(apart[:, truth == 0].any(1))
        rates["pair"].append((found.p < SIGNIFICANCE_LEVEL)[:, truth == 0].mean(1) if (truth == 0).any() else [])
        rates["coverage"].append(((found.low <= truth) & (truth <= found.high)).mean(1))
        rates["told"].append(apart[:, :own].mean(1))
        rates["reversed"].append((apart & (found.mean > 0))[:, :own].any(1))
    kept = ("told", "reversed", "coverage") if bench.gain else ("family", "pair", "coverage")
    return {name: float(np.concatenate(rates[name]).mean()) for name in kept}


def simulate_scores(rng: np.random.Generator, scores: Scores) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return scores a and b with two decimals, and which labels are wrong. Some wrong labels are harder to find for both."""
    wrong = np.arange(scores.samples) < round(scores.samples * scores.wrong)
    easy = wrong * (0.5 + rng.exponential(1.2, scores.samples))
    common, own = rng.normal(size=scores.samples), rng.normal(size=(2, scores.samples))
    both = np.sqrt(scores.correlation) * common + np.sqrt(1 - scores.correlation) * own - easy
    both[1] -= scores.gain * wrong
    return *np.round(both, 2), wrong


def score_rates(scores: Scores, runs: int = 5000, seed: int = 0) -> dict[str, float]:
    """Return how often the interval of `paired_jackknife` does not contain 0, by metric."""
    rng, count = np.random.default_rng(seed), dict.fromkeys(("AP", "AUROC", "recall"), 0)
    for run in range(runs):
        a, b, wrong = map(torch.as_tensor, simulate_scores(rng, scores))
        of_a, of_b = (count_without_groups(score, wrong, run) for score in (a, b))  # as in `paired_jackknife`
        for metric in count:
            found = jackknife_interval(of_a, of_b, metric)
            count[metric] += found.low > 0 or found.high < 0
    return {metric: many / runs for metric, many in count.items()}


def order_rate(methods: int, runs: int = 5000, seed: int = 0) -> float:
    """Return how often Kendall's tau between two unrelated orders has p below 0.05."""
    rng, printed = np.random.default_rng(seed), list(range(methods))
    return float(
        np.mean([agreement(rng.random(methods).tolist(), printed).p < SIGNIFICANCE_LEVEL for _ in range(runs)])
    )


def null_benches(quick: bool) -> list[Bench]:
    """Return the cells without a better method: noises and spreads, seeds, numbers of classes and methods, kinds of worlds."""
    noises = [(0.0, "equal"), (0.005, "equal"), *((0.01, spread) for spread in SPREADS)]
    shapes = [(10, 2), (10, 8), (30, 4), (100, 2), (100, 8)]
    worlds = [{}, {"interaction": 0.04}, {"interaction": 0.04, "uneven": True}]
    cells = [
        Bench(classes, seeds, methods, noise, spread=spread, **world)
        for (noise, spread), seeds, (classes, methods), world in itertools.product(noises, (3, 5, 10), shapes, worlds)
    ]
    return cells[:2] if quick else cells


def power_benches(quick: bool) -> list[Bench]:
    grid = itertools.product((3, 5, 10), (30, 100), (2, 6), (0.02, 0.04, 0.08))
    cells = [Bench(c, s, m, 0.005, 0.02, gain=gain) for s, c, m, gain in grid]
    return cells[:2] if quick else cells


def score_cells(quick: bool) -> list[Scores]:
    cells = [Scores(*cell) for cell in itertools.product((300, 2000), (0.05, 0.2), (0.0, 0.7), (0.0, 0.75))]
    return cells[:2] if quick else cells


def markdown(heads: Sequence[str], lines: Iterable[Sequence[object]]) -> str:
    rows = [heads, ["---"] * len(heads), *lines]
    return "\n".join(f"| {' | '.join(map(str, row))} |" for row in rows)


def percent(value: float) -> str:
    return f"{100 * value:.1f}"


def contest_table(records: list[dict]) -> str:
    """Return the family-wise rates: the largest over the three worlds and the numbers of classes, by methods."""
    many = sorted({one["methods"] for one in records})
    lines = []
    for key in dict.fromkeys((one["training"], one["spread"], one["seeds"]) for one in records):
        own = [one for one in records if (one["training"], one["spread"], one["seeds"]) == key]
        by = [[one for one in own if one["methods"] == m] for m in many]
        cells = [
            f"{percent(sum(one['family'] for one in each) / len(each))} ({percent(max(one['family'] for one in each))})"
            for each in by if each
        ]  # fmt: skip
        covers = percent(min(one["coverage"] for one in own))
        lines.append([f"{100 * key[0]:g}", key[1], key[2], *cells, covers])
    heads = ["training noise, points", "spread", "seeds", *(f"{m} methods" for m in many), "interval covers, least"]
    return markdown(heads, lines)


def power_table(records: list[dict]) -> str:
    gains = sorted({one["gain"] for one in records})
    places = dict.fromkeys((one["seeds"], one["classes"], one["methods"]) for one in records)
    found = {(one["seeds"], one["classes"], one["methods"], one["gain"]): one["told"] for one in records}
    lines = [[*place, *(percent(found[*place, g]) if (*place, g) in found else "" for g in gains)] for place in places]
    return markdown(["seeds", "classes", "methods", *(f"{100 * g:g} points better" for g in gains)], lines)


def score_table(records: list[dict]) -> str:
    metrics = ("AP", "AUROC", "recall")
    places = dict.fromkeys((one["samples"], one["wrong"], one["correlation"]) for one in records)
    lines = []
    for place in places:
        own = {one["gain"] > 0: one for one in records if (one["samples"], one["wrong"], one["correlation"]) == place}
        shown = [percent(own[kind][m]) if kind in own else "" for kind in (False, True) for m in metrics]
        lines.append([place[0], percent(place[1]), place[2], *shown])
    heads = ["samples", "wrong, %", "correlation", *(f"{m}, null" for m in metrics), *(f"{m}, power" for m in metrics)]
    return markdown(heads, lines)


def measure(only: str | None, runs: int, quick: bool) -> dict:
    """Return the records of all cells by part."""
    found: dict = {}
    parts = {
        "contests": (null_benches, contest_rates), "power": (power_benches, contest_rates), "scores": (score_cells, score_rates),
    }  # fmt: skip
    for name, (cells, rates) in parts.items():
        if only in (None, name):
            found[name] = [
                asdict(cell) | rates(cell, max(1, runs // POWER_DIVISOR) if cell.gain else runs, seed)
                for seed, cell in enumerate(cells(quick))  # random numbers of its own for every cell
            ]
    if only in (None, "orders"):
        found["orders"] = {n: order_rate(n, runs) for n in (4, 6, 10)}
    return found


def as_text(found: dict) -> str:
    """Return the tables as Markdown, rates in per cent."""
    tables = {"contests": contest_table, "power": power_table, "scores": score_table}
    texts = [f"{name}\n\n{tables[name](found[name])}\n" for name in tables if name in found]
    if "orders" in found:
        shown = ", ".join(f"{percent(rate)} ({n} methods)" for n, rate in found["orders"].items())
        texts.append(f"Kendall's tau of unrelated orders, p below 0.05: {shown}\n")
    return "\n".join(texts)


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5000)
    parser.add_argument("--only", choices=["contests", "power", "scores", "orders"])
    parser.add_argument("--out", type=Path)
    return parse_with_quick(parser, words, runs=20)


def main(words: Sequence[str] | None = None) -> None:
    options = parse(words)
    found = measure(options.only, options.runs, options.quick)
    if options.out:
        options.out.write_text(json.dumps(found, indent=1), "utf-8")
    print(as_text(found))


if __name__ == "__main__":
    main()
