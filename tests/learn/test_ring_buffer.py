"""A ring of fixed size against a plain list."""

import torch

from likewise.learn.ring_buffer import remember


def test_as_a_list_of_the_last_ones():
    g = torch.Generator().manual_seed(0)
    memory, label = torch.zeros(5, 2), torch.zeros(5, dtype=torch.int64)
    next_row, filled = torch.zeros((), dtype=torch.int64), torch.zeros((), dtype=torch.int64)
    past = []
    for number in range(30):
        size = 1 + number % 8  # more than fit, too
        z, y = torch.rand(size, 2, generator=g), torch.arange(size) + 10 * number
        kept = torch.rand(size, generator=g) < 0.5
        remember(next_row, filled, kept, (memory, z), (label, y))
        past += [(int(b), a.tolist()) for a, b, k in zip(z, y, kept, strict=True) if k]
        rows = sorted(zip(label.tolist(), memory.tolist(), strict=True))[-int(filled) :] if filled else []
        assert rows == past[-5:] and filled == min(5, len(past))
        oldest = int(next_row) if filled == 5 else 0
        assert not past or label.roll(-oldest)[: int(filled)].tolist() == [y for y, _ in past[-5:]]


def test_what_is_not_kept_may_be_anything():
    memory, zero = torch.ones(4, 1), torch.zeros((), dtype=torch.int64)
    remember(zero, zero.clone(), torch.zeros(3, dtype=torch.bool), (memory, torch.full((3, 1), torch.nan)))
    assert (memory == 1).all() and zero == 0
