"""Data sets as tables of items: readers of every format, decoded cache, augmentation, loader."""

from __future__ import annotations

import importlib
import inspect
import os
from collections.abc import Callable
from pathlib import Path

from likewise.core.errors import LikewiseError, nearest_name
from likewise.core.types import Items
from likewise.data.own_reader import is_own, parse_call, read_own

__all__ = ["DRAWN_DATA", "HUB_FORMS", "NAMES", "is_named", "load"]

NAMES: dict[str, str] = {
    "glyphs": "characters drawn from fonts when first used: glyphs(size=40, per_class=24, classes=None, seed=0)",
    "glyph_labels": "the glyphs with several labels each: letter, script, kind, font, bold, italic; arguments as glyphs",
    "cub200": "CUB-200-2011: 11,788 images of 200 bird species; first 100 classes train, last 100 test",
    "cars196": "Stanford Cars: 16,185 images of 196 car models; first 98 classes train, last 98 test",
    "sop": "Stanford Online Products: 120,053 images of 22,634 products; the authors' lists",
    "inshop": "DeepFashion In-Shop: 52,712 images of 7,982 garments; the authors' train, query and gallery",
    "market1501": "Market-1501: 36,036 images of 1,501 people from six cameras; the authors' train, query and gallery",
    "inaturalist": "iNaturalist 2018: 461,939 images of 8,142 species; the lists published with Smooth-AP",
    "imagenet": "ImageNet-1k: 1,281,167 training images of 1,000 classes; first half of the classes train, rest test",
}
"""Named data sets. To add one: a function of its name (root, ... -> Items) in `public_sets`, and a line here."""

DRAWN_DATA = ("glyphs", "glyph_labels")
"""Named data sets of small drawn images, for which a small network is the default."""

HUB_FORMS = {
    "hf:NAME": "a data set of Hugging Face, or its folder: hf:NAME[:CONFIG][?image=COLUMN&label=COLUMN&split=train,test]"
}
"""Form of DATA for data sets on a hub -> its description, for `likewise list`."""

DATA_FORMS = (
    f"a name ({', '.join(NAMES)}), a folder with one sub-folder per class, "
    "a .csv or .parquet table with path and label (photos.csv?path=file&label=class for other columns), "
    "features in .npz or .parquet with x and label, hf:NAME, a data set of "
    "Hugging Face, or my_lab.readers.boats(), a reader of your own"
)
"""The accepted forms of DATA, for error messages."""


def load(data: str, root: str | None = None, *, fetch: bool = True, allow_imports: bool = False) -> Items:
    """Read the data set that `data` names.

    Args:
        data: a name from `NAMES`, a folder, a table, a feature file, or `hf:NAME` (see `hugging_face`). `glyphs` takes
            arguments: `glyphs(size=32, classes=40)`. For a folder with the name of a known data set, write `./name`.
            `my_lab.readers.boats(year=2020)` calls a reader of your own; see `own_reader`.
        root: for a name, the folder of the unpacked download; for a table, the base folder of its paths; for a reader
            of your own, its argument `root`.
        fetch: whether data may be downloaded from a hub; otherwise only cached data is read.
        allow_imports: whether a reader of your own may be imported, which runs its code.
    """
    data, root = str(data), None if root is None else str(root)
    if data in NAMES:
        return load_name(data, root, {})
    if data.startswith("hf:"):
        return load_hugging_face(data, root, fetch)
    if not data.strip():
        raise LikewiseError(f"data: the name of the data must not be empty, got {data!r}; DATA is {DATA_FORMS}")
    path = Path(data).expanduser()
    if os.path.exists(path):
        return load_path(path, root)
    if "?" in data and (items := load_table(data, root)) is not None:
        return items
    if is_own(data):
        return read_own(data, root, allow_imports)
    if data.strip().endswith(")"):
        name, arguments = parse_call(data)
        return load_name(name, root, arguments)
    guess = nearest_name(data, NAMES)
    raise LikewiseError(f"data: {data!r} is neither a known name nor an existing path{guess} DATA is {DATA_FORMS}")


def is_named(data: str) -> bool:
    """Whether DATA is the name of a data set, with or without arguments."""
    return data in NAMES or (data.partition("(")[0].strip() in NAMES and data.strip().endswith(")"))


def lacks_root(data: str, root: object) -> bool:
    """Whether DATA names a data set whose folder must be given, and is not."""
    name = data.partition("(")[0].strip()
    return root is None and is_named(data) and name not in DRAWN_DATA


def load_name(name: str, root: str | None, arguments: dict) -> Items:
    """Call the reader of a named data set: the function of that name in `public_sets`, or in `glyphs` for drawn data."""
    if name not in NAMES:
        raise LikewiseError(f"data: there is no data set {name!r}{nearest_name(name, NAMES)} DATA is {DATA_FORMS}")
    module = importlib.import_module(f"likewise.data.{'glyphs' if name in DRAWN_DATA else 'public_sets'}")
    make: Callable[..., Items] = getattr(module, name)
    parameters = dict(inspect.signature(make).parameters)
    parameters.pop("root")
    takes = list(parameters)
    if arguments and not takes:
        raise LikewiseError(f"data: {name} takes no arguments, got {', '.join(arguments)}; write just {name!r}")
    if lacks_root(name, root):
        raise LikewiseError(
            f"{name}: root must be the folder where the original download was unpacked, got none; "
            f"pass root (for a folder ./{name} of class folders, write ./{name})"
        )
    for word in arguments:
        if word not in takes:
            raise LikewiseError(
                f"{name} has no argument {word!r}{nearest_name(word, takes)} It takes: {', '.join(takes)}"
            )
    return make(root, **arguments)


def load_table(data: str, root: str | None) -> Items | None:
    """Read a table whose columns have other names: `photos.csv?path=file&label=class`; None if DATA is something else."""
    from likewise.data.table import read_table, split_columns

    file, columns = split_columns(data)
    return read_table(str(Path(file).expanduser()), root, columns) if columns else None


def load_hugging_face(data: str, root: str | None, fetch: bool = True) -> Items:
    from likewise.data.hugging_face import read_hugging_face

    if root is not None:
        raise LikewiseError(f"hf: {data} holds its own images, so root must not be given, got {root!r}; omit it")
    return read_hugging_face(data, fetch)


def load_path(path: Path, root: str | None) -> Items:
    from likewise.data.hugging_face import holds_images, is_saved
    from likewise.data.shards import is_shards

    suffix = path.suffix.lower()
    if is_shards(path):
        from likewise.data.features import read_features

        return read_features(str(path), root)
    if is_saved(path) or (suffix == ".parquet" and holds_images(path)):
        return load_hugging_face(str(path), root)
    if path.is_dir():
        if root is not None:
            raise LikewiseError(
                f"folder: {path} holds its own images, so root must not be given, got {root!r}; omit it"
            )
        from likewise.data.class_folders import read_folder

        return read_folder(str(path))
    if suffix == ".npz":
        from likewise.data.features import read_features

        return read_features(str(path), root)
    if suffix in (".csv", ".parquet"):
        from likewise.data.features import holds_features, read_features
        from likewise.data.table import read_table

        return (read_features if holds_features(str(path)) else read_table)(str(path), root)
    if suffix in (".npy", ".safetensors"):
        raise LikewiseError(
            f"data: {path.name} holds embeddings without a table; save them as .npz with x and label, "
            "or read them with likewise.data.features.read_embeddings(file, labels)"
        )
    raise LikewiseError(f"data: {path.name} has a suffix that is not supported; DATA is {DATA_FORMS}")
