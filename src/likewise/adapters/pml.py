from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from likewise.contracts import Loss
from likewise.similarity import at_least_float32, full_precision
from likewise.types import LikewiseError, Ref


class FromPML(Loss):
    """A loss of pytorch-metric-learning, and its miner, as a loss of this house.

    Its mean is PML's own number, with PML's own gradient, whatever the reducer: each of PML's values (of a sample, a pair, a
    triplet) counts by the reducer's slope at it, and goes to its sample or anchor. Numbers of a whole batch, of proxies
    (ProxyAnchorLoss) and of regularisers are the same for every sample.

    Needs: `pip install pytorch-metric-learning`. PML looks at values on the way, so an accelerator waits at every step.
        On the command line a PML loss is wrapped by itself, and its num_classes and embedding_size are filled in:
        --loss "pytorch_metric_learning.losses.MultiSimilarityLoss(alpha=2)" --allow-imports

    Args:
        loss: the loss, made by you. It is used as it is, parameters included.
        miner: a miner of PML, where there is one.
    """

    source: str | None = None
    """The text it was built from; `spec.build` says it."""

    def __init__(self, loss: nn.Module, miner: nn.Module | None = None):
        super().__init__()
        name = type(loss).__name__
        if not is_pml(loss):
            raise LikewiseError(
                f"FromPML: loss must be a loss of pytorch_metric_learning that gives its values to a reducer, got {name}; wrap "
                "one inside of it, or use a loss from `likewise list losses`"
            )
        if loss.embedding_regularizer is not None:
            raise LikewiseError(
                f"FromPML: {name} regularises embeddings before the norm, and gets unit ones; leave embedding_regularizer out"
            )
        self.loss = loss
        self.miner = miner
        self.input = _input(loss.distance)
        self.by_proxies = any(p.dim() > 1 for p in loss.parameters())
        if classes := _classes(loss):
            self.classes = classes

    @classmethod
    def input_of(cls, arguments: Mapping[str, Any]) -> Literal["unit", "raw"]:
        loss = arguments["loss"]
        if isinstance(loss, nn.Module):
            return _input(loss.distance)
        distance = loss.arguments.get("distance")
        if distance is None:  # the loss takes the default from this method, which reads nothing of the instance
            return _input(loss.kind.get_default_distance(None))
        return _input(distance.kind(**distance.arguments))

    @property
    def written(self) -> str:
        """Its spec. What was made in Python cannot be read back: PML does not keep all arguments."""
        if self.source is None:
            raise LikewiseError(
                f"FromPML: how {type(self.loss).__name__} was made cannot be read off it; give the loss as a text, such as "
                f'"{type(self.loss).__module__.split(".")[0]}.losses.{type(self.loss).__name__}()", with allow_imports=True'
            )
        return self.source

    def forward(self, z: Float[Tensor, "B D"], y: Int[Tensor, "B"], ref: Ref | None = None) -> Float[Tensor, "B"]:
        with full_precision(z):
            z = at_least_float32(z)
            told = self._told(z, y, ref)
            total, slopes = self._reduced(told, z, y)
            each = 0 * z.sum(1)  # a graph, where there is nothing to learn
            for name, slope in slopes.items():
                counts = (told[name]["losses"] * slope).flatten()
                who = self._who(told[name])
                each = each + (
                    counts.sum() if who is None else len(y) * torch.zeros_like(each).index_add(0, who, counts)
                )
            return each + (total - each.detach().mean())  # nothing but rounding, for reducers that are means or sums

    def _told(self, z: Tensor, y: Tensor, ref: Ref | None) -> dict[str, dict]:
        """PML's values before they are reduced, by the names it has for them."""
        pairs, other = self._pairs(z, y, ref)
        kept, self.loss.reducer = self.loss.reducer, _Handed()
        try:
            return self.loss(z, y, pairs, **other)
        except (ValueError, TypeError, NotImplementedError, AssertionError) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise LikewiseError(
                f"FromPML: {type(self.loss).__name__} cannot be used here ({reason}); it must work on one batch of embeddings "
                "with labels. See `likewise list losses` for others"
            ) from None
        finally:
            self.loss.reducer = kept

    def _pairs(self, z: Tensor, y: Tensor, ref: Ref | None) -> tuple[tuple[Tensor, ...] | None, dict[str, Tensor]]:
        """Whom to compare: PML's indices (None: everybody), and the reference if it is another than the batch."""
        # A loss that compares with proxies needs no other samples.
        if ref is None or (ref.z is z and ref.used is None) or self.by_proxies:
            return None if self.miner is None else self.miner(z, y), {}
        if self.miner is not None:
            raise LikewiseError(
                "FromPML: a miner of PML chooses within the whole batch, and here partners are limited (by a confidence or a "
                "memory); leave miner out"
            )
        same, may = y[:, None] == ref.y, torch.ones(len(y), len(ref.y), dtype=torch.bool, device=y.device)
        if ref.own is not None:
            may &= ref.own[:, None] != torch.arange(len(ref.y), device=y.device)
        if ref.used is not None:
            may &= ref.used
        pairs = *torch.where(same & may), *torch.where(~same & may)
        return pairs, {"ref_emb": at_least_float32(ref.z), "ref_labels": ref.y}

    def _reduced(self, told: dict[str, dict], z: Tensor, y: Tensor) -> tuple[Float[Tensor, ""], dict[str, Tensor]]:
        """PML's number, and its slope at each of the values."""
        free = {k: v["losses"].detach().requires_grad_() for k, v in told.items() if torch.is_tensor(v["losses"])}
        with torch.enable_grad():
            total = self.loss.reducer(  # pyright: ignore[reportCallIssue]
                {k: v | {"losses": free.get(k, v["losses"])} for k, v in told.items()}, z.detach(), y
            )
        if not total.requires_grad:
            return total.reshape(()), {}
        slopes = torch.autograd.grad(total.sum(), list(free.values()), allow_unused=True, materialize_grads=True)
        return total.detach().reshape(()), dict(zip(free, slopes, strict=True))

    def _who(self, info: dict) -> Int[Tensor, "n"] | None:
        """The sample that each value is of: itself, or the anchor of its pair or triplet. None: it is nobody's."""
        kind = info["reduction_type"]
        if kind == "already_reduced" or (kind == "element" and type(self.loss).__name__ == "ProxyAnchorLoss"):
            return None
        return info["indices"] if kind == "element" else info["indices"][0]


def _input(distance: Any) -> Literal["unit", "raw"]:
    """The embeddings that a distance of PML compares."""
    return "unit" if getattr(distance, "normalize_embeddings", True) else "raw"


def _classes(loss: Any) -> int:
    """How many classes a loss was made for, 0 for any; not all of PML's keep the number."""
    kept = getattr(loss, "num_classes", 0) or len(getattr(loss, "proxy_labels", ()))
    return kept or (loss.W.shape[1] if hasattr(loss, "W") else 0)


class _Handed(nn.Module):
    """In place of a reducer: hands the values over as they are."""

    def forward(self, told: dict[str, dict], z: Tensor, y: Tensor) -> dict[str, dict]:
        return told


def is_pml(part) -> bool:
    """Whether this is a loss of pytorch-metric-learning that hands values to a reducer. Imports nothing that is not there."""
    return isinstance(part, nn.Module) and is_pml_class(type(part))


def is_pml_class(kind: type) -> bool:
    """Whether instances of a class are losses of pytorch-metric-learning. Imports nothing that is not there."""
    if importlib.util.find_spec("pytorch_metric_learning") is None:
        return False
    if not any(base.__module__.startswith("pytorch_metric_learning.") for base in kind.__mro__):
        return False
    from pytorch_metric_learning.losses import BaseMetricLossFunction

    return issubclass(kind, BaseMetricLossFunction)
