"""Influence beyond the first order: with a Hessian, or by a finite step of the head. High = harmful here too.

`influence` uses the identity in place of the Hessian H of the mean training loss by the head's weights W. Here H is a
Kronecker
product of a feature matrix and an embedding matrix, which keeps gradients factored; or the true H is used through
Hessian-vector products, damped because H is not positive on the sphere. `empirical` moves W and measures the losses again.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from likewise.core.contracts import Loss
from likewise.core.similarity import full_precision_matmul
from likewise.core.types import Embedded, LikewiseError
from likewise.curate.audit.influence import (
    NORM_EPSILON,
    Batches,
    Repairs,
    Space,
    balanced_batches,
    check_groups,
    evaluate,
    head_inputs,
    losses_of,
    pair_distances,
)

LISSA_BLOCK_SIZE = 64
"""Samples after which `lissa`, one sample at a time, updates the whole matrix; between, it stores one vector per sample."""

MAX_LISSA_REMAINDER = 0.1
"""Share of the way to the limit of `lissa` that may remain after its pass without a note."""


class LissaDiverged(LikewiseError):
    """The recursion of `lissa` ended in values that are not finite."""


def fisher_factor(g: Float[Tensor, "N D"]) -> Float[Tensor, "D D"]:
    """Return S of `kronecker` for any loss: the mean of g g^T over the `embedding_gradients` (empirical Fisher matrix)."""
    with full_precision_matmul(g):
        return g.T @ g / len(g)


def softmax_factor(e: Float[Tensor, "N D"], proxies: Float[Tensor, "C D"], scale: float) -> Float[Tensor, "D D"]:
    """Return S of `kronecker` for a softmax over scaled cosines: the mean Gauss-Newton matrix by the embedding before the norm.

    Formula: S = mean_n J_n^T (diag p_n - p_n p_n^T) J_n, J_n = scale P (I - z_n z_n^T) / |e_n|, rows of P unit proxies

    Args:
        scale: factor of the cosines: 1 / temperature for NormSoftmax, 2 scale^2 for ProxyNCA.
    """
    length = torch.linalg.vector_norm(e, dim=1, keepdim=True).clamp_min(NORM_EPSILON)
    z, proxies = e / length, torch.nn.functional.normalize(proxies.detach().to(e), dim=1)
    weight = (scale / length).square() / len(e)
    with full_precision_matmul(e):
        cosine = z @ proxies.T
        p = (scale * cosine).softmax(1)
        mean = p @ proxies
        along = (p * cosine) @ proxies - mean * (p * cosine).sum(1, keepdim=True)  # the inner matrix times z
        cross = (weight * along).T @ z
        middle = proxies.T @ ((weight * p).sum(0)[:, None] * proxies) - (weight * mean).T @ mean
        return middle - cross - cross.T + (weight * (along * z).sum(1, keepdim=True) * z).T @ z


def kronecker(aim: Repairs, f: Float[Tensor, "N F"], s: Float[Tensor, "D D"], damping: float = 0.1) -> Repairs:
    """Return H^-1 times the repairs, for H = A x S with A the mean of f f^T; an input of `influence` or `causes`.

    Args:
        s: `softmax_factor` or `fisher_factor`.
        damping: added to the diagonal of each factor, as a share of its mean eigenvalue.
    """
    if damping <= 0:
        raise LikewiseError(f"kronecker: damping must be above 0, got {damping}; try 0.1")
    with full_precision_matmul(f):
        a = f.T @ f / len(f)
        return Repairs(_solve_damped(s, aim.a, damping), _solve_damped(a, aim.f, damping), aim.error, aim.errors)


def _solve_damped(matrix: Float[Tensor, "M M"], rows: Float[Tensor, "S M"], damping: float) -> Float[Tensor, "S M"]:
    level = matrix.diagonal().double().mean()
    if not level > 0:
        raise LikewiseError(
            f"kronecker: a factor must have a positive trace, got {float(level * len(matrix)):g}: no sample has a gradient; "
            "leave out kronecker, which uses the identity"
        )
    damped = matrix.double() + damping * level * torch.eye(len(matrix), dtype=torch.float64, device=matrix.device)
    return torch.cholesky_solve(rows.T.double(), torch.linalg.cholesky(damped)).T.to(rows)


def gradients(aim: Repairs) -> Float[Tensor, "Q D F"]:
    """Return the repairs as full matrices, for the methods below; the memory allows only few errors."""
    sizes = torch.bincount(aim.error, minlength=aim.errors).tolist()
    with full_precision_matmul(aim.a):
        return torch.stack([a.T @ f for a, f in zip(aim.a.split(sizes), aim.f.split(sizes))])


def along(v: Float[Tensor, "Q D F"], g: Float[Tensor, "N D"], f: Float[Tensor, "N F"]) -> Float[Tensor, "Q N"]:
    """Return <v, g f^T> for every sample: the influence, if v is H^-1 times the gradient of the repair."""
    with full_precision_matmul(g):
        return torch.stack([((f @ one.T) * g).sum(1) for one in v])


@torch.enable_grad()
def hessian_product(
    loss: Loss, train: Embedded, v: Float[Tensor, "Q D F"], batches: Batches | None = None
) -> Float[Tensor, "Q D F"]:
    """Return H v for the true Hessian of the mean training loss by W, computed batch by batch."""
    assert train.e is not None and train.f is not None
    with full_precision_matmul(v):
        moved = train.f @ v.mT
        for rows, own, number in evaluate(loss, train.e, train.y, batches):
            moved[:, rows] = _hessian_times(own, number, moved[:, rows])
        return moved.mT @ train.f / len(train.y)


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
        (`compares_samples`) has no Hessian for one sample and needs `batches`. The limit is `damped_solution` with
        damping * scale, here 5. One pass of K steps leaves about (1 - damping)^K of the way to it: 0 % with 1,000 samples one
        by one, 73 % in batches of 32 (see `lissa_note`); the last 1 / damping = 100 steps decide how H enters.

    Args:
        batches: rows over which H_k is taken; None: one sample at a time.
    """
    if not 0 < damping < 1 or scale <= 0:
        raise LikewiseError(f"lissa: damping must be between 0 and 1 and scale above 0, got {damping} and {scale}")
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
            f"lissa: the recursion diverged with scale={scale:g}; raise scale, use damped_solution, or --influence finite"
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
        z = F.normalize(own, dim=1, eps=NORM_EPSILON) if loss.input == "unit" else own
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


def damped_solution(
    loss: Loss,
    train: Embedded,
    v: Float[Tensor, "Q D F"],
    damping: float = 5.0,
    tolerance: float = 1e-5,
    most: int = 200,
    batches: Batches | None = None,
) -> Float[Tensor, "Q D F"]:
    """Return (H + damping I)^-1 v, the limit of `lissa`, by conjugate gradients.

    Args:
        damping: must raise the lowest eigenvalue of H above 0. Authors' code: 0.01 * 500.
        tolerance: allowed length of the residual, as a share of the length of v.
        most: maximum number of products with H.
    """
    batches = balanced_batches(train.y) if batches is None else batches
    x, left, way = torch.zeros_like(v), v.clone(), v.clone()
    size = _dot(left, left)
    enough = tolerance**2 * size
    for _ in range(most):
        going = size > enough
        if not bool(going.any()):
            return x
        turned = hessian_product(loss, train, way, batches) + damping * way
        bend = _dot(way, turned)
        if bool((going & ~(bend > 0)).any()):
            raise LikewiseError(
                f"damped_solution: the damped Hessian must be positive, got {float(bend[going].min()):.3g} along a direction "
                f"with damping={damping:g}; raise damping"
            )
        length = torch.where(going, size / bend, 0)
        x, left = x + length * way, left - length * turned
        before, size = size, _dot(left, left)
        way = torch.where(going, left + size / before * way, way)
    if bool((size > enough).any()):
        worst = float((size / enough * tolerance**2).max().sqrt())
        raise LikewiseError(
            f"damped_solution: after {most} products the residual is {worst:.2g} of a gradient, above "
            f"tolerance={tolerance:g}; raise damping, tolerance or most"
        )
    return x


def _dot(a: Float[Tensor, "Q D F"], b: Float[Tensor, "Q D F"]) -> Float[Tensor, "Q 1 1"]:
    return (a * b).sum((1, 2), keepdim=True)


def empirical(
    loss: Loss,
    train: Embedded,
    test: Embedded,
    pair: Int[Tensor, "P 2"],
    sign: Float[Tensor, "P"],
    group: Int[Tensor, "P"] | None = None,
    *,
    heads: int = 1,
    step: float = 1e-3,
    steps: int = 50,
    limit: float = 1.0,
    batches: Batches | None = None,
    seed: int = 0,
) -> Iterator[Float[Tensor, "N"]]:
    """Yield for every error the influence of all samples, from the change of their losses when W moves to repair the error.

    Paper: the empirical influence function for debugging metric learning: mean over other heads W' of
        (change of the signed distance) (change of the sample's loss) / |W' - W|.
    Differs: same-label pairs count with sign -1. A gradient step adds to W a matrix in the span of the pairs' features, so
    only
        its coefficients are stored and W itself is not needed. A loss that compares samples counts with its value per sample.

    Args:
        heads: number of heads W': the repaired one, the worsened one, then random ones, orthogonal to the earlier ones and
        as far
            from W as the repaired one. Paper: 1.
        step: factor of the gradient in one step. Authors' code: 1e-3.
        steps: maximum number of steps. Authors' code: 50.
        limit: steps end when the mean squared distance has changed by this amount. Authors' code: 1.
    """
    if heads < 1 or steps < 1 or step <= 0 or limit <= 0:
        raise LikewiseError(
            "empirical: heads and steps must be 1 or more, step and limit above 0, "
            f"got heads={heads}, steps={steps}, step={step}, limit={limit}"
        )
    (e, f), (test_e, test_f) = head_inputs("empirical", train), head_inputs("empirical", test)
    group = check_groups(len(test_e), pair, sign, group)
    batches = balanced_batches(train.y) if batches is None else batches
    e, before = e.double(), losses_of(loss, e.double(), train.y, batches)
    for error in range(int(group.max()) + 1):
        mine = group == error
        ends = pair[mine].flatten()
        share = sign[mine].to(e) / mine.sum()
        at, side = test_e[ends].double(), test_f[ends]
        up = _ascend(at, side, share, loss.input, step, steps, limit)
        moves = [(up, side)]
        if heads > 1:
            moves.append((_ascend(at, side, share, loss.input, -step, steps, limit), side))
        moves += _random_orthogonal_moves(moves, heads - 2, seed + error)
        score = torch.zeros_like(before)
        for b, q in moves:
            length = ((b @ b.T) * (q @ q.T)).sum().clamp_min(torch.finfo(b.dtype).tiny).sqrt()
            gain = (
                _repair_value(at + _shift(side, q, b), share, loss.input)[0] - _repair_value(at, share, loss.input)[0]
            )
            score += gain / length * (losses_of(loss, e + _shift(f, q, b), train.y, batches) - before)
        yield score / len(moves)


def _ascend(at, side, share, space: Space, step: float, steps: int, limit: float) -> Float[Tensor, "S D"]:
    """Return the coefficients b of plain gradient ascent: W moves by b^T times the features of the pairs' samples."""
    with full_precision_matmul(side):
        gram, b = (side @ side.T).to(at), torch.zeros_like(at)
    start, slope = _repair_value(at, share, space)
    for _ in range(steps):
        b = b + step * slope
        now, slope = _repair_value(at + gram @ b, share, space)
        slope = slope * ((now - start).abs() < limit)
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
