"""Similarities (high = near) and the masked reductions that pair losses are written in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import functional as F

from likewise.core.types import Pairs, PairSource, Ref, Tuples

MIN_SQUARED_DISTANCE = 1e-8
"""Lower bound of squared distances before the square root, whose gradient at 0 is infinite (and 0 * inf is NaN).

It is below the resolution of 2 - 2s in float32: for two equal vectors that is up to 1.1e-6, and above this bound for 40 % of
them. Their distance is then up to 1e-3, and the gradient by z has a length of thousands. But it points along z: the part that
passes the norm of the embedding is at most 0.002 of the gradient of a pair that differs.
"""


def cosine(a: Float[Tensor, "B D"], b: Float[Tensor, "R D"]) -> Float[Tensor, "B R"]:
    """Return all dot products, which are the cosines if both inputs have unit length."""
    return a @ b.T


def neg_squared(a: Float[Tensor, "B D"], b: Float[Tensor, "R D"]) -> Float[Tensor, "B R"]:
    """Return minus the squared Euclidean distances, the similarity of raw embeddings."""
    return torch.addmm(-b.square().sum(1), a, b.T, alpha=2).sub_(a.square().sum(1, keepdim=True)).clamp_max_(0)


def distance(sim: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Return the Euclidean distance between unit vectors with this cosine. The gradient is finite at distance 0."""
    return torch.rsub(sim, 2, alpha=2).clamp_min(MIN_SQUARED_DISTANCE).sqrt()


def squared_distance(sim: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Return the squared Euclidean distance between unit vectors with this cosine."""
    return torch.rsub(sim, 2, alpha=2).clamp_min(0)


def raw_distance(sim: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Return the Euclidean distance for a result of `neg_squared`. The gradient is finite at distance 0."""
    return (MIN_SQUARED_DISTANCE - sim).sqrt()


def length(z: Float[Tensor, "B D"], squared: bool = False) -> Float[Tensor, "B"]:
    """Return the Euclidean length of every embedding, or its square. The gradient is finite at length 0."""
    square = at_least_float32(z).square().sum(1)
    return square if squared else square.clamp_min(MIN_SQUARED_DISTANCE).sqrt()


def full_precision(z: Tensor):
    """Return a context without autocast on the device of `z`: exponentials of similarities need float32."""
    kind = z.device.type
    return torch.autocast(kind, enabled=False) if kind != "meta" and torch.is_autocast_enabled(kind) else nullcontext()


@contextmanager
def full_precision_matmul(x: Tensor) -> Iterator[None]:
    """Compute matrix products in full precision: without autocast, TF32 or reduced-precision sums, also if torch allows them."""
    backend, name, full = torch.backends.cuda.matmul, "allow_tf32", False
    try:
        before = backend.allow_tf32
    except RuntimeError:  # the program used the newer setting, after which torch refuses to read the older one
        name, full, before = "fp32_precision", "ieee", backend.fp32_precision
    reduced = backend.allow_fp16_reduced_precision_reduction
    setattr(backend, name, full)
    backend.allow_fp16_reduced_precision_reduction = False
    try:
        with full_precision(x):
            yield
    finally:
        setattr(backend, name, before)
        backend.allow_fp16_reduced_precision_reduction = reduced


def at_least_float32(z: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Return `z` as float32, or unchanged if it is float64: autocast yields 16-bit embeddings, too coarse for similarities."""
    return z if z.dtype == torch.float64 else z.float()


def compare(
    z: Float[Tensor, "B D"],
    y: Int[Tensor, "B"],
    ref: Ref | None = None,
    similarity: Callable[[Tensor, Tensor], Tensor] = cosine,
    relevance: PairSource | None = None,
) -> tuple[Float[Tensor, "B R"], Pairs]:
    """Return the similarity of every sample to every reference row, and the masks of its positives and negatives.

    Without `ref`, the batch is compared with itself. A sample is never its own positive.

    Args:
        relevance: source of the masks, for ids in place of labels; None: equal labels are positives.
    """
    other = z if ref is None else ref.z
    with full_precision(z):
        sim = similarity(at_least_float32(z), at_least_float32(other))
    return sim, positive_negative_masks(y, ref, relevance=relevance)


def positive_negative_masks(
    y: Int[Tensor, "B"], ref: Ref | None, rows: slice = slice(0, None), relevance: PairSource | None = None
) -> Pairs:
    """Return the masks of positives and negatives for some rows of the batch: in the batch, or in the reference if given.

    Args:
        relevance: as in `compare`.
    """
    if ref is None:
        return batch_masks(y, rows, relevance)
    return reference_masks(y[rows], ref.y, None if ref.own is None else ref.own[rows], ref.used, relevance)


def batch_masks(y: Int[Tensor, "B"], rows: slice = slice(0, None), relevance: PairSource | None = None) -> Pairs:
    """Return the masks of positives and negatives in the batch itself, for some rows. A sample is never its own positive."""
    if relevance is not None:
        pairs = relevance.pairs(y[rows], y)
        pairs.pos.diagonal(rows.start).fill_(False)
        pairs.neg.diagonal(rows.start).fill_(False)
        return pairs
    same = y[rows, None] == y[None, :]
    neg = ~same
    same.diagonal(rows.start).fill_(False)
    return Pairs(same, neg)


def reference_masks(
    y: Int[Tensor, "B"],
    other: Int[Tensor, "R"],
    own: Int[Tensor, "B"] | None,
    used: Bool[Tensor, "R"] | None = None,
    relevance: PairSource | None = None,
) -> Pairs:
    """Return the masks (B, R) of positives and negatives in a reference.

    Args:
        y: labels of the anchors.
        other: labels of the reference rows.
        own: reference row of each anchor itself, which is not a positive; -1: not in the reference. None: no anchor is.
        used: reference rows that may be positives or negatives; None: all.
        relevance: as in `compare`.
    """
    if relevance is not None:
        return _without_own(relevance.pairs(y, other), own, used)
    same = y[:, None] == other[None, :]
    other_class = ~same if used is None else ~same & used
    same = same if used is None else same & used
    if own is None or not len(other):
        return Pairs(same, other_class)
    at = own.clamp_min(0)[:, None]
    return Pairs(same.scatter(1, at, same.gather(1, at) & (own < 0)[:, None]), other_class)


def _without_own(pairs: Pairs, own: Int[Tensor, "B"] | None, used: Bool[Tensor, "R"] | None) -> Pairs:
    """Return the pairs without unused reference rows, and without the row of the anchor itself."""
    pos, neg = (pairs.pos, pairs.neg) if used is None else (pairs.pos & used, pairs.neg & used)
    if own is not None and pos.shape[1]:
        at, absent = own.clamp_min(0)[:, None], (own < 0)[:, None]
        pos, neg = (mask.scatter(1, at, mask.gather(1, at) & absent) for mask in (pos, neg))
    return Pairs(pos, neg, pairs.value)


LOG2_E = 1.4426950408889634
"""log2(e), which turns exponents of e into exponents of 2."""

MIN_EXPONENT = -1e30
"""Lower bound of the largest exponent of a row, so that the log-sum over an empty mask is finite."""

EMPTY_SUM_THRESHOLD = -1e29
"""`log_sum_exp` of an empty mask is below this value; every other log-sum is above."""


def log1p_sum_exp(x: Float[Tensor, "B R"], mask: Bool[Tensor, "B R"], scale: float = 1.0) -> Float[Tensor, "B"]:
    """Return log(1 + sum of e^(scale x) over the mask) for every row. Never overflows; 0 for an empty mask."""
    return log_sum_and_powers(x, mask, scale)[0]


def log_sum_exp(x: Float[Tensor, "B R"], mask: Bool[Tensor, "B R"], scale: float = 1.0) -> Float[Tensor, "B"]:
    """Return log(sum of e^(scale x) over the mask) for every row. Never overflows; below `EMPTY_SUM_THRESHOLD` if empty."""
    return log_sum_and_powers(x, mask, scale, one=False)[0]


def log_sum_and_powers(
    x: Float[Tensor, "B R"], mask: Bool[Tensor, "B R"], scale: float = 1.0, one: bool = True
) -> tuple[Float[Tensor, "B"], Float[Tensor, "B R"]]:
    """Return log(1 + sum of e^(scale x) over the mask) for every row, and the detached terms of the sum up to a factor per row.

    Args:
        one: whether the 1 is part of the sum.
    """
    if is_traced():
        result, power = _log_sum_exp(x, mask, scale, one)
        return result, power.detach()
    return _LogSumExp.apply(x, mask, scale, one)


def _log_sum_exp(x: Tensor, mask: Tensor, scale: float, one: bool) -> tuple[Tensor, Tensor]:
    # Powers of two, because the CPU's e^x is ten to a hundred times slower where it underflows.
    x = (x * (scale * LOG2_E)).masked_fill(~mask, -torch.inf)
    top = x.detach().amax(1, keepdim=True).clamp_min(0 if one else MIN_EXPONENT)
    power = (x - top).exp2()
    total = power.sum(1)
    # Without the one, the total is at least 1, except for an empty mask.
    total = total + (-top[:, 0]).exp2() if one else total.clamp_min(0.5)
    return (total.log2() + top[:, 0]) / LOG2_E, power


class _LogSumExp(torch.autograd.Function):
    """`_log_sum_exp` with a gradient of its own, which reuses the powers of the forward pass."""

    @staticmethod
    def forward(ctx, x: Tensor, mask: Tensor, scale: float, one: bool) -> tuple[Tensor, Tensor]:
        x2 = x * (scale * LOG2_E)
        x2.masked_fill_(~mask, -torch.inf)
        top = x2.amax(1, keepdim=True).clamp_min_(0 if one else MIN_EXPONENT)
        power = x2.sub_(top).exp2_()
        total = power.sum(1)
        # Without the one, the total is at least 1, except for an empty mask.
        total = total.add_((-top[:, 0]).exp2_()) if one else total.clamp_min_(0.5)
        ctx.save_for_backward(power, total, x, mask)
        ctx.scale, ctx.one = scale, one
        ctx.mark_non_differentiable(power)
        ctx.set_materialize_grads(False)  # otherwise autograd would allocate a matrix of zeros for the powers
        return (total.log2() + top[:, 0]) / LOG2_E, power

    @staticmethod
    def backward(ctx, grad: Tensor | None, _):
        if grad is None:
            return None, None, None, None
        power, total, x, mask = ctx.saved_tensors
        if torch.is_grad_enabled():  # second derivative needed: record the backward pass
            again, _ = _log_sum_exp(x, mask, ctx.scale, ctx.one)
            return torch.autograd.grad(again, x, grad, create_graph=True)[0], None, None, None
        return power * (ctx.scale * grad / total)[:, None], None, None, None


def log_weights(r: Float[Tensor, "B R"]) -> tuple[Float[Tensor, "B R"], Float[Tensor, "B R"]]:
    """Return log r and log(1 - r), for the weights of pairs as positives and as negatives; finite where these are 0.

    Losses add them to exponents and mask the weights 0. The logarithm of 0 is ten times slower on the CPU.
    """
    tiny = torch.finfo(r.dtype).tiny
    return r.clamp_min(tiny).log(), (1 - r).clamp_min_(tiny).log_()


def exact_softplus(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Return log(1 + e^x), accurate in float64 too: torch's default replaces it by x from 20 on."""
    return F.softplus(x, threshold=40.0)


def is_traced() -> bool:
    """Return whether the compiler, `torch.func` or forward-mode autograd traces the call.

    These cannot trace a custom `autograd.Function`, so losses then use plain torch operations.
    """
    if torch.compiler.is_compiling():
        return True
    # torch has no public function for these two checks; without them such a call would fail inside of torch.
    stack = torch._C._functorch.peek_interpreter_stack()  # pyright: ignore[reportAttributeAccessIssue]
    return stack is not None or forward_ad._current_level >= 0


def with_known_gradient(
    plain: Callable[..., Tensor], fast: Callable[..., tuple[Tensor, Tensor]], x: Tensor, *rest
) -> Tensor:
    """Return `plain(x, *rest)`, computed by `fast`, which returns the same values and their gradient by x.

    `plain` itself runs where the call is traced, and in the backward pass where second derivatives are needed.

    Args:
        fast: (x, *rest) -> (values, gradient). The gradient has the shape of x; each element of x affects one value only, and
            the shape of the values is that of x without axis 1.
    """
    return plain(x, *rest) if is_traced() else _KnownGradient.apply(plain, fast, x, *rest)


class _KnownGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, plain, fast, x: Tensor, *rest) -> Tensor:
        values, slope = fast(x.detach(), *rest)
        ctx.save_for_backward(x, slope)
        ctx.plain, ctx.rest = plain, rest
        return values

    @staticmethod
    def backward(ctx, grad: Tensor):
        x, slope = ctx.saved_tensors
        rest = (None,) * len(ctx.rest)
        if torch.is_grad_enabled():  # second derivative needed: record the backward pass
            return None, None, torch.autograd.grad(ctx.plain(x, *ctx.rest), x, grad, create_graph=True)[0], *rest
        return None, None, slope * grad[:, None], *rest


def unit_rows(x: Float[Tensor, "R D"]) -> Float[Tensor, "R D"]:
    """Return every row divided by its length, in float32 at least; reads memory a third as often as `F.normalize`."""
    x = at_least_float32(x)
    return F.normalize(x, dim=1) if is_traced() else _Unit.apply(x)


class _Unit(torch.autograd.Function):
    """Division by length, whose gradient is the component orthogonal to the row, divided by the row's length."""

    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        shrink = torch.linalg.vector_norm(x, dim=1, keepdim=True).clamp_min_(1e-12).reciprocal_()
        unit = x * shrink
        ctx.save_for_backward(x, unit, shrink)
        return unit

    @staticmethod
    def backward(ctx, grad: Tensor) -> Tensor:
        x, unit, shrink = ctx.saved_tensors
        if torch.is_grad_enabled():  # second derivative needed: record the backward pass
            return torch.autograd.grad(F.normalize(x, dim=1), x, grad, create_graph=True)[0]
        along = torch.linalg.vecdot(unit, grad)[:, None]
        return torch.addcmul(grad, unit, along, value=-1).mul_(shrink)


def mean_over(x: Float[Tensor, "B R"], mask: Bool[Tensor, "B R"]) -> Float[Tensor, "B"]:
    """Return the mean over the mask for every row; 0 for an empty mask."""
    return x.masked_fill(~mask, 0).sum(1) / mask.sum(1).clamp_min(1)


def weighted_mean(x: Float[Tensor, "B R"], weight: Float[Tensor, "B R"]) -> Float[Tensor, "B"]:
    """Return the weighted mean of every row; 0 for a row without weight."""
    return (weight * x).sum(1) / weight.sum(1).clamp_min(torch.finfo(x.dtype).tiny)


def draw_columns(weight: Shaped[Tensor, "B R"]) -> tuple[Int[Tensor, "B"], Bool[Tensor, "B"]]:
    """Draw one column per row with probability proportional to its weight; return the columns and whether a row has any.

    Random numbers come from torch's default generator, which the training loop seeds and stores.

    Args:
        weight: 0 or more, or a mask, from which columns are drawn uniformly.
    """
    upto = weight.cumsum(1, dtype=weight.dtype if weight.is_floating_point() else torch.float32)
    total = upto[:, -1:]
    target = torch.rand(total.shape, device=total.device) * (total * (1 - 2e-7))  # rounding must not reach the total
    column = torch.searchsorted(upto, target, right=True).clamp_max(weight.shape[1] - 1)
    return column.squeeze(1), total.squeeze(1) > 0


def anchors(sim: Float[Tensor, "B R"]) -> Int[Tensor, "B"]:
    """Return the indices of all anchors, for miners that yield one triplet per anchor."""
    return torch.arange(len(sim), device=sim.device)


def triplet_similarities(
    z: Float[Tensor, "B D"], ref: Ref | None, t: Tuples
) -> tuple[Float[Tensor, "T"], Float[Tensor, "T"]]:
    """Return the cosines anchor-positive and anchor-negative of every triplet, computed from the embeddings."""
    with full_precision(z):
        z = at_least_float32(z)
        other = z if ref is None else at_least_float32(ref.z)
        anchor = z if t.one_each else z.index_select(0, t.a)
        return (anchor * other.index_select(0, t.p)).sum(1), (anchor * other.index_select(0, t.n)).sum(1)


def sum_by_anchor(value: Float[Tensor, "T"], t: Tuples, size: int) -> tuple[Float[Tensor, "B"], Shaped[Tensor, "B"]]:
    """Return the sum of the values of each anchor's valid triplets, and their count.

    Args:
        size: number of anchors.
    """
    value = value * t.valid
    if t.one_each:
        return value, t.valid
    count = t.valid.to(t.a.dtype)
    return value.new_zeros(size).index_add(0, t.a, value), count.new_zeros(size).index_add(0, t.a, count)


def normalise_by_count(each: Float[Tensor, "B"], count: Shaped[Tensor, "B"]) -> Float[Tensor, "B"]:
    """Scale per-sample sums so that their mean over the batch is sum(each) / sum(count).

    Args:
        each: sum of the terms of every sample; 0 for a sample without terms.
        count: number of terms of every sample, or a mask of the samples that have one.
    """
    return each * (len(each) / count.sum().clamp_min(1).to(each.dtype))
