"""PRISM against a slow loop over a plain list of remembered samples."""

import math

import numpy as np
import pytest
import torch
from likewise.confidence import PRISM
from likewise.losses import CrossBatchMemory
from likewise.types import Ref
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


def make(share=0.3, **arguments):
    return PRISM(C, D, LABELS, share, **arguments)


class Slow:
    """The same in plain Python."""

    def __init__(self, share, memory, window, warmup=0):
        self.share, self.memory, self.window, self.warmup = share, memory, window, warmup
        self.past, self.q, self.steps = [], [], 0

    def clean(self, z, y):
        of_class = {c: [v for v, label in self.past if label == c] for c in range(C)}
        if not of_class[y]:
            return 1.0
        powers = []
        for c in range(C):
            centre = [sum(v[d] for v in of_class[c]) / max(1, len(of_class[c])) for d in range(D)]
            powers.append(math.exp(sum(a * b for a, b in zip(centre, z, strict=True))))
        return powers[y] / sum(powers)

    def step(self, z, y):
        z, y = z.tolist(), y.tolist()
        p = [self.clean(*one) for one in zip(z, y, strict=True)]
        lowest = math.floor(self.share * len(p))
        if self.steps < self.warmup or not lowest:
            kept = [True] * len(p)
        else:
            q = sorted(p)[lowest - 1]
            if q < 1:
                self.q = [*self.q, q][-self.window :]
            limit = sum(self.q) / len(self.q) if self.q else -1
            kept = [v > limit for v in p]
            if not any(kept):
                order = sorted(range(len(p)), key=lambda i: p[i])
                kept = [i not in order[:lowest] for i in range(len(p))]
                self.q = self.q[-1:]
        self.past = (self.past + [one for one, k in zip(zip(z, y, strict=True), kept, strict=True) if k])[
            -self.memory :
        ]
        self.steps += 1
        return p, kept


@pytest.mark.parametrize(
    "arguments",
    [
        {"share": 0.3, "memory": 30, "window": 4},
        {"share": 0.5, "memory": 17, "window": 1},
        {"share": 0.2, "memory": 100, "window": 3, "warmup": 3},
        {"share": 0.05, "memory": 30, "window": 3},  # not one sample
        {"share": 0.4, "memory": 5, "window": 2},  # less than a batch
    ],
)
def test_by_hand(arguments):
    part, slow, left_out = make(**arguments), Slow(**arguments), 0
    for step in range(1, 16):
        z, y, row = batch(step)
        trust = part(z, y, row, None)
        p, kept = slow.step(z, y)
        torch.testing.assert_close(1 - trust.suspicion, torch.tensor(p), rtol=1e-4, atol=1e-5)
        assert trust.partner.tolist() == kept and trust.w.tolist() == [float(k) for k in kept]
        part.after_step(step)
        left_out += kept.count(False)
    assert trust.mean_over == "kept" and part.filled == len(slow.past) == part.observe_state()["memory_filled"]
    assert left_out > 10 or arguments["share"] == 0.05


def test_where_nobody_would_be_kept_the_lowest_go_and_the_window_starts_again():
    arguments = {"share": 0.25, "memory": 50, "window": 8}
    part, slow = make(**arguments), Slow(**arguments)
    for step in range(1, 12):
        z, y, row = batch(step, wrong=0.0)
        if step in (6, 9):
            y = (y + 1 + torch.arange(12) % 3) % C  # suddenly every label is wrong
        trust = part(z, y, row, None)
        _, kept = slow.step(z, y)
        assert trust.partner.tolist() == kept
        part.after_step(step)
        if step == 6:
            assert sum(kept) == 9 and part.quantiles.isfinite().sum() == 1 == len(slow.q)
    assert part.quantiles.isfinite().sum() == len(slow.q)


def test_it_finds_wrong_labels():
    part, found = make(share=0.3), []
    for step in range(1, 40):
        z, y, row = batch(step, size=40)
        trust = part(z, y, row, None)
        if step > 20:
            wrong = (z @ CENTRES.T).argmax(1) != y
            found.append((trust.w[wrong].mean(), trust.w[~wrong].mean()))
            assert torch.equal(trust.w == 0, trust.suspicion >= trust.threshold)
        part.after_step(step)
    wrong, right = torch.tensor(found).mean(0)
    assert wrong < 0.2 and right > 0.8


def test_the_first_batch_is_kept_whole():
    part = make()
    trust = part(*batch(1), None)
    assert (
        len(part.past) == len(LABELS)
        and trust.partner.all()
        and trust.threshold == torch.inf
        and (trust.suspicion == 0).all()
    )


def test_a_broken_sample_is_left_out_and_not_remembered():
    for warmup in (0, 9):
        part = make(warmup=warmup)
        for step in (1, 2, 3):
            z, y, row = batch(step)
            z[3] = torch.nan
            trust = part(z, y, row, None)
            assert not trust.partner[3] and trust.w.isfinite().all()
            part.after_step(step)
        assert part.past.isfinite().all() and part.filled > 12


def test_with_a_memory_of_the_loss_only_the_kept_are_remembered():
    part, loss = make(memory=100), CrossBatchMemory(D, size=100)
    for step in range(1, 6):
        z, y, row = batch(step)
        trust = part(z, y, row, None)
        loss(z, y, Ref(z, y, torch.arange(len(y)), trust.partner))
        part.after_step(step)
        loss.after_step(step)
    assert loss.filled == part.filled < 60
    torch.testing.assert_close(loss.memory, part.past)


COMPILED = """
import numpy, torch
from likewise.confidence import PRISM
parts = [PRISM(6, 8, numpy.arange(20), 0.3) for _ in range(2)]
compiled = torch.compile(parts[0], fullgraph=True, backend="aot_eager")
for step in (1, 2, 3):
    z, y, row = torch.nn.functional.normalize(torch.randn(12, 8), dim=1), torch.arange(12) % 6, torch.arange(12)
    torch.testing.assert_close(compiled(z, y, row, None).w, parts[1](z, y, row, None).w)
    for part in parts:
        part.after_step(step)
torch.testing.assert_close(parts[0].state_dict(), parts[1].state_dict(), equal_nan=True)
"""


def test_compiled(bare):
    bare(exec, COMPILED, {})
