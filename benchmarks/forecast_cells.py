"""Cells of the benchmark of forecasts: features with planted errors, a real training of a head, and a scripted reviewer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from label_worlds import swap_similar
from likewise.losses import MultiSimilarity, ProxyAnchor
from likewise.noise import Uniform
from likewise.samplers import SamplesPerClass
from torch import Tensor, nn
from torch.nn import functional as F

from likewise.curate.audit.label_probability import class_label_quality
from likewise.labels.many_heads import HeadSettings, score_heads
from likewise.labels.posterior_update import Candidates

CLASSES, PER_CLASS, DIMS = 80, 20, 64
"""Maximum number of classes of a cell, of samples per class, and of principal components of the features."""

SEEN_PROTOCOL = ("pets", "gtsrb", "cifar10")
"""Sets of few classes: trained and tested on other samples of the same classes. The others are tested on unseen classes."""

MIN_WRONG = 0.05
"""Smallest probability of a wrong label with which a sample is in the queue of a review."""


@dataclass(frozen=True)
class Cell:
    """One experiment: a set, a kind of noise, its share and a seed."""

    data: str
    noise: str
    share: float
    seed: int

    @property
    def name(self) -> str:
        return f"{self.data}, {self.noise} {self.share:g}, {self.seed}"


@dataclass(frozen=True, eq=False)
class Planted:
    """Features of training rows with given and true labels, and features of clean test rows."""

    x: Tensor
    given: Tensor
    true: Tensor
    test: Tensor
    test_y: Tensor
    candidates: Candidates
    copies: Tensor | None = None

    @property
    def queue(self) -> Tensor:
        """Rows of the review, the most suspect first."""
        order = self.candidates.wrong.argsort(descending=True, stable=True)
        return order[self.candidates.wrong[order] >= MIN_WRONG]


def simulate(seed: int, classes: int = 24, size: int = 16, dims: int = 24) -> tuple[np.ndarray, np.ndarray]:
    """Return Gaussian classes that vary more in the directions in which their samples vary less."""
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(classes), size)
    centres = rng.standard_normal((classes, dims)) * np.linspace(2.0, 0.1, dims)
    x = centres[y] + rng.standard_normal((len(y), dims)) * np.linspace(0.5, 1.5, dims)
    return x.astype(np.float32), y


def load(data: str, folder: Path, seed: int, human: str = "") -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return features, true labels and the labels of people (the true ones if there are none), subsampled."""
    rng = np.random.default_rng(seed)
    if data == "simulated":
        x, y = simulate(seed)
        return x, y, y
    with np.load(folder / f"{data}.npz") as stored:
        x, y = stored["x"], stored["label"]
    given = torch.load(human, weights_only=False)["worse_label"] if human else y
    size = np.bincount(y)
    classes = rng.permutation(np.flatnonzero(size >= 6))[:CLASSES]
    per_class = max(PER_CLASS, 1200 // len(classes))
    rows = np.concatenate([rng.permutation(np.flatnonzero(y == c))[:per_class] for c in classes])
    return x[rows].astype(np.float32), y[rows], np.asarray(given)[rows]


def prepare(cell: Cell, folder: Path, human: str = "") -> Planted:
    """Return the data of a cell: split, on principal components of the training rows, with planted errors and scores."""
    rng = np.random.default_rng([cell.seed, 3])
    x, y, people = load(cell.data, folder, cell.seed, human if cell.noise == "human" else "")
    if cell.data in SEEN_PROTOCOL:
        train = rng.permutation(len(y)) < len(y) // 2
    else:
        classes = rng.permutation(np.unique(y))
        train = np.isin(y, classes[: len(classes) // 2])
    mean = x[train].mean(0)
    axes = np.linalg.svd(x[train] - mean, full_matrices=False)[2][:DIMS].T
    x = (x - mean) @ axes
    x = torch.as_tensor(x / x[train].std())
    train_classes, true = np.unique(y[train], return_inverse=True)
    noise = np.random.default_rng([cell.seed, 7])
    if cell.noise == "uniform":
        given = Uniform(cell.share)(true, noise)
    elif cell.noise == "human":
        given = np.searchsorted(train_classes, people[train])
    else:
        given = swap_similar(x[train].numpy(), true, cell.share, noise)
    shuffled = torch.as_tensor(np.random.default_rng(cell.seed).permutation(len(true)))
    xt, given, true = x[train][shuffled], torch.as_tensor(given)[shuffled], torch.as_tensor(true)[shuffled]
    found = class_label_quality(xt, given, cell.seed)
    assert found.candidates is not None
    return Planted(xt, given, true, x[~train], torch.as_tensor(y[~train]), found.candidates)


def corrected(one: Planted, rows: Tensor) -> Tensor:
    """Return the given labels after a review of some rows."""
    return one.given.index_copy(0, rows, one.true[rows])


def train_really(
    one: Planted, y: Tensor, seed: int, settings: HeadSettings, loss_name: str = "MultiSimilarity"
) -> Tensor:
    """Return the weights of a linear head, trained with the project's own loss, sampler and layer; one seed decides all."""
    torch.manual_seed(seed)
    head = nn.Linear(one.x.shape[1], settings.dim)
    y = y.unique(return_inverse=True)[1]
    classes = int(y.max()) + 1
    loss = MultiSimilarity() if loss_name == "MultiSimilarity" else ProxyAnchor(classes, settings.dim)
    slow = {"params": head.parameters(), "lr": settings.lr}
    optimiser = torch.optim.AdamW([slow, {"params": loss.parameters(), "lr": settings.lr * 10}], weight_decay=1e-4)
    several = int((torch.bincount(y) > 1).sum())
    sampler = SamplesPerClass(y.numpy(), batch=4 * min(28, several), per_class=4, lonely="skip", seed=seed)
    for epoch in range(settings.epochs):
        for rows in sampler.epoch_batches(epoch):
            z = F.normalize(head(one.x[rows]), dim=1)
            value = loss(z, y[rows]).mean()
            optimiser.zero_grad()
            value.backward()
            optimiser.step()
    return torch.cat([head.weight.T, head.bias[None]]).detach()


def score_really(one: Planted, w: Tensor) -> tuple[float, float]:
    """Return R@1 and MAP@R of a trained head on the clean test rows."""
    x = torch.cat([one.test, torch.ones(len(one.test), 1)], 1)
    found = score_heads(x, one.test_y[None], w[None])
    return float(found.r1[0]), float(found.mapr[0])
