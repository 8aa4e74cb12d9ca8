"""Labels of a part, judged: by the part itself, and in training data by what training made of them."""

from __future__ import annotations

import dataclasses

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from likewise.audit import relabel
from likewise.audit.influence import losses_of
from likewise.audit.label_quality_ensemble import judge
from likewise.audit.label_scores import by_loss, class_sizes, loss_over_time, neighbour_vote, self_gradient
from likewise.audit.records import Explained, Judged, Part, Subject, Verdicts, moved
from likewise.config import Audit
from likewise.metrics.detection import detection, relabel_accuracy
from likewise.retrieval.ranking import nearest
from likewise.types import Items

NEAR = 6
"""Neighbours that are kept of each sample."""

SCORES = {
    "vote": "share of its nearest neighbours' votes for the label",
    "centre": "how much nearer the centre of its class is than the best other one, in the embedding",
    "centres": "chance that the label is right, by the centres of classes among the features",
    "discriminants": "chance that the label is right, by linear discriminants that never saw it",
    "regression": "how far the label is ahead in a logistic regression that never saw it",
    "loss": "share of the training samples with a higher loss",
    "loss_over_time": "the same, as a mean over the passes of the training",
    "self_gradient": "share of the training samples that pull harder at the head",
    "influence": "share of the training samples that pull harder at the test errors",
}
"""Single scores, all in [0, 1] and low = suspect."""


def judge_part(subject: Subject, name: str, explained: Explained, config: Audit) -> Verdicts:
    """Every label of a part, by the part itself; of the train split also by what training made of it."""
    e = moved(subject.part[name].e, subject.device)
    near = neighbours(e.z)
    if int(e.y.max()) < 1 or not bool((class_sizes(e.y) > 1).any()):
        what = "holds one class" if int(e.y.max()) < 1 else "holds one sample a class"
        subject.notes.append(f"the {name} part {what}, so its labels cannot be judged")
        half = torch.full((len(e.y),), 0.5, dtype=torch.float64)
        y = e.y.cpu()
        return Verdicts(Judged(half, {}, y, half, half, 0.0, 0.0), {}, near, relabel.class_findings(y, y), 0.0)
    judged = judge(e.z, e.y, e.f, seed=config.seed)
    if judged.silent:
        subject.notes.append(f"in the {name} part features do not tell classes apart, so hardly a label is doubted")
    single = {"vote": neighbour_vote(e.z, e.y), **shares_of(judged.single)}
    if name == "train" and subject.loss is not None and e.e is not None:
        single["loss"] = by_loss(losses_of(subject.loss, e.e, e.y))
        if subject.linear and explained.g is not None and e.f is not None:
            single["self_gradient"] = self_gradient(explained.g, e.f)
        if explained.pull is not None:
            single["influence"] = by_loss(explained.pull)
    if name == "train" and subject.history is not None:
        single["loss_over_time"] = loss_over_time(subject.history)
    judged = dataclasses.replace(
        judged, **{k: v.cpu() for k in ("score", "suggested", "confidence", "margin") for v in [getattr(judged, k)]}
    )
    wrong = float((1 - judged.score)[class_sizes(e.y).cpu() > 1].sum())
    y = e.y.cpu()
    classes = relabel.class_findings(y, judged.suggested.where(judged.score < 0.5, y))
    return Verdicts(judged, {k: single[k].cpu().double() for k in SCORES if k in single}, near, classes, wrong)


def neighbours(z: Float[Tensor, "N D"]) -> Int[np.ndarray, "N K"]:
    k = min(NEAR, len(z) - 1)
    near = nearest(z, z, k, own=torch.arange(len(z), device=z.device))[0].cpu().numpy() if k else np.zeros((1, 0), int)
    return np.pad(near, ((0, 0), (0, NEAR - k)), constant_values=-1)


def shares_of(single: dict[str, Float[Tensor, "N"]]) -> dict[str, Float[Tensor, "N"]]:
    """The members of the evidence as numbers in [0, 1]: differences of cosines stretched, log odds and margins as chances."""
    return {k: (2 + v) / 4 if k == "centre" else torch.sigmoid(v) for k, v in single.items()}


def measure(part: Part, found: Verdicts, items: Items) -> dict:
    """How well the scores find what was spoiled on purpose, where that is known. Nothing above has seen it."""
    nothing = {"measured": None, "suggested": None}
    rows = part.e.row.numpy()
    if items.y_clean is None or not (wrong := items.y[rows] != items.y_clean[rows]).any():
        return nothing
    bad = torch.as_tensor(wrong)
    every = {"score": found.judged.score, **found.single}
    measured = {
        name: detection(score, bad)._asdict() | {"share": float(bad.double().mean())} for name, score in every.items()
    }
    number = {name: c for c, name in enumerate(part.names)}
    true = torch.tensor([number.get(items.class_name[c], -1) for c in items.y_clean[rows]])
    flagged = found.flagged
    ours = relabel_accuracy(found.judged.suggested, found.judged.suggested, true, part.e.y, flagged)
    among, foreign = (relabel.suggest(part.e.z, part.e.y, foreign=way).y for way in (False, True))
    theirs = relabel_accuracy(among, foreign, true, part.e.y, flagged)
    return {"measured": measured, "suggested": {"top1": ours.top1, "lenient": theirs.lenient, "votes": theirs.top1}}
