"""The settings of a run, and what follows from them alone: its protocol and its similarity."""

from __future__ import annotations

import dataclasses
from typing import Any

from likewise.config import Train, check
from likewise.config.spec import build, check_names, describe
from likewise.contracts import Loss, Protocol, input_of
from likewise.durations import steps_of
from likewise.models.backbones import OWN, check_name
from likewise.runs.folder import Run
from likewise.types import LikewiseError


def read_config(run: Run, **changes) -> Train:
    """The settings a run was trained with. Never its permission to import: who opens the run gives that anew."""
    stored = run.about["config"]
    known = {f.name for f in dataclasses.fields(Train)}
    if stored.pop("compile", False):  # as it was called once
        stored["speed"] = "compile"
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


def check_texts(config: Train) -> None:
    """A slip in a spec, a duration or the network's name is told at once, before pictures are opened and weights fetched."""
    parts = (config.loss, config.sampler, config.protocol, config.confidence, config.noise, config.head, *config.terms)
    for text in filter(None, parts):
        check_names(text)
    steps_of(config.length, 1, "length")
    if config.backbone not in (None, "features", "efficientnet_lite0", *OWN):
        check_name(config.backbone)


def make_protocol(config: Train) -> Protocol:
    """Return the protocol that resolved settings name."""
    assert config.protocol is not None  # resolved settings name it
    return build(config.protocol, Protocol, allow_imports=config.allow_imports)


def similarity_of(config: Train) -> str:
    """Return how embeddings of a run are compared: "cosine" if its loss takes unit embeddings, "euclidean" if raw ones."""
    loss = describe(config.loss, Loss, allow_imports=config.allow_imports)
    return "cosine" if input_of(loss) == "unit" else "euclidean"
