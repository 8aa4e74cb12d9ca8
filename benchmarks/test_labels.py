"""Scores under wrong test labels: how often the interval of a corrected score contains the score under the true labels.

    python benchmarks/test_labels.py FEATURES [--data caltech101 pets] [--seeds 2] [--dim 128] [--out cells.json]

FEATURES is a folder of files NAME.npz with features `x` and true labels `y` (and `y_NAME`: labels of people). Of each set some
classes are drawn, and the features are projected to `--dim` principal components: the embedding that is scored. Labels are
spoiled, and the score is corrected from the true labels of random queries and of their neighbours. `--data` also takes the
simulated worlds of `label_worlds.py`.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from label_worlds import SIMILAR_CLASSES, WORLDS, Cell, LabelSet, draw_rows, read_features, simulate_world, take_rows
from measure import parse_with_quick
from torch import Tensor

from likewise.core.retrieval.ranking import rank
from likewise.core.types import Retrieval
from likewise.labels.label_evidence import principal_components
from likewise.score.metrics import metric, reach
from likewise.score.wrong_labels import Estimate, scores_by_review, with_labels

METRIC_NAMES = ("R@1", "R@10", "P@10")
SPOILED_SHARES = (0.05, 0.1, 0.2, 0.3, 0.4)
NOISE_KINDS = ("uniform", "semantic")
REVIEWED_QUERIES = 200
"""Number of queries whose labels, and those of their neighbours, a reviewer knows."""


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("features", type=Path, help="folder of NAME.npz with x and y")
    parser.add_argument("--data", nargs="+", help="sets or simulated worlds; by default all files of the folder")
    parser.add_argument("--shares", nargs="+", type=float, default=SPOILED_SHARES)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--samples", type=int, default=1500)
    parser.add_argument("--classes", type=int, default=50)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--out", type=Path, help="file for all cells (.json)")
    return parse_with_quick(parser, words, shares=[0.2], seeds=[0], samples=300, dim=16)


def transition(x: np.ndarray, true: np.ndarray, kind: str, share: float) -> np.ndarray:
    """Return P(given | true): another class at random, or one of the classes with the most similar centres."""
    classes = int(true.max()) + 1
    centres = np.stack([x[true == c].mean(0) for c in range(classes)]) - x.mean(0)
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    near = np.argsort(-(centres @ centres.T) + 9 * np.eye(classes), axis=1)
    count = classes - 1 if kind == "uniform" else min(SIMILAR_CLASSES, classes - 1)
    table = np.zeros((classes, classes))
    np.put_along_axis(table, near[:, :count], share / count, axis=1)
    return table + (1 - share) * np.eye(classes)


def spoil(true: np.ndarray, table: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return a given label for every true one, each drawn independently."""
    return np.minimum((rng.random(len(true))[:, None] > table[true].cumsum(1)).sum(1), len(table) - 1)


def draw_set(one: LabelSet, name: str, seed: int, options) -> LabelSet:
    """Return some classes and samples of a set, with labels 0 to C - 1 and features along principal components."""
    rng = np.random.default_rng(seed)
    if name not in WORLDS:
        one = take_rows(one, draw_rows(one.true, "plain", options.samples, options.classes, rng))
    one = take_rows(one, np.flatnonzero(one.true >= 0))
    x = torch.as_tensor(one.x)
    x = principal_components(torch.nn.functional.normalize(x, dim=1)) if name not in WORLDS else x
    if x.shape[1] > options.dim:
        x = x @ torch.linalg.svd(x - x.mean(0), full_matrices=False)[2][: options.dim].T
    _, true = np.unique(one.true, return_inverse=True)
    return LabelSet(x.numpy(), true, one.human, one.base)


def rank_all(x: np.ndarray, y: Tensor) -> Retrieval:
    """Return the ranking of all others for each of the samples."""
    z = torch.nn.functional.normalize(torch.as_tensor(x), dim=1)
    return rank(z, y, k=max(reach(METRIC_NAMES).k, 10))


def means(found: Retrieval, y: Tensor) -> np.ndarray:
    """Return the mean of every metric over all queries, with the hits that labels give."""
    return np.array([float(metric(name)(with_labels(found, y)).nan_to_num(0).mean()) for name in METRIC_NAMES])


def estimate(found: Retrieval, given: Tensor, true: Tensor, seed: int) -> tuple[dict[str, Estimate], dict[str, str]]:
    """Return the estimates by metric from a review, and the reasons of those that it cannot give."""
    drawn = torch.as_tensor(np.random.default_rng([seed, 3]).permutation(len(true))[:REVIEWED_QUERIES])
    near = torch.cat([drawn, found.row[drawn, :10].ravel()]).unique()
    label = torch.full_like(true, -1)
    label[near] = true[near]
    return scores_by_review(label, drawn, given, found, METRIC_NAMES)


def measure(cell: Cell, one: LabelSet, options) -> Iterator[dict]:
    """Yield plain, corrected and clean value of every metric in a cell."""
    some = draw_set(one, cell.data, cell.seed, options)
    kind, share = cell.noise.split()
    if kind == "human":
        given = np.unique(some.human[share], return_inverse=True)[1]
    else:
        table = transition(some.x, some.true, kind, float(share))
        rng = np.random.default_rng([cell.seed, NOISE_KINDS.index(kind), round(1000 * float(share))])
        given = spoil(some.true, table, rng)
    given, true = torch.as_tensor(given), torch.as_tensor(some.true)
    ranking = rank_all(some.x, given)
    clean, plain = means(ranking, true), means(ranking, given)
    found, unknown = estimate(ranking, given, true, cell.seed)
    for name, true_score, score in zip(METRIC_NAMES, clean, plain):
        about = {**vars(cell), "metric": name, "clean": true_score, "plain": score}
        one_found: Estimate | None = found.get(name)
        if one_found is None:
            yield about | {"unknown": unknown[name]}
        else:
            inside = bool(one_found.low <= true_score <= one_found.high)
            yield about | one_found._asdict() | {"covered": inside}


def list_cells(name: str, one: LabelSet, options) -> Iterator[Cell]:
    noises = [f"{kind} {share}" for kind in NOISE_KINDS for share in options.shares] + [f"human {k}" for k in one.human]
    yield from (Cell(name, "plain", noise, seed) for seed in options.seeds for noise in noises)


def tabulate(lines: Sequence[dict]) -> str:
    """Return the table: by noise and metric, the mean error of plain and corrected scores, width and coverage."""
    groups = defaultdict(list)
    for line in lines:
        kind, share = line["noise"].split()
        groups[f"{kind} {share}", line["metric"]].append(line)
        groups["people" if kind == "human" else f"{kind}, all", line["metric"]].append(line)
    text = [
        "| noise | metric | clean | plain | corrected | mean error plain | corrected | half width | covered | unknown |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for (noise, name), some in groups.items():
        known = [one for one in some if "value" in one]
        head = f"| {noise} | {name} "
        if not known:
            text.append(f"{head}| | | | | | | | {len(some)} |")
            continue
        clean, plain, value, low, high, inside = (
            np.array([one[key] for one in known]) for key in ("clean", "plain", "value", "low", "high", "covered")
        )
        cells = [clean.mean(), plain.mean(), value.mean(), np.abs(plain - clean).mean(), np.abs(value - clean).mean()]
        cells = " | ".join(f"{100 * cell:.1f}" for cell in [*cells, (high - low).mean() / 2])
        text.append(f"{head}| {cells} | {inside.sum()} of {len(known)} | {len(some) - len(known)} |")
    return "\n".join(text)


def main(words: Sequence[str] | None = None) -> None:
    options = parse(words)
    torch.set_num_threads(1)
    names = options.data or sorted(file.stem for file in options.features.glob("*.npz"))
    lines = []
    for name in names:
        for seed in options.seeds:
            world = name in WORLDS
            one = simulate_world(name, seed) if world else read_features(options.features / f"{name}.npz")
            for cell in (cell for cell in list_cells(name, one, options) if cell.seed == seed):
                lines += measure(cell, one, options)
                if options.out:
                    options.out.write_text(json.dumps(lines, indent=0))
    print(tabulate(lines))
    known = [line["covered"] for line in lines if "covered" in line]
    print(f"{sum(known)} of {len(known)} intervals contain the score under the true labels")


if __name__ == "__main__":
    main()
