"""Section "Map": a point in the plane for every sample, and its nearest neighbours."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from jaxtyping import Float, Int
from torch import Tensor

from likewise.core.errors import pip_install
from likewise.core.progress import bar
from likewise.core.settings import Report
from likewise.report import projection
from likewise.report.section import (
    Block,
    Facts,
    Packing,
    RunView,
    Section,
    Study,
    array_block,
    finite_range,
    index_dtype,
)
from likewise.score.query_sample import USUAL_QUERY_COUNT

MAX_MAPPED_SAMPLES, MAX_TSNE_SAMPLES = 10_000, 200_000
"""With --map auto: samples that t-SNE maps, the others are placed between them; and samples above which t-SNE is skipped."""

MAX_NEIGHBOUR_BYTES = 4_000_000
"""Largest size of the neighbours of all runs; with more runs or samples, each sample gets fewer neighbours."""


def of_run(study: Study) -> dict[str, Float[np.ndarray, "N 2"]]:
    """Return the PCA map under its name. Slower maps are added after the first page is written (`write_report.add_slow_map`)."""
    if study.z is None:
        return {}
    study.notes.extend(choose_slow_map(len(study.z), study.config)[1])
    ranked = None if study.near is None else ranked_places(study.near)
    if ranked is not None and study.config.map != "none":
        study.notes.append(f"the map has the neighbours of {len(ranked):,} random samples of {len(study.z):,}")
    return {} if study.config.map == "none" else {"PCA": projection.pca(study.z)}


def choose_slow_map(samples: int, config: Report) -> tuple[str, list[str]]:
    """Return the map to compute beside PCA ("t-SNE", "UMAP" or ""), and notes on what --map auto leaves out."""
    if config.map != "auto":
        return {"tsne": "t-SNE", "umap": "UMAP"}.get(config.map, ""), []
    if not projection.is_installed("tsne"):
        return "", [f"for a t-SNE map beside PCA: {pip_install('likewise[map]')}"]
    if samples > MAX_TSNE_SAMPLES:
        return "", [f"t-SNE is skipped for more than {MAX_TSNE_SAMPLES} samples; --map tsne computes it"]
    some = (
        f"t-SNE maps {MAX_MAPPED_SAMPLES} of the {samples} samples and places the others between their nearest; "
        "--map tsne maps all"
    )
    return "t-SNE", [some] if samples > MAX_MAPPED_SAMPLES else []


def draw_slow_map(
    z: Float[Tensor, "N D"], name: str, similarity: str, way: str, config: Report
) -> Float[np.ndarray, "N 2"]:
    """Return the map by t-SNE or UMAP (`way`). `name` is the run in the title of the progress bar."""
    with bar(f"{way} of {name}", 100, quiet=config.quiet) as shown:
        if way == "UMAP":
            return projection.umap(z, similarity, seed=config.seed)
        most = MAX_MAPPED_SAMPLES if config.map == "auto" else None
        return projection.tsne(z, similarity, most=most, seed=config.seed, progress=shown.reach)


def pack(maps: dict[str, Float[np.ndarray, "N 2"]], packing: Packing) -> dict:
    """Return the names of the maps, the number of neighbours per sample, and the range of their quantised similarities."""
    run = packing.run
    assert run is not None
    shown = shown_neighbours(packing.facts, run)
    low, high = finite_range(run.near_sim) if shown and run.near_sim is not None else (0, 1)
    ranked = None if not shown or run.near is None else ranked_places(run.near)
    some = {} if ranked is None else {"ranked": len(ranked)}
    return {"names": list(maps), "near": {"k": shown, "low": low, "high": high, **some}}


def blocks(facts: Facts) -> Iterator[Block]:
    """Yield the maps of all runs, then the neighbours of all runs."""
    runs = [(number, run, run.found["map"]) for number, run in enumerate(facts.runs) if "map" in run.found]
    for number, _, maps in runs:
        yield from (array_block(f"map-{number}-{name}", quantise(place)) for name, place in maps.items())
    for number, run, _ in runs:
        shown = shown_neighbours(facts, run)
        if shown:
            assert run.near is not None and run.near_sim is not None
            kind, ranked = index_dtype(len(run.near)), ranked_places(run.near)
            if ranked is not None:
                yield array_block(f"ranked-{number}", ranked.astype(kind))
            rows = slice(None) if ranked is None else ranked
            low, high = finite_range(run.near_sim)
            share = np.nan_to_num((run.near_sim[rows, :shown] - low) / (high - low)).clip(0, 1)
            # the cast turns -1, no neighbour, into the maximum of the dtype
            yield array_block(f"near-{number}", run.near[rows, :shown].astype(kind))
            yield array_block(f"similarity-{number}", np.round(255 * share).astype(np.uint8))


def ranked_places(near: Int[np.ndarray, "N K"]) -> Int[np.ndarray, "n"] | None:
    """Return the samples that have neighbours, if these were ranked for a sample of more than `USUAL_QUERY_COUNT`; else None."""
    ranked = np.arange(len(near)) if len(near) <= USUAL_QUERY_COUNT else np.flatnonzero((near >= 0).any(1))
    return None if len(ranked) == len(near) else ranked


def shown_neighbours(facts: Facts, run: RunView) -> int:
    """Return the number of neighbours per sample that fit into the page."""
    if run.near is None or run.near_sim is None or "map" not in run.found:
        return 0
    every = [one.near for one in facts.runs if one.near is not None]
    whole = sum(len(near) if (ranked := ranked_places(near)) is None else len(ranked) for near in every)
    each = index_dtype(len(run.near))().nbytes + 1
    return min(run.near.shape[1], MAX_NEIGHBOUR_BYTES // max(1, whole * each))


def quantise(place: Float[np.ndarray, "N 2"]) -> np.ndarray:
    """Return coordinates as uint16 with one scale for both axes; a NaN becomes the middle."""
    low = [finite_range(axis)[0] for axis in place.T]
    span = max(high - low for low, high in map(finite_range, place.T))
    share = np.nan_to_num((place - low) / span, nan=0.5).clip(0, 1)
    return np.round(share * 65535).astype(np.uint16)


SECTION = Section(
    "map",
    "Map",
    "Map of the embedding",
    "Every point is a sample; the embeddings of near points are similar. The axes are "
    "stretched to fill the frame. Point at a sample to see its image; click to pin it and to see its nearest neighbours.",
    of_run=of_run,
    pack=pack,
    is_first=True,
    blocks=blocks,
    scripts=("points", "view", "regions", "map"),
)
