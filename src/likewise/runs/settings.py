"""Read the settings of a run, and derive the similarity of its embeddings."""

from __future__ import annotations

import dataclasses
from typing import Any

from likewise.core.contracts import Loss, input_of
from likewise.core.settings import Train, check
from likewise.core.settings.spec import describe
from likewise.core.types import LikewiseError
from likewise.runs.folder import Run


def read_config(run: Run, **changes) -> Train:
    """Return the settings of a run, with `changes`. `allow_imports` is False unless changed: the caller must allow it again."""
    stored = run.about["config"]
    known = {f.name for f in dataclasses.fields(Train)}
    unknown = sorted(stored.keys() - known)
    if unknown:
        raise LikewiseError(
            f"run: '{run.path}' has settings that this version of likewise does not know: {', '.join(unknown)}; update likewise"
        )
    stored = {k: tuple(v) if isinstance(v, list) else v for k, v in stored.items()}
    stored: dict[str, Any] = stored | {"allow_imports": False} | changes
    if "data" not in stored:
        raise LikewiseError(
            f"run: the settings in '{run.path}' must name the data; its config.json is damaged or from another program: "
            "restore a copy of it"
        )
    config = Train(**stored)
    check(config)
    for name in ("backbone", "protocol", "sampler", "augment"):  # training writes the values that it chose
        if getattr(config, name) is None:
            raise LikewiseError(
                f"run: the settings in '{run.path}' must name the {name}; its config.json is damaged or from another program: "
                "restore a copy of it"
            )
    return config


def similarity_of(config: Train) -> str:
    """Return the similarity of a run's embeddings: "cosine" if its loss takes unit embeddings, "euclidean" if raw ones."""
    loss = describe(config.loss, Loss, allow_imports=config.allow_imports)
    return "cosine" if input_of(loss) == "unit" else "euclidean"
