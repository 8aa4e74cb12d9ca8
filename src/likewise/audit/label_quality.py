"""Label scores of one split: from its embeddings and, for the training split, also from the training losses and gradients."""

from __future__ import annotations

import dataclasses

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from likewise.audit import relabel
from likewise.audit.influence import losses_of
from likewise.audit.label_quality_ensemble import score_labels
from likewise.audit.label_scores import class_sizes, loss_over_time, neighbour_vote, rank_by_loss, self_gradient
from likewise.audit.records import AuditSplit, ExplainedErrors, LabelQuality, SplitQuality, Subject, to_device
from likewise.config import Audit
from likewise.metrics.detection import detection, relabel_accuracy
from likewise.numerics.off_topic import off_topic
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
    if int(e.y.max()) < 1 or not bool((class_sizes(e.y) > 1).any()):
        what = "has one class" if int(e.y.max()) < 1 else "has one sample per class"
        subject.notes.append(f"the {name} split {what}, so its labels cannot be scored")
        half = torch.full((len(e.y),), 0.5, dtype=torch.float64)
        y = e.y.cpu()
        return SplitQuality(
            LabelQuality(half, {}, y, half, half, 0.0, 0.0), {}, near, relabel.class_findings(y, y), 0.0
        )
    scored = score_labels(e.z, e.y, e.f, seed=config.seed)
    outside = off_topic(e.z if e.f is None else e.f, e.y, int(e.y.max()) + 1, config.seed).probability
    scored = dataclasses.replace(scored, off_topic=outside)
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
    scored = dataclasses.replace(
        scored,
        **{
            k: v.cpu()
            for k in ("score", "suggested", "confidence", "margin", "off_topic")
            for v in [getattr(scored, k)]
        },
    )
    wrong = float((1 - scored.score)[class_sizes(e.y).cpu() > 1].sum())
    y = e.y.cpu()
    classes = relabel.class_findings(y, scored.suggested.where(scored.score < 0.5, y))
    return SplitQuality(
        scored, {k: single[k].cpu().double() for k in SCORE_DESCRIPTIONS if k in single}, near, classes, wrong
    )


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

    No score has used the true labels.
    """
    nothing = {"measured": None, "suggested": None}
    rows = split.e.row.numpy()
    if items.y_clean is None or not (wrong := items.y[rows] != items.y_clean[rows]).any():
        return nothing
    bad = torch.as_tensor(wrong)
    every = {"score": found.quality.score, **found.single}
    measured = {
        name: detection(score, bad)._asdict() | {"share": float(bad.double().mean())} for name, score in every.items()
    }
    number = {name: c for c, name in enumerate(split.names)}
    true = torch.tensor([number.get(items.class_name[c], -1) for c in items.y_clean[rows]])
    flagged = found.flagged
    ours = relabel_accuracy(found.quality.suggested, found.quality.suggested, true, split.e.y, flagged)
    among, other = (relabel.suggest(split.e.z, split.e.y, foreign=foreign).y for foreign in (False, True))
    theirs = relabel_accuracy(among, other, true, split.e.y, flagged)
    return {"measured": measured, "suggested": {"top1": ours.top1, "lenient": theirs.lenient, "votes": theirs.top1}}
