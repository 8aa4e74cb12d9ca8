"""Scores by a plain loop over all pairs, and embeddings to try them on."""

import math

import numpy as np
import pytest
from likewise.config import Evaluate

from likewise.score.evaluate import evaluate

NAMES = ("R@1", "R@5", "P@5", "RP", "MAP@R")


def by_hand(x, y, query=None, gallery=None, group=None, k=5, euclidean=False):
    """Every metric for every query, one pair at a time; queries with nothing to find are left out."""
    x, y = np.asarray(x, np.float64), list(y)
    every = range(len(x))
    each = {"R@1": [], f"R@{k}": [], f"P@{k}": [], "RP": [], "MAP@R": []}
    unscored, order_of = 0, {}
    for q in every:
        if query is not None and not query[q]:
            continue
        answers = []
        for g in every:
            if g == q or (gallery is not None and not gallery[g]):
                continue
            if group is not None and group[q] >= 0 and group[q] == group[g]:
                continue
            dot = sum(a * b for a, b in zip(x[q], x[g]))
            cosine = dot / math.sqrt(sum(a * a for a in x[q]) * sum(b * b for b in x[g]))
            near = -math.dist(x[q], x[g]) if euclidean else cosine
            answers.append((-near, g))
        hits = [y[g] == y[q] for _, g in sorted(answers)]
        order_of[q] = [g for _, g in sorted(answers)]
        total = sum(hits)
        if not total:
            unscored += 1
            continue
        each["R@1"].append(float(hits[0]))
        each[f"R@{k}"].append(float(any(hits[:k])))
        each[f"P@{k}"].append(sum(hits[:k]) / k)
        each["RP"].append(sum(hits[:total]) / total)
        each["MAP@R"].append(sum(sum(hits[: i + 1]) / (i + 1) for i in range(total) if hits[i]) / total)
    return {name: sum(values) / len(values) for name, values in each.items()}, unscored, order_of


def some(rows=60, classes=6, dim=3, seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(rows) % classes
    return (rng.normal(size=(classes, dim))[y] + rng.normal(size=(rows, dim))).astype(np.float32), y


def score(target, **settings):
    return evaluate(Evaluate(target=str(target), metrics=NAMES, quiet=True, device="cpu", **settings))


def assert_scores(result, expected, unscored=0):
    assert result["metrics"] == pytest.approx(expected, abs=1e-9)
    assert result["unscored"] == unscored
