"""Label scores of all splits: from features and, for the training split, also from the training losses and gradients.

Samples with several labels run through the same steps: only their probabilities come from another model, and the changed sets of
labels become classes. Losses, gradients and findings about classes are for samples with one label.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from PIL import Image
from torch import Tensor

from likewise.core.progress import bar
from likewise.core.settings import Audit
from likewise.core.similarity import at_least_float32, full_precision_matmul
from likewise.core.types import Items
from likewise.curate.audit.copy_evidence import load_image
from likewise.curate.audit.influence import losses_of
from likewise.curate.audit.label_probability import (
    LabelQuality,
    ListedStates,
    class_label_quality,
    joined_states,
    label_set_quality,
)
from likewise.curate.audit.records import (
    AuditSplit,
    ClassFindings,
    ExplainedErrors,
    Kind,
    SplitQuality,
    Subject,
    has_own_split,
    to_device,
)
from likewise.curate.audit.single_scores import (
    STORED_NEIGHBOURS,
    class_sizes,
    loss_over_time,
    nearest_samples,
    neighbour_vote,
    neighbours,
    rank_by_loss,
    self_gradient,
    suggest,
    voting_count,
)
from likewise.curate.audit.weighed_votes import WeighedVotes, weigh_votes
from likewise.data.images import file_of
from likewise.data.label_sets import label_table, sample_labels, set_names
from likewise.data.votes import votes_of
from likewise.labels.candidate_classes import MAX_DENSE_CLASSES
from likewise.labels.class_overlap import ClassOverlap, OverlapState, class_overlap
from likewise.labels.given_sets import GivenSets
from likewise.labels.label_evidence import discriminate, set_evidence, set_selection_gain
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

BLANK_SIDE_PIXELS = 64
"""Side to which an image is reduced before its levels are compared, so that JPEG noise does not count."""
MAX_BLANK_LEVELS = 3.0
"""Largest standard deviation of a colour channel of a blank image, in levels of 255."""
READ_THREADS = 8
"""Threads that read images."""


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
    rows = np.concatenate([one.e.row.numpy() for one in subject.splits.values()])
    found, blank, done = {}, blank_rows(subject.items, rows, config.quiet), 0.0
    with bar("score labels", 100, quiet=config.quiet) as progress:
        for some in scored_together(subject):
            share = sum(len(subject.splits[name].e.row) for name in some) / len(rows)

            def reach(part: float, what: str, done: float = done, share: float = share) -> None:
                progress.reach(done + share * part, what)

            found |= score_together(subject, some, explained, config, blank, reach, weighed)
            done += share
    if subject.items.label_sets is not None:
        subject.notes.append(
            "samples have several labels: missing and superfluous labels are in labels.csv; retrieval errors, their causes, and "
            "classes to merge are not computed, because samples with some labels in common are neither right nor wrong"
        )
    return found


def scored_together(subject: Subject) -> list[list[str]]:
    """Return the names of the splits in lists of those whose labels are compared with each other."""
    names = list(subject.splits)
    return [[name] for name in names] if has_own_split(subject.items) else [names]


def score_together(
    subject: Subject,
    names: list[str],
    explained: ExplainedErrors,
    config: Audit,
    blank: dict[int, str],
    reach: Callable[[float, str], None],
    weighed: WeighedVotes | None = None,
) -> dict[str, SplitQuality]:
    """Return the label scores of splits whose labels are compared with the classes of all of them.

    Args:
        blank: row of a blank or unreadable image -> reason.
        reach: shows the share of the work that is done, and what runs now.
    """
    reach(0, "probabilities")
    rows = torch.cat([subject.splits[name].e.row for name in names])
    y, given, device = torch.as_tensor(subject.items.y)[rows], given_labels(subject.items, rows), subject.device
    group = None if subject.items.group is None else torch.as_tensor(subject.items.group)[rows].to(device)
    label, place = y.unique(return_inverse=True)
    overlap = None
    if subject.items.label_sets is not None:
        x = label_features(subject, names, rows, config)
        scored = label_set_quality(x.to(device), y, given.to(device), config.seed, group)
    elif len(label) < 2 or len(label) == len(y):
        scored = unscored(y, "there is one class" if len(label) < 2 else "every class has one sample")
    else:
        x = label_features(subject, names, rows, config)
        part = torch.cat([torch.full((len(subject.splits[name].e.row),), n) for n, name in enumerate(names)])
        scored = class_label_quality(x.to(device), y.to(device), config.seed, group, part.to(device))
        if scored.search is not None:
            subject.notes.append(str(scored.search))
        reach(0.5, "classes that are one")
        overlap = class_overlap(at_least_float32(x.to(device)), place.to(device), group, seed=config.seed)
    scored = scored if weighed is None else weighed.rescore(scored.of(torch.arange(len(y))), rows, y)
    found, start = {}, 0
    for name in names:
        reach(0.7 + 0.3 * start / len(y), "nearest samples")  # shares of the time, measured with 20,000 samples
        own = torch.arange(start, start + len(subject.splits[name].e.row))
        shows_nothing = {at: blank[row] for at, row in enumerate(rows[own].tolist()) if row in blank}
        mine = scored.of(own).with_off_topic(torch.tensor(list(shows_nothing), dtype=torch.long))
        if mine.states is None:
            classes = find_classes(y[own], mine, overlap, label.numpy())
            split = describe_split(subject, name, mine, classes, explained)
        else:
            near = neighbours(subject.splits[name].e.z.to(device))
            split = SplitQuality(mine, {}, near, no_classes(), np.zeros(len(own), bool))
        found[name] = dataclasses.replace(split, blank=shows_nothing)
        start += len(own)
    reach(1, "")
    return found


def blank_reason(image: Image.Image | None) -> str | None:
    """Return why an image shows nothing: "unreadable image", "blank image" or "half blank image"; None if it shows something.

    An image is half blank if all rows of its lower half are blank, as in a truncated file that a reader has filled up.
    """
    if image is None:
        return "unreadable image"
    small = np.asarray(
        image.convert("RGB").resize((BLANK_SIDE_PIXELS, BLANK_SIDE_PIXELS), Image.Resampling.BOX), np.float64
    )
    if is_blank(small):
        return "blank image"
    return "half blank image" if is_blank(small[BLANK_SIDE_PIXELS // 2 :], exact=True) else None


def is_blank(levels: np.ndarray, exact: bool = False) -> bool:
    """Return whether pixels (rows, columns, channels) are nearly constant, or, if `exact`, equal."""
    return bool(levels.std((0, 1)).max() <= (0 if exact else MAX_BLANK_LEVELS))


def blank_images(
    image: Callable[[int], Image.Image | None], count: int, seen: Callable[[], None] = lambda: None
) -> dict[int, str]:
    """Return the reason of every sample that shows nothing.

    Args:
        image: returns the image of a sample, or None if it cannot be read; called from threads.
        count: number of samples.
        seen: called after every image.
    """
    found = {}
    with ThreadPoolExecutor(READ_THREADS) as pool:
        for row, reason in enumerate(pool.map(lambda row: blank_reason(image(row)), range(count))):
            seen()
            if reason is not None:
                found[row] = reason
    return found


def blank_rows(items: Items, rows: Int[np.ndarray, "N"], quiet: bool) -> dict[int, str]:
    """Return the reason of every row whose image is blank or unreadable; a sample whose file is missing is left out.

    A half blank image is not among them: it may show an object in its upper half.
    """
    there = [] if items.path is None else [row for row in rows.tolist() if os.path.exists(file_of(items, row))]
    with bar("find blank images", len(there), quiet=quiet) as progress:
        found = blank_images(lambda place: load_image(items, there[place]), len(there), progress.advance)
    return {there[place]: reason for place, reason in found.items() if reason != "half blank image"}


def given_labels(items: Items, rows: Int[Tensor, "N"]) -> Int[Tensor, "N"] | Bool[Tensor, "N L"] | GivenSets:
    """Return the class of every row; for samples with several labels, whether each row has each label.

    Of more than `MAX_DENSE_CLASSES` labels, they are lists.
    """
    y = torch.as_tensor(items.y)[rows]
    if items.label_sets is None or items.label_name is None:
        return y
    if len(items.label_name) <= MAX_DENSE_CLASSES:
        return torch.as_tensor(label_table(items.label_sets, len(items.label_name)))[y]
    sample, label = sample_labels(items, y.numpy())
    order = np.lexsort((label, sample))
    size = torch.bincount(torch.as_tensor(sample), minlength=len(y))
    return GivenSets(torch.as_tensor(label[order]), size, len(items.label_name))


def label_features(subject: Subject, names: list[str], rows: Int[Tensor, "N"], config: Audit) -> Float[Tensor, "N F"]:
    """Return the features to score labels with: the network's, or those from before its training if they explain labels better.

    They are compared on samples that were not trained, if there are such: a network that has learned its labels agrees with them.
    """
    x, before, untrained = subject.features_of(names, rows)
    if before is None:
        return x
    given = given_labels(subject.items, rows)
    several = subject.items.label_sets is not None
    enough = int(untrained.sum()) > (2 if several else 0)
    among = untrained if enough else torch.ones_like(untrained)
    labels = (given.of(among) if isinstance(given, GivenSets) else given[among]).to(subject.device)
    if isinstance(labels, Tensor) and not several and len(labels.unique()) < 2:
        return x
    gain = [explained_gain(t[among].to(subject.device), labels, config.seed) for t in (x, before)]
    if gain[1] <= gain[0]:
        return x
    subject.notes.append(
        "labels are scored with the features of the network before training, which explain the labels of "
        f"{'untrained' if enough else 'all'} samples better "
        f"(gain in mean log-likelihood {gain[1]:.2f}; after training {gain[0]:.2f})"
    )
    return before


def explained_gain(
    x: Float[Tensor, "N F"], given: Int[Tensor, "N"] | Bool[Tensor, "N L"] | GivenSets, seed: int
) -> float:
    """Return by how much features explain the given labels better than their frequencies do, in nats per sample."""
    x = at_least_float32(x)
    with torch.no_grad(), full_precision_matmul(x):
        if isinstance(given, Tensor) and given.ndim == 1:
            y = given.unique(return_inverse=True)[1]
            return discriminate(x, y, int(y.max()) + 1, rounds=1, seed=seed)[1].gain
        has = given.used() if isinstance(given, GivenSets) else given[:, given.any(0)].float()
        each = set_evidence(x.float(), has, folds=min(10, len(x)), setting=(True, 0.5), seed=seed)
        return set_selection_gain(each, has, seed) / len(x)


def describe_split(
    subject: Subject, name: str, scored: LabelQuality, classes: ClassFindings, explained: ExplainedErrors
) -> SplitQuality:
    """Return the result of one split, for the training split with scores from losses, gradients and influence."""
    e = to_device(subject.splits[name].e, subject.device)
    near = nearest_samples(e.z, max(STORED_NEIGHBOURS, voting_count(e.y)))
    if near.recall < 1:
        subject.notes.append(
            f"nearest neighbours are approximate: the search found {near.recall:.0%} of the exact ones"
        )
    single: dict[str, Tensor] = {"vote": neighbour_vote(e.z, e.y, known=near)} if int(e.y.max()) > 0 else {}
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
    return SplitQuality(scored, single, neighbours(e.z, near), classes, alone)


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
    found = class_findings(y, scored.suggested.where((scored.score < 0.5) & ~scored.is_off_topic, y))
    if overlap is not None:
        found = with_overlap(found, overlap, label)
    known = np.isin(found.label, y[~scored.score.isnan()].numpy())
    kind = tuple(
        one if there or one == "merge" else "unknown" for one, there in zip(found.kind, known.tolist(), strict=True)
    )
    of_all, of_touched = (found.of_all, found.of_touched) if known.any() else (math.nan, math.nan)
    return dataclasses.replace(found, kind=kind, of_all=of_all, of_touched=of_touched)


def class_findings(
    y: Int[Tensor, "N"], suggested: Int[Tensor, "N"], many: float = 0.1, spread: float = 0.35
) -> ClassFindings:
    """Return which classes should be merged and which are diffuse, from the suggested labels of their samples.

    Args:
        suggested: a label for every sample, the own label among the candidates: `suggest(z, y, foreign=False).y`.
        many: share of a class that must leave it for a finding about the class, and at least two samples.
        spread: maximum entropy of the suggested labels for a merge into one class. Both defaults are the paper's.
    """
    given, wanted = y.cpu().numpy(), suggested.cpu().numpy()
    label, own, size = np.unique(given, return_inverse=True, return_counts=True)
    away = wanted != given
    moved = np.bincount(own[away], minlength=len(label))
    (leaving, goal), count = np.unique(np.stack([own[away], wanted[away]]), axis=1, return_counts=True)
    share = count / moved[leaving]
    entropy = np.bincount(leaving, -share * np.log(share), len(label)) + 0.0
    target = np.full(len(label), -1)
    order = np.lexsort((-goal, count))
    target[leaving[order]] = goal[order]  # later entries overwrite earlier ones
    big = (moved >= many * size) & (moved >= 2)
    kind = np.select([moved == 0, ~big, entropy <= spread], ["clean", "individual", "merge"], "diffuse")
    touched = size[moved > 0].sum()
    of_touched = float(away.sum() / touched) if touched else 0.0
    return ClassFindings(label, size, moved, target, entropy, tuple(kind.tolist()), float(away.mean()), of_touched)


def with_overlap(found: ClassFindings, overlap: ClassOverlap, label: Int[np.ndarray, "L"]) -> ClassFindings:
    """Return the findings with the partner, overlap and state of each class; only these make a "merge".

    Args:
        overlap: of the classes numbered by their place in `label`, which may have more classes than `found`.
    """
    first, second, chance = (t.cpu().numpy() for t in (overlap.first, overlap.second, overlap.probability))
    rank = np.nan_to_num(chance) + np.array([{"merge": 2, "unknown": 1}.get(one, 0) for one in overlap.state])
    order = np.argsort(np.tile(rank, 2), kind="stable")  # later entries overwrite earlier ones
    pair, partner = np.full((2, len(label)), -1)
    mine, other = np.append(first, second)[order], np.append(second, first)[order]
    pair[mine], partner[mine] = order % max(1, len(first)), label[other]
    own = np.searchsorted(label, found.label)
    pair, partner = pair[own], partner[own]
    state: tuple[OverlapState, ...] = tuple(overlap.state[at] if at >= 0 else "unknown" for at in pair.tolist())
    shown = np.array([np.nan if one == "unknown" else chance[at] for one, at in zip(state, pair)])
    kind: list[Kind] = ["mixed" if one == "merge" else one for one in found.kind]
    kind = ["merge" if one == "merge" else old for one, old in zip(state, kind, strict=True)]
    return dataclasses.replace(found, partner=partner, overlap=shown, state=state, kind=tuple(kind))


def no_classes() -> ClassFindings:
    """Return findings about no class: classes that are sets of labels are not merged."""
    none = np.zeros(0, int)
    return ClassFindings(none, none, none, none, np.zeros(0), (), math.nan, math.nan)


def with_suggested_sets(subject: Subject, quality: dict[str, SplitQuality]) -> tuple[Subject, dict[str, SplitQuality]]:
    """Return the subject with the suggested label sets as further classes, and the label scores with their numbers.

    Samples with one label are returned as they are. A sample from which all labels would be taken keeps its set: it is to be
    reviewed, and no set can be suggested.
    """
    items = subject.items
    if items.label_sets is None or items.label_name is None:
        return subject, quality
    number = {one: place for place, one in enumerate(items.label_sets)}
    found = {}
    for name, split in quality.items():
        states, suggested = split.quality.states, split.quality.suggested.clone()
        assert states is not None
        for place, one in states.suggested():
            if one:
                suggested[place] = number.setdefault(one, len(number))
        found[name] = dataclasses.replace(split, quality=dataclasses.replace(split.quality, suggested=suggested))
    sets = tuple(number)
    names = (*items.class_name, *set_names(sets[items.classes :], items.label_name))
    return dataclasses.replace(subject, items=dataclasses.replace(items, label_sets=sets, class_name=names)), found


class ScoredSets(NamedTuple):
    """Rows of the data that were scored together, their embeddings, and their single labels."""

    row: Int[Tensor, "n"]
    z: Float[Tensor, "n D"]
    states: ListedStates


def scored_sets(subject: Subject, quality: dict[str, SplitQuality]) -> list[ScoredSets]:
    """Return the single labels of samples with several labels, by the splits that were scored together."""
    found = []
    for names in scored_together(subject):
        parts = [subject.splits[name].e for name in names]
        states = [one for name in names if (one := quality[name].quality.states) is not None]
        whole = joined_states(states)
        found.append(ScoredSets(torch.cat([e.row for e in parts]), torch.cat([e.z for e in parts]), whole))
    return found


def label_facts(found: list[ScoredSets], names: tuple[str, ...]) -> list[dict]:
    """Return for every label and part: number of samples, estimated shares, flagged states, and why it is unknown."""
    facts = []
    for _, _, states in found:
        kinds = (states.has, states.flagged & ~states.has, states.flagged & states.has)
        size, missing, superfluous = (
            torch.bincount(states.label[some], minlength=len(states.missing)).tolist() for some in kinds
        )
        rates = zip(states.missing.tolist(), states.superfluous.tolist(), strict=True)
        for n, (m, s) in enumerate(rates):
            facts.append({
                "label": names[n], "size": size[n], "missing_rate": m, "superfluous_rate": s, "missing": missing[n],
                "superfluous": superfluous[n], "unknown": states.reason[n],
            })  # fmt: skip
    return facts


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
    among, other = (suggest(split.e.z, given, foreign=foreign).y for foreign in (False, True))
    theirs = relabel_accuracy(among, other, true, given, flagged)
    return {"measured": measured, "suggested": {"top1": ours.top1, "lenient": theirs.lenient, "votes": theirs.top1}}
