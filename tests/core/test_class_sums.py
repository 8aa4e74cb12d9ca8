"""Sums of embeddings by class."""

import torch

from likewise.core import class_sums as module
from likewise.core.class_sums import class_sums


def test_sums_by_hand(monkeypatch):
    monkeypatch.setattr(module, "CHUNK_ROWS", 7)
    z, y = torch.randn(50, 3, generator=torch.Generator().manual_seed(0)), torch.arange(50) % 4
    for dtype in (None, torch.float64):
        total = class_sums(z, y, 5, dtype)
        assert total.dtype == (dtype or torch.float32) and not total[4].any()  # a class without samples
        for c in range(4):
            assert torch.allclose(total[c], sum(z[i] for i in range(50) if i % 4 == c).to(total), atol=1e-5)
