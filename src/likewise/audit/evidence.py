"""What the whole set says against each label: centres, discriminants and a regression, none of them made by the label itself.

Each gives scores for every class. How sharp they are, and how labels go wrong, is fitted by the likelihood of the labels as
given (`label_noise`), so no setting says how many are wrong. Together they make the score that audits go by.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from likewise.audit.label_scores import Centres, class_sizes, margins, must_be_labelled, undecided
from likewise.errors import LikewiseError
from likewise.label_noise import Evidence, Noise, discriminate, fit_noise
from likewise.similarity import at_least_float32, full_products

SHARPNESS = tuple(3 * 1.4**i for i in range(12))  # to 121
"""Of cosines, what is tried."""

DEAR = 2**32
"""Samples x classes x features from which on no regression is fitted: it would take many minutes."""

STRICT = 0.003
"""The inverse strength of the regression's penalty, for features of unit variance. Weaker ones learn wrong labels that look
alike, even out of folds."""

SMALL = 15
"""Samples of a class below which discriminants and regressions, which see four fifths of them, have no say about its labels."""

BOUND = 1e-7
"""Probabilities nearer to 0 or 1 than this are rounding."""


@dataclass(frozen=True, eq=False)
class Judged:
    """P(the label is right) for every sample, and the label it should have if it is not.

    `score` is made of the `single` ones. `confidence`: of the suggested label, given that the own one is wrong; `margin`: how far
    it is ahead of the next. `any` and `similar`: shares of labels that are those of any other class, and of a similar one.
    """

    score: Float[Tensor, "N"]
    single: dict[str, Float[Tensor, "N"]]
    suggested: Int[Tensor, "N"]
    confidence: Float[Tensor, "N"]
    margin: Float[Tensor, "N"]
    any: float
    similar: float


@dataclass(frozen=True, eq=False)
class Known:
    """Scores at hand, such as logarithms of probabilities."""

    table: Float[Tensor, "N C"]

    @property
    def classes(self) -> int:
        return self.table.shape[1]

    def blocks(self) -> Iterator[Int[Tensor, "b"]]:
        yield torch.arange(len(self.table), device=self.table.device)

    def scores(self, rows: Int[Tensor, "b"]) -> Float[Tensor, "b C"]:
        return self.table[rows]


@torch.no_grad()
def judge(z: Float[Tensor, "N D"], y: Int[Tensor, "N"], x: Float[Tensor, "N F"] | None = None, seed: int = 0) -> Judged:
    """How likely every label is right, by all there is to say about it.

    Formula: the mean over the members, each as (value - median) / standard deviation, of: the margin of centres in z; log odds of
        the label by centres in x, and by discriminants in x; the margin of a regression in x, fitted with each sample weighted by
        what the first two say. score = sigmoid(a mean + b), a and b such that it follows the mean of the log odds.
    Differs: it is ours.

    Args:
        z: embeddings.
        y: labels, 0 to C - 1.
        x: features below the embedding, where there are any: they have learned less of the wrong labels.
        seed: of the folds.
    """
    must_be_labelled("judge", z, y)
    classes = int(y.max()) + 1
    if classes < 2:
        raise LikewiseError("judge: labels must hold two classes or more, got one; there is nothing to mix it up with")
    x, z = at_least_float32(z if x is None else x), F.normalize(at_least_float32(z), dim=1)
    must_be_labelled("judge", x, y)
    with full_products(x):
        centres = Centres(F.normalize(x, dim=1), y, classes)
        large = class_sizes(y) >= SMALL
        how = fit_noise(centres, y, SHARPNESS, similar=bool(large.any()))
        members: dict[str, tuple[Evidence, Noise]] = {"centres": (centres, how)}
        if large.any():
            members["discriminants"] = discriminate(x, y, classes, seed=seed)
        odds = {name: log_odds(*member, y) for name, member in members.items()}
        trust = torch.sigmoid(sum(odds.values()))
        single = {"centre": margins(Centres(z, y, classes), y), **odds}
        if len(members) > 1 and x.numel() * classes <= DEAR:
            known = Known(regression(x, y, trust, seed))
            members["regression"] = (known, fit_noise(known, y, (1.0,)))
            single["regression"] = margins(known, y)
        found = suggest(members, y)
    says = {name: large if name in ("discriminants", "regression") else torch.ones_like(large) for name in single}
    count = sum(heard.double() for heard in says.values())
    mean = sum(standard(single[name]) * heard for name, heard in says.items()) / count
    pooled = sum(odds[name] * says[name] for name in odds) / sum(says[name].double() for name in odds)
    score = undecided(torch.sigmoid(follow(mean, pooled)), y)
    shares = members["discriminants" if "discriminants" in members else "centres"][1]
    return Judged(score, single, *found, any=shares.any, similar=shares.similar)


def log_odds(each: Evidence, noise: Noise, y: Int[Tensor, "N"]) -> Float[Tensor, "N"]:
    """log P(right) / P(wrong)."""
    own = [
        noise.posterior(each.scores(rows).double(), y[rows]).gather(1, y[rows, None])[:, 0] for rows in each.blocks()
    ]
    return torch.cat(own).logit(BOUND)


def standard(value: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    return (value - value.median()) / value.std(correction=0).clamp_min(1e-12)


def follow(value: Float[Tensor, "N"], odds: Float[Tensor, "N"], steps: int = 50) -> Float[Tensor, "N"]:
    """a value + b with a > 0, nearest to these log odds by the cross-entropy of the probabilities; by Newton's method."""
    p, line = torch.sigmoid(odds), torch.stack([value, torch.ones_like(value)], 1)
    weight = value.new_tensor([1.0, 0.0])
    for _ in range(steps):
        now = torch.sigmoid(line @ weight)
        bend = line.T @ (line * (now * (1 - now))[:, None]) / len(p) + 1e-9 * torch.eye(2).to(line)
        move = torch.linalg.solve(bend, line.T @ (now - p) / len(p))
        weight = weight - move.clamp(-2, 2)
        weight[0] = weight[0].clamp_min(1e-3)
    return line @ weight


def regression(
    x: Float[Tensor, "N F"], y: Int[Tensor, "N"], trust: Float[Tensor, "N"], seed: int = 0
) -> Float[Tensor, "N C"]:
    """Log probabilities of all classes by a logistic regression, fitted without each sample's fold."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import KFold

    numbers = ((x - x.mean(0)) / x.std().clamp_min(1e-12)).cpu().numpy()
    label, weight = y.cpu().numpy(), trust.cpu().numpy()
    found = np.full((len(label), int(label.max()) + 1), BOUND)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # nearly there is enough
        for fit, ask in KFold(5, shuffle=True, random_state=seed).split(numbers):
            fit = fit[weight[fit] > 0.02]
            model = LogisticRegression(C=STRICT, max_iter=200).fit(numbers[fit], label[fit], weight[fit])
            found[np.ix_(ask, model.classes_)] = model.predict_proba(numbers[ask])
    return torch.as_tensor(found, device=x.device).clamp_min(BOUND).log()


def suggest(
    members: dict[str, tuple[Evidence, Noise]], y: Int[Tensor, "N"]
) -> tuple[Int[Tensor, "N"], Float[Tensor, "N"], Float[Tensor, "N"]]:
    """The label each sample should have if not its own: by the mean of the members' log posteriors."""
    label, sure, ahead = torch.empty_like(y), *torch.empty(2, len(y), dtype=torch.float64, device=y.device)
    for rows in next(iter(members.values()))[0].blocks():
        total = sum(
            noise.posterior(each.scores(rows).double(), y[rows]).clamp_min(1e-30).log()
            for each, noise in members.values()
        )
        p = (total / len(members)).scatter(1, y[rows, None], -torch.inf).softmax(1)
        top = p.topk(min(2, p.shape[1]), 1)
        label[rows], sure[rows] = top.indices[:, 0], top.values[:, 0]
        ahead[rows] = top.values[:, 0] - top.values[:, -1] * (p.shape[1] > 2)
    return label, sure, ahead
