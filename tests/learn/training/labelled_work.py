"""Readers of small data with several labels per sample, and relevances between samples, named by dotted names in tests."""

import os

import numpy as np
import torch
from likewise.contracts import Relevance
from likewise.types import Items, Tuples

NAMES = ("red", "green", "dress", "shirt", "striped", "old")


def draw_labels(rows: int, seed: int = 0) -> np.ndarray:
    """Return which of six labels each row has: a colour, a kind, and maybe more."""
    rng = np.random.default_rng(seed)
    hot = np.zeros((rows, 6), bool)
    hot[np.arange(rows), rng.integers(0, 2, rows)] = True
    hot[np.arange(rows), rng.integers(2, 4, rows)] = True
    hot[:, 4:] = rng.random((rows, 2)) < 0.4
    return hot


def labelled(root=None, rows: int = 160) -> Items:
    """Features that are the sum of the vectors of their labels, with noise; the last quarter is the test split."""
    hot, rng = draw_labels(rows), np.random.default_rng(1)
    x = hot @ rng.normal(size=(6, 12)) + rng.normal(size=(rows, 12))
    return items_of(hot, x=x.astype(np.float32))


def pictured(root) -> Items:
    """Pictures of a folder, with labels."""
    paths = sorted(
        os.path.join(folder, name) for folder, _, names in os.walk(root) for name in names if name.endswith(".png")
    )
    return items_of(draw_labels(len(paths)), path=tuple(os.path.relpath(p, root) for p in paths), root=str(root))


def items_of(hot: np.ndarray, **columns) -> Items:
    sets, y = np.unique(hot, axis=0, return_inverse=True)
    label_sets = tuple(tuple(np.flatnonzero(one).tolist()) for one in sets)
    names = tuple("|".join(NAMES[label] for label in one) for one in label_sets)
    split = np.where(np.arange(len(hot)) < 0.75 * len(hot), "train", "test")
    return Items("labelled", y.reshape(-1), names, split=split, label_name=NAMES, label_sets=label_sets, **columns)


class Near(Relevance):
    """Relevance of training samples by the distance of their numbers; every seventh pair is not known."""

    by = "sample"

    def __init__(self, sample_names: tuple[str, ...], reach: int = 4):
        super().__init__()
        self.sample_names = sample_names
        self.reach = reach
        self.ids = len(sample_names)
        self.register_buffer("place", torch.tensor([int(name) for name in sample_names]).float(), persistent=False)

    def forward(self, a, b):
        apart = (self.place[a][:, None] - self.place[b]).abs()
        return (1 - apart / (2 * self.reach)).clamp_min(0).masked_fill(apart % 7 == 6, torch.nan)


class Judged(Relevance):
    """The triplets (i, i + 1, i + 9) of the training samples."""

    by = "sample"
    gives = ("triplets",)

    def __init__(self, sample_names: tuple[str, ...]):
        super().__init__()
        self.sample_names = sample_names
        self.ids = len(sample_names)
        first = torch.arange(self.ids - 9)
        self.register_buffer("given", torch.stack([first, first + 1, first + 9], 1), persistent=False)

    def forward(self, a, b):
        return torch.full((len(a), len(b)), torch.nan, device=a.device)

    def judged(self):
        return self.given.cpu().numpy()

    def triplets(self, y):
        place = torch.full((self.ids,), -1, device=y.device)
        place[y] = torch.arange(len(y), device=y.device)
        t = place[self.given]
        valid = (t >= 0).all(1)
        a, p, n = t.clamp_min(0).T
        return Tuples(a, p, n, valid, torch.ones_like(valid))
