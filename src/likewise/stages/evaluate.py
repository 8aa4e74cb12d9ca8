"""evaluate: a run or embeddings -> ranked answers -> scores per query and their means, and numbers of the whole set."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int

from likewise.configs import Evaluate, Train, check
from likewise.contracts import Part, Protocol
from likewise.data.columns import CORNERS
from likewise.data.features import read_embeddings
from likewise.data.images import fingerprint
from likewise.embedding import embed_rows
from likewise.metrics.ranking import largest_k, metric
from likewise.metrics.spectrum import of_the_set, set_metric
from likewise.progress import bar
from likewise.protocols import QueryGallery, UnseenClasses
from likewise.run import Run, write_aside
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
from likewise.types import Embedded, Items, LikewiseError, Retrieval, Scores

SHOWN = 10
"""Answers kept per query, for galleries and tables."""


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


def score(
    e: Embedded,
    items: Items,
    protocol: Protocol,
    metrics: Sequence[str],
    similarity: str,
    device: torch.device,
    quiet: bool = False,
) -> tuple[Scores, Retrieval | None]:
    """Every metric per query for every query, from one ranked pass; none where there is no such metric."""
    if not metrics:
        raise LikewiseError("evaluate: at least one metric is needed; see `likewise list metrics`")
    chosen = {name: metric(name) for name in metrics if not of_the_set(name)}
    if not chosen:
        return Scores({}), None
    if device.type == "mps":  # it has no float64, which exact ranking needs
        device = torch.device("cpu")
    moved = Embedded(e.z.to(device), e.y.to(device), e.row.to(device))
    with bar("rank", 100, quiet=quiet) as shown:
        found = protocol.retrieve(
            moved, items, k=max(SHOWN, largest_k(metrics)), similarity=similarity,
            progress=lambda share: shown.advance(round(100 * share) - shown.done),
        )  # fmt: skip
    found = Retrieval(**{f.name: getattr(found, f.name).cpu() for f in dataclasses.fields(found)})
    most = int((found.row >= 0).sum(1).max())
    if largest_k(metrics) > most:
        raise LikewiseError(
            f"evaluate: the metrics look at {largest_k(metrics)} answers, but there are at most "
            f"{most} for a query in this gallery of {len(e.row)} rows; ask for a smaller k with --metrics"
        )
    each = {name: m(found).numpy() for name, m in chosen.items()}
    return Scores(each, e.row[found.query].numpy()), found


def mean_score(
    e: Embedded, items: Items, protocol: Protocol, name: str, similarity: str, device: torch.device
) -> float:
    """One metric's mean: what validation asks for."""
    e = e if similarity == "cosine" else dataclasses.replace(e, z=e.e)
    scores, _ = score(e, items, protocol, [name], similarity, device, quiet=True)
    value = scores.each[name]
    if np.isnan(value).all():
        raise LikewiseError("train: no validation sample has a class mate to find; hold out more classes (val)")
    return float(np.nanmean(value))


def summary(scores: Scores, e: Embedded, similarity: str, metrics: Sequence[str]) -> dict:
    """Means over the queries that have something to find, how many have not, and the numbers of the whole set."""
    lonely = np.isnan(next(iter(scores.each.values()), np.zeros(0)))
    if scores.each and lonely.all():
        raise LikewiseError(
            f"evaluate: none of the {len(lonely)} queries has anything to find: every class has one image, or its others "
            "are excluded by group; bring at least two images of a class"
        )
    if scores.each and len(e.y.unique()) == 1:
        raise LikewiseError(
            f"evaluate: all {len(e.y)} rows are of one class, so every answer would be right; bring two classes or more"
        )
    value = {name: float(np.nanmean(each)) for name, each in scores.each.items()}
    value |= {name: set_metric(name)(e.z, e.y) for name in metrics if of_the_set(name)}
    return {
        "metrics": {name: value[name] for name in metrics},
        "queries": int((~lonely).sum()),
        "unscored": int(lonely.sum()),
        "rows": len(e.row),
        "dim": e.z.shape[1],
        "similarity": similarity,
    }


def save_embeddings(file: Path, e: Embedded, items: Items, made_by: dict) -> None:
    """Embeddings as a file that train, evaluate, search and other tools read. `made_by` is what `origin` gives back."""
    rows = e.row.numpy()
    columns: dict[str, np.ndarray] = {"x": e.z.numpy(), "label": items.y[rows], "row": rows}
    columns["class_name"] = np.asarray([items.class_name[label] for label in items.y[rows]], dtype=str)
    if items.path is not None:
        base = Path(items.root).absolute()
        columns["path"] = np.asarray([str(base / items.path[r]) for r in rows], dtype=str)
    for name in ("split", "query", "gallery", "group"):
        if getattr(items, name) is not None:
            columns[name] = np.asarray(getattr(items, name)[rows])
    if items.box is not None:
        columns |= dict(zip(CORNERS, items.box[rows].T))
    words = made_by | {"run": Path(made_by["run"]).absolute()}
    columns |= {name: np.asarray(str(word), dtype=str) for name, word in words.items()}
    with write_aside(file) as aside, aside.open("wb") as out:
        np.savez(out, **columns)


def origin(file: Path) -> dict:
    """What an embedding file says of itself: the run and which of its networks made it, how to compare, and the data's rows."""
    if file.suffix.lower() != ".npz":
        return {}
    with np.load(file, allow_pickle=False) as data:
        words = {name: str(data[name]) for name in ("run", "which", "similarity") if name in data.files}
        return words | ({"row": data["row"]} if "row" in data.files else {})


def find_target(target: str, owner: str) -> Path:
    path = Path(target).expanduser()
    if not path.exists():
        raise LikewiseError(f"{owner}: there is no '{target}'; give a run folder, or a file of embeddings")
    return path


def write_per_query(file: Path, scores: Scores, found: Retrieval, e: Embedded, items: Items) -> None:
    """One line a query: what it is, every metric, and its first answers."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    row = e.row.numpy()
    answers = np.where(found.row.numpy() >= 0, row[found.row.clamp_min(0).numpy()], -1)
    columns = {
        "row": scores.query,
        "label": items.y[scores.query],
        "class_name": [items.class_name[i] for i in items.y[scores.query]],
        "relevant": found.relevant.numpy(),
        **scores.each,
        "nearest": list(answers),
        "nearest_similarity": list(found.sim.float().numpy()),
    }
    if items.path is not None:
        columns["path"] = [items.path[i] for i in scores.query]
    with write_aside(file) as aside:
        pq.write_table(pa.table(columns), aside)
