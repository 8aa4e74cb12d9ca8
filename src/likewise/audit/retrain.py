"""retrain: a run and corrected training labels -> the same training again, and whether it retrieves better.

The corrected table keeps the parts of the run; labels and rows outside the train split stay as they are. Both networks are asked
the same queries of the same test split, with the labels the run was tested by.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from likewise.audit.corrected import split_column_protocol, check_training_classes, write_corrected
from likewise.config import Audit, Compare, Train
from likewise.config.spec import spec
from likewise.evaluation.checks import rows_of
from likewise.evaluation.compare import compare
from likewise.evaluation.scoring import as_compared, score
from likewise.metrics import admit, of_the_set
from likewise.runs.dataset import make_protocol
from likewise.runs.folder import Run
from likewise.runs.open import OpenRun
from likewise.runs.per_query import write_per_query
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
        items: the run's data with labels as it was given them: noise that the settings score_test_queries for is in them.
        suggested: row of the data -> its label (a class number of `items`), or None: leave it out. Rows outside the train split
            are not touched.
        out: an existing folder. It gets corrected.csv (or .parquet), before.parquet and after.parquet too.
    """
    if config.checkpoint == "untrained":
        raise LikewiseError("retrain: an untrained network cannot be trained again; leave out --checkpoint untrained")
    protocol = make_protocol(settings)
    rows = protocol.rows(items, "train")
    inside = set(rows.tolist())
    mine = {row: label for row, label in suggested.items() if row in inside and label != items.y[row]}
    check_training_classes(items, rows, mine)
    gone = [row for row, label in mine.items() if label is None]
    found = {"changed": len(mine) - len(gone), "removed": len(gone), "rows": []}
    if not mine:
        return found | {"told": "no training label is to be changed, so nothing was trained anew"}
    new = replace(
        settings, data=str(write_corrected(items, protocol, mine, out).absolute()), root=None, noise=None,
        protocol=spec(split_column_protocol(protocol)), out=str(out / "retrained"), restart=False, evaluate=False, skip_bad=False,
        device=config.device, workers=config.workers, allow_imports=config.allow_imports, quiet=config.quiet,
    )  # fmt: skip
    from likewise.training.fit import train

    say(f"training anew: {found['changed']} labels changed, {len(gone)} samples left out ({new.out})")
    sides = {"before.parquet": run, "after.parquet": train(new, say)}
    for name, one in sides.items():
        score_test_queries(one, settings, items, config, out / name)
    before, after = (str(out / name) for name in sides)
    result = compare(Compare(before, after, seed=config.seed))
    return found | {"rows": metric_rows(result), "told": describe_result(result, found)}


def score_test_queries(run: Run, settings: Train, items: Items, config: Audit, file: Path) -> None:
    """Write one line for every test query of the data, by labels that no noise has touched."""
    items = replace(items, y=items.y_first)  # training samples may be among those who answer
    opened = OpenRun(
        run, checkpoint=config.checkpoint, device=config.device, workers=config.workers, quiet=config.quiet, settings=settings,
        items=items,
    )  # fmt: skip
    protocol, similarity = opened.protocol, opened.similarity
    admit(settings.metrics, settings.allow_imports)
    rows = rows_of(protocol, items, "test")
    e = as_compared(opened.embed(items, rows, title=f"embed test split, {file.stem}"), similarity)
    metrics = [name for name in settings.metrics if not of_the_set(name)] or ["MAP@R"]
    scores, answers = score(e, items, protocol, metrics, similarity, opened.device, config.quiet)
    assert answers is not None
    write_per_query(file, scores, answers, e, items)


def metric_rows(result: dict) -> list[dict]:
    """What `compare` says of each metric, with the interval over classes, or over queries where classes are few."""
    return [
        {"metric": name, "before": about["a"], "after": about["b"], "difference": about["difference"]}
        | {"low": (ends := about[f"over_{result['over']}"])["low"], "high": ends["high"], "p": ends["crossing"]}
        for name, about in result["metrics"].items()
    ]


def describe_result(result: dict, found: dict) -> str:
    words = result["same"] or result["metrics"][result["decides"]]["conclusion"]
    return (
        f"A was trained with the labels as given, B with {found['changed']} labels changed and {found['removed']} samples left "
        f"out, all else alike, the seed too: {words}"
    )
