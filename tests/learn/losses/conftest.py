"""One fixed batch with expected values from an independent float64 reference, and fixed triplets for it."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from likewise.contracts import Miner
from likewise.relevance import GivenValues, SharedLabels
from likewise.types import Tuples
from torch.nn import functional as F


class TrainingSetInfo(Miner):
    """The triplets of the fixed batch, one per anchor."""

    def __init__(self, triplets=()):
        self.triplets = triplets

    def __call__(self, sim, pairs, dim, margin=None):
        a, p, n = torch.tensor(self.triplets).T
        yes = torch.ones(len(a), dtype=torch.bool)
        return Tuples(a, p, n, yes, yes)


@pytest.fixture(scope="session")
def golden():
    data = json.loads((Path(__file__).parent / "golden.json").read_text())
    raw = torch.tensor(data["z"], dtype=torch.float64)
    z = F.normalize(raw, dim=1)
    half = F.normalize(torch.tensor(data["z_half_solved"], dtype=torch.float64), dim=1)
    proxies = torch.tensor(data["proxies"], dtype=torch.float64)
    return SimpleNamespace(
        z=z, raw=raw, centres=torch.tensor(data["centres"], dtype=torch.float64), quadruplets=torch.tensor(data["quadruplets"]),
        y=torch.tensor(data["y"]), half=half, proxies=proxies, miner=TrainingSetInfo(data["triplets"]), value=data["value"],
        each={k: torch.tensor(v, dtype=torch.float64) for k, v in data["each"].items()},
        half_value=data["multi_similarity_half_solved"], half_values=data["value_half_solved"],
    )  # fmt: skip


@pytest.fixture(scope="session")
def graded():
    """A relevance between the twelve samples of the batch, in eighths, some pairs not known: as a matrix and as lists.

    `labels` are several labels for each sample, of five, with their relevance `shared`.
    """
    values = torch.randint(0, 9, (12, 12), generator=torch.Generator().manual_seed(4)) / 8
    values = values.triu() + values.triu(1).T
    values[2, 5] = values[5, 2] = values[7, 8] = values[8, 7] = torch.nan
    values[11] = values[:, 11] = torch.nan  # a sample of which nothing is known
    values[0, 1:] = values[1:, 0] = 0.0  # and one that is like no other
    labels = [[0], [0, 1], [1, 2, 3], [2], [3, 4], [0, 4], [1], [0, 1, 2, 3, 4], [4], [2, 3], [0, 3], [1, 4]]
    r = values.tolist()

    def known(i):
        """Return the other samples whose relevance to sample i is known, with it."""
        return [(j, r[i][j]) for j in range(12) if j != i and r[i][j] == r[i][j]]

    return SimpleNamespace(
        relevance=GivenValues(values),
        r=r,
        known=known,
        ids=torch.arange(12),
        labels=labels,
        shared=SharedLabels(labels),
    )
