"""The data of a run: loading it, the labels it trains with, and whether it is still the same data."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from likewise.config import Train
from likewise.config.spec import build
from likewise.contracts import NoiseModel, Protocol
from likewise.data import NAMES, load
from likewise.data.fingerprint import fingerprint
from likewise.data.folder import is_flat, read_flat
from likewise.data.images import check_files, drop, find_bad
from likewise.errors import printable
from likewise.io.files import cache_folder
from likewise.io.progress import bar
from likewise.runs.folder import Run
from likewise.types import Items, LikewiseError


def load_items(
    data: str,
    root: str | None,
    *,
    skip_bad: bool,
    workers: int,
    quiet: bool,
    say: Callable[[str], None],
    flat: bool = False,
    fetch: bool = True,
    allow_imports: bool = False,
) -> Items:
    """The data set, with every file known to be there; with `skip_bad`, with every picture known to be whole.

    Args:
        flat: a folder without class folders will do, as one class.
        fetch: whether data may be fetched from a hub. False for data that a run names: the run may be a stranger's.
        allow_imports: whether a reader given by dotted name may be imported, which runs its code.
    """
    if flat and data not in NAMES and is_flat(data):
        items = read_flat(data)
    else:
        items = load(data, root, fetch=fetch, allow_imports=allow_imports)
    if not skip_bad or items.path is None or items.x is not None:
        if items.x is None:
            check_files(items)
        return items
    from likewise.data.loader import choose_workers

    with bar("check pictures", len(items), quiet=quiet) as progress:
        bad = find_bad(items, None, choose_workers(workers), lambda done, of: progress.advance(done - progress.done))
    if not bad:
        return items
    shown = "\n".join(f"  {printable(reason)}" for _, reason in bad[:5]) + ("\n  ..." if len(bad) > 5 else "")
    say(f"{len(bad)} of {len(items)} pictures are broken and left out:\n{shown}")
    return drop(items, [row for row, _ in bad])


def whole_path(data: str) -> str:
    """A path as seen from everywhere, so that a run can be opened from any folder; other data is left as it is."""
    if data.startswith("hf:"):
        place, mark, columns = data.removeprefix("hf:").partition("?")
        return f"hf:{whole_path(place)}{mark}{columns}"
    path = Path(data).expanduser()
    return str(path.absolute()) if path.exists() else data


def marked(items: Items) -> bool:
    """Whether the data marks queries or gallery rows."""
    return any(column is not None and bool(column.any()) for column in (items.query, items.gallery))


def make_protocol(config: Train) -> Protocol:
    """Return the protocol that resolved settings name."""
    assert config.protocol is not None  # resolved settings name it
    return build(config.protocol, Protocol, allow_imports=config.allow_imports)


def default_protocol(items: Items) -> str:
    """Return the spec of the protocol for data without settings: marked queries and gallery, or else unseen classes."""
    return "QueryGallery()" if marked(items) else "UnseenClasses()"


def protocol_for(items: Items) -> Protocol:
    """Return the protocol for data without settings."""
    return build(default_protocol(items), Protocol)


def spoil(items: Items, protocol: Protocol, noise: str | None, seed: int, allow_imports: bool = False) -> Items:
    """Items with wrong labels among the train and val splits together; the true ones kept in `y_clean`. Who validates is then
    decided by the labels as they are now, for nobody has others."""
    if noise is None:
        return items
    rows = np.union1d(protocol.rows(items, "train"), protocol.rows(items, "val"))
    facts = {"class_names": items.class_name, "taxonomy": items.taxonomy, "rows": rows, "samples": len(items)}
    model = build(noise, NoiseModel, allow_imports=allow_imports, **facts)
    y = items.y.copy()
    y[rows] = model(items.y[rows], np.random.default_rng((seed, 77, 0)))
    return dataclasses.replace(items, y=y, y_clean=items.y_first)


def must_be_its_data(run: Run, items: Items, data: str) -> None:
    """Raise unless these items have the fingerprint of the data that the run was trained with."""
    if fingerprint(items) != run.about["data"]:
        raise LikewiseError(
            f"run: the data '{data}' is not what '{run.path}' was trained with (files, labels or splits have "
            "changed); restore it, or embed the new data with `likewise embed` and evaluate that"
        )


def data_folders(settings: Train | None) -> list[str]:
    """Return the folders that the pictures of a run may lie in by its settings; the cache, where they are unpacked there."""
    if settings is None:
        return []
    from likewise.data.hugging_face import is_saved

    data = Path(settings.data).expanduser()
    if settings.data.startswith("hf:") or data.suffix.lower() == ".parquet" or is_saved(data):
        return [str(cache_folder()), str(data.parent)] if data.exists() else [str(cache_folder())]
    return [str(data if data.is_dir() else data.parent), *([settings.root] if settings.root else [])]


def tell_outside(files: Sequence[str], folders: Sequence[str]) -> str:
    """Return a sentence about files that lie in none of these folders; "" where there are none.

    A foreign file of embeddings may name any picture on this machine, and who publishes a page should know.
    """
    homes = [os.path.join(os.path.realpath(folder), "") for folder in folders if folder]
    real = {folder: os.path.join(os.path.realpath(folder), "") for folder in set(map(os.path.dirname, files))}
    strange = [file for file in files if not real[os.path.dirname(file)].startswith(tuple(homes))]
    if not strange:
        return ""
    return (
        f"{len(strange)} of {len(files)} pictures lie outside of its data (first: {strange[0]}), for its file of embeddings "
        "names them; look whether you want to show them"
    )
