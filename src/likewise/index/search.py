"""search: an image (or a row) and an index -> its nearest neighbours, as a table or a figure; and changes of the index."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from jaxtyping import Float
from PIL import Image

from likewise.config import Search
from likewise.data.images import read_image
from likewise.index.build import Network, add_data, path_of, row_image
from likewise.index.index import Hit, Index
from likewise.io.files import atomic_write
from likewise.render.gallery import Tile, draw_gallery
from likewise.runs.dataset import data_folders, outside_files_warning
from likewise.runs.settings import read_config
from likewise.types import LikewiseError

SAME_IMAGE_TOLERANCE = 1e-4
"""Largest relative difference between two embeddings of the same image."""


def outside_of(index: Index, network: Network | None, config: Search) -> str:
    """Return a warning about images outside the data of the network's run and the folder of the target; "" if none."""
    target = Path(config.target).expanduser()
    folders = [str(target if target.is_dir() else target.absolute().parent)]
    if network is not None:
        folders += data_folders(read_config(network.run, allow_imports=config.allow_imports))
    places = (path_of(index, place) for place in range(len(index.rows.vectors)))
    return outside_files_warning([os.path.abspath(place) for place in places if place], folders)


def change(index: Index, network: Network | None, config: Search, say) -> None:
    """Apply --save, --add, --remove and --index: save the index, add and remove rows, update the faiss index."""
    if config.save:
        if network is not None:
            index.about["made_by"] |= network.stamp()
        index.save(Path(config.save).expanduser())
    if (config.add or config.remove) and index.folder is None:
        raise LikewiseError(
            "search: --add and --remove must have a saved index as target; save it first: --save FOLDER"
        )
    if config.add:
        row = add_data(index, network, config, say)
        say(f"added: rows {row[0]} to {row[-1]}")
    if config.remove:
        index.remove(config.remove)
    if config.index or config.add or config.remove:
        if (message := index.approximate(config.index or index.kind, config.k, config.quiet)) is not None:
            say(message)
    elif index.behind:
        say(
            f"the {index.kind} index does not cover the current rows, so queries are slow; update it: --index {index.kind}"
        )
    if index.folder is not None and (config.save or config.add or config.remove or config.index):
        say(f"index: {index.folder} ({len(index.rows):,} rows, {index.kind})")


def answer(index: Index, network: Network | None, config: Search, out: Path | None) -> list[dict]:
    """Return the nearest neighbours of `config.query` as records, and draw them into the file `out` if it is given."""
    assert config.query is not None
    by_row = config.query.isdecimal() and not os.path.exists(config.query)
    if by_row:
        place = int(index.rows.places([int(config.query)])[0])
        z, image = index.rows.vectors[place], row_image(index, place) if out else None
    else:
        place, image = None, read_image(Path(config.query).expanduser())
        z = embed_image(image, network)
    hits = index.find(z[None], config.k, but=[place])[0]
    if not hits:
        alone = f"holds row {config.query} alone" if by_row else "is empty"
        raise LikewiseError(f"search: the target {alone}; there are no other rows to find")
    if out:
        assert image is not None
        label = None if place is None else index.rows.label(place)
        save_figure(out, Tile(image, label or Path(config.query).name, "query"), hits, index, label)
    rows = index.rows
    return [
        {"row": int(rows.table["row"][hit.place]), "similarity": hit.similarity, "class": rows.label(hit.place),
         "path": path_of(index, hit.place), "same": not by_row and is_same(z, rows.vectors[hit.place])}
        for hit in hits
    ]  # fmt: skip


def is_same(z: Float[np.ndarray, "D"], other: Float[np.ndarray, "D"]) -> bool:
    """Whether two embeddings come from the same pixels, up to rounding: other images differ much more."""
    return bool(np.linalg.norm(z - other) <= SAME_IMAGE_TOLERANCE * np.linalg.norm(other))


def embed_image(image: Image.Image, network: Network | None) -> Float[np.ndarray, "D"]:
    """Return the embedding of a query image by the network that embedded the gallery."""
    if network is None:
        raise LikewiseError("search: an image query needs a network, and the target names none; give --model RUN")
    return network.embed([network.see(image)])[0]


def save_figure(out: Path, query: Tile, hits: list[Hit], index: Index, label: str | None) -> None:
    """Draw the query and its nearest neighbours as a PNG file."""
    rows, neighbours = index.rows, []
    for hit in hits:
        name = rows.label(hit.place)
        right = None if label is None else name == label
        neighbours.append(Tile(row_image(index, hit.place), name, f"{hit.similarity:.3f}", right))
    note = f"nearest first, {'cosine similarity' if rows.similarity == 'cosine' else 'minus the distance'} below"
    page = draw_gallery([(query, neighbours)], "Nearest neighbours", note)
    with atomic_write(out) as aside:
        page.save(aside, format="PNG")
