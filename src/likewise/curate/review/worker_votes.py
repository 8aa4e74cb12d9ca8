"""Votes of workers on the review page: those about a sample, its consensus, and the quality of the workers."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from likewise.curate.audit.read_votes import read_consensus, read_votes, read_workers

MAX_LISTED_WORKERS = 50
"""Maximum number of workers that the page lists, the least accurate first."""


class WorkerVotes:
    """The votes in the folder of an audit; None, or a folder without votes: there are none."""

    def __init__(self, folder: Path | None):
        self.votes: dict[int, list[dict]] = defaultdict(list)
        for one in [] if folder is None else read_votes(folder):
            self.votes[one.row].append({"worker": one.worker, "label": one.label})
        self.consensus = {} if folder is None else {one.row: one for one in read_consensus(folder)}
        workers = [] if folder is None else read_workers(folder)
        self.workers = [{**one._asdict(), "confusion": one.confusion} for one in workers[:MAX_LISTED_WORKERS]]

    def about(self, row: int) -> dict:
        """Return the votes about a sample, and its consensus with the estimated chance that it is wrong; None: no votes."""
        one = self.consensus.get(row)
        if one is None:
            return {"votes": self.votes.get(row, []), "consensus": None}
        names = ("state", "wrong", "votes", "for_consensus")
        found = {"label": one.consensus, **{name: getattr(one, name) for name in names}}
        return {"votes": self.votes.get(row, []), "consensus": found}
