"""retrain: a run and corrected training labels -> the same training again, and a comparison of both networks.

The labels are those that an audit suggests, or those of a review. The corrected table keeps the splits of the run; labels and
rows outside the training split stay as they are. Both networks get the same queries of the same test split, with the labels that
the run was tested with.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from likewise.core.contracts import Protocol
from likewise.core.files import make_folder
from likewise.core.settings import Audit, Compare, Train
from likewise.core.settings.spec import spec
from likewise.core.types import Items, LikewiseError
from likewise.curate.audit.proof import prove_suggestions
from likewise.curate.audit.records import AuditSplit, SplitQuality, Subject
from likewise.curate.audit.states import REVIEWED_STATES, suggested_decision
from likewise.data.dataset import make_protocol
from likewise.data.images import drop
from likewise.data.protocols import ClassFolds, QueryGallery, SeenClasses, StratifiedLabels, UnseenClasses, UnseenLabels
from likewise.data.protocols.splits import split_by
from likewise.data.table import places, write_table
from likewise.runs.folder import Run
from likewise.runs.open import OpenRun
from likewise.runs.scores import write_per_query
from likewise.score.checks import rows_of
from likewise.score.compare import compare
from likewise.score.metrics import import_metrics, is_set_metric
from likewise.score.retrieve import Scoring
from likewise.score.scoring import as_compared, score


def retrain_with_suggestions(
    subject: Subject, quality: dict[str, SplitQuality], config: Audit, folder: Path, say: Callable
) -> dict:
    """Train again with the labels that the audit suggests, and write proof.json if there is a forecast.

    Args:
        quality: label scores without the evidence of copies in other splits.
    """
    assert subject.run is not None and subject.settings is not None
    labels = suggested_labels(subject.splits["train"], quality["train"], subject.items.class_name)
    found = retrain(subject.run, subject.settings, subject.items, labels, config, folder, say)
    prove_suggestions(folder, found)
    return found


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
    raise LikewiseError(
        f"review: the audited run must be at '{target}' to be trained again, but is not; restore it there"
    )


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


def check_training_classes(items: Items, rows: np.ndarray, labels: dict[int, int | None]) -> None:
    """Raise unless every new label is a class of the training split."""
    known = set(items.y[rows].tolist())
    unknown = next((row for row, label in labels.items() if label is not None and label not in known), None)
    if unknown is not None:
        raise LikewiseError(
            f"retrain: labels must be among the {len(known)} classes of the training split, got {labels[unknown]} for "
            f"row {unknown}; "
            "suggest one of these classes, or None to drop the sample"
        )


def write_corrected(items: Items, protocol: Protocol, labels: dict[int, int | None], out: Path) -> Path:
    """Write the data with new labels as a table, and return its file.

    Every row keeps its split. Rows whose label is None are left out.
    """
    y = items.y.copy()
    for row, label in labels.items():
        y[row] = y[row] if label is None else label
    table = out / ("retrained.csv" if items.x is None else "retrained.parquet")  # corrected.csv is that of a review
    items = replace(items, y=y, split=split_by(protocol, items), path=places(items, table))
    write_table(drop(items, [row for row, label in labels.items() if label is None]), str(table))
    return table


def split_column_protocol(protocol: Protocol) -> Protocol:
    """Return a protocol that takes splits from the `split` column, and is otherwise equal to the given one."""
    if isinstance(protocol, SeenClasses):
        return SeenClasses(gallery=protocol.gallery, own_split=True)
    if isinstance(protocol, QueryGallery):
        return QueryGallery(gallery=protocol.gallery)
    if isinstance(protocol, UnseenClasses | ClassFolds):
        return UnseenClasses()
    if isinstance(protocol, StratifiedLabels | UnseenLabels):
        return type(protocol)()
    raise LikewiseError(
        f"retrain: the protocol must support a `split` column, got {type(protocol).__name__}; "
        "correct the data and train on it yourself"
    )


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
