"""LoRA: trained changes of low rank to the linear layers of a transformer's attention, whose own weights stay as they are.

The package peft has LoRA as well, but wraps the network, which changes the names of its tensors: weight files, checkpoints and
exports of this project would not fit any more.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from likewise.core.errors import LikewiseError

ATTENTION_LAYERS = ("qkv", "q_proj", "k_proj", "v_proj", "proj")
"""Names of the linear layers of an attention module of timm that LoRA changes."""

LORA_NAMES = ("lora_a", "lora_b")
"""Names of the parameters that LoRA adds to a linear layer."""

Network = TypeVar("Network", bound=nn.Module)


class LoRALinear(nn.Linear):
    """A linear layer plus a change of low rank.

    Paper: Hu et al., LoRA: Low-Rank Adaptation of Large Language Models, ICLR 2022.
    Formula: y = W x + b + B A x, with B = 0 at the start
    Differs: the factor alpha / rank of the change is 1 (alpha = rank); no dropout.
    """

    lora_a: nn.Parameter
    lora_b: nn.Parameter

    def forward(self, x: Float[Tensor, "*places n"]) -> Float[Tensor, "*places m"]:
        return F.linear(x, self.weight, self.bias) + F.linear(F.linear(x, self.lora_a), self.lora_b)


def add_lora(net: nn.Module, rank: int, name: str) -> None:
    """Change the attention layers of a network to `LoRALinear`; its output stays exactly the same until they are trained.

    Args:
        rank: of the change, at most the width of the layers.
        name: of the network, for errors.
    """
    layers = list(attention_layers(net))
    if not layers:
        raise LikewiseError(
            f"lora: the backbone must be a transformer with linear layers in its attention, {name} has none; drop --lora, and "
            "use --no-freeze-backbone to train the whole network"
        )
    widest = min(min(layer.weight.shape) for layer in layers)
    if not 1 <= rank <= widest:
        raise LikewiseError(f"lora: the rank must be from 1 to {widest}, the width of {name}, got {rank}; 8 is common")
    for layer in layers:
        like = {"device": layer.weight.device, "dtype": layer.weight.dtype}
        layer.__class__ = LoRALinear
        layer.lora_a = nn.Parameter(torch.empty(rank, layer.in_features, **like))
        layer.lora_b = nn.Parameter(torch.zeros(layer.out_features, rank, **like))
        nn.init.kaiming_uniform_(layer.lora_a, a=math.sqrt(5))


def attention_layers(net: nn.Module) -> Iterator[nn.Linear]:
    """Yield the linear layers of all attention modules in the blocks of a network."""
    for path, module in net.named_modules():
        if path.rsplit(".", 1)[-1] != "attn":
            continue
        if getattr(module, "q_bias", None) is not None:  # timm then reads the weight of qkv without calling the layer
            raise LikewiseError(
                f"lora: the layers of the attention must be called, but '{path}' reads the weights of qkv itself; use another "
                "backbone, or --no-freeze-backbone without --lora"
            )
        for child, layer in module.named_children():
            if child in ATTENTION_LAYERS and type(layer) is nn.Linear:
                yield layer


def lora_parameters(net: nn.Module) -> Iterator[nn.Parameter]:
    """Yield the parameters that LoRA added to a network."""
    return (p for path, p in net.named_parameters() if path.rsplit(".", 1)[-1] in LORA_NAMES)


@torch.no_grad()
def merged(net: Network) -> Network:
    """Return a copy of the network whose weights contain the changes of LoRA; a network without LoRA is returned as it is."""
    if not any(True for _ in lora_parameters(net)):
        return net
    net = copy.deepcopy(net)
    for layer in net.modules():
        if isinstance(layer, LoRALinear):
            layer.weight += layer.lora_b @ layer.lora_a
            del layer.lora_a, layer.lora_b
            layer.__class__ = nn.Linear  # pyright: ignore[reportAttributeAccessIssue]
    return net
