"""In evaluation mode, a confidence answers and learns nothing."""

import copy

import pytest
import torch
from likewise.contracts import Confidence
from torch.nn import functional as F

from likewise.core.settings.spec import build

TEXTS = [
    "PRISM(share=0.3, memory=20, window=3, warmup=2)", "N2D2(neighbours=3, memory=20)", "ProcSim()",
    "ProcSim(threshold='mean')", "SuperLoss(tau='mean')", "SuperLoss(tau='ema')",
]  # fmt: skip


@pytest.mark.parametrize("text", TEXTS)
def test_evaluation_changes_no_state(text):
    confidence = build(text, Confidence, classes=5, dim=6, labels=torch.arange(40).numpy() % 5)

    def step(number):
        g = torch.Generator().manual_seed(number)
        z, y = F.normalize(torch.randn(12, 6, generator=g), dim=1), torch.randint(5, (12,), generator=g)
        confidence(z, y, torch.arange(12), torch.rand(12, generator=g) if confidence.needs_loss else None)
        confidence.after_step(number)
        return copy.deepcopy(confidence.state_dict())

    states = [step(number) for number in (1, 2, 3)]
    assert any(not torch.equal(a, b) for a, b in zip(states[0].values(), states[2].values(), strict=True))
    confidence.eval()
    torch.testing.assert_close(step(3), states[2], rtol=0, atol=0, equal_nan=True)
