"""The settings that a run was trained with, and how its embeddings are compared."""

from __future__ import annotations

import dataclasses
from typing import Any

from likewise.config import Train, check
from likewise.config.spec import describe
from likewise.contracts import Loss, input_of
from likewise.runs.folder import Run
from likewise.types import LikewiseError


def read_config(run: Run, **changes) -> Train:
    """The settings a run was trained with. Never its permission to import: who opens the run gives that anew."""
    stored = run.about["config"]
    known = {f.name for f in dataclasses.fields(Train)}
    unknown = sorted(stored.keys() - known)
    if unknown:
        raise LikewiseError(
            f"run: '{run.path}' has settings this likewise does not know: {', '.join(unknown)}; update it"
        )
    stored = {k: tuple(v) if isinstance(v, list) else v for k, v in stored.items()}
    stored: dict[str, Any] = stored | {"allow_imports": False} | changes
    if "data" not in stored:
        raise LikewiseError(f"run: the settings in '{run.path}' name no data; it is damaged or not ours")
    config = Train(**stored)
    check(config)
    for name in ("backbone", "protocol", "sampler", "augment"):  # training writes what it chose
        if getattr(config, name) is None:
            raise LikewiseError(
                f"run: the settings in '{run.path}' name no {name}; its config.json is damaged or not ours"
            )
    return config


def similarity_of(config: Train) -> str:
    """Return how embeddings of a run are compared: "cosine" if its loss takes unit embeddings, "euclidean" if raw ones."""
    loss = describe(config.loss, Loss, allow_imports=config.allow_imports)
    return "cosine" if input_of(loss) == "unit" else "euclidean"
