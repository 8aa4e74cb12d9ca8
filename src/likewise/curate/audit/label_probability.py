"""Probability that each label is right, and the label that is suggested if it is wrong, from features of the whole data set.

`class_label_quality`: a sample has one of several classes. `label_set_quality`: a sample has any of several labels.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from likewise.core.block_executors import map_blocks
from likewise.core.errors import LikewiseError
from likewise.core.similarity import at_least_float32, full_precision_matmul
from likewise.curate.audit.single_scores import check_labelled
from likewise.labels.candidate_classes import Columns, class_of, given_column, without_drawn
from likewise.labels.given_sets import Collected, GivenSets, given_sets
from likewise.labels.label_evidence import LabelEvidence, discriminate, discriminate_sets
from likewise.labels.label_noise import SCORE_BLOCK_SIZE, Noise
from likewise.labels.off_topic import off_topic
from likewise.labels.posterior_update import CANDIDATES_COUNT, Candidates, keep_candidates

CHECKED_SAMPLES_COUNT = 256
"""Number of random samples that are scored against all classes, to measure what candidates miss."""

MIN_LISTED_PROBABILITY = 0.1
"""A label that is missing with less than this probability is not listed: the lists of many labels would be long."""

UNINFORMATIVE_REASON = "the features explain the labels no better than the class frequencies do"
"""Reason why no label of a data set can be scored."""

ALONE_REASON = "the only sample of its class, apart from copies"
"""Reason why the label of a single sample cannot be scored."""

MIN_LABEL_SAMPLES = 6
"""Minimum number of samples with a label, and without it, apart from copies; a label of fewer cannot be scored."""

FEW_REASON = f"fewer than {MIN_LABEL_SAMPLES} samples have it"
COMMON_REASON = f"fewer than {MIN_LABEL_SAMPLES} samples do not have it"
UNEXPLAINED_REASON = "the features and the other labels explain it no better than its frequency does"
"""Reasons why a label of a set cannot be scored."""


@dataclass(frozen=True, eq=False)
class ListedStates:
    """The states of `StateBlocks` that matter, as a list in place of a table: all given labels, and those that may be missing.

    A label that was not given is listed if it is missing with `MIN_LISTED_PROBABILITY` or more; `rest` bounds the others.
    """

    row: Int[Tensor, "M"]  # sample, in ascending order
    label: Int[Tensor, "M"]
    has: Bool[Tensor, "M"]  # whether the label was given
    wrong: Float[Tensor, "M"]  # NaN: unknown
    rest: Float[Tensor, "N"]  # largest P(missing) of a label of the sample that is not listed; -1: none is known
    rest_sum: Float[Tensor, "N"]  # sum of these
    missing: Float[Tensor, "L"]
    superfluous: Float[Tensor, "L"]
    reason: tuple[str, ...]

    @property
    def flagged(self) -> Bool[Tensor, "M"]:
        """Where the given state is more likely wrong than right."""
        return self.wrong > 0.5

    @property
    def score(self) -> Float[Tensor, "N"]:
        """P(right) of the most suspect state of every sample; NaN if all are unknown."""
        worst = self.rest.scatter_reduce(0, self.row, self.wrong.nan_to_num(-1.0), "amax")
        return torch.where(worst < 0, torch.nan, 1 - worst)

    @property
    def expected(self) -> float:
        """Expected number of wrong states."""
        return float(self.wrong.nansum()) + float(self.rest_sum.sum())

    def suggested(self) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Yield every sample with a flagged state, and its label set with all flagged states changed."""
        kept = self.has ^ self.flagged
        number = torch.bincount(self.row, minlength=len(self.rest))
        start = number.cumsum(0) - number
        for row in self.row[self.flagged].unique().tolist():
            mine = slice(int(start[row]), int(start[row] + number[row]))
            yield row, tuple(self.label[mine][kept[mine]].tolist())

    def of(self, rows: Int[Tensor, "n"]) -> ListedStates:
        """Return the states of some samples."""
        number = torch.bincount(self.row, minlength=len(self.rest))
        start, size = (number.cumsum(0) - number)[rows], number[rows]
        at = (start - size.cumsum(0) + size).repeat_interleave(size)
        at = at + torch.arange(len(at))
        row = torch.arange(len(rows)).repeat_interleave(size)
        return replace(
            self, row=row, label=self.label[at], has=self.has[at], wrong=self.wrong[at], rest=self.rest[rows],
            rest_sum=self.rest_sum[rows],
        )  # fmt: skip


def listed(states: StateBlocks) -> ListedStates:
    """Return the list of the states."""
    entries, samples = Collected(), Collected()
    for rows, has, wrong in states.blocks:
        kept = has | (wrong >= MIN_LISTED_PROBABILITY)
        place, label = kept.nonzero(as_tuple=True)
        rest = wrong.masked_fill(kept, torch.nan)
        entries.add(rows[place], label, has[place, label], wrong[place, label])
        samples.add(rest.nan_to_num(-1.0).max(1).values, rest.nansum(1))
    (row, label, has, wrong), (rest, rest_sum) = entries.all(), samples.all()
    shares = states.missing, states.superfluous, states.reason
    return ListedStates(row, label, has, wrong, rest, rest_sum, *shares)


def joined_states(parts: Sequence[ListedStates]) -> ListedStates:
    """Return the states of several parts, one after another; the shares and reasons are those of the first."""
    count = [len(one.rest) for one in parts]
    row = torch.cat([one.row + sum(count[:k]) for k, one in enumerate(parts)])
    rest = {
        name: torch.cat([getattr(one, name) for one in parts]) for name in ("label", "has", "wrong", "rest", "rest_sum")
    }
    return replace(parts[0], row=row, **rest)


class CandidateSearch(NamedTuple):
    """How many classes of a sample have scores, and what the others would have got, by random samples with all classes."""

    candidates: int
    classes: int
    recall: float  # share of the nearest neighbours that the search found
    hidden: float  # mean probability of all classes that are no candidates
    hidden_most: float  # the largest one
    checked: int  # number of random samples

    def __str__(self) -> str:
        return (
            f"labels are scored against {self.candidates} candidate classes of {self.classes:,} per sample; on {self.checked} "
            f"random samples the other classes have {self.hidden:.2%} of the probability together, at most {self.hidden_most:.0%}"
        )


@dataclass(frozen=True, eq=False)
class LabelQuality:
    """P(the label is right) for every sample, and the suggested label if it is wrong.

    Labels are class numbers of the data. `confidence`: probability of the suggested label if the given one is wrong; `margin`:
    its lead over the next label. `any` and `similar`: estimated shares of labels that are exchanged with any class, and with a
    similar one. `unknown` marks labels that cannot be scored: their score is NaN, and `unknown_reason` is the reason in one
    sentence. `off_topic`: probability that the image fits no class; None: not computed. `candidates`: the most probable true
    classes; a label that cannot be scored is its only candidate. `states`: the single labels of samples with several labels; the
    score of a sample is then that of its most suspect label. `search`: which classes have scores; None: all.
    """

    score: Float[Tensor, "N"]
    single: dict[str, Float[Tensor, "N"]]
    suggested: Int[Tensor, "N"]
    confidence: Float[Tensor, "N"]
    margin: Float[Tensor, "N"]
    any: float
    similar: float
    unknown: Bool[Tensor, "N"] | None = None  # never None after construction: a NaN score is unknown
    unknown_reason: str = ""
    off_topic: Float[Tensor, "N"] | None = None
    candidates: Candidates | None = None
    states: ListedStates | None = None
    search: CandidateSearch | None = None

    def __post_init__(self):
        unknown = self.score.isnan() if self.unknown is None else self.unknown | self.score.isnan()
        object.__setattr__(self, "unknown", unknown)
        object.__setattr__(self, "score", self.score.masked_fill(unknown, torch.nan))

    @property
    def is_off_topic(self) -> Bool[Tensor, "N"]:
        """Whether each image is more likely of no class than of one; False if that was not computed."""
        return torch.zeros_like(self.score, dtype=torch.bool) if self.off_topic is None else self.off_topic >= 0.5

    def with_off_topic(self, places: Int[Tensor, "n"]) -> LabelQuality:
        """Return the result with some samples that fit no class for certain: their labels are wrong, if they have a score."""
        if not len(places):
            return self
        off_topic = torch.zeros_like(self.score) if self.off_topic is None else self.off_topic
        wrong = self.score.clamp_max(0)  # NaN stays
        return replace(
            self,
            off_topic=off_topic.index_fill(0, places, 1),
            score=self.score.index_copy(0, places, wrong[places]),
        )

    def of(self, rows: Int[Tensor, "n"]) -> LabelQuality:
        """Return the result for some of the samples, on the CPU."""

        def some(value):
            if isinstance(value, Candidates):
                return Candidates(*(some(part) for part in value))
            if isinstance(value, ListedStates):
                return value.of(rows.cpu())
            return value[rows.to(value.device)].cpu() if isinstance(value, Tensor) else value

        single = {name: some(value) for name, value in self.single.items()}
        return replace(self, **{f.name: some(getattr(self, f.name)) for f in fields(self)} | {"single": single})


@torch.no_grad()
def class_label_quality(
    x: Float[Tensor, "N F"], y: Int[Tensor, "N"], seed: int = 0, group: Int[Tensor, "N"] | None = None,
    part: Int[Tensor, "N"] | None = None,
) -> LabelQuality:  # fmt: skip
    """Return the probability that each label is right, and the label that is suggested if it is wrong.

    Formula: the posterior of `Noise`: P(class | features, given label), from class densities and votes of neighbours that no
        sample's own label affects. score = posterior of the given label; the suggested label has the highest posterior of the
        others, confidence = its posterior / (1 - score), margin = its lead over the next one / (1 - score).
    A class of one sample is a candidate for that sample only.
    Differs: it is ours. Where the features explain labels no better than class frequencies do, and for samples without another
        sample of their class, the score is NaN: unknown.

    Args:
        x: features, or embeddings. Features of a network that was not trained with these labels have learned no wrong label.
        y: labels, any integers.
        seed: seed of the folds.
        group: samples with the same number, 0 or more, belong together (a burst, a listing); -1: none.
        part: number of the split of every sample. Off-topic samples are searched in each split alone: a network separates the
            classes that it was trained with better than others, which would seem off-topic beside them.
    """
    check_labelled("class_label_quality", x, y)
    label, y = y.unique(return_inverse=True)
    if len(label) < 2:
        raise LikewiseError(
            f"class_label_quality: labels must have two classes or more, got only class {int(label[0])}; add another class"
        )
    x = at_least_float32(x).float()
    with full_precision_matmul(x):
        each, noise = discriminate(x, y, len(label), seed=seed, group=group)
        score, density = torch.full((2, len(y)), torch.nan, dtype=torch.float64, device=x.device)
        sure, ahead, suggested = torch.zeros_like(score), torch.zeros_like(score), y.clone()
        outside = off_topic_by_part(x, y, len(label), seed, part)
        alone = alone_in_class(each, y)
        width = min(CANDIDATES_COUNT, len(label))
        kept = Candidates(y[:, None].expand(-1, width).clone(), score.new_zeros(len(y), width))
        kept.probability[:, 0] = 1  # of labels that cannot be scored nothing else is known
        lone = torch.bincount(y[alone], minlength=len(label)) > 0
        blocks = list(each.blocks()) if noise.informative else []
        shared = {"each": each, "noise": noise, "y": y, "alone": alone, "lone": lone, "width": width}
        for rows, found in zip(blocks, map_blocks(_score_block, shared, blocks), strict=True):
            score[rows], density[rows], sure[rows], ahead[rows], suggested[rows] = found[:5]
            kept.label[rows[~alone[rows]]], kept.probability[rows[~alone[rows]]] = found.kept
    bounded = torch.minimum(score, 1 - outside.double())  # the label of an image that fits no class cannot be right
    score = score.where(outside < 0.5, bounded)
    usable = noise.informative
    unknown = alone | (not usable)
    reason = UNINFORMATIVE_REASON if not usable else ALONE_REASON if bool(alone.any()) else ""
    shares = (noise.any, noise.similar) if usable else (math.nan, math.nan)
    single = {"density": density.masked_fill(unknown, torch.nan)}
    candidates = Candidates(label[kept.label], kept.probability)
    search = check_candidates(each, noise, y, seed) if usable and each.candidates is not None else None
    return LabelQuality(
        score, single, label[suggested], sure, ahead, *shares, unknown, reason, outside, candidates, search=search
    )


def check_candidates(each: LabelEvidence, noise: Noise, y: Int[Tensor, "N"], seed: int) -> CandidateSearch:
    """Return what the classes that are no candidates would have got, from random samples that are scored against all classes."""
    assert each.candidates is not None
    rows = torch.randperm(len(y), generator=torch.Generator().manual_seed(seed))[:CHECKED_SAMPLES_COUNT].to(y.device)
    every = each.of_all_classes()
    hidden = []
    for some in rows.split(max(1, SCORE_BLOCK_SIZE // each.classes)):
        columns = each.candidates.columns(some)
        q = noise.posterior(every.scores(some).double(), y[some]).gather(1, columns.label)
        hidden.append(1 - (q * (columns.size == 0)).sum(1))
    found = torch.cat(hidden).clamp_min(0)
    width = each.candidates.width - each.candidates.drawn
    return CandidateSearch(width, each.classes, each.recall, float(found.mean()), float(found.max()), len(rows))


class ScoredBlock(NamedTuple):
    """What `class_label_quality` finds for some samples; `kept`: the candidates of those that are not alone in their class."""

    score: Float[Tensor, "n"]
    density: Float[Tensor, "n"]
    sure: Float[Tensor, "n"]
    ahead: Float[Tensor, "n"]
    suggested: Int[Tensor, "n"]
    kept: Candidates


def _score_block(shared: Mapping[str, Any], rows: Int[Tensor, "n"]) -> ScoredBlock:
    """Return the probability of the given label of some samples, and the label that is suggested if it is wrong."""
    each, noise, y = shared["each"], shared["noise"], shared["y"][rows]
    scores, columns = each.scores(rows).double(), each.columns(rows)
    own = given_column(y, columns)
    q = among_candidates(noise.posterior(scores, y, columns), own, shared["lone"], columns)
    score = q.gather(1, own)[:, 0]
    by_density = noise._replace(weight=noise.weight[:1]).probabilities(scores[:1], columns)
    q, some = without_drawn(q, columns), ~shared["alone"][rows]
    kept = keep_candidates(q[some], own[some, 0], shared["width"])
    kept = kept._replace(label=class_of(kept.label, None if columns is None else columns.of(some)))
    top = q.scatter(1, own, 0).topk(min(2, q.shape[1] - 1), 1)
    wrong = (1 - score).clamp_min(1e-12)
    best = class_of(top.indices[:, :1], columns)[:, 0]
    sure = (top.values[:, 0] / wrong).clamp_max(1)
    ahead = sure - (top.values[:, 1] / wrong if top.values.shape[1] > 1 else 0)
    # the label itself, if there is no other
    suggested = best.where(top.values[:, 0] > 0, y)
    return ScoredBlock(score, by_density.gather(1, own)[:, 0], sure, ahead, suggested, kept)


def among_candidates(
    q: Float[Tensor, "n W"], own: Int[Tensor, "n 1"], lone: Bool[Tensor, "C"], columns: Columns | None = None
) -> Float[Tensor, "n W"]:
    """Return the posterior among the candidates of every sample: its given class, and the classes of two samples or more.

    One sample does not show what else belongs to its class.

    Args:
        own: column of the given class of each sample.
        lone: classes of one sample, apart from copies.
    """
    kept = q.masked_fill(lone if columns is None else lone[columns.label], 0).scatter(1, own, q.gather(1, own))
    return kept / kept.sum(1, keepdim=True).clamp_min(1e-30)


def off_topic_by_part(
    x: Float[Tensor, "N F"], y: Int[Tensor, "N"], classes: int, seed: int, part: Int[Tensor, "N"] | None
) -> Float[Tensor, "N"]:
    """Return the probability that each sample fits no class, among the samples of its part."""
    found = x.new_zeros(len(x))
    for number in [None] if part is None else part.unique().tolist():
        rows = torch.arange(len(x), device=x.device) if number is None else (part == number).nonzero()[:, 0]
        if len(rows) > 1:
            found[rows] = off_topic(x[rows], y[rows], classes, seed).probability.to(found)
    return found


def alone_in_class(each: LabelEvidence, y: Int[Tensor, "N"]) -> Bool[Tensor, "N"]:
    """Return for which samples all samples of the same class are in the same cluster of copies."""
    classes = int(y.max()) + 1
    pair = (each.cluster * classes + y).unique()
    return torch.bincount(pair % classes, minlength=classes)[y] == 1


@torch.no_grad()
def label_set_quality(
    x: Float[Tensor, "N F"], y: Int[Tensor, "N"], has: Bool[Tensor, "N L"] | GivenSets, seed: int = 0,
    group: Int[Tensor, "N"] | None = None,
) -> LabelQuality:  # fmt: skip
    """Return for every sample the probability that its whole set of labels is right; for every label, see `StateBlocks`.

    Formula: the posterior of `LabelSetNoise`, from densities, votes of neighbours and the other labels of the sample, none of
        which the state itself affects. No probability is above 1 - 1 / (n + 2), n the smaller of the numbers of samples with and
        without the label: n samples do not make surer. The confidence in the suggested set is the product over its changes,
        divided by P(wrong) of the most suspect label.
    Differs: it is ours. A label that too few samples have, or that nothing explains, is unknown (NaN) for all samples.

    Args:
        x: features, or embeddings.
        y: numbers of the given label sets; they are also the suggested ones, until the changed sets are numbered.
        has: whether each sample was given each label.
        seed: seed of the folds.
        group: samples with the same number, 0 or more, belong together (a burst, a listing); -1: none.
    """
    states = listed(state_blocks(x, has, seed, group))
    score, flagged = states.score.double(), states.flagged
    changes = torch.zeros_like(score).index_add_(0, states.row[flagged], states.wrong[flagged].double().log())
    any_flagged = torch.bincount(states.row[flagged], minlength=len(score)) > 0
    sure = (changes.exp() / (1 - score).clamp_min(1e-12)).clamp_max(1).where(any_flagged, 0.0)
    reason = "too few samples have its labels, or nothing explains them" if bool(score.isnan().any()) else ""
    return LabelQuality(score, {}, y.cpu(), sure, sure, math.nan, math.nan, unknown_reason=reason, states=states)


class StateBlocks(NamedTuple):
    """P(the given state is wrong) for every sample and independent label: superfluous if it was given, otherwise missing.

    NaN: unknown. `reason` is why, for every label; empty: it is known. `missing` is the estimated share of the samples that have
    a label but were not given it, `superfluous` the share of those that have it not but were given it. Blocks: rows, whether
    they were given each label, and the probabilities.
    """

    blocks: Iterator[tuple[Int[Tensor, "b"], Bool[Tensor, "b L"], Float[Tensor, "b L"]]]
    missing: Float[Tensor, "L"]
    superfluous: Float[Tensor, "L"]
    reason: tuple[str, ...]


def state_blocks(
    x: Float[Tensor, "N F"], has: Bool[Tensor, "N L"] | GivenSets, seed: int, group: Int[Tensor, "N"] | None
) -> StateBlocks:
    """Return the probability that the given state of every label is wrong, by blocks of samples, on the CPU."""
    if len(x) != len(has) or len(x) < 3 or has.shape[1] < 1:
        raise LikewiseError(
            f"label_set_quality: three samples or more with one row of labels each are needed, got {len(x)} feature vectors and "
            f"labels of shape {tuple(has.shape)}; add data"
        )
    if not bool(torch.isfinite(x).all()):
        raise LikewiseError(
            "label_set_quality: features must be finite, got NaN or infinite values; leave out these rows"
        )
    x, given = at_least_float32(x).float(), has if isinstance(has, GivenSets) else has.float()
    with torch.no_grad(), full_precision_matmul(x):
        each, noise = discriminate_sets(x, given, folds=min(10, len(x)), seed=seed, group=group)
    with_it, without = cluster_counts(each, given)
    ceiling = 1 - 1 / (torch.minimum(with_it, without) + 2)
    few, common = (with_it < MIN_LABEL_SAMPLES).tolist(), (without < MIN_LABEL_SAMPLES).tolist()
    reason = tuple(
        FEW_REASON if a else COMMON_REASON if b else UNEXPLAINED_REASON if not c else ""
        for a, b, c in zip(few, common, noise.informative.tolist(), strict=True)
    )
    unknown = torch.tensor([bool(one) for one in reason], device=x.device)

    def blocks() -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        for rows in each.blocks():
            with torch.no_grad(), full_precision_matmul(x):
                table = given[rows]
                wrong = noise.wrong(each.scores(rows).double(), table).float()
            wrong = torch.minimum(wrong, ceiling.to(wrong)).masked_fill(unknown, torch.nan)
            yield rows.cpu(), (table > 0.5).cpu(), wrong.cpu()

    missing, superfluous = (
        share.float().masked_fill(unknown.to(share.device), torch.nan).cpu()
        for share in (noise.missing, noise.superfluous)
    )
    return StateBlocks(blocks(), missing, superfluous, reason)


def cluster_counts(
    each: LabelEvidence, has: Float[Tensor, "N L"] | GivenSets
) -> tuple[Float[Tensor, "L"], Float[Tensor, "L"]]:
    """Return how many samples have each label and how many have it not; near copies count once."""
    given = has if isinstance(has, GivenSets) else given_sets(has > 0.5)
    clusters = int(each.cluster.max()) + 1
    size = torch.bincount(each.cluster, minlength=clusters)
    pair, count = (each.cluster[given.row] * given.labels + given.label).unique(return_counts=True)
    whole = count == size[pair // given.labels]  # all samples of the cluster have the label
    some, every = (torch.bincount(one % given.labels, minlength=given.labels).float() for one in (pair, pair[whole]))
    return some, clusters - every
