import numpy as np
import pytest
import torch
from likewise.samplers import Clustered
from likewise.types import Embedded, LikewiseError
from torch.nn import functional as F

LABELS = np.tile(np.arange(6), 20)
PLACE = np.arange(120) // 40
"""Region of each row: rows of the same region are near each other, and every class is in all three regions."""


def embedded(place=PLACE):
    g = torch.Generator().manual_seed(0)
    z = F.normalize(torch.eye(3)[torch.as_tensor(place)] + 0.1 * torch.randn(120, 3, generator=g), dim=1)
    return Embedded(z, torch.as_tensor(LABELS), torch.arange(120))


def started(**changes):
    sampler = Clustered(LABELS, **({"batch": 12, "per_class": 2, "clusters": 3} | changes))
    sampler.start(embedded)
    return sampler


def test_every_batch_is_from_one_cluster_in_turn():
    sampler = started()
    batches = sampler.epoch_batches(0)
    assert len(batches) == len(sampler) == 10
    assert len(set(zip(PLACE.tolist(), sampler.groups.tolist(), strict=True))) == 3  # clusters are the regions
    assert [set(sampler.groups[batch]) for batch in batches] == [{turn % 3} for turn in range(10)]
    assert [set(sampler.groups[batch]) for batch in sampler.epoch_batches(1)] == [{t % 3} for t in range(10, 20)]
    for batch in batches:
        assert sorted(LABELS[batch]) == sorted([0, 1, 2, 3, 4, 5] * 2) and len(set(batch)) == 12


def test_clusters_keep_their_numbers_and_change_every_second_epoch():
    """Region 0 gives half of its rows to region 1: the numbers are those of the clusters that share most rows."""
    sampler = started(every=2)
    sampler.epoch_batches(0)
    before = sampler.groups.copy()
    moved = np.where(np.arange(120) < 20, 1, PLACE)
    sampler.observe(embedded(moved).z, torch.arange(120))
    sampler.epoch_batches(1)
    assert np.array_equal(sampler.groups, before)
    sampler.epoch_batches(2)
    assert np.array_equal(sampler.groups, np.where(np.arange(120) < 20, before[50], before))


def test_rows_without_a_mate_in_their_cluster_are_not_drawn():
    labels = LABELS.copy()
    labels[0] = 6  # in region 0 alone, with a mate in region 2
    labels[-1] = 6
    sampler = Clustered(labels, batch=12, per_class=2, clusters=3)
    sampler.start(embedded)
    drawn = {row for number in range(2) for batch in sampler.epoch_batches(number) for row in batch}
    assert not drawn & {0, 119}


def test_after_the_division_all_rows_are_one_group():
    sampler = started(until=1)
    sampler.epoch_batches(0)
    assert set(sampler.groups) == {0, 1, 2}
    batches = sampler.epoch_batches(1)
    assert set(sampler.groups) == {-1}
    assert all(len(set(PLACE[batch])) > 1 for batch in batches)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"clusters": 121}, "at most the 120 training samples, got 121"),
        ({"clusters": 115}, "none of 115 has; lower clusters"),
    ],
)
def test_errors(changes, says):
    with pytest.raises(LikewiseError, match=says):
        started(**changes).epoch_batches(0)
