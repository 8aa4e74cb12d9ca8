"""N2D2 against a slow loop over a plain list of remembered samples."""

from collections import Counter

import numpy as np
import pytest
import torch
from likewise.confidence import N2D2
from torch.nn import functional as F

C, D = 5, 6
LABELS = np.arange(40) % C
CENTRES = F.normalize(torch.randn(C, D, generator=torch.Generator().manual_seed(9)), dim=1)


def batch(seed, size=12, wrong=0.3):
    """Samples around the centres of their classes; some have another label."""
    g = torch.Generator().manual_seed(seed)
    true = torch.randint(C, (size,), generator=g)
    y = torch.where(torch.rand(size, generator=g) < wrong, torch.randint(C, (size,), generator=g), true)
    return F.normalize(CENTRES[true] + 0.3 * torch.randn(size, D, generator=g), dim=1), y, torch.arange(size)


def slow_ratio(past, z, y, neighbours):
    near = sorted(past, key=lambda one: -sum(a * b for a, b in zip(one[0], z, strict=True)))[:neighbours]
    votes = Counter(label for _, label in near)
    return votes[y] / max(votes.values())


@pytest.mark.parametrize(("neighbours", "least", "memory"), [(5, 0.5, 30), (200, 0.8, 17), (1, 1.0, 12)])
def test_by_hand(neighbours, least, memory):
    part, past = N2D2(C, D, LABELS, neighbours, least, memory), []
    for step in range(1, 8):
        z, y, row = batch(step)
        found = part(z, y, row, None)
        ratio = [slow_ratio(past, *one, neighbours) for one in zip(z.tolist(), y.tolist(), strict=True)] if past else []
        if len(past) < memory:  # the memory is not full yet
            ratio = [1.0] * len(y)
        torch.testing.assert_close(found.suspicion, 1 - torch.tensor(ratio))  # float32: ratios of small integers
        assert found.w.tolist() == [float(value >= least) for value in ratio]
        assert found.partner.tolist() == [value >= least for value in ratio]
        part.after_step(step)
        past = [*past, *zip(z.tolist(), y.tolist(), strict=True)][-memory:]
    assert int(part.observe_state()["memory_filled"]) == memory


def test_the_memory_holds_as_many_samples_as_the_training_set():
    assert N2D2(C, D, LABELS).past.shape == (40, D)


def test_a_sample_that_is_not_finite_is_dropped_and_not_stored():
    part = N2D2(C, D, LABELS, memory=6)
    z, y, row = batch(0)
    z[0] = torch.nan
    assert part(z, y, row, None).w.tolist() == [0.0] + [1.0] * 11
    part.after_step(1)
    assert part.past.isfinite().all()
