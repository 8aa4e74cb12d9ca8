"""Votes of several workers in an audit: consensus from votes and features, quality of the workers, and their tables."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from likewise.core.files import write_csv
from likewise.core.similarity import at_least_float32, full_precision_matmul
from likewise.core.types import Items, Votes
from likewise.curate.audit.label_probability import LabelQuality
from likewise.curate.audit.read import ConsensusLine, VoteLine
from likewise.labels.ballots import (
    Decided,
    WorkerQuality,
    ballots_of,
    own_probability,
    with_given,
    worker_quality,
    wrong_votes,
)
from likewise.labels.posterior_update import Candidates, keep_candidates
from likewise.labels.vote_evidence import VoteConsensus, find_consensus

VOTE_FILES = ("consensus.csv", "annotators.csv", "annotator_confusions.csv", "annotator_votes.csv")
"""Files of an audit folder with votes."""

WORKER_COLUMNS = ("worker", "votes", "accuracy", "low", "high", "disagreement", "confused", "with", "confused_votes")
"""Columns of annotators.csv."""

CONFUSION_COLUMNS = ("worker", "label", "voted", "votes", "share")
"""Columns of annotator_confusions.csv."""

MIN_LISTED_VOTES = 0.5
"""Smallest estimated number of wrong votes for which a confusion is listed."""


@dataclasses.dataclass(frozen=True, eq=False)
class WeighedVotes:
    """Posterior of every audited sample from its votes and the features, and the quality of the workers."""

    row: Int[np.ndarray, "N"]  # audited rows of the data
    votes: Votes  # rows count the audited samples from 0; samples without votes are completed with their given label
    voted: np.ndarray  # whether the sample has votes of workers
    found: VoteConsensus
    decided: Decided
    quality: WorkerQuality

    @property
    def uses_features(self) -> bool:
        return self.found.features is not None

    def rescore(self, scored: LabelQuality, rows: Int[Tensor, "n"], y: Int[Tensor, "n"]) -> LabelQuality:
        """Return the label scores with those of voted samples replaced by the posterior of votes and features.

        Args:
            rows: rows of the data that were scored.
            y: their given labels.
        """
        place = np.full(int(self.row.max()) + 1, -1)
        place[self.row] = np.arange(len(self.row))
        at = torch.as_tensor(place[rows.numpy()])
        mine, columns = torch.as_tensor(self.voted)[at], self.found.votes.columns
        q, label = with_given(self.found.q[at], y, None if columns is None else columns.of(at))
        place = y if label is None else torch.zeros_like(y)
        own = q.gather(1, place[:, None])[:, 0]
        top = q.scatter(1, place[:, None], -1).topk(min(2, q.shape[1] - 1), 1)
        suggested = top.indices[:, 0] if label is None else label.gather(1, top.indices[:, :1])[:, 0]
        wrong = (1 - own).clamp_min(1e-12)
        second = top.values[:, 1] if top.values.shape[1] > 1 else torch.zeros_like(own)
        sure = (top.values[:, 0] / wrong).clamp(0, 1)
        outside = scored.is_off_topic
        score = torch.where(outside, torch.minimum(own, scored.score.nan_to_num(1.0)), own)
        unknown, candidates = scored.score.isnan() & ~mine, scored.candidates
        if candidates is not None:
            kept = keep_candidates(q, place, candidates.label.shape[1])
            kept = kept if label is None else kept._replace(label=label.gather(1, kept.label))
            pairs = zip(kept, candidates)
            candidates = Candidates(*(torch.where(mine[:, None], new.to(old), old) for new, old in pairs))
        return dataclasses.replace(
            scored, score=score.where(mine, scored.score), suggested=suggested.where(mine, scored.suggested),
            confidence=sure.where(mine, scored.confidence),
            margin=(sure - second / wrong).clamp(0, 1).where(mine, scored.margin), unknown=unknown, candidates=candidates,
            unknown_reason=scored.unknown_reason if bool(unknown.any()) else "",
        )  # fmt: skip

    def summary(self, items: Items) -> dict:
        """Return what audit.json has about the votes."""
        label, voted = self.decided.label.numpy(), self.voted
        several = (self.found.votes.size > 1).numpy() & voted
        agreed = ((self.found.votes.counts > 0).sum(1) == 1).numpy()
        return {
            "votes": int(np.isin(self.votes.row, np.flatnonzero(voted)).sum()), "samples": int(voted.sum()),
            "workers": len(self.votes.worker_name), "without_votes": int((~voted).sum()),
            "disputed": int((several & ~agreed).sum()), "several": int(several.sum()),
            "changed": int((voted & (label != items.y[self.row])).sum()),
            "undecided": int((voted & self.decided.undecided.numpy()).sum()),
            "expected_wrong": float(self.decided.wrong.numpy()[voted].sum()), "features": self.uses_features,
            "exchanged": [items.class_name[c] for c in self.found.model.swapped.nonzero()[:, 0].tolist()],
        }  # fmt: skip


def weigh_votes(
    votes: Votes, rows: Int[np.ndarray, "N"], items: Items, x: Float[Tensor, "N F"], seed: int = 0
) -> WeighedVotes | None:
    """Return the consensus of the audited rows; None if none of them has a vote, or there is one class.

    Args:
        votes: votes about rows of the data.
        rows: the audited rows.
        x: their features.
    """
    mine = votes.among(rows)
    if not len(mine.row) or items.classes < 2:
        return None
    voted = np.zeros(len(rows), bool)
    voted[mine.row] = True
    mine = mine.completed(items.y[rows])
    ballots = ballots_of(mine, len(rows), items.classes)
    group = None if items.group is None else torch.as_tensor(items.group[rows])
    x = at_least_float32(x.cpu())
    with torch.no_grad(), full_precision_matmul(x):
        found = find_consensus(x, ballots, seed=seed, group=group)
        decided, quality = found.votes.decided(found.q), worker_quality(found.votes, found.q)
    return WeighedVotes(rows, mine, voted, found, decided, quality)


def write_votes(folder: Path, weighed: WeighedVotes, items: Items) -> None:
    """Write the tables of consensus, workers, their confusions and votes."""
    heads = (ConsensusLine._fields, WORKER_COLUMNS, CONFUSION_COLUMNS, VoteLine._fields)
    makers = (consensus_lines, worker_lines, confusion_lines, vote_lines)
    for name, head, lines in zip(VOTE_FILES, heads, makers, strict=True):
        write_csv(folder / name, head, lines(weighed, items))


def consensus_lines(weighed: WeighedVotes, items: Items) -> Iterable[list]:
    """Yield the lines of consensus.csv: disagreements first, by the probability that the given label is wrong."""
    names, votes, y = items.class_name, weighed.found.votes, items.y[weighed.row]
    label, wrong, undecided = (t.numpy() for t in weighed.decided)
    own = own_probability(weighed.found.q, torch.as_tensor(y), votes.columns).numpy()
    count, size = votes.counts.numpy(), votes.size.tolist()
    several = (count > 0).sum(1) > 1
    number = None if votes.columns is None else votes.columns.label.numpy()
    for at in np.lexsort((own, ~(several | (label != y)))).tolist():
        if not weighed.voted[at]:
            continue
        row, place = int(weighed.row[at]), np.flatnonzero(count[at])
        voted = place if number is None else number[at, place]
        times = dict(zip(voted.tolist(), count[at, place].astype(int).tolist(), strict=True))
        cells = "|".join(f"{names[c]} x {times[c]}" for c in sorted(times, key=lambda c: (-times[c], c)))
        yield [
            row, "" if items.path is None else items.path[row], names[y[at]], names[label[at]], f"{wrong[at]:.6g}",
            state_of(bool(undecided[at]), bool(several[at]), bool(label[at] != y[at])), f"{own[at]:.6g}", size[at],
            times.get(int(label[at]), 0), cells,
        ]  # fmt: skip


def state_of(undecided: bool, several: bool, changed: bool) -> str:
    """Return the state of a sample: whether votes and features decide, and whether they agree with the given label."""
    if undecided:
        return "undecided"
    return "other label" if changed else "votes differ" if several else "agreed"


def worker_lines(weighed: WeighedVotes, items: Items) -> Iterable[list]:
    """Yield the lines of annotators.csv, the least accurate worker first."""
    q, names = weighed.quality, (*items.class_name, "")
    for w in q.accuracy.argsort(stable=True).tolist():
        if q.votes[w]:
            numbers = (f"{float(v[w]):.6g}" if not v[w].isnan() else "" for v in q[1:5])
            source, target = names[int(q.confused_from[w])], names[int(q.confused_to[w])]
            name, times = weighed.votes.worker_name[w], f"{float(q.confused[w]):.4g}"
            yield [name, int(q.votes[w]), *numbers, source, target, times]


def confusion_lines(weighed: WeighedVotes, items: Items) -> Iterable[list]:
    """Yield the lines of annotator_confusions.csv: estimated number of wrong votes, and their share of the votes on the class."""
    votes, names = weighed.found.votes, items.class_name
    pair, true, wrong = wrong_votes(votes, weighed.found.q, MIN_LISTED_VOTES)
    worker, share = votes.pair_worker[pair], weighed.found.model.share(votes, pair, true)
    for at in np.lexsort((-wrong.numpy(), worker.numpy())).tolist():
        voted = [
            weighed.votes.worker_name[int(worker[at])],
            names[int(true[at])],
            names[int(votes.pair_label[pair[at]])],
        ]
        yield [*voted, f"{float(wrong[at]):.4g}", f"{float(share[at]):.4g}"]


def vote_lines(weighed: WeighedVotes, items: Items) -> Iterable[VoteLine]:
    """Yield the lines of annotator_votes.csv in the order of the samples; the worker is empty if it is not known."""
    votes, names = weighed.votes, (*weighed.votes.worker_name, "")
    for at in np.argsort(votes.row, kind="stable").tolist():
        if weighed.voted[votes.row[at]]:
            row = int(weighed.row[votes.row[at]])
            yield VoteLine(row, names[votes.worker[at]], items.class_name[votes.label[at]])
