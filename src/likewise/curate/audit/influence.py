"""Influence of training samples on retrieval errors, through the weights W of a linear head. High influence = harmful.

Embeddings are e = W f + b; the bias b, the features f and the parameters of the loss stay fixed. Fitting a harmful sample works
against the repair of an error, which moves the distance of the error's pairs. `empirical` moves W until the error is repaired,
and measures the losses again. `lissa` is the influence function with the Hessian of the training loss by W, for comparison.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, get_type_hints

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from likewise.core.argument_checks import Count, Positive, ShareBetween, check_arguments
from likewise.core.contracts import Loss
from likewise.core.similarity import full_precision_matmul
from likewise.core.types import Embedded, LikewiseError, Ref
from likewise.curate.audit.records import Causes

Space = Literal["unit", "raw"]
Batches = Sequence[Int[Tensor, "_"]]
NORM_EPSILON = 1e-6
"""Smallest length by which an embedding is divided; the same as in the embedder."""

LISSA_BLOCK_SIZE = 64
"""Samples after which `lissa`, one sample at a time, updates the whole matrix; between, it stores one vector per sample."""

MAX_LISSA_REMAINDER = 0.1
"""Share of the way to the limit of `lissa` that may remain after its pass without a note."""


@dataclass(frozen=True)
class Ascent:
    """Gradient steps that move the head until an error is repaired.

    Args:
        step: factor of the gradient in one step. Authors' code: 1e-3.
        steps: maximum number of steps. Authors' code: 50.
        limit: steps end when the mean squared distance has changed by this amount. Authors' code: 1.
    """

    step: Positive = 1e-3
    steps: Count = 50
    limit: Positive = 1.0

    def __post_init__(self) -> None:
        check_arguments("empirical", vars(self), get_type_hints(Ascent, include_extras=True))


class LissaDiverged(LikewiseError):
    """The recursion of `lissa` ended in values that are not finite."""


def balanced_batches(
    y: Int[Tensor, "N"], batch: int = 128, per_class: int = 4, seed: int = 0
) -> list[Int[Tensor, "_"]]:
    """Return every training sample once, in batches with at least two samples of a class, if the class has two.

    A batch may be larger than `batch`: samples that were drawn together stay together, and the last batch takes the remainder. A
    loss that compares no samples returns the same values for any batches.
    """
    n = len(y)
    draw = torch.Generator().manual_seed(seed)
    order = torch.randperm(n, generator=draw).to(y.device)
    order = order[y[order].argsort(stable=True)]
    _, label, size = y[order].unique_consecutive(return_inverse=True, return_counts=True)
    place = torch.arange(n, device=y.device) - (size.cumsum(0) - size)[label]
    # Every class is divided into packs of per_class; the last pack takes the rest, so that no pack has one sample.
    packs = size.div(per_class, rounding_mode="floor").clamp_min(1)
    pack = (packs.cumsum(0) - packs)[label] + torch.minimum(place // per_class, packs[label] - 1)
    turn = torch.randperm(int(packs.sum()), generator=draw).to(y.device)[pack]
    by_turn = turn.argsort(stable=True)
    held = torch.bincount(turn)
    number = ((held.cumsum(0) - held) // batch).clamp_max(max(1, n // batch) - 1)
    sizes = torch.bincount(number.repeat_interleave(held))
    return [rows for rows in order[by_turn].split(sizes.tolist()) if len(rows)]


@torch.enable_grad()
def embedding_gradients(loss: Loss, train: Embedded, batches: Batches | None = None) -> Float[Tensor, "N D"]:
    """Return g of every training sample: the gradient of the summed loss of its batch by its embedding e.

    The sum of g f^T is the gradient by W. For a loss that compares no samples, g is the gradient of the sample's own loss.

    Args:
        batches: rows of `train` that are compared with one another, each row in one batch; None: `balanced_batches`.
    """
    e, _ = head_inputs("embedding_gradients", train)
    found = torch.full_like(e, torch.nan)
    for rows, own, value in evaluate(loss, e, train.y, batches):
        found[rows] = torch.autograd.grad(value.sum(), own)[0]
    _check_finite("embedding_gradients", "the loss's gradient", found)
    return found


def evaluate(
    loss: Loss, e: Float[Tensor, "N D"], y: Int[Tensor, "N"], batches: Batches | None = None
) -> Iterator[tuple[Int[Tensor, "B"], Float[Tensor, "B D"], Float[Tensor, "B"]]]:
    """Yield rows, embeddings and losses of each batch, with a graph if gradients are enabled.

    Miners draw the same samples in every call.
    """
    batches = balanced_batches(y) if batches is None else batches
    loss = copy.deepcopy(loss).eval()  # a loss with a memory must not change here
    for number, rows in enumerate(batches):
        own = e[rows].detach().requires_grad_(torch.is_grad_enabled())
        z = loss_input(loss, own)
        with torch.random.fork_rng([e.device] if e.is_cuda else [], device_type="cuda"):
            (torch.cuda.manual_seed if e.is_cuda else torch.default_generator.manual_seed)(number)
            found = loss(z, y[rows])
        yield rows, own, found


@torch.enable_grad()
def compares_samples(loss: Loss, train: Embedded) -> bool:
    """Return whether the loss compares samples with one another, so that a sample alone has no loss.

    A loss that compares samples with its own proxies ignores `ref`, and its values are then not connected to `ref`.
    """
    if loss.remembers:
        return True
    assert train.e is not None
    rows = balanced_batches(train.y)[0]
    own = train.e[rows].detach().requires_grad_()
    z = loss_input(loss, own)
    other = z.detach().clone().requires_grad_()
    value = copy.deepcopy(loss).eval()(z, train.y[rows], Ref(other, train.y[rows]))
    (by_other,) = torch.autograd.grad(value.sum(), other, allow_unused=True)
    return by_other is not None


@torch.no_grad()
def losses_of(
    loss: Loss, e: Float[Tensor, "N D"], y: Int[Tensor, "N"], batches: Batches | None = None
) -> Float[Tensor, "N"]:
    """Return the loss of each sample in its batch."""
    found = e.new_empty(len(e))
    for rows, _, value in evaluate(loss, e, y, batches):
        found[rows] = value.to(found)
    return found


def loss_input(loss: Loss, e: Float[Tensor, "B D"]) -> Float[Tensor, "B D"]:
    """Return embeddings as a loss expects them: unit vectors, or as they are before the norm."""
    return F.normalize(e, dim=1, eps=NORM_EPSILON) if loss.input == "unit" else e


def strongest(scores: Float[Tensor, "Q N"], k: int) -> Causes:
    """Return the k most harmful and the k most helpful samples for every error."""
    harmful, helpful = scores.topk(k, 1), scores.topk(k, 1, largest=False)
    spread = scores.square().sum(1).div_(scores.shape[1]).sqrt_()
    return Causes(harmful.indices, harmful.values, helpful.indices, helpful.values, spread)


def repairs(
    test: Embedded,
    pair: Int[Tensor, "P 2"],
    sign: Float[Tensor, "P"],
    group: Int[Tensor, "P"] | None = None,
    space: Space = "unit",
) -> Float[Tensor, "Q D F"]:
    """Return the gradient by W of the value that should grow: the mean over an error's pairs of sign times squared distance.

    Args:
        pair: two positions among the test samples.
        sign: 1 where the two should be farther apart (confusion), -1 where they should be closer (same class).
        group: number of the error that a pair belongs to, from 0 without gaps; None: every pair is an error of its own.
        space: distances between unit embeddings, or between raw ones for a loss whose `input` is "raw".
    """
    e, f = head_inputs("repairs", test)
    group = torch.arange(len(pair), device=pair.device) if group is None else group
    count, order = torch.bincount(group), group.argsort(stable=True)
    pair, sign, group = pair[order], sign[order], group[order]
    _, slope = pair_distances(e[pair], sign.to(e) / count[group].to(e), space)
    sizes = (2 * count).tolist()
    with full_precision_matmul(e):
        parts = zip(slope.flatten(0, 1).split(sizes), f[pair].flatten(0, 1).split(sizes))
        return torch.stack([a.T @ b for a, b in parts])


def pair_distances(
    e: Float[Tensor, "P 2 D"], share: Float[Tensor, "P"], space: Space
) -> tuple[Float[Tensor, "P"], Float[Tensor, "P 2 D"]]:
    """Return share times squared distance of each pair, and its gradient by the two embeddings before the norm."""
    length = torch.linalg.vector_norm(e, dim=2, keepdim=True).clamp_min(NORM_EPSILON)
    z = e / length if space == "unit" else e
    gap = z[:, 0] - z[:, 1]
    slope = 2 * share[:, None, None] * torch.stack([gap, -gap], 1)
    if space == "unit":
        slope = (slope - (slope * z).sum(2, keepdim=True) * z) / length
    return share * gap.square().sum(1), slope


def head_inputs(owner: str, given: Embedded) -> tuple[Float[Tensor, "N D"], Float[Tensor, "N F"]]:
    """Return embeddings before the norm and features; raise if they are missing or not finite."""
    if given.e is None or given.f is None:
        missing = " and ".join(name for name in ("e", "f") if getattr(given, name) is None)
        raise LikewiseError(
            f"{owner}: embeddings before the norm (e) and features (f) must be given, got none for {missing}; "
            "use a network with a linear head"
        )
    _check_finite(owner, "e", given.e)
    _check_finite(owner, "f", given.f)
    return given.e, given.f


def _check_finite(owner: str, what: str, x: Float[Tensor, "N _"]) -> None:
    is_finite = x.isfinite().all(1)
    if not bool(is_finite.all()):
        raise LikewiseError(
            f"{owner}: {what} must be finite, got {int((~is_finite).sum())} rows that are not (first: row "
            f"{int((~is_finite).nonzero()[0, 0])}); leave out these samples"
        )


def along(v: Float[Tensor, "Q D F"], g: Float[Tensor, "N D"], f: Float[Tensor, "N F"]) -> Float[Tensor, "Q N"]:
    """Return <v, g f^T> for every sample: the influence, if v is H^-1 times the gradient of the repair.

    With v the gradient itself (the identity in place of H) it is the first order of `empirical`.
    """
    with full_precision_matmul(g):
        return torch.stack([((f @ one.T) * g).sum(1) for one in v])


def _hessian_times(
    own: Float[Tensor, "B D"], number: Float[Tensor, "B"], moved: Float[Tensor, "Q B D"]
) -> Float[Tensor, "Q B D"]:
    """Return the Hessian of the summed losses by their embeddings, times `moved`."""
    (slope,) = torch.autograd.grad(number.sum(), own, create_graph=True)
    if not slope.requires_grad:  # the loss of this batch is constant
        return torch.zeros_like(moved)
    return torch.autograd.grad(slope, own, moved, is_grads_batched=True, materialize_grads=True)[0]


@torch.enable_grad()
def lissa(
    loss: Loss,
    train: Embedded,
    v: Float[Tensor, "Q D F"],
    damping: float = 0.01,
    scale: float = 500.0,
    batches: Batches | None = None,
) -> Float[Tensor, "Q D F"]:
    """Return H^-1 v by one pass of a recursion over the training set, as in the code of the empirical-influence paper.

    Formula: h <- v + (1 - damping) h - H_k h / scale for step k = 1, 2, ...; the result is h / scale
    Differs: nothing for `batches=None`, one sample per step in the order of the data. A loss that compares samples
        (`compares_samples`) has no Hessian for one sample and needs `batches`. The limit is (H + damping * scale I)^-1 v, here
        with 5 I. One pass of K steps leaves about (1 - damping)^K of the way to it: 0 % with 1,000 samples one by one, 73 % in
        batches of 32 (see `lissa_note`); the last 1 / damping = 100 steps decide how H enters.

    Args:
        batches: rows over which H_k is taken; None: one sample at a time.
    """
    check_arguments("lissa", {"damping": damping, "scale": scale}, {"damping": ShareBetween, "scale": Positive})
    assert train.e is not None and train.f is not None
    h = v.clone()
    if batches is None:
        loss = copy.deepcopy(loss).eval().requires_grad_(False)
        with full_precision_matmul(v):
            for rows in torch.arange(len(train.y), device=v.device).split(LISSA_BLOCK_SIZE):
                _lissa_block(h, v, loss, train.e[rows], train.y[rows], train.f[rows], damping, scale)
    else:
        for rows, own, number in evaluate(loss, train.e, train.y, batches):
            f = train.f[rows]
            h = v + (1 - damping) * h - _hessian_times(own, number, f @ h.mT).mT @ f / (scale * len(rows))
    if not bool(h.isfinite().all()):
        raise LissaDiverged(
            f"lissa: the recursion diverged with scale={scale:g}; raise scale, or use --influence finite"
        )
    return h / scale


def _lissa_block(
    h: Float[Tensor, "Q D F"],
    v: Float[Tensor, "Q D F"],
    loss: Loss,
    e: Float[Tensor, "M D"],
    y: Int[Tensor, "M"],
    f: Float[Tensor, "M F"],
    damping: float,
    scale: float,
) -> None:
    """Apply the steps of `lissa` for some samples, one after another, to h in place.

    The Hessian of sample k is A_k x f_k f_k^T with A_k by its embedding, so a step needs h only along f_k, and adds a multiple
    of u_k f_k^T, u_k = A_k h f_k. Within the block h f_k follows from h at its start and the products f_j f_k; h itself, which
    is large, is read and written once per block.
    """
    keep, m = 1 - damping, len(f)
    ages = torch.arange(m, device=v.device)
    power = keep ** torch.arange(m + 1, device=v.device, dtype=v.dtype)
    total = (1 - power) / damping  # 1 + keep + ... + keep^(k-1)
    # what h f_k would be before step k without the Hessians of this block
    plain = power[:m, None] * (f @ h.mT) + total[:m, None] * (f @ v.mT)
    age = ages[:, None] - ages - 1  # steps between the update by sample j and the step of sample k
    weight = (f @ f.T) * (power[age.clamp_min(0)] * (age >= 0)) / scale
    u = torch.zeros_like(plain)
    for k in range(m):
        moved = plain[:, k] - torch.einsum("j,qjd->qd", weight[k, :k], u[:, :k])
        own = e[k : k + 1].detach().requires_grad_()
        z = loss_input(loss, own)
        u[:, k] = _hessian_times(own, loss(z, y[k : k + 1]), moved[:, None]).squeeze(1)
    u *= power[:m].flip(0)[:, None]
    h.mul_(power[m]).add_(v * total[m]).baddbmm_(u.mT, f.expand(len(h), -1, -1), alpha=-1 / scale)


def lissa_note(steps: int, damping: float = 0.01) -> list[str]:
    """Return a note if one pass of `lissa` with this many steps ends far from its limit.

    Without the Hessian, the distance from the limit shrinks by (1 - damping) with every step.
    """
    left = (1 - damping) ** steps
    if left <= MAX_LISSA_REMAINDER:
        return []
    return [
        f"lissa: one pass of {steps} steps over the training split leaves about {left:.0%} of the way to its limit; with so "
        "few samples, use --influence finite"
    ]


def empirical(
    loss: Loss,
    train: Embedded,
    test: Embedded,
    pair: Int[Tensor, "P 2"],
    sign: Float[Tensor, "P"],
    group: Int[Tensor, "P"] | None = None,
    *,
    heads: int = 1,
    ascent: Ascent = Ascent(),
    batches: Batches | None = None,
    seed: int = 0,
) -> Iterator[Float[Tensor, "N"]]:
    """Yield for every error the influence of all samples, from the change of their losses when W moves to repair the error.

    Paper: the empirical influence function for debugging metric learning: mean over other heads W' of
        (change of the signed distance) (change of the sample's loss) / |W' - W|.
    Differs: same-label pairs count with sign -1. A gradient step adds to W a matrix in the span of the pairs' features, so only
        its coefficients are stored and W itself is not needed. A loss that compares samples counts with its value per sample.

    Args:
        heads: number of heads W': the repaired one, the worsened one, then random ones, orthogonal to the earlier ones and as far
            from W as the repaired one. Paper: 1.
    """
    check_arguments("empirical", {"heads": heads}, {"heads": Count})
    (e, f), (test_e, test_f) = head_inputs("empirical", train), head_inputs("empirical", test)
    group = torch.arange(len(pair), device=pair.device) if group is None else group
    batches = balanced_batches(train.y) if batches is None else batches
    e, before = e.double(), losses_of(loss, e.double(), train.y, batches)
    for error in range(int(group.max()) + 1):
        mine = group == error
        ends = pair[mine].flatten()
        share = sign[mine].to(e) / mine.sum()
        at, side = test_e[ends].double(), test_f[ends]
        up = _ascend(at, side, share, loss.input, ascent)
        moves = [(up, side)]
        if heads > 1:
            moves.append((_ascend(at, side, share, loss.input, ascent, -1), side))
        moves += _random_orthogonal_moves(moves, heads - 2, seed + error)
        score = torch.zeros_like(before)
        for b, q in moves:
            length = ((b @ b.T) * (q @ q.T)).sum().clamp_min(torch.finfo(b.dtype).tiny).sqrt()
            gain = (
                _repair_value(at + _shift(side, q, b), share, loss.input)[0] - _repair_value(at, share, loss.input)[0]
            )
            score += gain / length * (losses_of(loss, e + _shift(f, q, b), train.y, batches) - before)
        yield score / len(moves)


def _ascend(at, side, share, space: Space, ascent: Ascent, sign: int = 1) -> Float[Tensor, "S D"]:
    """Return the coefficients b of plain gradient ascent, or descent with sign -1: W moves by b^T times the pairs' features."""
    with full_precision_matmul(side):
        gram, b = (side @ side.T).to(at), torch.zeros_like(at)
    start, slope = _repair_value(at, share, space)
    for _ in range(ascent.steps):
        b = b + sign * ascent.step * slope
        now, slope = _repair_value(at + gram @ b, share, space)
        slope = slope * ((now - start).abs() < ascent.limit)
    return b


def _random_orthogonal_moves(moves, count: int, seed: int) -> list[tuple[Tensor, Tensor]]:
    """Return random moves, orthogonal to the given ones and to one another, as long as the first given move."""
    if count < 1:
        return []
    known = torch.stack([(b.T @ q.to(b)).flatten() for b, q in moves], 1)
    draw = torch.Generator().manual_seed(seed)
    random = torch.randn(len(known), count, generator=draw, dtype=known.dtype).to(known)
    basis = torch.linalg.qr(torch.cat([known, random], 1)).Q[:, len(moves) :]
    (b, q), width = moves[0], moves[0][0].shape[1]
    eye = torch.eye(width, dtype=b.dtype, device=b.device)
    return [(eye, one.view(width, -1).to(q)) for one in (basis * known[:, 0].norm()).T]


def _shift(f: Float[Tensor, "n F"], q: Float[Tensor, "S F"], b: Float[Tensor, "S D"]) -> Float[Tensor, "n D"]:
    """Return the change of the embeddings of `f` for a move (b, q) of W."""
    with full_precision_matmul(f):
        return (f @ q.T).to(b) @ b


def _repair_value(e: Float[Tensor, "S D"], share: Float[Tensor, "P"], space: Space):
    """Return the signed distance of one error, which should grow, and its gradient by the embeddings of its samples."""
    each, slope = pair_distances(e.unflatten(0, (-1, 2)), share, space)
    return each.sum(), slope.flatten(0, 1)
