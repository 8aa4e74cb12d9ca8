"""Test of causes by intervention: weight samples by their influence, fine-tune the head, measure how the errors change.

Helpful samples count twice, harmful samples not at all, and the head's weights W are trained for one epoch on cached features.
The measured value is the signed squared distance of an error's pairs; an increase is a repair.
"""

from __future__ import annotations

import copy
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy import stats
from torch import Tensor
from torch.nn import functional as F

from likewise.core.contracts import Loss
from likewise.core.similarity import full_precision_matmul
from likewise.core.types import Embedded, LikewiseError
from likewise.curate.audit.influence import (
    NORM_EPSILON,
    Batches,
    Space,
    balanced_batches,
    check_groups,
    head_inputs,
    pair_distances,
)
from likewise.score.intervals import t_interval

RANDOM_SIGNS, NO_WEIGHTS = "random signs", "no weights"
"""Names of the two control conditions: shuffled weights, and weight 1 for every sample."""


class Gain(NamedTuple):
    """Mean difference in repair between two methods, its interval, and p for "the first is not better"."""

    mean: float
    low: float
    high: float
    p: float | None  # None: fewer than two differences, or all equal


def verify(
    loss: Loss,
    train: Embedded,
    test: Embedded,
    pair: Int[Tensor, "P 2"],
    sign: Float[Tensor, "P"],
    scores: dict[str, Float[Tensor, "Q N"]],
    group: Int[Tensor, "P"] | None = None,
    *,
    seed: int = 0,
    **how,
) -> dict[str, Float[np.ndarray, "Q"]]:
    """Return the repair of every error for each of several influences, for random ones, and without weights.

    Paper: the training experiment of the empirical influence function for debugging metric learning.
    Differs: random signs and no weights are added as controls: fine-tuning alone moves pairs too.

    Args:
        pair, sign, group: the errors, as in `repairs`.
        scores: method -> influence of every sample on every error; values above 0 are harmful. Random signs have as many
        helpful
            samples per error as the first method.
        seed: seed of the batches and of the random signs; all methods use the same batches.
        how: other arguments of `gains`.
    """
    if not scores:
        raise LikewiseError(
            "verify: scores must have one method or more, got none; pass {'first order': influence(...)}"
        )
    weights = {way: 1 - score.sign() for way, score in scores.items()}
    first = next(iter(weights.values()))
    draw = torch.Generator().manual_seed(seed)
    mixed = torch.stack([torch.randperm(first.shape[1], generator=draw) for _ in first]).to(first.device)
    weights |= {RANDOM_SIGNS: first.gather(1, mixed), NO_WEIGHTS: torch.ones_like(first[:1])}
    return {
        way: gains(loss, train, test, pair, sign, weight, group, seed=seed, **how).cpu().numpy()
        for way, weight in weights.items()
    }


def gains(
    loss: Loss,
    train: Embedded,
    test: Embedded,
    pair: Int[Tensor, "P 2"],
    sign: Float[Tensor, "P"],
    weight: Float[Tensor, "H N"],
    group: Int[Tensor, "P"] | None = None,
    *,
    lr: float = 4e-5,
    clip: float = 10.0,
    batches: Batches | None = None,
    seed: int = 0,
    budget: int = 2**28,
) -> Float[Tensor, "Q"]:
    """Return how far each error's mean signed squared distance grows when the head trains for one epoch with its weights.

    Differs: an epoch has each sample once, four of a class together, where the paper draws 8 classes times 4. The heads of
    all errors
        train at once. W itself is not needed: only the change of W is stored.

    Args:
        weight: sample weights in the mean over a batch, one row per error or one row for all errors. For a loss that compares
            samples, they weight the sample as an anchor; as a partner of other samples it still counts fully.
        lr: learning rate of Adam, without decay. Paper: 4e-5.
        clip: bound of the entries of the gradient. Paper: 10.
        batches: rows of `train`, one batch per step; None: `balanced_batches` of 32.
        budget: bytes for heads that train at once, with their gradients and the two moments of Adam.
    """
    (e, f), (test_e, test_f) = head_inputs("verify", train), head_inputs("verify", test)
    group = check_groups(len(test_e), pair, sign, group)
    errors = int(group.max()) + 1
    if weight.shape[1] != len(e) or len(weight) not in (1, errors):
        raise LikewiseError(
            f"verify: weight must have {len(e)} columns (training samples) and {errors} rows (errors) or one, "
            f"got shape {tuple(weight.shape)}"
        )
    batches = balanced_batches(train.y, 32, 4, seed) if batches is None else batches
    share = sign.to(test_e).double() / torch.bincount(group)[group].to(test_e)
    found = share.new_empty(errors)
    step = max(1, budget // (4 * e.element_size() * e.shape[1] * f.shape[1]))
    for first in range(0, len(weight), step):
        moves = fine_tune(loss, train, weight[first : first + step].to(e), batches, lr, clip, seed)
        for q in range(errors) if len(weight) == 1 else range(first, first + len(moves)):
            ends, own = pair[group == q], share[group == q]
            with full_precision_matmul(test_f):
                shift = test_f[ends] @ moves[q - first if len(weight) > 1 else 0].T
            before = test_e[ends].double()
            found[q] = sum_distances(before + shift, own, loss.input) - sum_distances(before, own, loss.input)
    return found


def fine_tune(
    loss: Loss,
    train: Embedded,
    weight: Float[Tensor, "H N"],
    batches: Batches,
    lr: float,
    clip: float,
    seed: int,
) -> Float[Tensor, "H D F"]:
    """Return the change of W after one epoch of Adam, for each row of sample weights.

    The parameters of the loss stay fixed.
    """
    assert train.e is not None and train.f is not None
    loss, e = copy.deepcopy(loss).eval(), train.e
    moves = e.new_zeros(len(weight), e.shape[1], train.f.shape[1])
    adam = torch.optim.Adam([moves], lr=lr, fused=True)

    def value(own: Tensor, w: Tensor, y: Tensor) -> Tensor:
        z = F.normalize(own, dim=1, eps=NORM_EPSILON) if loss.input == "unit" else own
        return (w * loss(z, y)).mean()

    slope = torch.func.vmap(torch.func.grad(value), in_dims=(0, 0, None), randomness="same")
    with torch.random.fork_rng([e.device] if e.is_cuda else [], device_type="cuda"), full_precision_matmul(e):
        (torch.cuda.manual_seed if e.is_cuda else torch.default_generator.manual_seed)(seed)
        for rows in batches:
            f = train.f[rows]
            shift = torch.einsum("bf,hdf->hbd", f, moves)
            g = slope(e[rows] + shift, weight[:, rows], train.y[rows])
            moves.grad = (g.mT @ f).clamp_(-clip, clip)
            adam.step()
    if not bool(moves.isfinite().all()):
        raise LikewiseError(f"verify: fine-tuning must stay finite, but diverged with lr={lr:g}; lower lr")
    return moves


def sum_distances(e: Float[Tensor, "P 2 D"], share: Float[Tensor, "P"], space: Space) -> Float[Tensor, ""]:
    """Return the sum over pairs of share times squared distance."""
    return pair_distances(e, share, space)[0].sum()


def paired(
    ours: Float[np.ndarray, "Q"], other: Float[np.ndarray, "Q"], grouped: bool = False, level: float = 0.95
) -> Gain:
    """Return how much more `ours` repairs the same errors: t interval of the mean difference, and a one-sided test.

    Paper: a paired t-test over pairs, Wilcoxon's signed-rank test over groups.
    """
    gap = ours - other
    mean, low, high, n = t_interval(gap, level)
    if n < 2 or np.ptp(gap) == 0:
        return Gain(mean, low, high, None)
    test = stats.wilcoxon(gap, alternative="greater") if grouped else stats.ttest_1samp(gap, 0, alternative="greater")
    return Gain(mean, low, high, float(test.pvalue))  # pyright: ignore[reportAttributeAccessIssue]


def summary(changes: dict[str, Float[np.ndarray, "Q"]], grouped: bool = False) -> dict:
    """Return the results of `verify` for the page: the mean repair of each method with its 95 % interval, and a sentence.

    `p` of a method is the p-value of "the first method does not repair more than this one".
    """
    first, ours = next(iter(changes.items()))
    rows, comparisons = [], []
    for way, change in changes.items():
        mean, low, high, _ = t_interval(change)
        gain = None if way == first else paired(ours, change, grouped)
        ends = [None if np.isnan(v) else v for v in (low, high)]
        rows.append({"method": way, "mean": mean, "low": ends[0], "high": ends[1], "p": gain and gain.p})
        if gain:
            by = "" if gain.p is None else f", {gain.low:+.4f} to {gain.high:+.4f}, p = {gain.p:.2g}"
            comparisons.append(f"{gain.mean:+.4f} compared with {way}{by}")
    what = "groups of pairs" if grouped else "pairs"
    sentence = (
        f"with helpful samples counted twice and harmful samples dropped, as chosen by '{first}', the squared distance of "
        f"{len(ours)} {what} improved by {ours.mean():+.4f} in one epoch ({'; '.join(comparisons)})"
    )
    return {"pairs": len(ours), "rows": rows, "summary": sentence}
