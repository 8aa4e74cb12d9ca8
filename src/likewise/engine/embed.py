"""embed_rows: a network and rows of a data set -> Embedded."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Int

from likewise.data.augment import Plain
from likewise.data.loader import Held, batches, choose_workers, in_order
from likewise.distributed.collectives import gathered, share
from likewise.engine.cuda_graphs import Looking
from likewise.io.progress import bar
from likewise.models.embedder import Embedder
from likewise.types import Embedded, Items

MIN_CAPTURE_BATCHES = 8
"""Batches from which on it pays to capture the network first."""

MAX_DEVICE_BATCHES = 256
"""Batches whose embeddings stay on the device at most: fetching them one by one would make it wait."""


@torch.no_grad()
def embed_rows(
    embedder: Embedder,
    items: Items,
    rows: Int[np.ndarray, "n"],
    look: Plain | None,
    *,
    device: torch.device,
    held: Held | None = None,
    batch: int = 256,
    workers: int = 0,
    features: bool = False,
    quiet: bool = False,
    title: str = "embed",
) -> Embedded:
    """Embeddings of these rows, in evaluation mode, in float32, on the CPU. The network is left in the mode it was in.

    Processes that work together (see `distributed.collectives`) call it together: each embeds its share, and all get the whole.

    Args:
        look: what the network sees of pictures; None for features.
        held: where decoded pictures are; None: in the cache if they are there, else they are read from their files.
        features: keep the pooled features too.
    """
    was_training = embedder.training
    embedder.eval()
    own = rows[share(len(rows))]
    width = {"z": embedder.dim, "e": embedder.dim} | ({"f": embedder.feature_dim} if features else {})
    found, fresh = {name: torch.empty(len(own), wide) for name, wide in width.items()}, {name: [] for name in width}

    def fetch(last: int) -> None:
        for name, parts in fresh.items():
            new = torch.cat(parts)
            found[name][last - len(new) : last] = new
            parts.clear()

    workers = choose_workers(workers) if len(own) > 2 * batch else 0  # processes cost more than a few pictures
    if held is None and look is not None:
        from likewise.data.placement import at_hand  # not above: features and pictures at hand need no cache

        held = at_hand(items, own, device, look.side)
    see = Looking(embedder) if device.type == "cuda" and len(own) > MIN_CAPTURE_BATCHES * batch else embedder
    try:
        with bar(title, len(own), quiet=quiet) as progress:
            for part in batches(items, in_order(own, batch), look, device=device, held=held, workers=workers):
                out = see(part.x)
                for name, parts in fresh.items():
                    parts.append(getattr(out, name).float().clone())
                progress.advance(len(part.row))
                if len(fresh["z"]) == MAX_DEVICE_BATCHES or progress.done == len(own):
                    fetch(progress.done)
    finally:
        embedder.train(was_training)
    whole = {name: gathered(t, len(rows)) for name, t in found.items()}
    return Embedded(y=torch.as_tensor(items.y[rows]), row=torch.as_tensor(rows), **whole)
