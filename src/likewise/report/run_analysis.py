"""One run, or one file of embeddings -> all that a page shows of it."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from likewise.config import KEPT_OUT, SPECS, Report, Train
from likewise.config.spec import brief
from likewise.evaluation.baseline import say_loss
from likewise.io.progress import bar
from likewise.metrics import as_text
from likewise.metrics import spectrum as decay
from likewise.report import projection
from likewise.report.class_tree import class_means, grow
from likewise.report.confusion import confuse
from likewise.report.curves import draw_curves
from likewise.report.distances import compare_pairs
from likewise.report.label_trust import noise_of
from likewise.report.opened import Opened
from likewise.report.pairwise import places_of
from likewise.report.queries import galleries
from likewise.report.records import Pool, Score, Spectrum, Viewed
from likewise.retrieval.ranking import rank

MAPPED, HUGE = 10_000, 200_000
"""Samples that t-SNE itself maps unless it is asked for, the others being put between them; and from where on it is left out."""

FIRST = (
    "data",
    "recipe",
    "loss",
    "confidence",
    "terms",
    "noise",
    "sampler",
    "protocol",
    "backbone",
    "dim",
    "length",
    "lr",
    "seed",
)
"""Settings that are always told, in this order; the others where they are not the usual."""


def view(one: Opened, number: int, pool: Pool | None, config: Report) -> Viewed:
    """Work everything out. `number` is that of the pool."""
    lines = [] if one.run is None else one.run.read_log()
    notes = [*one.notes, *before(one.scores)]
    seen = Viewed(
        one.name, number, headline(one), {} if one.settings is None else told(one.settings), scores_of(one.scores),
        decides(one), draw_curves(lines), similarity=one.similarity,
        noise=None if one.run is None else noise_of(one, lines, config.top),
    )  # fmt: skip
    if pool is None:
        return dataclasses.replace(seen, notes=tuple(notes))
    assert one.items is not None and one.row is not None
    z = None
    if one.items.x is not None:
        z = as_tensor(one.items.x, one.similarity)
        notes += wanted(len(z), config)[1]
        maps = {} if config.map == "none" else {"PCA": projection.pca(z)}
        seen = dataclasses.replace(seen, maps=maps, **shape_of(z, one, pool, config))
    near, sim = neighbours(one, z, config.k, config.quiet)
    seen = dataclasses.replace(seen, near=near, near_sim=sim)
    if one.queries is not None:
        place = places_of(one.queries.row, one.row)
        value = one.queries.each[seen.decides]
        found = place[~np.isnan(value)]  # the others have nothing to find
        mean = None if z is None else class_means(z, pool.label, len(pool.class_name))
        seen = dataclasses.replace(
            seen, galleries=galleries(place, value, pool.label, near, sim, config.top, config.seed),
            confusion=confuse(found, near[found, 0], pool.label, mean),
        )  # fmt: skip
    return dataclasses.replace(seen, notes=tuple(notes))


def before(scores: dict) -> list[str]:
    """What the network was before training, where that was looked at."""
    known = scores.get("before", {}).get("metrics", {})
    told = ", ".join(f"{name} {as_text(name, value)}" for name, value in known.items())
    return [f"before training: {told}", *filter(None, [say_loss(scores).replace("\n", " ")])] if told else []


def headline(one: Opened) -> str:
    """What it is, in one line."""
    if one.settings is None:
        assert one.items is not None and one.items.x is not None
        return f"{len(one.items)} embeddings of {one.items.x.shape[1]} numbers, {len(np.unique(one.items.y))} classes"
    parts = [one.settings.loss, one.settings.confidence, *one.settings.terms]
    noise = f", with {one.settings.noise}" if one.settings.noise else ""
    return f"{' + '.join(brief(part) for part in parts if part)} on {one.settings.data}{noise}"


def told(settings: Train) -> dict[str, str]:
    """Settings that matter for what was learned, in words."""
    usual = {f.name: f.default for f in dataclasses.fields(Train)}
    every = dataclasses.asdict(settings)
    names = [*FIRST, *(n for n in every if n not in FIRST and n not in KEPT_OUT and every[n] != usual[n])]
    shown = {}
    for name in (n for n in names if every[n] not in (None, (), "")):
        value = every[name] if isinstance(every[name], list | tuple) else (every[name],)
        shown[name] = ", ".join(map(brief if name in SPECS else str, value))
    return shown


def decides(one: Opened) -> str:
    """The metric that ranks queries."""
    names = [] if one.queries is None else list(one.queries.each)
    return "MAP@R" if "MAP@R" in names else names[0] if names else ""


def scores_of(scores: dict) -> dict[str, Score]:
    """Every metric; those of galleries that were asked alone behind those of all."""
    found = {}
    for gallery, some in {"": scores, **scores.get("galleries", {})}.items():
        for name, value in some.get("metrics", {}).items():
            low, high = some.get("interval", {}).get(name) or (None, None)
            value = float("nan") if value is None else value
            ends = "" if low is None or high is None else f" ({100 * low:.1f} to {100 * high:.1f})"
            found[f"{name}, {gallery}" if gallery else name] = Score(value, low, high, f"{as_text(name, value)}{ends}")
    return found


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


def as_tensor(x: Float[np.ndarray, "N D"], similarity: str) -> Float[Tensor, "N D"]:
    """Embeddings as they are compared."""
    z = torch.as_tensor(x if x.flags.writeable else x.copy())  # torch takes no others
    return F.normalize(z, dim=1) if similarity == "cosine" else z


def shape_of(z: Float[Tensor, "N D"], one: Opened, pool: Pool, config: Report) -> dict:
    """How the embedding fills its space, and what its classes are like."""
    size = np.bincount(pool.label, minlength=len(pool.class_name))
    unit = z if one.similarity == "cosine" else F.normalize(z, dim=1)
    enough = min(z.shape) > 2  # values to compare, once the largest is left out
    return {
        "distances": compare_pairs(z, pool.label, one.similarity, seed=config.seed),
        "spectrum": Spectrum(decay.spectrum(unit).numpy(), decay.spectral_decay(unit)) if enough else None,
        "tree": grow(class_means(z, pool.label, len(size)), size, pool.groupings),
    }


def neighbours(
    one: Opened, z: Float[Tensor, "N D"] | None, k: int, quiet: bool
) -> tuple[Int[np.ndarray, "N K"], Float[np.ndarray, "N K"]]:
    """The nearest answers of every sample: as they were ranked, and ranked now where they were not, or not so many."""
    assert one.items is not None and one.row is not None
    n = len(one.row)
    near, sim = np.full((n, k), -1), np.full((n, k), np.nan)
    todo = np.ones(n, bool)
    if one.queries is not None and (one.queries.nearest.shape[1] >= min(k, n - 1) or z is None):
        place, width = places_of(one.queries.row, one.row), min(k, one.queries.nearest.shape[1])
        near[place, :width] = places_of(one.queries.nearest[:, :width], one.row)
        sim[place, :width] = np.where(near[place, :width] >= 0, one.queries.similarity[:, :width], np.nan)
        todo[place] = False
    answers = np.flatnonzero(one.sides[1])
    ask = np.flatnonzero(todo)
    if z is None or not len(ask) or not len(answers):
        return near, sim
    own = torch.as_tensor(places_of(ask, answers))
    y = torch.as_tensor(one.items.y)
    group = None if one.items.group is None else torch.as_tensor(one.items.group)
    groups: dict[str, Any] = {} if group is None else {"group": group[ask], "gallery_group": group[answers]}
    with bar(f"rank {one.name}", 100, quiet=quiet) as shown:
        found = rank(
            z[ask], torch.zeros_like(y[ask]), z[answers], torch.ones_like(y[answers]), k=k, own=own,
            similarity=one.similarity, progress=shown.reach, **groups,
        )  # fmt: skip
    width = found.row.shape[1]
    row = found.row.numpy()
    near[ask, :width] = np.where(row >= 0, answers[row], -1)
    sim[ask, :width] = np.where(row >= 0, found.sim.numpy(), np.nan)
    return near, sim
