"""The learned class hierarchy: a figure of its clusters, and its agreement with the known taxonomy."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from PIL import Image, ImageDraw, ImageFont, ImageOps
from rich.console import Console
from rich.table import Table
from scipy.cluster.hierarchy import leaves_list, linkage

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
from likewise.core.settings import Hierarchy

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
