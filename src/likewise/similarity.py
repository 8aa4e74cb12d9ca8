"""Similarities (high = near) and the masked reductions that pair losses are written in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import functional as F

from likewise.types import Pairs, Ref, Tuples

NEAREST = 1e-8
"""Squared distances below this count as this: the root's slope at 0 is infinite, and 0 * inf is NaN."""


def cosine(a: Float[Tensor, "B D"], b: Float[Tensor, "R D"]) -> Float[Tensor, "B R"]:
    """Dot product, which is the cosine for the unit embeddings that losses get."""
    return a @ b.T


def neg_squared(a: Float[Tensor, "B D"], b: Float[Tensor, "R D"]) -> Float[Tensor, "B R"]:
    """Minus the squared Euclidean distance, for raw embeddings."""
    return torch.addmm(-b.square().sum(1), a, b.T, alpha=2).sub_(a.square().sum(1, keepdim=True)).clamp_max_(0)


def distance(sim: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Euclidean distance between unit vectors of this cosine, with a finite slope where two of them coincide."""
    return torch.rsub(sim, 2, alpha=2).clamp_min(NEAREST).sqrt()


def squared_distance(sim: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Squared Euclidean distance between unit vectors of this cosine."""
    return torch.rsub(sim, 2, alpha=2).clamp_min(0)


def raw_distance(sim: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Euclidean distance of this `neg_squared`, with a finite slope where two vectors coincide."""
    return (NEAREST - sim).sqrt()


def length(z: Float[Tensor, "B D"], squared: bool = False) -> Float[Tensor, "B"]:
    """Euclidean length of every embedding, or its square, with a finite slope at 0."""
    found = at_least_float32(z).square().sum(1)
    return found if squared else found.clamp_min(NEAREST).sqrt()


def full_precision(z: Tensor):
    """Switch autocast off for what follows: exponentials of similarities need float32."""
    kind = z.device.type
    return torch.autocast(kind, enabled=False) if kind != "meta" and torch.is_autocast_enabled(kind) else nullcontext()


@contextmanager
def full_products(x: Tensor) -> Iterator[None]:
    """Products with all the bits of their numbers, whatever was switched on for a network: no autocast, no TF32, long sums."""
    place, name, full = torch.backends.cuda.matmul, "allow_tf32", False
    try:
        before = place.allow_tf32
    except RuntimeError:  # somebody used the newer switch, and torch will not read the older one any more
        name, full, before = "fp32_precision", "ieee", place.fp32_precision
    short = place.allow_fp16_reduced_precision_reduction
    setattr(place, name, full)
    place.allow_fp16_reduced_precision_reduction = False
    try:
        with full_precision(x):
            yield
    finally:
        setattr(place, name, before)
        place.allow_fp16_reduced_precision_reduction = short


def at_least_float32(z: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Autocast hands over 16-bit numbers; similarities and norms need more."""
    return z if z.dtype == torch.float64 else z.float()


def compare(
    z: Float[Tensor, "B D"],
    y: Int[Tensor, "B"],
    ref: Ref | None = None,
    similarity: Callable[[Tensor, Tensor], Tensor] = cosine,
) -> tuple[Float[Tensor, "B R"], Pairs]:
    """Similarity of every sample to every reference, and who shares its label. A sample is never its own partner."""
    other = z if ref is None else ref.z
    with full_precision(z):
        sim = similarity(at_least_float32(z), at_least_float32(other))
    return sim, partners(y, ref)


def partners(y: Int[Tensor, "B"], ref: Ref | None, rows: slice = slice(0, None)) -> Pairs:
    """Who shares whose label, for some rows of the batch: within it, or with a reference."""
    if ref is None:
        return mates_within(y, rows)
    return mates(y[rows], ref.y, None if ref.own is None else ref.own[rows], ref.used)


def mates_within(y: Int[Tensor, "B"], rows: slice = slice(0, None)) -> Pairs:
    """Who shares whose label within a batch, for some rows of it. A sample is never its own partner."""
    same = y[rows, None] == y[None, :]
    neg = ~same
    same.diagonal(rows.start).fill_(False)
    return Pairs(same, neg)


def mates(
    y: Int[Tensor, "B"],
    other: Int[Tensor, "R"],
    own: Int[Tensor, "B"] | None,
    used: Bool[Tensor, "R"] | None = None,
) -> Pairs:
    """Who shares whose label; `own` says where each sample itself stands, since it is never its own partner, and `used` who
    may be a partner at all."""
    same = y[:, None] == other[None, :]
    other_class = ~same if used is None else ~same & used
    same = same if used is None else same & used
    if own is None or not len(other):
        return Pairs(same, other_class)
    at = own.clamp_min(0)[:, None]
    return Pairs(same.scatter(1, at, same.gather(1, at) & (own < 0)[:, None]), other_class)


LOG2_E = 1.4426950408889634
LEAST = -1e30
NOBODY = -1e29
"""The logarithm of a sum over nobody lies below this."""


def log1p_sum_exp(x: Float[Tensor, "B R"], mask: Bool[Tensor, "B R"], scale: float = 1.0) -> Float[Tensor, "B"]:
    """log(1 + sum of e^(scale x) over the mask), row by row: never overflows, and 0 where the mask is empty."""
    return log_sum_and_powers(x, mask, scale)[0]


def log_sum_exp(x: Float[Tensor, "B R"], mask: Bool[Tensor, "B R"], scale: float = 1.0) -> Float[Tensor, "B"]:
    """log(sum of e^(scale x) over the mask), row by row: never overflows, and below `NOBODY` where the mask is empty."""
    return log_sum_and_powers(x, mask, scale, one=False)[0]


def log_sum_and_powers(
    x: Float[Tensor, "B R"], mask: Bool[Tensor, "B R"], scale: float = 1.0, one: bool = True
) -> tuple[Float[Tensor, "B"], Float[Tensor, "B R"]]:
    """log(1 + sum of e^(scale x) over the mask), or without the one; and the terms of the sum up to a factor for each row, as
    constants."""
    if observed():
        found, power = _log_sum(x, mask, scale, one)
        return found, power.detach()
    return _LogSum.apply(x, mask, scale, one)


def _log_sum(x: Tensor, mask: Tensor, scale: float, one: bool) -> tuple[Tensor, Tensor]:
    # Powers of two, because the CPU's e^x is ten to a hundred times slower where it underflows.
    x = (x * (scale * LOG2_E)).masked_fill(~mask, -torch.inf)
    top = x.detach().amax(1, keepdim=True).clamp_min(0 if one else LEAST)
    power = (x - top).exp2()
    total = power.sum(1)
    total = total + (-top[:, 0]).exp2() if one else total.clamp_min(0.5)  # above: at least 1, but where there is nobody
    return (total.log2() + top[:, 0]) / LOG2_E, power


class _LogSum(torch.autograd.Function):
    """The same with its gradient in one pass: e^(scale x - result)."""

    @staticmethod
    def forward(ctx, x: Tensor, mask: Tensor, scale: float, one: bool) -> tuple[Tensor, Tensor]:
        x2 = x * (scale * LOG2_E)
        x2.masked_fill_(~mask, -torch.inf)
        top = x2.amax(1, keepdim=True).clamp_min_(0 if one else LEAST)
        power = x2.sub_(top).exp2_()
        total = power.sum(1)
        total = (
            total.add_((-top[:, 0]).exp2_()) if one else total.clamp_min_(0.5)
        )  # above: at least 1, but where there is nobody
        ctx.save_for_backward(power, total, x, mask)
        ctx.scale, ctx.one = scale, one
        ctx.mark_non_differentiable(power)
        ctx.set_materialize_grads(False)  # or a matrix of zeros comes back for the powers
        return (total.log2() + top[:, 0]) / LOG2_E, power

    @staticmethod
    def backward(ctx, grad: Tensor | None, _):
        if grad is None:
            return None, None, None, None
        power, total, x, mask = ctx.saved_tensors
        if torch.is_grad_enabled():  # somebody will differentiate this gradient: record it
            again, _ = _log_sum(x, mask, ctx.scale, ctx.one)
            return torch.autograd.grad(again, x, grad, create_graph=True)[0], None, None, None
        return power * (ctx.scale * grad / total)[:, None], None, None, None


def exact_softplus(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """log(1 + e^x). Torch's own goes over to x at 20, where float64 still sees a difference."""
    return F.softplus(x, threshold=40.0)


def observed() -> bool:
    """Whether the compiler, `torch.func` or forward-mode autograd looks on: they need every operation in the open."""
    if torch.compiler.is_compiling():
        return True
    # torch has no public question for these two; without them such callers would get an error from the depths.
    stack = torch._C._functorch.peek_interpreter_stack()  # pyright: ignore[reportAttributeAccessIssue]
    return stack is not None or forward_ad._current_level >= 0


def with_slope(plain: Callable[..., Tensor], fast: Callable[..., tuple[Tensor, Tensor]], x: Tensor, *rest) -> Tensor:
    """`plain(x, *rest)`, by a shorter way: `fast` gives the same numbers and the slope of each by its own part of x.

    The numbers have one axis less than x or the same but for one (the slope's shape is that of x). The plain way is taken where
    somebody looks on, and where the gradient itself is to be differentiated.
    """
    return plain(x, *rest) if observed() else _WithSlope.apply(plain, fast, x, *rest)


class _WithSlope(torch.autograd.Function):
    @staticmethod
    def forward(ctx, plain, fast, x: Tensor, *rest) -> Tensor:
        found, slope = fast(x.detach(), *rest)
        ctx.save_for_backward(x, slope)
        ctx.plain, ctx.rest = plain, rest
        return found

    @staticmethod
    def backward(ctx, grad: Tensor):
        x, slope = ctx.saved_tensors
        rest = (None,) * len(ctx.rest)
        if torch.is_grad_enabled():  # somebody will differentiate this gradient: record it
            return None, None, torch.autograd.grad(ctx.plain(x, *ctx.rest), x, grad, create_graph=True)[0], *rest
        return None, None, slope * grad[:, None], *rest


def unit_rows(x: Float[Tensor, "R D"]) -> Float[Tensor, "R D"]:
    """Every row over its length, in float32 at least: `normalize` with a third of its passes over memory, for many proxies."""
    x = at_least_float32(x)
    return F.normalize(x, dim=1) if observed() else _Unit.apply(x)


class _Unit(torch.autograd.Function):
    """The gradient is what of it stands at right angles to the row, over the row's length."""

    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        shrink = torch.linalg.vector_norm(x, dim=1, keepdim=True).clamp_min_(1e-12).reciprocal_()
        unit = x * shrink
        ctx.save_for_backward(x, unit, shrink)
        return unit

    @staticmethod
    def backward(ctx, grad: Tensor) -> Tensor:
        x, unit, shrink = ctx.saved_tensors
        if torch.is_grad_enabled():  # somebody will differentiate this gradient: record it
            return torch.autograd.grad(F.normalize(x, dim=1), x, grad, create_graph=True)[0]
        along = torch.linalg.vecdot(unit, grad)[:, None]
        return torch.addcmul(grad, unit, along, value=-1).mul_(shrink)


def mean_over(x: Float[Tensor, "B R"], mask: Bool[Tensor, "B R"]) -> Float[Tensor, "B"]:
    """Mean over the mask, row by row; 0 where it is empty."""
    return x.masked_fill(~mask, 0).sum(1) / mask.sum(1).clamp_min(1)


def soft_histograms(
    place: Float[Tensor, "B R"], pairs: Pairs, nodes: int
) -> tuple[Float[Tensor, "B nodes"], Float[Tensor, "B nodes"]]:
    """Row by row, how many positives and how many negatives are near each node. A value counts 1 in all, shared between the two
    nodes around it, the nearer one more, so that the histograms have a slope.

    Args:
        place: where a value lies, counted in nodes from 0, up to nodes - 1 but for rounding.
    """
    left = place.detach().floor().nan_to_num(0).clamp(0, nodes - 2)
    column = left.where(pairs.neg, left + nodes).masked_fill(~(pairs.pos | pairs.neg), 2 * nodes).long()
    nobody = place.new_zeros(len(place), 3 * nodes)  # the third histogram is that of nobody's partners
    count = nobody.scatter_add(1, column, torch.ones_like(left))
    to_right = nobody.scatter_add(1, column, place - left)
    found = count - to_right + to_right.roll(1, 1)  # a histogram's last node has nothing to hand on
    return found[:, nodes : 2 * nodes], found[:, :nodes]


def pick(weight: Shaped[Tensor, "B R"]) -> tuple[Int[Tensor, "B"], Bool[Tensor, "B"]]:
    """One column of each row, drawn in proportion to its weight (a mask: uniformly), and whether the row has any.

    Draws come from torch's default generator, which the training loop seeds and stores.
    """
    upto = weight.cumsum(1, dtype=weight.dtype if weight.is_floating_point() else torch.float32)
    total = upto[:, -1:]
    target = torch.rand(total.shape, device=total.device) * (total * (1 - 2e-7))  # rounding must not reach the total
    column = torch.searchsorted(upto, target, right=True).clamp_max(weight.shape[1] - 1)
    return column.squeeze(1), total.squeeze(1) > 0


def anchors(sim: Float[Tensor, "B R"]) -> Int[Tensor, "B"]:
    """Each row as an anchor, once: for miners of one triplet per anchor."""
    return torch.arange(len(sim), device=sim.device)


def sides(z: Float[Tensor, "B D"], ref: Ref | None, t: Tuples) -> tuple[Float[Tensor, "T"], Float[Tensor, "T"]]:
    """Cosine of every triplet's anchor to its positive and to its negative, from the embeddings themselves."""
    with full_precision(z):
        z = at_least_float32(z)
        other = z if ref is None else at_least_float32(ref.z)
        anchor = z if t.one_each else z.index_select(0, t.a)
        return (anchor * other.index_select(0, t.p)).sum(1), (anchor * other.index_select(0, t.n)).sum(1)


def by_anchor(value: Float[Tensor, "T"], t: Tuples, size: int) -> tuple[Float[Tensor, "B"], Shaped[Tensor, "B"]]:
    """The sum of each anchor's valid tuples, and how many it has."""
    value = value * t.valid
    if t.one_each:
        return value, t.valid
    count = t.valid.to(t.a.dtype)
    return value.new_zeros(size).index_add(0, t.a, value), count.new_zeros(size).index_add(0, t.a, count)


def spread(each: Float[Tensor, "B"], count: Shaped[Tensor, "B"]) -> Float[Tensor, "B"]:
    """Per-sample numbers whose mean over the batch is the sum of `each` divided by that of `count`: how many terms each adds up
    (a mask: one term or none, and then `each` is 0)."""
    return each * (len(each) / count.sum().clamp_min(1).to(each.dtype))
