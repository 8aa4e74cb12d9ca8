"""What the steps of an audit hand to one another."""

import torch
from likewise.types import Embedded

from likewise.curate.audit.records import Errors, to_device


def test_some_errors_are_numbered_anew():
    pair = torch.arange(8).reshape(4, 2)
    errors = Errors(pair, torch.ones(4), torch.tensor([0, 1, 1, 2]), [("a", "x"), ("b", "y"), ("c", "group")])
    some = errors.some(1, 3)
    assert some.pair.tolist() == pair[1:].tolist() and some.error.tolist() == [0, 0, 1]
    assert some.name == [("b", "y"), ("c", "group")] and len(some.sign) == 3


def test_what_is_missing_stays_missing_on_another_device():
    e = Embedded(torch.eye(2), torch.tensor([0, 1]), torch.tensor([4, 5]), f=torch.ones(2, 3))
    there = to_device(e, torch.device("meta"))
    assert there.z.is_meta and there.f.is_meta and there.e is None
