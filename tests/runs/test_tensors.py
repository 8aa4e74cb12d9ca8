"""Tensors of a checkpoint must fit the module."""

import pytest
import torch
from likewise.errors import LikewiseError
from torch import nn

from likewise.runs.tensors import load_into


def test_a_checkpoint_of_another_architecture_is_told_in_full():
    with pytest.raises(
        LikewiseError, match=r"another architecture: bias is missing; odd is unknown; weight is \(2, 3\), not \(4, 3\)"
    ):
        load_into(nn.Linear(3, 4), {"weight": torch.zeros(2, 3), "odd": torch.zeros(1)}, "x")
