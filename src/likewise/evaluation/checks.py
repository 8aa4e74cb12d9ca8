"""What can be scored: the rows of a part, embeddings with a cosine, and metrics that fit the test split."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float, Int

from likewise.config import Train
from likewise.config.spec import spec
from likewise.contracts import Protocol, Split
from likewise.data.leakage import leaks, say_leaks
from likewise.evaluation.answers import answers_for, findable
from likewise.io.progress import bar
from likewise.metrics import admit, measure_set, metric, of_the_set, reach, spectrum
from likewise.types import Items, LikewiseError


def rows_of(protocol: Protocol, items: Items, part: Split) -> Int[np.ndarray, "n"]:
    """Return the rows of a part, which must not be empty."""
    rows = protocol.rows(items, part)
    if part == "test" and not protocol.has_test_split:
        raise LikewiseError(
            f"evaluate: '{items.name}' has no test split, since all of it trained ({spec(protocol)}): there is nothing to score; "
            "train without train=1 to learn how good it is"
        )
    if not len(rows):
        parts = [] if items.split is None else [p for p in ("train", "val", "test") if (items.split == p).any()]
        raise LikewiseError(
            f"evaluate: the {part} split of '{items.name}' is empty; check its `split` column"
            + (f", or say --split {parts[0]}" if parts else "")
        )
    return rows


def check_length(z: Float[torch.Tensor, "N D"], cosine: bool) -> list[float]:
    """Shortest and longest embedding. One of length zero points nowhere, so it has no cosine, where one is wanted."""
    length = torch.cat([part.double().norm(dim=1) for part in z.split(max(1, 2**20 // z.shape[1]))])
    nowhere = (length == 0).nonzero()[:, 0]
    if cosine and len(nowhere):
        raise LikewiseError(
            f"evaluate: an embedding must not be all zeros to have a cosine, but {len(nowhere)} of {len(z)} are "
            f"(first: row {int(nowhere[0])}); leave them out, or say --similarity euclidean and ask for metrics per query"
        )
    return [float(length.min()), float(length.max())]


def check_plan(config: Train, items: Items, protocol: Protocol) -> None:
    """What evaluation will refuse must not surface after hours of training."""
    admit((config.select, *config.metrics), config.allow_imports)
    rows, asked = protocol.rows(items, "test"), [name for name in config.metrics if not of_the_set(name)]
    for name in (config.select, *asked):
        metric(name)
    deepest = reach(asked).k
    if not config.evaluate and not config.test_every:
        return
    if not asked:
        raise LikewiseError("train: evaluating takes at least one metric per query; add R@1, or say --no-evaluate")
    asks, answers = protocol.query_gallery(items, rows)
    classes = len(np.unique(items.y[rows]))
    if classes < 2:
        raise LikewiseError(
            f"train: the test split of '{items.name}' must hold two classes or more, got {classes}; bring more classes, "
            "check the `split` column, or say --no-evaluate"
        )
    room = answers_for(asks, answers)
    if deepest > room:
        raise LikewiseError(
            f"train: the metrics look at {deepest} answers, but the test split has {room} for a query; ask for a smaller k "
            "with --metrics, or say --no-evaluate"
        )
    if not findable(items, protocol, rows).any():
        raise LikewiseError(
            f"train: in the test split of '{items.name}' no query has an answer of its class outside its group; check "
            "`query`, `gallery`, `group` and `split`, or say --no-evaluate"
        )
    most = min(config.dim, len(rows))  # directions there can be
    decay = [name for name in config.metrics if spectrum.knows(name)]
    measure_set(decay, torch.eye(most + 1, most), torch.arange(most + 1))


def find_leaks(items: Items, protocol: Protocol, quiet: bool) -> str:
    """Return a sentence on what the train and test splits share."""
    with bar("look for leaks", 100, quiet=quiet) as shown:
        return say_leaks(leaks(items, protocol, shown.reach))
