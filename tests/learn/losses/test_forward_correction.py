"""Forward correction: by hand with the matrix written out, and what a wrong matrix is told."""

import math

import numpy as np
import pytest
import torch
from likewise.losses import ForwardCorrection, NormSoftmax
from likewise.types import LikewiseError
from torch.nn import functional as F

from likewise.learn.losses.forward_correction import estimate_transition


def by_hand(z, y, proxies, transition, temperature):
    """-log sum_k p_k T[k][y], one class at a time."""
    each = []
    for i in range(len(y)):
        power = []
        for w in proxies.tolist():
            length = math.sqrt(sum(v * v for v in w))
            power.append(math.exp(sum(a * b for a, b in zip(z[i].tolist(), w)) / length / temperature))
        chance = sum(power[k] / sum(power) * transition[k][int(y[i])] for k in range(len(proxies)))
        each.append(-math.log(chance))
    return torch.tensor(each, dtype=torch.float64)


def uniform(classes, share):
    return [[1 - share if k == j else share / (classes - 1) for j in range(classes)] for k in range(classes)]


def made(golden, **arguments):
    loss = ForwardCorrection(classes=6, dim=8, **arguments).double()
    loss.proxies.data = golden.proxies.clone()
    return loss


@pytest.fixture
def matrix(tmp_path):
    """Any noise: rows that add up to 1, some labels never given."""
    found = np.random.default_rng(0).random((6, 6))
    found[2, 3] = found[4, 0] = 0
    found /= found.sum(1, keepdims=True)
    np.save(tmp_path / "t.npy", found)
    return found, str(tmp_path / "t.npy")


@pytest.mark.parametrize("share", [0.01, 0.2, 0.5, 0.8])
@pytest.mark.parametrize("temperature", [0.05, 1.0])
def test_uniform_noise_by_hand(golden, share, temperature):
    found = made(golden, share=share, temperature=temperature)(golden.z, golden.y).detach()
    torch.testing.assert_close(found, by_hand(golden.z, golden.y, golden.proxies, uniform(6, share), temperature))


@pytest.mark.parametrize("temperature", [0.05, 1.0])
def test_any_noise_by_hand(golden, matrix, temperature):
    found = made(golden, transition=matrix[1], temperature=temperature)(golden.z, golden.y).detach()
    expected = by_hand(golden.z, golden.y, golden.proxies, matrix[0], temperature)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)  # the matrix is kept in float32


@pytest.mark.parity
@pytest.mark.parametrize("share", [0.2, 0.5])
def test_the_papers_classifier_agrees_with_torchs_nll_on_the_mixed_prediction(golden, share):
    """Without a temperature: a linear layer with bias on raw embeddings."""
    loss = ForwardCorrection(classes=6, dim=8, share=share, temperature=None).double()
    weight, bias = loss.proxies.detach().split([8, 1], dim=1)
    mixed = F.linear(golden.raw, weight, bias[:, 0]).softmax(1) @ torch.tensor(uniform(6, share), dtype=torch.float64)
    expected = F.nll_loss(mixed.log(), golden.y, reduction="none")
    torch.testing.assert_close(loss(golden.raw, golden.y).detach(), expected)


def test_the_closed_form_is_the_matrix_it_stands_for(golden, tmp_path):
    np.save(tmp_path / "t.npy", np.array(uniform(6, 0.3)))
    short, long = made(golden, share=0.3), made(golden, transition=str(tmp_path / "t.npy"))
    (a, b) = (loss(golden.z, golden.y) for loss in (short, long))
    torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6)
    a.mean().backward()
    b.mean().backward()
    torch.testing.assert_close(short.proxies.grad, long.proxies.grad, rtol=1e-5, atol=1e-7)


@pytest.mark.parity
def test_agrees_with_torchs_nll_on_the_mixed_prediction(golden):
    cosines = golden.z @ F.normalize(golden.proxies, dim=1).T
    mixed = (cosines / 0.05).softmax(1) @ torch.tensor(uniform(6, 0.2), dtype=torch.float64)
    expected = F.nll_loss(mixed.log(), golden.y, reduction="none")
    torch.testing.assert_close(made(golden)(golden.z, golden.y).detach(), expected)


def test_without_noise_it_is_the_plain_softmax(golden):
    plain = NormSoftmax(classes=6, dim=8).double()
    plain.proxies.data = golden.proxies.clone()
    torch.testing.assert_close(made(golden, share=0.0)(golden.z, golden.y), plain(golden.z, golden.y))
    torch.testing.assert_close(made(golden, share=1e-14)(golden.z, golden.y), plain(golden.z, golden.y))


def test_one_wrong_label_is_worth_a_bounded_loss():
    """The point of it: far from the given class the loss levels off, and so does its slope."""
    loss = ForwardCorrection(classes=3, dim=3, share=0.2)
    loss.proxies.data = torch.eye(3)
    z = torch.eye(3)[:1].requires_grad_()
    value = loss(z, torch.tensor([1]))
    value.sum().backward()
    assert value.item() == pytest.approx(-math.log(0.1), abs=1e-5) and z.grad.abs().max() < 1e-5


def test_labels_no_class_is_given_stay_finite(golden, tmp_path):
    np.save(tmp_path / "t.npy", np.eye(6)[[0, 1, 2, 3, 4, 4]])  # label 5 is never given
    loss = made(golden, transition=str(tmp_path / "t.npy"))
    each = loss(golden.z, golden.y)
    each.mean().backward()
    assert torch.isfinite(each).all() and torch.isfinite(loss.proxies.grad).all()
    assert "log_given" not in loss.state_dict()


def test_it_guesses_the_true_class(golden):
    cosines = golden.z @ F.normalize(golden.proxies, dim=1).T
    assert torch.equal(made(golden).predict(golden.z).long(), cosines.argmax(1))


@pytest.mark.parametrize("percentile", [None, 97.0, 50.0])
def test_estimate_by_hand(percentile):
    p = np.random.default_rng(1).dirichlet(np.ones(4) / 2, 60)
    found = estimate_transition(p, percentile)
    kept = p.copy()
    for k in range(4):
        column = sorted(p[:, k])
        if percentile is not None:
            bar = column[math.ceil(percentile / 100 * 59 - 1e-9)]
            column = [v for v in column if v < bar]
        best = next(i for i in range(60) if p[i, k] == column[-1])
        np.testing.assert_allclose(found[k], p[best] / sum(p[best]))
    np.testing.assert_array_equal(p, kept)
    np.testing.assert_allclose(found.sum(1), 1)


def test_estimate_finds_the_noise_that_was_put_in():
    """A network that learned the noisy labels perfectly predicts the rows of T, for samples that are surely of a class."""
    truth = np.array([[0.7, 0.2, 0.1], [0.0, 0.8, 0.2], [0.3, 0.0, 0.7]])
    surely = np.eye(3)
    between = np.random.default_rng(0).dirichlet(np.ones(3), 50)
    np.testing.assert_allclose(estimate_transition(np.concatenate([between, surely]) @ truth), truth)


def test_bad_arguments(tmp_path):
    with pytest.raises(LikewiseError, match=r"share must be below 0.75 for 4 classes.*got 0.75"):
        ForwardCorrection(classes=4, dim=2, share=0.75)
    file = str(tmp_path / "t.npy")
    with pytest.raises(LikewiseError, match=r"must be a .npy file, .*No such file"):
        ForwardCorrection(classes=4, dim=2, transition=file)
    (tmp_path / "t.npy").write_text("0.8 0.2\n0.2 0.8\n")
    with pytest.raises(LikewiseError, match=r"transition must be a .npy file, got '.*t.npy' \("):
        ForwardCorrection(classes=4, dim=2, transition=file)
    np.save(file, np.eye(3)[:2])
    with pytest.raises(LikewiseError, match=r"a row and a column for each class, got shape \(2, 3\)"):
        ForwardCorrection(classes=4, dim=2, transition=file)
    np.save(file, np.eye(3))
    with pytest.raises(LikewiseError, match="a row for each of the 4 classes, got 3 in"):
        ForwardCorrection(classes=4, dim=2, transition=file)(torch.eye(2), torch.tensor([0, 1]))
    for bad in (np.eye(4) * 0.9, np.eye(4) + [[-1, 1, 0, 0]] * 4, np.full((4, 4), np.nan)):
        np.save(file, bad)
        with pytest.raises(LikewiseError, match="rows of transition must be probabilities that sum to 1"):
            ForwardCorrection(classes=4, dim=2, transition=file)
    with pytest.raises(LikewiseError, match="percentile must be above 0 and up to 100, got 0"):
        estimate_transition(np.eye(2), 0.0)
