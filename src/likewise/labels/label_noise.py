"""Models of label noise, for labels that exclude each other and for independent labels.

`Noise`: a sample has one class; its given label is right, exchanged with any other class, or exchanged with a similar class.
`LabelSetNoise`: every label is missing in some samples that have it, and superfluous in some that do not.
The evidence is one or more tables of scores of every class or label, each computed without the given label itself. The weights
of the tables and the shares of noise are fitted by the likelihood of the given labels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from threadpoolctl import threadpool_limits
from torch import Tensor

from likewise.labels.candidate_classes import MAX_COLUMNS, MAX_DENSE_CLASSES, Columns, given_column
from likewise.labels.given_sets import Collected, GivenSets, label_counts

SCORE_BLOCK_SIZE = 2**23
"""Maximum number of scores that are computed at a time."""

MAX_FITTED_SCORES = 2**20
"""Maximum number of scores (rows x columns) that the noise model is fitted on; of more rows, some are drawn at random.

Of more than `MAX_DENSE_CLASSES` classes at most `MAX_COLUMNS` columns count, also if all classes have scores."""

MIN_FITTED_ROWS = 4096
"""Minimum number of samples that the noise model is fitted on with more than `MAX_DENSE_CLASSES` classes.

It is the same for the scores of candidates and of all classes, so that both choose the same scaling, shrinkage and round."""

MAX_SIMILARITY_CLASSES = 2048
"""Maximum number of classes for which exchanges of similar classes are modelled; the table of more would not fit in memory."""

MIN_SIMILARITY_SAMPLES = 15
"""Minimum mean class size for which exchanges of similar classes are modelled; in smaller classes they look like
features that confuse these classes."""

SIMILAR_CLASSES_COUNT = 7
"""Number of classes that count as similar to a class."""

MIN_CONFUSED_SAMPLES, MIN_CONFUSED_RATIO = 4, 3
"""Number of samples of a class with one other label, and its ratio to the usual number, that make a systematic exchange."""

MAX_SIMILAR_LOSS = 0.012
"""Largest loss of log likelihood per sample with which noise that is nearly all between similar classes is considered.

On seven sets and a fit that started from blunt scores alone, uniform noise of 10 % and more lost 0.034 or more in this way; noise
between similar classes gained 0.02 or more, and the labels of people (CIFAR-10N) lost up to 0.011."""

MIN_SIMILAR_GAIN = 0.002
"""Smallest gain of the log likelihood per sample with which noise between similar classes is added to uniform noise."""

MIN_PRIOR_SAMPLES = 1.0
"""Smallest number of samples that the class prior assumes for a class."""

MIN_RIGHT_SHARE = 0.02
"""Smallest share of right labels beyond chance that counts of given labels are divided by."""

MIN_SHARED_PROBABILITY = 1e-5
"""Smallest probability of a candidate that counts for the similarity of classes."""

SIMILAR_ONLY_SHARE = 0.95
"""Share of similar classes in the noise if nearly all of it is between similar classes."""

TABLE_UPDATES_COUNT = 3
"""Number of times that the table of similar classes and the other values are fitted in turn."""

LIKELIHOOD_TOLERANCE = 1e-7
"""Relative change of the log likelihood below which the fit stops."""

START_SHARES_AND_WEIGHTS = ((0.05, 1.5), (0.4, 8.0))
"""Noise share and weight of the standardised scores with which the fit starts: few wrong labels and blunt scores, or many and
sharp ones. From blunt scores alone, noise between similar classes may end as features that confuse these classes."""

PARAMETER_BOUNDS = ((-9.0, 5.0), (-9.0, 9.0))
"""Range of the logarithm of a weight, and of the log odds of a share."""


MAX_NOISE_SHARE = 0.5
"""Upper bound of the share of missing labels among those that are true, and of superfluous ones among those that are not."""

START_LABEL_SHARES = (0.05, 0.005)
"""Missing and superfluous share that the fit starts from, and the centres of their priors: people rather forget a label."""

PRIOR_WIDTHS = {"scale": 0.25, "bias": 3.0, "missing": 0.25, "superfluous": 0.25, "shares": 0.5}
"""Standard deviation of a label's values around those of all labels, in logarithms and log odds; of few samples, a label has
nearly the values of all labels."""

PARAMETER_LIMIT = 12.0
"""Largest absolute value of a parameter."""

LABEL_TOLERANCE, SELECTION_TOLERANCE = 1e-6, 1e-4
"""Relative change of the log likelihood below which the fit of independent labels stops, and where only settings are compared."""

LIKELIEST_LABELS_COUNT, DRAWN_LABELS_COUNT, ENTRIES_PER_ROW = 12, 8, 32
"""Of many labels, the noise is fitted on the given labels of a sample, the likeliest ones by densities and by votes, and random
ones that stand for all others: about this number of entries together."""

MAX_STEPS = 200
"""Maximum number of steps of the fit."""


@runtime_checkable
class Evidence(Protocol):
    """M tables of scores of every class (or independent label) for any of N samples, computed without the given labels.

    With many classes, the tables have W columns, those of `Columns`, in place of one for every class.
    """

    @property
    def classes(self) -> int: ...

    def blocks(self) -> Iterator[Int[Tensor, "b"]]: ...

    def columns(self, rows: Int[Tensor, "b"]) -> Columns | None: ...

    def scores(self, rows: Int[Tensor, "b"]) -> Float[Tensor, "M b W"]: ...


def row_blocks(count: int, classes: int, device: torch.device) -> Iterator[Int[Tensor, "b"]]:
    """Yield all rows in blocks whose scores fit in memory."""
    yield from torch.arange(count, device=device).split(max(1, SCORE_BLOCK_SIZE // classes))


def fitted_rows(count: int, limit: int, seed: int, device: torch.device) -> Int[Tensor, "n"]:
    """Return the rows to fit on: all, or `limit` drawn rows in ascending order."""
    if count <= limit:
        return torch.arange(count, device=device)
    return torch.randperm(count, generator=torch.Generator().manual_seed(seed))[:limit].sort().values.to(device)


class Noise(NamedTuple):
    """Fitted label noise: share of labels exchanged with any class, and share exchanged with a similar class."""

    weight: tuple[float, ...]  # of every table of scores
    any: float
    similar: float
    table: Float[Tensor, "C C"] | None  # P(given | true) of labels exchanged with a similar class
    prior: Float[Tensor, "C"]  # log P(true class)
    gain: float  # log likelihood of the given labels minus that by their frequencies, per sample
    fitted: int  # number of samples that it was fitted on

    @property
    def informative(self) -> bool:
        """Whether the scores explain the given labels better than the class frequencies do, beyond the gain of fitting."""
        parameters = len(self.weight) + 2
        return self.gain * self.fitted > parameters * math.log(self.fitted)

    def probabilities(self, scores: Float[Tensor, "M b W"], columns: Columns | None = None) -> Float[Tensor, "b W"]:
        """Return P(true class | features); of a column of several classes, their sum."""
        prior = self.prior.to(scores)
        prior = prior if columns is None else columns.gather(prior)
        return class_probabilities(scores, scores.new_tensor(self.weight), prior)

    def label_probabilities(self, y: Int[Tensor, "b"], columns: Columns | None = None) -> Float[Tensor, "b W"]:
        """Return P(given label | true class) for the true class of every column."""
        width = len(self.prior) if columns is None else columns.label.shape[1]
        uniform = self.prior.new_full((len(y), width), self.any / (len(self.prior) - 1))
        if self.table is not None:
            uniform += self.similar * exchanged(self.table, y, columns)
        return uniform.scatter_(1, given_column(y, columns), 1 - self.any - self.similar)

    def posterior(
        self, scores: Float[Tensor, "M b W"], y: Int[Tensor, "b"], columns: Columns | None = None
    ) -> Float[Tensor, "b W"]:
        """Return P(true class | features, given label)."""
        q = self.probabilities(scores, columns) * self.label_probabilities(y, columns).to(scores)
        return q / q.sum(1, keepdim=True).clamp_min(1e-30)


def exchanged(table: Float[Tensor, "C C"], y: Int[Tensor, "b"], columns: Columns | None) -> Float[Tensor, "b W"]:
    """Return P(given label | true class) for the class of every column, from the table of all classes."""
    return table.T.contiguous()[y] if columns is None else table[columns.label, y[:, None]]


def class_probabilities(
    scores: Float[Tensor, "M b W"], weight: Float[Tensor, "M"], prior: Float[Tensor, "*b W"]
) -> Float[Tensor, "b W"]:
    """Return softmax(sum of the weighted scores + log prior)."""
    return torch.softmax(torch.einsum("m,mbc->bc", weight, scores) + prior, 1)


def true_frequencies(count: Float[Tensor, "C"], noise: float) -> Float[Tensor, "C"]:
    """Return the frequencies of the true classes, from the counts of the given labels and the share of uniform noise.

    Formula: given_c = (1 - u) true_c + u (n - true_c) / (C - 1), solved for true_c, at least `MIN_PRIOR_SAMPLES`
    """
    true = solved_counts(count, noise).clamp_min(MIN_PRIOR_SAMPLES)
    return true / true.sum()


def log_frequencies_slope(count: Float[Tensor, "C"], noise: float) -> Float[Tensor, "C"]:
    """Return the derivative of log(true_frequencies) with respect to the share of uniform noise."""
    true, others = solved_counts(count, noise), len(count) - 1
    right = 1 - noise - noise / others
    slope = (true * (1 + 1 / others) * (right > MIN_RIGHT_SHARE) - count.sum() / others) / max(right, MIN_RIGHT_SHARE)
    slope, true = slope.where(true > MIN_PRIOR_SAMPLES, 0), true.clamp_min(MIN_PRIOR_SAMPLES)
    return slope / true - slope.sum() / true.sum()


def solved_counts(count: Float[Tensor, "C"], noise: float) -> Float[Tensor, "C"]:
    """Return the counts of the true classes that solve the formula of `true_frequencies`; some may be negative."""
    spread = noise / (len(count) - 1)
    return (count - spread * count.sum()) / max(1 - noise - spread, MIN_RIGHT_SHARE)


def fit_noise(
    each: Evidence, y: Int[Tensor, "N"], similar: bool = True, most: int = MAX_FITTED_SCORES, seed: int = 0
) -> Noise:
    """Return the weights of the scores and the noise shares under which the given labels are most likely.

    Noise between similar classes looks like features that confuse these classes. It is fitted only if noise that is nearly all
    of this kind explains the labels about as well as noise that is all uniform.

    Args:
        similar: also model exchanges with similar classes.
        most: maximum number of scores to fit on, but of many classes `MIN_FITTED_ROWS` rows at least.
        seed: of the rows that are drawn if there are more.
    """
    classes, columns = each.classes, each.columns(torch.arange(1, device=y.device))
    width = classes if columns is None else columns.label.shape[1]
    if classes > MAX_DENSE_CLASSES:  # as many rows by all classes as by candidates
        limit = max(MIN_FITTED_ROWS, most // min(width, MAX_COLUMNS))
    else:
        limit = max(2 * classes, most // width)
    rows = fitted_rows(len(y), limit, seed, y.device)
    blocks = [each.scores(some) for some in rows.split(max(1, SCORE_BLOCK_SIZE // width))]
    count = torch.bincount(y, minlength=classes)
    fit = _Likelihood(torch.cat(blocks, 1), y[rows], count, each.columns(rows))
    plain = fit.maximum(0.0)
    few = len(y) < MIN_SIMILARITY_SAMPLES * classes
    if not similar or not plain.informative or few or not 2 < classes <= MAX_SIMILARITY_CLASSES:
        return plain
    best = plain
    for find in (fit.similar_classes, fit.confused_classes):
        alike = fit.maximum(SIMILAR_ONLY_SHARE, find)
        if alike.gain >= plain.gain - MAX_SIMILAR_LOSS:
            both = max(fit.maximum(None, find), alike, key=lambda noise: noise.gain)
            best = both if both.gain > best.gain + MIN_SIMILAR_GAIN else best
    return best


class _Likelihood:
    """Log likelihood of given labels as a function of the weights of scores and of the noise shares, in float64."""

    def __init__(
        self,
        scores: Float[Tensor, "M n W"],
        y: Int[Tensor, "n"],
        count: Int[Tensor, "C"],
        columns: Columns | None = None,
    ):
        device = "cpu" if scores.device.type == "mps" else scores.device  # MPS has no float64
        scores, self.y, self.count = scores.to(device, torch.float64), y.to(device), count.to(device).double()
        self.columns = None if columns is None else Columns(*(one.to(device) for one in columns))
        self.own = given_column(self.y, self.columns)
        if self.columns is None:
            scores = scores - scores.mean(2, keepdim=True)
            self.scale = scores.square().mean((1, 2)).sqrt().clamp_min(1e-12)
        else:
            used = self.columns.size.isfinite()
            number = used.sum(1, keepdim=True)
            scores = (scores - (scores * used).sum(2, keepdim=True) / number) * used
            self.scale = (scores.square().sum((1, 2)) / number.sum()).sqrt().clamp_min(1e-12)
        self.scores = scores / self.scale[:, None, None]
        self.chance = float((self.count / self.count.sum())[self.y].log().mean())

    def by_class(self, values: Float[Tensor, "C"]) -> Float[Tensor, "*n W"]:
        """Return a value of every class for the classes of the columns."""
        return values if self.columns is None else values[self.columns.label]

    def similar_classes(self, p: Float[Tensor, "n W"]) -> Float[Tensor, "C C"]:
        """Return P(given | true) of labels exchanged with one of the most similar classes.

        It is proportional to how often the features suggest both classes, sum over the samples of p_c p_y.
        """
        if self.columns is None:
            return nearest_table(p.T @ p)
        from scipy.sparse import csr_matrix  # slow to import

        row, column = (p > MIN_SHARED_PROBABILITY).nonzero(
            as_tuple=True
        )  # a drawn class counts for those that it stands for
        place = (row.cpu().numpy(), self.columns.label[row, column].cpu().numpy())
        few = csr_matrix((p[row, column].cpu().numpy(), place), (len(p), len(self.count)))
        return nearest_table(torch.as_tensor((few.T @ few).toarray()).to(p))

    def confused_classes(self, p: Float[Tensor, "n W"]) -> Float[Tensor, "C C"]:
        """Return P(given | true) of labels that are often exchanged: several samples of one class have the same other label."""
        if self.columns is None:
            given = torch.zeros_like(p).scatter_(1, self.y[:, None], 1)
            count = (p.T @ given).fill_diagonal_(0)
        else:
            place = (self.columns.label, self.y[:, None].expand_as(self.columns.label))
            count = p.new_zeros(len(self.count), len(self.count))
            count = count.index_put_(place, p, accumulate=True).fill_diagonal_(0)
        usual = count.sum(1, keepdim=True) / (len(count) - 1)
        count = count.where((count >= MIN_CONFUSED_SAMPLES) & (count >= MIN_CONFUSED_RATIO * usual), 0)
        return count / count.sum(1, keepdim=True).clamp_min(1e-30)

    def maximum(self, similar: float | None, find: Callable[[Tensor], Tensor] | None = None) -> Noise:
        """Return the most likely noise.

        Args:
            similar: share of similar classes in the noise; None: fitted too.
            find: returns the table of similar classes from P(class | features); by default `similar_classes`.
        """
        with threadpool_limits(1, "blas"):  # threads only wait for each other on vectors of four numbers
            found = [self._climb(similar, find or self.similar_classes, *start) for start in START_SHARES_AND_WEIGHTS]
        return max(found, key=lambda noise: noise.gain)

    def _climb(self, similar: float | None, find: Callable[[Tensor], Tensor], share: float, weight: float) -> Noise:
        from scipy.optimize import minimize  # slow to import

        members = len(self.scores)
        values = np.array(
            [math.log(weight / members)] * members + [math.log(share / (1 - share))] + [1.0] * (similar is None)
        )
        bounds = [PARAMETER_BOUNDS[0]] * members + [PARAMETER_BOUNDS[1]] * (len(values) - members)
        table, tried = None, []
        for _ in range(1 if similar == 0 else TABLE_UPDATES_COUNT):
            if similar != 0:
                table = find(self._parts(values, similar)[0])
            near = None if table is None else exchanged(table, self.y, self.columns)
            found = minimize(
                self._objective, values, (similar, near), "L-BFGS-B", jac=True, bounds=bounds,
                options={"ftol": LIKELIHOOD_TOLERANCE},
            )  # fmt: skip
            values = found.x
            tried.append(self._noise(values, similar, near, table))
        # the table of very sharp scores may be worse than the one before
        return max(tried, key=lambda noise: noise.gain)

    def _noise(self, values: np.ndarray, similar: float | None, near: Tensor | None, table: Tensor | None) -> Noise:
        p, any_share, similar_share, prior = self._parts(values, similar)
        gain = float(self._given(p, any_share, similar_share, near)[0].log().mean()) - self.chance
        weight = np.exp(values[: len(self.scores)]) / self.scale.cpu().numpy()
        return Noise(tuple(weight.tolist()), any_share, similar_share, table, prior, gain, len(self.y))

    def _shares(self, values: np.ndarray, similar: float | None) -> tuple[float, float]:
        """Return the share of wrong labels, and the share of similar classes among them, for some parameter values."""
        noise, share = (1 / (1 + math.exp(-v)) for v in (values[len(self.scores)], values[-1]))
        return noise * (1 - 1 / len(self.count)), share if similar is None else similar

    def _parts(self, values: np.ndarray, similar: float | None) -> tuple[Tensor, float, float, Tensor]:
        """Return P(class | features), the two noise shares, and the log of the class prior, for some parameter values."""
        noise, share = self._shares(values, similar)
        prior = true_frequencies(self.count, noise * (1 - share)).log()
        weight = self.scores.new_tensor(np.exp(values[: len(self.scores)]))
        by_column = prior if self.columns is None else self.columns.gather(prior)
        return class_probabilities(self.scores, weight, by_column), noise * (1 - share), noise * share, prior

    def _given(self, p: Tensor, u: float, v: float, near: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Return P(given label), P(the given label is true), and P(given label | exchanged with a similar class)."""
        own = p.gather(1, self.own)[:, 0]
        alike = torch.zeros_like(own) if near is None else (p * near).sum(1)
        given = (1 - u - v) * own + u * (1 - own) / (len(self.count) - 1) + v * alike
        return given.clamp_min(1e-30), own, alike

    def _objective(self, values: np.ndarray, similar: float | None, near: Tensor | None) -> tuple[float, np.ndarray]:
        """Return the negative log likelihood and its gradient. On a GPU it waits for the device once, for all sums.

        Formula: g = (1 - u - v) p_y + u (1 - p_y) / (C - 1) + v t, t = sum_c p_c P(y | c); with k = 1 - u - v - u / (C - 1),
            d log g / d logit_c = p_c (k [c = y] + v P(y | c) - k p_y - v t) / g

        Args:
            near: P(given label | true class) of labels exchanged with a similar class, for every sample; None: no such labels.
        """
        members, others = len(self.scores), len(self.count) - 1
        p, u, v, _ = self._parts(values, similar)
        given, own, alike = self._given(p, u, v, near)
        k = 1 - u - v - u / others
        logit = (-(k * own + v * alike))[:, None].expand_as(p).clone()
        logit.scatter_add_(1, self.own, torch.full_like(own, k)[:, None])
        if near is not None:
            logit.add_(near, alpha=v)
        logit.mul_(p).div_(given[:, None])
        of_u = (((1 - own) / others - own) / given).sum() + (
            logit * self.by_class(log_frequencies_slope(self.count, u))
        ).sum()
        sums = [given.log().sum(), of_u, ((alike - own) / given).sum(), *(self.scores.flatten(1) @ logit.flatten())]
        value, of_u, of_v, *of_weights = torch.stack(sums).cpu().numpy() / len(self.y)
        noise, share = self._shares(values, similar)
        of_noise = ((1 - share) * of_u + share * of_v) * noise * (1 - noise / (1 - 1 / len(self.count)))
        of_share = noise * (of_v - of_u) * share * (1 - share)
        gradient = [*(of_weights * np.exp(values[:members])), of_noise, *([of_share] if similar is None else [])]
        return -float(value), -np.array(gradient)


def nearest_table(both: Float[Tensor, "C C"]) -> Float[Tensor, "C C"]:
    """Return the rows with only their largest values off the diagonal, divided by their sums."""
    both = both.fill_diagonal_(0)
    near = both.topk(min(SIMILAR_CLASSES_COUNT, len(both) - 1), 1)
    table = torch.zeros_like(both).scatter_(1, near.indices, near.values)
    return table / table.sum(1, keepdim=True).clamp_min(1e-30)


class LabelSetNoise(NamedTuple):
    """Fitted weights of the evidence, and the shares of missing and superfluous labels, for every label."""

    weight: Float[Tensor, "M L"]  # of every table of scores
    bias: Float[Tensor, "L"]
    missing: Float[Tensor, "L"]  # P(not given | the sample has the label)
    superfluous: Float[Tensor, "L"]  # P(given | the sample has it not)
    gain: Float[Tensor, "L"]  # log likelihood minus that by the frequency of the label, sum over samples
    fitted: int  # number of samples that it was fitted on

    @property
    def informative(self) -> Bool[Tensor, "L"]:
        """Whether the scores explain a label better than its frequency does, beyond the gain of fitting."""
        return self.gain > 4 * math.log(self.fitted)

    def probabilities(self, scores: Float[Tensor, "M b L"]) -> Float[Tensor, "b L"]:
        """Return P(the sample has the label | evidence)."""
        return torch.sigmoid(torch.einsum("ml,mbl->bl", self.weight.to(scores), scores) + self.bias.to(scores))

    def wrong(self, scores: Float[Tensor, "M b L"], has: Float[Tensor, "b L"]) -> Float[Tensor, "b L"]:
        """Return P(the given state is wrong | evidence, given state): a given label is superfluous, an absent one missing.

        Formula: p = P(has the label | evidence), m, s the shares of missing and superfluous labels;
            given: (1 - p) s / ((1 - p) s + p (1 - m)), not given: p m / (p m + (1 - p) (1 - s))
        """
        p, m, s = self.probabilities(scores), self.missing.to(scores), self.superfluous.to(scores)
        given, absent = has > 0.5, 1 - p
        error = torch.where(given, absent * s, p * m)
        right = torch.where(given, p * (1 - m), absent * (1 - s))
        return error / (error + right).clamp_min(1e-30)


def fit_label_noise(
    each: Evidence, has: Float[Tensor, "N L"] | GivenSets, most: int = MAX_FITTED_SCORES, seed: int = 0,
    tolerance: float = LABEL_TOLERANCE,
) -> LabelSetNoise:  # fmt: skip
    """Return the weights and the noise shares under which the given labels are most likely.

    Formula: P(given) = p (1 - m_l) + (1 - p) s_l, p = sigmoid(e^(c_l) sum_k a_k score_k + b_l); a, b, c, m and s maximise the
        likelihood times normal priors of a label's values around those of all labels (`PRIOR_WIDTHS`).

    Args:
        has: 1 where a sample was given a label, otherwise 0.
        most: maximum number of entries (rows x labels) to fit on.
        seed: of the rows that are drawn if there are more.
        tolerance: relative change of the log likelihood below which the fit stops.
    """
    if isinstance(has, GivenSets):
        rows = fitted_rows(len(has), max(MIN_FITTED_ROWS, most // ENTRIES_PER_ROW), seed, has.device)
        return _LabelLikelihood(draw_entries(each, has, rows, seed), label_counts(has) / len(has)).maximum(tolerance)
    rows = fitted_rows(len(has), max(200, most // each.classes), seed, has.device)
    return _LabelLikelihood(all_entries(each.scores(rows), has[rows]), has.mean(0)).maximum(tolerance)


class LabelEntries(NamedTuple):
    """Scores of samples and labels that the noise is fitted on, minus the means of their labels: a table, or drawn entries."""

    scores: Float[Tensor, "M *e"]  # (table, sample, label), or (table, entry)
    given: Bool[Tensor, "*e"]
    middle: Float[Tensor, "M L"]
    square: Float[Tensor, "M"]  # mean square of the scores of all labels
    rows: int
    label: Int[Tensor, "E"] | None = None  # of every entry; None: a table
    weight: Float[Tensor, "E"] | None = None  # number of entries that each stands for

    def by_label(self, values: Float[Tensor, "*e"]) -> Float[Tensor, "L"]:
        """Return the sum of the values of every label."""
        if self.label is None or self.weight is None:
            return values.sum(0)
        return values.new_zeros(self.middle.shape[1]).index_add_(0, self.label, values * self.weight)

    def at(self, values: Float[Tensor, "*k L"]) -> Float[Tensor, "..."]:
        """Return the value of every entry's label."""
        return values if self.label is None else values[..., self.label]

    def odds(self, weight: Float[Tensor, "M L"], bias: Float[Tensor, "L"]) -> Float[Tensor, "*e"]:
        """Return the weighted sum of the scores plus the bias."""
        if self.label is None:
            return torch.einsum("ml,mbl->bl", weight, self.scores) + bias
        return (self.at(weight) * self.scores).sum(0) + bias[self.label]

    def products(self, values: Float[Tensor, "*e"]) -> Float[Tensor, "M L"]:
        """Return the sum of the products with the scores of every table, for every label."""
        if self.label is None:
            return torch.einsum("bl,mbl->ml", values, self.scores)
        return torch.stack([self.by_label(values * one) for one in self.scores])


def all_entries(scores: Float[Tensor, "M n L"], has: Float[Tensor, "n L"]) -> LabelEntries:
    """Return all scores of some samples, in float64."""
    device = "cpu" if scores.device.type == "mps" else scores.device  # MPS has no float64
    scores = scores.to(device, torch.float64)
    middle = scores.mean(1)
    scores = scores - middle[:, None]
    return LabelEntries(scores, has.to(device) > 0.5, middle, scores.square().mean((1, 2)), len(has))


def draw_entries(each: Evidence, has: GivenSets, rows: Int[Tensor, "n"], seed: int) -> LabelEntries:
    """Return the scores of the given and the likeliest labels of some samples, and of random labels that stand for the others."""
    random, found = torch.Generator().manual_seed(seed), Collected()
    device = "cpu" if has.device.type == "mps" else has.device  # MPS has no float64
    total = square = torch.zeros((), dtype=torch.float64, device=device)
    for some in rows.split(max(1, SCORE_BLOCK_SIZE // (3 * each.classes))):
        scores, given = each.scores(some), has[some] > 0.5
        total = total + scores.sum(1, dtype=torch.float32).to(device, torch.float64)
        square = square + scores.square().sum((1, 2)).to(device, torch.float64)
        near = scores[:2].topk(min(LIKELIEST_LABELS_COUNT, each.classes), 2).indices  # by densities, and by votes
        kept = given.clone()
        for one in near:
            kept.scatter_(1, one, True)
        drawn = torch.randint(each.classes, (len(some), DRAWN_LABELS_COUNT), generator=random).to(given.device)
        new = ~kept.gather(1, drawn)
        share = (each.classes - kept.sum(1)) / new.sum(1).clamp_min(1)
        row, label = (torch.cat(pair) for pair in zip(kept.nonzero(as_tuple=True), _places(new, drawn), strict=True))
        weight = torch.ones(len(row), dtype=torch.float64, device=given.device)
        weight[int(kept.sum()) :] = share[row[int(kept.sum()) :]].double()
        found.add(*(t.to(device) for t in (label, weight, given[row, label], scores[:, row, label].T.double())))
    middle, (labels, weight, given, scores) = total / len(rows), found.all()
    scores = scores.T.contiguous() - middle[:, labels]
    spread = square / (len(rows) * each.classes) - middle.square().mean(1)
    return LabelEntries(scores, given, middle, spread.clamp_min(0), len(rows), labels, weight)


def _places(kept: Bool[Tensor, "n k"], label: Int[Tensor, "n k"]) -> tuple[Int[Tensor, "m"], Int[Tensor, "m"]]:
    """Return row and label of the kept entries."""
    return kept.nonzero()[:, 0], label[kept]


class _LabelLikelihood:
    """Log posterior of the parameters of `LabelSetNoise`, in float64, with its gradient by hand: autograd takes longer."""

    def __init__(self, entries: LabelEntries, share: Float[Tensor, "L"]):
        self.entries, self.given, self.middle = entries, entries.given, entries.middle
        device = entries.scores.device
        share = share.to(device, torch.float64)
        least = 0.5 / entries.rows
        self.centre = torch.logit(share, eps=least)
        self.scale = entries.square.sqrt().clamp_min(1e-12)
        shape = (-1, *[1] * (entries.scores.ndim - 1))
        self.entries = entries._replace(scores=entries.scores / self.scale.view(shape))
        own = entries.at(share.clamp(least, 1 - least))
        self.chance = entries.by_label(torch.where(self.given, own.log(), (1 - own).log()))
        self.tables, self.labels = len(entries.scores), len(share)
        label = torch.full((self.labels,), 1.0, dtype=torch.float64)
        width = PRIOR_WIDTHS
        self.width = torch.cat(
            [torch.full((self.tables,), math.inf, dtype=torch.float64), torch.full((2,), width["shares"]).double(),
             width["scale"] * label, width["bias"] * label, width["missing"] * label, width["superfluous"] * label]
        ).to(device)  # fmt: skip
        zero = torch.zeros_like(self.centre)
        self.start = torch.cat(
            [
                zero.new_full((self.tables,), math.log(1.5 / self.tables)),
                zero.new_zeros(2),
                zero,
                self.centre,
                zero,
                zero,
            ]
        )

    def maximum(self, tolerance: float) -> LabelSetNoise:
        """Return the most likely values; the fit stops where the log likelihood changes by less than this share."""
        from scipy.optimize import minimize  # slow to import

        limit = (-PARAMETER_LIMIT, PARAMETER_LIMIT)
        with threadpool_limits(1, "blas"):  # threads only wait for each other on vectors of some hundred numbers
            found = minimize(
                self.objective, self.start.cpu().numpy(), method="L-BFGS-B", jac=True, bounds=[limit] * len(self.start),
                options={"ftol": tolerance, "maxiter": MAX_STEPS},
            )  # fmt: skip
        values = torch.as_tensor(found.x).to(self.start)
        weight, bias, missing, superfluous = self.parts(values)
        p = torch.sigmoid(self.entries.odds(weight, bias))
        gain = self.entries.by_label(self.likelihood(p, missing, superfluous).log()) - self.chance
        weight = weight / self.scale[:, None]
        bias = bias - (weight * self.middle).sum(0)
        return LabelSetNoise(weight, bias, missing, superfluous, gain, self.entries.rows)

    def parts(self, values: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return the weights of the standardised scores, the bias, and the two noise shares, for some parameter values."""
        a, shares, scale, bias, missing, superfluous = values.split([self.tables, 2, *[self.labels] * 4])
        start = torch.logit(values.new_tensor(START_LABEL_SHARES) / MAX_NOISE_SHARE)
        m, s = (
            MAX_NOISE_SHARE * torch.sigmoid(c + d) for c, d in zip(start + shares, (missing, superfluous), strict=True)
        )
        return a.exp()[:, None] * scale.exp(), bias, m, s

    def likelihood(self, p: Float[Tensor, "*e"], m: Float[Tensor, "L"], s: Float[Tensor, "L"]) -> Float[Tensor, "*e"]:
        """Return the probability of every given state."""
        given = self.entries.at(s) + p * self.entries.at(1 - m - s)
        return torch.where(self.given, given, 1 - given).clamp_min(1e-30)

    def objective(self, values: np.ndarray) -> tuple[float, np.ndarray]:
        """Return minus the log posterior per sample, and its gradient."""
        point, of = torch.as_tensor(values).to(self.start), self.entries
        weight, bias, m, s = self.parts(point)
        p = torch.sigmoid(of.odds(weight, bias))
        likely = self.likelihood(p, m, s)
        by_given = torch.where(self.given, 1 / likely, -1 / likely)  # d log likelihood / d P(given)
        by_odds = by_given * of.at(1 - m - s) * p * (1 - p)
        by_weight = weight * of.products(by_odds)  # by the logarithm of each weight
        by_m = -of.by_label(by_given * p) * m * (1 - m / MAX_NOISE_SHARE)  # by the log odds of each share
        by_s = of.by_label(by_given * (1 - p)) * s * (1 - s / MAX_NOISE_SHARE)
        shared = torch.stack([by_m.sum(), by_s.sum()])
        gradient = torch.cat([by_weight.sum(1), shared, by_weight.sum(0), of.by_label(by_odds), by_m, by_s])
        away = (point - self.start.where(self.width.isfinite(), point)) / self.width
        loss = 0.5 * away.square().sum() - of.by_label(likely.log()).sum()
        n = of.rows
        return float(loss) / n, ((away / self.width - gradient) / n).cpu().numpy()
