"""Settings before training: checked, and completed from the data where the user left them open."""

from __future__ import annotations

import ast
import dataclasses
from pathlib import Path

import numpy as np
import torch

from likewise.config import SPECS, Train, duration_fields, texts_of
from likewise.config.overrides import with_argument
from likewise.config.spec import build, canonical, check_names, spec
from likewise.contracts import Loss, Protocol
from likewise.data import NAMES
from likewise.durations import period_of, steps_of
from likewise.models.backbones import OWN, check_name, width_of
from likewise.protocols.class_folds import ClassFolds
from likewise.runs.dataset import default_protocol, make_protocol, spoil, whole_path
from likewise.types import Items, LikewiseError


def check_texts(config: Train) -> None:
    """A slip in a spec, a duration or the network's name is told at once, before pictures are opened and weights fetched."""
    for text in texts_of(config, SPECS):
        check_names(text)
    check_durations(config)
    if config.backbone not in (None, "features", "efficientnet_lite0", *OWN):
        check_name(config.backbone)


def check_durations(config: Train) -> None:
    """Raise unless every duration of the settings is a number of steps or epochs; checkpoints may also be timed in seconds."""
    for name in duration_fields(Train):
        text = getattr(config, name)
        if text:
            (period_of if name == "checkpoint_every" else steps_of)(text, 1, name)


def resolve(config: Train, items: Items) -> Train:
    """Fill in what the settings leave to the data, and spell every spec one way."""
    glyphs = items.name == "glyphs"
    backbone = config.backbone or ("features" if items.x is not None else "conv_small" if glyphs else "resnet50")
    if (backbone == "features") != (items.x is not None):
        kind = "features" if items.x is not None else "pictures"
        raise LikewiseError(
            f"train: the data holds {kind}, so backbone '{backbone}' does not fit; leave --backbone out"
        )
    protocol = canonical(config.protocol or default_protocol(items))
    sampler = config.sampler
    if sampler is None:
        part = build(protocol, Protocol, allow_imports=config.allow_imports)
        given = spoil(items, part, config.noise, config.seed, config.allow_imports)  # noise may leave fewer classes
        size = np.unique(given.y[part.rows(given, "train")], return_counts=True)[1]
        lonely = ", lonely='skip'" if (size == 1).any() and (size > 1).any() else ""
        sampler = f"SamplesPerClass(batch={4 * max(1, min(28, (size > 1).sum()))}, per_class=4{lonely})"
    if config.batch_size is not None:
        sampler = with_argument(
            dataclasses.replace(config, sampler=sampler), "sampler.batch", config.batch_size, "train"
        ).sampler
    own_weights = backbone in ("features", "conv_small")
    pretrained = config.pretrained
    if pretrained is None:
        pretrained = not own_weights and config.weights is None
    known = pretrained or config.weights is not None
    head, dim = canonical(config.head), config.dim
    if head == "Identity()":  # the feature is the embedding, however wide it is
        dim = width_of(backbone) if items.x is None else items.x.shape[1]
    return dataclasses.replace(
        config,
        data=config.data if config.data in NAMES else whole_path(config.data),
        root=config.root and str(Path(config.root).expanduser().absolute()),
        weights=config.weights and str(Path(config.weights).expanduser().absolute()),
        backbone=backbone,
        pretrained=pretrained,
        freeze_bn=known if config.freeze_bn is None else config.freeze_bn,
        protocol=protocol,
        augment=config.augment or ("affine" if glyphs else "crop"),
        loss=canonical(config.loss),
        sampler=canonical(sampler or ""),
        batch_size=None,  # it is the `batch` of the sampler from here on
        epochs=float(config.epochs),
        head=head,
        dim=dim,
        noise=canonical(config.noise) if config.noise else None,
        confidence=canonical(config.confidence) if config.confidence else None,
        terms=tuple(canonical(term) for term in config.terms),
    )


def fold_specs(protocol: str) -> list[str] | None:
    """Return the specs that a ClassFolds without a `fold` stands for, one for each fold; None for any other protocol."""
    whole = ast.parse(canonical(protocol), mode="eval").body
    if not isinstance(whole, ast.Call) or ast.unparse(whole.func) != ClassFolds.__name__:
        return None
    written = ast.parse(protocol.strip(), mode="eval").body  # canonical fills `fold` in
    if isinstance(written, ast.Call) and any(word.arg == "fold" for word in written.keywords):
        return None
    part = build(protocol, ClassFolds)
    return [canonical(spec(ClassFolds(part.folds, fold, part.own_split))) for fold in range(part.folds)]


def check_loss(config: Train, items: Items) -> None:
    """Raise unless the loss of resolved settings can be built for the classes that train. Its weights take no memory."""
    protocol = make_protocol(config)
    given = spoil(items, protocol, config.noise, config.seed, config.allow_imports)
    classes = len(np.unique(given.y[protocol.rows(given, "train")]))
    with torch.device("meta"):
        build(config.loss, Loss, allow_imports=config.allow_imports, classes=classes, dim=config.dim)
