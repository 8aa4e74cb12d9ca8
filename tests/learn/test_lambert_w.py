"""Lambert's W against its definition, against SciPy and at its ends."""

import math

import numpy as np
import pytest
import torch
from scipy.special import lambertw

from likewise.learn.lambert_w import INVERSE_E_PARTS, exp_minus_w, lambert_w

BOTH = pytest.mark.parametrize(("kind", "error"), [(torch.float32, 1e-6), (torch.float64, 3e-14)])


def grid(kind, below=True):
    above = np.concatenate([[0.0], np.logspace(-30, 37, 5001)])
    near = np.logspace(-7, math.log10(1 / math.e), 5001) - 1 / math.e if below else []
    return torch.tensor(np.concatenate([near, above]), dtype=kind)


def by_hand(x):
    """The w of w e^w = x by halving an interval, for x >= -1/e."""
    low, high = -1.0, max(1.0, math.log1p(x))
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (low, middle) if middle * math.exp(middle) > x else (middle, high)
    return low


@BOTH
def test_by_hand(kind, error):
    x = torch.tensor([-0.36, -0.3, -0.2, -0.01, 0, 1e-3, 0.5, 1, math.e, 30, 1e6], dtype=kind)
    expected = torch.tensor([by_hand(v) for v in x.tolist()], dtype=torch.float64)
    torch.testing.assert_close(lambert_w(x).double(), expected, rtol=error, atol=error)
    torch.testing.assert_close(exp_minus_w(x).double(), (-expected).exp(), rtol=3 * error, atol=0)


@pytest.mark.parity
@BOTH
def test_as_scipy(kind, error):
    x = grid(kind)
    expected = torch.from_numpy(lambertw(x.double().numpy()).real)
    sound = expected.isfinite()  # SciPy gives NaN close to the branch point
    assert sound.sum() > 10_000
    torch.testing.assert_close(lambert_w(x).double()[sound], expected[sound], rtol=error, atol=max(error, 3e-10))
    positive = grid(kind, below=False)[1:]
    expected = torch.from_numpy(lambertw(positive.double().numpy()).real)
    torch.testing.assert_close(lambert_w(positive).double(), expected, rtol=error / 5, atol=0)
    torch.testing.assert_close(
        exp_minus_w(positive).double(), expected / positive.double(), rtol=error, atol=0, msg="sigma keeps its digits"
    )


@BOTH
def test_the_ends(kind, error):
    least, most = -1 / math.e, torch.finfo(kind).max
    x = torch.tensor([least, -5.0, 0.0, most, torch.inf], dtype=kind)
    w, sigma = lambert_w(x), exp_minus_w(x)
    assert w.dtype == sigma.dtype == kind
    apart = math.sqrt(2 * math.e * max(0.0, float(x[0]) + INVERSE_E_PARTS[kind][0] + INVERSE_E_PARTS[kind][1]))
    assert abs(float(w[0]) + 1 - apart) < 1e-6 and w[1] == -1
    assert w[2] == 0 and sigma[2] == 1
    assert w[3] == w[4] and abs(float(w[3]) - math.log(most) + math.log(math.log(most))) < 0.1
    torch.testing.assert_close(sigma[:2].double(), torch.full((2,), math.e).double(), rtol=1e-3, atol=0)
    assert 0 <= sigma[4] <= sigma[3] < 1e-36
    assert lambert_w(torch.tensor([torch.nan], dtype=kind)).isnan().all()


@BOTH
def test_sigma_falls_all_the_way(kind, error):
    sigma = exp_minus_w(grid(kind).sort().values)
    assert sigma.isfinite().all() and (sigma > 0).all() and (sigma <= math.e).all()
    assert (sigma.diff() <= 4 * error * sigma[1:]).all()


def test_short_numbers_are_widened_and_no_gradient_comes_back():
    x = torch.linspace(0, 4, 9).bfloat16().requires_grad_()
    w = lambert_w(x)
    assert w.dtype == torch.float32 and not w.requires_grad
    torch.testing.assert_close(w, lambert_w(x.detach().float()), rtol=0, atol=0)
