"""noise: any data and a noise model -> the same data as a table with wrong training labels, and pictures of what changed."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Int

from likewise.config import Noise, check
from likewise.config.spec import build
from likewise.contracts import Protocol
from likewise.data.images import drop
from likewise.data.table import places, write_table
from likewise.io.files import check_out
from likewise.protocols.splits import split_by
from likewise.render.figures import save_figure
from likewise.render.noise import draw_transitions, draw_tree
from likewise.runs.dataset import load_items, marked, spoil
from likewise.taxonomies import taxonomy
from likewise.types import Items, LikewiseError


@dataclass(frozen=True, eq=False)
class Spoiled:
    """Items with wrong labels, the rows that could go wrong, and the files that tell of it."""

    items: Items
    rows: Int[np.ndarray, "n"]
    table: Path
    pictures: tuple[Path, ...]


def noise(config: Noise, say=print) -> Spoiled:
    """Spoil labels of the train and val parts together, and write the table."""
    check(config)
    suffix = Path(config.out).suffix.lower()
    out = check_out(config.out, suffix if suffix == ".parquet" else ".csv", "noise")
    if out.resolve() == Path(config.data).expanduser().resolve():
        raise LikewiseError(
            f"noise: --out must not be the data itself, got '{config.out}' for both; choose another --out"
        )
    way = {"skip_bad": False, "workers": 0, "quiet": True, "allow_imports": config.allow_imports}
    items = load_items(config.data, config.root, **way, say=say)
    if items.y_clean is not None:
        raise LikewiseError(
            f"noise: the labels of '{config.data}' are spoiled already, it has `label_clean`; start from the clean data"
        )
    if config.taxonomy:
        items = dataclasses.replace(items, taxonomy=taxonomy(config.taxonomy, items.class_name))
    text = config.protocol or ("QueryGallery()" if marked(items) else "UnseenClasses()")
    protocol = build(text, Protocol, allow_imports=config.allow_imports)
    split = split_by(protocol, items)
    rows = np.flatnonzero((split == "train") | (split == "val"))
    items = dataclasses.replace(spoil(items, protocol, config.model, config.seed, config.allow_imports), split=split)
    written = dataclasses.replace(items, path=places(items, out))
    if config.drop_wrong:  # what is left is right: ordinary data
        written = dataclasses.replace(drop(written, np.flatnonzero(items.y != items.y_clean).tolist()), y_clean=None)
    write_table(written, str(out))
    pictures = {".png": draw_transitions(items, rows)}
    if items.taxonomy is not None and items.y_clean is not None:
        pictures["_tree.png"] = draw_tree(items.taxonomy, [items.class_name[c] for c in np.unique(items.y_clean[rows])])
    for end, figure in pictures.items():
        save_figure(figure, out.with_name(out.stem + end))
    return Spoiled(items, rows, out, tuple(out.with_name(out.stem + end) for end in pictures))
