"""Checks of a batch before a loss: shapes, dtypes, unit embeddings, labels below the number of classes."""

from __future__ import annotations

import torch
from torch import Tensor

from likewise.core.types import LikewiseError, Ref


def check_shapes(loss, z: Tensor, y: Tensor, ref: Ref | None, traced: bool = False) -> None:
    """Raise unless the batch has valid shapes and dtypes. Needs no device sync.

    Args:
        traced: whether the compiler or a transform traces the call, so that values must not be read (`similarity.observed`).
    """
    name = type(loss).__name__
    if z.dim() != 2 or not z.is_floating_point() or not len(z):
        raise LikewiseError(
            f"{name}: z must be a floating-point matrix with one embedding per row, got {_describe(z)}; "
            "stack the embeddings of the batch"
        )
    if y.dim() != 1 or y.is_floating_point() or y.is_complex() or y.dtype == torch.bool:
        raise LikewiseError(
            f"{name}: y must be a vector of integers, one label per sample, got {_describe(y)}; try y.long().flatten()"
        )
    if len(y) != len(z):
        raise LikewiseError(f"{name}: y must have one label per embedding, got {len(z)} embeddings and {len(y)} labels")
    dim = getattr(loss, "dim", z.shape[1])
    if dim != z.shape[1]:
        raise LikewiseError(
            f"{name}: z must have dim={dim} columns, got {z.shape[1]} columns; build the loss with dim={z.shape[1]}"
        )
    if ref is not None and not len(ref.z):
        raise LikewiseError(
            f"{name}: ref must have at least one row, got an empty reference; omit ref to compare the batch with itself"
        )
    if ref is not None and (ref.z.dim() != 2 or ref.z.shape[1] != z.shape[1] or ref.y.shape != ref.z.shape[:1]):
        raise LikewiseError(
            f"{name}: ref must have embeddings with {z.shape[1]} columns and one label per embedding, got z "
            f"{_describe(ref.z)} and y {_describe(ref.y)}"
        )
    if ref is not None:
        _check_reference_rows(name, ref, len(y), traced)


def _check_reference_rows(name: str, ref: Ref, size: int, traced: bool) -> None:
    """Raise unless `ref.own` and `ref.used` have valid shapes; on the CPU, also unless `ref.own` holds valid rows."""
    rows = len(ref.y)
    if ref.own is not None and ref.own.shape != (size,):
        raise LikewiseError(f"{name}: ref.own must have one row number per sample ({size}), got {_describe(ref.own)}")
    if ref.used is not None and ref.used.shape != (rows,):
        raise LikewiseError(
            f"{name}: ref.used must have one boolean per row of the reference ({rows}), got {_describe(ref.used)}"
        )
    if ref.own is None or ref.own.device.type != "cpu" or traced:
        return
    if ref.own.max() >= rows or ref.own.min() < -1:
        raise LikewiseError(
            f"{name}: ref.own must hold rows 0 to {rows - 1} of the reference, or -1 for none, "
            f"got {int(ref.own.min())} to {int(ref.own.max())}"
        )


def check_values(loss, z: Tensor, y: Tensor, classes: int | None, traced: bool = False) -> Tensor | None:
    """Check that embeddings have unit length (if the loss needs it) and that labels are valid class numbers.

    On the CPU, raise for an invalid sample and return None if all are valid. On an accelerator, or if the call is traced, return
    the mask of valid samples instead, because raising would need a device sync or break the compiled graph.

    Args:
        classes: number of labels that `y` may hold; None: any.
        traced: as in `check_shapes`.
    """
    exact = z.detach() if z.dtype == torch.float64 else z.detach().float()
    length = torch.linalg.vector_norm(exact, dim=1) if loss.input == "unit" else None
    unit = None if length is None else (length - 1).abs() <= 0.01
    known = None if classes is None else y == y.clamp(0, classes - 1)
    if z.device.type != "cpu" or traced:
        return unit if known is None else known if unit is None else unit & known
    name = type(loss).__name__
    if length is not None and unit is not None and not unit.all():
        if not length[~unit].isfinite().any():
            return unit  # the network diverged: the values become NaN, which the training loop reports
        row = int((~unit & length.isfinite()).nonzero()[0, 0])
        raise LikewiseError(
            f"{name}: z must be unit vectors, but row {row} has length {float(length[row]):.4g}; "
            "pass torch.nn.functional.normalize(z, dim=1)"
        )
    if classes is not None and known is not None and not known.all():
        row = int((~known).nonzero()[0, 0])
        raise LikewiseError(
            f"{name}: labels must be 0 to {classes - 1} (classes={classes}), but row {row} has {int(y[row])}; "
            "number the training classes from 0"
        )
    return None


def _describe(t: Tensor) -> str:
    """Return the shape and dtype of a tensor, for an error."""
    return f"shape {tuple(t.shape)}, {str(t.dtype).removeprefix('torch.')}"
