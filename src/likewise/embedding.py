"""embed_rows: a network and rows of a data set -> Embedded."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Int

from likewise.data.batches import batches, choose_workers, in_order
from likewise.models.embedder import Embedder
from likewise.progress import bar
from likewise.types import Embedded, Items


@torch.no_grad()
def embed_rows(
    embedder: Embedder,
    items: Items,
    rows: Int[np.ndarray, "n"],
    transform,
    *,
    device: torch.device,
    batch: int = 256,
    workers: int = 0,
    features: bool = False,
    quiet: bool = False,
    title: str = "embed",
) -> Embedded:
    """Embeddings of these rows, in evaluation mode, in float32, on the CPU. The network is left in the mode it was in.

    Args:
        features: keep the pooled features too.
    """
    was_training = embedder.training
    embedder.eval()
    z, e, f = [], [], []
    workers = choose_workers(workers) if len(rows) > 2 * batch else 0  # processes cost more than a few pictures
    try:
        with bar(title, len(rows), quiet=quiet) as progress:
            for part in batches(items, in_order(rows, batch), transform, device=device, workers=workers):
                out = embedder(part.x)
                z.append(out.z.float().cpu())
                e.append(out.e.float().cpu())
                if features:
                    f.append(out.f.float().cpu())
                progress.advance(len(part.row))
    finally:
        embedder.train(was_training)
    y, row = torch.as_tensor(items.y[rows]), torch.as_tensor(rows)
    return Embedded(torch.cat(z), y, row, torch.cat(e), torch.cat(f) if features else None)
