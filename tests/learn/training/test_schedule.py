"""The learning rate over time, by hand."""

import math

import pytest
import torch
from likewise.config import Train

from likewise.learn.training.schedule import Schedule


def rates(config, steps, per_pass=10, scores=()):
    optimizer = torch.optim.SGD(
        [{"params": [torch.nn.Parameter(torch.zeros(1))], "name": "head", "base_lr": 2.0}], lr=2.0
    )
    schedule = Schedule(config, optimizer, steps, per_pass)
    scores, found = iter(scores), []
    for step in range(steps):
        schedule.before_step(step)
        found.append(optimizer.param_groups[0]["lr"])
        if scores and step % per_pass == per_pass - 1:
            schedule.validated(next(scores, 0.0))
    return found


def test_schedules_by_hand():
    assert rates(Train(data="x"), 5) == [2.0] * 5
    stepped = rates(Train(data="x", schedule="step", schedule_every="2e", schedule_factor=0.5), 50)
    assert [stepped[i] for i in (0, 19, 20, 39, 40)] == [2.0, 2.0, 1.0, 1.0, 0.5]
    cosine = rates(Train(data="x", schedule="cosine"), 100)
    assert all(math.isclose(cosine[s], 1 + math.cos(math.pi * s / 100)) for s in range(100))
    config = Train(data="x", schedule="plateau", schedule_patience=1, schedule_factor=0.1)
    plateau = rates(config, 60, scores=[0.5, 0.4, 0.4, 0.6, 0.5, 0.5])
    assert plateau[0] == plateau[29] == 2.0 and plateau[30] == pytest.approx(0.2) and plateau[59] == pytest.approx(0.2)
