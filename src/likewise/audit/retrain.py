"""retrain: a run and corrected training labels -> the same training again, and a comparison of both networks.

The corrected table keeps the splits of the run; labels and rows outside the training split stay as they are. Both networks get the
same queries of the same test split, with the labels that the run was tested with.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from likewise.audit.corrected import check_training_classes, split_column_protocol, write_corrected
from likewise.audit.records import AuditSplit, SplitQuality, Subject
from likewise.audit.states import REVIEWED_STATES, suggested_decision
from likewise.config import Audit, Compare, Train
from likewise.config.spec import spec
from likewise.evaluation.checks import rows_of
from likewise.evaluation.compare import compare
from likewise.evaluation.scoring import as_compared, score
from likewise.io.files import make_folder
from likewise.metrics import import_metrics, is_set_metric
from likewise.runs.dataset import make_protocol
from likewise.runs.folder import Run
from likewise.runs.open import OpenRun
from likewise.runs.per_query import write_per_query
from likewise.types import Items, LikewiseError


def retrain_with_suggestions(
    subject: Subject, quality: dict[str, SplitQuality], config: Audit, folder: Path, say: Callable
) -> dict:
    """Train again with the labels that the audit suggests.

    Args:
        quality: label scores without the evidence of copies in other splits.
    """
    assert subject.run is not None and subject.settings is not None
    labels = suggested_labels(subject.splits["train"], quality["train"], subject.items.class_name)
    return retrain(subject.run, subject.settings, subject.items, labels, config, folder, say)


def retrain_with_decisions(
    about: dict, labels: Mapping[int, str | None], config: Audit, folder: Path, say: Callable[[str], None]
) -> dict:
    """Train the network of an audited run again with the labels of a review; see `retrain`.

    A training sample with a class that no training sample was given is dropped. Every set of labels has its own folder, so that
    another review is another training.

    Args:
        about: content of audit.json.
        labels: row of the data -> its class after the review, or None: it was removed.
    """
    run = Run(find_run(about["target"], folder))
    opened = OpenRun(
        run, checkpoint=config.checkpoint, device=config.device, data=config.data, root=config.root,
        allow_imports=config.allow_imports, workers=config.workers, quiet=config.quiet, say=say,
    )  # fmt: skip
    items = opened.noisy_items
    trained = {items.class_name[c]: c for c in np.unique(items.y[opened.protocol.rows(items, "train")]).tolist()}
    new = {row: None if name is None else trained.get(name) for row, name in labels.items()}
    key = hashlib.sha256(repr(sorted(labels.items())).encode()).hexdigest()[:8]
    out = make_folder(folder / f"reviewed-{key}", "review")
    return retrain(run, opened.settings, items, new, config, out, say)


def find_run(target: str, folder: Path) -> Path:
    """Return the folder of an audited run: the one of the audit, or, if it was moved, the one that contains the audit."""
    for place in (Path(target).expanduser(), folder.absolute().parent):
        if (place / "config.json").is_file():
            return place
    raise LikewiseError(f"review: the audited run must be at '{target}' to be trained again, but is not; restore it there")


def suggested_labels(split: AuditSplit, found: SplitQuality, names: tuple[str, ...]) -> dict[int, int | None]:
    """Return row -> new class number, or None to drop the row, for every row that `suggested_decision` changes.

    A sample whose suggested label is not a class of the split is dropped.
    """
    number, state, labels = {name: c for c, name in enumerate(names)}, found.state, {}
    trained = set(split.names)
    for place in np.flatnonzero(np.isin(state, REVIEWED_STATES)).tolist():
        suggested, confidence, _ = found.suggestion(place, names)
        score = float(found.quality.score[place])
        decision = suggested_decision(str(state[place]), None if math.isnan(score) else score, confidence)
        if decision != "keep":
            labels[int(split.e.row[place])] = (
                number[suggested] if decision == "relabel" and suggested in trained else None
            )
    return labels


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
    from likewise.training.fit import train

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
    scores, answers = score(e, items, protocol, metrics, similarity, opened.device, config.quiet)
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
