"""The fold models of one setting: what they score apart and together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from torch.nn.functional import normalize

from likewise.config import KEPT_OUT, Train, to_dict
from likewise.config.spec import spec
from likewise.evaluation.scoring import score, summary
from likewise.io.files import load_arrays
from likewise.metrics import admit
from likewise.protocols import ClassFolds
from likewise.runs.dataset import make_protocol
from likewise.runs.embeddings import EMBEDDINGS
from likewise.runs.folder import Run
from likewise.runs.open import OpenRun
from likewise.runs.settings import read_config
from likewise.types import Embedded, Items, LikewiseError


def score_folds(
    runs: Sequence[Run],
    metrics: Sequence[str],
    *,
    device: torch.device,
    quiet: bool = False,
    allow_imports: bool = False,
) -> dict:
    """Score fold models on their common test split.

    "separated": every model by itself, then the mean of each metric, with the values of the folds behind it. "concatenated":
    the models' embeddings of a sample, each at unit length, joined to one longer vector and scored by cosine. Models of losses
    on raw embeddings are separately scored by Euclidean distance, and are brought to unit length for joining as the others.

    Paper: Musgrave et al., A Metric Learning Reality Check, ECCV 2020.

    Args:
        allow_imports: whether components that the runs give by dotted name may be imported, which runs their code.
    """
    config, runs = order_folds(runs, allow_imports)
    admit(metrics, allow_imports)
    first = OpenRun(runs[0], device=device, settings=config, quiet=quiet, say=lambda line: None)
    items, protocol = first.items, first.protocol
    rows = protocol.rows(items, "test")
    y, row = torch.as_tensor(items.y[rows]), torch.as_tensor(rows)
    apart, joined = [], []
    for run in runs:
        x = read_embedded(run, items, rows, device, quiet, allow_imports)
        known = run.scores
        assert known is not None  # the run is done
        if set(metrics) - known["metrics"].keys():
            scores, _ = score(Embedded(x, y, row), items, protocol, metrics, known["similarity"], device, quiet)
            known = summary(scores, Embedded(x, y, row), known["similarity"], metrics, device)
        apart.append(known)
        joined.append(normalize(x, dim=1))
    e = Embedded(normalize(torch.cat(joined, 1), dim=1), y, row)
    scores, _ = score(e, items, protocol, metrics, "cosine", device, quiet)
    folds = {name: [known["metrics"][name] for known in apart] for name in metrics}
    same = {name: apart[0][name] for name in ("queries", "unscored", "rows", "dim", "similarity")}
    means = {name: float(np.mean(values)) for name, values in folds.items()}
    return {
        "separated": {"metrics": means, "folds": folds, **same},
        "concatenated": summary(scores, e, "cosine", metrics, device),
    }


def order_folds(runs: Sequence[Run], allow_imports: bool = False) -> tuple[Train, list[Run]]:
    """The settings of the first fold and the runs in the order of their folds, if these are all folds of one setting."""
    if not runs:
        raise LikewiseError("folds: the runs of all folds are needed, got none; train them first")
    by_fold: dict[int, tuple[Train, Run]] = {}
    for run in runs:
        config = read_config(run, allow_imports=allow_imports)
        if not (config.protocol or "").startswith(f"{ClassFolds.__name__}("):
            raise LikewiseError(
                f"folds: every run must be trained under ClassFolds, but '{run.path}' has {config.protocol}; leave it out"
            )
        if not run.done:
            raise LikewiseError(f"folds: '{run.path}' is not finished; run its training again, and it goes on")
        fold = folds_of(config).fold
        if fold in by_fold:
            raise LikewiseError(
                f"folds: every fold must come once, but '{by_fold[fold][1].path}' and '{run.path}' are both fold "
                f"{fold}; leave one out"
            )
        by_fold[fold] = config, run
    ordered = [by_fold[fold] for fold in sorted(by_fold)]
    first, one = ordered[0]
    for config, run in ordered[1:]:
        odd = [f"{k}: {v} and {w}" for (k, v), w in zip(_learned(first).items(), _learned(config).values()) if v != w]
        odd += ["the data"] if run.about["data"] != one.about["data"] else []
        if odd:
            raise LikewiseError(
                f"folds: the runs must differ in their fold alone, but '{one.path}' and '{run.path}' differ in "
                f"{'; '.join(odd[:3])}; give runs of one setting"
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
    """What must be the same in all folds: settings that change what is learned, and the protocol but for its fold."""
    part = folds_of(config)
    cut = spec(ClassFolds(part.folds, 0, part.own_split))
    return {k: v for k, v in to_dict(config).items() if k not in KEPT_OUT} | {"protocol": cut}


def read_embedded(
    run: Run, items: Items, rows: Int[np.ndarray, "n"], device: torch.device, quiet: bool, allow_imports: bool
) -> Float[torch.Tensor, "n D"]:
    """The embeddings of these rows that evaluating the run left; it is evaluated first where they are missing."""
    file = run.path / EMBEDDINGS
    if run.scores is None or not file.exists():
        from likewise.evaluation.evaluate import evaluate_open

        opened = OpenRun(run, device=device, quiet=quiet, items=items, allow_imports=allow_imports)
        # Numbers of the whole set alone would leave nothing behind.
        evaluate_open(opened, tuple(dict.fromkeys([*opened.settings.metrics, "R@1"])))
    x, row = load_arrays(file, "folds", "delete it, and the run is evaluated anew", ("x", "row")).values()
    if not np.array_equal(row, rows):
        raise LikewiseError(
            f"folds: {file} holds {len(row)} rows, not the {len(rows)} test rows of the data; delete it, and the run is "
            "evaluated anew"
        )
    return torch.as_tensor(x)
