"""Similarities of pairs, and the spectrum of embeddings."""

import numpy as np
import pytest
import torch
from likewise.config import Report
from torch.nn import functional as F

from likewise.report.section import ReportTarget, Study
from likewise.report.sections import distances
from likewise.report.sections.distances import MAX_SHOWN_BINS, compare_pairs
from likewise.report.sections.spectrum import of_run


def case(n=60, classes=5, seed=0):
    rng = torch.Generator().manual_seed(seed)
    y = torch.randint(0, classes, (n,), generator=rng)
    return torch.eye(classes, 6)[y] * 2 + torch.randn(n, 6, generator=rng), y.numpy()


def by_hand(z, y, edge, measure):
    kinds = {True: [], False: []}
    for i in range(len(z)):
        for j in range(i + 1, len(z)):
            kinds[y[i] == y[j]].append(float(measure(z[i], z[j])))
    return [np.histogram(kinds[kind], edge)[0] / len(kinds[kind]) for kind in (True, False)], kinds


@pytest.mark.parametrize("similarity", ["cosine", "euclidean"])
def test_all_pairs_by_hand(similarity, monkeypatch):
    monkeypatch.setattr(distances, "MAX_TAIL_SHARE", 0.0)
    z, y = case()
    z = F.normalize(z, dim=1) if similarity == "cosine" else z
    measure = torch.dot if similarity == "cosine" else lambda a, b: (a - b).norm()
    found = compare_pairs(z, y, similarity)
    (within, between), kinds = by_hand(z, y, found.edge, measure)
    assert (
        np.abs(found.within - within).sum() < 0.02 and np.abs(found.between - between).sum() < 0.02
    )  # rounding at edges
    assert found.pairs == (len(kinds[True]), len(kinds[False]))
    assert np.isclose(found.overlap, np.minimum(found.within, found.between).sum()) and 0 < found.overlap < 1
    assert np.isclose(found.within.sum(), 1) and np.isclose(found.between.sum(), 1)
    every = kinds[True] + kinds[False]
    assert found.edge[0] <= min(every) and found.edge[-1] >= max(every) and len(found.within) <= MAX_SHOWN_BINS
    assert found.measure == ("cosine similarity" if similarity == "cosine" else "distance")


def test_a_thin_tail_is_drawn_in_the_last_bin():
    """Three pairs of 4,000 would take half of the chart."""
    edge, body = np.linspace(0, 1, 101), np.zeros(100)
    body[20:40], body[90] = 200, 3
    shown, (one, other) = distances.trim(edge, body / body.sum(), np.roll(body, 0) / body.sum())
    assert shown[0] == pytest.approx(0.2) and shown[-1] == pytest.approx(0.4)
    assert one.sum() == pytest.approx(1) and one[-1] == pytest.approx(203 / 4003) and np.array_equal(one, other)


def test_drawn_pairs_are_close_to_all_of_them():
    z, y = case(900, 3)
    z = F.normalize(z, dim=1)
    exact, drawn = compare_pairs(z, y), compare_pairs(z, y, all_of=300, large=150, seed=1)
    assert drawn.pairs[1] < exact.pairs[1] / 5 and drawn.pairs[0] < exact.pairs[0] / 2
    assert abs(exact.overlap - drawn.overlap) < 0.05
    for kind in ("within", "between"):
        means = [np.average((d.edge[1:] + d.edge[:-1]) / 2, weights=getattr(d, kind)) for d in (exact, drawn)]
        assert abs(means[0] - means[1]) < 0.02


def test_classes_that_are_points_far_apart_have_nothing_in_common():
    z = torch.eye(4).repeat(3, 1)
    found = compare_pairs(z, np.arange(12) % 4)
    assert found.overlap == 0 and found.within[-1] == 1 and found.between[0] == 1


def test_without_pairs_of_a_kind_there_is_nothing():
    z = F.normalize(torch.randn(6, 3), dim=1)
    assert compare_pairs(z, np.arange(6)) is None and compare_pairs(z, np.zeros(6, int)) is None


def study(z, similarity):
    return Study(ReportTarget("me", similarity=similarity), Report(), [], "", [], z=z)


def test_the_spectrum_is_of_unit_embeddings():
    z = torch.randn(20, 5, generator=torch.Generator().manual_seed(0))
    raw, unit = of_run(study(z, "euclidean")), of_run(study(F.normalize(z, dim=1), "cosine"))
    assert np.allclose(raw.value, unit.value, atol=1e-6) and np.isclose(raw.value.sum(), 1, atol=1e-5)
    assert of_run(study(z[:, :2], "cosine")) is None and of_run(study(None, "cosine")) is None
