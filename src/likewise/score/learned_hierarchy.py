"""hierarchy: the learned tree of the training classes of a run, as a figure and a table, compared with a known taxonomy."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from PIL import Image, ImageDraw, ImageFont, ImageOps
from rich.console import Console
from rich.table import Table
from scipy.cluster.hierarchy import leaves_list, linkage
from torch import Tensor
from torch.nn import functional as F

from likewise.core.class_sums import class_sums
from likewise.core.devices import choose_device
from likewise.core.files import atomic_write, make_folder
from likewise.core.kmeans import kmeans
from likewise.core.notebook import table, view
from likewise.core.render.gallery import (
    EDGE_PIXELS,
    INK_COLOUR,
    PAPER_COLOUR,
    SOFT_COLOUR,
    WRONG_COLOUR,
    fit,
    font_of,
    one_line,
)
from likewise.core.render.tables import escape
from likewise.core.settings import Hierarchy, check
from likewise.core.settings.spec import brief
from likewise.core.types import Items, LikewiseError
from likewise.data.images import image_of
from likewise.data.taxonomies import ancestors
from likewise.runs.folder import Run
from likewise.runs.open import OpenRun
from likewise.runs.scores import write_hierarchy
from likewise.score.checks import rows_of
from likewise.score.metrics.clustering import ami

TILE_PIXELS, GAP_PIXELS, LINE_PIXELS, CARD_COLUMNS, PAD_PIXELS, HEAD_PIXELS, PARENT_PIXELS = 66, 8, 13, 6, 12, 32, 36
"""Side of a tile, gap, height of a text line, tiles in a row of a card, padding, heights of the heads of cards and parents."""

CARD_COLOUR, RULE_COLOUR = "#f4f6f9", "#d5dae2"
"""Background of a card, and frame of an image."""

AGREEMENT_HEADS = ("level", "clusters", "depth of the tree", "groups", "AMI", "purity")
"""Heads of the table of agreements."""

MAX_CARDS, MAX_CARD_CLASSES = 40, 12
"""Largest number of clusters in the figure, and of cells in a card; the last cell may count the classes left out."""

COLUMN_HEIGHT = 1100
"""Target height of a column of cards in pixels; there are two to four columns."""


class Agreement(NamedTuple):
    """Agreement of the clusters of a level (1: finest) with the groups at a depth of the known taxonomy (1: coarsest)."""

    level: int
    clusters: int
    depth: int
    groups: int
    ami: float  # adjusted mutual information; 1: equal, 0: chance
    purity: float  # share of classes in the majority group of their cluster


@dataclass(frozen=True, eq=False)
class LearnedHierarchy:
    """A learned class hierarchy: for each level, finest first, the cluster of every class; its agreement, notes and figure."""

    how: str
    class_names: tuple[str, ...]
    levels: list[Int[np.ndarray, "C"]]
    comparison: list[Agreement]
    notes: list[str]
    picture: Path

    @view
    def _repr_html_(self) -> str:
        notes = [f"clusters: {self.how}", *self.notes, f"figure: {self.picture}"]
        return table("tree of classes", AGREEMENT_HEADS, agreement_lines(self), notes)


class Leaf(NamedTuple):
    """A class with an image if there is one, and its known group if the cluster has another name.

    `odd`: its known group is not the majority group of its cluster.
    """

    name: str
    image: Image.Image | None
    group: str = ""
    odd: bool = False


class Card(NamedTuple):
    """A cluster: its classes, the number of classes left out (`more`), and the name of its parent cluster."""

    title: str
    detail: str
    leaves: list[Leaf]
    more: int = 0
    parent: str = ""


def agreement_lines(learned: LearnedHierarchy) -> list[tuple[str, ...]]:
    """Return level, clusters, depth, groups, AMI and purity of every comparison with the known taxonomy as text."""
    return [
        (*map(str, (one.level, one.clusters, one.depth, one.groups)), f"{one.ami:.3f}", f"{100 * one.purity:.1f} %")
        for one in learned.comparison
    ]


def show_hierarchy(learned: LearnedHierarchy, config: Hierarchy) -> None:
    """Print the agreement with the known taxonomy, and the notes."""
    console = Console(highlight=False)
    if learned.comparison:
        shown = Table(*AGREEMENT_HEADS)
        for line in agreement_lines(learned):
            shown.add_row(*line)
        console.print(shown)
    for note in (f"clusters: {learned.how}", *learned.notes, f"figure: {learned.picture}"):
        console.print(escape(note), soft_wrap=True)


def best(learned: LearnedHierarchy, level: int) -> Agreement | None:
    """Return the agreement of a level with the depth of the known taxonomy that fits best; None without a taxonomy."""
    own = [one for one in learned.comparison if one.level == level and not math.isnan(one.ami)]
    return max(own, key=lambda one: one.ami, default=None)


def figure_lines(learned: LearnedHierarchy) -> list[str]:
    """Return the two lines below the title of the figure."""
    clusters = len(np.unique(learned.levels[0]))
    shown = f", the {MAX_CARDS} largest shown" if clusters > MAX_CARDS else ""
    lines = [
        f"{len(learned.class_names)} training classes in {clusters} clusters{shown}, {learned.how}; similar clusters side by side"
    ]
    if agreed := best(learned, 1):
        lines.append(
            f"red: not in the majority group of its cluster; {agreed.groups} groups at depth {agreed.depth} of the known "
            f"taxonomy; AMI {agreed.ami:.2f}, purity {agreed.purity:.0%}"
        )
    return lines


def make_cards(
    learned: LearnedHierarchy,
    paths: Sequence[tuple[str, ...]],
    mean: Float[np.ndarray, "C D"],
    image_of: Callable[[int], Image.Image | None],
) -> list[Card]:
    """Return a card for each of the largest clusters, named after the majority group of its classes.

    Args:
        paths: the known ancestors of each class, coarsest first.
        mean: mean embedding of each class, which orders similar clusters and classes side by side.
        image_of: returns the image of a class, or None if it has no image.
    """
    largest = [cluster for cluster, _ in Counter(learned.levels[0].tolist()).most_common(MAX_CARDS)]
    shown = np.isin(learned.levels[0], largest)

    def cards_of(level: int, members: Bool[np.ndarray, "C"], parent: str) -> list[Card]:
        cluster, agreed, cards = learned.levels[level - 1], best(learned, level), []
        group = [path[: agreed.depth] if agreed else () for path in paths]
        numbers = np.unique(cluster[members & shown])
        order = in_chain(np.stack([mean[members & (cluster == number)].mean(0) for number in numbers]))
        for number in numbers[order].tolist():
            own = members & (cluster == number)
            word = f"cluster {number}" if level == 1 else f"level {level} cluster {number}"
            major, title, detail = name_cluster(word, [group[c] for c in np.flatnonzero(own)])
            if level > 1:
                cards += cards_of(level - 1, own, " / ".join(filter(None, (parent, f"{title}, {detail}"))))
                continue
            chosen = choose(mean, np.flatnonzero(own))
            shares = ["" if group[c] == major else "".join(group[c][-1:]) for c in chosen]
            leaves = [
                Leaf(learned.class_names[c], image_of(c), share, bool(major) and group[c] != major)
                for c, share in zip(chosen, shares, strict=True)
            ]
            cards.append(Card(title, detail, leaves, int(own.sum()) - len(leaves), parent))
        return cards

    return cards_of(len(learned.levels), np.ones(len(paths), bool), "")


def name_cluster(cluster: str, groups: Sequence[tuple[str, ...]]) -> tuple[tuple[str, ...], str, str]:
    """Return the majority group of a cluster (empty: no majority), the title of the cluster, and its size as text."""
    ((most, count),) = Counter(groups).most_common(1)
    size = f"{len(groups)} class{'es' if len(groups) > 1 else ''}"
    if not most or (count == 1 and len(groups) > 1):
        return (), cluster, size
    if 2 * count <= len(groups):
        return (), cluster, f"{size}, {count} of them {most[-1]}"
    return most, most[-1], f"{count} of {size}, {cluster}"


def choose(mean: Float[np.ndarray, "C D"], members: Int[np.ndarray, "n"]) -> list[int]:
    """Return the classes on a card: all, or those nearest to the mean of the cluster; similar classes side by side."""
    if len(members) > MAX_CARD_CLASSES:
        near = mean[members] @ mean[members].mean(0)
        members = members[np.sort(np.argsort(-near, kind="stable")[: MAX_CARD_CLASSES - 1])]
    return members[in_chain(mean[members])].tolist()


def in_chain(x: Float[np.ndarray, "n D"]) -> Int[np.ndarray, "n"]:
    """Return an order with similar rows side by side: the leaves of the average linkage."""
    return leaves_list(linkage(x, "average", optimal_ordering=True)) if len(x) > 2 else np.arange(len(x))


def draw_hierarchy(cards: Sequence[Card], title: str, words: Sequence[str]) -> Image.Image:
    """Return the figure: cards in order, column after column, below the names of their parent clusters."""
    thumb = TILE_PIXELS if any(leaf.image for card in cards for leaf in card.leaves) else 0
    texts = max(len(captions(leaf)) for card in cards for leaf in card.leaves)
    step = thumb + texts * LINE_PIXELS + GAP_PIXELS
    heights = [
        HEAD_PIXELS + math.ceil((len(c.leaves) + bool(c.more)) / CARD_COLUMNS) * step + PAD_PIXELS - GAP_PIXELS
        for c in cards
    ]
    columns = into_columns(
        [card.parent for card in cards], heights, min(4, max(2, round(sum(heights) / COLUMN_HEIGHT)))
    )
    wide = 2 * PAD_PIXELS + CARD_COLUMNS * (TILE_PIXELS + GAP_PIXELS) - GAP_PIXELS
    top, width = 60 + 17 * len(words), 2 * EDGE_PIXELS + len(columns) * (wide + GAP_PIXELS) - GAP_PIXELS
    deepest = max(column[-1][1] + heights[column[-1][0]] for column in columns)
    page = Image.new("RGB", (width, top + deepest + EDGE_PIXELS), PAPER_COLOUR)
    draw = ImageDraw.Draw(page)
    draw.text(
        (EDGE_PIXELS, 18),
        fit(title, font_of(19, True), width - 2 * EDGE_PIXELS),
        font=font_of(19, True),
        fill=INK_COLOUR,
    )
    for number, line in enumerate(words):
        draw.text(
            (EDGE_PIXELS, 46 + 17 * number),
            fit(line, font_of(12), width - 2 * EDGE_PIXELS),
            font=font_of(12),
            fill=SOFT_COLOUR,
        )
    for number, column in enumerate(columns):
        left, above = EDGE_PIXELS + number * (wide + GAP_PIXELS), ""
        for place, down in column:
            card = cards[place]
            if card.parent != above:
                name = fit(card.parent, font_of(12, True), wide)
                draw.text((left, top + down - PARENT_PIXELS + 10), name, font=font_of(12, True), fill=INK_COLOUR)
                draw.line([(left, top + down - 7), (left + wide, top + down - 7)], fill=INK_COLOUR, width=1)
            above = card.parent
            place_card(page, draw, card, (left, top + down, left + wide, top + down + heights[place]), thumb, step)
    return page


def into_columns(parents: Sequence[str], heights: Sequence[int], columns: int) -> list[list[tuple[int, int]]]:
    """Return (card, offset from the top) for columns of similar height. The parent is named above its first card of a column."""
    limit = max(max(heights), sum(heights) // columns) + PARENT_PIXELS
    while True:
        found: list[list[tuple[int, int]]] = [[]]
        down = 0
        for place, (parent, height) in enumerate(zip(parents, heights, strict=True)):
            new = not found[-1] or parent != parents[place - 1]
            if found[-1] and down + (PARENT_PIXELS if parent and new else 0) + height > limit:
                found.append([])
                down, new = 0, True
            down += PARENT_PIXELS if parent and new else 0
            found[-1].append((place, down))
            down += height + GAP_PIXELS
        if len(found) <= columns:
            return found
        limit += LINE_PIXELS


def place_card(
    page: Image.Image, draw: ImageDraw.ImageDraw, card: Card, box: tuple[int, int, int, int], thumb: int, step: int
) -> None:
    """Draw a card into `box`; `thumb`: height of an image, `step`: height of a row, in pixels."""
    left, top, right, _ = box
    draw.rounded_rectangle(box, 9, fill=CARD_COLOUR)
    room = right - left - 2 * PAD_PIXELS
    detail = fit(card.detail, font_of(11), round(0.7 * room))
    title = fit(card.title, font_of(13, True), int(room - PAD_PIXELS - font_of(11).getlength(detail)))
    draw.text((left + PAD_PIXELS, top + 8), title, font=font_of(13, True), fill=INK_COLOUR)
    draw.text((right - PAD_PIXELS, top + 10), detail, font=font_of(11), fill=SOFT_COLOUR, anchor="ra")
    for place in range(len(card.leaves) + bool(card.more)):
        line, across = divmod(place, CARD_COLUMNS)
        x, y = left + PAD_PIXELS + across * (TILE_PIXELS + GAP_PIXELS), top + HEAD_PIXELS + line * step
        if place < len(card.leaves):
            place_leaf(page, draw, card.leaves[place], x, y, thumb)
        else:
            middle = (x + TILE_PIXELS // 2, y + max(thumb, 2 * LINE_PIXELS) // 2)
            draw.text(middle, f"+ {card.more} more", font=font_of(11), fill=SOFT_COLOUR, anchor="mm")


def place_leaf(page: Image.Image, draw: ImageDraw.ImageDraw, leaf: Leaf, x: int, y: int, thumb: int) -> None:
    """Draw the image of a class, framed in red if it is odd, its name and its group."""
    frame = 3 if leaf.odd else 1
    if thumb:
        draw.rectangle([x, y, x + TILE_PIXELS - 1, y + TILE_PIXELS - 1], fill=WRONG_COLOUR if leaf.odd else RULE_COLOUR)
    if leaf.image is not None:
        size = (TILE_PIXELS - 2 * frame, TILE_PIXELS - 2 * frame)
        page.paste(ImageOps.fit(leaf.image, size, Image.Resampling.LANCZOS), (x + frame, y + frame))
    for number, (words, font, colour) in enumerate(captions(leaf)):
        draw.text((x, y + thumb + 2 + number * LINE_PIXELS), words, font=font, fill=colour)


def captions(leaf: Leaf) -> list[tuple[str, ImageFont.FreeTypeFont, str]]:
    """Return the text lines below an image with font and colour: its name, then its group."""
    name, group = wrapped(leaf.name, font_of(10), 3), wrapped(leaf.group, font_of(9), 2)
    colour = WRONG_COLOUR if leaf.odd else SOFT_COLOUR
    return [(line, font_of(10), INK_COLOUR) for line in name] + [(line, font_of(9), colour) for line in group]


def wrapped(text: str, font: ImageFont.FreeTypeFont, most: int) -> list[str]:
    """Return a text in at most `most` lines, broken after a space, an underscore or a hyphen."""
    lines, width = [""], TILE_PIXELS + GAP_PIXELS // 2
    for word in re.findall(r"[^ _-]*[ _-]?", one_line(text)):
        if lines[-1] and font.getlength((lines[-1] + word).rstrip()) > width and len(lines) < most:
            lines.append("")
        lines[-1] += word
    return [fit(line.strip(), font, width) for line in lines if line.strip()]


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
