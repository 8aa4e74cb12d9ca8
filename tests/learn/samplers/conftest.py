"""A sampler that has embeddings."""

import pytest
import torch
from likewise.types import Embedded


@pytest.fixture
def started():
    def start(kind, labels, z, **settings):
        sampler, z = kind(labels, **settings), torch.as_tensor(z, dtype=torch.float32)
        sampler.start(lambda: Embedded(z, torch.as_tensor(labels), torch.arange(len(z))))
        return sampler

    return start
