"""embed: a trained network and any data -> a file of embeddings."""

from __future__ import annotations

import dataclasses

import numpy as np

from likewise.configs import Embed, check
from likewise.embedding import embed_rows
from likewise.files import check_out
from likewise.run import Run
from likewise.stages.assemble import choose_device, load_items, open_embedder, read_config, similarity_of, transforms
from likewise.stages.saved import save_embeddings
from likewise.types import Embedded, LikewiseError


def embed(config: Embed, say=print) -> Embedded:
    """Embed all rows of the data, and write them to `config.out` if that is not empty."""
    check(config)
    out = check_out(config.out, ".npz", "embed") if config.out else None
    device = choose_device(config.device)
    run = Run(config.run)
    settings = read_config(run, allow_imports=config.allow_imports)
    items = load_items(
        config.data, config.root, skip_bad=config.skip_bad, workers=config.workers, quiet=config.quiet, say=say,
        flat=True,
    )  # fmt: skip
    features = run.about["features"]
    if (items.x is None) != (features is None) or (items.x is not None and items.x.shape[1] != features):
        wants = "pictures" if features is None else f"features of {features} numbers"
        has = "pictures" if items.x is None else f"features of {items.x.shape[1]} numbers"
        raise LikewiseError(f"embed: '{run.path}' was trained on {wants}, but '{config.data}' holds {has}")
    embedder = open_embedder(run, settings, config.which, device)
    _, plain = transforms(settings, embedder)
    rows = np.arange(len(items))
    e = embed_rows(embedder, items, rows, plain, device=device, workers=config.workers, quiet=config.quiet)
    similarity = similarity_of(settings)
    if similarity == "euclidean":
        e = dataclasses.replace(e, z=e.e)
    if out:
        save_embeddings(out, e, items, {"run": run.path, "which": config.which, "similarity": similarity})
    return e
