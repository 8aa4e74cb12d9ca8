"""`crop_resize.cut` as one Triton kernel: crops, resizes and mirrors a whole batch of images in GPU memory."""

from __future__ import annotations

import inspect
from functools import cache

import torch
from jaxtyping import Int, UInt8
from torch import Tensor

from likewise.models.pretrained.foundation import Interpolation

try:
    import triton
    import triton.language as tl
except ImportError:  # torch for some machines comes without it
    triton = None

TILE_ROWS, TILE_WIDTH = 4, 64
"""Rows and columns of the tile of new pixels that one program computes."""


@cache
def works() -> bool:
    """Whether the kernel can be compiled on this machine, which needs a C compiler."""
    try:
        plan = torch.tensor([[0, 1, 0, 0, 1, 1, 1, 1, 0, 0, 0]], device="cuda")
        cut(torch.zeros(1, 3, dtype=torch.uint8, device="cuda"), plan, 1)
    except Exception:  # triton raises many types
        return False
    return True


def cut(
    pixels: UInt8[Tensor, "P 3"], plan: Int[Tensor, "B 11"], size: int, interpolation: Interpolation = "bilinear"
) -> UInt8[Tensor, "B 3 s s"]:
    """Return the same bits as `likewise.data.crop_resize.cut`, in channels-last memory layout, the fastest for convolutions."""
    assert triton is not None
    made = torch.empty(len(plan), size, size, 3, dtype=torch.uint8, device=pixels.device)
    grid = (len(plan), triton.cdiv(size, TILE_ROWS), triton.cdiv(size, TILE_WIDTH))
    cubic = interpolation == "bicubic"
    _cut[grid](pixels, plan.contiguous(), made, size, TILE_ROWS, TILE_WIDTH, cubic)  # pyright: ignore[reportIndexIssue]
    return made.permute(0, 3, 1, 2)


def _cut(pixels, plan, made, size, rows: tl.constexpr, columns: tl.constexpr, cubic: tl.constexpr):
    """Compute one tile with the weights, sums and rounding of Pillow: along rows first, to integers, then along columns."""
    image = tl.program_id(0)
    plan += image * 11
    start, stride, top, left, height, width = (
        tl.load(plan), tl.load(plan + 1), tl.load(plan + 2), tl.load(plan + 3),
        tl.load(plan + 4).to(tl.int32), tl.load(plan + 5).to(tl.int32),
    )  # fmt: skip
    grown_h, grown_w = tl.load(plan + 6).to(tl.int32), tl.load(plan + 7).to(tl.int32)
    first_h, first_w = tl.load(plan + 8).to(tl.int32), tl.load(plan + 9).to(tl.int32)
    flip = tl.load(plan + 10)
    corner = pixels + 3 * (start + top * stride + left)

    row = tl.program_id(1) * rows + tl.arange(0, rows)
    column = tl.program_id(2) * columns + tl.arange(0, columns)
    new_w = first_w + tl.where(flip > 0, size - 1 - column, column)
    low_h, reach_h, taps_h, unit_h = _window(first_h + row, height, grown_h, cubic)
    low_w, reach_w, taps_w, unit_w = _window(new_w, width, grown_w, cubic)

    red = tl.zeros((rows, columns), tl.int32)
    green = tl.zeros((rows, columns), tl.int32)
    blue = tl.zeros((rows, columns), tl.int32)
    for i in range(taps_h):
        old_h = low_h + i
        weight_h = _weight(old_h, first_h + row, height, grown_h, reach_h, unit_h, cubic)[:, None]
        line = corner + 3 * (tl.minimum(tl.maximum(old_h, 0), height - 1).to(tl.int64) * stride)[:, None]
        r = tl.full((rows, columns), 1 << 21, tl.int32)
        g = tl.full((rows, columns), 1 << 21, tl.int32)
        b = tl.full((rows, columns), 1 << 21, tl.int32)
        for j in range(taps_w):
            old_w = low_w + j
            weight_w = _weight(old_w, new_w, width, grown_w, reach_w, unit_w, cubic)[None, :]
            at = line + 3 * tl.minimum(tl.maximum(old_w, 0), width - 1)[None, :]
            r += weight_w * tl.load(at).to(tl.int32)
            g += weight_w * tl.load(at + 1).to(tl.int32)
            b += weight_w * tl.load(at + 2).to(tl.int32)
        red += weight_h * _level(r, cubic)
        green += weight_h * _level(g, cubic)
        blue += weight_h * _level(b, cubic)

    inside = (row < size)[:, None] & (column < size)[None, :]
    to = made + 3 * ((image.to(tl.int64) * size + row[:, None]) * size + column[None, :])
    half = 1 << 21
    tl.store(to, _level(red + half, cubic).to(tl.uint8), mask=inside)
    tl.store(to + 1, _level(green + half, cubic).to(tl.uint8), mask=inside)
    tl.store(to + 2, _level(blue + half, cubic).to(tl.uint8), mask=inside)


def _level(total, cubic: tl.constexpr):
    """Return the grey level of a weighted sum; that of bicubic weights may lie outside of 0..255 before."""
    level = total >> 22
    return tl.minimum(tl.maximum(level, 0), 255) if cubic else level


def _window(new, length, grown, cubic: tl.constexpr):
    """Return the old pixels that contribute to a new pixel: the first, the reach (in units of half an old pixel times a new
    pixel), their number, and the factor that makes their weights sum to 2**22."""
    reach = (4 if cubic else 2) * tl.maximum(length, grown)
    # Integer division truncates towards 0, so the dividend is kept positive.
    low = ((2 * new + 1) * length - reach - grown + 2 * grown * 4096) // (2 * grown) - 4095
    taps = reach // grown + 1
    if cubic:
        whole = tl.zeros(new.shape, tl.float64)
        for k in range(taps):
            whole += _cubic(low + k, new, length, grown, reach)
        unit = 4194304.0 / tl.where(whole == 0.0, 1.0, whole)  # 0 beyond the last row or column
    else:
        total = tl.zeros(new.shape, tl.int32)
        for k in range(taps):
            total += _apart(low + k, new, length, grown, reach)
        unit = 4194304.0 / tl.maximum(total, 1).to(tl.float64)
    return low, reach, taps, unit


def _apart(old, new, length, grown, reach):
    weight = tl.maximum(reach - tl.abs((2 * old + 1) * grown - (2 * new + 1) * length), 0)
    return tl.where((old >= 0) & (old < length), weight, 0)


def _cubic(old, new, length, grown, reach):
    """Return the bicubic weight before it is scaled; `reach` is two pixels wide."""
    x = tl.abs((2 * old + 1) * grown - (2 * new + 1) * length).to(tl.float64) / (reach // 2).to(tl.float64)
    near, far = (1.5 * x - 2.5) * x * x + 1.0, (((x - 5.0) * x + 8.0) * x - 4.0) * -0.5
    weight = tl.where(x < 1.0, near, tl.where(x < 2.0, far, 0.0))
    return tl.where((old >= 0) & (old < length), weight, 0.0)


def _weight(old, new, length, grown, reach, unit, cubic: tl.constexpr):
    """Return the weight rounded to an integer; 3e-9 makes up for the rounding error of the division, so that a half rounds up."""
    if cubic:
        exact = _cubic(old, new, length, grown, reach) * unit
        weight = (exact + tl.where(exact < 0, -0.5, 0.5)).to(tl.int32)
    else:
        weight = (_apart(old, new, length, grown, reach).to(tl.float64) * unit + (0.5 + 3e-9)).to(tl.int32)
    return weight


if triton is not None:  # compile the bare functions: tests wrap them in shape checks, which triton cannot compile
    _apart, _cubic, _level, _weight, _window, _cut = (
        triton.jit(inspect.unwrap(f)) for f in (_apart, _cubic, _level, _weight, _window, _cut)
    )
