"""Data sets of Hugging Face `datasets`, unpacked once into image files and a table.

    hf:NAME[:CONFIG]              a data set on the hub, all its splits
    hf:NAME?image=img&label=fine  names the columns if there are several; `split=train,test` selects splits
    FOLDER, FILE.parquet          written by `save_to_disk`, or a Parquet file with images; hf:FOLDER?label=fine names columns

The splits train, validation and test become train, val and test; a data set with one split is split by the protocol. The bytes
of the images are unchanged. The files are in the cache folder under the data set's fingerprint and are read like any table.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from likewise.core.errors import LikewiseError, nearest_name, pip_install
from likewise.core.files import cache_folder, first_line, write_csv
from likewise.core.image_files import IMAGE_SUFFIXES, formats, open_image
from likewise.core.types import Items
from likewise.data.label_sets import LABEL_SEPARATOR
from likewise.data.table import read_table
from likewise.data.tabular import parquet_errors
from likewise.models.pretrained.weights import offline_if_unreachable

ERROR_OWNER = "hf"
"""Name at the start of error messages."""
SPLIT_OF_NAME = {"train": "train", "validation": "val", "valid": "val", "val": "val", "dev": "val", "test": "test"}
"""Name of a split on the hub -> split of the table."""
UNKNOWN_SUFFIX = ".img"
"""Suffix for bytes that are not an image in a known format."""
OPTION_NAMES = ("image", "label", "split")
"""Options that may follow the ? of `hf:NAME?...`."""


class SeveralLabels(NamedTuple):
    """The kind of a column with a list of labels in every row: the names of a ClassLabel, or the type of the labels."""

    each: str | list[str]


Kind = str | list[str] | SeveralLabels


@dataclass(frozen=True, eq=False)
class SplitFiles:
    """A split of a data set. `kinds` maps each column to "image", the names of a ClassLabel, its type, or `SeveralLabels`."""

    kinds: dict[str, Kind]
    fingerprint: str
    rows: Any  # (image column, label column) -> iterator over ({"bytes", "path"}, label)
    within: Sequence[str] | None = None  # folders where images named by path may be; None: anywhere


def read_hugging_face(data: str, fetch: bool = True) -> Items:
    """Read `hf:...`, a folder of `save_to_disk`, or a Parquet file that holds images. See `load` for `fetch`."""
    where, wish = parse(data)
    path = Path(where).expanduser()
    if path.suffix.lower() == ".parquet" and path.is_file():
        splits = {"train": of_parquet(path)}
    elif is_imagefolder(path):
        splits = of_datasets(load_imagefolder(path), [str(path)])
    elif is_saved(path) or where.startswith((".", "/", "~")):
        splits = of_datasets(load_folder(path), [str(path)])
    else:
        splits = of_datasets(load_hub(where, fetch), hub_folders(where))
    return read_table(str(unpack(splits, path.stem if path.exists() else where, wish)))


def from_object(dataset) -> str:
    """Unpack a Dataset or DatasetDict in memory, and return the path of its table."""
    return str(
        unpack(of_datasets(dataset), getattr(getattr(dataset, "info", None), "dataset_name", None) or "dataset", {})
    )


def is_saved(folder: Path) -> bool:
    """Whether `save_to_disk` wrote this folder."""
    return (folder / "dataset_dict.json").is_file() or all(
        (folder / name).is_file() for name in ("dataset_info.json", "state.json")
    )


def is_imagefolder(folder: Path) -> bool:
    """Whether a folder, or a folder in it, has a table of metadata about its images."""
    names = [f"{within}metadata.{suffix}" for within in ("", "*/") for suffix in ("parquet", "jsonl", "csv")]
    return folder.is_dir() and any(True for name in names for _ in folder.glob(name))


def load_imagefolder(path: Path):
    """Return the splits of a folder of images with metadata, without decoding the images."""
    datasets = package()
    if not is_imagefolder(path):
        raise LikewiseError(
            f"{ERROR_OWNER}: {path} must be a folder of images with metadata.parquet, .jsonl or .csv, got none; check the path"
        )
    # A cache of its own: `datasets` looks at names and times alone.
    with folder_errors(path, "of images with metadata"), only_cached(), tempfile.TemporaryDirectory() as cache:
        found = datasets.load_dataset("imagefolder", data_dir=str(path), cache_dir=cache, keep_in_memory=True)
        return found.cast_column("image", datasets.Image(decode=False))


def holds_images(file: str | Path) -> bool:
    """Whether a Parquet file contains images; False for an unreadable file, for which the table reader raises an error."""
    import pyarrow.parquet as pq

    try:
        return any(is_image_type(column.type) for column in pq.read_schema(file))
    except Exception:  # pyarrow raises many types for damaged files
        return False


def is_image_type(kind) -> bool:
    """Whether an Arrow type is that of an image column of `datasets`: a struct of bytes and path."""
    import pyarrow as pa

    if not pa.types.is_struct(kind) or {"bytes", "path"} != {kind.field(i).name for i in range(kind.num_fields)}:
        return False
    content, path, t = kind.field("bytes").type, kind.field("path").type, pa.types
    return (t.is_binary(content) or t.is_large_binary(content) or t.is_null(content)) and (
        t.is_string(path) or t.is_large_string(path) or t.is_null(path)
    )


def parse(data: str) -> tuple[str, dict[str, str]]:
    """Parse `hf:NAME?image=img` into NAME and its options."""
    where, _, words = data.removeprefix("hf:").partition("?")
    wish = {}
    for word in filter(None, words.split("&")):
        name, mark, value = word.partition("=")
        if name not in OPTION_NAMES or not mark or not value:
            raise LikewiseError(
                f"{ERROR_OWNER}: the options after ? must be image=COLUMN, label=COLUMN or split=NAMES, joined by &, got {word!r}"
                f"{nearest_name(name, OPTION_NAMES)} Write it as hf:NAME?image=img&label=fine_label"
            )
        wish[name] = value
    if not where:
        raise LikewiseError(
            f"{ERROR_OWNER}: a name must come after hf:, got {data!r}; write it as hf:NAME or hf:NAME:CONFIG"
        )
    return where, wish


def package() -> Any:  # datasets loads its modules lazily, so it has no static type
    try:
        import datasets
    except ImportError:
        raise LikewiseError(
            f"{ERROR_OWNER}: this data needs the package datasets, which is not installed; {pip_install('likewise[datasets]')}"
        ) from None
    return datasets


@contextmanager
def folder_errors(path: Path, kind: str) -> Iterator[None]:
    """Turn any error of `datasets` about a damaged folder into a LikewiseError."""
    try:
        yield
    except Exception as error:  # datasets raises many types for damaged folders
        raise LikewiseError(
            f"{ERROR_OWNER}: {path} must be a folder {kind}, but it cannot be read ({first_line(error)}); write it again"
        ) from None


def load_folder(path: Path):
    datasets = package()
    with folder_errors(path, "written by save_to_disk"):
        return datasets.load_from_disk(str(path))


def load_hub(where: str, fetch: bool):
    name, _, config = where.partition(":")
    datasets = package()
    try:
        with offline_if_unreachable() if fetch else only_cached():
            return datasets.load_dataset(name, config or None)
    except Exception as error:  # many types: no network, unknown name or config, scripts
        if not fetch:
            raise LikewiseError(
                f"{ERROR_OWNER}: the data of a run must be in the cache, because it is downloaded only if you name it, got "
                f"'hf:{where}'; if it is a trusted source: --data hf:{where} (search: first `likewise evaluate RUN --data ...`)"
            ) from None
        raise LikewiseError(
            f"{ERROR_OWNER}: '{where}' must be a data set on the hub (or in its cache), but it cannot be loaded "
            f"({first_line(error)}); check the name and the connection, or give a folder written by save_to_disk"
        ) from None


@contextmanager
def only_cached() -> Iterator[None]:
    """Set the packages to offline: they read only their cache and contact no server."""
    from huggingface_hub import constants

    places: tuple[Any, ...] = (constants, package().config)
    before = [place.HF_HUB_OFFLINE for place in places]
    try:
        for place in places:
            place.HF_HUB_OFFLINE = True
        yield
    finally:
        for place, value in zip(places, before):
            place.HF_HUB_OFFLINE = value


def hub_folders(where: str) -> list[str]:
    """Return the folders where `datasets` stores downloaded images, and the local folder of this name."""
    import huggingface_hub.constants

    config = package().config
    return [
        where.partition(":")[0],
        *map(str, (config.HF_DATASETS_CACHE, config.DOWNLOADED_DATASETS_PATH, huggingface_hub.constants.HF_HUB_CACHE)),
    ]


def of_datasets(dataset, within: Sequence[str] | None = None) -> dict[str, SplitFiles]:
    """Return the splits of a Dataset or DatasetDict; `within`: see `SplitFiles`."""
    datasets = package()
    if not isinstance(dataset, datasets.Dataset | datasets.DatasetDict):
        raise LikewiseError(
            f"{ERROR_OWNER}: the data must be a Dataset or DatasetDict of the package datasets, got {type(dataset).__name__}; "
            "load a streamed data set without streaming"
        )
    whole = dataset if isinstance(dataset, dict) else {"train": dataset}

    def kind(feature) -> Kind:
        if isinstance(feature, datasets.Image):
            return "image"
        if isinstance(feature, list) or hasattr(feature, "feature"):  # [ClassLabel], Sequence or List
            each = kind(feature[0] if isinstance(feature, list) else feature.feature)
            return "other" if isinstance(each, SeveralLabels) or each == "image" else SeveralLabels(each)
        return list(feature.names) if isinstance(feature, datasets.ClassLabel) else getattr(feature, "dtype", "other")

    def rows(split, image: str, label: str) -> Iterator[tuple[dict, Any]]:
        plain = split.select_columns([image, label]).cast_column(image, datasets.Image(decode=False)).with_format(None)
        return ((row[image], row[label]) for row in plain)

    return {
        str(name): SplitFiles(
            {column: kind(feature) for column, feature in split.features.items()},
            split._fingerprint,
            lambda image, label, split=split: rows(split, image, label),
            within,
        )
        for name, split in whole.items()
    }


def of_parquet(path: Path) -> SplitFiles:
    """Return a Parquet file as a split, without the package datasets: the schema describes the columns."""
    import pyarrow.parquet as pq

    with parquet_errors(path, ERROR_OWNER):
        schema = pq.read_schema(path)
    names = class_names(schema)
    kinds = {c.name: "image" if is_image_type(c.type) else column_kind(c.type, names.get(c.name)) for c in schema}
    status = path.stat()

    def rows(image: str, label: str) -> Iterator[tuple[dict, Any]]:
        with parquet_errors(path, ERROR_OWNER), pq.ParquetFile(path) as file:
            for batch in file.iter_batches(64, columns=[image, label]):
                yield from zip(batch[image].to_pylist(), batch[label].to_pylist(), strict=True)

    return SplitFiles(kinds, f"{path.absolute()} {status.st_size} {status.st_mtime_ns}", rows, [str(path.parent)])


def column_kind(kind, names: list[str] | None) -> Kind:
    """Return the kind of a Parquet column that holds no images, from its Arrow type and the names of its classes."""
    import pyarrow as pa

    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return SeveralLabels(names or str(kind.value_type))
    return names or str(kind)


def class_names(schema) -> dict[str, list[str]]:
    """Return the class names that `datasets` stores in a Parquet schema, by column; {} if there are none."""
    try:
        features = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
        single = {column: one.get("feature", one) for column, one in features.items() if isinstance(one, dict)}
        named = {column: one.get("names") for column, one in single.items() if isinstance(one, dict)}
    except (KeyError, ValueError, TypeError, AttributeError, RecursionError):
        return {}
    return {c: n for c, n in named.items() if isinstance(n, list) and all(isinstance(one, str) for one in n)}


def choose(kinds: dict[str, Kind], wish: dict[str, str]) -> tuple[str, str]:
    """Return the image column and the label column: as named in `wish`, or the only candidates."""
    images = [name for name, kind in kinds.items() if kind == "image"]
    named = [name for name, kind in kinds.items() if isinstance(each_label(kind), list)]
    labels = named or [name for name in kinds if name in ("label", "labels")]
    chosen = []
    for role, found in (("image", images), ("label", labels)):
        if role in wish and wish[role] not in kinds:
            raise LikewiseError(
                f"{ERROR_OWNER}: there is no column '{wish[role]}'{nearest_name(wish[role], kinds)} It has: {', '.join(kinds)}"
            )
        if role not in wish and len(found) != 1:
            candidates = f"several, {', '.join(found)}" if found else f"none among {', '.join(kinds)}"
            raise LikewiseError(
                f"{ERROR_OWNER}: one column must hold the {role}, but there are {candidates}; name it: ?{role}=COLUMN"
            )
        chosen.append(wish.get(role) or found[0])
    image, label = chosen
    if kinds[image] != "image":
        raise LikewiseError(
            f"{ERROR_OWNER}: column '{image}' must hold images (the feature Image), got {kinds[image]}; images are in: "
            f"{', '.join(images) or 'no column'}"
        )
    kind = each_label(kinds[label])
    if not isinstance(kind, list) and not re.match(r"u?int|(large_)?(string|utf8)", kind):
        raise LikewiseError(
            f"{ERROR_OWNER}: label must be classes, whole numbers or words, or lists of these, got '{label}' with {kinds[label]}"
            "; name another column: ?label=COLUMN"
        )
    return image, label


def unpack(splits: dict[str, SplitFiles], name: str, wish: dict[str, str]) -> Path:
    """Write the images as files and return the path of their table. The table is written last: if it exists, all files do."""
    splits = selected_splits(splits, wish.get("split"))
    image, label = choose(next(iter(splits.values())).kinds, wish)
    facts = [1, image, label, {name: split.fingerprint for name, split in splits.items()}]
    key = hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:12]
    word = re.sub(r"[^\w.-]+", "-", name).strip("-.")
    folder = cache_folder() / f"hf-{word}-{key}"
    table = folder / f"{word}.csv"
    if table.is_file():
        return table
    lines = []
    for part, split in splits.items():
        if not re.fullmatch(r"\w+([.-]\w+)*", part):  # the name becomes a folder of the cache
            raise LikewiseError(
                f"{ERROR_OWNER}: the name of a split must be a plain word, got {part!r}; rename the split"
            )
        choose(split.kinds, {"image": image, "label": label})  # raises if a split has other columns
        (folder / part).mkdir(parents=True, exist_ok=True)
        for number, (image_cell, cell) in enumerate(split.rows(image, label)):
            at = f"row {number} of {part}"
            file = write_image(folder, f"{part}/{number:06d}", image_cell, split.within, at)
            lines.append(
                (file, *class_of(cell, split.kinds[label], at), SPLIT_OF_NAME[part] if len(splits) > 1 else "")
            )
    several = isinstance(next(iter(splits.values())).kinds[label], SeveralLabels)
    head = ("path", "labels" if several else "label", *(() if several else ("class_name",)), "split")
    cut = len(head) if len(splits) > 1 else len(head) - 1
    write_csv(table, head[:cut], (line[:cut] for line in lines))
    return table


def each_label(kind: Kind) -> str | list[str]:
    """Return the kind of one label of a column."""
    return kind.each if isinstance(kind, SeveralLabels) else kind


def selected_splits(splits: dict[str, SplitFiles], wanted: str | None) -> dict[str, SplitFiles]:
    """Return the splits named in `wanted` (comma-separated); None: all."""
    names = wanted.split(",") if wanted else list(splits)
    for name in names:
        if name not in splits:
            raise LikewiseError(
                f"{ERROR_OWNER}: there is no split '{name}'{nearest_name(name, splits)} It has: {', '.join(splits)}"
            )
        if len(names) > 1 and name not in SPLIT_OF_NAME:
            raise LikewiseError(
                f"{ERROR_OWNER}: splits must be train, validation and test, got '{name}'; select splits: "
                f"?split={','.join(n for n in names if n in SPLIT_OF_NAME) or name}"
            )
    return {name: splits[name] for name in names}


def class_of(cell: Any, kind: Kind, at: str) -> tuple:
    """Return the label for the table, and its class name or ""; of several labels, their names in one cell."""
    if isinstance(kind, SeveralLabels):
        pairs = [class_of(one, kind.each, at) for one in cell] if cell else [class_of(None, kind.each, at)]
        names = [str(name or label) for label, name in pairs]
        if bad := [name for name in names if LABEL_SEPARATOR in name]:
            raise LikewiseError(
                f"{ERROR_OWNER}: a label must not hold '{LABEL_SEPARATOR}', which separates the labels of a row, got {bad[0]!r} "
                f"in {at}; rename it"
            )
        return (LABEL_SEPARATOR.join(names),)
    if cell is None or cell == "" or (isinstance(kind, list) and not (isinstance(cell, int) and 0 <= cell < len(kind))):
        raise LikewiseError(
            f"{ERROR_OWNER}: every row must have a label, got {cell!r} in {at}; select labelled splits: ?split=train"
        )
    return cell, kind[cell] if isinstance(kind, list) else ""


def write_image(folder: Path, name: str, cell: dict | None, within: Sequence[str] | None, at: str) -> str:
    """Write the bytes of an image, unless the file exists, and return its path below the folder."""
    content, path = (cell or {}).get("bytes"), (cell or {}).get("path")
    if content is None and path is not None:
        content = read_named(path, within, at)
    if content is None:
        raise LikewiseError(f"{ERROR_OWNER}: every row must have an image, but {at} has none; remove such rows first")
    suffix = os.path.splitext(path or "")[1].lower()
    file = name + (suffix if suffix in IMAGE_SUFFIXES else suffix_of(content))
    if not (folder / file).is_file() or (folder / file).stat().st_size != len(content):
        aside = folder / f"{file}.{os.getpid()}.part"
        aside.write_bytes(content)
        os.replace(aside, folder / file)
    return file


def read_named(path: str, within: Sequence[str] | None, at: str) -> bytes | None:
    """Return the bytes of an image that a row names by its path; None if there is no such file.

    A foreign table may name any file that the user can read: only images are copied, and only from the folders `within`.
    """
    if "\0" in path:
        return None
    file = os.path.realpath(os.path.join(within[0] if within else "", path))
    if within is not None and not any(Path(file).is_relative_to(os.path.realpath(folder)) for folder in within):
        raise LikewiseError(
            f"{ERROR_OWNER}: images must lie inside the data set, but {at} names {path!r}; write it again with save_to_disk, "
            "which embeds the images, or load it in Python and pass the Dataset itself"
        )
    if not os.path.isfile(file):
        return None
    if suffix_of(file) == UNKNOWN_SUFFIX:
        raise LikewiseError(
            f"{ERROR_OWNER}: {at} must name an image ({', '.join(formats())}), got {path!r}; remove such rows first"
        )
    return Path(file).read_bytes()


def suffix_of(content: bytes | str) -> str:
    """Return the suffix for the format of an image's bytes or file; `UNKNOWN_SUFFIX` if Pillow cannot identify it."""
    try:
        with open_image(io.BytesIO(content) if isinstance(content, bytes) else content) as image:
            return f".{str(image.format).lower()}" if image.format else UNKNOWN_SUFFIX
    except Exception:  # Pillow raises many types
        return UNKNOWN_SUFFIX
