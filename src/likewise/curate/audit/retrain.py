"""retrain: a run and corrected training labels -> the same training again, and a comparison of both networks.

The corrected table keeps the splits of the run; labels and rows outside the training split stay as they are. Both networks get
the same queries of the same test split, with the labels that the run was tested with.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from likewise.core.settings import Audit, Compare, Train
from likewise.core.settings.spec import spec
from likewise.core.types import Items, LikewiseError
from likewise.curate.audit.corrected import check_training_classes, split_column_protocol, write_corrected
from likewise.data.dataset import make_protocol
from likewise.runs.folder import Run
from likewise.runs.open import OpenRun
from likewise.runs.scores import write_per_query
from likewise.score.checks import rows_of
from likewise.score.compare import compare
from likewise.score.metrics import import_metrics, is_set_metric
from likewise.score.retrieve import Scoring
from likewise.score.scoring import as_compared, score


def retrain(
    run: Run,
    settings: Train,
    items: Items,
    suggested: dict[int, int | None],
    config: Audit,
    out: Path,
    say: Callable[[str], None] = print,
) -> dict:
    """Train with corrected labels in `out`/retrained, or reuse a finished training there; compare, and return a dict for JSON.

    Args:
        settings: settings of the run; all of them except the data are used again, including the seed.
        items: the data of the run with the given labels, including noise that the settings inject.
        suggested: row of the data -> its label (a class number of `items`), or None: drop the sample. Rows outside the training
            split are ignored.
        out: an existing folder. It also gets retrained.csv (or .parquet), before.parquet and after.parquet.
    """
    if config.checkpoint == "untrained":
        raise LikewiseError(
            "retrain: the checkpoint must be of a training, got 'untrained'; leave out --checkpoint untrained"
        )
    protocol = make_protocol(settings)
    rows = protocol.rows(items, "train")
    inside = set(rows.tolist())
    changes = {row: label for row, label in suggested.items() if row in inside and label != items.y[row]}
    check_training_classes(items, rows, changes)
    dropped = [row for row, label in changes.items() if label is None]
    found = {"changed": len(changes) - len(dropped), "removed": len(dropped), "rows": []}
    if not changes:
        return found | {"summary": "no training label changes, so nothing was trained again"}
    new = replace(
        settings, data=str(write_corrected(items, protocol, changes, out).absolute()), root=None, noise=None,
        protocol=spec(split_column_protocol(protocol)), out=str(out / "retrained"), restart=False, evaluate=False, strict=True,
        device=config.device, workers=config.workers, allow_imports=config.allow_imports, quiet=config.quiet,
    )  # fmt: skip
    from likewise.learn.training.fit import train

    say(f"retraining: {found['changed']} labels changed, {len(dropped)} samples dropped ({new.out})")
    sides = {"before.parquet": run, "after.parquet": train(new, say)}
    for name, one in sides.items():
        score_test_queries(one, settings, items, config, out / name)
    before, after = (str(out / name) for name in sides)
    result = compare(Compare(before, after))
    return found | {"rows": metric_rows(result), "summary": describe_result(result, found)}


def score_test_queries(run: Run, settings: Train, items: Items, config: Audit, file: Path) -> None:
    """Write the metrics of every test query to a file, with labels before noise was injected."""
    items = replace(items, y=items.y_before_noise)  # training samples may be in the gallery
    opened = OpenRun(
        run, checkpoint=config.checkpoint, device=config.device, workers=config.workers, quiet=config.quiet, settings=settings,
        items=items,
    )  # fmt: skip
    protocol, similarity = opened.protocol, opened.similarity
    import_metrics(settings.metrics, settings.allow_imports)
    rows = rows_of(protocol, items, "test")
    e = as_compared(opened.embed(items, rows, title=f"embed test split, {file.stem}"), similarity)
    metrics = [name for name in settings.metrics if not is_set_metric(name)] or ["MAP@R"]
    scores, answers = score(e, Scoring(items, protocol, metrics, similarity, opened.device, config.quiet))
    assert answers is not None
    write_per_query(file, scores, answers, e, items)


def metric_rows(result: dict) -> list[dict]:
    """Return one row per metric of `compare`, with the interval over classes, or over queries if there are few classes."""
    return [
        {"metric": name, "before": about["a"], "after": about["b"], "difference": about["difference"]}
        | {part: about[f"over_{result['over']}"][part] for part in ("low", "high", "p", "reason")}
        for name, about in result["metrics"].items()
    ]


def describe_result(result: dict, found: dict) -> str:
    """Return the result of the comparison as one sentence."""
    conclusion = result["same"] or result["metrics"][result["decides"]]["conclusion"]
    return (
        f"A was trained with the given labels, B with {found['changed']} labels changed and {found['removed']} samples dropped, "
        f"with otherwise equal settings and the same seed: {conclusion}"
    )
