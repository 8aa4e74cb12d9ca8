"""Load the data of a training, choose its protocol, and inject its label noise."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np

from likewise.core.contracts import NoiseModel, Protocol
from likewise.core.files import cache_folder
from likewise.core.settings import Train
from likewise.core.settings.spec import build
from likewise.core.types import Items, LikewiseError
from likewise.data import NAMES, is_named, load
from likewise.data.broken_images import skip_again, skip_broken
from likewise.data.class_folders import is_flat, read_flat
from likewise.data.label_sets import sample_labels, with_labels
from likewise.data.table import split_columns
from likewise.data.tabular import read_csv


def load_items(
    data: str,
    root: str | None,
    *,
    strict: bool = False,
    workers: int = -1,
    quiet: bool = False,
    say: Callable[[str], None] = print,
    skipped: Sequence | None = None,
    decode: Callable[[Items], bool] | None = None,
    flat: bool = False,
    fetch: bool = True,
    allow_imports: bool = False,
    listing: Path | None = None,
) -> Items:
    """Return the data set without its broken images; see `data.broken_images` for the rule.

    Args:
        data: name of a data set, or path of a folder or table.
        strict: raise at a broken image.
        skipped: `Items.skipped` of the data of a run: these images are skipped, and nothing is decoded; None: all images are
            checked.
        decode: see `skip_broken`.
        flat: accept a folder without class folders, as one class.
        fetch: whether data may be downloaded from a hub. False for data that a run names: the run may not be trustworthy.
        allow_imports: whether a reader given by dotted name may be imported, which runs its code.
        listing: see `skip_broken`.
    """
    if flat and data not in NAMES and is_flat(data):
        items = read_flat(data)
    else:
        items = load(data, root, fetch=fetch, allow_imports=allow_imports)
    if skipped is not None:
        return skip_again(items, skipped)
    for note in items.notes:
        say(note)
    return skip_broken(items, strict=strict, decode=decode, workers=workers, quiet=quiet, say=say, listing=listing)


def training_items(config: Train, say: Callable[[str], None]) -> Items:
    """Return the data of a training. Its images are decoded into the cache that the training uses, if it uses one."""
    from likewise.data.placement import fill_cache

    decode = partial(fill_cache, keep=config.cache, side=config.short_side, workers=config.workers, quiet=config.quiet)
    return load_items(
        config.data, config.root, strict=config.strict, workers=config.workers, quiet=config.quiet, say=say, decode=decode,
        allow_imports=config.allow_imports,
    )  # fmt: skip


def is_strict(config: Train) -> bool:
    """Return whether a broken image must stop the training: with --strict, and with a recipe on a named data set."""
    return config.strict or (config.recipe is not None and is_named(config.data))


def absolute_path(data: str) -> str:
    """Return an existing path as an absolute path, so that a run can be opened from any folder; other names unchanged."""
    if data.startswith("hf:"):
        path, mark, columns = data.removeprefix("hf:").partition("?")
        return f"hf:{absolute_path(path)}{mark}{columns}"
    path = Path(data).expanduser()
    if path.exists():
        return str(path.absolute())
    file, columns = split_columns(data)
    return f"{absolute_path(file)}{data[len(file) :]}" if columns else data


def marks_queries(items: Items) -> bool:
    """Return whether the data has query or gallery marks."""
    return any(column is not None and bool(column.any()) for column in (items.query, items.gallery))


def make_protocol(config: Train) -> Protocol:
    """Return the protocol that resolved settings name."""
    assert config.protocol is not None  # resolved settings name it
    return build(config.protocol, Protocol, allow_imports=config.allow_imports)


def default_protocol(items: Items) -> str:
    """Return the spec of the default protocol, which takes the column `split` of the data if there is one.

    QueryGallery() for data with query or gallery marks, StratifiedLabels() for several labels per sample, else UnseenClasses().
    """
    if marks_queries(items):
        return "QueryGallery()"
    return "UnseenClasses()" if items.label_sets is None else "StratifiedLabels()"


def protocol_for(items: Items) -> Protocol:
    """Return the default protocol of a data set."""
    return build(default_protocol(items), Protocol)


def inject_noise(items: Items, protocol: Protocol, noise: str | None, seed: int, allow_imports: bool = False) -> Items:
    """Return the data with label noise injected into the train and val splits; the true labels are in `y_clean`.

    If samples have several labels, new sets of labels are classes behind those of the data, whose numbers do not change.
    The protocol assigns the rows to train and val again afterwards, by the noisy labels, as it would with real noise.

    Args:
        noise: spec of the noise model; None: no noise.
    """
    if noise is None:
        return items
    rows = np.union1d(protocol.rows(items, "train"), protocol.rows(items, "val"))
    facts = {"class_names": items.class_name, "taxonomy": items.taxonomy, "rows": rows, "samples": len(items)}
    model = build(noise, NoiseModel, allow_imports=allow_imports, **facts)
    rng = np.random.default_rng((seed, 77, 0))
    if items.label_sets is not None:
        changed = model.change_labels(*sample_labels(items, items.y[rows]), rng)
        return dataclasses.replace(with_labels(items, rows, *changed), y_clean=items.y_before_noise)
    y = items.y.copy()
    y[rows] = model(items.y[rows], rng)
    return dataclasses.replace(items, y=y, y_clean=items.y_before_noise)


def data_folders(settings: Train | None) -> list[str]:
    """Return the folders that may contain the images of a run, by its settings; the cache folder for unpacked data."""
    if settings is None:
        return []
    from likewise.data.hugging_face import is_saved

    data = Path(split_columns(settings.data)[0]).expanduser()
    if settings.data.startswith("hf:") or data.suffix.lower() == ".parquet" or is_saved(data):
        return [str(cache_folder()), str(data.parent)] if data.exists() else [str(cache_folder())]
    return [
        str(data if data.is_dir() else data.parent),
        *([settings.root] if settings.root else []),
        *folders_in_table(data),
    ]


def folders_in_table(table: Path) -> list[str]:
    """Return the common folder of all whole paths in a .csv table, such as a corrected table; [] without such paths."""
    if table.suffix.lower() != ".csv" or not table.is_file():
        return []
    with suppress(LikewiseError, OSError):
        whole = {
            os.path.dirname(cell) for cell in read_csv(str(table)).column.get("path", ()) if os.path.isabs(str(cell))
        }
        return [os.path.commonpath(whole)] if whole else []
    return []


def outside_files_warning(files: Sequence[tuple[str, int, str]], folders: Sequence[str]) -> str:
    """Return a warning about image files outside of these folders; "" if there are none.

    An embeddings file from another source may name any image on this machine, which a published page would then show.

    Args:
        files: folders with the number of their files and the path of their first file, in the order of the data.
    """
    homes = tuple(os.path.join(os.path.realpath(folder), "") for folder in folders if folder)
    outside = [one for one in files if not os.path.join(os.path.realpath(one[0]), "").startswith(homes)]
    if not outside:
        return ""
    return (
        f"{sum(count for _, count, _ in outside)} of {sum(count for _, count, _ in files)} images that the embeddings "
        f"file names are outside of the data folders (first: {outside[0][2]}); check that you want to show them"
    )
