"""Which training samples cause a test error: influence on the distance of pairs, through the weights W of a linear head.

Embeddings are e = W f + b; b, the features f and what the loss has learned stay as they are. A sample's gradient by W is
g f^T, and that of a pair's distance is the sum of two such products, so a gradient is never held: all errors times all samples
are two matrix products. Influence high = harmful: fitting the sample works against the repair of the error.
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

from likewise.audit.records import Causes
from likewise.contracts import Loss
from likewise.similarity import full_products
from likewise.types import Embedded, LikewiseError

Space = Literal["unit", "raw"]
Batches = Sequence[Int[Tensor, "_"]]
NORM = 1e-6
"""Embeddings shorter than this are not made longer: the embedder's own rule."""


@dataclass(frozen=True, eq=False)
class Repairs:
    """Where W should go: for error q along the sum of a_s f_s^T over its sides s, those with error[s] = q."""

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
    """The gradient by W of what should grow: the mean over an error's pairs of sign times squared distance.

    Args:
        pair: two positions among the test samples.
        sign: 1 where they should part (confusion), -1 where they should meet (same class, far apart).
        group: which error a pair belongs to, 0 and up without a gap; None: each is one for itself.
        space: distances between unit embeddings, or raw ones for a loss whose `input` is "raw".
    """
    e, f = head_of("repairs", test)
    group = checked_groups(len(e), pair, sign, group)
    count, order = torch.bincount(group), group.argsort(stable=True)
    pair, sign, group = pair[order], sign[order], group[order]
    _, slope = apart(e[pair], sign.to(e) / count[group].to(e), space)
    return Repairs(slope.flatten(0, 1), f[pair].flatten(0, 1), group.repeat_interleave(2).to(e.device), len(count))


def lengths(aim: Repairs) -> Float[Tensor, "Q"]:
    """The length of each error's gradient. One small step of the empirical influence is step * length * `influence`."""
    found = aim.a.new_zeros(aim.errors)
    sizes = torch.bincount(aim.error, minlength=aim.errors).tolist()
    for q, (a, f) in enumerate(zip(aim.a.split(sizes), aim.f.split(sizes))):
        with full_products(a):
            found[q] = ((a @ a.T) * (f @ f.T)).sum()
    return found.clamp_min(0).sqrt()


def balanced_batches(
    y: Int[Tensor, "N"], batch: int = 128, per_class: int = 4, seed: int = 0
) -> list[Int[Tensor, "_"]]:
    """Every training sample once, in batches where a class brings at least two samples, if it has them.

    A batch may be larger than asked by part of a class. Losses that compare no samples give the same with any batches.
    """
    if batch < 2 or per_class < 2:
        raise LikewiseError(f"balanced_batches: batch and per_class must be 2 or more, got {batch} and {per_class}")
    n = len(y)
    draw = torch.Generator().manual_seed(seed)
    order = torch.randperm(n, generator=draw).to(y.device)
    order = order[y[order].argsort(stable=True)]
    _, label, size = y[order].unique_consecutive(return_inverse=True, return_counts=True)
    place = torch.arange(n, device=y.device) - (size.cumsum(0) - size)[label]
    # A class is cut into packs of per_class; the last takes what is left, so that nobody is alone.
    packs = size.div(per_class, rounding_mode="floor").clamp_min(1)
    pack = (packs.cumsum(0) - packs)[label] + torch.minimum(place // per_class, packs[label] - 1)
    turn = torch.randperm(int(packs.sum()), generator=draw).to(y.device)[pack]
    by_turn = turn.argsort(stable=True)
    held = torch.bincount(turn)
    number = ((held.cumsum(0) - held) // batch).clamp_max(max(1, n // batch) - 1)
    sizes = torch.bincount(number.repeat_interleave(held))
    return [rows for rows in order[by_turn].split(sizes.tolist()) if len(rows)]


@torch.enable_grad()
def shares(loss: Loss, train: Embedded, batches: Batches | None = None) -> Float[Tensor, "N D"]:
    """g of every training sample: the gradient of its batch's added-up loss by its embedding e, so that g f^T add up to the
    gradient by W. For losses that compare no samples this is the gradient of the sample's own number.

    Args:
        batches: rows of `train` that are compared with one another, each row in one batch; None: `balanced_batches`.
    """
    e, _ = head_of("shares", train)
    found = torch.full_like(e, torch.nan)
    for rows, own, number in evaluate(loss, e, train.y, batches):
        found[rows] = torch.autograd.grad(number.sum(), own)[0]
    _must_be_finite("shares", "the loss's gradient", found)
    return found


def evaluate(
    loss: Loss, e: Float[Tensor, "N D"], y: Int[Tensor, "N"], batches: Batches | None = None
) -> Iterator[tuple[Int[Tensor, "B"], Float[Tensor, "B D"], Float[Tensor, "B"]]]:
    """Rows, embeddings and loss of each batch, with a graph where gradients are on. Miners draw the same every time."""
    batches = balanced_batches(y) if batches is None else batches
    if not torch.equal(torch.cat(list(batches)).sort().values, torch.arange(len(e), device=y.device)):
        raise LikewiseError(
            f"influence: batches must hold each of the {len(e)} training samples once, got {sum(map(len, batches))} rows; "
            "use balanced_batches"
        )
    loss = copy.deepcopy(loss).eval()  # a memory must not fill by being looked at
    for number, rows in enumerate(batches):
        own = e[rows].detach().requires_grad_(torch.is_grad_enabled())
        z = F.normalize(own, dim=1, eps=NORM) if loss.input == "unit" else own
        with torch.random.fork_rng([e.device] if e.is_cuda else [], device_type="cuda"):
            (torch.cuda.manual_seed if e.is_cuda else torch.default_generator.manual_seed)(number)
            found = loss(z, y[rows])
        yield rows, own, found


@torch.no_grad()
def losses_of(
    loss: Loss, e: Float[Tensor, "N D"], y: Int[Tensor, "N"], batches: Batches | None = None
) -> Float[Tensor, "N"]:
    """Each sample's own number, in its batch."""
    found = e.new_empty(len(e))
    for rows, _, number in evaluate(loss, e, y, batches):
        found[rows] = number.to(found)
    return found


def influence(
    aim: Repairs, g: Float[Tensor, "N D"], f: Float[Tensor, "N F"], budget: int = 2**26
) -> Float[Tensor, "Q N"]:
    """What every sample does to every error, all at once: <gradient of the error, gradient of the sample>.

    It is minus the change of the error's distance for more weight on the sample, with the identity for a Hessian, and the first
    order of the empirical influence. For another Hessian hand over `kronecker(...)` of the repairs.
    """
    found = g.new_empty(aim.errors, len(g))
    for errors, rows, block in blocks(aim, g, f, budget):
        found[errors, rows] = block
    return found


def blocks(
    aim: Repairs, g: Float[Tensor, "N D"], f: Float[Tensor, "N F"], budget: int = 2**26
) -> Iterator[tuple[slice, slice, Float[Tensor, "q n"]]]:
    """`influence` a block at a time, as (errors, rows, block); `budget` is the bytes of a block."""
    _fits(aim, g, f)
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
            with full_products(g):
                each = (a @ g[rows].T).mul_(b @ f[rows].T)
            total = each.new_zeros(stop - start, each.shape[1]).index_add_(0, error - start, each)
            yield slice(start, stop), rows, total
        start, side = stop, ends[stop - 1]


def causes(aim: Repairs, g: Float[Tensor, "N D"], f: Float[Tensor, "N F"], k: int = 10, budget: int = 2**26) -> Causes:
    """The k most harmful and the k most helpful samples for every error, by `influence`; errors times samples are never held."""
    found = _nothing(aim.errors, k, g)
    for errors, rows, block in blocks(aim, g, f, budget):
        _take(found, errors, rows.start, block)
    found.spread.div_(len(g)).sqrt_()
    return found


def strongest(scores: Float[Tensor, "Q N"], k: int = 10) -> Causes:
    """The same out of scores at hand, such as those of `empirical`."""
    found = _nothing(len(scores), k, scores.T)
    _take(found, slice(0, len(scores)), 0, scores)
    found.spread.div_(scores.shape[1]).sqrt_()
    return found


def apart(
    e: Float[Tensor, "P 2 D"], share: Float[Tensor, "P"], space: Space
) -> tuple[Float[Tensor, "P"], Float[Tensor, "P 2 D"]]:
    """Share times squared distance of each pair, and its gradient by the two embeddings before the norm."""
    length = torch.linalg.vector_norm(e, dim=2, keepdim=True).clamp_min(NORM)
    z = e / length if space == "unit" else e
    gap = z[:, 0] - z[:, 1]
    slope = 2 * share[:, None, None] * torch.stack([gap, -gap], 1)
    if space == "unit":
        slope = (slope - (slope * z).sum(2, keepdim=True) * z) / length
    return share * gap.square().sum(1), slope


def _nothing(errors: int, k: int, like: Float[Tensor, "N _"]) -> Causes:
    if not 1 <= k <= len(like):
        raise LikewiseError(f"causes: k must be 1 to the number of training samples ({len(like)}), got {k}")
    value = like.new_full((errors, k), -torch.inf)
    row = torch.full_like(value, -1, dtype=torch.int64)
    return Causes(row, value, row.clone(), -value, like.new_zeros(errors))


def _take(found: Causes, errors: slice, first: int, block: Float[Tensor, "q n"]) -> None:
    """Let a block's samples take the places of weaker ones."""
    row = torch.arange(first, first + block.shape[1], device=block.device).expand(len(block), -1)
    for value, place, largest in (
        (found.harmful, found.harmful_row, True),
        (found.helpful, found.helpful_row, False),
    ):
        both = torch.cat([value[errors], block], 1)
        value[errors], at = both.topk(value.shape[1], largest=largest)
        place[errors] = torch.cat([place[errors], row], 1).gather(1, at)
    found.spread[errors] += block.square().sum(1)


def head_of(who: str, given: Embedded) -> tuple[Float[Tensor, "N D"], Float[Tensor, "N F"]]:
    if given.e is None or given.f is None:
        missing = " and ".join(name for name in ("e", "f") if getattr(given, name) is None)
        raise LikewiseError(
            f"{who}: embeddings before the norm (e) and features (f) are needed, got none for {missing}; "
            "embed with a model that has a linear head"
        )
    _must_be_finite(who, "e", given.e)
    _must_be_finite(who, "f", given.f)
    return given.e, given.f


def _must_be_finite(who: str, what: str, x: Float[Tensor, "N _"]) -> None:
    sound = x.isfinite().all(1)
    if not bool(sound.all()):
        raise LikewiseError(
            f"{who}: {what} must be finite, got {int((~sound).sum())} rows that are not, the first is "
            f"{int((~sound).nonzero()[0, 0])}; leave these samples out"
        )


def checked_groups(n: int, pair: Tensor, sign: Tensor, group: Tensor | None) -> Int[Tensor, "P"]:
    """The groups, once pairs point at samples, signs are signs and no group is empty."""
    if not len(pair) or int(pair.min()) < 0 or int(pair.max()) >= n:
        got = f"{int(pair.min())} to {int(pair.max())}" if len(pair) else "no pairs"
        raise LikewiseError(f"influence: pairs must name test samples 0 to {n - 1}, got {got}")
    if not bool((sign.abs() == 1).all()):
        raise LikewiseError(
            f"influence: sign must be 1 (should part) or -1 (should meet), got {sign[sign.abs() != 1][0].item():g}"
        )
    if group is None:
        return torch.arange(len(pair), device=pair.device)
    if int(group.min()) < 0 or not bool(torch.bincount(group).all()):
        raise LikewiseError(
            f"influence: groups must be numbered from 0 without a gap, got {group.unique().tolist()[:8]}; "
            "number them with unique(return_inverse=True)"
        )
    return group


def _fits(aim: Repairs, g: Tensor, f: Tensor) -> None:
    if g.shape != (len(f), aim.a.shape[1]) or f.shape[1] != aim.f.shape[1]:
        raise LikewiseError(
            "influence: training samples need one g and one f each, as wide as those of the repairs "
            f"({aim.a.shape[1]} and {aim.f.shape[1]}), got shapes {tuple(g.shape)} and {tuple(f.shape)}"
        )
