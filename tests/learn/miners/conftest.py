"""A small batch with a class of one, its distances in float64, and many draws of a miner from it."""

from types import SimpleNamespace

import pytest
import torch
from likewise.similarity import compare
from likewise.types import Pairs


@pytest.fixture
def crowd():
    g = torch.Generator().manual_seed(1)
    y = torch.tensor([0, 0, 0, 1, 1, 2, 2, 2, 3])
    z = torch.nn.functional.normalize(torch.randn(9, 3, generator=g, dtype=torch.float64), dim=1)
    sim, pairs = compare(z, y)

    def draw(miner, times=400, margin=0.2):
        """(anchor, positive, negative) of every valid tuple, each row drawn from so many times."""
        torch.manual_seed(0)
        many = Pairs(pairs.pos.repeat(times, 1), pairs.neg.repeat(times, 1))
        t = miner(sim.repeat(times, 1), many, 3, margin)
        return [(a % 9, p, n) for a, p, n, ok in zip(*(v.tolist() for v in (t.a, t.p, t.n, t.valid))) if ok]

    mates = [[j for j in range(9) if j != i and y[j] == y[i]] for i in range(9)]
    others = [[j for j in range(9) if y[j] != y[i]] for i in range(9)]
    d = torch.cdist(z, z).tolist()
    return SimpleNamespace(z=z, y=y, sim=sim, pairs=pairs, d=d, draw=draw, mates=mates, others=others)
