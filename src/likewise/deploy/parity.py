"""Compare the embeddings of an exported network with those of the run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Shaped
from PIL import Image
from torch import Tensor

from likewise.core.contracts import Protocol
from likewise.core.retrieval.ranking import nearest
from likewise.core.types import Items, LikewiseError
from likewise.data.images import file_of, image_of
from likewise.deploy.model import Model
from likewise.models.pretrained.weights import brief

PARITY_TOLERANCE = 1e-4
"""Largest allowed difference of embeddings, relative to the largest norm. Another order of float32 sums gives about 1e-6."""

SYNTHETIC_SAMPLES = 16
"""Number of synthetic images or vectors for a comparison without data."""


@dataclass(frozen=True)
class Parity:
    """Comparison of the embeddings of an export and of the run.

    Attributes:
        samples, of: number and kind of the samples.
        difference: largest difference, relative to the largest norm.
        cosine: smallest cosine of the two embeddings of a sample.
        neighbours: share of samples with the same nearest neighbour; None for a single sample.
    """

    samples: int
    of: str
    difference: float
    cosine: float
    neighbours: float | None

    def __str__(self) -> str:
        near = "" if self.neighbours is None else f", the same nearest neighbour for {self.neighbours:.1%}"
        apart = f"differ by {self.difference:.1e} at most" if self.difference else "are equal to the bit"
        return (
            f"{self.samples} {self.of}: embeddings {apart} (up to {PARITY_TOLERANCE:g} is allowed), "
            f"cosine {self.cosine:.6f} at least{near}"
        )


def parity_inputs(
    model: Model, protocol: Protocol, items: Items | None, count: int
) -> tuple[Sequence | np.ndarray, str]:
    """Return the samples for the comparison, and their kind in words: spread over the test split, or synthetic."""
    if items is None:
        rng, kind = np.random.default_rng(0), "images" if model.transform else "vectors"
        if model.transform is None:
            made = rng.normal(size=(SYNTHETIC_SAMPLES, model.embedder.feature_dim)).astype(np.float32)
        else:
            made = [synthetic_image(rng) for _ in range(SYNTHETIC_SAMPLES)]
        return made, f"synthetic {kind} (no data)"
    rows = protocol.rows(items, "test")
    source, rows = ("test split", rows) if len(rows) else ("data", np.arange(len(items)))
    rows = rows[np.linspace(0, len(rows) - 1, min(count, len(rows))).astype(int)]
    if items.x is not None:
        return items.x[rows].astype(np.float32), f"vectors of the {source}"
    whole = items.box is None
    return [file_of(items, r) if whole else image_of(items, r) for r in rows.tolist()], f"images of the {source}"


def synthetic_image(rng: np.random.Generator) -> Image.Image:
    """Return an image of random smooth colours and random size."""
    coarse = Image.fromarray(rng.integers(0, 256, (8, 8, 3), dtype=np.uint8))
    return coarse.resize(tuple(rng.integers(40, 400, 2).tolist()), Image.Resampling.BICUBIC)


def compare(model: Model, embed: Callable, given: Sequence | Shaped[np.ndarray, "N F"], of: str) -> Parity:
    """Compare the embeddings of samples by the network of the run and by `embed` of the export; raises if they differ."""
    own = model(given)
    try:
        other = np.concatenate([embed(given[start : start + 32]) for start in range(0, len(given), 32)])
    except Exception as error:  # onnxruntime has several unrelated exception classes
        raise LikewiseError(f"export: example.py fails on the data ({brief(error)}); nothing was written") from error
    if other.shape != own.shape:
        raise LikewiseError(
            f"export: embeddings must have the shape {own.shape}, got {other.shape}; nothing was written"
        )
    length = [np.linalg.norm(z.astype(np.float64), axis=1) for z in (own, other)]
    difference = float(np.abs(own - other).max() / max(length[0].max(), 1e-12))
    if not difference <= PARITY_TOLERANCE:  # also raises for NaN
        raise LikewiseError(
            f"export: embeddings must equal those of the run up to {PARITY_TOLERANCE:g}, got a difference of "
            f"{difference:.2g} on {len(given)} {of}; nothing was written. Please report it with the versions of torch and "
            "onnxruntime"
        )
    cosine = (own.astype(np.float64) * other).sum(1) / np.maximum(length[0] * length[1], 1e-12)
    near = [first_neighbour(z, model.similarity) for z in (own, other)] if len(own) > 1 else None
    same = None if near is None else float((near[0] == near[1]).float().mean())
    return Parity(len(given), of, difference, float(cosine.min()), same)


def first_neighbour(z: Float[np.ndarray, "N D"], similarity: str) -> Tensor:
    table = torch.as_tensor(z)
    return nearest(table, table, 1, own=torch.arange(len(table)), similarity=similarity)[0]
