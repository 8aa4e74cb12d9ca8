from collections import Counter

import numpy as np
import pytest
import torch
from likewise.samplers import AnchorNeighbours
from likewise.types import Embedded, LikewiseError

LABELS = np.tile(np.arange(12), 5)


def embedded(turn=0):
    """Class c in the direction of c * 30 degrees (in turn): the nearest of class c are its two neighbours on the circle."""
    angle = torch.as_tensor((LABELS * 5**turn) % 12) * 2 * torch.pi / 12 + 0.01 * torch.as_tensor(LABELS // 4)
    return Embedded(torch.stack([angle.cos(), angle.sin()], 1), torch.as_tensor(LABELS), torch.arange(len(LABELS)))


def started(**changes):
    sampler = AnchorNeighbours(LABELS, **({"batch": 12, "per_class": 4, "neighbourhood": 3} | changes))
    sampler.start(embedded)
    return sampler


def test_a_class_and_its_nearest():
    sampler = started()
    assert len(sampler) == 60 // 12 and sampler.largest_class == 4
    seen = set()
    for number in range(20):
        for batch in sampler.epoch_batches(number):
            assert len(set(batch)) == 12
            classes = LABELS[batch].reshape(3, 4)
            assert (classes == classes[:, :1]).all()
            anchor, one, other = classes[:, 0].tolist()
            assert {(one - anchor) % 12, (other - anchor) % 12} == {1, 11}
            seen.add(anchor)
    assert seen == set(range(12))


def test_classes_of_two_neighbourhoods_are_distinct():
    for batch in started(batch=18, per_class=2, neighbourhood=3).epoch_batches(0):
        assert set(Counter(LABELS[batch]).values()) == {2} and len(set(LABELS[batch])) == 9


def test_neighbours_follow_the_embeddings():
    """In the second turn, class c lies at 5 c: the neighbours of class c are c + 5 and c - 5."""
    sampler = started()
    sampler.epoch_batches(0)
    sampler.observe(embedded(turn=1).z, torch.arange(len(LABELS)))
    for batch in sampler.epoch_batches(1):
        anchor, one, other = LABELS[batch][::4].tolist()
        assert {(one - anchor) % 12, (other - anchor) % 12} == {5, 7}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"batch": 16, "per_class": 4}, "multiple of per_class times neighbourhood, got batch=16"),
        ({"batch": 30, "per_class": 2, "neighbourhood": 5}, "needs 15 classes, but the labels have 12"),
    ],
)
def test_errors(changes, says):
    with pytest.raises(LikewiseError, match=says):
        started(**changes)
