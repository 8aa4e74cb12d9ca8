"""The embedder: backbone, pooling, head and unit norm in one module."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm

from likewise.models.backbones import build_backbone
from likewise.models.heads import Linear
from likewise.similarity import at_least_float32
from likewise.types import LikewiseError, Output

Pool = Literal["avg", "max", "avg+max"]


class Embedder(nn.Module):
    """Pictures (or ready features) -> unit embeddings.

    It scales and normalises its input itself, with the backbone's own mean, deviation and channel order; mean and
    deviation travel in its state. So a picture is embedded the same way in training, evaluation and export.

    Args:
        backbone: a name timm knows, `googlenet`, `bn_inception`, `conv_small`, or `features` for ready feature vectors.
        dim: width of the embedding.
        head: feature -> embedding before the norm. A module, or what makes one from (feature width, dim), such as the
            class `MLP`. None: one linear layer. It may return (e, nodes, rec) in place of e.
        pool: how the places of the last map become one vector. A class token is left out.
        pretrained: start from the published weights of the backbone. Goes unused where `weights` is given.
        weights: a local file of backbone weights to start from.
        layer_norm: normalise the pooled feature to mean 0 and deviation 1, without learned scale, before the head.
        freeze_bn: BatchNorm of the backbone keeps its running statistics in training; scale and shift still learn.
        features: width of the vectors, for `backbone="features"` only.
        size: side of the pictures in pixels, for networks built for one size. None: the backbone's own.
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        backbone: str = "resnet50",
        dim: int = 128,
        head: nn.Module | Callable[[int, int], nn.Module] | None = None,
        *,
        pool: Pool = "avg",
        pretrained: bool = True,
        weights: str | Path | None = None,
        layer_norm: bool = False,
        freeze_bn: bool = False,
        features: int | None = None,
        size: int | None = None,
    ):
        super().__init__()
        check_arguments(backbone, dim, pool, weights, features, size)
        self.backbone_name = backbone
        self.dim = dim
        self.pool: Pool = pool
        self.layer_norm = layer_norm
        self.freeze_bn = freeze_bn
        self.bgr = False
        self.input_size: int | None = None
        if backbone == "features":
            self.backbone: Any = nn.Identity()
            assert features is not None
            self.feature_dim: int = features
        else:
            self.backbone = build_backbone(backbone, pretrained=pretrained, weights=weights, size=size)
            self.feature_dim = self.backbone.channels
            self.input_size = self.backbone.size
            self.bgr = self.backbone.bgr
            # In the state, since the table a name is looked up in may change with the version of timm.
            self.register_buffer("mean", torch.tensor(self.backbone.mean).view(1, 3, 1, 1))
            self.register_buffer("std", torch.tensor(self.backbone.std).view(1, 3, 1, 1))
        self.head = build_head(head, self.feature_dim, dim)
        self.train(self.training)

    def forward(self, x: Shaped[Tensor, "B ..."]) -> Output:
        """uint8 pictures, float ones in [0, 1], or float feature vectors; all of `Output` is at least float32."""
        if self.backbone_name == "features":
            f = self.check_features(x)
        else:
            f = self.backbone.finish(pool_places(self.backbone(self.normalise(x)), self.pool))
        found = self.head(F.layer_norm(f, f.shape[-1:]) if self.layer_norm else f)
        e, nodes, rec = found if isinstance(found, tuple) else (found, None, None)
        e = at_least_float32(e)
        # The epsilon bounds the gradient of a vector at zero, where the direction is not defined.
        return Output(z=F.normalize(e, dim=1, eps=1e-6), e=e, f=at_least_float32(f), nodes=nodes, rec=rec)

    def normalise(self, x: Shaped[Tensor, "B ..."]) -> Float[Tensor, "B 3 H W"]:
        """The picture as the backbone wants it: scaled, in its channel order, with its mean and deviation taken out."""
        if x.ndim != 4 or x.shape[1] != 3:
            raise LikewiseError(f"Embedder: x must be pictures of shape (B, 3, H, W), got {tuple(x.shape)}")
        if x.dtype == torch.uint8:
            x = x.to(self.mean.dtype) / 255
        elif x.is_floating_point():
            check_range(x)
            x = x.to(self.mean.dtype)
        else:
            raise LikewiseError(f"Embedder: x must be uint8 or float in [0, 1], got {x.dtype}; convert it first")
        if self.bgr:
            x = x.flip(1)
        x = (x - self.mean) / self.std
        return (
            x.contiguous(memory_format=torch.channels_last) if x.is_cuda else x
        )  # what its convolutions are fastest with

    def check_features(self, x: Shaped[Tensor, "B ..."]) -> Float[Tensor, "B F"]:
        if x.ndim != 2 or x.shape[1] != self.feature_dim or not x.is_floating_point():
            raise LikewiseError(
                f"Embedder: with backbone='features' x must be float of shape (B, {self.feature_dim}),"
                f" got {x.dtype} of shape {tuple(x.shape)}"
            )
        return x

    def train(self, mode: bool = True) -> Embedder:
        super().train(mode)
        if self.freeze_bn:
            for module in self.backbone.modules():
                if isinstance(module, _BatchNorm):
                    module.eval()
        return self

    def recompute(self) -> None:
        """Keep few activations for the backward pass, which works the others out again: less memory, one more forward pass."""
        try:
            getattr(self.backbone, "net", self.backbone).set_grad_checkpointing()
        except (AttributeError, AssertionError) as error:  # the latter is timm's way to say no
            raise LikewiseError(
                f"Embedder: recompute needs a backbone with gradient checkpointing, '{self.backbone_name}' has none;"
                " take smaller chunks of the batch instead (chunk)"
            ) from error
        for module in self.backbone.modules():
            hooked = stand_still in module._forward_pre_hooks.values()
            if isinstance(module, _BatchNorm) and module.track_running_stats and not hooked:
                module.register_forward_pre_hook(stand_still)
                # Recomputing stops as soon as it can, in the middle of a module.
                module.register_forward_hook(partial(move_on, module.momentum), always_call=True)

    def backbone_parameters(self) -> Iterator[nn.Parameter]:
        return self.backbone.parameters()

    def head_parameters(self) -> Iterator[nn.Parameter]:
        return self.head.parameters()


def stand_still(norm: _BatchNorm, given: tuple[Tensor, ...]) -> None:
    """Before a forward pass inside of a backward pass: the running statistics have seen this batch already."""
    if norm.training and not torch.compiler.is_compiling() and torch._C._current_graph_task_id() != -1:
        norm.momentum = 0.0
        assert norm.num_batches_tracked is not None
        norm.num_batches_tracked.sub_(1)  # which counts itself up again


def move_on(momentum: float | None, norm: _BatchNorm, given: tuple[Tensor, ...], found: Tensor | None) -> None:
    if not torch.compiler.is_compiling():
        norm.momentum = momentum


def pool_places(places: Float[Tensor, "B C P"], pool: Pool) -> Float[Tensor, "B C"]:
    if pool == "avg":
        return places.mean(2)
    if pool == "max":
        return places.amax(2)
    return places.mean(2) + places.amax(2)


def check_range(x: Float[Tensor, "B 3 H W"]) -> None:
    """Pictures in 0..255 or already normalised would be embedded wrongly without a word.

    Only on the processor and outside of compilation: elsewhere reading the values would stall the device.
    The bounds leave room for the overshoot of resizing and for added noise.
    """
    if torch.compiler.is_compiling() or torch.jit.is_tracing() or x.device.type != "cpu":
        return
    try:
        low, high = (float(bound) for bound in x.detach().aminmax())
    except RuntimeError:  # no values to read: an empty batch, or inside a function transform
        return
    if low < -0.8 or high > 2:
        raise LikewiseError(
            f"Embedder: float pictures must lie in [0, 1], got values from {low:.3g} to {high:.3g};"
            " give uint8 or x / 255, and leave the mean and deviation to the embedder"
        )


def build_head(head: nn.Module | Callable[[int, int], nn.Module] | None, features: int, dim: int) -> nn.Module:
    if head is None:
        return Linear(features, dim)
    if not isinstance(head, nn.Module):
        head = head(features, dim)
    for name, want in (("features", features), ("dim", dim)):
        have = getattr(head, name, want)
        if have != want:
            raise LikewiseError(
                f"Embedder: {type(head).__name__}({name}={have}) does not fit here; make it {name}={want}"
            )
    return head


def check_arguments(
    backbone: str, dim: int, pool: str, weights: str | Path | None, features: int | None, size: int | None
) -> None:
    if dim < 1:
        raise LikewiseError(f"Embedder: dim must be at least 1, got {dim}")
    if pool not in ("avg", "max", "avg+max"):
        raise LikewiseError(f"Embedder: pool must be 'avg', 'max' or 'avg+max', got {pool!r}")
    if backbone != "features":
        if features is not None:
            raise LikewiseError(
                f"Embedder: features={features} goes with backbone='features', got backbone={backbone!r}"
            )
        return
    if features is None or features < 1:
        raise LikewiseError(f"Embedder: backbone='features' needs features, the width of the vectors, got {features}")
    if weights is not None or size is not None or pool != "avg":
        raise LikewiseError("Embedder: backbone='features' has no weights, size or pool; leave them out")
