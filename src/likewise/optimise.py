"""The optimiser and its learning rate over time, from the settings of a training."""

from __future__ import annotations

import math
import re

import torch
from torch import nn

from likewise.configs import Train
from likewise.contracts import Loss
from likewise.models.embedder import Embedder
from likewise.types import LikewiseError


def steps_of(text: str, steps_per_pass: int, name: str, least: int = 0) -> int:
    """ "500" = 500 steps, "20e" = 20 passes over the data."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(e?)", text.strip())
    if not found or (not found[2] and "." in found[1]):
        raise LikewiseError(f"train: {name} is a number of steps ('5000') or passes ('20e'), got '{text}'")
    steps = round(float(found[1]) * steps_per_pass) if found[2] else int(found[1])
    if steps < least:
        raise LikewiseError(f"train: {name} must be a step or more, got '{text}', which is {steps}")
    return steps


def make_optimizer(config: Train, embedder: Embedder, loss: Loss) -> torch.optim.Optimizer:
    """One optimiser with three groups: backbone, head, and the loss's own parameters."""
    loss_lr = config.lr * loss.lr_factor if config.loss_lr is None else config.loss_lr
    backbone_lr = config.lr if config.backbone_lr is None else config.backbone_lr
    groups = [
        {"name": "backbone", "params": list(embedder.backbone_parameters()), "lr": backbone_lr},
        {"name": "head", "params": list(embedder.head_parameters()), "lr": config.lr},
        {"name": "loss", "params": list(loss.parameters()), "lr": loss_lr, "weight_decay": config.loss_weight_decay},
    ]
    if config.loss_eps is not None and config.optimizer != "sgd":
        groups[2]["eps"] = config.loss_eps
    groups = [{**g, "base_lr": g["lr"]} for g in groups if g["params"]]
    common = {"lr": config.lr, "weight_decay": config.weight_decay}
    if config.optimizer == "sgd":
        return torch.optim.SGD(groups, **common, momentum=config.momentum)
    if config.optimizer == "rmsprop":
        return torch.optim.RMSprop(groups, **common, momentum=config.momentum, eps=config.eps)
    kind = torch.optim.AdamW if config.optimizer == "adamw" else torch.optim.Adam
    return kind(groups, **common, eps=config.eps)


class Schedule:
    """Sets the learning rates before every step; the plateau kind also listens to validation scores."""

    def __init__(self, config: Train, optimizer: torch.optim.Optimizer, steps: int, steps_per_pass: int):
        self.kind, self.factor, self.patience = config.schedule, config.schedule_factor, config.schedule_patience
        self.optimizer, self.steps = optimizer, steps
        self.every = steps_of(config.schedule_every, steps_per_pass, "schedule_every", least=1)
        self.drops, self.waited, self.best = 0, 0, -math.inf

    def factor_at(self, step: int) -> float:
        if self.kind == "step":
            return self.factor ** (step // self.every)
        if self.kind == "cosine":
            return 0.5 * (1 + math.cos(math.pi * step / max(self.steps, 1)))
        return self.factor**self.drops  # constant: no drops ever

    def before_step(self, step: int) -> None:
        factor = self.factor_at(step)
        for group in self.optimizer.param_groups:
            group["lr"] = group["base_lr"] * factor

    def validated(self, score: float) -> None:
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


def clip(config: Train, modules: list[nn.Module]) -> None:
    """Clip gradients by value or norm, as the settings say; by norm over all parameters together."""
    parameters = [p for m in modules for p in m.parameters() if p.grad is not None]
    if config.clip_value is not None:
        nn.utils.clip_grad_value_(parameters, config.clip_value)
    if config.clip_norm is not None:
        nn.utils.clip_grad_norm_(parameters, config.clip_norm)
