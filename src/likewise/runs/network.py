"""Build the network and the loss of a run from its settings, and load their weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import nn

from likewise.core.contracts import BatchSampler, Loss, Relevance
from likewise.core.durations import training_steps
from likewise.core.settings import Train
from likewise.core.settings.spec import build
from likewise.core.types import Items, LikewiseError
from likewise.data.augment import Augment, Plain
from likewise.models.embedder import Embedder
from likewise.runs.folder import Run


def load_into(module: nn.Module, tensors: dict[str, torch.Tensor], where) -> None:
    """Load tensors into a module. Raises unless names and shapes are equal; the error names the file `where`."""
    own = module.state_dict()
    missing, extra = sorted(own.keys() - tensors.keys()), sorted(tensors.keys() - own.keys())
    shapes = [k for k in own.keys() & tensors.keys() if own[k].shape != tensors[k].shape]
    if missing or extra or shapes:
        differences = [f"{k} is missing" for k in missing] + [f"{k} is unknown" for k in extra]
        differences += [f"{k} is {tuple(tensors[k].shape)}, not {tuple(own[k].shape)}" for k in sorted(shapes)]
        more = f" and {len(differences) - 3} more" if len(differences) > 3 else ""
        raise LikewiseError(
            f"run: {where} is the checkpoint of another architecture: {'; '.join(differences[:3])}{more}; "
            "use the settings it was trained with"
        )
    module.load_state_dict(tensors)


def make_embedder(config: Train, features: int | None, *, reseed: bool, empty: bool = False) -> Embedder:
    """Return the network of these settings, with new weights drawn from their seed.

    Args:
        features: width of the input feature vectors; None: the input is images.
        reseed: True: seed torch's global generator first, as training does, so that later draws of the caller depend only on
            the seed. False: leave the global generator unchanged.
        empty: do not download or read weights, because the caller loads a checkpoint.
    """
    if reseed:
        torch.manual_seed(config.seed)
        return _build_embedder(config, features, empty)
    with torch.random.fork_rng(devices=[]):  # new weights are drawn on the CPU
        torch.default_generator.manual_seed(config.seed)
        return _build_embedder(config, features, empty)


def _build_embedder(config: Train, features: int | None, empty: bool) -> Embedder:
    def head(width: int, dim: int) -> nn.Module:
        return build(config.head, nn.Module, allow_imports=config.allow_imports, features=width, dim=dim)

    assert config.backbone is not None
    return Embedder(
        config.backbone, config.dim, head, pool=config.pool, pretrained=bool(config.pretrained) and not empty,
        weights=None if empty else config.weights, layer_norm=config.layer_norm, freeze_bn=bool(config.freeze_bn),
        freeze_backbone=bool(config.freeze_backbone), lora=config.lora, features=features,
        size=config.size if features is None else None,
    )  # fmt: skip


def to_device(embedder: Embedder, device: torch.device) -> Embedder:
    """Move a network to a device; on CUDA in channels_last layout, which is faster for convolutions."""
    layout: dict[str, Any] = {"memory_format": torch.channels_last} if device.type == "cuda" else {}
    return embedder.to(device=device, **layout)


def transforms(config: Train, embedder: Embedder) -> tuple[Augment, Plain] | tuple[None, None]:
    """Return the image transforms of training and of evaluation; (None, None) for feature vectors."""
    if config.backbone == "features":
        return None, None
    size = config.size or embedder.input_size
    kind, side = config.augment, config.short_side
    assert size is not None and kind is not None
    look = embedder.preprocess
    augment = Augment(size, kind, side, config.crop_scale, config.color_jitter, preprocess=look)
    return augment, Plain(size, kind, side, preprocess=look)


def open_embedder(run: Run, config: Train, checkpoint: str, device: torch.device) -> Embedder:
    """Return the network of a run, in evaluation mode: "best" on validation, "last", or "untrained"."""
    stored = None if checkpoint == "untrained" else _stored(run, checkpoint, "embedder.")
    embedder = make_embedder(config, run.about.get("features"), reseed=False, empty=stored is not None)
    if stored is not None:
        load_into(embedder, *stored)
    return to_device(embedder, device).eval()


def _stored(run: Run, checkpoint: str, prefix: str) -> tuple[dict[str, torch.Tensor], Path]:
    """Return the tensors of a checkpoint whose names have a prefix, by their names without it; and the file."""
    name = run.network(checkpoint)
    tensors = run.load_tensors(name)
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}, run.path / name


def facts_of(config: Train, items: Items, rows: Int[np.ndarray, "n"]) -> dict:
    """Return values for the arguments that specs may omit, from the training samples: classes and labels count from 0.

    Args:
        items: the data with the labels of training.
        rows: the training rows.
    """
    used, labels = np.unique(items.y[rows], return_inverse=True)
    class_names = tuple(items.class_name[c] for c in used)
    facts = {"classes": len(used), "dim": config.dim, "labels": labels, "class_names": class_names}
    facts |= {"seed": config.seed, "taxonomy": items.taxonomy, "sample_names": sample_names(items, rows)}
    if config.relevance is not None:  # files of pairs and triplets may name samples of other splits
        facts["other_names"] = sample_names(items, np.setdiff1d(np.arange(len(items)), rows))
    if items.label_sets is None:
        return facts
    sets = [items.label_sets[c] for c in used]
    number = {label: place for place, label in enumerate(sorted({label for one in sets for label in one}))}
    return facts | {"label_sets": tuple(tuple(number[label] for label in one) for one in sets)}


def sample_names(items: Items, rows: Int[np.ndarray, "n"]) -> tuple[str, ...]:
    """Return the names by which files of pairs or triplets name these rows: the path, or the row number for features."""
    return tuple(str(row) if items.path is None else items.path[row] for row in rows.tolist())


def make_relevance(config: Train, facts: dict) -> Relevance | None:
    """Return the relevance of the settings; None: equal labels are relevant."""
    if config.relevance is None:
        return None
    if "SharedLabels" in config.relevance and "label_sets" not in facts:
        raise LikewiseError(
            "train: SharedLabels needs data with several labels per sample, and this data has one; drop --relevance, or give a "
            "table with a column `labels`"
        )
    return build(config.relevance, Relevance, allow_imports=config.allow_imports, **facts)


def make_loss(config: Train, facts: dict, relevance: Relevance | None) -> Loss:
    """Return a new loss of the settings, with the relevance; its proxies are then the columns of the targets."""
    known = facts if relevance is None else facts | facts_of_relevance(relevance)
    loss = build(config.loss, Loss, allow_imports=config.allow_imports, **known)
    return loss if relevance is None else loss.with_relevance(relevance)


def facts_of_relevance(relevance: Relevance) -> dict:
    """Return the facts that differ with a relevance: it has its own proxies, and no bound on the positives of a sample."""
    return {"largest_class": None} | ({} if relevance.width is None else {"classes": relevance.width})


def facts_with(config: Train, sampler: BatchSampler, embedder: Embedder) -> dict:
    """Return values for the arguments that specs may omit, from the sampler and the network."""
    steps = training_steps(config.epochs, config.steps, len(sampler))
    return {"largest_class": sampler.largest_class, "per_pass": len(sampler), "steps": steps, "embedder": embedder}


def open_loss(
    run: Run,
    config: Train,
    items: Items,
    rows: Int[np.ndarray, "n"],
    embedder: Embedder,
    checkpoint: str,
    device: torch.device,
) -> Loss:
    """Return the loss of a run with its trained parameters, in evaluation mode.

    Args:
        items: the data with the labels of training.
        rows: the training rows.
    """
    facts = facts_of(config, items, rows)
    assert config.sampler is not None
    imports = {"allow_imports": config.allow_imports}
    with torch.random.fork_rng(devices=[]):
        facts["relevance"] = make_relevance(config, facts)
        facts |= facts_with(config, build(config.sampler, BatchSampler, **imports, **facts), embedder)
        loss = make_loss(config, facts, facts["relevance"])
    load_into(loss, *_stored(run, checkpoint, "loss."))
    return loss.to(device).eval()
