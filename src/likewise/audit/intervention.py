"""Do the causes hold what they promise? Act on them and look: weigh samples, fine-tune the head, see how the errors move.

Helpful samples count twice, harmful ones not at all, and the head's weights W learn for one pass over cached features. What
moves is measured as what should grow: the signed squared distance of an error's pairs, high = repaired.
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

from likewise.audit.influence import NORM, Batches, Space, apart, balanced_batches, checked_groups, head_of
from likewise.contracts import Loss
from likewise.numerics.bootstrap import t_interval
from likewise.similarity import full_products
from likewise.types import Embedded, LikewiseError

RANDOM, ALIKE = "random signs", "no weights"


class Gain(NamedTuple):
    """How much more one way moves the errors than another: the mean difference, its interval, and p for "not more"."""

    mean: float
    low: float
    high: float
    p: float | None  # None where the differences cannot tell


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
    """What every error gains when acted upon by each of several influences, by random ones, and with no weights at all.

    Paper: the training experiment of the empirical influence function for debugging metric learning.
    Differs: signs at random and no weights are two more ways: fine-tuning alone moves pairs too.

    Args:
        pair, sign, group: the errors, as in `repairs`.
        scores: a name and the influence of every sample on every error; those above 0 are harmful. Random signs have as many
            helpful samples for an error as the first of these.
        seed: of batches and of random signs; all ways see the same batches.
        how: other arguments of `gains`.
    """
    if not scores:
        raise LikewiseError(
            "verify: influence on the errors is needed, got none; hand over {'first order': influence(...)}"
        )
    weights = {way: 1 - score.sign() for way, score in scores.items()}
    first = next(iter(weights.values()))
    draw = torch.Generator().manual_seed(seed)
    mixed = torch.stack([torch.randperm(first.shape[1], generator=draw) for _ in first]).to(first.device)
    weights |= {RANDOM: first.gather(1, mixed), ALIKE: torch.ones_like(first[:1])}
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
    """How far each error's mean signed squared distance grows when the head learns for one pass with its weights.

    Differs: a pass holds each sample once, four of a class together, where the paper draws 8 classes times 4. Heads of all errors
        learn at once. W itself is not needed: only what is added to it is kept.

    Args:
        weight: of each sample's own number in the mean over a batch, for every error, or one line for all. With a loss that
            compares samples it weighs the sample as an anchor; as a partner of others a sample still counts.
        lr: of Adam, without decay. Paper: 4e-5.
        clip: entries of the gradient are cut to this. Paper: 10.
        batches: rows of `train`, a step each; None: `balanced_batches` of 32.
        budget: bytes for heads that learn at once, with their gradient and Adam's two means.
    """
    (e, f), (test_e, test_f) = head_of("verify", train), head_of("verify", test)
    group = checked_groups(len(test_e), pair, sign, group)
    errors = int(group.max()) + 1
    if weight.shape[1] != len(e) or len(weight) not in (1, errors):
        raise LikewiseError(
            f"verify: a weight for each of {len(e)} training samples is needed, for {errors} errors or one line for all, "
            f"got shape {tuple(weight.shape)}"
        )
    batches = balanced_batches(train.y, 32, 4, seed) if batches is None else batches
    share = sign.to(test_e).double() / torch.bincount(group)[group].to(test_e)
    found = share.new_empty(errors)
    step = max(1, budget // (4 * e.element_size() * e.shape[1] * f.shape[1]))
    for first in range(0, len(weight), step):
        moves = fine_tune(loss, train, weight[first : first + step].to(e), batches, lr, clip, seed)
        for q in range(errors) if len(weight) == 1 else range(first, first + len(moves)):
            ends, part = pair[group == q], share[group == q]
            with full_products(test_f):
                shift = test_f[ends] @ moves[q - first if len(weight) > 1 else 0].T
            before = test_e[ends].double()
            found[q] = sum_apart(before + shift, part, loss.input) - sum_apart(before, part, loss.input)
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
    """What one pass of Adam adds to W, for each line of weights. What the loss has learned stays as it is."""
    assert train.e is not None and train.f is not None
    loss, e = copy.deepcopy(loss).eval(), train.e
    moves = e.new_zeros(len(weight), e.shape[1], train.f.shape[1])
    adam = torch.optim.Adam([moves], lr=lr, fused=True)

    def value(own: Tensor, w: Tensor, y: Tensor) -> Tensor:
        z = F.normalize(own, dim=1, eps=NORM) if loss.input == "unit" else own
        return (w * loss(z, y)).mean()

    slope = torch.func.vmap(torch.func.grad(value), in_dims=(0, 0, None), randomness="same")
    with torch.random.fork_rng([e.device] if e.is_cuda else [], device_type="cuda"), full_products(e):
        (torch.cuda.manual_seed if e.is_cuda else torch.default_generator.manual_seed)(seed)
        for rows in batches:
            f = train.f[rows]
            shift = torch.einsum("bf,hdf->hbd", f, moves)
            g = slope(e[rows] + shift, weight[:, rows], train.y[rows])
            moves.grad = (g.mT @ f).clamp_(-clip, clip)
            adam.step()
    if not bool(moves.isfinite().all()):
        raise LikewiseError(f"verify: fine-tuning ran away with lr={lr:g}; lower it")
    return moves


def sum_apart(e: Float[Tensor, "P 2 D"], share: Float[Tensor, "P"], space: Space) -> Float[Tensor, ""]:
    return apart(e, share, space)[0].sum()


def paired(
    ours: Float[np.ndarray, "Q"], other: Float[np.ndarray, "Q"], grouped: bool = False, level: float = 0.95
) -> Gain:
    """How much more `ours` moves the same errors: t interval of the mean difference, and a one-sided test.

    Paper: a paired t-test over pairs, Wilcoxon's signed-rank test over groups.
    """
    gap = ours - other
    mean, low, high, n = t_interval(gap, level)
    if n < 2 or np.ptp(gap) == 0:
        return Gain(mean, low, high, None)
    test = stats.wilcoxon(gap, alternative="greater") if grouped else stats.ttest_1samp(gap, 0, alternative="greater")
    return Gain(mean, low, high, float(test.pvalue))  # pyright: ignore[reportAttributeAccessIssue]


def summary(changes: dict[str, Float[np.ndarray, "Q"]], grouped: bool = False) -> dict:
    """What `verify` found, as the report shows it: the mean gain of each way with its 95 % interval; p says how easily chance
    alone would let the first way gain so much more than this one."""
    first, ours = next(iter(changes.items()))
    rows, told = [], []
    for way, change in changes.items():
        mean, low, high, _ = t_interval(change)
        gain = None if way == first else paired(ours, change, grouped)
        ends = [None if np.isnan(v) else v for v in (low, high)]
        rows.append({"way": way, "mean": mean, "low": ends[0], "high": ends[1], "p": gain and gain.p})
        if gain:
            by = "" if gain.p is None else f", {gain.low:+.4f} to {gain.high:+.4f}, p = {gain.p:.2g}"
            told.append(f"{gain.mean:+.4f} compared with {way}{by}")
    what = "groups of pairs" if grouped else "pairs"
    words = (
        f"with helpful samples counted twice and harmful ones left out by '{first}', {len(ours)} {what} moved the right way by "
        f"{ours.mean():+.4f} of squared distance in one pass ({'; '.join(told)})"
    )
    return {"pairs": len(ours), "rows": rows, "told": words}
