"""Label scores of all splits: from features and, for the training split, also from the training losses and gradients."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from likewise.core.progress import bar
from likewise.core.settings import Audit
from likewise.core.similarity import at_least_float32, full_precision_matmul
from likewise.core.types import Items
from likewise.curate.audit import relabel
from likewise.curate.audit.blank_images import blank_rows
from likewise.curate.audit.influence import losses_of
from likewise.curate.audit.label_probability import score_labels
from likewise.curate.audit.label_scores import (
    class_sizes,
    loss_over_time,
    neighbour_vote,
    neighbours,
    rank_by_loss,
    self_gradient,
)
from likewise.curate.audit.records import (
    AuditSplit,
    ClassFindings,
    ExplainedErrors,
    LabelQuality,
    SplitQuality,
    Subject,
    has_own_split,
    to_device,
)
from likewise.curate.audit.weighed_votes import WeighedVotes, weigh_votes
from likewise.data.votes import votes_of
from likewise.labels.class_overlap import ClassOverlap, class_overlap
from likewise.labels.label_evidence import discriminate
from likewise.score.metrics.detection import detection, relabel_accuracy

SCORE_DESCRIPTIONS = {
    "vote": "share of the nearest neighbours' votes for the label",
    "density": "probability of the label by class densities that are fitted without the sample's fold",
    "loss": "share of the training samples with a higher loss",
    "loss_over_time": "share of the training samples with a higher loss, mean over the epochs of training",
    "self_gradient": "share of the training samples with a larger gradient by the head's weights",
    "influence": "share of the training samples with a larger influence on the test errors",
}
"""Single score -> description. All scores are in [0, 1], and low means probably wrong."""


def weigh_subject_votes(subject: Subject, config: Audit) -> WeighedVotes | None:
    """Return the consensus of all audited samples from their votes and features; None without votes."""
    votes = votes_of(subject.items, config.votes)
    if votes is None:
        return None
    rows = torch.cat([one.e.row for one in subject.splits.values()])
    x = label_features(dataclasses.replace(subject, notes=[]), list(subject.splits), rows, config)
    found = weigh_votes(votes, rows.numpy(), subject.items, x, config.seed)
    if found is None:
        few = "the data has one class" if subject.items.classes < 2 else "they are about samples that are not audited"
        subject.notes.append(f"the votes are not used: {few}")
    return found


def score_splits(
    subject: Subject, explained: ExplainedErrors, config: Audit, weighed: WeighedVotes | None = None
) -> dict[str, SplitQuality]:
    """Return the label scores of every split; for samples with votes, the posterior of votes and features.

    Labels are scored against all classes of the data, because an error may cross the splits of a protocol. If the data has a
    split of its own, each of its parts is scored alone: its labels may follow other rules.
    """
    names = list(subject.splits)
    found, blank = {}, blank_rows(subject.items, np.concatenate([one.e.row.numpy() for one in subject.splits.values()]))
    with bar("score labels", len(names), quiet=config.quiet) as progress:
        for some in [[name] for name in names] if has_own_split(subject.items) else [names]:
            found |= score_together(subject, some, explained, config, blank, weighed)
            progress.advance(len(some))
    return found


def score_together(
    subject: Subject,
    names: list[str],
    explained: ExplainedErrors,
    config: Audit,
    blank: dict[int, str],
    weighed: WeighedVotes | None = None,
) -> dict[str, SplitQuality]:
    """Return the label scores of splits whose labels are compared with the classes of all of them.

    Args:
        blank: row of a blank or unreadable image -> reason.
    """
    rows = torch.cat([subject.splits[name].e.row for name in names])
    y = torch.as_tensor(subject.items.y)[rows]
    group = None if subject.items.group is None else torch.as_tensor(subject.items.group)[rows]
    label, place = y.unique(return_inverse=True)
    if len(label) < 2 or len(label) == len(y):
        scored = unscored(y, "there is one class" if len(label) < 2 else "every class has one sample")
        overlap = None
    else:
        x, device = label_features(subject, names, rows, config), subject.device
        on_device = None if group is None else group.to(device)
        part = torch.cat([torch.full((len(subject.splits[name].e.row),), n) for n, name in enumerate(names)])
        scored = score_labels(x.to(device), y.to(device), config.seed, on_device, part.to(device))
        overlap = class_overlap(at_least_float32(x.to(device)), place.to(device), on_device, seed=config.seed)
    scored = scored if weighed is None else weighed.rescore(scored.of(torch.arange(len(y))), rows, y)
    found, start = {}, 0
    for name in names:
        own = torch.arange(start, start + len(subject.splits[name].e.row))
        shows_nothing = {at: blank[row] for at, row in enumerate(rows[own].tolist()) if row in blank}
        mine = scored.of(own).with_off_topic(torch.tensor(list(shows_nothing), dtype=torch.long))
        classes = find_classes(y[own], mine, overlap, label.numpy())
        found[name] = dataclasses.replace(describe_split(subject, name, mine, classes, explained), blank=shows_nothing)
        start += len(own)
    return found


def label_features(subject: Subject, names: list[str], rows: Int[Tensor, "N"], config: Audit) -> Float[Tensor, "N F"]:
    """Return the features to score labels with: the network's, or those from before its training if they explain labels better.

    They are compared on samples that were not trained, if there are such: a network that has learned its labels agrees with them.
    """
    x, before, untrained = subject.features_of(names, rows)
    if before is None:
        return x
    among = untrained if untrained.any() else ~untrained
    y = torch.as_tensor(subject.items.y)[rows][among].unique(return_inverse=True)[1].to(subject.device)
    if int(y.max()) < 1:
        return x
    gain = [explained_gain(t[among].to(subject.device), y, config.seed) for t in (x, before)]
    if gain[1] <= gain[0]:
        return x
    subject.notes.append(
        "labels are scored with the features of the network before training, which explain the labels of "
        f"{'untrained' if untrained.any() else 'all'} samples better "
        f"({gain[1]:.2f} nats per sample; after training {gain[0]:.2f})"
    )
    return before


def explained_gain(x: Float[Tensor, "N F"], y: Int[Tensor, "N"], seed: int) -> float:
    """Return by how much features explain labels better than class frequencies do, in nats per sample."""
    with torch.no_grad(), full_precision_matmul(x):
        return discriminate(at_least_float32(x), y, int(y.max()) + 1, rounds=1, seed=seed)[1].gain


def describe_split(
    subject: Subject, name: str, scored: LabelQuality, classes: ClassFindings, explained: ExplainedErrors
) -> SplitQuality:
    """Return the result of one split, for the training split with scores from losses, gradients and influence."""
    e = to_device(subject.splits[name].e, subject.device)
    single: dict[str, Tensor] = {"vote": neighbour_vote(e.z, e.y)} if int(e.y.max()) > 0 else {}
    single |= scored.single
    if name == "train" and subject.loss is not None and e.e is not None:
        single["loss"] = rank_by_loss(losses_of(subject.loss, e.e, e.y))
        if subject.linear and explained.g is not None and e.f is not None:
            single["self_gradient"] = self_gradient(explained.g, e.f)
        if explained.pull is not None:
            single["influence"] = rank_by_loss(explained.pull)
    if name == "train" and subject.history is not None:
        single["loss_over_time"] = loss_over_time(subject.history)
    single = {k: single[k].cpu().double() for k in SCORE_DESCRIPTIONS if k in single}
    alone = (class_sizes(e.y) == 1).cpu().numpy()
    return SplitQuality(scored, single, neighbours(e.z), classes, alone)


def unscored(y: Int[Tensor, "N"], reason: str) -> LabelQuality:
    """Return the result for labels that cannot be scored at all."""
    nothing = torch.full((len(y),), torch.nan, dtype=torch.float64)
    return LabelQuality(nothing, {}, y, nothing, nothing, math.nan, math.nan, unknown_reason=reason)


def find_classes(
    y: Int[Tensor, "N"], scored: LabelQuality, overlap: ClassOverlap | None, label: Int[np.ndarray, "L"]
) -> ClassFindings:
    """Return for each class where its samples would go, and whether its nearest class is the same under another name.

    An off-topic sample goes nowhere. A class of which no label can be scored has the kind "unknown".
    """
    found = relabel.class_findings(y, scored.suggested.where((scored.score < 0.5) & ~scored.is_off_topic, y))
    if overlap is not None:
        found = relabel.with_overlap(found, overlap, label)
    known = np.isin(found.label, y[~scored.score.isnan()].numpy())
    kind = tuple(
        one if there or one == "merge" else "unknown" for one, there in zip(found.kind, known.tolist(), strict=True)
    )
    of_all, of_touched = (found.of_all, found.of_touched) if known.any() else (math.nan, math.nan)
    return dataclasses.replace(found, kind=kind, of_all=of_all, of_touched=of_touched)


def measure(split: AuditSplit, found: SplitQuality, items: Items) -> dict:
    """Return how well the scores find injected label noise, if the true labels are known.

    No score has used the true labels. Labels without a score are left out of its metrics.
    """
    nothing = {"measured": None, "suggested": None}
    rows = split.e.row.numpy()
    if items.y_clean is None or not (wrong := items.y[rows] != items.y_clean[rows]).any():
        return nothing
    bad, measured = torch.as_tensor(wrong), {}
    for name, score in {"score": found.quality.score, **found.single}.items():
        known = ~score.isnan()
        if bool(bad[known].any()):
            of = bad[known]
            measured[name] = detection(score[known], of)._asdict() | {"share": float(of.double().mean())}
    if "score" not in measured:
        return nothing
    true, given, flagged = torch.as_tensor(items.y_clean[rows]), torch.as_tensor(items.y[rows]), found.flagged
    ours = relabel_accuracy(found.quality.suggested, found.quality.suggested, true, given, flagged)
    among, other = (relabel.suggest(split.e.z, given, foreign=foreign).y for foreign in (False, True))
    theirs = relabel_accuracy(among, other, true, given, flagged)
    return {"measured": measured, "suggested": {"top1": ours.top1, "lenient": theirs.lenient, "votes": theirs.top1}}
