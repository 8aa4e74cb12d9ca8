"""Scores of embeddings that were not evaluated."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import torch

from likewise.core.devices import choose_device
from likewise.core.settings import Evaluate, Report, Train
from likewise.core.types import Embedded, LikewiseError
from likewise.report.target import ReportTarget
from likewise.runs.dataset import make_protocol, protocol_for
from likewise.runs.per_query import PerQuery
from likewise.score.metrics import reach
from likewise.score.retrieve import Scoring, count_relevant_rows, max_results

NO_TEST_SPLIT_NOTE = "it was trained on all data, so there is no test split to score"
"""Note on a run whose protocol has no test split."""


def is_tested(settings: Train) -> bool:
    """Return whether the protocol of a run has a test split; True for a protocol that may not be imported."""
    try:
        return make_protocol(settings).has_test_split
    except LikewiseError:
        return True


def score_now(one: ReportTarget, config: Report) -> ReportTarget:
    """Return the target with the scores and queries that `likewise evaluate` would compute.

    Without a test split or without relevant rows, the target gets a note instead.
    """
    from likewise.score.checks import check_length
    from likewise.score.scoring import score_all

    items, row = one.items, one.row
    assert items is not None and items.x is not None and row is not None
    protocol, place = protocol_for(items), np.arange(len(items))
    if one.settings is not None and not is_tested(one.settings):
        return dataclasses.replace(one, notes=(*one.notes, NO_TEST_SPLIT_NOTE))
    defaults: Any = next(f.default for f in dataclasses.fields(Evaluate) if f.name == "metrics")
    largest_k = max_results(*one.query_gallery)
    metrics = [name for name in defaults if reach([name]).k <= largest_k]
    if not metrics or len(np.unique(items.y)) < 2 or not count_relevant_rows(items, protocol, place).any():
        return dataclasses.replace(
            one, notes=(*one.notes, "no query has a relevant gallery row, so there are no scores")
        )
    x = items.x if items.x.flags.writeable else items.x.copy()  # torch warns about read-only arrays
    e = Embedded(torch.as_tensor(x), torch.as_tensor(items.y), torch.as_tensor(place))
    check_length(e.z, one.similarity == "cosine")
    scoring = Scoring(items, protocol, metrics, one.similarity, choose_device(config.device), config.quiet)
    scores, each, found = score_all(e, scoring)
    assert found is not None
    near = found.row.cpu().numpy()
    queries = PerQuery(
        row[each.query], each.label, np.asarray(items.class_name)[each.label], found.relevant.cpu().numpy(), each.each,
        np.where(near >= 0, row[near], -1), found.sim.cpu().double().numpy(),
        relevance=each.relevance,
    )  # fmt: skip
    return dataclasses.replace(one, queries=queries, scores=scores)
