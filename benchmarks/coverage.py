"""How often every interval and test that the project prints holds, in simulated worlds and on features of your own.

    python benchmarks/coverage.py --write docs/evaluation.md        # 5,000 simulations a cell: some ten minutes of one core
    python benchmarks/coverage.py --only means                      # or another part; --help lists them
    python benchmarks/coverage.py --only features --features cub200.npz omniglot.npz     # arrays x and y; few classes at a time

The worlds differ from those by which the formulas were chosen. The truth is known, or it is the mean over all simulations. Of
the thresholds of `likewise calibrate`, benchmarks/thresholds.py measures how often they keep their promise.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from coverage_worlds import (
    PAIR_WORLDS,
    RANKING_WORLDS,
    SHARE_WORLDS,
    SIZES,
    feature_world,
    ranked_block,
    ranking_world,
)
from measure import parse_with_quick

from likewise.core.types import QuerySample
from likewise.score.intervals import (
    MeanInterval,
    RatioIntervals,
    blame,
    gallery_variance,
    mean_interval,
    ratio_intervals,
    t_interval,
)
from likewise.score.query_sample import draw_queries, interval_of_all

CLASSES = (10, 20, 50, 100)
DRAWN = (5, 20, 60)
"""Queries that are drawn, in per cent of all."""

SIGNIFICANCE_LEVEL = 0.05
MIN_SHOWN_SHARE = 0.1
"""Cells in which a smaller share of the simulations has an interval show no coverage."""

MAX_CLASS_SHARE = 0.1
"""Largest share of the classes of a data set that is drawn: more would resemble each other."""

BEGIN, END = "<!-- coverage begins -->", "<!-- coverage ends -->"


def cell(found: RatioIntervals, truth: float | np.ndarray, *, null: bool = False) -> dict:
    """Return how many intervals are given, how many of these hold the truth, and for a null how many exclude it."""
    given = found.why == 0
    holds = (found.low <= truth) & (truth <= found.high)
    record = {"runs": len(given), "given": float(given.mean()), "truth": float(np.mean(truth))}
    record["covers"] = float(holds[given].mean()) if given.any() else None
    return record | ({"rejects": float((given & ~holds).mean())} if null else {})


def mean_cells(rng: np.random.Generator, runs: int, classes: Sequence[int]) -> list[dict]:
    """Return the cells of means over classes: every world, kind of sizes, and number of classes."""
    return [
        {"world": name, "sizes": kind, "classes": many} | cell(ratio_intervals(total, count, share=True), truth)
        for name, world in SHARE_WORLDS.items()
        for kind in SIZES
        for many in classes
        for total, count, truth in [world(rng, runs, many, kind)]
    ]


def pair_cells(rng: np.random.Generator, runs: int, classes: Sequence[int]) -> list[dict]:
    """Return the cells of differences over classes."""
    return [
        {"world": name, "sizes": kind, "classes": many}
        | cell(ratio_intervals(total, count, share=False), truth, null=truth == 0)
        for name, world in PAIR_WORLDS.items()
        for kind in SIZES
        for many in classes
        for total, count, truth in [world(rng, runs, many, kind)]
    ]


def rank_cells(draw: Callable, runs: int, equal: bool) -> list[dict]:
    """Return the cells of a world that ranks: two scores, their means over classes, and the differences of two networks.

    Queries and gallery are drawn anew in every simulation; the truth is the mean over all of them.

    Args:
        equal: the two networks are equally good, so the true difference is 0.
    """
    names, blocks, done = ("R@1", "MAP@R"), [], 0
    while done < runs:
        blocks.append(ranked_block(*draw(runs - done)))
        done += len(blocks[-1].value[0])
    total, count, gallery = {}, {}, {}
    for side in (*names, "R@1, B - A", "MAP@R, B - A"):
        m, pair = names.index(side.split(",")[0]), "B - A" in side
        sums, sizes, extra = [], [], []
        for block in blocks:
            label, value = block.label, (block.value[1, :, m] - block.value[0, :, m]) if pair else block.value[0, :, m]
            own = np.eye(label.max() + 1)[label]
            sums.append(value @ own)
            sizes.append(np.broadcast_to(own.sum(0), sums[-1].shape))
            rival = np.where(value > 0, block.rival[0], block.rival[1]) if pair else block.rival[0]
            extra += [gallery_variance(blame(one, not pair), label, rival[i]) for i, one in enumerate(value)]
        total[side], count[side], gallery[side] = np.concatenate(sums), np.concatenate(sizes), np.array(extra)
    cells = []
    for side in total:
        found = ratio_intervals(total[side], count[side], share="B - A" not in side, gallery=gallery[side])
        null = equal and "B - A" in side
        cells.append({"metric": side} | cell(found, 0.0 if null else float(found.mean.mean()), null=null))
    return cells


def ranking_cells(rng: np.random.Generator, runs: int, classes: Sequence[int]) -> list[dict]:
    """Return the cells of simulated embeddings that are ranked."""
    return [
        {"world": name, "sizes": kind, "classes": many} | one
        for name, shape in RANKING_WORLDS.items()
        for kind in ("equal", "uneven")
        for many in classes
        for one in rank_cells(ranking_world(rng, many, kind, **shape), runs, equal=True)
    ]


def feature_cells(rng: np.random.Generator, runs: int, classes: Sequence[int], files: Sequence[Path]) -> list[dict]:
    """Return the cells of real features: in each simulation some of their classes, and of each class some images."""
    cells = []
    for file in files:
        with np.load(file, allow_pickle=True) as data:
            x, y = data["x"], data["y"]
        names = np.unique(y)
        for many in (c for c in classes if c <= MAX_CLASS_SHARE * len(names)):
            found = rank_cells(feature_world(rng, x, y, many), runs, equal=False)
            cells += [{"world": file.stem, "sizes": "equal", "classes": many} | one for one in found]
    return cells


def query_cells(rng: np.random.Generator, runs: int) -> list[dict]:
    """Return the cells of intervals over queries, of five classes that stay the same: other queries of the same classes."""
    level, cells = np.array([0.35, 0.6, 0.75, 0.9, 0.97]), []
    for queries in (30, 100, 400):
        kind = rng.integers(5, size=(runs, queries))
        right = (rng.random(kind.shape) < level[kind]).astype(float)
        graded = rng.beta(4 * level[kind], 4 * (1 - level[kind]))
        other = (rng.random(kind.shape) < level[kind]).astype(float)
        ones = np.ones(kind.shape)
        for name, value, share in (("R@1", right, True), ("MAP@R", graded, True), ("R@1, B - A", other - right, False)):
            truth = float(level.mean()) if share else 0.0
            found = ratio_intervals(value, ones, share=share)
            cells.append({"world": name, "queries": queries} | cell(found, truth, null=not share))
    return cells


def sampled_class_cells(rng: np.random.Generator, runs: int, classes: Sequence[int], percent: int) -> list[dict]:
    """Return the cells of intervals over classes from a sample of the queries, each ranked against the whole gallery.

    The truth is the mean of all queries over other classes, in the mean of all simulations.
    """
    cells = []
    for name, shape in RANKING_WORLDS.items():
        for kind in ("equal", "uneven"):
            for many in classes:
                draw, found = ranking_world(rng, many, kind, **shape), {"R@1": [], "MAP@R": []}
                truth = {name: [] for name in found}
                while len(found["R@1"]) < runs:
                    block = ranked_block(*draw(runs - len(found["R@1"])))
                    for i in range(block.value.shape[1]):
                        some = draw_queries(
                            block.label, round(percent / 100 * len(block.label)), int(rng.integers(1 << 31))
                        )
                        for m, metric in enumerate(found):
                            value = block.value[0, i, m]
                            truth[metric].append(value.mean())
                            found[metric].append(mean_interval(value[some], block.label[some], block.rival[0, i][some]))
                place = {"sizes": kind, "classes": many, "% drawn": percent}
                for metric, ends in found.items():
                    cells.append({"world": f"{metric}, {name}"} | place | cell(columns(ends), np.mean(truth[metric])))
    return cells


def columns(found: Sequence[MeanInterval]) -> RatioIntervals:
    """Return intervals that were computed one by one as those of many means at once."""
    mean, low, high, p, freedom = (np.array([getattr(one, name) for one in found]) for name in MEAN_COLUMNS)
    return RatioIntervals(mean, low, high, p, freedom, np.array([int(bool(one.reason)) for one in found]))


MEAN_COLUMNS = ("mean", "low", "high", "p", "freedom")


def sampled_row_cells(rng: np.random.Generator, runs: int, percent: int, classes: int = 300) -> list[dict]:
    """Return the cells of intervals of the mean over all queries of the same rows, from a sample of them."""
    cells = []
    for kind in SIZES:
        for world in ("R@1", "MAP@R"):
            low, high, truth = np.full(runs, np.nan), np.full(runs, np.nan), np.zeros(runs)
            for run in range(runs):
                label = np.repeat(np.arange(classes), SIZES[kind](rng, classes))
                level = rng.beta(2, 1, classes)[label]
                value = (
                    (rng.random(len(label)) < level).astype(float)
                    if world == "R@1"
                    else rng.beta(4 * level, 4 - 4 * level)
                )
                drawn = draw_queries(label, round(percent / 100 * len(label)), int(rng.integers(1 << 31)))
                order = np.arange(len(drawn))
                sample = QuerySample(np.zeros(0, bool), order, np.ones(len(drawn)), len(label), 0, 0)
                truth[run] = value.mean()
                low[run], high[run] = interval_of_all(value[drawn], sample) or (np.nan, np.nan)
            nothing, why = np.full(runs, np.nan), np.isnan(low).astype(int)
            found = cell(RatioIntervals(nothing, low, high, nothing, nothing, why), truth)
            cells.append({"world": world, "sizes": kind, "% drawn": percent} | found)
    return cells


def seed_cells(rng: np.random.Generator, runs: int) -> list[dict]:
    """Return the cells of the t interval over trainings with different seeds."""
    laws = {"normal": rng.standard_normal, "long tails (t, 5 degrees)": lambda size: rng.standard_t(5, size)}
    cells = []
    for name, law in laws.items():
        for seeds in (2, 3, 5, 10):
            ends = np.array([t_interval(values)[1:3] for values in law((runs, seeds))])
            holds = float(((ends[:, 0] <= 0) & (ends[:, 1] >= 0)).mean())
            cells.append(
                {"world": name, "seeds": seeds, "runs": runs, "given": 1.0, "covers": holds, "rejects": 1 - holds}
            )
    return cells


def contest_cells(runs: int) -> list[dict]:
    """Return the cells of contests between methods of a bench (Holm's correction), without a better method."""
    from coverage_contests import Bench, contest_rates

    cells = []
    for classes in (10, 100):
        for seeds in (3, 5):
            for methods in (2, 6):
                for uneven in (False, True):
                    bench = Bench(classes, seeds, methods, interaction=0.04, uneven=uneven)
                    rates = contest_rates(bench, runs, seed=len(cells))
                    place = {
                        "classes": classes,
                        "seeds": seeds,
                        "methods": methods,
                        "sizes": "uneven" if uneven else "equal",
                    }
                    cells.append(place | {"runs": runs, "rejects": rates["family"], "covers": rates["coverage"]})
    return cells


def score_cells(runs: int) -> list[dict]:
    """Return the cells of differences between two label scores that are equally good."""
    from coverage_contests import Scores, score_rates

    cells = []
    for samples, wrong in ((300, 0.05), (300, 0.2), (1000, 0.05)):
        rates = score_rates(Scores(samples, wrong, correlation=0.5), runs, seed=len(cells))
        cells += [
            {"metric": m, "samples": samples, "wrong": wrong, "runs": runs, "rejects": r} for m, r in rates.items()
        ]
    return cells


def measure(options: argparse.Namespace) -> dict[str, list[dict]]:
    """Return the cells of every part."""
    rng, runs, classes = np.random.default_rng(options.seed), options.runs, options.classes
    parts: dict[str, Callable[[], list[dict]]] = {
        "means": lambda: mean_cells(rng, runs, classes),
        "pairs": lambda: pair_cells(rng, runs, classes),
        "ranking": lambda: ranking_cells(rng, runs, classes),
        "features": lambda: feature_cells(rng, runs, classes, options.features),
        "queries": lambda: query_cells(rng, runs),
        "sampled": lambda: [one for n in DRAWN for one in sampled_class_cells(rng, runs, classes[-1:], n)],
        "rows": lambda: [one for n in DRAWN for one in sampled_row_cells(rng, runs, n)],
        "seeds": lambda: seed_cells(rng, runs),
        "contests": lambda: contest_cells(runs),
        "scores": lambda: score_cells(runs),
    }
    return {name: work() for name, work in parts.items() if options.only in (None, name)}


def shown(record: dict | None, value: str = "covers") -> str:
    """Return a coverage or a rate in per cent, with the share of the simulations that have an interval where some have none."""
    if record is None:
        return ""
    some = record.get("given", 1.0)
    if record[value] is None or (value == "covers" and some < MIN_SHOWN_SHARE):
        return f"none ({100 * some:.0f})"
    return f"{100 * record[value]:.1f}" + (f" ({100 * some:.0f})" if value == "covers" and some < 0.995 else "")


def grid(cells: list[dict], rows: Sequence[str], column: str, value: str = "covers") -> str:
    """Return a table in Markdown: one line for each combination of `rows`, one column for each value of `column`."""
    lines = list(dict.fromkeys(tuple(one[name] for name in rows) for one in cells))
    heads = sorted({one[column] for one in cells})
    found = {(*(one[name] for name in rows), one[column]): one for one in cells}
    table = [
        [*rows, *(head if isinstance(head, str) else f"{head} {column}" for head in heads)],
        ["---"] * len(rows) + ["--:"] * len(heads),
    ]
    table += [[*map(str, line), *(shown(found.get((*line, head)), value) for head in heads)] for line in lines]
    return "\n".join(f"| {' | '.join(row)} |" for row in table)


TITLES = {
    "means": "Means over classes: the 95 % interval holds the mean of other classes",
    "ranking": "The same with embeddings that are ranked, other queries and another gallery each time; B - A: two equal networks",
    "features": "The same with classes of real features, at most a tenth of them; A and B: two halves of the dimensions",
    "pairs": "Differences over classes: the 95 % interval holds the difference on other classes",
    "queries": "Over the queries of five classes that stay the same: the interval holds the mean of other such queries",
    "sampled": "A sample of the queries (`--queries`), whole gallery: the interval over classes holds the mean of other classes",
    "rows": "A sample of the queries: the interval of all queries holds the mean of all queries of the same 300 classes",
    "seeds": "Over trainings with different seeds (`bench`): the interval holds the mean of other trainings",
    "contests": "Equal methods in a `bench`: any pair is called better or worse",
    "scores": "Two equally good label scores: the interval of their difference excludes 0",
}
"""Part -> the heading of its table."""

LAYOUTS = {
    "means": (("world", "sizes"), "classes"),
    "ranking": (("world", "metric", "sizes"), "classes"),
    "features": (("world", "metric"), "classes"),
    "pairs": (("world", "sizes"), "classes"),
    "queries": (("world",), "queries"),
    "sampled": (("world", "sizes", "classes"), "% drawn"),
    "rows": (("world", "sizes"), "% drawn"),
    "seeds": (("world",), "seeds"),
    "contests": (("classes", "seeds", "sizes"), "methods"),
    "scores": (("samples", "wrong"), "metric"),
}
"""Part -> the names of its lines, and that of its columns."""


def as_text(found: dict[str, list[dict]]) -> str:
    """Return the tables in Markdown, in per cent, with the number of simulations."""
    runs = sorted({one["runs"] for cells in found.values() for one in cells})
    texts = [
        f"{' or '.join(f'{n:,}' for n in runs)} simulations in each cell, numbers in per cent; in brackets the share of the "
        "simulations that get an interval, where some get none."
    ]
    for part, cells in found.items():
        value, (rows, column) = "rejects" if part in ("contests", "scores") else "covers", LAYOUTS[part]
        if cells:
            texts.append(f"**{TITLES[part]}.**\n\n{grid(cells, rows, column, value)}")
    null = [
        one | {"world": name(part, one)}
        for part in ("pairs", "ranking")
        for one in found.get(part, ())
        if "rejects" in one
    ]
    if null:
        title = "`compare` of two equal networks: one is called better or worse."
        texts.append(f"**{title}**\n\n{grid(null, ('world', 'sizes'), 'classes', 'rejects')}")
    return "\n\n".join(texts)


def name(part: str, one: dict) -> str:
    """Return the name of a world in the table of all parts."""
    return one["world"] if part == "pairs" else f"{one['world']}, {one['metric'].split(',')[0]}"


def write_between(file: Path, text: str) -> None:
    """Replace the text between the two marks of a page."""
    before, _, rest = file.read_text("utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise SystemExit(f"{file} must have the lines {BEGIN} and {END}")
    file.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", "utf-8")


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    parts = list(LAYOUTS)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5000)
    parser.add_argument("--classes", type=int, nargs="+", default=list(CLASSES))
    parser.add_argument("--only", choices=parts)
    parser.add_argument("--features", type=Path, nargs="*", default=[])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="all numbers as JSON")
    parser.add_argument("--read", type=Path, nargs="+", help="tables of numbers that --out wrote, without simulating")
    parser.add_argument("--write", type=Path, help="page whose tables are replaced")
    return parse_with_quick(parser, words, runs=100, classes=[10])


def main(words: Sequence[str] | None = None) -> None:
    options = parse(words)
    found = {}
    for file in options.read or ():
        found |= json.loads(file.read_text("utf-8"))
    found = found if options.read else measure(options)
    if options.out:
        options.out.write_text(json.dumps(found, indent=1), "utf-8")
    text = as_text(found)
    if options.write:
        write_between(options.write, text)
    print(text)


if __name__ == "__main__":
    main()
