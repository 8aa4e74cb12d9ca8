"""Trees of classes: distances from class means against every pair, merging against scipy and by hand."""

import numpy as np
import pytest
import torch
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform
from torch.nn import functional as F

from likewise.learn.losses._class_tree import distance_within, merge_classes, spanning_tree


def samples(classes, seed=0):
    g = torch.Generator().manual_seed(seed)
    centre = torch.randn(classes, 4, generator=g, dtype=torch.float64)
    y = torch.arange(classes).repeat_interleave(3)
    return F.normalize(centre[y] + 0.4 * torch.randn(len(y), 4, generator=g, dtype=torch.float64), dim=1), y


def class_means(z, y):
    return torch.stack([z[y == c].mean(0) for c in range(int(y.max()) + 1)])


def mean_distance(a, b):
    """Mean squared distance of different samples, pair by pair."""
    found = [float((u - v).square().sum()) for u in a for v in b if u is not v]
    return sum(found) / len(found)


def test_distances_follow_from_class_means():
    z, y = samples(5)
    mean = class_means(z, y)
    groups = [list(z[y == c]) for c in range(5)]
    expected = [mean_distance(g, g) for g in groups]
    np.testing.assert_allclose(distance_within(mean, torch.full((5,), 3.0)), expected, rtol=1e-12)
    tree = spanning_tree(mean)
    for (p, q), found in zip(tree.edge.tolist(), tree.distance.tolist(), strict=True):
        assert found == pytest.approx(mean_distance(groups[p], groups[q]), rel=1e-12)


def test_a_class_of_one_sample_has_no_distance_within():
    assert distance_within(torch.eye(2), torch.tensor([1.0, 4.0])).isnan().tolist() == [True, False]


@pytest.mark.parity
def test_merging_is_scipys_single_linkage(subtests):
    for seed in range(5):
        with subtests.test(seed=seed):
            mean = class_means(*samples(17, seed))
            matrix = 2 - 2 * (mean @ mean.T)
            joined = linkage(squareform(matrix.fill_diagonal_(0).numpy(), checks=False), "single")
            thresholds = torch.linspace(0.5, 4, 9)
            nodes = merge_classes(spanning_tree(mean), thresholds)
            for threshold, node in zip(thresholds.tolist(), nodes, strict=True):
                other = torch.as_tensor(fcluster(joined, np.nextafter(threshold, 0), "distance"))
                assert torch.equal(node[:, None] == node, other[:, None] == other)


def test_by_hand_and_the_last_level_is_one_node():
    """Directions at 0, 60, 100 and 280 degrees: neighbours have cosines 1/2, cos 40 and -1 (the last is opposite)."""
    angle = torch.tensor([0.0, 60.0, 100.0, 280.0], dtype=torch.float64).deg2rad()
    mean = torch.stack([angle.cos(), angle.sin()], 1)
    tree = spanning_tree(mean)
    assert sorted(map(sorted, tree.edge.tolist())) == [[0, 1], [0, 3], [1, 2]]
    nodes = merge_classes(tree, torch.tensor([0.4, 0.5, 1.1, 1.2, 4.0]))
    same = [[[p for p in range(4) if row[p] == row[q]] for q in range(4)] for row in nodes.tolist()]
    assert same[0] == [[0], [1], [2], [3]]
    assert same[1] == [[0], [1, 2], [1, 2], [3]]
    assert same[2] == same[3] == [[0, 1, 2]] * 3 + [[3]]  # 0 and 2 through 1, though d(0, 2) = 2.35
    assert same[4] == [[0, 1, 2, 3]] * 4
    assert merge_classes(spanning_tree(mean[:1]), torch.tensor([1.0])).tolist() == [[0]]
