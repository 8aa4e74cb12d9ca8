"""Divergences of rows by hand, and against torch's own."""

import pytest
import torch
from torch.nn import functional as F

from likewise.learn.terms._distillation import kl_rows, similarities


@pytest.mark.parametrize("temperature", [1.0, 0.3])
def test_by_hand(kl_by_hand, temperature):
    torch.manual_seed(0)
    a, b = torch.randn(2, 5, 7, dtype=torch.float64)
    torch.testing.assert_close(kl_rows(a, b, temperature), kl_by_hand(a, b, temperature))
    assert not torch.allclose(kl_rows(a, b, temperature), kl_rows(b, a, temperature))
    torch.testing.assert_close(kl_rows(a, a + 3), torch.zeros(5, dtype=torch.float64))


@pytest.mark.parity
def test_agrees_with_torch():
    torch.manual_seed(1)
    a, b = torch.randn(2, 5, 7, dtype=torch.float64)
    other = F.kl_div(b.log_softmax(1), a.softmax(1), reduction="none").sum(1)
    torch.testing.assert_close(kl_rows(a, b), other)


def test_similarities_keep_their_precision_under_autocast():
    torch.manual_seed(2)
    z = F.normalize(torch.randn(6, 32), dim=1)
    with torch.autocast("cpu", torch.bfloat16):
        found = similarities(z)
        assert (z @ z.T).dtype == torch.bfloat16
    torch.testing.assert_close(found, z @ z.T, rtol=0, atol=1e-6)
