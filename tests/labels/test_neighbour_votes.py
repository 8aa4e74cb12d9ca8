"""Neighbours, their votes and clusters of near copies: by hand, and what is not taken for copies."""

import math

import pytest
import torch
from torch.nn import functional as F

from likewise.labels import neighbour_votes as module
from likewise.labels.neighbour_search import nearest_neighbours
from likewise.labels.neighbour_votes import (
    ADDED_VOTES_SHARE,
    MAX_COPY_DISTANCE,
    SCALE_NEIGHBOURS_COUNT,
    VOTE_TEMPERATURE,
    ClassVotes,
    LabelVotes,
    connected,
    copy_clusters,
    vote_distances,
)


def unit(n, dim=8, seed=0):
    return F.normalize(torch.randn(n, dim, generator=torch.Generator().manual_seed(seed)), dim=1)


def clusters(z, y, group=None):
    return copy_clusters(*nearest_neighbours(z, 60)[:2], y, group)


def partition(cluster):
    """Return the clusters of more than one sample, as sorted lists of rows."""
    return sorted(r for r in ((cluster == c).nonzero()[:, 0].tolist() for c in cluster.unique()) if len(r) > 1)


@pytest.mark.parametrize("block", [2**25, 70])
def test_neighbours_and_distances_by_hand(block, monkeypatch):
    monkeypatch.setattr(module, "SIMILARITY_BLOCK_SIZE", block)
    z = unit(30)
    near, distance = nearest_neighbours(z, 5)[:2]
    for i in range(30):
        by_hand = sorted((math.dist(z[i].tolist(), z[j].tolist()), j) for j in range(30) if j != i)[:5]
        assert near[i].tolist() == [j for _, j in by_hand]
        assert distance[i].tolist() == pytest.approx([d for d, _ in by_hand], abs=1e-5)


def test_at_most_all_other_samples_are_neighbours():
    near, distance = nearest_neighbours(unit(4), 60)[:2]
    assert near.shape == distance.shape == (4, 3) and (near != torch.arange(4)[:, None]).all()


def test_near_copies_are_nearer_than_a_share_of_the_local_scale():
    """Distances by hand: all other samples are 1 apart, 0 and 1 are just within or just beyond the limit."""
    n = SCALE_NEIGHBOURS_COUNT + 4
    y = torch.zeros(n, dtype=torch.int64)
    near = torch.tensor([[j for j in range(n) if j != i] for i in range(n)])  # 0 and 1 are each other's first
    for nearness, expected in ((0.99, [[0, 1]]), (1.01, [])):
        distance = torch.ones(near.shape)
        distance[0, 0] = distance[1, 0] = nearness * MAX_COPY_DISTANCE
        assert partition(copy_clusters(near, distance, y)) == expected
        narrow = distance.clone()
        narrow[1, 1:] = 0.9  # the smaller of the two local scales counts
        assert partition(copy_clusters(near, narrow, y)) == []


def test_planted_copies_are_found_and_nothing_else():
    z, rows = unit(300, 16), torch.arange(300)
    y = rows % 5
    assert partition(clusters(z, y)) == []
    copies = F.normalize(
        z[:20].repeat(2, 1) + 0.01 * torch.randn(40, 16, generator=torch.Generator().manual_seed(1)), dim=1
    )
    found = clusters(torch.cat([z, copies]), torch.cat([y, y[:20].repeat(2)]))
    assert partition(found) == [[i, 300 + i, 320 + i] for i in range(20)]
    assert found.unique().tolist() == list(range(300))  # numbers without gaps


def test_few_neighbours_show_no_local_scale():
    z, y = unit(SCALE_NEIGHBOURS_COUNT + 1, 64), torch.zeros(SCALE_NEIGHBOURS_COUNT + 1, dtype=torch.int64)
    z[1] = z[0]
    assert partition(clusters(z[:-1], y[:-1])) == []
    assert partition(clusters(z, y)) == [[0, 1]]


def test_a_compact_class_is_divided_and_copies_are_not():
    """Six samples of one spot: more than half of a label of eight samples, and not of a label of twelve."""
    z = unit(200, 16)
    z[:6] = F.normalize(z[0] + 0.01 * torch.randn(6, 16, generator=torch.Generator().manual_seed(1)), dim=1)
    for size, expected in ((8, []), (12, [[0, 1, 2, 3, 4, 5]])):
        y = (torch.arange(200) >= size).long()
        assert partition(clusters(z, y)) == expected
    y = (torch.arange(200) >= 12).long()
    y[5] = 2  # the only sample of its label: with that label in it, the cluster would be most of a label
    assert partition(clusters(z, y)) == []


def test_groups_are_clusters_and_join_copies():
    z, y = unit(100, 16), torch.arange(100) % 2
    z[51] = F.normalize(z[50] + 1e-3, dim=0)
    group = torch.full((100,), -1)
    assert partition(clusters(z, y, group)) == [[50, 51]]  # -1 is no group
    group[[3, 7, 50]] = 4
    group[[8, 9]] = 0
    assert partition(clusters(z, y, group)) == [[3, 7, 50, 51], [8, 9]]
    group[[51]] = 0
    assert partition(clusters(z, y, group)) == [[3, 7, 8, 9, 50, 51]]


def test_a_group_is_not_divided_even_if_it_is_a_whole_class():
    z, y = unit(100, 16), (torch.arange(100) >= 5).long()
    group = torch.where(torch.arange(100) < 5, 0, -1)
    assert partition(clusters(z, y, group)) == [[0, 1, 2, 3, 4]]


def test_connected_components_by_hand():
    assert connected(5, torch.tensor([], dtype=torch.int64), torch.tensor([], dtype=torch.int64)).tolist() == list(
        range(5)
    )
    found = connected(8, torch.tensor([6, 5, 3, 1]), torch.tensor([5, 3, 7, 2]))
    assert found.tolist() == [0, 1, 1, 3, 4, 3, 3, 3]


@pytest.mark.parametrize("seed", range(5))
def test_connected_components_of_random_graphs_and_of_a_long_path(seed):
    """Compared with one merge of sets per edge."""
    g = torch.Generator().manual_seed(seed)
    n = 200
    i, j = torch.randint(n, (2, 150), generator=g)
    if seed == 0:
        order = torch.randperm(n, generator=g)
        i, j = order[:-1], order[1:]
    name = list(range(n))
    for a, b in zip(i.tolist(), j.tolist()):
        low, high = sorted((name[a], name[b]))
        name = [low if one == high else one for one in name]
    assert connected(n, i, j).tolist() == name


def test_votes_for_classes_by_hand():
    near, y = torch.tensor([[1, 2, 3], [0, 2, 3], [0, 1, 3], [2, 1, 0]]), torch.tensor([2, 0, 0, 1])
    distance = torch.tensor([[1.0, 2.0, 2.5], [1.0, 1.5, math.inf], [math.inf] * 3, [0.5, 1.0, 2.0]])
    votes = ClassVotes(near, distance, y, 3)
    found = votes.scores(torch.arange(4))
    assert found.shape == (1, 4, 3)
    for i in range(4):
        power = [math.exp(-d) for d in distance[i].tolist()]
        share = [ADDED_VOTES_SHARE / 3] * 3
        for j, v in zip(near[i].tolist(), power):
            share[y[j]] += v / sum(power) if sum(power) else 0
        assert found[0, i].tolist() == pytest.approx([math.log(v) for v in share], rel=1e-5)
    assert torch.equal(votes.scores(torch.tensor([3, 0]))[0], found[0, [3, 0]])
    left = votes.without(torch.tensor([False, False, True, False]))
    expected = ClassVotes(near, distance.masked_fill(near == 2, math.inf), y, 3)
    assert torch.equal(left.scores(torch.arange(4)), expected.scores(torch.arange(4)))
    assert torch.equal(votes.scores(torch.arange(4)), found)


def test_neighbours_of_the_own_cluster_have_no_vote():
    near, distance = torch.tensor([[1, 2], [0, 2], [1, 0]]), torch.tensor([[0.2, 0.8], [0.2, 1.0], [0.9, 1.2]])
    found = vote_distances(near, distance, torch.tensor([5, 5, 0]))
    unit = VOTE_TEMPERATURE * 1.0  # the median of the distances to the last neighbour
    expected = [[math.inf, 0.8 / unit], [math.inf, 1.0 / unit], [0.9 / unit, 1.2 / unit]]
    assert found.tolist() == [pytest.approx(row) for row in expected]


def test_votes_for_labels_by_hand():
    near, distance = torch.tensor([[1, 2], [0, 2], [0, 1]]), torch.tensor([[0.0, 1.0], [0.0, torch.inf], [0.0, 0.0]])
    has = torch.tensor([[1.0], [1.0], [0.0]])
    found = LabelVotes(near, distance, has).scores(torch.tensor([0, 1]))[0]
    weight = 1 / (1 + math.exp(-1))
    prior = ADDED_VOTES_SHARE * 1 / 2  # of the other samples
    share = [(weight + prior) / (1 + ADDED_VOTES_SHARE), (1 + prior) / (1 + ADDED_VOTES_SHARE)]
    for value, expected in zip(found[:, 0].tolist(), share, strict=True):
        assert value == pytest.approx(math.log(expected / (1 - expected)), rel=1e-4)  # float32
