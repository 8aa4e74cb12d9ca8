"""Missing and superfluous labels of all splits of an audit: label scores of samples, and questions about single labels."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from likewise.core.errors import LikewiseError
from likewise.core.progress import bar
from likewise.core.settings import Audit
from likewise.core.similarity import at_least_float32, full_precision_matmul
from likewise.core.types import Items
from likewise.curate.audit.blank_images import blank_rows
from likewise.curate.audit.label_scores import neighbours
from likewise.curate.audit.label_set_probability import LabelSetQuality, as_matrix, score_label_sets
from likewise.curate.audit.records import (
    ClassFindings,
    Errors,
    ExplainedErrors,
    LabelQuality,
    RetrievalErrors,
    SplitQuality,
    Subject,
    WrongPairs,
    has_own_split,
)
from likewise.data.label_sets import set_names
from likewise.data.votes import votes_of
from likewise.labels.copy_clusters import SIMILARITY_BLOCK_SIZE
from likewise.labels.label_set_evidence import weigh_labels
from likewise.labels.label_set_noise import selection_gain

MIN_LISTED_PROBABILITY = 0.1
"""Smallest probability of an error with which a label of a sample is listed in labels.csv."""

STORED_EXAMPLES_COUNT = 4
"""Number of nearest samples with a label, and without it, that are listed for each question."""

QUESTION_COLUMNS = (
    "row", "path", "label", "kind", "chance", "state", "reason", "nearest_with", "nearest_without",
)  # fmt: skip
"""Columns of labels.csv."""


class SetFindings(NamedTuple):
    """The audit of label sets: the data with the suggested sets as further classes, label scores, and single labels.

    `parts` has the rows of the data that were scored together, and the result for each of these rows and every label.
    """

    items: Items
    quality: dict[str, SplitQuality]
    parts: list[tuple[Int[Tensor, "n"], LabelSetQuality]]


def check_label_set_settings(config: Audit) -> None:
    """Raise if a setting does not apply to data with several labels per sample."""
    for name in ("retrain", "verify", "forecast"):
        if getattr(config, name):
            raise LikewiseError(
                f"audit: --{name} does not apply to samples with several labels; review the findings, and train on corrected.csv"
            )


def score_label_set_splits(subject: Subject, config: Audit) -> SetFindings:
    """Return the findings about every label of every sample; the parts of data with a split of its own are scored alone."""
    items, names = subject.items, list(subject.splits)
    votes_of(items, config.votes)  # raises if there are votes
    assert items.label_sets is not None and items.label_name is not None
    has = as_matrix(items.label_sets, items.y, len(items.label_name))
    together = [[name] for name in names] if has_own_split(items) else [names]
    parts: list[tuple[Tensor, LabelSetQuality]] = []
    with bar("score labels", len(names), quiet=config.quiet) as progress:
        for some in together:
            rows = torch.cat([subject.splits[name].e.row for name in some])
            x = set_features(subject, some, rows, has, config).to(subject.device)
            group = None if items.group is None else torch.as_tensor(items.group)[rows].to(subject.device)
            scored = score_label_sets(x, has[rows].to(subject.device), config.seed, group)
            parts.append((rows, on_cpu(scored)))
            progress.advance(len(some))
    subject.notes.append(
        "samples have several labels: missing and superfluous labels are in labels.csv; retrieval errors, their causes, and "
        "classes to merge are not computed, because samples with some labels in common are neither right nor wrong"
    )
    extended, suggested = with_suggested_sets(items, has, parts)
    blank = blank_rows(items, torch.cat([rows for rows, _ in parts]).numpy())
    quality = {}
    for some, (rows, scored) in zip(together, parts, strict=True):
        start = 0
        for name in some:
            own = torch.arange(start, start + len(subject.splits[name].e.row))
            quality[name] = describe(subject, name, rows[own], own, scored, suggested, blank)
            start += len(own)
    return SetFindings(extended, quality, parts)


def on_cpu(scored: LabelSetQuality) -> LabelSetQuality:
    """Return the result on the CPU."""
    return LabelSetQuality(
        scored.has.cpu(), scored.wrong.cpu(), scored.missing.cpu(), scored.superfluous.cpu(), scored.reason
    )


def set_features(
    subject: Subject, names: list[str], rows: Int[Tensor, "N"], has: Bool[Tensor, "R L"], config: Audit
) -> Float[Tensor, "N F"]:
    """Return the network's features, or those from before its training if they explain untrained labels better."""
    x, before, untrained = subject.features_of(names, rows)
    if before is None:
        return x
    among = untrained if int(untrained.sum()) > 2 else torch.ones_like(untrained)
    labels = has[rows][among]
    used = labels[:, labels.any(0)].float().to(subject.device)
    gains: list[float] = []
    for values in (x, before):
        here = at_least_float32(values[among].to(subject.device)).float()
        with torch.no_grad(), full_precision_matmul(here):
            folds = min(10, len(here))
            each, _ = weigh_labels(here, used, selection_gain, folds=folds, setting=(True, 0.5), seed=config.seed)
            gains.append(selection_gain(each, config.seed) / len(here))
    if gains[1] <= gains[0]:
        return x
    subject.notes.append(
        "labels are scored with the features of the network before training, which explain them better "
        f"({gains[1]:.2f} nats per sample; after training {gains[0]:.2f})"
    )
    return before


def with_suggested_sets(
    items: Items, has: Bool[Tensor, "R L"], parts: list[tuple[Int[Tensor, "n"], LabelSetQuality]]
) -> tuple[Items, Int[Tensor, "R"]]:
    """Return the data with the suggested label sets as classes, and the class number of the suggestion of every row.

    A sample from which all labels would be taken keeps its set: it is to be reviewed, and no set can be suggested.
    """
    assert items.label_sets is not None and items.label_name is not None
    sets = list(items.label_sets)
    number = {one: place for place, one in enumerate(sets)}
    suggested = torch.as_tensor(items.y).clone()
    for rows, scored in parts:
        changed = scored.flagged.any(1) & scored.suggested.any(1)
        for place in changed.nonzero()[:, 0].tolist():
            one = tuple(scored.suggested[place].nonzero()[:, 0].tolist())
            if one not in number:
                number[one] = len(sets)
                sets.append(one)
            suggested[rows[place]] = number[one]
    names = (*items.class_name, *set_names(sets[items.classes :], items.label_name))
    return replace(items, label_sets=tuple(sets), class_name=names), suggested


def describe(
    subject: Subject, name: str, rows: Int[Tensor, "n"], own: Int[Tensor, "n"], scored: LabelSetQuality,
    suggested: Int[Tensor, "R"], blank: dict[int, str],
) -> SplitQuality:  # fmt: skip
    """Return the label scores of one split: that of a sample is the score of its most suspect label."""
    wrong, e = scored.wrong[own].double(), subject.splits[name].e
    score = scored.score[own].double()
    flagged = scored.flagged[own]
    both = torch.where(flagged, wrong.clamp_min(1e-12).log(), 0.0).sum(1).exp()  # P(all suggested changes are right)
    sure = (both / (1 - score).clamp_min(1e-12)).clamp_max(1).where(flagged.any(1), 0.0)
    reason = "too few samples have its labels, or nothing explains them" if bool(score.isnan().any()) else ""
    quality = LabelQuality(score, {}, suggested[rows], sure, sure, math.nan, math.nan, unknown_reason=reason)
    shows_nothing = {at: blank[row] for at, row in enumerate(rows.tolist()) if row in blank}
    quality = quality.with_off_topic(torch.tensor(list(shows_nothing), dtype=torch.long))
    none = np.zeros(0, int)
    classes = ClassFindings(none, none, none, none, np.zeros(0), (), math.nan, math.nan)
    z = e.z.to(subject.device)
    return SplitQuality(quality, {}, neighbours(z), classes, np.zeros(len(rows), bool), blank=shows_nothing)


def nothing_explained() -> ExplainedErrors:
    """Return no retrieval errors: which neighbours are errors is not defined where samples share some of their labels."""
    none, distance = torch.zeros(0, dtype=torch.long), torch.zeros(0)
    empty = WrongPairs(none, none, none, none, distance)
    return ExplainedErrors(RetrievalErrors(empty, empty), Errors(none.new_zeros(0, 2), distance, none, []))


def question_lines(subject: Subject, found: SetFindings) -> Iterator[list]:
    """Yield the lines of labels.csv (`QUESTION_COLUMNS`), the most suspect first.

    Given labels that cannot be scored come last, with the state unknown.
    """
    items, names, lines = found.items, found.items.label_name, []
    assert names is not None
    z = torch.cat([split.e.z for split in subject.splits.values()])
    at = torch.cat([split.e.row for split in subject.splits.values()]).argsort()
    for rows, scored in found.parts:
        listed = (scored.wrong >= MIN_LISTED_PROBABILITY) | (scored.wrong.isnan() & scored.has)
        place, label = listed.nonzero(as_tuple=True)
        own = z[at[torch.searchsorted(torch.cat([s.e.row for s in subject.splits.values()])[at], rows)]]
        beside = zip(*(near_rows(own, scored, place, label, rows, has=has) for has in (True, False)), strict=True)
        for one, n, near in zip(place.tolist(), label.tolist(), beside, strict=True):
            row, chance = int(rows[one]), float(scored.wrong[one, n])
            unknown = math.isnan(chance)
            state = "unknown" if unknown else "flagged" if chance > 0.5 else "ok"
            kind = "superfluous" if bool(scored.has[one, n]) else "missing"
            cells = [
                row,
                "" if items.path is None else items.path[row],
                names[n],
                kind,
                "" if unknown else f"{chance:.6g}",
            ]
            lines.append(((unknown, 0 if unknown else -chance, row, n), [*cells, state, scored.reason[n], *near]))
    yield from (line for _, line in sorted(lines))


def near_rows(
    z: Float[Tensor, "n D"], scored: LabelSetQuality, place: Int[Tensor, "q"], label: Int[Tensor, "q"], rows: Int[Tensor, "n"],
    has: bool,
) -> list[str]:  # fmt: skip
    """Return for each question the rows of the nearest samples that surely have the label, or surely have it not."""
    sure = (scored.has == has) & ~scored.flagged
    found = []
    for some in torch.arange(len(place)).split(max(1, SIMILARITY_BLOCK_SIZE // max(1, len(z)))):
        similarity = z[place[some]] @ z.T
        similarity[torch.arange(len(some)), place[some]] = -torch.inf
        similarity.masked_fill_(~sure.T[label[some]], -torch.inf)
        top = similarity.topk(min(STORED_EXAMPLES_COUNT, len(z)), 1)
        for values, near in zip(top.values, top.indices, strict=True):
            found.append(" ".join(str(int(rows[n])) for n in near[values > -torch.inf]))
    return found


def label_facts(found: SetFindings) -> list[dict]:
    """Return for every label and part: number of samples, estimated shares, flagged states, and why it is unknown."""
    names, facts = found.items.label_name, []
    assert names is not None
    for _, scored in found.parts:
        size, flagged = scored.has.sum(0).tolist(), scored.flagged
        missing, superfluous = (flagged & ~scored.has).sum(0).tolist(), (flagged & scored.has).sum(0).tolist()
        rates = zip(scored.missing.tolist(), scored.superfluous.tolist(), strict=True)
        for n, (m, s) in enumerate(rates):
            facts.append({
                "label": names[n], "size": size[n], "missing_rate": m, "superfluous_rate": s, "missing": missing[n],
                "superfluous": superfluous[n], "unknown": scored.reason[n],
            })  # fmt: skip
    return facts


def expected_wrong(found: SetFindings) -> float:
    """Return the estimated number of missing and superfluous labels together."""
    return float(sum(scored.wrong.nansum() for _, scored in found.parts))
