import math

import pytest
import torch

from likewise.losses._margin_softmax import check_scale, margin_softmax, uniform_proxies
from likewise.types import LikewiseError

PROXIES = torch.tensor([[2.0, 0.0], [0.0, 5.0], [-1.0, 0.0]], dtype=torch.float64)


@pytest.mark.parametrize(("margin", "with_own"), [(0.0, True), (0.3, True), (0.3, False)])
def test_by_hand(margin, with_own):
    z, y = torch.tensor([[0.6, 0.8]], dtype=torch.float64), torch.tensor([1])
    found = margin_softmax(z, y, PROXIES, 3, 4.0, lambda own: own - margin, with_own)
    logits = [4 * 0.6, 4 * 0.8 - margin, -4 * 0.6]
    total = sum(math.exp(v) for c, v in enumerate(logits) if with_own or c != 1)
    assert found.item() == pytest.approx(math.log(total) - logits[1])


def test_sixteen_bit_embeddings_are_compared_in_float32():
    z, y = torch.tensor([[0.6, 0.8]], dtype=torch.bfloat16), torch.tensor([0])
    assert margin_softmax(z, y, PROXIES.float(), 3, 4.0).dtype == torch.float32


def test_proxies_are_drawn_within_their_bounds():
    torch.manual_seed(0)
    assert 0.24 < uniform_proxies(50, 16).abs().max() <= 0.25


def test_a_scale_must_be_above_0():
    check_scale("Mine", 0.1)
    with pytest.raises(LikewiseError, match=r"Mine: scale must be above 0, got 0\.0"):
        check_scale("Mine", 0.0)
    with pytest.raises(LikewiseError, match="Mine: scale must be above 0, got nan"):
        check_scale("Mine", float("nan"))
