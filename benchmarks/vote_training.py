"""Gain of training with the votes of several workers: heads on features, tested with true labels.

    python benchmarks/vote_training.py cifar10n.npz [--seeds 0 1 2] [--train 6000] [--test 3000]

The file has real votes as for benchmarks/annotators.py (x, label, row, worker, vote), as many for every sample. Each seed draws
other training and test samples. The given label of a training sample is one of its votes, drawn at random. Ways to train: "one
vote", "majority" (ties are drawn at random), "robust" (one vote, --robust), "robust, votes" (--robust --votes) and "true" labels.
"""

from __future__ import annotations

import argparse
import csv
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from measure import parse_with_quick

import likewise
from likewise.score.intervals import t_interval

WAYS = ("one vote", "majority", "robust", "robust, votes", "true")
METRICS = ("R@1", "MAP@R")
SETTINGS = {"dim": 128, "optimizer": "adam", "weight_decay": 4e-4, "lr": 3e-4, "device": "cpu"}


def draw(data: dict[str, np.ndarray], seed: int, options: argparse.Namespace) -> tuple[dict, np.ndarray, np.ndarray]:
    """Return the drawn samples, their split, and the votes of every sample, one column each."""
    rng, n = np.random.default_rng(seed), len(data["label"])
    order = np.argsort(data["row"], kind="stable")
    votes = data["vote"][order].reshape(n, -1)
    rows = rng.permutation(n)[: options.train + options.test]
    split = np.where(np.arange(len(rows)) < options.train, "train", "test")
    return {name: data[name][rows] for name in ("x", "label")}, split, votes[rows]


def labels_of(way: str, true: np.ndarray, votes: np.ndarray, seed: int) -> np.ndarray:
    """Return the labels that a way to train is given for the training samples."""
    rng = np.random.default_rng([seed, 1])
    one = votes[np.arange(len(votes)), rng.integers(0, votes.shape[1], len(votes))]
    if way == "majority":
        count = (votes[:, :, None] == np.arange(true.max() + 1)).sum(1)
        return (count + 0.5 * rng.random(count.shape)).argmax(1)
    return true if way == "true" else one


def measure(way: str, seed: int, data: dict[str, np.ndarray], options: argparse.Namespace, folder: Path) -> dict:
    """Return R@1 and MAP@R on the test samples, and the share of wrong labels that the training was given."""
    drawn, split, votes = draw(data, seed, options)
    trained = split == "train"
    label = np.where(trained, labels_of(way, drawn["label"], votes, seed), drawn["label"])
    np.savez(folder / "data.npz", x=drawn["x"].astype(np.float32), label=label, split=split)
    table = folder / "votes.csv"
    with table.open("w", newline="", encoding="utf-8") as file:
        lines = ((row, f"w{w}", votes[row, w]) for row in np.flatnonzero(trained) for w in range(votes.shape[1]))
        csv.writer(file).writerows([("row", "worker", "label"), *lines])
    classes = len(np.unique(drawn["label"]))
    per_class = max(2, 112 // classes)
    run = likewise.train(
        folder / "data.npz", recipe="robust" if way.startswith("robust") else None, seed=seed, metrics=METRICS,
        loss=f"{options.loss}()", votes=str(table) if way == "robust, votes" else None, epochs=options.epochs,
        sampler=f"SamplesPerClass(batch={classes * per_class}, per_class={per_class})", out=str(folder / "run"), quiet=True,
        **SETTINGS,
    )  # fmt: skip
    assert run.scores is not None
    wrong = float((label != drawn["label"])[trained].mean())
    return {"way": way, "seed": seed, "wrong": wrong, **{name: run.scores["metrics"][name] for name in METRICS}}


def print_table(results: list[dict]) -> None:
    """Print means over the seeds, and differences from one vote, paired by seed, with 95 % intervals."""
    print("| labels | wrong | R@1 | MAP@R | R@1 minus one vote | MAP@R minus one vote |\n|---|---|---|---|---|---|")
    for way in WAYS:
        mine, plain = ([r for r in results if r["way"] == name] for name in (way, WAYS[0]))
        cells = [f"{np.mean([r[name] for r in mine]):.4f}" for name in METRICS]
        for name in METRICS:
            gap = [a[name] - b[name] for a, b in zip(mine, plain)]
            found = t_interval(gap)
            cells.append(f"{found.mean:+.4f} ({found.low:+.4f} to {found.high:+.4f})")
        print(f"| {way} | {np.mean([r['wrong'] for r in mine]):.1%} | " + " | ".join(cells) + " |")


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--seeds", nargs="*", type=int, default=[0, 1, 2])
    parser.add_argument("--train", type=int, default=6000, help="number of training samples")
    parser.add_argument("--test", type=int, default=3000, help="number of test samples")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--loss", default="MultiSimilarity")
    parser.add_argument("--out", type=Path)
    return parse_with_quick(parser, words, seeds=[0], train=200, test=100, epochs=2)


def main(words: Sequence[str] | None = None) -> None:
    options, results = parse(words), []
    torch.set_num_threads(1)
    with np.load(options.file) as stored:
        data = {name: stored[name] for name in ("x", "label", "row", "vote")}
    for seed in options.seeds:
        for way in WAYS:
            with tempfile.TemporaryDirectory() as name:
                results.append(measure(way, seed, data, options, Path(name)))
            print(json.dumps(results[-1]), flush=True)
    print_table(results)
    if options.out:
        options.out.write_text(json.dumps(results, indent=1), "utf-8")


if __name__ == "__main__":
    main()
