"""Section "Map": every sample a point in the plane, and its nearest neighbours."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from jaxtyping import Float
from torch import Tensor

from likewise.config import Report
from likewise.io.progress import bar
from likewise.report import projection
from likewise.report.blocks import Block, index_kind, many, reach
from likewise.report.records import Facts, Viewed
from likewise.report.section import Packing, Section, Study

MAPPED, HUGE = 10_000, 200_000
"""Samples that t-SNE itself maps unless it is asked for, the others being put between them; and from where on it is left out."""

NEAR_ROOM = 4_000_000
"""Bytes that the neighbours of all samples may take; with more runs or samples each shows fewer."""


def of_run(study: Study) -> dict[str, Float[np.ndarray, "N 2"]]:
    """Return the map by PCA, by its name. Maps that take long are added when the page is there (`slow_maps`)."""
    if study.z is None:
        return {}
    study.notes.extend(wanted(len(study.z), study.config)[1])
    return {} if study.config.map == "none" else {"PCA": projection.pca(study.z)}


def wanted(samples: int, config: Report) -> tuple[str, list[str]]:
    """The map to draw beside PCA, "" for none, and what must be said about it: what is left out unasked is noted."""
    if config.map != "auto":
        return {"tsne": "t-SNE", "umap": "UMAP"}.get(config.map, ""), []
    if not projection.is_installed("tsne"):
        return "", ["for a t-SNE map beside PCA: pip install 'likewise[map]'"]
    if samples > HUGE:
        return "", [f"t-SNE is left out for more than {HUGE} samples; --map tsne draws it"]
    some = f"t-SNE maps {MAPPED} of the {samples} samples, and the others are put between their nearest; --map tsne maps all"
    return "t-SNE", [some] if samples > MAPPED else []


def unfold(z: Float[Tensor, "N D"], name: str, similarity: str, way: str, config: Report) -> Float[np.ndarray, "N 2"]:
    """The map that takes its time, by t-SNE or UMAP."""
    with bar(f"{way} of {name}", 100, quiet=config.quiet) as shown:
        if way == "UMAP":
            return projection.umap(z, similarity, seed=config.seed)
        most = MAPPED if config.map == "auto" else None
        return projection.tsne(z, similarity, most=most, seed=config.seed, progress=shown.reach)


def pack(maps: dict[str, Float[np.ndarray, "N 2"]], packing: Packing) -> dict:
    """Names of the maps, and how neighbours and their similarities are to be read."""
    run = packing.run
    assert run is not None
    shown = near_shown(packing.facts, run)
    low, high = reach(run.near_sim) if shown and run.near_sim is not None else (0, 1)
    return {"names": list(maps), "near": {"k": shown, "low": low, "high": high}}


def blocks(facts: Facts) -> Iterator[Block]:
    """Yield the maps of all runs, then the neighbours of all runs."""
    runs = [(number, run, run.found["map"]) for number, run in enumerate(facts.runs) if "map" in run.found]
    for number, _, maps in runs:
        yield from (many(f"map-{number}-{name}", quantised(place)) for name, place in maps.items())
    for number, run, _ in runs:
        shown = near_shown(facts, run)
        if shown:
            assert run.near is not None and run.near_sim is not None
            near = run.near[:, :shown]
            low, high = reach(run.near_sim)
            share = np.nan_to_num((run.near_sim[:, :shown] - low) / (high - low)).clip(0, 1)
            yield many(
                f"near-{number}", near.astype(index_kind(len(near)))
            )  # -1, no answer, becomes the largest number
            yield many(f"similarity-{number}", np.round(255 * share).astype(np.uint8))


def near_shown(facts: Facts, run: Viewed) -> int:
    """How many neighbours of every sample have room."""
    if run.near is None or run.near_sim is None or "map" not in run.found:
        return 0
    whole = sum(len(one.near) for one in facts.runs if one.near is not None)
    each = index_kind(len(run.near))().nbytes + 1
    return min(run.near.shape[1], NEAR_ROOM // max(1, whole * each))


def quantised(place: Float[np.ndarray, "N 2"]) -> np.ndarray:
    """Places on a square of 2^16 steps a side, both axes to one scale; what is nowhere stands in the middle."""
    low = [reach(axis)[0] for axis in place.T]
    span = max(high - low for low, high in map(reach, place.T))
    share = np.nan_to_num((place - low) / span, nan=0.5).clip(0, 1)
    return np.round(share * 65535).astype(np.uint16)


SECTION = Section(
    "map",
    "Map",
    "Map of the embedding",
    "Every point is a sample; near ones look alike to the network. Point at one to see it, click to pin it with its nearest "
    "neighbours.",
    of_run=of_run,
    pack=pack,
    is_first=True,
    blocks=blocks,
    scripts=("points", "view", "regions", "map"),
)
