"""embed: a trained network, or a backbone as it was published, and any data -> a file of embeddings or features."""

from __future__ import annotations

import os

import numpy as np
import torch

from likewise.config import Embed, Train, check
from likewise.engine.embed import embed_rows
from likewise.evaluation.scoring import as_compared
from likewise.io.files import check_out
from likewise.models.backbones import width_of
from likewise.models.embedder import Embedder
from likewise.runs.artifacts import save_embeddings
from likewise.runs.folder import Run
from likewise.runs.open import (
    choose_device,
    load_items,
    make_embedder,
    open_embedder,
    read_config,
    similarity_of,
    to_device,
    transforms,
)
from likewise.types import Embedded, LikewiseError


def embed(config: Embed, say=print, fetch: bool = True) -> Embedded:
    """Embed all rows of the data, and write them to `config.out` if that is not empty. See `load_items` for `fetch`."""
    check(config)
    out = check_out(config.out, ".npz", "embed") if config.out else None
    device = choose_device(config.device)
    run = Run(config.run) if os.path.exists(os.path.expanduser(config.run)) or os.sep in config.run else None
    settings = read_config(run, allow_imports=config.allow_imports) if run else of_backbone(config)
    items = load_items(
        config.data, config.root, skip_bad=config.skip_bad, workers=config.workers, quiet=config.quiet, say=say,
        flat=True, fetch=fetch, allow_imports=config.allow_imports,
    )  # fmt: skip
    features = run.about["features"] if run else None
    if (items.x is None) != (features is None) or (items.x is not None and items.x.shape[1] != features):
        wants = "pictures" if features is None else f"features of {features} numbers"
        has = "pictures" if items.x is None else f"features of {items.x.shape[1]} numbers"
        raise LikewiseError(f"embed: '{config.run}' was trained on {wants}, but '{config.data}' holds {has}")
    embedder = open_embedder(run, settings, config.which, device) if run else open_backbone(settings, device)
    _, plain = transforms(settings, embedder)
    rows, by_feature = np.arange(len(items)), config.layer == "feature"
    e = embed_rows(
        embedder, items, rows, plain, device=device, workers=config.workers, quiet=config.quiet, features=by_feature
    )
    similarity = "cosine" if by_feature else similarity_of(settings)
    e = Embedded(e.f, e.y, e.row, f=e.f) if by_feature and e.f is not None else as_compared(e, similarity)
    if out:  # who asks with a picture needs the network that made the file, up to its head
        made_by = {"run": run.path, "which": config.which} if run and not by_feature else {}
        save_embeddings(out, e, items, made_by | {"similarity": similarity})
    return e


def of_backbone(config: Embed) -> Train:
    """Settings of a network that is a backbone and nothing else."""
    if config.which != "best":
        raise LikewiseError(f"embed: --which is for a run, and '{config.run}' is no folder here; leave it out")
    try:
        dim = width_of(config.run)
    except LikewiseError as error:
        raise LikewiseError(f"embed: '{config.run}' is not a run folder, and no backbone either ({error})") from None
    if config.run == "conv_small":
        raise LikewiseError(
            "embed: a backbone with published weights is wanted, conv_small has none; take efficientnet_lite0"
        )
    return Train(
        data=config.data, backbone=config.run, pretrained=True, head="Identity()", dim=dim, augment="crop",
        allow_imports=config.allow_imports,
    )  # fmt: skip


def open_backbone(settings: Train, device: torch.device) -> Embedder:
    with torch.random.fork_rng(devices=[]):
        return to_device(make_embedder(settings, None), device).eval()
