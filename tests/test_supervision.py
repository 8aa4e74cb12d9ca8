"""The contract of relevance: masks by the threshold, and errors where a relevance does not give something."""

import math

import pytest
import torch
from likewise.contracts import Relevance
from likewise.types import LikewiseError

from likewise.testing import check_relevance


class Near(Relevance):
    """Relevance that falls with the difference of the ids; far pairs are not known."""

    threshold = 0.5
    ids = 10

    def forward(self, a, b):
        apart = (a[:, None] - b[None, :]).abs().float()
        return (1 - apart / 4).masked_fill(apart > 4, math.nan)


def test_pairs_by_the_threshold():
    pairs = Near().pairs(torch.tensor([0]), torch.tensor([0, 2, 3, 4, 5]))
    assert pairs.pos.tolist() == [[True, True, False, False, False]]
    assert pairs.neg.tolist() == [[False, False, True, True, False]]
    assert pairs.value.tolist() == [[1.0, 0.5, 0.25, 0.0, 0.0]]


def test_what_is_not_given_is_an_error():
    near = Near()
    assert near.width is None and near.note == "" and near.by == "class" and near.gives == ("pairs",)
    with pytest.raises(LikewiseError, match="Near: has no targets for proxies; use a loss of pairs"):
        near.targets(torch.arange(2))
    with pytest.raises(LikewiseError, match="Near: has no judged triplets; use JudgedTriplets"):
        near.triplets(torch.arange(2))


def test_the_check_accepts_it_and_catches_faults():
    check_relevance(Near)

    class Large(Near):
        def forward(self, a, b):
            return super().forward(a, b) + 1

    class Lopsided(Near):
        def forward(self, a, b):
            return super().forward(a, b) * (a[:, None] / 10)

    class Whole(Near):
        def forward(self, a, b):
            return super().forward(a, b) / len(a)

    class Hidden(Near):
        def __init__(self):
            super().__init__()
            self.table = torch.ones(3)

    class Stored(Near):
        def __init__(self):
            super().__init__()
            self.register_buffer("table", torch.ones(3))

    class Wrong(Near):
        def pairs(self, a, b):
            found = super().pairs(a, b)
            return type(found)(found.pos, ~found.pos, found.value)

    class Promised(Near):
        gives = ("pairs", "targets")

    for kind, rule in [
        (Large, "outside"), (Lopsided, "declared symmetric"), (Whole, "blocks of rows"), (Hidden, "must be buffers.*: table"),
        (Stored, "must not be persistent"), (Wrong, "negatives must be the known pairs"),
    ]:  # fmt: skip
        with pytest.raises(AssertionError, match=rule):
            check_relevance(kind)
    with pytest.raises(LikewiseError, match="Promised: has no targets"):
        check_relevance(Promised)
