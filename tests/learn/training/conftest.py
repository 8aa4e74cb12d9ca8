"""States of a training that was built and not started."""

import dataclasses

import numpy as np
import pytest
from learn.training.small_training import built
from likewise.config import Train

from likewise.data import load


@pytest.fixture
def items(features):
    """Training rows that are not the first of the table."""
    data = load(features)
    return dataclasses.replace(data, split=np.where(data.y < 12, "test", "train"))


@pytest.fixture
def make(settings):
    def make_state(items, **changes):
        return built(Train(**settings | changes), items)

    return make_state
