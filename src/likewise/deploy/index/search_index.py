"""search: an image (or a row) and an index -> its nearest neighbours, as a table or a figure; and changes of the index."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from jaxtyping import Float
from rich.console import Console
from rich.table import Table

from likewise.core.errors import LikewiseError, print_text, printable
from likewise.core.files import atomic_write, check_output_path, json_text
from likewise.core.notebook import table, view
from likewise.core.render.gallery import Tile, draw_gallery
from likewise.core.render.tables import escape
from likewise.core.settings import Search, check
from likewise.core.vectors import in_memory
from likewise.data.dataset import data_folders, outside_files_warning
from likewise.data.images import read_image
from likewise.data.label_sets import labels_by_class
from likewise.deploy.index.known_unknown import (
    NO_DECISION,
    IndexCalibration,
    add_with_confusions,
    sentences,
    warning_of,
)
from likewise.deploy.index.open_index import (
    Network,
    count_rows,
    embed_added,
    open_index,
    path_of,
    row_image,
    scope_of,
)
from likewise.deploy.index.row_labels import parse_filter
from likewise.deploy.index.stored_rows import describe_labels
from likewise.deploy.index.vector_index import Hit, Index
from likewise.runs.open import read_config

SAME_IMAGE_TOLERANCE = 1e-4
"""Largest relative difference between two embeddings of the same image."""


def search(config: Search, say=print) -> Neighbours:
    """Save or change the index, search for the query and serve the page, in this order; each only if the config requests it.

    Returns:
        The k nearest rows of the query: row, similarity, class and path of each, and whether it is the query image itself
        (`same`); empty without a query. Its `decision` is known or unknown, if the run is calibrated; its `new_classes` are
        the classes that --add brought, and the classes that each is confused with.
    """
    check(config)
    if not (config.query is not None or config.serve or config.save or config.add or config.remove or config.index):
        raise LikewiseError(
            "search: one action must be given, got none; give --query, --serve, --save, --add, --remove or --index"
        )
    if config.query is not None and os.path.isdir(config.query):
        raise LikewiseError(
            f"search: --query must be one image or a row, got the folder '{config.query}'; name one of its images, or drop "
            "them on the page of --serve"
        )
    if config.out and config.query is None:
        raise LikewiseError("search: --out is a figure of the results of a --query, which is missing; give --query too")
    if config.filter and config.query is None:
        raise LikewiseError("search: --filter limits the results of a --query, which is missing; give --query too")
    out = check_output_path(config.out, ".png", "search") if config.out else None
    if config.serve:
        from likewise.deploy.search.search_page import check_serving, serve  # needs an extra of likewise

        upload, token = check_serving(config)
    index, network = open_index(config, say)
    calibrated = IndexCalibration(index, network)
    if out and not config.serve and (warning := outside_of(index, network, config)):
        say(printable(warning))
    new_classes = change(config, calibrated, say)
    found = Neighbours() if config.query is None else answer(config, calibrated, out)
    scope = scope_of(config, network)
    if config.serve:
        serve(config, calibrated, upload, token, scope, lambda: describe_served(index, network, config, scope), say)
    found.new_classes, found.searched = new_classes, f"{count_rows(index.rows)}: {scope}"
    return found


def describe_served(index: Index, network: Network | None, config: Search, scope: str) -> list[str]:
    """Return what a page searches, and warnings about its index."""
    facts = [f"searched: {count_rows(index.rows)}: {scope}"]
    return [one for one in (*facts, outside_of(index, network, config), behind_of(index)) if one]


def behind_of(index: Index) -> str:
    """Return a warning if the faiss index should be updated; "" if not."""
    if not index.behind:
        return ""
    return (
        f"the {index.kind} index does not cover the current rows, so queries are slow; update it: --index {index.kind}"
    )


def show_search(found: Neighbours, config: Search) -> None:
    """Print what `likewise search` found: as JSON, or as a table and the path of the figure."""
    if config.json:
        print_text(found.as_json())
    elif config.query is not None:
        show_neighbours(found)
        if config.out:
            print_text(f"figure: {config.out}")


def outside_of(index: Index, network: Network | None, config: Search) -> str:
    """Return a warning about images outside the data of the network's run and the folder of the target; "" if none."""
    target = Path(config.target).expanduser()
    folders = [str(target if target.is_dir() else target.absolute().parent)]
    if network is not None:
        folders += data_folders(read_config(network.run, allow_imports=config.allow_imports))
    home, files = index.folder or "", index.rows.folders()
    found = [(os.path.abspath(os.path.join(home, one)), count, path_of(index, first)) for one, count, first in files]
    return outside_files_warning([(folder, count, os.path.abspath(file)) for folder, count, file in found], folders)


def change(config: Search, calibrated: IndexCalibration, say) -> list[dict]:
    """Apply --save, --add, --remove and --index: save the index, add and remove rows, update the faiss index.

    Returns:
        For every class that --add brings: the classes that it is confused with (`known_unknown.add_with_confusions`).
    """
    index, network, new_classes = calibrated.index, calibrated.network, []
    if config.save:
        if network is not None:
            index.about["made_by"] |= network.stamp()
        index.save(Path(config.save).expanduser())
    if (config.add or config.remove) and index.folder is None:
        raise LikewiseError(
            "search: --add and --remove must have a saved index as target; save it first: --save FOLDER"
        )
    if config.add:
        row, new_classes = add_rows(config, calibrated, say)
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
    elif not config.serve and (warning := behind_of(index)):
        say(warning)
    if index.folder is not None and (config.save or config.add or config.remove or config.index):
        warning = warning_of(calibrated.current())  # stored in the folder
        say(f"index: {index.folder} ({len(index.rows):,} rows, {index.kind})")
        if warning:
            say(warning)
    return new_classes


def add_rows(config: Search, calibrated: IndexCalibration, say):
    """Embed the data of --add and add it to the index; return the new row numbers and the report of every new class."""
    items = embed_added(calibrated.network, config, say)
    assert items.x is not None
    z, names = in_memory(items.x), [items.class_name[label] for label in items.y]
    paths = [""] * len(items) if items.path is None else list(items.path)
    sets = labels_by_class(items)
    labels = None if sets is None else dict(zip(items.class_name, sets, strict=True))
    return add_with_confusions(calibrated, z, names, lambda: calibrated.index.add(z, names, paths, items.box, labels))


def answer(config: Search, calibrated: IndexCalibration, out: Path | None) -> Neighbours:
    """Return the nearest neighbours of `config.query` and the decision, and draw them into the file `out` if it is given."""
    assert config.query is not None
    index, network = calibrated.index, calibrated.network
    by_row = config.query.isdecimal() and not os.path.exists(config.query)
    if by_row:
        place = int(index.rows.places([int(config.query)])[0])
        z, image = index.rows.vectors[place], row_image(index, place) if out else None
    else:
        place, image = None, read_image(Path(config.query).expanduser())
        if network is None:
            raise LikewiseError("search: an image query needs a network, and the target names none; give --model RUN")
        z = network.embed([network.see(image)])[0]
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


COLUMN_HEADS = ("", "similarity", "class", "row", "path")
"""Heads of the table."""


class Neighbours(list):
    """Nearest rows of a query, nearest first: dicts with row, similarity, class, path and same.

    Attributes:
        query: the query as text.
        decision: known or unknown (`known_unknown.decide`); None if the run is not calibrated.
        hint: why there is no decision and how to get one, or a warning about the threshold; "" if there is neither.
        new_classes: the classes that were added, and the classes that each is confused with.
        searched: how many images and classes were searched, and of what; "" if unknown.
    """

    searched = ""

    def __init__(
        self, found: Iterable[dict] = (), query: str = "", decision: dict | None = None, hint: str = "", new_classes=()
    ):
        super().__init__(found)
        self.query, self.decision, self.hint, self.new_classes = query, decision, hint, list(new_classes)

    def as_json(self) -> str:
        """Return the neighbours, the decision and the classes that were added as one JSON object."""
        decision = self.decision or NO_DECISION
        fields = {"query": self.query, **decision, "found": list(self), "new_classes": self.new_classes}
        texts = {name: text for name in ("searched", "hint") if (text := getattr(self, name))}
        return json_text(fields | texts)

    @view
    def _repr_html_(self) -> str:
        lines = [(place, *line) for place, line in enumerate(lines_of(self), 1)]
        notes = [f"searched: {self.searched}"] if self.searched else []
        notes += [describe_decision(self.decision)] if self.decision else []
        notes += [self.hint] if self.hint else []
        return table(f"nearest to {self.query}", COLUMN_HEADS, lines, [*notes, *notes_of(self)])


def describe_decision(decision: dict) -> str:
    """Return the decision about a query as a sentence."""
    probability, nearest = f"probability {percent(decision['probability'])}", decision["nearest"]
    if decision["unknown"] is None:
        return f"nearest is {nearest}, {probability}; known or unknown cannot be decided: {decision['reason']}"
    compared = f"similarity {decision['similarity']:.4f}, threshold {decision['threshold']:.4f}"
    if decision["unknown"]:
        return (
            f"unknown: not near enough to any known class ({compared}); if it is one of them: {nearest}, {probability}"
        )
    return f"{nearest}, {probability} ({compared})"


def percent(share: float) -> str:
    """Return a probability in percent, never rounded to 0 or 100."""
    return "below 1 %" if share < 0.01 else "above 99 %" if share > 0.99 else f"{100 * share:.0f} %"


def lines_of(found: Iterable[dict]) -> list[tuple[str, str, str, str]]:
    """Return similarity, class, row and path of every neighbour as text."""
    return [(f"{one['similarity']:.4f}", one["class"], str(one["row"]), one["path"]) for one in found]


def notes_of(found: Iterable[dict]) -> list[str]:
    """Return a note for every neighbour that is the query image itself."""
    return [f"row {one['row']} is the same image" for one in found if one["same"]]


def show_neighbours(found: Neighbours) -> None:
    """Print a table on a terminal, otherwise one line per neighbour with its fields separated by tabs."""
    console = Console()
    decided = describe_decision(found.decision) if found.decision else ""
    if not console.is_terminal:
        if decided:
            print(printable(decided), file=sys.stderr)  # stdout has one line per neighbour
        for line in lines_of(found):
            print("\t".join(map(printable, line)))
        return
    shown = Table(*COLUMN_HEADS[:-1], title=f"nearest to {escape(found.query)}", title_justify="left")
    shown.add_column(COLUMN_HEADS[-1], overflow="fold")
    for place, line in enumerate(lines_of(found), 1):
        shown.add_row(str(place), *map(escape, line))
    if decided:
        console.print(f"[bold]{escape(decided)}[/]")
    console.print(shown)
    searched = [f"searched: {found.searched}"] if found.searched else []
    for note in [*notes_of(found), *searched, *([found.hint] if found.hint else [])]:
        print(printable(note))
