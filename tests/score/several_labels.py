"""Data with several labels per sample, and its scores by loops over all pairs."""

import dataclasses
import math

import numpy as np
import torch
from likewise.protocols import UnseenClasses
from likewise.types import Embedded

from likewise.score.evaluate_arrays import items_of_arrays
from likewise.score.retrieve import Scoring
from likewise.score.scoring import score

ALL = ("R@1", "R@5", "P@5", "RP", "MAP@R", "mAP", "MRR", "NDCG@5", "graded-mAP")


def embedded(items):
    return Embedded(torch.as_tensor(items.x), torch.as_tensor(items.y), torch.arange(len(items)))


def scored(items, metrics, protocol=None, **how):
    return score(embedded(items), Scoring(items, protocol or UnseenClasses(), metrics, quiet=True, **how))


def circle(*degrees):
    angle = np.radians(degrees)
    return np.stack([np.cos(angle), np.sin(angle)], 1).astype(np.float32)


def paper():
    """Four points on a circle: 0 red dress, 10 red, 25 dress, 45 blue. Results: of 0: 1 2 3; of 1: 0 2 3; of 2: 1 3 0."""
    return items_of_arrays(circle(0, 10, 25, 45), [["red", "dress"], ["red"], ["dress"], ["blue"]])


def random_items(n=160, seed=0, labels=7):
    rng = np.random.default_rng(seed)
    sets = [sorted(rng.choice(labels, rng.integers(1, 4), replace=False).tolist()) for _ in range(n)]
    middle = rng.normal(size=(labels, 6))
    x = np.stack([middle[one].mean(0) for one in sets]) + 0.5 * rng.normal(size=(n, 6))
    x[20:30] = x[20]
    items = items_of_arrays(x.astype(np.float32), [[f"l{c}" for c in one] for one in sets])
    return dataclasses.replace(items, group=np.where(rng.random(n) < 0.3, rng.integers(0, 12, n), -1)), sets


def by_loops(items, sets, threshold, query=None, gallery=None):
    """Every metric of every query, one pair at a time, with the Jaccard index as relevance."""
    x = items.x.astype(np.float64)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    whole = [[int(v) for v in row] for row in np.round(x * 2.0**26)]
    each = {name: [] for name in ALL}
    for q in range(len(x)):
        if query is not None and not query[q]:
            continue
        order = []
        for g in range(len(x)):
            if (
                g == q
                or (gallery is not None and not gallery[g])
                or (items.group[q] >= 0 and items.group[q] == items.group[g])
            ):
                continue
            r = len({*sets[q]} & {*sets[g]}) / len({*sets[q]} | {*sets[g]})
            order.append((-sum(a * b for a, b in zip(whole[q], whole[g], strict=True)), g, r))
        values = [r for _, _, r in sorted(order)]
        hits = [r >= threshold for r in values]
        total = sum(hits)
        if not total:
            for name in ALL:
                each[name].append(math.nan)
            continue
        precision = [sum(hits[: i + 1]) / (i + 1) for i in range(len(hits))]
        gain, best = (
            sum(r / math.log2(i + 2) for i, r in enumerate(v[:5])) for v in (values, sorted(values, reverse=True))
        )
        each["R@1"].append(float(hits[0]))
        each["R@5"].append(float(any(hits[:5])))
        each["P@5"].append(sum(hits[:5]) / 5)
        each["RP"].append(sum(hits[:total]) / total)
        each["MAP@R"].append(sum(p for p, h in zip(precision[:total], hits, strict=False) if h) / total)
        each["mAP"].append(sum(p for p, h in zip(precision, hits, strict=True) if h) / total)
        each["MRR"].append(1 / (1 + hits.index(True)))
        each["NDCG@5"].append(gain / best)
        graded = sum(sum(min(r, o) for o in values[: i + 1]) / (i + 1) for i, r in enumerate(values) if r > 0)
        each["graded-mAP"].append(graded / sum(values))
    return each
