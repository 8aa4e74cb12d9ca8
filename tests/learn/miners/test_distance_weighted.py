import math
from collections import Counter

import pytest
import torch
from likewise.miners import DistanceWeighted
from likewise.similarity import compare
from likewise.types import LikewiseError
from torch.nn import functional as F


def weight(d, dim, lower=0.5):
    """One over the density of distances on the unit sphere, up to a constant."""
    d = min(max(d, lower), 2 - 1e-4)
    return 1 / (d ** (dim - 2) * (1 - d * d / 4) ** ((dim - 3) / 2))


@pytest.mark.parametrize("upper", [None, 1.4])
def test_draws_follow_the_weights(crowd, upper):
    times = 4000
    drawn = crowd.draw(DistanceWeighted(upper=upper), times=times)
    for a in range(8):
        w = {n: weight(crowd.d[a][n], 3) for n in crowd.others[a] if upper is None or crowd.d[a][n] <= upper}
        w = w or dict.fromkeys(crowd.others[a], 1.0)
        count = Counter(n for b, _, n in drawn if b == a)
        assert set(count) <= set(w)
        for n, value in w.items():
            expected = times * value / sum(w.values())
            assert abs(count[n] - expected) < 5 * math.sqrt(expected) + 1
        mates = Counter(p for b, p, _ in drawn if b == a)
        assert set(mates) == set(crowd.mates[a])


def test_distances_beyond_the_upper_cut_are_drawn_uniformly_where_there_is_no_other():
    z = F.normalize(torch.tensor([[1.0, 0.02, 0], [1, -0.02, 0], [-1, 0, 0.1], [-1, 0.3, 0]]), dim=1)
    sim, pairs = compare(z, torch.tensor([0, 0, 1, 1]))
    torch.manual_seed(0)
    count = Counter(DistanceWeighted(upper=1.0)(sim, pairs, 3).n[0].item() for _ in range(600))
    assert set(count) == {2, 3} and abs(count[2] - 300) < 60


def test_the_density_is_that_of_distances_on_the_sphere():
    """Uniform points, drawn with these weights, have uniform distances. (With d in place of d squared they have not.)"""
    dim, g = 16, torch.Generator().manual_seed(0)
    z = F.normalize(torch.randn(3000, dim, generator=g, dtype=torch.float64), dim=1)
    d = torch.cdist(z[:1], z[1:])[0]
    inside = d[(d > 0.8) & (d < 1.7)]
    w = DistanceWeighted(lower=0.1).log_weight((1 - inside.square() / 2)[None], dim)[0].exp2()
    share = (
        torch.histc(inside, 9, 0.8, 1.7),
        torch.tensor([w[(inside > a) & (inside <= a + 0.1)].sum() for a in torch.arange(0.8, 1.65, 0.1)]),
    )
    flat = share[1] / share[1].sum()
    raw = share[0] / share[0].sum()
    assert (raw - 1 / 9).abs().sum() > 0.5
    assert (flat[1:-1] - 1 / 9).abs().max() < 0.05


def test_one_near_duplicate_does_not_silence_the_batch():
    """Weights scaled by their maximum over the whole batch would leave two anchors of 128."""
    g = torch.Generator().manual_seed(0)
    z = F.normalize(torch.randn(128, 512, generator=g), dim=1)
    z[64] = F.normalize(z[0] + 1e-3 * torch.randn(512, generator=g), dim=0)
    y = torch.arange(128) // 4
    t = DistanceWeighted()(*compare(z, y), 512)
    assert t.valid.all()
    others = torch.ones(128, dtype=torch.bool)
    others[[0, 64]] = False
    assert len(t.n[others].unique()) > 40  # the others draw among many negatives, each for itself
    assert t.n[0] == 64


def test_antipodal_negatives_have_a_finite_weight():
    z = torch.tensor([[1.0, 0, 0], [1, 0, 0], [-1, 0, 0], [-1, 0, 0]])
    t = DistanceWeighted()(*compare(z, torch.tensor([0, 0, 1, 1])), 128)
    assert t.valid.all() and t.n[:2].min() >= 2


def test_lower_is_below_upper():
    with pytest.raises(LikewiseError, match=r"lower must be below upper, got lower=1.4, upper=1\.0"):
        DistanceWeighted(lower=1.4, upper=1.0)
