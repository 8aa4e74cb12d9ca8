import pytest
import torch
from likewise.relevance import TreeDepth
from likewise.types import LikewiseError

from likewise.testing import check_relevance

TREE = {
    "lion": ("animal", "cat"), "tiger": ("animal", "cat"), "wolf": ("animal", "dog"), "oak": ("plant",), "rock": (),
}  # fmt: skip
NAMES = tuple(TREE)


def by_hand(a: str, b: str) -> float:
    """Depth of the lowest common ancestor by depth of the deeper class; the root, above all classes, has depth 0."""
    one, other = (*TREE[a], a), (*TREE[b], b)
    shared = 0
    while shared < min(len(one), len(other)) and one[shared] == other[shared]:
        shared += 1
    return shared / max(len(one), len(other))


@pytest.mark.parametrize("power", [1.0, 2.0])
def test_by_hand(power):
    every = torch.arange(5)
    expected = torch.tensor([[by_hand(a, b) ** power for b in NAMES] for a in NAMES])
    found = TreeDepth(TREE, NAMES, power=power)(every, every)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=0)  # one division and one power in float32
    assert found[0, 1] == pytest.approx((2 / 3) ** power) and found[0, 3] == 0 and found.diagonal().eq(1).all()


def test_the_contract():
    check_relevance(lambda: TreeDepth(TREE, NAMES, power=1.5, threshold=0.3))


def test_targets_are_the_relevance_of_all_classes():
    relevance = TreeDepth(TREE, NAMES)
    assert relevance.width == 5
    assert torch.equal(relevance.targets(torch.tensor([2, 0])), relevance(torch.tensor([2, 0]), torch.arange(5)))


def test_the_default_threshold_makes_equal_classes_positive():
    pairs = TreeDepth(TREE, NAMES).pairs(torch.arange(5), torch.arange(5))
    assert torch.equal(pairs.pos, torch.eye(5, dtype=torch.bool)) and torch.equal(pairs.neg, ~pairs.pos)
    wide = TreeDepth(TREE, NAMES, threshold=0.6).pairs(torch.arange(5), torch.arange(5))
    assert wide.pos[0].tolist() == [True, True, False, False, False]


def test_no_tensor_of_pairs_times_levels(largest_tensor):
    relevance, y = TreeDepth(TREE, NAMES), torch.arange(100) % 5
    assert largest_tensor(lambda: relevance(y, y)) <= 100 * 100


def test_a_tree_is_needed():
    with pytest.raises(LikewiseError, match="TreeDepth"):
        TreeDepth(None, NAMES)
