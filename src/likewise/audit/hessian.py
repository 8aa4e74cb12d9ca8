"""Influence beyond the first order: with a Hessian, or by a real step of the head. High = harmful here too.

`influence` takes the identity for the Hessian H of the mean training loss by the head's weights W. Here H is a Kronecker
product of a matrix of features and one of embeddings, which keeps gradients in their short form; or it is the true one, by
products with it, damped because it is not positive on the sphere. Or W is moved, and losses are looked at again.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float, Int
from torch import Tensor

from likewise.audit.influence import (
    NORM,
    Batches,
    Repairs,
    Space,
    apart,
    balanced_batches,
    checked_groups,
    evaluate,
    head_of,
    losses_of,
)
from likewise.contracts import Loss
from likewise.similarity import full_products
from likewise.types import Embedded, LikewiseError


def fisher_factor(g: Float[Tensor, "N D"]) -> Float[Tensor, "D D"]:
    """S of `kronecker` for any loss: the mean of g g^T over the samples' `shares` (the empirical Fisher matrix)."""
    with full_products(g):
        return g.T @ g / len(g)


def softmax_factor(e: Float[Tensor, "N D"], proxies: Float[Tensor, "C D"], scale: float) -> Float[Tensor, "D D"]:
    """S of `kronecker` for a softmax over scaled cosines: the mean Gauss-Newton matrix by the embedding before the norm.

    Formula: S = mean_n J_n^T (diag p_n - p_n p_n^T) J_n, J_n = scale P (I - z_n z_n^T) / |e_n|, rows of P unit proxies

    Args:
        scale: of the cosines: 1 / temperature of NormSoftmax, 2 scale^2 of ProxyNCA.
    """
    length = torch.linalg.vector_norm(e, dim=1, keepdim=True).clamp_min(NORM)
    z, proxies = e / length, torch.nn.functional.normalize(proxies.detach().to(e), dim=1)
    weight = (scale / length).square() / len(e)
    with full_products(e):
        cosine = z @ proxies.T
        p = (scale * cosine).softmax(1)
        mean = p @ proxies
        along = (p * cosine) @ proxies - mean * (p * cosine).sum(1, keepdim=True)  # the inner matrix times z
        cross = (weight * along).T @ z
        middle = proxies.T @ ((weight * p).sum(0)[:, None] * proxies) - (weight * mean).T @ mean
        return middle - cross - cross.T + (weight * (along * z).sum(1, keepdim=True) * z).T @ z


def kronecker(aim: Repairs, f: Float[Tensor, "N F"], s: Float[Tensor, "D D"], damping: float = 0.1) -> Repairs:
    """H^-1 times the repairs, for H = A x S with A the mean of f f^T: hand the result to `influence` or `causes`.

    Args:
        s: `softmax_factor` or `fisher_factor`.
        damping: what each factor gets on its diagonal, as a share of its mean eigenvalue.
    """
    if damping <= 0:
        raise LikewiseError(f"kronecker: damping must be above 0, got {damping}; try 0.1")
    with full_products(f):
        a = f.T @ f / len(f)
        return Repairs(_solved(s, aim.a, damping), _solved(a, aim.f, damping), aim.error, aim.errors)


def _solved(matrix: Float[Tensor, "M M"], rows: Float[Tensor, "S M"], damping: float) -> Float[Tensor, "S M"]:
    level = matrix.diagonal().double().mean()
    if not level > 0:
        raise LikewiseError(
            f"kronecker: a factor has trace {float(level * len(matrix)):g}, so no sample pulls at the head; "
            "use the identity instead: leave kronecker out"
        )
    damped = matrix.double() + damping * level * torch.eye(len(matrix), dtype=torch.float64, device=matrix.device)
    return torch.cholesky_solve(rows.T.double(), torch.linalg.cholesky(damped)).T.to(rows)


def gradients(aim: Repairs) -> Float[Tensor, "Q D F"]:
    """The repairs written out, for the methods below: few errors only."""
    sizes = torch.bincount(aim.error, minlength=aim.errors).tolist()
    with full_products(aim.a):
        return torch.stack([a.T @ f for a, f in zip(aim.a.split(sizes), aim.f.split(sizes))])


def along(v: Float[Tensor, "Q D F"], g: Float[Tensor, "N D"], f: Float[Tensor, "N F"]) -> Float[Tensor, "Q N"]:
    """<v, g f^T> for every sample: the influence, once v is H^-1 times the repair's gradient."""
    with full_products(g):
        return torch.stack([((f @ one.T) * g).sum(1) for one in v])


@torch.enable_grad()
def hessian_product(
    loss: Loss, train: Embedded, v: Float[Tensor, "Q D F"], batches: Batches | None = None
) -> Float[Tensor, "Q D F"]:
    """H v for the true Hessian of the mean loss over the training set by W, batch by batch."""
    assert train.e is not None and train.f is not None
    with full_products(v):
        moved = train.f @ v.mT
        for rows, own, number in evaluate(loss, train.e, train.y, batches):
            moved[:, rows] = _turned(own, number, moved[:, rows])
        return moved.mT @ train.f / len(train.y)


def _turned(
    own: Float[Tensor, "B D"], number: Float[Tensor, "B"], moved: Float[Tensor, "Q B D"]
) -> Float[Tensor, "Q B D"]:
    """The Hessian of the numbers added up, by their embeddings, times moves of these."""
    (slope,) = torch.autograd.grad(number.sum(), own, create_graph=True)
    if not slope.requires_grad:  # nothing to learn in this batch
        return torch.zeros_like(moved)
    ways = [torch.autograd.grad(slope, own, one, retain_graph=True, materialize_grads=True)[0] for one in moved]
    return torch.stack(ways)


@torch.enable_grad()
def lissa(
    loss: Loss,
    train: Embedded,
    v: Float[Tensor, "Q D F"],
    damping: float = 0.01,
    scale: float = 500.0,
    batches: Batches | None = None,
) -> Float[Tensor, "Q D F"]:
    """H^-1 v by one pass of a recursion over the training set, as the authors of the empirical influence released it.

    Formula: h <- v + (1 - damping) h - H_k h / scale for batch k = 1, 2, ...; the result is h / scale
    Differs: nothing. It aims at `damped_solution` for damping * scale, which is 5 here, and one pass may end short of it.

    Args:
        batches: what H_k is taken over; None: one sample after another, which is slow, and no choice for a loss that
            compares samples.
    """
    if not 0 < damping < 1 or scale <= 0:
        raise LikewiseError(f"lissa: damping must be between 0 and 1 and scale above 0, got {damping} and {scale}")
    batches = torch.arange(len(train.y), device=train.y.device).split(1) if batches is None else batches
    assert train.e is not None and train.f is not None
    h = v.clone()
    for rows, own, number in evaluate(loss, train.e, train.y, batches):
        f = train.f[rows]
        h = v + (1 - damping) * h - _turned(own, number, f @ h.mT).mT @ f / (scale * len(rows))
    if not bool(h.isfinite().all()):
        raise LikewiseError(f"lissa: the recursion ran away with scale={scale:g}; raise it, or use damped_solution")
    return h / scale


def damped_solution(
    loss: Loss,
    train: Embedded,
    v: Float[Tensor, "Q D F"],
    damping: float = 5.0,
    tolerance: float = 1e-5,
    most: int = 200,
    batches: Batches | None = None,
) -> Float[Tensor, "Q D F"]:
    """(H + damping I)^-1 v, the fixed point of `lissa`, by conjugate gradients.

    Args:
        damping: must lift the lowest eigenvalue of H above 0. Authors' code: 0.01 * 500.
        tolerance: what may be left of v, as a share of its length.
        most: products with H before it gives up.
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
                f"with damping={damping:g}; raise it"
            )
        length = torch.where(going, size / bend, 0)
        x, left = x + length * way, left - length * turned
        before, size = size, _dot(left, left)
        way = torch.where(going, left + size / before * way, way)
    if bool((size > enough).any()):
        worst = float((size / enough * tolerance**2).max().sqrt())
        raise LikewiseError(
            f"damped_solution: after {most} products {worst:.2g} of a gradient is left, more than tolerance={tolerance:g}; "
            "raise damping, tolerance or most"
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
    """Move W until the error is repaired and look whose loss moves with it: one number per sample, for one error after another.

    Paper: the empirical influence function for debugging metric learning: mean over other heads W' of
        (change of what should grow) (change of the sample's loss) / |W' - W|.
    Differs: same-label pairs count with sign -1. What a gradient step adds to W lies in the span of the pairs' features, so only
        coefficients are moved, and W itself is not needed. A loss that compares samples counts with its own number per sample.

    Args:
        thetas: how many W': the repaired one, the worsened one, then random ones at right angles to those before and as far
            from W as the repaired one. Paper: 1.
        step: times the gradient is what a step adds. Authors' code: 1e-3.
        steps: how many at most. Authors' code: 50.
        limit: no step once the mean squared distance has changed by so much. Authors' code: 1.
    """
    if heads < 1 or steps < 1 or step <= 0 or limit <= 0:
        raise LikewiseError(
            "empirical: thetas and steps must be 1 or more, step and limit above 0, "
            f"got thetas={heads}, steps={steps}, step={step}, limit={limit}"
        )
    (e, f), (test_e, test_f) = head_of("empirical", train), head_of("empirical", test)
    group = checked_groups(len(test_e), pair, sign, group)
    batches = balanced_batches(train.y) if batches is None else batches
    e, before = e.double(), losses_of(loss, e.double(), train.y, batches)
    for error in range(int(group.max()) + 1):
        mine = group == error
        ends = pair[mine].flatten()
        share = sign[mine].to(e) / mine.sum()
        at, side = test_e[ends].double(), test_f[ends]
        up = _climb(at, side, share, loss.input, step, steps, limit)
        moves = [(up, side)]
        if heads > 1:
            moves.append((_climb(at, side, share, loss.input, -step, steps, limit), side))
        moves += _at_right_angles(moves, heads - 2, seed + error)
        score = torch.zeros_like(before)
        for b, q in moves:
            length = ((b @ b.T) * (q @ q.T)).sum().clamp_min(torch.finfo(b.dtype).tiny).sqrt()
            gain = _worth(at + _shift(side, q, b), share, loss.input)[0] - _worth(at, share, loss.input)[0]
            score += gain / length * (losses_of(loss, e + _shift(f, q, b), train.y, batches) - before)
        yield score / len(moves)


def _climb(at, side, share, space: Space, step: float, steps: int, limit: float) -> Float[Tensor, "S D"]:
    """Coefficients b of plain gradient ascent: W moves by b^T times the features of the sides."""
    with full_products(side):
        gram, b = (side @ side.T).to(at), torch.zeros_like(at)
    start, slope = _worth(at, share, space)
    for _ in range(steps):
        b = b + step * slope
        now, slope = _worth(at + gram @ b, share, space)
        slope = slope * ((now - start).abs() < limit)
    return b


def _at_right_angles(moves, count: int, seed: int) -> list[tuple[Tensor, Tensor]]:
    """Random moves, at right angles to those given and to one another, as long as the first."""
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
    with full_products(f):
        return (f @ q.T).to(b) @ b


def _worth(e: Float[Tensor, "S D"], share: Float[Tensor, "P"], space: Space):
    """What should grow for one error, and its gradient by the embeddings of its sides."""
    each, slope = apart(e.unflatten(0, (-1, 2)), share, space)
    return each.sum(), slope.flatten(0, 1)
