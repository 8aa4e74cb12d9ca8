"""retrain: a run and corrected training labels -> the same training again, and whether it retrieves better.

The corrected table keeps the parts of the run; labels and rows outside the train part stay as they are. Both networks are asked
the same queries of the same test part, with the labels the run was tested by.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from likewise.config import Audit, Compare, Train
from likewise.config.spec import spec
from likewise.contracts import Protocol
from likewise.data.images import drop
from likewise.data.table import places, write_table
from likewise.engine.embed import embed_rows
from likewise.evaluation.compare import compare
from likewise.evaluation.evaluate import rows_of
from likewise.evaluation.scoring import as_compared, score
from likewise.metrics import admit, of_the_set
from likewise.protocols import ClassFolds, QueryGallery, SeenClasses, UnseenClasses
from likewise.protocols.splits import split_by
from likewise.runs.artifacts import write_per_query
from likewise.runs.folder import Run
from likewise.runs.open import choose_device, make_protocol, open_embedder, similarity_of, transforms
from likewise.training.fit import train
from likewise.types import Items, LikewiseError


def retrain(
    run: Run,
    settings: Train,
    items: Items,
    suggested: dict[int, int | None],
    config: Audit,
    out: Path,
    say: Callable[[str], None] = print,
) -> dict:
    """Train anew with corrected labels in `out`/retrained, or find that training finished, and compare; a dict that JSON takes.

    Args:
        settings: those of the run; all of them but the data count again, the seed too.
        items: the run's data with labels as it was given them: noise that the settings ask for is in them.
        suggested: row of the data -> its label (a class number of `items`), or None: leave it out. Rows outside the train part
            are not touched.
        out: an existing folder. It gets corrected.csv (or .parquet), before.parquet and after.parquet too.
    """
    if config.which == "untrained":
        raise LikewiseError("retrain: an untrained network cannot be trained again; leave out --which untrained")
    protocol = make_protocol(settings)
    rows = protocol.rows(items, "train")
    inside = set(rows.tolist())
    mine = {row: label for row, label in suggested.items() if row in inside and label != items.y[row]}
    must_be_classes(items, rows, mine)
    gone = [row for row, label in mine.items() if label is None]
    found = {"changed": len(mine) - len(gone), "removed": len(gone), "rows": []}
    if not mine:
        return found | {"told": "no training label is to be changed, so nothing was trained anew"}
    new = replace(
        settings, data=str(write_corrected(items, protocol, mine, out).absolute()), root=None, noise=None,
        protocol=spec(by_its_split(protocol)), out=str(out / "retrained"), again=False, evaluate=False, skip_bad=False,
        device=config.device, workers=config.workers, allow_imports=config.allow_imports, quiet=config.quiet,
    )  # fmt: skip
    say(f"training anew: {found['changed']} labels changed, {len(gone)} samples left out ({new.out})")
    sides = {"before.parquet": run, "after.parquet": train(new, say)}
    for name, one in sides.items():
        ask(one, settings, items, config, out / name)
    before, after = (str(out / name) for name in sides)
    result = compare(Compare(before, after, seed=config.seed))
    return found | {"rows": as_rows(result), "told": tell(result, found)}


def must_be_classes(items: Items, rows: np.ndarray, labels: dict[int, int | None]) -> None:
    known = set(items.y[rows].tolist())
    odd = next((row for row, label in labels.items() if label is not None and label not in known), None)
    if odd is not None:
        raise LikewiseError(
            f"retrain: labels must be among the {len(known)} classes that train, got {labels[odd]} for row {odd}; "
            "suggest one of these, or None to leave the sample out"
        )


def write_corrected(items: Items, protocol: Protocol, labels: dict[int, int | None], out: Path) -> Path:
    """The table to train with. What was train, val and test stays that, whatever the labels say now."""
    y = items.y.copy()
    for row, label in labels.items():
        y[row] = y[row] if label is None else label
    table = out / ("corrected.csv" if items.x is None else "corrected.parquet")
    items = replace(items, y=y, split=split_by(protocol, items), path=places(items, table))
    write_table(drop(items, [row for row, label in labels.items() if label is None]), str(table))
    return table


def by_its_split(protocol: Protocol) -> Protocol:
    """The protocol that goes by the table's `split` and else does the same."""
    if isinstance(protocol, SeenClasses):
        return SeenClasses(gallery=protocol.gallery, own_split=True)
    if isinstance(protocol, QueryGallery):
        return QueryGallery(gallery=protocol.gallery)
    if isinstance(protocol, UnseenClasses | ClassFolds):
        return UnseenClasses()
    raise LikewiseError(
        f"retrain: a protocol that can go by a `split` column is needed, got {type(protocol).__name__}; "
        "correct the data and train it yourself"
    )


def ask(run: Run, settings: Train, items: Items, config: Audit, file: Path) -> None:
    """Every test query of the data, by labels that no noise has touched, one line each."""
    items = replace(items, y=items.y_first)  # training samples may be among those who answer
    protocol, device = make_protocol(settings), choose_device(config.device)
    embedder, similarity = open_embedder(run, settings, config.which, device), similarity_of(settings)
    _, plain = transforms(settings, embedder)
    how = {"device": device, "workers": config.workers, "quiet": config.quiet, "title": f"embed test part, {file.stem}"}
    e = as_compared(embed_rows(embedder, items, rows_of(protocol, items, "test"), plain, **how), similarity)
    admit(settings.metrics, settings.allow_imports)
    metrics = [name for name in settings.metrics if not of_the_set(name)] or ["MAP@R"]
    scores, answers = score(e, items, protocol, metrics, similarity, device, config.quiet)
    assert answers is not None
    write_per_query(file, scores, answers, e, items)


def as_rows(result: dict) -> list[dict]:
    """What `compare` says of each metric, with the interval over classes, or over queries where classes are few."""
    return [
        {"metric": name, "before": about["a"], "after": about["b"], "difference": about["difference"]}
        | {"low": (ends := about[f"over_{result['over']}"])["low"], "high": ends["high"], "p": ends["crossing"]}
        for name, about in result["metrics"].items()
    ]


def tell(result: dict, found: dict) -> str:
    words = result["same"] or result["metrics"][result["decides"]]["conclusion"]
    return (
        f"A was trained with the labels as given, B with {found['changed']} labels changed and {found['removed']} samples left "
        f"out, all else alike, the seed too: {words}"
    )
