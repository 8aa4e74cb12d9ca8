import math

import pytest
import torch
from likewise.losses import FastAP
from torch.nn import functional as F

LONELY = torch.tensor([0, 0, 0, 1, 1, 2, 2, 2, 2, 3, 4, 5])


def by_hand(z, y, bins):
    width, each, has = 4 / bins, [], 0
    for i in range(len(y)):
        pos, both = [0.0] * (bins + 1), [0.0] * (bins + 1)
        for j in range(len(y)):
            if j == i:
                continue
            d = math.dist(z[i].tolist(), z[j].tolist()) ** 2
            for r in range(bins + 1):
                near = max(0.0, 1 - abs(d - r * width) / width)
                both[r] += near
                pos[r] += near if y[j] == y[i] else 0
        count = sum(y[j] == y[i] for j in range(len(y))).item() - 1
        value = sum(pos[r] * sum(pos[: r + 1]) / sum(both[: r + 1]) for r in range(bins + 1) if sum(both[: r + 1]) > 0)
        each.append(1 - value / count if count else 0.0)
        has += bool(count)
    return torch.tensor(each, dtype=torch.float64) * len(y) / max(1, has)


@pytest.mark.parametrize("bins", [10, 3, 1, 37])
def test_by_hand(golden, bins):
    for z in (golden.z, golden.half):
        for y in (golden.y, LONELY):
            torch.testing.assert_close(FastAP(bins=bins)(z, y), by_hand(z, y, bins))


def test_a_perfect_ranking_costs_nothing():
    y = torch.arange(4).repeat_interleave(4)
    z = F.one_hot(y, 8).double()
    torch.testing.assert_close(FastAP()(z, y), torch.zeros(16, dtype=torch.float64))


def test_a_diverged_network_gives_nan_not_a_crash():
    y = torch.tensor([0, 0, 1, 1])
    assert FastAP()(torch.full((4, 3), torch.nan), y).isnan().all()


def test_graded_by_hand(golden, graded):
    """Every pair adds its relevance to the hits of its two bins, and 1 to all."""
    each, has, bins = [], 0, 10
    for i in range(12):
        hits, every = [0.0] * (bins + 1), [0.0] * (bins + 1)
        for j, r in graded.known(i):
            place = (2 - 2 * float(golden.z[i] @ golden.z[j])) * bins / 4
            for node in range(bins + 1):
                share = max(0.0, 1 - abs(place - node))
                hits[node], every[node] = hits[node] + r * share, every[node] + share
        total = sum(r for _, r in graded.known(i))
        precise = sum(hits[n] * sum(hits[: n + 1]) / max(sum(every[: n + 1]), 1e-300) for n in range(bins + 1))
        each.append(1 - precise / total if total else 0.0)
        has += total > 0
    found = FastAP().with_relevance(graded.relevance)(golden.z, graded.ids)
    torch.testing.assert_close(found, torch.tensor(each, dtype=torch.float64) * 12 / has)
