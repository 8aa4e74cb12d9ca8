import math

import pytest
import torch
from likewise.losses import Angular, NPair, angular
from likewise.types import Ref
from pytorch_metric_learning.losses import AngularLoss
from pytorch_metric_learning.reducers import MeanReducer


def dot(a, b):
    return sum(p * q for p, q in zip(a, b))


def unit(a):
    size = math.hypot(*a)
    return [v / size for v in a]


def by_hand(e, y, pairs, alpha, weight, penalty, power=2):
    """One number per anchor; every sample is an anchor once."""
    rows, each = e.tolist(), []
    for a, p in pairs:
        strangers = [n for n in range(len(y)) if y[n] != y[a]]
        tan2, za, zp = math.tan(alpha) ** 2, unit(rows[a]), unit(rows[p])
        both = [s + t for s, t in zip(za, zp)]
        pair = math.log(1 + sum(math.exp(dot(rows[a], rows[n]) - dot(rows[a], rows[p])) for n in strangers))
        angle = [4 * tan2 * dot(both, unit(rows[n])) - 2 * (1 + tan2) * dot(za, zp) for n in strangers]
        each.append(pair + weight * math.log(1 + sum(map(math.exp, angle))) + penalty * math.hypot(*rows[a]) ** power)
    return torch.tensor(each, dtype=torch.float64)


@pytest.fixture
def fixed(golden, monkeypatch):
    """The class mates of the fixed triplets are drawn."""
    p = torch.tensor(golden.miner.triplets)[:, 1]
    monkeypatch.setattr(angular, "draw_columns", lambda mask: (p, mask.any(1)))
    return [(a, p) for a, p, _ in golden.miner.triplets]


def angular_term(e, y, ref=None):
    """What another weight of the angular part adds."""
    values = []
    for weight in (1.0, 2.0):
        torch.manual_seed(0)
        values.append(Angular(weight=weight)(e, y, ref))
    return values[1] - values[0]


@pytest.mark.parametrize(("alpha", "weight", "squared"), [(math.pi / 4, 2.0, True), (0.6, 0.5, False)])
def test_by_hand(golden, fixed, alpha, weight, squared):
    each = Angular(alpha=alpha, weight=weight, squared_penalty=squared)(golden.raw, golden.y)
    torch.testing.assert_close(each, by_hand(golden.raw, golden.y, fixed, alpha, weight, 0.005, 2 if squared else 1))


def test_golden(golden, fixed):
    each = Angular()(golden.raw, golden.y)
    assert math.isclose(each.mean().item(), golden.value["angular"], abs_tol=1e-8)
    term = angular_term(golden.raw, golden.y)
    torch.testing.assert_close(term, golden.each["angular_term"], rtol=0, atol=1e-8)
    assert math.isclose(term.mean().item(), golden.value["angular_term"], abs_tol=1e-8)


def test_the_angular_part_sees_no_lengths(golden):
    # pytorch-metric-learning normalises anchors and positives but not negatives.
    term = angular_term(golden.raw, golden.y)
    torch.testing.assert_close(angular_term(3 * golden.raw, golden.y), term)
    uneven = golden.raw * torch.arange(1, 13)[:, None]
    torch.testing.assert_close(angular_term(uneven, golden.y), term)
    whole = golden.raw.clone(), Ref(5 * golden.raw, golden.y, torch.arange(12))
    torch.testing.assert_close(angular_term(whole[0], golden.y, whole[1]), term)


def test_without_the_angular_part_it_is_the_n_pair_loss(golden):
    y = torch.arange(12) // 2
    torch.testing.assert_close(Angular(weight=0.0)(golden.raw, y), NPair()(golden.raw, y))


def test_a_reference_of_other_samples(golden):
    batch, y, mates = golden.raw[[0, 6]], golden.y[[0, 6]], Ref(golden.raw[[1, 7, 3, 8]], golden.y[[1, 7, 3, 8]])
    each = Angular()(batch, y, mates)
    for row, (anchor, mate, strangers) in enumerate([(0, 1, [7, 3, 8]), (6, 7, [1, 3, 8])]):
        some = [anchor, mate, *strangers]
        value = by_hand(golden.raw[some], golden.y[some], [(0, 1)], math.pi / 4, 2.0, 0.005)
        assert math.isclose(each[row].item(), value.item(), abs_tol=1e-9)


@pytest.mark.parity
def test_agrees_with_pytorch_metric_learning_on_unit_embeddings(golden):
    y = torch.arange(12) // 2  # one class mate each: nothing to draw
    other = AngularLoss(alpha=45, reducer=MeanReducer())(golden.z, y)
    assert math.isclose(angular_term(golden.z, y).mean().item(), other.item(), abs_tol=1e-6)


def test_samples_without_class_mates_do_not_count(golden):
    y = torch.tensor([0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10])
    each = Angular(penalty=0.0)(golden.raw, y)
    torch.testing.assert_close(each[:2] / 6, by_hand(golden.raw, y, [(0, 1), (1, 0)], math.pi / 4, 2.0, 0.0))
    assert (each[2:] == 0).all()


def test_an_embedding_of_zeros_has_a_gradient(golden):
    e = golden.raw.clone()
    e[[0, 4]] = 0
    e.requires_grad_()
    Angular(squared_penalty=False)(e, golden.y).mean().backward()
    assert torch.isfinite(e.grad).all()
