"""Co-teaching: each network learns from what the other finds easy."""

import math

import pytest
import torch
from likewise.confidence import CoTeaching
from likewise.types import LikewiseError, PeerView


def look(loss):
    return PeerView(torch.zeros(len(loss), 2), torch.as_tensor(loss, dtype=torch.float32), None)


def exchange(part, *losses):
    size = len(losses[0])
    return part.exchange([look(v) for v in losses], torch.zeros(size, dtype=torch.int64), torch.arange(size))


def by_hand(loss, rate):
    """1 for the floor((1 - rate) n) smallest, one at least; whole per cents, so that floor is exact."""
    kept = max(1, (100 - round(100 * rate)) * len(loss) // 100)
    order = sorted(range(len(loss)), key=lambda i: loss[i])
    return [float(i in order[:kept]) for i in range(len(loss))]


@pytest.mark.parametrize("share", [0.0, 0.1, 0.2, 0.25, 0.3, 0.5, 0.7, 0.9, 0.99])
@pytest.mark.parametrize("size", [1, 2, 7, 10, 20, 360])
def test_each_gets_the_choice_of_the_other(share, size):
    part = CoTeaching(share=share, per_pass=5, ramp="0")
    g = torch.Generator().manual_seed(size)
    a, b = torch.rand(size, generator=g).tolist(), torch.rand(size, generator=g).tolist()
    first, second = exchange(part, a, b)
    assert first.w.tolist() == by_hand(b, share) and second.w.tolist() == by_hand(a, share)
    assert first.mean_over == second.mean_over == "kept" and first.partner is None
    assert first.suspicion.tolist() == pytest.approx(b) and second.suspicion.tolist() == pytest.approx(a)
    assert torch.equal(first.w == 0, first.suspicion >= first.threshold)


@pytest.mark.parametrize(
    ("share", "power", "ramp"), [(0.4, 1.0, "10e"), (0.4, 2.0, "4e"), (0.3, 1.0, "1e"), (0.3, 1.0, "30")]
)
def test_the_share_left_out_grows_pass_by_pass(share, power, ramp):
    part = CoTeaching(share=share, per_pass=10, ramp=ramp, power=power)
    until = int(ramp[:-1]) if ramp.endswith("e") else int(ramp) / 10
    for step in range(130):
        e = step // 10
        expected = share if e >= until else share**power * min(e / (until - 1), 1) if until > 1 else 0
        assert math.isclose(float(part.observe_state()["left_out"]), expected, abs_tol=1e-6), step
        part.after_step(step + 1)


def test_no_gradient_equal_losses_and_losses_that_are_no_numbers():
    part = CoTeaching(share=0.5, per_pass=1, ramp="0")
    seen = [look([1.0, 1.0, 1.0, 1.0]), look([math.nan, math.inf, 0.1, 0.2])]
    seen[0] = seen[0]._replace(loss=seen[0].loss.requires_grad_())
    first, second = part.exchange(seen, torch.zeros(4, dtype=torch.int64), torch.arange(4))
    assert first.w.tolist() == [0, 0, 1, 1] and second.w.tolist() == [1, 1, 0, 0]
    assert not second.w.requires_grad and not second.suspicion.requires_grad


def test_bad_use():
    part = CoTeaching(share=0.2, per_pass=5)
    one = torch.zeros(3, dtype=torch.int64)
    with pytest.raises(LikewiseError, match="must have two networks, got 1"):
        part(torch.zeros(3, 2), one, one, torch.zeros(3))
    with pytest.raises(LikewiseError, match="got 3; use it as --confidence of a training"):
        exchange(part, *[[1.0, 2.0]] * 3)
    with pytest.raises(LikewiseError, match="CoTeaching: ramp must be a number of steps.*got 'soon'"):
        CoTeaching(share=0.2, per_pass=5, ramp="soon")
