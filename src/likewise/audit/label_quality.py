"""Label scores of one split: from its embeddings and, for the training split, also from the training losses and gradients."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from likewise.audit import relabel
from likewise.audit.influence import losses_of
from likewise.audit.label_quality_ensemble import score_labels
from likewise.audit.label_scores import class_sizes, loss_over_time, neighbour_vote, rank_by_loss, self_gradient
from likewise.audit.records import (
    AuditSplit,
    ClassFindings,
    ExplainedErrors,
    LabelQuality,
    SplitQuality,
    Subject,
    to_device,
)
from likewise.config import Audit
from likewise.metrics.detection import detection, relabel_accuracy
from likewise.retrieval.ranking import nearest
from likewise.types import Items

STORED_NEIGHBOURS = 6
"""Number of nearest neighbours that are stored for each sample."""

SCORE_DESCRIPTIONS = {
    "vote": "share of the nearest neighbours' votes for the label",
    "centre": "cosine to the centre of the class minus the highest cosine to another centre, in the embedding",
    "centres": "probability that the label is right, by class centres of the features",
    "discriminants": "probability that the label is right, by linear discriminants fitted without the sample",
    "regression": "margin of the label in a logistic regression fitted without the sample",
    "loss": "share of the training samples with a higher loss",
    "loss_over_time": "share of the training samples with a higher loss, mean over the epochs of training",
    "self_gradient": "share of the training samples with a larger gradient by the head's weights",
    "influence": "share of the training samples with a larger influence on the test errors",
}
"""Single score -> description. All scores are in [0, 1], and low means probably wrong."""


def score_split(subject: Subject, name: str, explained: ExplainedErrors, config: Audit) -> SplitQuality:
    """Return the label scores of a split; for the training split also scores from losses, gradients and influence."""
    e = to_device(subject.splits[name].e, subject.device)
    near = neighbours(e.z)
    alone = (class_sizes(e.y) == 1).cpu().numpy()
    if int(e.y.max()) < 1 or alone.all():
        scored = unscored(e.y.cpu(), "the split has one class" if int(e.y.max()) < 1 else "every class has one sample")
        classes = mark_unknown(relabel.class_findings(scored.suggested, scored.suggested), e.y.cpu(), scored)
        return SplitQuality(scored, {}, near, classes, alone)
    scored = score_labels(e.z, e.y, e.f, seed=config.seed)
    if scored.uninformative:
        subject.notes.append(
            f"in the {name} split the features do not separate the classes, so hardly any label is flagged"
        )
    single = {"vote": neighbour_vote(e.z, e.y), **to_unit_interval(scored.single)}
    if name == "train" and subject.loss is not None and e.e is not None:
        single["loss"] = rank_by_loss(losses_of(subject.loss, e.e, e.y))
        if subject.linear and explained.g is not None and e.f is not None:
            single["self_gradient"] = self_gradient(explained.g, e.f)
        if explained.pull is not None:
            single["influence"] = rank_by_loss(explained.pull)
    if name == "train" and subject.history is not None:
        single["loss_over_time"] = loss_over_time(subject.history)
    scored = dataclasses.replace(scored, **on_cpu(scored))
    assert scored.unknown is not None
    scored = dataclasses.replace(scored, unknown=scored.unknown | torch.as_tensor(alone))
    if (off := scored.off_topic) is not None:  # the label of an image that fits no class cannot be right
        bounded = torch.minimum(scored.score, 1 - off.to(scored.score.dtype))
        scored = dataclasses.replace(scored, score=scored.score.where(off < 0.5, bounded))
    y = e.y.cpu()
    classes = mark_unknown(relabel.class_findings(y, scored.suggested.where(scored.score < 0.5, y)), y, scored)
    single = {k: single[k].cpu().double() for k in SCORE_DESCRIPTIONS if k in single}
    return SplitQuality(scored, single, near, classes, alone)


def on_cpu(scored: LabelQuality) -> dict[str, Tensor]:
    """Return the tensors with one entry per sample, on the CPU."""
    names = ("score", "suggested", "confidence", "margin", "unknown", "off_topic")
    return {name: value.cpu() for name in names if (value := getattr(scored, name)) is not None}


def unscored(y: Int[Tensor, "N"], reason: str) -> LabelQuality:
    """Return the result for labels that cannot be scored at all."""
    nothing = torch.full((len(y),), torch.nan, dtype=torch.float64)
    return LabelQuality(nothing, {}, y, nothing, nothing, math.nan, math.nan, unknown_reason=reason)


def mark_unknown(classes: ClassFindings, y: Int[Tensor, "N"], scored: LabelQuality) -> ClassFindings:
    """Return the findings with the kind "unknown" for classes of which no label can be scored."""
    known = np.isin(classes.label, y[~scored.score.isnan()].numpy())
    kind = tuple(one if there else "unknown" for one, there in zip(classes.kind, known.tolist(), strict=True))
    of_all, of_touched = (classes.of_all, classes.of_touched) if known.any() else (math.nan, math.nan)
    return dataclasses.replace(classes, kind=kind, of_all=of_all, of_touched=of_touched)


def neighbours(z: Float[Tensor, "N D"]) -> Int[np.ndarray, "N K"]:
    """Return the positions of the nearest neighbours of every sample, padded with -1."""
    k = min(STORED_NEIGHBOURS, len(z) - 1)
    near = nearest(z, z, k, own=torch.arange(len(z), device=z.device))[0].cpu().numpy() if k else np.zeros((1, 0), int)
    return np.pad(near, ((0, 0), (0, STORED_NEIGHBOURS - k)), constant_values=-1)


def to_unit_interval(single: dict[str, Float[Tensor, "N"]]) -> dict[str, Float[Tensor, "N"]]:
    """Map scores to [0, 1]: differences of cosines linearly, log odds and margins by a sigmoid."""
    return {k: (2 + v) / 4 if k == "centre" else torch.sigmoid(v) for k, v in single.items()}


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
    number = {name: c for c, name in enumerate(split.names)}
    true = torch.tensor([number.get(items.class_name[c], -1) for c in items.y_clean[rows]])
    flagged = found.flagged
    ours = relabel_accuracy(found.quality.suggested, found.quality.suggested, true, split.e.y, flagged)
    among, other = (relabel.suggest(split.e.z, split.e.y, foreign=foreign).y for foreign in (False, True))
    theirs = relabel_accuracy(among, other, true, split.e.y, flagged)
    return {"measured": measured, "suggested": {"top1": ours.top1, "lenient": theirs.lenient, "votes": theirs.top1}}
