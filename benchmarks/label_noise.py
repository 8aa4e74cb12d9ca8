"""Accuracy of label scores on features with known wrong labels: likewise beside cleanlab and SelfClean, without any training.

    python benchmarks/label_noise.py --features FOLDER --out grid    # cells of every FOLDER/NAME.npz (x, y, human labels y_*)
    python benchmarks/label_noise.py --worlds --out grid             # cells of simulated worlds
    python benchmarks/label_noise.py --table grid                    # table.json and table.md: detection, rates, reliability
    python benchmarks/label_noise.py --leak                          # features of pure noise: percentile of the own label

Each cell is a set, a variant (plain, long tail, copies), a kind of noise (uniform, semantic, human) and a seed. A judge writes
one file for each cell; a grid that was stopped continues where it ended. To measure a changed likewise again, give it a name:
`--judges likewise --called new`.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from label_tables import as_text, read_accuracy, tabulate, write_accuracy
from label_worlds import WORLDS, Cell, Labelled, LabelSet, list_cells, prepare, read_features, simulate_world
from measure import parse_with_quick
from rivals import cleanlab_scores, selfclean_score

import likewise
from likewise.labels.label_evidence import discriminate

Judgement = tuple[dict[str, np.ndarray], dict[str, float]]
"""Label scores by name (NaN: unknown), and estimated noise rates by name."""


def judge_likewise(one: Labelled, device: str | None) -> Judgement:
    found = likewise.audit_labels(one.x, one.given, features=one.x, device=device)
    return {"likewise": found.score}, {"likewise": found.noise_rate}


def judge_cleanlab(one: Labelled, device: str | None) -> Judgement:
    x = (one.x - one.x.mean(0)) / one.x.std()
    return cleanlab_scores(one.given, {"regression": x}, one.x)


def judge_selfclean(one: Labelled, device: str | None) -> Judgement:
    return {"SelfClean": selfclean_score(one.x, one.given)}, {}


JUDGES: dict[str, Callable[[Labelled, str | None], Judgement]] = {
    "likewise": judge_likewise,
    "SelfClean": judge_selfclean,
    "cleanlab": judge_cleanlab,
}


def own_percentile(x: torch.Tensor, y: torch.Tensor, classes: int, rounds: int) -> float:
    """Return the mean percentile of the own label among all classes, over both tables of scores; 0.5: it had no effect."""
    each, _ = discriminate(x, y, classes, rounds=rounds)
    scores = torch.cat([each.scores(rows) for rows in each.blocks()], 1)
    own = scores.gather(2, y.expand(len(scores), -1)[..., None])
    return float(((scores < own).double() + (scores == own).double() / 2).sum(2).sub(0.5).div(classes - 1).mean())


def measure_leak(seeds: int, sizes: Sequence[tuple[int, int, int]], rounds: Sequence[int]) -> list[dict]:
    """Return the mean percentile of the own label for random labels on features without information, by size and rounds."""
    found = []
    for classes, per_class, dim in sizes:
        for number in rounds:
            values = []
            for seed in range(seeds):
                g = torch.Generator().manual_seed(seed)
                x = torch.randn(classes * per_class, dim, generator=g)
                y = torch.randint(0, classes, (len(x),), generator=g)
                values.append(own_percentile(x, y, classes, number))
            found.append(
                {
                    "classes": classes,
                    "per class": per_class,
                    "dim": dim,
                    "rounds": number,
                    "percentile": np.mean(values),
                }
            )
    return found


def measure_accuracy(one: Labelled, folds: int = 5, shrink: float = 0.3) -> float:
    """Return the cross-validated accuracy of linear discriminants that are trained on the true labels."""
    known = one.true >= 0
    x, true = one.x[known].astype(np.float64), np.unique(one.true[known], return_inverse=True)[1]
    picture = np.unique(one.base[known], return_inverse=True)[1]
    fold = (
        np.random.default_rng(0).permutation(picture.max() + 1)[picture] % folds
    )  # copies of a sample are in one fold
    right = np.zeros(len(true), bool)
    for k in range(folds):
        there, here = fold != k, fold == k
        size = np.bincount(true[there], minlength=true.max() + 1)
        member = np.eye(len(size))[true[there]]
        centre = member.T @ x[there] / np.maximum(size, 1)[:, None]
        rest = x[there] - centre[true[there]]
        spread = rest.T @ rest / len(rest)
        spread = (1 - shrink) * spread + shrink * np.trace(spread) / len(spread) * np.eye(len(spread))
        weight = np.linalg.solve(spread, centre.T)
        offset = np.log(np.maximum(size, 1e-9)) - (centre.T * weight).sum(0) / 2
        right[here] = (x[here] @ weight + offset).argmax(1) == true[here]
    return float(right.mean())


def run_cell(one: LabelSet, cell: Cell, judge: str, file: Path, given: argparse.Namespace) -> None:
    """Write the scores of a judge for a cell, with which labels are wrong."""
    data = prepare(one, cell, given.max_samples, given.max_classes)
    began = time.perf_counter()
    scores, shares = JUDGES[judge](data, given.device)
    if not scores:
        return
    about = vars(cell) | {"judge": given.called or judge, "seconds": time.perf_counter() - began, "estimates": shares}
    rows = np.stack([np.asarray(s, dtype=np.float32) for s in scores.values()])
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_suffix(".part.npz")
    np.savez_compressed(
        unfinished, about=json.dumps(about), wrong=data.wrong, base=data.base, names=list(scores), scores=rows
    )
    unfinished.replace(file)
    print(f"{file}: {about['seconds']:.1f} s", flush=True)


def run_grid(given: argparse.Namespace) -> None:
    """Judge every cell that has no file yet, and measure once how usable the features of a set, variant and seed are."""
    known = set(read_accuracy(given.out))
    files = {file.stem: file for file in sorted(given.features.glob("*.npz"))} if given.features else {}
    for name in [name for name in (*files, *given.worlds) if name in given.only or not given.only]:
        real = read_features(files[name]) if name in files else None
        worlds = {} if real else {seed: simulate_world(name, seed) for seed in range(given.seeds)}
        for cell in list_cells(name, tuple(real.human) if real else (), given.seeds):
            one, key = real or worlds[cell.seed], (cell.data, cell.variant, cell.seed)
            if key not in known and "accuracy" in given.judges:
                known.add(key)
                write_accuracy(
                    given.out, key, measure_accuracy(prepare(one, cell, given.max_samples, given.max_classes))
                )
            for judge in (judge for judge in given.judges if judge in JUDGES):
                file = given.out / (given.called or judge) / f"{cell.name}.npz"
                if not file.exists():
                    run_cell(one, cell, judge, file, given)


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--features", type=Path, help="folder with files NAME.npz")
    parser.add_argument("--worlds", nargs="*", default=(), choices=WORLDS, help="simulated worlds; alone: all of them")
    parser.add_argument("--only", nargs="+", default=(), help="names of sets, in place of all")
    parser.add_argument("--judges", nargs="+", default=("accuracy", *JUDGES), choices=("accuracy", *JUDGES))
    parser.add_argument("--called", help="name for the judge in files and tables; with one judge")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--max-samples", type=int, default=2000)
    parser.add_argument("--max-classes", type=int, default=40)
    parser.add_argument("--out", type=Path, default=Path("grid"))
    parser.add_argument("--table", type=Path)
    parser.add_argument("--ours", default="likewise", help="name of the judge that is compared with the others")
    parser.add_argument("--resamples", type=int, default=500)
    parser.add_argument("--leak", action="store_true")
    parser.add_argument("--device")
    options = parse_with_quick(parser, words, seeds=1, max_samples=60, max_classes=4, resamples=20)
    options.worlds = WORLDS if options.worlds == [] else options.worlds
    return options


def main(words: Sequence[str] | None = None) -> None:
    given = parse(words)
    warnings.filterwarnings("ignore")
    if given.features or given.worlds:
        run_grid(given)
    if given.leak:
        sizes = [(5, 6, 4)] if given.quick else [(20, 30, 32), (20, 30, 512), (100, 6, 256)]
        for line in measure_leak(given.seeds, sizes, (1, 2, 3, 5)):
            print(json.dumps(line))
    if given.table:
        found = tabulate(given.table, given.ours, given.resamples)
        (given.table / "table.json").write_text(json.dumps(found, indent=1))
        (given.table / "table.md").write_text(as_text(found))
        print(as_text(found))


if __name__ == "__main__":
    main()
