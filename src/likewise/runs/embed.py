"""Embed rows of a data set with a network."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import torch
from jaxtyping import Int

from likewise.core.distributed.collectives import gathered, share
from likewise.core.progress import Bar, bar
from likewise.core.types import Embedded, Items
from likewise.data.augment import Plain
from likewise.data.loader import ImageStore, batches, choose_workers, in_order
from likewise.models.cuda_graphs import GraphedInference
from likewise.models.embedder import Embedder

MIN_CAPTURE_BATCHES = 8
"""Number of batches above which capturing the network as a CUDA graph saves time."""

MAX_DEVICE_BATCHES = 256
"""Batches whose embeddings are held on the device before they are copied; a copy per batch would stall the device."""

ROWS_PER_BATCH = 256
IMAGES_PER_CPU_BATCH = 32
"""On a CPU, the layers of a larger batch of images exceed what the allocator keeps: each batch would map its memory again."""

MIN_ROWS_FOR_WORKERS = 512
"""Number of rows above which starting reader processes takes less time than they save."""


@torch.no_grad()
def embed_rows(
    embedder: Embedder,
    items: Items,
    rows: Int[np.ndarray, "n"],
    look: Plain | None,
    *,
    device: torch.device,
    held: ImageStore | None = None,
    workers: int = 0,
    features: bool = False,
    quiet: bool = False,
    title: str | Bar = "embed",
) -> Embedded:
    """Return the embeddings of these rows as float32 on the CPU, computed in evaluation mode; the mode is restored afterwards.

    If several processes form a group (see `distributed.collectives`), all must call this function: each embeds its share of the
    rows, and all return the embeddings of all rows.

    Args:
        look: transform of the images; None for feature vectors.
        held: where decoded images are; None: the cache if it has these images, otherwise their files.
        workers: processes that read images.
        features: also return the pooled features.
        title: text of the progress bar; or the bar of the caller, which is advanced by these rows.
    """
    was_training = embedder.training
    embedder.eval()
    own = rows[share(len(rows))]
    width = {"z": embedder.dim, "e": embedder.dim} | ({"f": embedder.feature_dim} if features else {})
    result = {name: torch.empty(len(own), columns) for name, columns in width.items()}
    on_device = {name: [] for name in width}

    def fetch(last: int) -> None:
        for name, blocks in on_device.items():
            new = torch.cat(blocks)
            result[name][last - len(new) : last] = new
            blocks.clear()

    batch = IMAGES_PER_CPU_BATCH if device.type == "cpu" and look is not None else ROWS_PER_BATCH
    workers = choose_workers(workers) if len(own) > MIN_ROWS_FOR_WORKERS else 0
    if held is None and look is not None:
        from likewise.data.placement import open_cached  # imported late: only this case needs the cache

        held = open_cached(items, own, device, look.side)
    network = (
        GraphedInference(embedder) if device.type == "cuda" and len(own) > MIN_CAPTURE_BATCHES * batch else embedder
    )
    try:
        done = 0
        with nullcontext(title) if isinstance(title, Bar) else bar(title, len(own), quiet=quiet) as progress:
            for data in batches(items, in_order(own, batch), look, device=device, held=held, workers=workers):
                out = network(data.x)
                for name, blocks in on_device.items():
                    blocks.append(getattr(out, name).float().clone())
                progress.advance(len(data.row))
                done += len(data.row)
                if len(on_device["z"]) == MAX_DEVICE_BATCHES or done == len(own):
                    fetch(done)
    finally:
        embedder.train(was_training)
    whole = {name: gathered(t, len(rows)) for name, t in result.items()}
    return Embedded(y=torch.as_tensor(items.y[rows]), row=torch.as_tensor(rows), **whole)
