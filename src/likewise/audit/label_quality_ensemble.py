"""Label scores from the whole data set: class centres, linear discriminants and a regression, fitted without the sample
itself.

Each member gives scores for every class. The sharpness of its scores and the noise rate are fitted by the likelihood of the
given
labels (`label_noise`), so no noise rate is configured. Together the members give the score that an audit uses.
"""

from __future__ import annotations

import warnings

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from likewise.audit.label_scores import ClassCentres, check_labelled, class_sizes, fill_singletons, margins
from likewise.audit.records import LabelQuality
from likewise.errors import LikewiseError
from likewise.numerics.label_noise import Evidence, Noise, StoredScores, discriminate, fit_noise
from likewise.numerics.lda import MAX_STORED_SCORES
from likewise.similarity import at_least_float32, full_precision_matmul

SHARPNESS_GRID = tuple(3 * 1.4**i for i in range(12))  # up to 121
"""Factors of the cosines that are tried; the one with the highest likelihood is used."""

MAX_REGRESSION_SIZE = 2**32
"""Samples x classes x features above which no regression is fitted: it would take many minutes."""

INVERSE_PENALTY_WEIGHT = 0.003
"""Inverse strength of the regression's penalty (C of scikit-learn), for features of unit variance.

With a weaker penalty, the regression learns wrong labels of similar samples, even out of fold."""

REGRESSION_TOLERANCE = 1e-6
"""Gradient tolerance of the regression: its probabilities are then within about 1e-5 of the optimum on every machine."""

MIN_CLASS_SAMPLES = 15
"""Smallest class that discriminants and the regression score; they are fitted on four fifths of its samples."""

PROBABILITY_EPSILON = 1e-7
"""Probabilities are clamped to this distance from 0 and 1: closer values are rounding."""

MIN_SCORE_SLOPE = 1e-3
"""Smallest slope of the score by the members' mean: the score never falls when the mean rises."""


@torch.no_grad()
def score_labels(
    z: Float[Tensor, "N D"], y: Int[Tensor, "N"], x: Float[Tensor, "N F"] | None = None, seed: int = 0
) -> LabelQuality:
    """Return the probability that each label is right, from all members of the ensemble.

    Formula: the mean over the members, each as (value - median) / standard deviation, of: the margin of centres in z; log
    odds of
        the label by centres in x, and by discriminants in x; the margin of a regression in x, fitted with sample weights
        from the sum of these log odds. score = sigmoid(a mean + b), a and b fitted to the mean of the log odds.
    Differs: it is ours. A member that separates the classes no better than chance is left out of the log odds. Samples
    alone in
        their class are not used for fitting, and get the median score.

    Args:
        z: embeddings.
        y: labels, any integers.
        x: features before the head, if available: they have learned less of the wrong labels.
        seed: seed of the folds, and of the rows that the noise model is fitted on if the scores of all rows exceed the
        memory limit.
    """
    check_labelled("score_labels", z, y)
    x = z if x is None else x
    check_labelled("score_labels", x, y)
    label, y = y.unique(return_inverse=True)
    classes = len(label)
    if classes < 2:
        raise LikewiseError(
            f"score_labels: labels must have two classes or more, got only class {int(label[0])}; add another class"
        )
    size = class_sizes(y)
    everywhere, large, paired = size > 0, size >= MIN_CLASS_SAMPLES, (size > 1) | (size == 1).all()
    applies = {
        "centre": everywhere,
        "centres": everywhere,
        "discriminants": large,
        "regression": large,
    }  # to which samples
    by = sample_rows(paired, MAX_STORED_SCORES // classes, seed)
    x, z = at_least_float32(x), F.normalize(at_least_float32(z), dim=1)
    with full_precision_matmul(x):
        centres = ClassCentres(F.normalize(x, dim=1), y, classes)
        how = fit_noise(centres, y, SHARPNESS_GRID, similar=bool(large.any()), by=by, proven=True)
        members: dict[str, tuple[Evidence, Noise]] = {"centres": (centres, how)}
        if large.any():
            members["discriminants"] = discriminate(x, y, classes, seed=seed, by=by, proven=True)
        odds = {name: log_odds(*member, y) for name, member in members.items()}
        used = {name: applies[name] * float(noise.sharpness > 0) for name, (_, noise) in members.items()}
        count: Tensor = sum(used.values())  # pyright: ignore[reportAssignmentType] - never empty
        total: Tensor = sum(odds[name] * used[name] for name in odds)  # pyright: ignore[reportAssignmentType]
        total = total.where(count > 0, odds["centres"])
        best = next((noise for _, noise in reversed(members.values()) if noise.sharpness > 0), how)
        single = {"centre": margins(ClassCentres(z, y, classes), y), **odds}
        if large.any() and x.numel() * classes <= MAX_REGRESSION_SIZE and len(y) * classes <= MAX_STORED_SCORES:
            known = StoredScores(regression(x, y, torch.sigmoid(total), seed))
            members["regression"] = (known, fit_noise(known, y, (1.0,), by=by))
            single["regression"] = margins(known, y)
        suggested, sure, ahead = suggest(members, y)
    standardised = [standardise(value, applies[name] & paired) * applies[name] for name, value in single.items()]
    mean: Tensor = sum(standardised)  # pyright: ignore[reportAssignmentType]
    mean = mean / sum(applies[name].double() for name in single)
    a, b = fit_calibration(mean[paired], (total / count.clamp_min(1))[paired])
    score = fill_singletons(torch.sigmoid(a * mean + b), y)
    return LabelQuality(score, single, label[suggested], sure, ahead, best.any, best.similar, best.sharpness == 0)


def sample_rows(among: Bool[Tensor, "N"], most: int, seed: int) -> Int[Tensor, "n"]:
    """Return the rows where `among` is true, or `most` of them drawn at random."""
    rows = among.nonzero()[:, 0]
    if len(rows) <= most:
        return rows
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))[: max(1, most)]
    return rows[order.sort().values.to(rows.device)]


def log_odds(each: Evidence, noise: Noise, y: Int[Tensor, "N"]) -> Float[Tensor, "N"]:
    """Return log P(label is right) / P(label is wrong) for every sample."""
    own = [
        noise.posterior(each.scores(rows).double(), y[rows]).gather(1, y[rows, None])[:, 0] for rows in each.blocks()
    ]
    return torch.cat(own).logit(PROBABILITY_EPSILON)


def standardise(value: Float[Tensor, "N"], among: Bool[Tensor, "N"]) -> Float[Tensor, "N"]:
    """Return (value - median) / standard deviation, both over the rows in `among`."""
    if not among.any():
        return torch.zeros_like(value)
    return (value - value[among].median()) / value[among].std(correction=0).clamp_min(1e-12)


def fit_calibration(value: Float[Tensor, "N"], odds: Float[Tensor, "N"], steps: int = 100) -> tuple[float, float]:
    """Return a > 0 and b for which sigmoid(a value + b) is closest to sigmoid(odds), by cross-entropy.

    Newton's method with step halving; while a is at its lower bound, only b moves.
    """
    p, line = torch.sigmoid(odds), torch.stack([value, torch.ones_like(value)], 1)

    def height(weight: Tensor) -> Tensor:
        return (F.softplus(line @ weight) - p * (line @ weight)).mean()

    least = value.new_tensor([MIN_SCORE_SLOPE, -torch.inf])
    weight = value.new_tensor([1.0, 0.0])
    for _ in range(steps):
        now = torch.sigmoid(line @ weight)
        slope = line.T @ (now - p) / len(p)
        bend = line.T @ (line * (now * (1 - now))[:, None]) / len(p) + 1e-12 * torch.eye(2).to(line)
        free = torch.tensor([not (weight[0] <= MIN_SCORE_SLOPE and slope[0] > 0), True], device=line.device)
        move = torch.zeros_like(weight)
        move[free] = torch.linalg.solve(bend[free][:, free], slope[free])
        tried = (torch.maximum(weight - move / 2**i, least) for i in range(30))
        after = next((one for one in tried if height(one) < height(weight)), None)
        if after is None:
            break
        weight = after
    return float(weight[0]), float(weight[1])


def regression(
    x: Float[Tensor, "N F"], y: Int[Tensor, "N"], sample_weight: Float[Tensor, "N"], seed: int = 0
) -> Float[Tensor, "N C"]:
    """Return log probabilities of all classes from a logistic regression that is fitted without the sample's fold."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import KFold

    # float64: in float32 the solver stops where rounding hides the gradient, which differs between CPUs.
    numbers = ((x - x.mean(0)) / x.std().clamp_min(1e-12)).double().cpu().numpy()
    label, weight = y.cpu().numpy(), sample_weight.cpu().numpy()
    found = np.full((len(label), int(label.max()) + 1), PROBABILITY_EPSILON)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # 200 iterations are accurate enough
        warnings.filterwarnings("ignore", "The number of unique classes")  # many classes are intended here
        for fit, ask in KFold(5, shuffle=True, random_state=seed).split(numbers):
            fit = fit[weight[fit] > 0.02]
            there = np.unique(label[fit])
            if len(there) < 2:  # one class: no regression needed
                found[np.ix_(ask, there)] = 1
                continue
            model = LogisticRegression(C=INVERSE_PENALTY_WEIGHT, max_iter=200, tol=REGRESSION_TOLERANCE).fit(
                numbers[fit], label[fit], weight[fit]
            )
            found[np.ix_(ask, there)] = model.predict_proba(numbers[ask])
    return torch.as_tensor(found, device=x.device).clamp_min(PROBABILITY_EPSILON).log()


def suggest(
    members: dict[str, tuple[Evidence, Noise]], y: Int[Tensor, "N"]
) -> tuple[Int[Tensor, "N"], Float[Tensor, "N"], Float[Tensor, "N"]]:
    """Return for each sample the best label other than its own, its probability, and its margin over the next label.

    Labels are compared by the mean of the members' log posteriors.
    """
    label, sure, ahead = torch.empty_like(y), *torch.empty(2, len(y), dtype=torch.float64, device=y.device)
    for rows in next(iter(members.values()))[0].blocks():
        total: Tensor = sum(  # pyright: ignore[reportAssignmentType]
            noise.posterior(each.scores(rows).double(), y[rows]).clamp_min(1e-30).log()
            for each, noise in members.values()
        )
        p = (total / len(members)).scatter(1, y[rows, None], -torch.inf).softmax(1)
        top = p.topk(min(2, p.shape[1]), 1)
        label[rows], sure[rows] = top.indices[:, 0], top.values[:, 0]
        ahead[rows] = top.values[:, 0] - top.values[:, -1] * (p.shape[1] > 2)
    return label, sure, ahead
