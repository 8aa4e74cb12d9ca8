"""The length of a training in steps, its optimiser and its learning rates."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from likewise.core.contracts import Loss, Term
from likewise.core.distributed.sharded_proxies import gradient_norm
from likewise.core.durations import period_of, steps_of, training_steps
from likewise.core.errors import LikewiseError
from likewise.core.settings import Train
from likewise.models.embedder import Embedder

MAX_LOG_INTERVAL, MIN_LOG_LINES = 20, 50
"""Steps between two lines of the log, and lines that a shorter training has (one per step if it has fewer steps)."""


@dataclass(frozen=True)
class Plan:
    """Durations and intervals of a training in steps. None: never. `checkpoint_every` may also be seconds ("30s")."""

    steps_per_epoch: int
    steps: int
    warmup: int
    log_every: int
    validate_every: int
    test_every: int | None
    relabel_every: int | None
    checkpoint_every: int | str
    patience: int | None


def make_plan(config: Train, steps_per_epoch: int, relabel_every: str | None) -> Plan:
    """Convert the durations of the settings to steps.

    Args:
        relabel_every: interval between relabelling rounds, from the confidence; None if it has none.
    """

    def steps(name: str, least: int = 0) -> int:
        return steps_of(getattr(config, name), steps_per_epoch, name, least=least)

    def period(text: str | None, name: str, owner: str = "train") -> int | None:
        return steps_of(text, steps_per_epoch, name, least=1, owner=owner) if text else None

    total = training_steps(config.epochs, config.steps, steps_per_epoch)
    return Plan(
        steps_per_epoch=steps_per_epoch,
        steps=total,
        warmup=steps("warmup"),
        log_every=config.log_every or min(MAX_LOG_INTERVAL, max(1, total // MIN_LOG_LINES)),
        validate_every=steps("validate_every", least=1),
        test_every=period(config.test_every, "test_every"),
        relabel_every=period(relabel_every, "every", config.confidence or ""),
        checkpoint_every=period_of(config.checkpoint_every, steps_per_epoch, "checkpoint_every", least=1),
        patience=config.patience,
    )


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


def make_optimizer(
    config: Train, embedders: list[Embedder], losses: list[Loss], terms: Sequence[Term] = ()
) -> torch.optim.Optimizer:
    """Return an optimiser with up to four parameter groups: backbones, heads, losses and terms.

    Copies of the loss inside a term are in the group of the losses.
    """
    loss_lr = config.lr * losses[0].lr_factor if config.loss_lr is None else config.loss_lr
    backbone_lr = config.lr if config.backbone_lr is None else config.backbone_lr
    backbone = [p for embedder in embedders for p in embedder.backbone_parameters()]
    head = [p for embedder in embedders for p in embedder.head_parameters()]
    copies = [m for term in terms for m in term.modules() if isinstance(m, Loss)]
    # Each once: a loss may contain a loss.
    own = dict.fromkeys(p for loss in (*losses, *copies) for p in loss.parameters())
    rest = [p for term in terms for p in term.parameters() if p.requires_grad and p not in own]
    groups = [
        {"name": "backbone", "params": backbone, "lr": backbone_lr},
        {"name": "head", "params": head, "lr": config.lr},
        {"name": "loss", "params": list(own), "lr": loss_lr, "weight_decay": config.loss_weight_decay},
        {"name": "terms", "params": rest, "lr": config.lr},
    ]
    if config.loss_eps is not None and config.optimizer != "sgd":
        groups[2]["eps"] = config.loss_eps
    if not any(g["params"] for g in groups):
        if training_steps(config.epochs, config.steps, 1):
            raise LikewiseError(
                f"train: there must be parameters to train, but head {config.head} and loss {config.loss} have none and there is "
                "no backbone, or it is frozen; use another --head, or --epochs 0 to score the features without training"
            )
        groups[1]["params"] = [nn.Parameter(torch.zeros(1))]
    groups = [{**g, "base_lr": g["lr"]} for g in groups if g["params"]]
    common: dict[str, Any] = {"lr": config.lr, "weight_decay": config.weight_decay}
    fused: dict[str, Any] = {"fused": True} if groups[0]["params"][0].device.type in ("cpu", "cuda") else {}
    if config.optimizer == "sgd":  # not fused: that needs momentum buffers for all parameters of a group or for none
        return torch.optim.SGD(groups, **common, momentum=config.momentum)
    if config.optimizer == "rmsprop":
        return torch.optim.RMSprop(groups, **common, momentum=config.momentum, eps=config.eps)
    kind = torch.optim.AdamW if config.optimizer == "adamw" else torch.optim.Adam
    return kind(groups, **common, eps=config.eps, **fused)


def reset_state(optimizer: torch.optim.Optimizer, moved: Iterable[nn.Parameter] | None) -> None:
    """Drop the optimiser state of parameters that a component has replaced: it belongs to their old values."""
    for parameter in moved or ():
        state = optimizer.state.pop(parameter, {})
        # RMSprop keeps its running scale: without it, the first steps are ten times too long.
        if isinstance(optimizer, torch.optim.RMSprop) and state:
            optimizer.state[parameter] = state
            if "momentum_buffer" in state:
                state["momentum_buffer"].zero_()


def clip(config: Train, modules: list[nn.Module]) -> None:
    """Clip gradients by value or by norm, if the settings have a limit; the norm is that of all parameters together."""
    if config.clip_value is None and config.clip_norm is None:
        return
    parameters = [p for m in modules for p in m.parameters() if p.grad is not None]
    if config.clip_value is not None:
        nn.utils.clip_grad_value_(parameters, config.clip_value)
    if config.clip_norm is not None:
        nn.utils.clip_grads_with_norm_(parameters, config.clip_norm, gradient_norm(modules))
