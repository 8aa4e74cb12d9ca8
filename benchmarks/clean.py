"""Planted label errors in folders of images: the share that `likewise clean` flags, and how many flags and suggestions are right.

    python benchmarks/clean.py FOLDER [FOLDER ...] [--classes 30] [--per-class 40] [--share 0.08] [--plantings 5] [--out f.json]

Each FOLDER has one sub-folder per class, or is a file of features that `likewise embed --layer feature` wrote. Classes and
images are drawn at random, features are computed once by the network that `likewise clean` would choose (or `--backbone`), and
labels are moved to another class at random, several times. The audit sees only the planted labels. Planted errors count as
wrong and all other labels as right, although real folders have errors of their own.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from likewise.types import Items
from measure import parse_with_quick

from likewise import audit_labels, embed
from likewise.data import load
from likewise.data.table import write_table
from likewise.models.pretrained.available import available_backbone

TABLE_HEAD = (
    "| folder | images | flagged | recall | precision | suggestions right | estimated |\n|---|---|---|---|---|---|---|"
)


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+")
    parser.add_argument("--classes", type=int, default=30)
    parser.add_argument("--per-class", type=int, default=40)
    parser.add_argument("--share", type=float, default=0.08)
    parser.add_argument("--plantings", type=int, default=5)
    parser.add_argument("--backbone")
    parser.add_argument("--out")
    return parse_with_quick(parser, words, classes=4, per_class=6, plantings=2, share=0.1)


def drawn(items: Items, classes: int, per_class: int, seed: int = 0) -> np.ndarray:
    """Return the rows of some classes and some images of each, drawn at random; as many as there are."""
    rng, rows = np.random.default_rng(seed), []
    some = rng.permutation(np.unique(items.y))[:classes]
    for label in np.sort(some):
        rows.append(np.sort(rng.permutation(np.flatnonzero(items.y == label))[:per_class]))
    return np.concatenate(rows)


def planted(y: np.ndarray, share: float, seed: int) -> np.ndarray:
    """Return labels of which a share is moved to another class, uniformly."""
    rng, (names, number) = np.random.default_rng(seed), np.unique(y, return_inverse=True)
    given, bad = number.copy(), rng.choice(len(y), round(share * len(y)), replace=False)
    given[bad] = (number[bad] + rng.integers(1, len(names), len(bad))) % len(names)
    return names[given]


def measure(x: np.ndarray, y: np.ndarray, share: float, seed: int) -> dict[str, float]:
    """Return the result of one planting."""
    given = planted(y, share, seed)
    found, wrong = audit_labels(x, given), given != y
    hits = found.is_flagged & wrong
    return {
        "flagged": float(found.is_flagged.sum()),
        "recall": float(hits.sum() / wrong.sum()),
        "precision": float(hits.sum() / max(found.is_flagged.sum(), 1)),
        "suggestions": float((found.suggested[hits] == y[hits]).mean()) if hits.any() else float("nan"),
        "estimated": found.noise_rate,
    }


def features(folder: str, args: argparse.Namespace, backbone: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the features and labels of the drawn images."""
    items = load(folder)
    rows = drawn(items, args.classes, args.per_class)
    if items.x is not None:
        return np.asarray(items.x)[rows], items.y[rows]
    with TemporaryDirectory() as place:
        table = Path(place, "images.csv")
        write_table(chosen(items, rows), str(table))
        e = embed(backbone, table, layer="feature", quiet=args.quick)
    return e.z.numpy(), e.y.numpy()


def chosen(items: Items, rows: np.ndarray) -> Items:
    """Return these rows of a folder, with whole paths."""
    assert items.path is not None
    path = tuple(str(Path(items.root, items.path[row]).absolute()) for row in rows)
    return Items(name=items.name, y=items.y[rows], class_name=items.class_name, path=path, root=items.root)


def main(words: Sequence[str] | None = None) -> None:
    args = parse(words)
    backbone = args.backbone or available_backbone().name
    print(
        f"features of {backbone}; {args.share:.0%} planted, mean of {args.plantings} plantings (worst)\n\n{TABLE_HEAD}"
    )
    results = {}
    for folder in args.folders:
        began = time.perf_counter()
        x, y = features(folder, args, backbone)
        embedded = time.perf_counter() - began
        rows = [measure(x, y, args.share, seed) for seed in range(args.plantings)]
        mean = {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}
        worst = {name: float(np.min([row[name] for row in rows])) for name in rows[0]}
        results[folder] = {"images": len(y), "embed_seconds": embedded, "mean": mean, "worst": worst, "plantings": rows}
        shares = " | ".join(f"{mean[n]:.1%} ({worst[n]:.1%})" for n in ("recall", "precision", "suggestions"))
        print(
            f"| {Path(folder).name} | {len(y):,} | {mean['flagged']:.0f} | {shares} | {mean['estimated']:.1%} |",
            flush=True,
        )
    if args.out:
        Path(args.out).write_text(json.dumps({"backbone": backbone, "share": args.share, "folders": results}, indent=1))


if __name__ == "__main__":
    main()
