"""Checks of a batch before a loss: shapes, dtypes, unit embeddings, labels below the number of classes."""

from __future__ import annotations

import torch
from torch import Tensor

from likewise.types import LikewiseError, Ref


def must_fit(loss, z: Tensor, y: Tensor, ref: Ref | None, watched: bool = False) -> None:
    """Raise unless shapes and kinds are right. Costs nothing on any device.

    Args:
        watched: whether a compiler or a transform traces the call, so that values must not be read (`similarity.observed`).
    """
    name = type(loss).__name__
    if z.dim() != 2 or not z.is_floating_point() or not len(z):
        raise LikewiseError(
            f"{name}: z must be a matrix of real numbers, one embedding a row, got {_form(z)}; "
            "stack the embeddings of the batch"
        )
    if y.dim() != 1 or y.is_floating_point() or y.is_complex() or y.dtype == torch.bool:
        raise LikewiseError(
            f"{name}: y must be one whole number per sample, the label, got {_form(y)}; try y.long().flatten()"
        )
    if len(y) != len(z):
        raise LikewiseError(f"{name}: one label per embedding is needed, got {len(z)} embeddings and {len(y)} labels")
    dim = getattr(loss, "dim", z.shape[1])
    if dim != z.shape[1]:
        raise LikewiseError(
            f"{name}: it was built for embeddings of dim={dim}, got {z.shape[1]} columns; build it with dim={z.shape[1]}"
        )
    if ref is not None and not len(ref.z):
        raise LikewiseError(
            f"{name}: ref is empty, so there is nobody to compare with; leave it out to compare the batch"
        )
    if ref is not None and (ref.z.dim() != 2 or ref.z.shape[1] != z.shape[1] or ref.y.shape != ref.z.shape[:1]):
        raise LikewiseError(
            f"{name}: ref needs embeddings of {z.shape[1]} columns and a label each, got z {_form(ref.z)} and "
            f"y {_form(ref.y)}"
        )
    if ref is not None:
        _must_point(name, ref, len(y), watched)


def _must_point(name: str, ref: Ref, size: int, watched: bool) -> None:
    """`own` and `used` of a reference have the right shapes, and point into it where looking costs nothing."""
    rows = len(ref.y)
    if ref.own is not None and ref.own.shape != (size,):
        raise LikewiseError(f"{name}: ref.own needs one row number per sample ({size}), got {_form(ref.own)}")
    if ref.used is not None and ref.used.shape != (rows,):
        raise LikewiseError(
            f"{name}: ref.used needs one yes or no per row of the reference ({rows}), got {_form(ref.used)}"
        )
    if ref.own is None or ref.own.device.type != "cpu" or watched:
        return
    if ref.own.max() >= rows or ref.own.min() < -1:
        raise LikewiseError(
            f"{name}: ref.own must hold rows 0 to {rows - 1} of the reference, or -1 for nowhere, "
            f"got {int(ref.own.min())} to {int(ref.own.max())}"
        )


def is_sound(loss, z: Tensor, y: Tensor, watched: bool = False) -> Tensor | None:
    """Check what the numbers themselves must be: raise on the CPU; elsewhere, where that would mean waiting for the device or
    stopping the compiler, return which samples are right. `watched` as in `must_fit`."""
    exact = z.detach() if z.dtype == torch.float64 else z.detach().float()
    length = torch.linalg.vector_norm(exact, dim=1) if loss.input == "unit" else None
    classes = getattr(loss, "classes", None)
    unit = None if length is None else (length - 1).abs() <= 0.01
    known = None if classes is None else y == y.clamp(0, classes - 1)
    if z.device.type != "cpu" or watched:
        return unit if known is None else known if unit is None else unit & known
    name = type(loss).__name__
    if length is not None and unit is not None and not unit.all():
        if not length[~unit].isfinite().any():  # a diverged network is another story, and NaN tells it
            return unit
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


def _form(t: Tensor) -> str:
    return f"shape {tuple(t.shape)}, {str(t.dtype).removeprefix('torch.')}"
