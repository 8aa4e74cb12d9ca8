"""hierarchy: the learned tree of the training classes of a run, as a figure and a table, compared with a known taxonomy."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int
from PIL import Image
from torch import Tensor
from torch.nn import functional as F

from likewise.core.class_sums import class_sums
from likewise.core.devices import choose_device
from likewise.core.files import atomic_write, make_folder
from likewise.core.kmeans import kmeans
from likewise.core.settings import Hierarchy, check
from likewise.core.settings.spec import brief
from likewise.core.types import Items, LikewiseError
from likewise.data.images import image_of
from likewise.data.taxonomies import ancestors
from likewise.runs.folder import Run
from likewise.runs.hierarchy import write_hierarchy
from likewise.runs.open import OpenRun
from likewise.score.checks import rows_of
from likewise.score.hierarchy_view import (
    TILE_PIXELS,
    Agreement,
    LearnedHierarchy,
    draw_hierarchy,
    figure_lines,
    make_cards,
)
from likewise.score.metrics.clustering import ami

CHECKPOINT_TEXTS = {"best": "in its best network", "last": "in its last network", "untrained": "before training"}


def hierarchy(config: Hierarchy, say=print) -> LearnedHierarchy:
    """Return the clusters of the training classes: those of the loss, or k-means of the class means. Writes figure and tables."""
    check(config)
    run = Run(config.run)
    opened = OpenRun(
        run, checkpoint=config.checkpoint, device=choose_device(config.device), data=config.data, root=config.root,
        allow_imports=config.allow_imports, workers=config.workers, quiet=config.quiet, say=say,
    )  # fmt: skip
    items = opened.noisy_items
    rows = rows_of(opened.protocol, items, "train")
    used, y = np.unique(items.y[rows], return_inverse=True)
    names = tuple(items.class_name[c] for c in used)
    held = clusters_of(run, config.checkpoint)
    levels, how = find_levels(run, config, held, len(names))
    known = config.taxonomy is not None or items.taxonomy is not None
    paths = ancestors("hierarchy", names, config.taxonomy, items.taxonomy) if known else [()] * len(names)
    notes = [] if known else ["the data has no taxonomy to compare with; give one with --taxonomy"]
    notes += [] if run.done else ["this run is not finished, so this is its last checkpoint"]
    out = folder_for(run, config, bool(held))
    e = opened.embed(items, rows, title="embed train split")
    mean, typical = class_directions(e.z, torch.as_tensor(y))
    if not mean.isfinite().all():
        raise LikewiseError(
            f"hierarchy: the network of '{run.path}' must return finite embeddings, but some are not finite; it diverged or its "
            "file is damaged: use --restart to train it again"
        )
    if isinstance(levels, int):
        levels = [kmeans(mean, levels, spherical=True).label.numpy()]
    found = compare(levels, paths)
    notes += (
        ["the taxonomy puts all classes into one group, so there is nothing to compare"] if known and not found else []
    )
    learned = LearnedHierarchy(
        f"{how}, {CHECKPOINT_TEXTS[config.checkpoint]}", names, levels, found, notes, out / "hierarchy.png"
    )
    cards = make_cards(learned, paths, mean.numpy(), lambda c: thumbnail(items, int(rows[typical[c]])))
    page = draw_hierarchy(cards, f"{run.path.resolve().name}: {brief(opened.settings.loss)}", figure_lines(learned))
    write(out, learned, page)
    return learned


def folder_for(run: Run, config: Hierarchy, has_own: bool) -> Path:
    """Return the folder of the files: the run folder for the run's own tree; any other tree needs --out."""
    other = config.checkpoint == "untrained" or (config.clusters is not None and has_own)
    if other and not config.out:
        raise LikewiseError(
            f"hierarchy: '{run.path}' stores the tree of its own loss, and this is another tree; give a folder: --out FOLDER"
        )
    return make_folder(config.out or run.path, "hierarchy")


def find_levels(
    run: Run, config: Hierarchy, held: dict[str, Tensor], classes: int
) -> tuple[list[Int[np.ndarray, "C"]] | int, str]:
    """Return the cluster of every class, finest level first, as stored in the loss, or the number of clusters for k-means.

    The second value describes the method in words.
    """
    if classes < 3:
        raise LikewiseError(f"hierarchy: there must be three training classes or more, got {classes}; add classes")
    if config.clusters is None and held:
        return stored_levels(run, config.checkpoint, held, classes), "as stored in its loss"
    clusters = max(2, classes // 10) if config.clusters is None else config.clusters
    if not 2 <= clusters < classes:
        raise LikewiseError(
            f"hierarchy: clusters must be at least 2 and less than the {classes} training classes, got {clusters}; change it"
        )
    return clusters, "by k-means of the mean embeddings of classes"


def clusters_of(run: Run, checkpoint: str) -> dict[str, Tensor]:
    """Return the cluster tensors of the loss of a run (`cluster_1`, `begun` and so on); {} if the loss has none."""
    tensors = {} if checkpoint == "untrained" else run.load_tensors(run.network(checkpoint))
    first = next((key for key in tensors if key.startswith("loss.") and key.endswith(".cluster_1")), None)
    own = first and first.removesuffix("cluster_1")
    return {key.removeprefix(own): value for key, value in tensors.items() if key.startswith(own)} if own else {}


def stored_levels(run: Run, checkpoint: str, tensors: dict[str, Tensor], classes: int) -> list[Int[np.ndarray, "C"]]:
    """Return the cluster of every class at every level, from the tensors of the loss."""
    name = run.network(checkpoint)
    if not tensors.get("begun", torch.ones(())).all():
        if name == "best.safetensors" and clusters_of(run, "last").get("begun", torch.zeros(())).all():
            raise LikewiseError(
                f"hierarchy: the best checkpoint of '{run.path}' is from before the first clustering; use "
                "--checkpoint last, or --clusters N for k-means of its class means"
            )
        raise LikewiseError(
            f"hierarchy: the loss of '{run.path}' must have clustered its classes, but training ended before; train longer "
            "(--epochs), start clustering earlier (start= of the loss), or use --clusters N for k-means of the class means"
        )
    levels, group = [], np.arange(classes)
    while (key := f"cluster_{len(levels) + 1}") in tensors:
        above = tensors[key]
        whole = above.ndim == 1 and not above.is_floating_point() and len(above) and int(above.min()) >= 0
        if not whole or max(int(above.max()), group.max()) >= len(above) or (not levels and len(above) != classes):
            raise LikewiseError(
                f"hierarchy: loss.{key} in {run.path / name} must hold a cluster for each of {group.max() + 1} classes or "
                f"clusters, got {above.dtype} {tuple(above.shape)}; the file is damaged: use --restart to train the run again"
            )
        group = above.numpy()[group]
        levels.append(group)
    return levels


def class_directions(z: Float[Tensor, "N D"], y: Int[Tensor, "N"]) -> tuple[Float[Tensor, "C D"], Int[Tensor, "C"]]:
    """Return the mean direction of every class, and the sample nearest to it."""
    count = y.bincount()
    mean = F.normalize(class_sums(z, y, len(count)), dim=1)
    order = (z * mean[y]).sum(1).argsort(descending=True, stable=True)
    order = order[y[order].argsort(stable=True)]  # class by class, the nearest first
    return mean, order[count.cumsum(0) - count]


def compare(levels: list[Int[np.ndarray, "C"]], paths: list[tuple[str, ...]]) -> list[Agreement]:
    """Return the agreement of every level with every depth of the taxonomy that has two groups or more.

    A class whose path is shorter than a depth is in the group of its last ancestor.
    """
    found = []
    for level, cluster in enumerate(levels, 1):
        for depth in range(1, max(map(len, paths)) + 1):
            number: dict[tuple[str, ...], int] = {}
            group = np.array([number.setdefault(path[:depth], len(number)) for path in paths])
            if len(number) > 1:
                agree = ami(torch.as_tensor(cluster), torch.as_tensor(group))
                sizes = len(np.unique(cluster)), depth, len(number)
                found.append(Agreement(level, *sizes, agree, purity(cluster, group)))
    return found


def purity(cluster: Int[np.ndarray, "C"], group: Int[np.ndarray, "C"]) -> float:
    """Return the purity of clusters. Formula: 1/C sum_k max_g |cluster k and group g|"""
    pair, count = np.unique(np.stack([cluster, group]), axis=1, return_counts=True)
    most = np.zeros(pair[0].max() + 1, np.int64)
    np.maximum.at(most, pair[0], count)
    return float(most.sum() / len(cluster))


def thumbnail(items: Items, row: int) -> Image.Image | None:
    """Return a small version of the image of a row; None for data without image files."""
    if items.path is None:
        return None
    image = image_of(items, row)
    image.thumbnail((4 * TILE_PIXELS, 4 * TILE_PIXELS))  # hundreds of full-size images need much memory
    return image


def write(folder: Path, learned: LearnedHierarchy, page: Image.Image) -> None:
    """Write the figure, hierarchy.csv (which `--taxonomy` can read), and hierarchy.json with the tree and its comparison."""
    trees = {
        name: [f"level {n} cluster {learned.levels[n - 1][c]}" for n in range(len(learned.levels), 0, -1)]
        for c, name in enumerate(learned.class_names)
    }
    rows = [one._asdict() | {"ami": None if math.isnan(one.ami) else one.ami} for one in learned.comparison]
    write_hierarchy(folder, {"how": learned.how, "notes": learned.notes, "comparison": rows}, trees)
    with atomic_write(learned.picture) as file:
        page.save(file, format="PNG")
