from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from likewise.core.contracts import Loss
from likewise.core.similarity import at_least_float32, full_precision
from likewise.core.types import LikewiseError, Ref


class FromPML(Loss):
    """A loss of pytorch-metric-learning (PML), with its miner, as a loss per sample.

    The mean over the samples has the value and the gradient of the PML loss, for every reducer: each PML value (of a sample,
    pair or triplet) is weighted by the derivative of the reducer and added to its sample or anchor. Values of a whole batch, of
    proxies (ProxyAnchorLoss) and of regularisers are the same for every sample.

    Needs: `pip install pytorch-metric-learning`. PML reads tensor values, which is a device sync at every step.
        On the command line a PML loss is wrapped automatically, and its num_classes and embedding_size are filled in:
        --loss "pytorch_metric_learning.losses.MultiSimilarityLoss(alpha=2)" --allow-imports

    Args:
        loss: an instance of a PML loss, with its parameters.
        miner: an instance of a PML miner; None: no miner.
    """

    source: str | None = None
    """The spec text that it was built from; set by `spec.build`."""

    def __init__(self, loss: nn.Module, miner: nn.Module | None = None):
        super().__init__()
        name = type(loss).__name__
        if not is_pml(loss):
            raise LikewiseError(
                f"FromPML: loss must be a loss of pytorch_metric_learning that passes its values to a reducer, got {name}; wrap "
                "the loss inside it, or use a loss from `likewise list losses`"
            )
        if loss.embedding_regularizer is not None:
            raise LikewiseError(
                f"FromPML: {name} must have no embedding_regularizer, because its input is unit embeddings; omit "
                "embedding_regularizer"
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
        if distance is None:  # the default comes from this method, which does not use the instance
            return _input(loss.kind.get_default_distance(None))
        return _input(distance.kind(**distance.arguments))

    @property
    def written(self) -> str:
        """The spec text. An instance built in Python has none, because PML does not store all arguments."""
        if self.source is None:
            raise LikewiseError(
                f"FromPML: a spec of {type(self.loss).__name__} cannot be derived from it; pass the loss as text, such as "
                f'"{type(self.loss).__module__.split(".")[0]}.losses.{type(self.loss).__name__}()", with allow_imports=True'
            )
        return self.source

    def forward(self, z: Float[Tensor, "B D"], y: Int[Tensor, "B"], ref: Ref | None = None) -> Float[Tensor, "B"]:
        with full_precision(z):
            z = at_least_float32(z)
            values = self._values_before_reduction(z, y, ref)
            total, slopes = self._reduce(values, z, y)
            each = 0 * z.sum(1)  # connects the result to the graph if there are no values
            for name, slope in slopes.items():
                counts = (values[name]["losses"] * slope).flatten()
                sample = self._sample_of_value(values[name])
                each = each + (
                    counts.sum() if sample is None else len(y) * torch.zeros_like(each).index_add(0, sample, counts)
                )
            return each + (total - each.detach().mean())  # only rounding errors, for reducers that are means or sums

    def _values_before_reduction(self, z: Tensor, y: Tensor, ref: Ref | None) -> dict[str, dict]:
        """Return the values of the PML loss before reduction, by PML's names for them."""
        pairs, other = self._pairs(z, y, ref)
        reducer, self.loss.reducer = self.loss.reducer, _PassThroughReducer()
        try:
            return self.loss(z, y, pairs, **other)
        except (ValueError, TypeError, NotImplementedError, AssertionError) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise LikewiseError(
                f"FromPML: {type(self.loss).__name__} must work on one batch of embeddings with labels, got an error ({reason}); "
                "use another loss, see `likewise list losses`"
            ) from None
        finally:
            self.loss.reducer = reducer

    def _pairs(self, z: Tensor, y: Tensor, ref: Ref | None) -> tuple[tuple[Tensor, ...] | None, dict[str, Tensor]]:
        """Return PML's pair indices (None: all pairs), and the arguments for a reference other than the batch."""
        # A loss on proxies uses no other samples.
        if ref is None or (ref.z is z and ref.used is None) or self.by_proxies:
            return None if self.miner is None else self.miner(z, y), {}
        if self.miner is not None:
            raise LikewiseError(
                "FromPML: a PML miner needs the whole batch, but a confidence or a memory restricts the partners here; omit miner"
            )
        same, allowed = y[:, None] == ref.y, torch.ones(len(y), len(ref.y), dtype=torch.bool, device=y.device)
        if ref.own is not None:
            allowed &= ref.own[:, None] != torch.arange(len(ref.y), device=y.device)
        if ref.used is not None:
            allowed &= ref.used
        pairs = *torch.where(same & allowed), *torch.where(~same & allowed)
        return pairs, {"ref_emb": at_least_float32(ref.z), "ref_labels": ref.y}

    def _reduce(self, values: dict[str, dict], z: Tensor, y: Tensor) -> tuple[Float[Tensor, ""], dict[str, Tensor]]:
        """Return the reduced PML loss, and its derivative with respect to each of the values."""
        free = {k: v["losses"].detach().requires_grad_() for k, v in values.items() if torch.is_tensor(v["losses"])}
        with torch.enable_grad():
            total = self.loss.reducer(  # pyright: ignore[reportCallIssue]
                {k: v | {"losses": free.get(k, v["losses"])} for k, v in values.items()}, z.detach(), y
            )
        if not total.requires_grad:
            return total.reshape(()), {}
        slopes = torch.autograd.grad(total.sum(), list(free.values()), allow_unused=True, materialize_grads=True)
        return total.detach().reshape(()), dict(zip(free, slopes, strict=True))

    def _sample_of_value(self, info: dict) -> Int[Tensor, "n"] | None:
        """Return the sample of each value: the sample itself, or the anchor of its pair or triplet. None: values of the batch."""
        kind = info["reduction_type"]
        if kind == "already_reduced" or (kind == "element" and type(self.loss).__name__ == "ProxyAnchorLoss"):
            return None
        return info["indices"] if kind == "element" else info["indices"][0]


def _input(distance: Any) -> Literal["unit", "raw"]:
    """Return the kind of embeddings that a PML distance compares."""
    return "unit" if getattr(distance, "normalize_embeddings", True) else "raw"


def _classes(loss: Any) -> int:
    """Return the number of classes that a loss was built for; 0 if it has none. Not all PML losses store the number."""
    kept = getattr(loss, "num_classes", 0) or len(getattr(loss, "proxy_labels", ()))
    return kept or (loss.W.shape[1] if hasattr(loss, "W") else 0)


class _PassThroughReducer(nn.Module):
    """A reducer that returns the values unchanged."""

    def forward(self, values: dict[str, dict], z: Tensor, y: Tensor) -> dict[str, dict]:
        return values


def is_pml(value) -> bool:
    """Return whether a value is a loss of pytorch-metric-learning with a reducer. It works without PML installed."""
    return isinstance(value, nn.Module) and is_pml_class(type(value))


def is_pml_class(kind: type) -> bool:
    """Return whether instances of a class are losses of pytorch-metric-learning. It works without PML installed."""
    if importlib.util.find_spec("pytorch_metric_learning") is None:
        return False
    if not any(base.__module__.startswith("pytorch_metric_learning.") for base in kind.__mro__):
        return False
    from pytorch_metric_learning.losses import BaseMetricLossFunction

    return issubclass(kind, BaseMetricLossFunction)
