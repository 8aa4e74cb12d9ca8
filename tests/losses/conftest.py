"""One fixed batch with expected values from an independent float64 reference, and fixed triplets for it."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch.nn import functional as F

from likewise.contracts import Miner
from likewise.types import Tuples


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
