"""The optimiser of a training, from its settings; clipping of gradients."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import nn

from likewise.config import Train
from likewise.contracts import Loss, Term
from likewise.distributed.sharded_proxies import gradient_norm
from likewise.durations import training_steps
from likewise.errors import LikewiseError
from likewise.models.embedder import Embedder


def make_optimizer(
    config: Train, embedders: list[Embedder], losses: list[Loss], terms: Sequence[Term] = ()
) -> torch.optim.Optimizer:
    """One optimiser with up to four groups: backbones, heads, the losses' own parameters, and those of the terms.

    Copies of the loss inside a term learn as the loss does.
    """
    loss_lr = config.lr * losses[0].lr_factor if config.loss_lr is None else config.loss_lr
    backbone_lr = config.lr if config.backbone_lr is None else config.backbone_lr
    backbone = [p for embedder in embedders for p in embedder.backbone_parameters()]
    head = [p for embedder in embedders for p in embedder.head_parameters()]
    copies = [m for term in terms for m in term.modules() if isinstance(m, Loss)]
    own = dict.fromkeys(p for loss in (*losses, *copies) for p in loss.parameters())  # once: a loss may hold a loss
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
                f"train: something must learn, but head {config.head} and loss {config.loss} have no parameters and there is no "
                "backbone; give a head, or --epochs 0 to score the features as they are"
            )
        groups[1]["params"] = [nn.Parameter(torch.zeros(1))]
    groups = [{**g, "base_lr": g["lr"]} for g in groups if g["params"]]
    common: dict[str, Any] = {"lr": config.lr, "weight_decay": config.weight_decay}
    fused: dict[str, Any] = {"fused": True} if groups[0]["params"][0].device.type in ("cpu", "cuda") else {}
    if config.optimizer == "sgd":  # fused, it would want to remember all parameters of a group or none
        return torch.optim.SGD(groups, **common, momentum=config.momentum)
    if config.optimizer == "rmsprop":
        return torch.optim.RMSprop(groups, **common, momentum=config.momentum, eps=config.eps)
    kind = torch.optim.AdamW if config.optimizer == "adamw" else torch.optim.Adam
    return kind(groups, **common, eps=config.eps, **fused)


def forget(optimizer: torch.optim.Optimizer, moved: Iterable[nn.Parameter] | None) -> None:
    """Drop what the optimiser remembers of parameters that were put somewhere else: it is about where they came from."""
    for parameter in moved or ():
        state = optimizer.state.pop(parameter, {})
        if (
            isinstance(optimizer, torch.optim.RMSprop) and state
        ):  # without its scale, first steps are ten times too long
            optimizer.state[parameter] = state
            if "momentum_buffer" in state:
                state["momentum_buffer"].zero_()


def clip(config: Train, modules: list[nn.Module]) -> None:
    """Clip gradients by value or norm, as the settings say; by norm over all parameters together."""
    if config.clip_value is None and config.clip_norm is None:
        return
    parameters = [p for m in modules for p in m.parameters() if p.grad is not None]
    if config.clip_value is not None:
        nn.utils.clip_grad_value_(parameters, config.clip_value)
    if config.clip_norm is not None:
        nn.utils.clip_grads_with_norm_(parameters, config.clip_norm, gradient_norm(modules))
