"""Score the models of all class folds of one setting, separately and with concatenated embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Float, Int
from torch.nn.functional import normalize

from likewise.core.files import load_arrays
from likewise.core.settings import SETTINGS_OUTSIDE_IDENTITY, Evaluate, Train, to_dict
from likewise.core.settings.spec import spec
from likewise.core.types import Embedded, Items, LikewiseError
from likewise.data.dataset import make_protocol
from likewise.data.protocols import ClassFolds
from likewise.runs.embeddings import EMBEDDINGS_FILE
from likewise.runs.folder import Run
from likewise.runs.open import OpenRun, read_config
from likewise.score.evaluate import evaluate_run
from likewise.score.metrics import import_metrics
from likewise.score.retrieve import Scoring, relevance_of
from likewise.score.scoring import score, summary


def score_folds(
    runs: Sequence[Run],
    metrics: Sequence[str],
    *,
    device: torch.device,
    quiet: bool = False,
    allow_imports: bool = False,
) -> dict:
    """Return the scores of fold models on their common test split.

    "separated": the mean of each metric over the models, with the value of every fold. "concatenated": the scores of the
    concatenated unit-length embeddings of all models, by cosine. If the loss takes raw embeddings, the separate scores use the
    Euclidean distance; for concatenation the embeddings are normalised too.

    Paper: Musgrave et al., A Metric Learning Reality Check, ECCV 2020.

    Args:
        allow_imports: whether components that the runs give by dotted name may be imported, which runs their code.
    """
    config, runs = order_folds(runs, allow_imports)
    import_metrics(metrics, allow_imports)
    first = OpenRun(runs[0], device=device, settings=config, quiet=quiet, say=lambda line: None)
    items, protocol = first.items, first.protocol
    rows = protocol.rows(items, "test")
    y, row = torch.as_tensor(items.y[rows]), torch.as_tensor(rows)
    judged = relevance_of(items, rows, config.relevance, trained=True, allow_imports=allow_imports)
    scoring = Scoring(items, protocol, metrics, "cosine", device, quiet, relevance=judged)
    apart, joined = [], []
    for run in runs:
        x = read_embedded(run, items, rows, device, quiet, allow_imports)
        known = run.scores
        assert known is not None  # the run is done
        if set(metrics) - known["metrics"].keys():
            e, alone = Embedded(x, y, row), replace(scoring, similarity=known["similarity"])
            known = summary(score(e, alone)[0], e, alone)
        apart.append(known)
        joined.append(normalize(x, dim=1))
    e = Embedded(normalize(torch.cat(joined, 1), dim=1), y, row)
    folds = {name: [known["metrics"][name] for known in apart] for name in metrics}
    same = {name: apart[0][name] for name in ("queries", "unscored", "rows", "dim", "similarity")}
    means = {name: float(np.mean(values)) for name, values in folds.items()}
    return {
        "separated": {"metrics": means, "folds": folds, **same},
        "concatenated": summary(score(e, scoring)[0], e, scoring),
    }


def order_folds(runs: Sequence[Run], allow_imports: bool = False) -> tuple[Train, list[Run]]:
    """Return the settings of the first fold, and the runs ordered by fold. Raises unless they are all folds of one setting."""
    if not runs:
        raise LikewiseError("folds: the runs of all folds must be given, got none; train them first")
    by_fold: dict[int, tuple[Train, Run]] = {}
    for run in runs:
        config = read_config(run, allow_imports=allow_imports)
        if not (config.protocol or "").startswith(f"{ClassFolds.__name__}("):
            raise LikewiseError(
                f"folds: every run must be trained under ClassFolds, but '{run.path}' has {config.protocol}; drop this run"
            )
        if not run.done:
            raise LikewiseError(f"folds: '{run.path}' is not finished; run the same training command to resume it")
        fold = folds_of(config).fold
        if fold in by_fold:
            raise LikewiseError(
                f"folds: every fold must be given once, but '{by_fold[fold][1].path}' and '{run.path}' are both fold "
                f"{fold}; drop one of them"
            )
        by_fold[fold] = config, run
    ordered = [by_fold[fold] for fold in sorted(by_fold)]
    first, one = ordered[0]
    for config, run in ordered[1:]:
        changes = [
            f"{k}: {v} and {w}" for (k, v), w in zip(_learned(first).items(), _learned(config).values()) if v != w
        ]
        changes += ["the data"] if run.about["data"] != one.about["data"] else []
        if changes:
            raise LikewiseError(
                f"folds: the runs must differ only in their fold, but '{one.path}' and '{run.path}' differ in "
                f"{'; '.join(changes[:3])}; give runs of one setting"
            )
    folds = folds_of(first).folds
    if missing := sorted(set(range(folds)) - by_fold.keys()):
        raise LikewiseError(
            f"folds: all {folds} folds are needed, but fold {', '.join(map(str, missing))} is missing; train it first"
        )
    return first, [run for _, run in ordered]


def folds_of(config: Train) -> ClassFolds:
    protocol = make_protocol(config)
    assert isinstance(protocol, ClassFolds)
    return protocol


def _learned(config: Train) -> dict:
    """Return the settings that must be equal in all folds: those that change what is learned, and the protocol without fold."""
    folds = folds_of(config)
    protocol = spec(ClassFolds(folds.folds, 0, folds.own_split))
    return {k: v for k, v in to_dict(config).items() if k not in SETTINGS_OUTSIDE_IDENTITY} | {"protocol": protocol}


def read_embedded(
    run: Run, items: Items, rows: Int[np.ndarray, "n"], device: torch.device, quiet: bool, allow_imports: bool
) -> Float[torch.Tensor, "n D"]:
    """Return the embeddings of these rows from embeddings.npz of a run; evaluates the run first if the file is missing."""
    file = run.path / EMBEDDINGS_FILE
    if run.scores is None or not file.exists():
        opened = OpenRun(run, device=device, quiet=quiet, items=items, allow_imports=allow_imports)
        # With metrics of the whole set only, evaluation would write no embeddings.
        metrics = tuple(dict.fromkeys([*opened.settings.metrics, "R@1"]))
        evaluate_run(opened, Evaluate(str(run.path), metrics=metrics))
    x, row = load_arrays(file, "folds", "delete it: the run is then evaluated again", ("x", "row")).values()
    if not np.array_equal(row, rows):
        raise LikewiseError(
            f"folds: {file} must hold the {len(rows)} test rows of the data, got {len(row)} rows; delete it: the run is then "
            "evaluated again"
        )
    return torch.as_tensor(x)
