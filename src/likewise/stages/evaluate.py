"""evaluate: a run or embeddings -> ranked answers -> scores per query and their means, and numbers of the whole set."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Int

from likewise.configs import Evaluate, Train, check
from likewise.contracts import Part, Protocol
from likewise.data.features import read_embeddings
from likewise.data.images import fingerprint
from likewise.embedding import embed_rows
from likewise.metrics.ranking import largest_k, metric
from likewise.metrics.spectrum import of_the_set, set_metric
from likewise.protocols import QueryGallery, UnseenClasses
from likewise.run import Run
from likewise.scoring import score, summary
from likewise.stages.assemble import (
    choose_device,
    load_items,
    make_protocol,
    marked,
    open_embedder,
    read_config,
    similarity_of,
    transforms,
)  # fmt: skip
from likewise.stages.saved import find_target, origin, save_embeddings, write_per_query
from likewise.types import Embedded, Items, LikewiseError


def evaluate(config: Evaluate, say=print) -> dict:
    """Score what the config points at. Returns what scores.json holds."""
    check(config)
    device = choose_device(config.device)
    target = find_target(config.target, "evaluate")
    if target.is_dir():
        if config.labels:
            raise LikewiseError(f"evaluate: '{target}' is a run and has labels of its own; leave out --labels")
        run = Run(target)
        moved = {name: value for name in ("data", "root") if (value := getattr(config, name))}
        settings = read_config(run, allow_imports=config.allow_imports, **moved)
        skip_bad = config.skip_bad or settings.skip_bad
        try:
            items = load_items(
                settings.data, settings.root, skip_bad=skip_bad, workers=config.workers, quiet=config.quiet, say=say
            )
        except LikewiseError as error:
            hint = "" if moved else " (if the data of this run has moved, say where it is: --data, --root)"
            raise LikewiseError(f"{error}{hint}") from None
        if not run.done:
            say(f"this run is not finished; its last checkpoint is scored: {run.path}")
        return evaluate_run(
            run, config=settings, items=items, metrics=config.metrics, device=device, part=config.part,
            which=config.which, similarity=config.similarity, workers=config.workers, quiet=config.quiet,
        )  # fmt: skip
    items = read_embeddings(str(target), config.labels)
    if items.split is None and config.part != "test":
        raise LikewiseError(
            f"evaluate: '{target}' has no `split`, so no {config.part} part; add it, or leave out --part"
        )
    if config.part == "test" and (items.split is None or not (items.split == "test").any()):
        items = dataclasses.replace(items, split=np.full(len(items), "test"))
    protocol: Protocol = QueryGallery() if marked(items) else UnseenClasses()
    rows = rows_of(protocol, items, config.part)
    e = Embedded(torch.as_tensor(items.x[rows]), torch.as_tensor(items.y[rows]), torch.as_tensor(rows))
    similarity = config.similarity or origin(target).get("similarity", "cosine")
    scores, _ = score(e, items, protocol, config.metrics, similarity, device, config.quiet)
    return summary(scores, e, similarity, config.metrics)


def evaluate_run(
    run: Run,
    *,
    config: Train,
    items: Items,
    metrics: Sequence[str],
    device: torch.device,
    part: Part = "test",
    which: str = "best",
    similarity: str | None = None,
    workers: int = -1,
    quiet: bool = False,
) -> dict:
    """Score a run's network on the test part of its data, or on another.

    What counts as the run's result is written into its folder: the best network on the test part, compared the way its loss
    was written for. Where only numbers of the whole set are asked for, nothing is ranked and nothing written.
    """
    if fingerprint(items) != run.about["data"]:
        raise LikewiseError(
            f"evaluate: the data '{config.data}' is not what '{run.path}' was trained with (files, labels or splits have "
            "changed); restore it, or embed the new data with `likewise embed` and evaluate that"
        )
    protocol, finished = make_protocol(config), run.done
    rows = rows_of(protocol, items, part)
    embedder = open_embedder(run, config, which, device)
    usual = similarity_of(config)
    similarity = similarity or usual
    _, plain = transforms(config, embedder)
    e = embed_rows(
        embedder, items, rows, plain, device=device, workers=workers, quiet=quiet, title=f"embed {part} part"
    )
    if similarity == "euclidean":
        e = dataclasses.replace(e, z=e.e)
    scores, found = score(e, items, protocol, metrics, similarity, device, quiet)
    result = summary(scores, e, similarity, metrics) | {"which": which, "part": part}
    own = which == "best" and part == "test" and similarity == usual and found is not None
    if own and run.done == finished:  # training did not end meanwhile
        made_by = {"run": run.path, "which": which, "similarity": similarity}
        save_embeddings(run.path / "embeddings.npz", e, items, made_by)
        write_per_query(run.path / "per_query.parquet", scores, found, e, items)
        run.write_json("scores.json", result)
    return result


def rows_of(protocol: Protocol, items: Items, part: Part) -> Int[np.ndarray, "n"]:
    rows = protocol.rows(items, part)
    if not len(rows):
        raise LikewiseError(f"evaluate: the {part} part of '{items.name}' is empty; check its `split` column")
    return rows


def check_plan(config: Train, items: Items, protocol: Protocol) -> None:
    """What evaluation will refuse must not surface after hours of training."""
    rows, deepest = protocol.rows(items, "test"), largest_k(config.metrics)
    metric(config.select)
    for name in config.metrics:
        set_metric(name) if of_the_set(name) else metric(name)
    if not config.evaluate:
        return
    if all(of_the_set(name) for name in config.metrics):
        raise LikewiseError("train: evaluating takes at least one metric per query; add R@1, or say --no-evaluate")
    asks, answers = protocol.sides(items, rows)
    classes = len(np.unique(items.y[rows]))
    if classes < 2:
        raise LikewiseError(
            f"train: the test part of '{items.name}' must hold two classes or more, got {classes}; bring more classes, "
            "check the `split` column, or say --no-evaluate"
        )
    room = int(answers.sum()) - bool((asks & answers).all())  # nobody answers himself
    if deepest > room:
        raise LikewiseError(
            f"train: the metrics look at {deepest} answers, but the test part has {room} for a query; ask for a smaller k "
            "with --metrics, or say --no-evaluate"
        )
    if not np.isin(items.y[rows][asks], items.y[rows][answers]).any():
        raise LikewiseError(
            f"train: in the test part of '{items.name}' no query has an answer of its class; check the columns `query`, "
            "`gallery` and `split`, or say --no-evaluate"
        )
    most = min(config.dim, len(rows))  # directions there can be
    for name in filter(of_the_set, config.metrics):
        set_metric(name)(torch.eye(most + 1, most), torch.arange(most + 1))
