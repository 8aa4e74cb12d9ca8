"""Facts about samples with several labels each, for tests of the report."""

from dataclasses import replace

import numpy as np
from likewise.relevance import SharedLabels
from report.made_facts import SCRIPT, made_facts

from likewise.report import records as f
from likewise.report.queries import ranked_query
from likewise.report.relevance import by_class
from likewise.report.sections.confusion import Confused, Confusion
from likewise.report.sections.labels import count_labels

NAMES = ("blue", "dress", SCRIPT, "red", "shirt")
SETS = ((1, 3), (0, 1), (2, 3), (0, 4), (1, 2, 3))


def small_pool() -> f.Pool:
    """Six samples: dress red, dress blue, script red, shirt blue, dress script red, dress red."""
    label = np.array([0, 1, 2, 3, 4, 0])
    names = tuple("|".join(NAMES[one] for one in own) for own in SETS)
    return f.Pool("shop", "test", np.arange(6), label, names, (), None, {}, NAMES, SETS)


def label_facts(samples: int = 60, pictures: int = 20) -> f.Facts:
    """Facts of one run on samples with several labels, with galleries, labels, confusions and a map."""
    made = made_facts(samples, len(SETS), pictures)
    names = tuple("|".join(NAMES[one] for one in own) for own in SETS)
    pool = replace(made.pools[0], class_name=names, groupings=(), label_name=NAMES, label_sets=SETS)
    run, relevance = made.runs[0], by_class(SharedLabels(SETS))
    some = list(pool.images)[:8]
    queries = tuple(ranked_query(place, 0.5, pool.label, run.near, run.near_sim, relevance) for place in some)
    lines = count_labels(pool, np.arange(samples), run.near[:, 0])
    confusion = Confusion((Confused(1, 2, 3, 0.2, (some[0], some[1])),), np.array([1, 2]), np.eye(2) * 0.5)
    found = {"map": run.found["map"], "galleries": {"worst": queries, "each label": queries}, "labels": lines,
             "confusion": confusion}  # fmt: skip
    return f.Facts("Shop", (replace(run, found=found),), (pool,))
