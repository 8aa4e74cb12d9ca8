import inspect

import pytest
import torch

from likewise.models import heads
from likewise.types import LikewiseError


@pytest.mark.parametrize("name", heads.__all__)
def test_every_head_maps_features_to_the_embedding_and_keeps_its_arguments(name):
    head = getattr(heads, name)(features=7, dim=3)
    assert head(torch.randn(5, 7)).shape == (5, 3)
    for argument, p in inspect.signature(type(head)).parameters.items():
        expected = {"features": 7, "dim": 3}.get(argument, p.default)
        assert getattr(head, argument) == expected


def test_mlp_by_hand():
    head = heads.MLP(4, 2, hidden=6, layers=3)
    f = torch.randn(5, 4)
    (w1, b1), (w2, b2), (w3, b3) = [(m.weight, m.bias) for m in head.net if hasattr(m, "weight")]
    assert [tuple(w.shape) for w in (w1, w2, w3)] == [(6, 4), (6, 6), (2, 6)]
    by_hand = (((f @ w1.T + b1).clamp(min=0)) @ w2.T + b2).clamp(min=0) @ w3.T + b3
    torch.testing.assert_close(head(f), by_hand)


def test_one_layer_is_linear():
    head = heads.MLP(4, 2, layers=1)
    f = torch.randn(5, 4)
    torch.testing.assert_close(head(-f) + head(f), 2 * head(torch.zeros(5, 4)))


@pytest.mark.parametrize(("name", "wrong"), [("Linear", {"dim": 0}), ("MLP", {"layers": 0}), ("MLP", {"hidden": -1})])
def test_widths_must_be_positive(name, wrong):
    argument, value = next(iter(wrong.items()))
    with pytest.raises(LikewiseError, match=rf"{name}: {argument} must be at least 1, got {value}"):
        getattr(heads, name)(**{"features": 4, "dim": 2, **wrong})
