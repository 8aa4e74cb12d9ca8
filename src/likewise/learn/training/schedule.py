"""The learning-rate schedule of a training."""

from __future__ import annotations

import math

import torch

from likewise.core.durations import steps_of
from likewise.core.settings import Train


class Schedule:
    """Sets the learning rates before every step; "plateau" lowers them if the validation score does not improve."""

    def __init__(self, config: Train, optimizer: torch.optim.Optimizer, steps: int, steps_per_epoch: int):
        self.kind, self.factor, self.patience = config.schedule, config.schedule_factor, config.schedule_patience
        self.optimizer, self.steps = optimizer, steps
        self.every = steps_of(config.schedule_every, steps_per_epoch, "schedule_every", least=1)
        self.drops, self.waited, self.best = 0, 0, -math.inf

    def factor_at(self, step: int) -> float:
        """Return the factor of all base learning rates at a step."""
        if self.kind == "step":
            return self.factor ** (step // self.every)
        if self.kind == "cosine":
            return 0.5 * (1 + math.cos(math.pi * step / max(self.steps, 1)))
        return self.factor**self.drops  # "constant" never has a drop

    def before_step(self, step: int) -> None:
        """Set the learning rates of the optimiser for a step."""
        factor = self.factor_at(step)
        for group in self.optimizer.param_groups:
            group["lr"] = group["base_lr"] * factor

    def validated(self, score: float) -> None:
        """Record a validation score; "plateau" drops the rates after more than `patience` scores without improvement."""
        if self.kind != "plateau":
            return
        if score > self.best:
            self.best, self.waited = score, 0
        else:
            self.waited += 1
            if self.waited > self.patience:
                self.drops, self.waited = self.drops + 1, 0

    def state_dict(self) -> dict:
        return {"drops": self.drops, "waited": self.waited, "best": self.best}

    def load_state_dict(self, state: dict) -> None:
        self.drops, self.waited, self.best = state["drops"], state["waited"], state["best"]
