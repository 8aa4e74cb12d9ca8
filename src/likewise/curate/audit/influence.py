"""Influence of training samples on retrieval errors: on the distance of pairs, through the weights W of a linear head.

Embeddings are e = W f + b; the bias b, the features f and the parameters of the loss stay fixed. The gradient of a sample
by W is
g f^T, and the gradient of a pair's distance is the sum of two such products. So gradients stay factored, and the influences of
all samples on all errors are two matrix products. High influence = harmful: fitting the sample works against the repair.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from likewise.core.contracts import Loss
from likewise.core.similarity import full_precision_matmul
from likewise.core.types import Embedded, LikewiseError, Ref
from likewise.curate.audit.records import Causes

Space = Literal["unit", "raw"]
Batches = Sequence[Int[Tensor, "_"]]
NORM_EPSILON = 1e-6
"""Smallest length by which an embedding is divided; the same as in the embedder."""


@dataclass(frozen=True, eq=False)
class Repairs:
    """Direction in which W should move: for error q the sum of a_s f_s^T over its samples s, those with error[s] = q."""

    a: Float[Tensor, "S D"]
    f: Float[Tensor, "S F"]
    error: Int[Tensor, "S"]  # 0 to errors - 1, ascending
    errors: int


def repairs(
    test: Embedded,
    pair: Int[Tensor, "P 2"],
    sign: Float[Tensor, "P"],
    group: Int[Tensor, "P"] | None = None,
    space: Space = "unit",
) -> Repairs:
    """Return the gradient by W of the value that should grow: the mean over an error's pairs of sign times squared distance.

    Args:
        pair: two positions among the test samples.
        sign: 1 where the two should be farther apart (confusion), -1 where they should be closer (same class).
        group: number of the error that a pair belongs to, from 0 without gaps; None: every pair is an error of its own.
        space: distances between unit embeddings, or between raw ones for a loss whose `input` is "raw".
    """
    e, f = head_inputs("repairs", test)
    group = check_groups(len(e), pair, sign, group)
    count, order = torch.bincount(group), group.argsort(stable=True)
    pair, sign, group = pair[order], sign[order], group[order]
    _, slope = pair_distances(e[pair], sign.to(e) / count[group].to(e), space)
    return Repairs(slope.flatten(0, 1), f[pair].flatten(0, 1), group.repeat_interleave(2).to(e.device), len(count))


def lengths(aim: Repairs) -> Float[Tensor, "Q"]:
    """Return the length of each error's gradient. A small step of `empirical` is about step * length * `influence`."""
    found = aim.a.new_zeros(aim.errors)
    sizes = torch.bincount(aim.error, minlength=aim.errors).tolist()
    for q, (a, f) in enumerate(zip(aim.a.split(sizes), aim.f.split(sizes))):
        with full_precision_matmul(a):
            found[q] = ((a @ a.T) * (f @ f.T)).sum()
    return found.clamp_min(0).sqrt()


def balanced_batches(
    y: Int[Tensor, "N"], batch: int = 128, per_class: int = 4, seed: int = 0
) -> list[Int[Tensor, "_"]]:
    """Return every training sample once, in batches with at least two samples of a class, if the class has two.

    A batch may be larger than `batch`: samples that were drawn together stay together, and the last batch takes the
    remainder. A loss
    that compares no samples returns the same values for any batches.
    """
    if batch < 2 or per_class < 2:
        raise LikewiseError(f"balanced_batches: batch and per_class must be 2 or more, got {batch} and {per_class}")
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
    if not torch.equal(torch.cat(list(batches)).sort().values, torch.arange(len(e), device=y.device)):
        raise LikewiseError(
            f"influence: batches must contain each of the {len(e)} training samples once, got {sum(map(len, batches))} rows; "
            "use balanced_batches"
        )
    loss = copy.deepcopy(loss).eval()  # a loss with a memory must not change here
    for number, rows in enumerate(batches):
        own = e[rows].detach().requires_grad_(torch.is_grad_enabled())
        z = F.normalize(own, dim=1, eps=NORM_EPSILON) if loss.input == "unit" else own
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
    z = F.normalize(own, dim=1, eps=NORM_EPSILON) if loss.input == "unit" else own
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


def influence(
    aim: Repairs, g: Float[Tensor, "N D"], f: Float[Tensor, "N F"], budget: int = 2**26
) -> Float[Tensor, "Q N"]:
    """Return the influence of every sample on every error: <gradient of the error, gradient of the sample>.

    It is minus the change of the error's distance for more weight on the sample, with the identity in place of the Hessian,
    and the
    first order of the empirical influence. For another Hessian, pass `kronecker(...)` of the repairs.
    """
    found = g.new_empty(aim.errors, len(g))
    for errors, rows, block in blocks(aim, g, f, budget):
        found[errors, rows] = block
    return found


def blocks(
    aim: Repairs, g: Float[Tensor, "N D"], f: Float[Tensor, "N F"], budget: int = 2**26
) -> Iterator[tuple[slice, slice, Float[Tensor, "q n"]]]:
    """Yield `influence` block by block as (errors, rows, block); `budget` is the size of a block in bytes."""
    _check_shapes(aim, g, f)
    sizes = torch.bincount(aim.error, minlength=aim.errors)
    ends = sizes.cumsum(0).tolist()
    most = max(1, int((budget // g.element_size()) ** 0.5))
    start = side = 0
    while start < aim.errors:
        stop = start + 1
        while stop < aim.errors and ends[stop] - side <= most:
            stop += 1
        a, b, error = (t[side : ends[stop - 1]] for t in (aim.a, aim.f, aim.error))
        step = max(1, budget // (g.element_size() * len(a)))
        for low in range(0, len(g), step):
            rows = slice(low, min(low + step, len(g)))
            with full_precision_matmul(g):
                each = (a @ g[rows].T).mul_(b @ f[rows].T)
            total = each.new_zeros(stop - start, each.shape[1]).index_add_(0, error - start, each)
            yield slice(start, stop), rows, total
        start, side = stop, ends[stop - 1]


def causes(aim: Repairs, g: Float[Tensor, "N D"], f: Float[Tensor, "N F"], k: int = 10, budget: int = 2**26) -> Causes:
    """Return the k most harmful and the k most helpful samples for every error, in bounded memory."""
    found = _empty_causes(aim.errors, k, g)
    for errors, rows, block in blocks(aim, g, f, budget):
        _update_causes(found, errors, rows.start, block)
    found.spread.div_(len(g)).sqrt_()
    return found


def strongest(scores: Float[Tensor, "Q N"], k: int = 10) -> Causes:
    """Return the k most harmful and the k most helpful samples for every error, from computed scores."""
    found = _empty_causes(len(scores), k, scores.T)
    _update_causes(found, slice(0, len(scores)), 0, scores)
    found.spread.div_(scores.shape[1]).sqrt_()
    return found


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


def _empty_causes(errors: int, k: int, like: Float[Tensor, "N _"]) -> Causes:
    """Return `Causes` without samples: rows -1, values of -inf and +inf."""
    if not 1 <= k <= len(like):
        raise LikewiseError(f"causes: k must be 1 to the number of training samples ({len(like)}), got {k}")
    value = like.new_full((errors, k), -torch.inf)
    row = torch.full_like(value, -1, dtype=torch.int64)
    return Causes(row, value, row.clone(), -value, like.new_zeros(errors))


def _update_causes(found: Causes, errors: slice, first: int, block: Float[Tensor, "q n"]) -> None:
    """Replace weaker samples in `found` by stronger ones of a block, in place."""
    row = torch.arange(first, first + block.shape[1], device=block.device).expand(len(block), -1)
    for value, place, largest in (
        (found.harmful, found.harmful_row, True),
        (found.helpful, found.helpful_row, False),
    ):
        both = torch.cat([value[errors], block], 1)
        value[errors], at = both.topk(value.shape[1], largest=largest)
        place[errors] = torch.cat([place[errors], row], 1).gather(1, at)
    found.spread[errors] += block.square().sum(1)


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


def check_groups(n: int, pair: Tensor, sign: Tensor, group: Tensor | None) -> Int[Tensor, "P"]:
    """Return the group of every pair.

    Raises unless pairs are rows of test samples, signs are 1 or -1, and no group is empty.
    """
    if not len(pair) or int(pair.min()) < 0 or int(pair.max()) >= n:
        got = f"{int(pair.min())} to {int(pair.max())}" if len(pair) else "no pairs"
        raise LikewiseError(f"influence: pairs must be rows of test samples, 0 to {n - 1}, got {got}")
    if not bool((sign.abs() == 1).all()):
        raise LikewiseError(
            "influence: sign must be 1 (should be farther apart) or -1 (should be closer), "
            f"got {sign[sign.abs() != 1][0].item():g}"
        )
    if group is None:
        return torch.arange(len(pair), device=pair.device)
    if int(group.min()) < 0 or not bool(torch.bincount(group).all()):
        raise LikewiseError(
            f"influence: groups must be numbered from 0 without a gap, got {group.unique().tolist()[:8]}; "
            "number them with unique(return_inverse=True)"
        )
    return group


def _check_shapes(aim: Repairs, g: Tensor, f: Tensor) -> None:
    if g.shape != (len(f), aim.a.shape[1]) or f.shape[1] != aim.f.shape[1]:
        raise LikewiseError(
            "influence: g and f must have one row per training sample and the widths of the repairs "
            f"({aim.a.shape[1]} and {aim.f.shape[1]}), got shapes {tuple(g.shape)} and {tuple(f.shape)}"
        )
