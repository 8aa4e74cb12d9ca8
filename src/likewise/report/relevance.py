"""Relevance of the results of a query, if it is more than right and wrong: of label sets, or as the run was trained."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float, Int

from likewise.core.contracts import Relevance
from likewise.core.types import Items, LikewiseError
from likewise.data.relevance import SharedLabels
from likewise.report.records import PairRelevance
from likewise.report.target import ReportTarget
from likewise.runs.network import make_relevance


def relevance_of(one: ReportTarget) -> PairRelevance | None:
    """Return the relevance of the classes of a target; None if samples have one label and the run has no other relevance.

    A run that was trained with a relevance of classes, such as `TreeDepth`, is shown with it. A relevance of single samples
    (judged pairs) does not apply to the samples of a test, so it is not shown.
    """
    items = one.items
    if items is None:
        return None
    trained = trained_relevance(one, items)
    if trained is None and items.label_sets is not None:
        trained = SharedLabels(items.label_sets)
    return None if trained is None else by_class(trained)


def trained_relevance(one: ReportTarget, items: Items) -> Relevance | None:
    """Return the relevance that a run was trained with, for the classes of the samples shown; None if it cannot be had."""
    if one.settings is None or getattr(one.settings, "relevance", None) is None:
        return None
    taxonomy = items.taxonomy if one.data is None else one.data.taxonomy
    names, labels = items.class_name, np.arange(items.classes)
    facts = {"taxonomy": taxonomy, "class_names": names, "classes": items.classes, "labels": labels, "sample_names": ()}
    facts |= {} if items.label_sets is None else {"label_sets": items.label_sets}
    try:
        found = make_relevance(one.settings, facts)
    except (LikewiseError, TypeError, ValueError):  # made for other samples, or it may not be imported
        return None
    return found if found is not None and found.by == "class" else None


def by_class(relevance: Relevance) -> PairRelevance:
    """Return a relevance of classes as a function of class numbers."""

    def of(label: int, others: Int[np.ndarray, "n"]) -> Float[np.ndarray, "n"]:
        with torch.no_grad():
            return relevance(torch.tensor([label]), torch.as_tensor(others))[0].double().numpy()

    return of
