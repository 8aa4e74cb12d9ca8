"""Consensus of several annotators: share of wrong labels of votes with and without features, beside rivals.

    python benchmarks/annotators.py features/ [--seeds 0 1] [--per-sample 3] [--out result.json]
    python benchmarks/annotators.py features/ --people cifar10n.npz cifar10h.npz

The folder has NAME.npz with x (features of one network) and label (true labels). Workers are simulated on each of them, in two
worlds: "mixed" (right in 50 to 95 % of their votes, one who answers at random, one who always gives the same label, and two who
exchange similar classes) and "alike" (all right in 75 %). Half of the wrong votes are for a similar class. --people are files of
real votes: x, label (true), row, worker, vote, and optionally cluster (of images, for the intervals).

Rivals: majority vote (ties are drawn at random), Dawid and Skene 1979 as written here, that of crowd-kit, and the consensus of
cleanlab (CROWDLAB) with probabilities of a logistic regression, cross-validated on the majority labels, or with ours. A rival
whose package is missing is left out. Intervals of differences: 95 %, bootstrap over clusters of images.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from likewise.types import Votes
from measure import parse_with_quick

from likewise.labels.ballots import Ballots, ballots_of, decide, worker_quality
from likewise.labels.vote_evidence import VoteConsensus, find_consensus

RESAMPLES = 2000
COMPONENTS = 256


class Case(NamedTuple):
    """Votes about samples whose true labels are known; `quality` is the true accuracy of simulated workers."""

    name: str
    x: np.ndarray
    true: np.ndarray
    votes: Ballots
    cluster: np.ndarray
    quality: np.ndarray | None = None


def simulate(name: str, x: np.ndarray, y: np.ndarray, world: str, per_sample: int, seed: int) -> Case:
    """Return simulated votes; some workers have many, most have few."""
    rng, classes, n = np.random.default_rng(seed), int(y.max()) + 1, len(y)
    workers = max(6, min(60, n // 100))
    busy = 1 / np.arange(1, workers + 1) ** 0.7
    worker = np.stack([rng.choice(workers, per_sample, False, busy / busy.sum()) for _ in range(n)])
    rank = rng.permutation(workers)
    accuracy = np.full(workers, 0.75) if world == "alike" else np.linspace(0.5, 0.95, workers)[rank]
    similar = nearest_classes(x, y, classes)
    true = y[:, None].repeat(per_sample, 1)
    other = rng.integers(0, classes - 1, true.shape)
    other += other >= true
    wrong = np.where(rng.random(true.shape) < 0.5, similar[true, rng.integers(0, similar.shape[1], true.shape)], other)
    vote = np.where(rng.random(true.shape) < accuracy[worker], true, wrong)
    if world == "mixed":
        chance, same, *swap = rng.choice(workers, 4, False)
        vote = np.where(worker == chance, rng.integers(0, classes, true.shape), vote)
        vote = np.where(worker == same, rng.integers(0, classes), vote)
        swapped = similar[:, 0][true]  # the most similar class, in half of the classes
        vote = np.where(np.isin(worker, swap) & (true % 2 == 0), swapped, vote)
    row = np.arange(n).repeat(per_sample)
    votes = ballots(row, worker.ravel(), vote.ravel(), n, workers, classes)
    count = np.bincount(worker.ravel(), minlength=workers)
    right = np.bincount(worker.ravel(), (vote == true).ravel(), minlength=workers) / np.maximum(count, 1)
    return Case(f"{name} {world}", x, y, votes, np.arange(n), right)


def nearest_classes(x: np.ndarray, y: np.ndarray, classes: int, count: int = 3) -> np.ndarray:
    """Return the classes with the nearest centres."""
    centre = np.stack([x[y == c].mean(0) if (y == c).any() else np.zeros(x.shape[1]) for c in range(classes)])
    centre /= np.linalg.norm(centre, axis=1, keepdims=True) + 1e-12
    sim = centre @ centre.T
    np.fill_diagonal(sim, -2)
    return np.argsort(-sim, axis=1)[:, : min(count, classes - 1)]


def ballots(row: np.ndarray, worker: np.ndarray, vote: np.ndarray, n: int, workers: int, classes: int) -> Ballots:
    return ballots_of(Votes(row, worker, vote, tuple(map(str, range(workers)))), n, classes)


def majority(case: Case, seed: int = 0) -> np.ndarray:
    """Return the label with most votes; ties are drawn at random."""
    count = case.votes.counts.numpy()
    return (count + 0.5 * np.random.default_rng(seed).random(count.shape)).argmax(1)


def dawid_skene(case: Case, steps: int = 100, added: float = 0.01) -> np.ndarray:
    """Return the labels by Dawid and Skene (1979): a full confusion matrix per worker, fitted by EM from the shares of votes."""
    row, worker, label = (t.numpy() for t in (case.votes.row, case.votes.worker, case.votes.label))
    n, classes, workers = case.votes.samples, case.votes.classes, case.votes.workers
    q = case.votes.counts.numpy()
    q = q / q.sum(1, keepdims=True)
    for _ in range(steps):
        confusion = np.full((workers * classes, classes), added)  # (worker, vote) -> true class
        np.add.at(confusion, worker * classes + label, q[row])
        table = confusion.reshape(workers, classes, classes)
        logs = np.log(table / table.sum(1, keepdims=True)).reshape(workers * classes, classes)
        like = np.tile(np.log(q.mean(0) + 1e-12), (n, 1))
        np.add.at(like, row, logs[worker * classes + label])
        new = np.exp(like - like.max(1, keepdims=True))
        new /= new.sum(1, keepdims=True)
        change, q = np.abs(new - q).max(), new
        if change < 1e-4:
            break
    return q.argmax(1)


def crowd_kit(case: Case) -> np.ndarray:
    """Return the labels by `DawidSkene` of crowd-kit."""
    import pandas as pd
    from crowdkit.aggregation import DawidSkene  # pyright: ignore[reportMissingImports]

    row, worker, label = (t.numpy() for t in (case.votes.row, case.votes.worker, case.votes.label))
    found = DawidSkene(n_iter=100).fit_predict(pd.DataFrame({"task": row, "worker": worker, "label": label}))
    return found.loc[np.arange(case.votes.samples)].to_numpy()


def crowdlab(case: Case, p: np.ndarray) -> np.ndarray:
    """Return the consensus of cleanlab; a worker is a column of its table."""
    import pandas as pd
    from cleanlab.multiannotator import get_label_quality_multiannotator  # pyright: ignore[reportMissingImports]

    row, worker, label = (t.numpy() for t in (case.votes.row, case.votes.worker, case.votes.label))
    table = np.full((case.votes.samples, case.votes.workers), np.nan)
    table[row, worker] = label
    found = get_label_quality_multiannotator(
        pd.DataFrame(table[:, ~np.isnan(table).all(0)]), p, verbose=False, return_detailed_quality=False,
        return_annotator_stats=False,
    )  # fmt: skip
    return found["label_quality"]["consensus_label"].to_numpy()


def cross_validated(case: Case, label: np.ndarray, folds: int = 5, seed: int = 0) -> np.ndarray:
    """Return probabilities of a logistic regression on the leading principal components, each fold by the others."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold

    x = torch.as_tensor(case.x) - torch.as_tensor(case.x).mean(0)
    if x.shape[1] > COMPONENTS:
        x = x @ torch.linalg.eigh(x.T @ x)[1][:, -COMPONENTS:]
    x = (x / x.std(0).clamp_min(1e-6) * (x.std(0) / x.std(0).max()).sqrt()).numpy()
    p = np.full((len(x), case.votes.classes), 1e-6)
    splits = StratifiedKFold(folds, shuffle=True, random_state=seed).split(x, label)
    for train, test in splits:
        model = LogisticRegression(C=0.1, max_iter=100).fit(x[train], label[train])
        p[np.ix_(test, model.classes_)] += model.predict_proba(x[test])
    return p / p.sum(1, keepdims=True)


def rivals(case: Case, ours: VoteConsensus) -> dict[str, Callable[[], np.ndarray]]:
    """Return the rivals whose packages are there."""
    found: dict[str, Callable[[], np.ndarray]] = {
        "majority": lambda: majority(case), "Dawid-Skene": lambda: dawid_skene(case)
    }  # fmt: skip
    if find_spec("crowdkit"):
        found["crowd-kit"] = lambda: crowd_kit(case)
    if find_spec("cleanlab"):
        found["cleanlab"] = lambda: crowdlab(case, cross_validated(case, majority(case)))
        if ours.features is not None:
            features = ours.features
            found["cleanlab, our p"] = lambda: crowdlab(case, features.numpy())
    return found


def difference(wrong: np.ndarray, other: np.ndarray, cluster: np.ndarray, seed: int = 0) -> tuple[float, float, float]:
    """Return the difference of two shares of wrong labels, with a 95 % interval by a bootstrap over clusters."""
    number = np.unique(cluster, return_inverse=True)[1]
    total = np.bincount(number, wrong.astype(float) - other)
    size = np.bincount(number)
    rng = np.random.default_rng(seed)
    drawn = []
    for _ in range(RESAMPLES):
        some = rng.integers(0, len(total), len(total))
        drawn.append(total[some].sum() / size[some].sum())
    low, high = np.quantile(drawn, [0.025, 0.975])
    return float(total.sum() / len(wrong)), float(low), float(high)


def measure_case(case: Case, seed: int) -> dict:
    """Return the shares of wrong labels of all methods, and the share that ours are estimated to be wrong."""
    started = time.perf_counter()
    ours = find_consensus(torch.as_tensor(case.x, dtype=torch.float32), case.votes, seed=seed)
    seconds = time.perf_counter() - started
    votes_only = find_consensus(None, case.votes)
    decided, quality = decide(ours.q, case.votes.counts), worker_quality(case.votes, ours.q)
    wrong = {"ours": decided.label.numpy() != case.true}
    wrong["ours, votes only"] = decide(votes_only.q, case.votes.counts).label.numpy() != case.true
    for name, method in rivals(case, ours).items():
        wrong[name] = method() != case.true
    undecided = decided.undecided.numpy()
    found = {
        "case": case.name, "seed": seed, "samples": len(case.true), "workers": case.votes.workers, "seconds": seconds,
        "wrong": {name: float(one.mean()) for name, one in wrong.items()},
        "difference": {n: difference(wrong["ours"], one, case.cluster) for n, one in wrong.items() if n != "ours"},
        "expected": float(decided.wrong.mean()), "undecided": float(undecided.mean()),
        "wrong_decided": float(wrong["ours"][~undecided].mean()), "spread": ours.model.spread,
        "features_wrong": None if ours.features is None else float((ours.features.argmax(1).numpy() != case.true).mean()),
    }  # fmt: skip
    if case.quality is not None:
        asked = quality.votes.numpy() > 0
        inside = (quality.low.numpy() <= case.quality) & (case.quality <= quality.high.numpy())
        found["worker_error"] = float(np.abs(quality.accuracy.numpy() - case.quality)[asked].mean())
        found["worker_covered"] = float(inside[asked].mean())
    return found


def read_features(file: Path, most: int | None) -> tuple[np.ndarray, np.ndarray]:
    with np.load(file) as data:
        x, y = data["x"], data["label"]
    if most is not None and len(x) > most:
        rows = np.sort(np.random.default_rng(0).permutation(len(x))[:most])
        x, y = x[rows], y[rows]
    return x.astype(np.float32), np.unique(y, return_inverse=True)[1]


def read_people(file: Path) -> Case:
    with np.load(file) as data:
        x, true, row, worker, vote = (data[name] for name in ("x", "label", "row", "worker", "vote"))
        cluster = data["cluster"] if "cluster" in data else np.arange(len(true))
    votes = ballots(row, worker, vote, len(true), int(worker.max()) + 1, int(max(vote.max(), true.max())) + 1)
    return Case(file.stem, x.astype(np.float32), true, votes, cluster)


def print_table(results: list[dict]) -> None:
    names = list(dict.fromkeys(name for one in results for name in one["wrong"]))
    print(f"| votes | seed | {' | '.join(names)} | ours - best rival | expected | undecided |")
    print("|---|---|" + "---|" * (len(names) + 3))
    for one in results:
        shares = " | ".join(f"{one['wrong'][name]:.2%}" if name in one["wrong"] else "-" for name in names)
        others = {n: v for n, v in one["wrong"].items() if not n.startswith("ours")}
        mean, low, high = one["difference"][min(others, key=others.__getitem__)]
        gap = f"{100 * mean:+.2f} ({100 * low:+.2f} to {100 * high:+.2f})"
        print(f"| {one['case']} | {one['seed']} | {shares} | {gap} | {one['expected']:.2%} | {one['undecided']:.2%} |")


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("features", type=Path, help="folder of NAME.npz")
    parser.add_argument("--sets", nargs="*", help="names of the files; by default all")
    parser.add_argument("--worlds", nargs="*", default=["mixed", "alike"], choices=["mixed", "alike"])
    parser.add_argument("--seeds", nargs="*", type=int, default=[0])
    parser.add_argument("--per-sample", type=int, default=3, help="votes of a sample")
    parser.add_argument("--most", type=int, help="maximum number of samples of a set")
    parser.add_argument("--people", nargs="*", type=Path, default=[], help="files of real votes")
    parser.add_argument("--out", type=Path)
    return parse_with_quick(parser, words, seeds=[0], most=400, worlds=["mixed"])


def main(words: Sequence[str] | None = None) -> None:
    options, results = parse(words), []
    files = sorted(options.features.glob("*.npz"))
    if options.sets is not None:
        files = [options.features / f"{name}.npz" for name in options.sets]
    with torch.no_grad():
        for file in options.people:
            results.append(measure_case(read_people(file), 0))
            print(json.dumps(results[-1]), flush=True)
        for file in files:
            x, y = read_features(file, options.most)
            for world in options.worlds:
                for seed in options.seeds:
                    results.append(measure_case(simulate(file.stem, x, y, world, options.per_sample, seed), seed))
                    print(json.dumps(results[-1]), flush=True)
    print_table(results)
    if options.out:
        options.out.write_text(json.dumps(results, indent=1), "utf-8")


if __name__ == "__main__":
    main()
