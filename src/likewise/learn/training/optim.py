"""The optimiser of a training, from its settings; clipping of gradients."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import nn

from likewise.core.contracts import Loss, Term
from likewise.core.distributed.sharded_proxies import gradient_norm
from likewise.core.durations import training_steps
from likewise.core.errors import LikewiseError
from likewise.core.settings import Train
from likewise.models.embedder import Embedder


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
    own = dict.fromkeys(
        p for loss in (*losses, *copies) for p in loss.parameters()
    )  # each once: a loss may contain a loss
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
        if (
            isinstance(optimizer, torch.optim.RMSprop) and state
        ):  # keep its running scale: without it, the first steps are ten times too long
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
