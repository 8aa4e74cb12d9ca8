"""The embedder: backbone, pooling, head and unit norm in one module."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm

from likewise.core.argument_checks import CheckedArguments, Count
from likewise.core.similarity import at_least_float32
from likewise.core.types import LikewiseError, Output
from likewise.models.backbones import Pool, build_backbone, default_pool
from likewise.models.heads import Linear
from likewise.models.lora import add_lora, lora_parameters
from likewise.models.pretrained.foundation import USUAL_PREPROCESS, Preprocess


class Embedder(nn.Module, CheckedArguments):
    """The network: images (or precomputed features) -> unit embeddings.

    It scales and normalises its input with the mean, deviation and channel order of the backbone; mean and deviation are in its
    state. An image is therefore embedded the same way in training, evaluation and export.

    Args:
        backbone: a timm model, one of `OWN_BACKBONES`, or `features` for precomputed feature vectors.
        dim: width of the embedding.
        head: feature -> embedding before the norm. A module, or a callable (feature width, dim) -> module, such as the
            class `MLP`. None: one linear layer. A head may return (e, nodes, rec) in place of e.
        pool: pooling of the positions of the last map into one vector, without the class token; "own" is the pooling of the
            network itself, such as the class token or attention. None: "own" for a foundation backbone, else "avg".
        pretrained: start from the published weights of the backbone; ignored if `weights` is given.
        weights: a local file of backbone weights to start from; for `resnet50_v1` also a TensorFlow.js folder.
        layer_norm: normalise the pooled feature to mean 0 and deviation 1, without learned scale, before the head.
        freeze_bn: keep the running statistics of the backbone's BatchNorm fixed in training; scale and shift are trained.
        freeze_backbone: do not train the backbone: it stays in evaluation mode, and has no gradients.
        lora: rank of trained changes to the attention of the backbone, which is otherwise frozen, see `models.lora`.
        features: width of the vectors, for `backbone="features"` only.
        size: side of the images in pixels, for networks built for a fixed size. None: the default of the backbone.
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        backbone: str = "resnet50",
        dim: Count = 128,
        head: nn.Module | Callable[[int, int], nn.Module] | None = None,
        *,
        pool: Pool | None = None,
        pretrained: bool = True,
        weights: str | Path | None = None,
        layer_norm: bool = False,
        freeze_bn: bool = False,
        freeze_backbone: bool = False,
        lora: int | None = None,
        features: Count | None = None,
        size: int | None = None,
    ):
        super().__init__()
        pool = pool or default_pool(backbone)
        check_arguments(backbone, pool, weights, features, size)
        self.backbone_name = backbone
        self.dim = dim
        self.pool: Pool = pool
        self.layer_norm = layer_norm
        self.freeze_bn = freeze_bn
        self.freeze_backbone = freeze_backbone or lora is not None
        self.preprocess: Preprocess = USUAL_PREPROCESS
        self.bgr = False
        self.input_size: int | None = None
        if backbone == "features":
            self.backbone: Any = nn.Identity()
            assert features is not None
            self.feature_dim: int = features
        else:
            self.backbone = build_backbone(backbone, pretrained=pretrained, weights=weights, size=size, pool=pool)
            self.preprocess = self.backbone.preprocess
            self.feature_dim = self.backbone.channels
            self.input_size = self.backbone.size
            self.bgr = self.backbone.bgr
            # In the state, because the defaults of a backbone may change with the version of timm.
            self.register_buffer("mean", torch.tensor(self.backbone.mean).view(1, 3, 1, 1))
            self.register_buffer("std", torch.tensor(self.backbone.std).view(1, 3, 1, 1))
        if lora is not None:
            add_lora(self.backbone, lora, backbone)
        if self.freeze_backbone:
            self.backbone.requires_grad_(False)
            for parameter in self.backbone_parameters():
                parameter.requires_grad_(True)
        self.head = build_head(head, self.feature_dim, dim)
        self.train(self.training)

    def forward(self, x: Shaped[Tensor, "B ..."]) -> Output:
        """Embed uint8 images, float images in [0, 1], or float feature vectors; the tensors of `Output` are at least float32."""
        if self.backbone_name == "features":
            f = self.check_features(x)
        else:
            f = self.backbone.finish(pool_places(self.backbone(self.normalise(x)), self.pool))
        out = self.head(self.head_input(f))
        e, nodes, rec = out if isinstance(out, tuple) else (out, None, None)
        e = at_least_float32(e)
        # The epsilon bounds the gradient of a zero vector, whose direction is undefined.
        return Output(z=F.normalize(e, dim=1, eps=1e-6), e=e, f=at_least_float32(f), nodes=nodes, rec=rec)

    def head_input(self, f: Float[Tensor, "B F"]) -> Float[Tensor, "B F"]:
        """Return what the head gets: the pooled features, with `layer_norm` of mean 0 and deviation 1."""
        return F.layer_norm(f, f.shape[-1:]) if self.layer_norm else f

    def normalise(self, x: Shaped[Tensor, "B ..."]) -> Float[Tensor, "B 3 H W"]:
        """Return the images as input of the backbone: scaled, in its channel order, normalised by its mean and deviation."""
        if x.ndim != 4 or x.shape[1] != 3:
            raise LikewiseError(f"Embedder: x must be images of shape (B, 3, H, W), got {tuple(x.shape)}")
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
        # Convolutions of a GPU are fastest with channels last.
        return x.contiguous(memory_format=torch.channels_last) if x.is_cuda else x

    def check_features(self, x: Shaped[Tensor, "B ..."]) -> Float[Tensor, "B F"]:
        if x.ndim != 2 or x.shape[1] != self.feature_dim or not x.is_floating_point():
            raise LikewiseError(
                f"Embedder: with backbone='features' x must be float of shape (B, {self.feature_dim}),"
                f" got {x.dtype} of shape {tuple(x.shape)}"
            )
        return x

    def train(self, mode: bool = True) -> Embedder:
        super().train(mode)
        if self.freeze_backbone:
            self.backbone.eval()
        if self.freeze_bn:
            for module in self.backbone.modules():
                if isinstance(module, _BatchNorm):
                    module.eval()
        return self

    def recompute(self) -> None:
        """Turn on gradient checkpointing: activations are recomputed in the backward pass; less memory, one more forward pass."""
        try:
            getattr(self.backbone, "net", self.backbone).set_grad_checkpointing()
        except (AttributeError, AssertionError) as error:  # timm raises AssertionError where it is not supported
            raise LikewiseError(
                f"Embedder: recompute needs a backbone with gradient checkpointing, '{self.backbone_name}' has none;"
                " split the batch into smaller chunks instead (chunk)"
            ) from error
        for module in self.backbone.modules():
            hooked = pause_running_statistics in module._forward_pre_hooks.values()
            if isinstance(module, _BatchNorm) and module.track_running_stats and not hooked:
                module.register_forward_pre_hook(pause_running_statistics)
                # always_call: recomputation may stop in the middle of a module.
                module.register_forward_hook(partial(restore_momentum, module.momentum), always_call=True)

    def backbone_parameters(self) -> Iterator[nn.Parameter]:
        """Return the parameters of the backbone that are trained: none or those of LoRA, if it is frozen."""
        return lora_parameters(self.backbone) if self.freeze_backbone else self.backbone.parameters()

    def head_parameters(self) -> Iterator[nn.Parameter]:
        return self.head.parameters()


def pause_running_statistics(norm: _BatchNorm, given: tuple[Tensor, ...]) -> None:
    """Stop the running statistics during a recomputation in the backward pass: they include this batch already."""
    if norm.training and not torch.compiler.is_compiling() and torch._C._current_graph_task_id() != -1:
        norm.momentum = 0.0
        assert norm.num_batches_tracked is not None
        norm.num_batches_tracked.sub_(1)  # the forward pass adds 1 again


def restore_momentum(momentum: float | None, norm: _BatchNorm, given: tuple[Tensor, ...], out: Tensor | None) -> None:
    if not torch.compiler.is_compiling():
        norm.momentum = momentum


def pool_places(places: Float[Tensor, "B C P"], pool: Pool) -> Float[Tensor, "B C"]:
    if pool in ("avg", "own"):  # with its own pooling, a network returns one place
        return places.mean(2)
    if pool == "max":
        return places.amax(2)
    return places.mean(2) + places.amax(2)


def check_range(x: Float[Tensor, "B 3 H W"]) -> None:
    """Raise if float images are in 0..255 or already normalised: their embeddings would be wrong without an error.

    The check runs only on the CPU and outside of compilation: on a device, reading the values is a device sync.
    The bounds allow the overshoot of resizing and added noise.
    """
    if torch.compiler.is_compiling() or torch.jit.is_tracing() or x.device.type != "cpu":
        return
    try:
        low, high = (float(bound) for bound in x.detach().aminmax())
    except RuntimeError:  # no values to read: an empty batch, or inside a function transform
        return
    if low < -0.8 or high > 2:
        raise LikewiseError(
            f"Embedder: float images must be in [0, 1], got values from {low:.3g} to {high:.3g};"
            " pass uint8 or x / 255; the embedder applies mean and deviation"
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
                f"Embedder: the head must have {name}={want}, got {type(head).__name__}({name}={have}); "
                f"build it with {name}={want}"
            )
    return head


def check_arguments(
    backbone: str, pool: str, weights: str | Path | None, features: int | None, size: int | None
) -> None:
    if backbone != "features":
        if features is not None:
            raise LikewiseError(
                f"Embedder: features={features} needs backbone='features', got backbone={backbone!r}; omit features"
            )
        return
    if features is None:
        raise LikewiseError("Embedder: backbone='features' needs features, the width of the vectors, got None")
    if weights is not None or size is not None or pool != "avg":
        raise LikewiseError("Embedder: backbone='features' has no weights, size or pool; omit them")
