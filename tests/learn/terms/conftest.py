"""A small network, and the divergence that all terms here measure, one number at a time."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from likewise.terms import language_guidance as guidance
from likewise.types import Output, TrainingSetInfo
from torch import Tensor, nn
from torch.nn import functional as F

from likewise.models.pretrained.encoders import PretrainedNetwork


class Small(nn.Module):
    """Features of width 4 -> 5 -> an embedding of 8."""

    feature_dim = 5

    def __init__(self, seed: int = 0):
        super().__init__()
        torch.manual_seed(seed)
        self.body = nn.Linear(4, 5)
        self.head = nn.Linear(5, 8)

    def forward(self, x: Tensor) -> Output:
        f = self.body(x).relu()
        e = self.head(f).float()
        return Output(F.normalize(e, dim=1), e, f.float())


@pytest.fixture
def net():
    return Small()


@pytest.fixture
def kl_by_hand():
    def softmax(row: list[float], temperature: float) -> list[float]:
        power = [math.exp(x / temperature) for x in row]
        return [p / sum(power) for p in power]

    def divergence(a: Tensor, b: Tensor, temperature: float = 1.0) -> Tensor:
        each = []
        for left, right in zip(a.tolist(), b.tolist()):
            p, q = softmax(left, temperature), softmax(right, temperature)
            each.append(temperature**2 * sum(p[j] * math.log(p[j] / q[j]) for j in range(len(p))))
        return torch.tensor(each, dtype=a.dtype)

    return divergence


NAMES = ("tench", "goldfish", "crane", "cock", "hen", "crane")  # two classes of ImageNet share a name


@pytest.fixture
def given(tmp_path):
    """Six pictures of one colour each, of three classes; the colour is what `stand_ins` read off."""
    x = torch.arange(6, dtype=torch.uint8).view(6, 1, 1, 1).expand(6, 3, 4, 4) * 40

    def pictures(transform):
        for first in (0, 4):
            yield x[first : first + 4], torch.arange(6)[first : first + 4]

    labels = np.array([0, 1, 0, 2, 1, 0])
    return TrainingSetInfo(
        labels, ("001.Black_footed_Albatross", "Crow", "Sofa_7"), pictures, tmp_path, torch.device("cpu"), quiet=True
    )


@pytest.fixture
def stand_ins(monkeypatch):
    """In place of real networks: a text's and a picture's numbers come from a table. `asked` is what texts they saw."""
    asked: list[str] = []
    logits = torch.randn(256, len(NAMES), generator=torch.Generator().manual_seed(4))

    class Table(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return logits[(x[:, 0, 0, 0] * 255).round().long()]

    def load() -> PretrainedNetwork:
        return PretrainedNetwork(Table(), 4, (0.0,) * 3, (1.0,) * 3)

    def encode(texts: list[str]) -> Tensor:
        asked.extend(texts)
        return torch.stack([torch.randn(8, generator=torch.Generator().manual_seed(sum(map(ord, t)))) for t in texts])

    monkeypatch.setattr(guidance, "load_classifier", lambda name, weights: (load(), NAMES))
    monkeypatch.setattr(guidance, "load_image_encoder", lambda name, weights: load())
    monkeypatch.setattr(guidance, "text_encoder", lambda name, device: encode)
    return SimpleNamespace(asked=asked, logits=logits[torch.arange(6) * 40], encode=lambda t: encode([t])[0])
