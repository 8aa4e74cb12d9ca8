"""Measure how well an audit finds missing and superfluous labels: planted errors in data with several labels per sample.

python benchmarks/multi_label_noise.py grocery.npz cub.npz --glyphs --out table.json

A file (.npz) has `x`, features, and `sets`, the labels of every sample as a text such as "fruit|apple". Dropped labels are a
share of those that a sample has; added labels are as many as a share of all labels, at random places.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from measure import parse_with_quick

import likewise
from likewise.curate.audit.label_audit import listed_labels
from likewise.data.glyphs import glyphs
from likewise.data.images import image_of

BINS = (0.0, 0.02, 0.1, 0.3, 0.5, 0.7, 0.9, 0.98, 1.0)
"""Bounds of the bins of probabilities, in each of which the mean probability and the share of real errors are compared."""

GLYPH_PIXELS = 20
"""Width and height of the glyphs whose grey levels are the features."""


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", nargs="*", help="files (.npz) with x and sets")
    parser.add_argument("--glyphs", type=int, nargs="?", const=120, default=0, help="also this number of characters")
    parser.add_argument("--noise", nargs="+", default=["0.05,0.02", "0.1,0.05", "0.2,0.05"], help="pairs DROP,ADD")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--rival", action="store_true", help="also cleanlab, if it is installed")
    parser.add_argument("--out", help="write the results as .json")
    return parse_with_quick(parser, words, noise=["0.1,0.03"], seeds=1)


def toy(count: int = 200) -> tuple[np.ndarray, np.ndarray]:
    """Return features in which every label is a direction, and the labels."""
    rng = np.random.default_rng(0)
    has = rng.random((count, 5)) < 0.4
    has[~has.any(1), 0] = True
    x = has @ rng.normal(size=(5, 12)) + 0.3 * rng.normal(size=(count, 12))
    return x.astype(np.float32), has


def glyph_labels(classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the grey levels of drawn characters, and their labels: the letter, its script, its kind and its case."""
    items = glyphs(size=GLYPH_PIXELS, per_class=20, classes=classes)
    x = np.stack([np.asarray(image_of(items, row).convert("L"), np.float32).ravel() for row in range(len(items))]) / 255
    sets = []
    for name in (items.class_name[c] for c in items.y):
        letter, (script, kind) = chr(int(name[2:].split()[0], 16)), (items.taxonomy or {})[name]
        case = ["upper"] if letter.isupper() else ["lower"] if letter.islower() else []
        sets.append(
            [f"letter {letter.lower()}", f"script {script}", f"kind {kind.removeprefix(script).strip()}", *case]
        )
    return x, as_table(sets)


def as_table(sets: Sequence[Sequence[str] | str]) -> np.ndarray:
    """Return which sample has which label."""
    given = listed_labels(sets)[1]
    return given[torch.arange(len(given))].numpy() > 0


def worlds(config: argparse.Namespace) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Yield the name, features and true labels of every data set."""
    if config.quick:
        yield ("toy", *toy())
    for file in config.data:
        stored = np.load(file)
        yield Path(file).stem, stored["x"].astype(np.float32), as_table(stored["sets"].tolist())
    if config.glyphs:
        yield ("glyphs", *glyph_labels(config.glyphs))


def plant(true: np.ndarray, drop: float, add: float, seed: int) -> np.ndarray:
    """Return the labels with errors; every sample keeps a label."""
    rng = np.random.default_rng(seed)
    noisy = true & (rng.random(true.shape) >= drop)
    noisy |= ~true & (rng.random(true.shape) < add * true.sum() / (~true).sum())
    empty = ~noisy.any(1)
    noisy[empty] = true[empty]
    return noisy


def as_sets(has: np.ndarray) -> list[list[str]]:
    """Return the numbers of the labels of every sample, as names of equal length so that their order stays."""
    return [[f"{label:05d}" for label in np.flatnonzero(row)] for row in has]


def measured(chance: np.ndarray, flagged: np.ndarray, noisy: np.ndarray, true: np.ndarray) -> dict:
    """Return precision and recall of flags by kind, and the reliability of the probabilities."""
    found = {}
    for kind, among in (("missing", ~noisy), ("superfluous", noisy)):
        wrong, here = (noisy != true) & among, flagged & among
        hit, known = (here & wrong).sum(), among & ~np.isnan(chance)
        bins = []
        for low, high in pairwise(BINS):
            some = known & (chance >= low) & ((chance < high) | (high == 1))
            if some.any():
                bins.append([float(chance[some].mean()), float(wrong[some].mean()), int(some.sum())])
        found[kind] = {
            "wrong": int(wrong.sum()), "flagged": int(here.sum()), "precision": float(hit / max(1, here.sum())),
            "recall": float(hit / max(1, wrong.sum())), "expected": float(np.nansum(chance[known])), "bins": bins,
        }  # fmt: skip
    return found


def by_rival(x: np.ndarray, noisy: np.ndarray, seed: int) -> np.ndarray | None:
    """Return the states that cleanlab flags, with probabilities by logistic regression out of fold; None: not installed."""
    try:
        from cleanlab.internal.multilabel_utils import onehot2int
        from cleanlab.multilabel_classification.filter import find_multilabel_issues_per_class
    except ImportError:
        return None
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import cross_val_predict
    from sklearn.preprocessing import StandardScaler

    usable = [n for n in range(noisy.shape[1]) if 5 <= noisy[:, n].sum() <= len(noisy) - 5]
    scaled, table = StandardScaler().fit_transform(x), np.zeros((len(x), len(usable)))
    for place, label in enumerate(usable):
        model = LogisticRegression(C=0.01, max_iter=200, random_state=seed)
        table[:, place] = cross_val_predict(model, scaled, noisy[:, label], cv=5, method="predict_proba")[:, 1]
    flagged = np.zeros_like(noisy)
    flagged[:, usable] = find_multilabel_issues_per_class(onehot2int(noisy[:, usable].astype(int)), table)
    return flagged


def main(words: Sequence[str] | None = None) -> None:
    config = parse(words)
    results = []
    print("| data | dropped, added | method | missing: precision, recall | superfluous: precision, recall |")
    print("|---|---|---|---|---|")
    for name, x, true in worlds(config):
        for text in config.noise:
            drop, add = (float(share) for share in text.split(","))
            for seed in range(config.seeds):
                noisy = plant(true, drop, add, seed)
                used = noisy.any(0)  # a label that every sample lost is no label of the given data
                found = likewise.audit_labels(x, label_sets=as_sets(noisy), device="cpu", seed=seed)
                lines = {"likewise": measured(found.wrong, found.is_flagged, noisy[:, used], true[:, used])}
                if config.rival and (theirs := by_rival(x, noisy, seed)) is not None:
                    lines["cleanlab"] = measured(np.full(noisy.shape, np.nan), theirs, noisy, true)
                for method, one in lines.items():
                    cells = [f"{one[k]['precision']:.3f}, {one[k]['recall']:.3f}" for k in ("missing", "superfluous")]
                    print(f"| {name} | {drop:g}, {add:g} | {method} | {' | '.join(cells)} |", flush=True)
                    results.append({"data": name, "drop": drop, "add": add, "seed": seed, "method": method, **one})
    if config.out:
        Path(config.out).write_text(json.dumps(results, indent=1), "utf-8")


if __name__ == "__main__":
    main()
