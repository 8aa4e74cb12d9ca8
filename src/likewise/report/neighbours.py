"""The nearest gallery neighbours of every sample of a target."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from likewise.core.progress import bar
from likewise.core.retrieval.ranking import rank
from likewise.report.queries import places_of
from likewise.report.target import ReportTarget
from likewise.score.retrieve import hidden_groups


def as_tensor(x: Float[np.ndarray, "N D"], similarity: str) -> Float[Tensor, "N D"]:
    """Return embeddings as a tensor, scaled to unit length if they are compared by cosine."""
    z = torch.as_tensor(x if x.flags.writeable else x.copy())  # torch warns about read-only arrays
    return F.normalize(z, dim=1) if similarity == "cosine" else z


def neighbours(
    one: ReportTarget, z: Float[Tensor, "N D"] | None, k: int, quiet: bool
) -> tuple[Int[np.ndarray, "N K"], Float[np.ndarray, "N K"]]:
    """Return the places and similarities of the `k` nearest gallery samples of every sample; -1 and NaN for missing ones.

    Neighbours that the evaluation saved are used if there are at least `k` for a query; all other samples are ranked now. If `z`
    is None, saved neighbours are used in any number, and nothing is ranked.
    """
    assert one.items is not None and one.row is not None
    n = len(one.row)
    near, sim = np.full((n, k), -1), np.full((n, k), np.nan)
    todo = np.ones(n, bool)
    if one.queries is not None and (one.queries.nearest.shape[1] >= min(k, n - 1) or z is None):
        place, width = places_of(one.queries.row, one.row), min(k, one.queries.nearest.shape[1])
        near[place, :width] = places_of(one.queries.nearest[:, :width], one.row)
        sim[place, :width] = np.where(near[place, :width] >= 0, one.queries.similarity[:, :width], np.nan)
        todo[place] = False
    gallery = np.flatnonzero(one.query_gallery[1])
    query = np.flatnonzero(todo)
    if z is None or not len(query) or not len(gallery):
        return near, sim
    own = torch.as_tensor(places_of(query, gallery))
    y = torch.as_tensor(one.items.y)
    group = hidden_groups(one.items)
    groups: dict[str, Any] = {} if group is None else {"group": group[query], "gallery_group": group[gallery]}
    with bar(f"rank {one.name}", 100, quiet=quiet) as shown:
        found = rank(
            z[query], torch.zeros_like(y[query]), z[gallery], torch.ones_like(y[gallery]), k=k, own=own,
            similarity=one.similarity, progress=shown.reach, **groups,
        )  # fmt: skip
    width = found.row.shape[1]
    row = found.row.numpy()
    near[query, :width] = np.where(row >= 0, gallery[row], -1)
    sim[query, :width] = np.where(row >= 0, found.sim.numpy(), np.nan)
    return near, sim
