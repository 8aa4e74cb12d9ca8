"""search: an image (or a row) and an index -> its nearest neighbours, as a table or a figure; and changes of the index."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from jaxtyping import Float
from PIL import Image

from likewise.core.errors import LikewiseError, printable
from likewise.core.files import atomic_write
from likewise.core.render.gallery import Tile, draw_gallery
from likewise.core.settings import Search
from likewise.data.dataset import data_folders, outside_files_warning
from likewise.data.images import read_image
from likewise.data.label_sets import labels_by_class
from likewise.deploy.index.build import Network, embed_added, path_of, row_image
from likewise.deploy.index.decision import IndexCalibration, warning_of
from likewise.deploy.index.index import Hit, Index
from likewise.deploy.index.label_filter import parse_filter
from likewise.deploy.index.new_classes import add_with_confusions, sentences
from likewise.deploy.index.snapshot import describe_labels
from likewise.deploy.neighbours_view import Neighbours, describe_decision
from likewise.runs.open import read_config

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


def change(index: Index, network: Network | None, config: Search, calibrated: IndexCalibration, say) -> list[dict]:
    """Apply --save, --add, --remove and --index: save the index, add and remove rows, update the faiss index.

    Returns:
        For every class that --add brings: the classes that it is confused with (`new_classes.add_with_confusions`).
    """
    new_classes = []
    if config.save:
        if network is not None:
            index.about["made_by"] |= network.stamp()
        index.save(Path(config.save).expanduser())
    if (config.add or config.remove) and index.folder is None:
        raise LikewiseError(
            "search: --add and --remove must have a saved index as target; save it first: --save FOLDER"
        )
    if config.add:
        row, new_classes = add_rows(network, config, calibrated, say)
        if calibrated.hint:
            say(printable(calibrated.hint))
        say(f"added: rows {row[0]} to {row[-1]}")
        for line in (line for report in new_classes if not calibrated.hint for line in sentences(report)):
            say(printable(line))
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
        warning = warning_of(calibrated.current())  # stored in the folder
        say(f"index: {index.folder} ({len(index.rows):,} rows, {index.kind})")
        if warning:
            say(warning)
    return new_classes


def add_rows(network: Network | None, config: Search, calibrated: IndexCalibration, say):
    """Embed the data of --add and add it to the index; return the new row numbers and the report of every new class."""
    items = embed_added(network, config, say)
    assert items.x is not None
    z, names = items.x, [items.class_name[label] for label in items.y]
    paths = [""] * len(items) if items.path is None else list(items.path)
    sets = labels_by_class(items)
    labels = None if sets is None else dict(zip(items.class_name, sets, strict=True))
    return add_with_confusions(calibrated, z, names, lambda: calibrated.index.add(z, names, paths, items.box, labels))


def answer(
    index: Index, network: Network | None, config: Search, calibrated: IndexCalibration, out: Path | None
) -> Neighbours:
    """Return the nearest neighbours of `config.query` and the decision, and draw them into the file `out` if it is given."""
    assert config.query is not None
    by_row = config.query.isdecimal() and not os.path.exists(config.query)
    if by_row:
        place = int(index.rows.places([int(config.query)])[0])
        z, image = index.rows.vectors[place], row_image(index, place) if out else None
    else:
        place, image = None, read_image(Path(config.query).expanduser())
        z = embed_image(image, network)
    wanted = parse_filter(config.filter) if config.filter else None
    hits = index.find(z[None], config.k, but=[place], wanted=wanted)[0]
    if not hits and wanted is not None:
        raise LikewiseError(f"search: no other row passes the filter {config.filter!r}; drop one of its labels")
    if not hits:
        alone = f"holds row {config.query} alone" if by_row else "is empty"
        raise LikewiseError(f"search: the target {alone}; there are no other rows to find")
    decision = calibrated.decide(hits if wanted is None else index.find(z[None], 1, but=[place])[0])
    if out:
        assert image is not None
        label = None if place is None else index.rows.label(place)
        shown = Tile(image, label or Path(config.query).name, "query")
        save_figure(out, shown, hits, index, place, describe_decision(decision) if decision else None)
    rows = index.rows
    found = [
        {"row": int(rows.table["row"][hit.place]), "similarity": hit.similarity, "class": rows.label(hit.place),
         "path": path_of(index, hit.place), "same": not by_row and is_same(z, rows.vectors[hit.place]),
         **describe_labels(rows, hit.place, place)}
        for hit in hits
    ]  # fmt: skip
    return Neighbours(found, config.query, decision, calibrated.hint or warning_of(calibrated.current()))


def is_same(z: Float[np.ndarray, "D"], other: Float[np.ndarray, "D"]) -> bool:
    """Whether two embeddings come from the same pixels, up to rounding: other images differ much more."""
    return bool(np.linalg.norm(z - other) <= SAME_IMAGE_TOLERANCE * np.linalg.norm(other))


def embed_image(image: Image.Image, network: Network | None) -> Float[np.ndarray, "D"]:
    """Return the embedding of a query image by the network that embedded the gallery."""
    if network is None:
        raise LikewiseError("search: an image query needs a network, and the target names none; give --model RUN")
    return network.embed([network.see(image)])[0]


def save_figure(
    out: Path, query: Tile, hits: list[Hit], index: Index, own: int | None, decision: str | None = None
) -> None:
    """Draw the query and its nearest neighbours as a PNG file. `own`: place of the query if it is a row."""
    rows, neighbours = index.rows, []
    for hit in hits:
        name, relevance = rows.label(hit.place), describe_labels(rows, hit.place, own).get("relevance")
        right = None if own is None else name == rows.label(own)
        neighbours.append(Tile(row_image(index, hit.place), name, f"{hit.similarity:.3f}", right, relevance))
    note = f"nearest first, {'cosine similarity' if rows.similarity == 'cosine' else 'minus the distance'} below"
    page = draw_gallery([(query, neighbours)], decision or "Nearest neighbours", note)
    with atomic_write(out) as aside:
        page.save(aside, format="PNG")
