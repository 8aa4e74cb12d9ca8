import math

import pytest
import torch

from likewise.learn.terms._decorrelation import Decorrelation, reverse_gradient


def unit(vector):
    return [v / math.hypot(*vector) for v in vector]


def test_by_hand():
    torch.manual_seed(0)
    term, s, t = Decorrelation(3, 2, hidden=4).double(), *(torch.randn(5, w, dtype=torch.float64) for w in (3, 2))
    first, _, second = term.regressor
    for found, source, target in zip(term(s, t).tolist(), s.tolist(), t.tolist(), strict=True):
        layer = unit(source)
        for linear, bend in ((first, True), (second, False)):
            layer = [
                b + sum(w * x for w, x in zip(row, layer, strict=True))
                for row, b in zip(linear.weight.tolist(), linear.bias.tolist(), strict=True)
            ]
            layer = [max(0.0, v) for v in layer] if bend else layer
        expected = -sum((a * b) ** 2 for a, b in zip(unit(target), unit(layer), strict=True)) / 2
        assert found == pytest.approx(expected)


def test_gradients_of_embeddings_are_reversed_and_those_of_the_regressor_are_not():
    torch.manual_seed(0)
    term, s, t = Decorrelation(3, 2).double(), *(torch.randn(5, w, dtype=torch.float64) for w in (3, 2))
    with torch.no_grad():
        start = float(term(s, t).mean())
    s.requires_grad_()
    t.requires_grad_()
    term(s, t).mean().backward()
    with torch.no_grad():
        assert float(term(s - 0.1 * s.grad, t - 0.1 * t.grad).mean()) > start  # descent on them undoes the prediction
        for p in term.parameters():
            p -= 0.1 * p.grad
        assert float(term(s, t).mean()) < start


def test_training_makes_two_embeddings_unpredictable():
    """e_2 starts as a copy of e_1: their correlation falls, although the regressor goes on learning."""
    torch.manual_seed(0)
    x = torch.randn(64, 4)
    one, two = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
    two.load_state_dict(one.state_dict())
    term = Decorrelation(4, 4, hidden=32)
    optimizer = torch.optim.Adam([*two.parameters(), *term.parameters()], lr=0.01)

    def best_prediction():
        judge = Decorrelation(4, 4, hidden=32)
        learning = torch.optim.Adam(judge.parameters(), lr=0.01)
        for _ in range(150):
            loss = judge(two(x).detach(), one(x).detach()).mean()
            learning.zero_grad()
            loss.backward()
            learning.step()
        return -loss.item()

    before = best_prediction()
    for _ in range(300):
        optimizer.zero_grad()
        term(two(x), one(x).detach()).mean().backward()
        optimizer.step()
    assert best_prediction() < before


def test_reversed():
    x = torch.randn(3, requires_grad=True)
    assert torch.equal(reverse_gradient(x), x)
    reverse_gradient(x).sum().backward()
    assert x.grad.tolist() == [-1, -1, -1]
