"""Tables of Hugging Face `datasets`, unpacked once into picture files with a table beside them.

    hf:NAME[:CONFIG]              a data set on the hub, all its splits
    hf:NAME?image=img&label=fine  with its columns named, where it has several; `split=train,test` takes some of the splits
    FOLDER, FILE.parquet          what `save_to_disk` wrote, or a table with pictures in it; hf:FOLDER?label=fine names columns

The splits train, validation and test train, validate and test; a data set with only one is left to the protocol. Pictures keep
their bytes. They lie in the cache folder under the data set's fingerprint, so that every command reads them as any table.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from likewise.data.folder import SUFFIXES
from likewise.data.sheet import first_line
from likewise.data.table import read_table
from likewise.errors import LikewiseError, nearest_name
from likewise.files import cache_folder, write_csv
from likewise.types import Items
from likewise.weights import patient_only_online

OWNER = "hf"
PARTS = {"train": "train", "validation": "val", "valid": "val", "val": "val", "dev": "val", "test": "test"}
OPTIONS = ("image", "label", "split")


@dataclass(frozen=True, eq=False)
class Split:
    """Rows of a data set. `kinds` says of each column: "image", the names of a ClassLabel, or what else it holds."""

    kinds: dict[str, str | list[str]]
    fingerprint: str
    rows: Any  # (image column, label column) -> iterator over ({"bytes", "path"}, label)


def read_hugging_face(data: str) -> Items:
    """Read `hf:...`, a folder of `save_to_disk`, or a Parquet file that holds pictures."""
    where, wish = parse(data)
    path = Path(where).expanduser()
    if path.suffix.lower() == ".parquet" and path.is_file():
        splits = {"train": of_parquet(path)}
    elif is_saved(path) or where.startswith((".", "/", "~")):
        splits = of_datasets(load_folder(path))
    else:
        splits = of_datasets(load_hub(where))
    return read_table(str(unpack(splits, path.stem if path.exists() else where, wish)))


def from_object(dataset) -> str:
    """The table of a Dataset or DatasetDict that is there already."""
    return str(
        unpack(of_datasets(dataset), getattr(getattr(dataset, "info", None), "dataset_name", None) or "dataset", {})
    )


def is_saved(folder: Path) -> bool:
    """Whether `save_to_disk` wrote this folder."""
    return (folder / "dataset_dict.json").is_file() or all(
        (folder / name).is_file() for name in ("dataset_info.json", "state.json")
    )


def holds_pictures(file: str | Path) -> bool:
    """Whether a Parquet file has pictures inside of it. One that cannot be read has none: others say what is wrong with it."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return any(is_picture(column.type) for column in pq.read_schema(file))
    except (pa.ArrowException, OSError):
        return False


def is_picture(kind) -> bool:
    import pyarrow as pa

    return pa.types.is_struct(kind) and {"bytes", "path"} == {kind.field(i).name for i in range(kind.num_fields)}


def parse(data: str) -> tuple[str, dict[str, str]]:
    """`hf:NAME?image=img` -> NAME, and the columns that were named."""
    where, _, words = data.removeprefix("hf:").partition("?")
    wish = {}
    for word in filter(None, words.split("&")):
        name, mark, value = word.partition("=")
        if name not in OPTIONS or not mark or not value:
            raise LikewiseError(
                f"{OWNER}: after ? come image=COLUMN, label=COLUMN or split=NAMES, joined by &, got {word!r}"
                f"{nearest_name(name, OPTIONS)} Write it as hf:NAME?image=img&label=fine_label"
            )
        wish[name] = value
    if not where:
        raise LikewiseError(f"{OWNER}: a name must come after hf:, got {data!r}; write it as hf:NAME or hf:NAME:CONFIG")
    return where, wish


def package():
    try:
        import datasets
    except ImportError:
        raise LikewiseError(
            f"{OWNER}: reading it needs the package datasets, which is not there; pip install 'likewise[datasets]'"
        ) from None
    return datasets


def load_folder(path: Path):
    datasets = package()
    try:
        return datasets.load_from_disk(str(path))
    except Exception as error:  # of many kinds, for folders that are damaged
        raise LikewiseError(
            f"{OWNER}: {path} must be a folder written by save_to_disk, and it cannot be read ({first_line(error)}); "
            "write it anew"
        ) from None


def load_hub(where: str):
    name, _, config = where.partition(":")
    datasets = package()
    try:
        with patient_only_online():
            return datasets.load_dataset(name, config or None)
    except Exception as error:  # of many kinds: no network, no such name, no such config, scripts
        raise LikewiseError(
            f"{OWNER}: '{where}' must be a data set on the hub (or in its cache), and it cannot be loaded "
            f"({first_line(error)}); check the name, or the network, or give a folder written by save_to_disk"
        ) from None


def of_datasets(dataset) -> dict[str, Split]:
    datasets = package()
    if not isinstance(dataset, datasets.Dataset | datasets.DatasetDict):
        raise LikewiseError(
            f"{OWNER}: a Dataset or DatasetDict of the package datasets is wanted, got {type(dataset).__name__}; "
            "one that streams must be loaded whole"
        )
    whole = dataset if isinstance(dataset, dict) else {"train": dataset}

    def kind(feature) -> str | list[str]:
        if isinstance(feature, datasets.Image):
            return "image"
        return list(feature.names) if isinstance(feature, datasets.ClassLabel) else getattr(feature, "dtype", "other")

    def rows(split, image: str, label: str) -> Iterator[tuple[dict, Any]]:
        plain = split.select_columns([image, label]).cast_column(image, datasets.Image(decode=False)).with_format(None)
        return ((row[image], row[label]) for row in plain)

    return {
        str(name): Split(
            {column: kind(feature) for column, feature in split.features.items()},
            split._fingerprint,
            lambda image, label, split=split: rows(split, image, label),
        )
        for name, split in whole.items()
    }


def of_parquet(path: Path) -> Split:
    """Without the package: what it says of columns stands in the schema."""
    import pyarrow.parquet as pq

    schema = pq.read_schema(path)
    told = json.loads((schema.metadata or {}).get(b"huggingface", b"{}")).get("info", {}).get("features", {})
    kinds = {
        c.name: "image" if is_picture(c.type) else told.get(c.name, {}).get("names") or str(c.type) for c in schema
    }
    there = path.stat()

    def rows(image: str, label: str) -> Iterator[tuple[dict, Any]]:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(64, columns=[image, label]):
                yield from zip(batch[image].to_pylist(), batch[label].to_pylist(), strict=True)

    return Split(kinds, f"{path.absolute()} {there.st_size} {there.st_mtime_ns}", rows)


def choose(kinds: dict[str, str | list[str]], wish: dict[str, str]) -> tuple[str, str]:
    """The image column and the label column: as named, or the only ones that can be meant."""
    images = [name for name, kind in kinds.items() if kind == "image"]
    labels = [name for name, kind in kinds.items() if isinstance(kind, list)] or [n for n in kinds if n == "label"]
    chosen = []
    for what, found in (("image", images), ("label", labels)):
        if what in wish and wish[what] not in kinds:
            raise LikewiseError(
                f"{OWNER}: there is no column '{wish[what]}'{nearest_name(wish[what], kinds)} It has: {', '.join(kinds)}"
            )
        if what not in wish and len(found) != 1:
            many = f"several, {', '.join(found)}" if found else f"none among {', '.join(kinds)}"
            raise LikewiseError(
                f"{OWNER}: one column must hold the {what}, and there are {many}; name it: ?{what}=COLUMN"
            )
        chosen.append(wish.get(what) or found[0])
    image, label = chosen
    if kinds[image] != "image":
        raise LikewiseError(
            f"{OWNER}: column '{image}' must hold pictures (the feature Image), got {kinds[image]}; pictures are in: "
            f"{', '.join(images) or 'no column'}"
        )
    kind = kinds[label]
    if not isinstance(kind, list) and not re.match(r"u?int|(large_)?(string|utf8)", kind):
        raise LikewiseError(
            f"{OWNER}: label must be classes, whole numbers or words, and '{label}' holds {kind}; name another: ?label=COLUMN"
        )
    return image, label


def unpack(splits: dict[str, Split], name: str, wish: dict[str, str]) -> Path:
    """Pictures as files with a table beside them; the table is written last, so where it is, all is there."""
    splits = some(splits, wish.get("split"))
    image, label = choose(next(iter(splits.values())).kinds, wish)
    facts = [1, image, label, {part: split.fingerprint for part, split in splits.items()}]
    key = hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:12]
    word = re.sub(r"[^\w.-]+", "-", name).strip("-.")
    folder = cache_folder() / f"hf-{word}-{key}"
    table = folder / f"{word}.csv"
    if table.is_file():
        return table
    lines = []
    for part, split in splits.items():
        choose(split.kinds, {"image": image, "label": label})  # knows what is wrong with a split that differs
        (folder / part).mkdir(parents=True, exist_ok=True)
        for number, (picture, cell) in enumerate(split.rows(image, label)):
            at = f"row {number} of {part}"
            file = put(folder, f"{part}/{number:06d}", picture, at)
            lines.append((file, *class_of(cell, split.kinds[label], at), PARTS[part] if len(splits) > 1 else ""))
    head = ("path", "label", "class_name", "split")
    write_csv(table, head if len(splits) > 1 else head[:3], lines if len(splits) > 1 else (line[:3] for line in lines))
    return table


def some(splits: dict[str, Split], wanted: str | None) -> dict[str, Split]:
    names = wanted.split(",") if wanted else list(splits)
    for name in names:
        if name not in splits:
            raise LikewiseError(
                f"{OWNER}: there is no split '{name}'{nearest_name(name, splits)} It has: {', '.join(splits)}"
            )
        if len(names) > 1 and name not in PARTS:
            raise LikewiseError(
                f"{OWNER}: splits must be train, validation and test, got '{name}'; take those you want: "
                f"?split={','.join(n for n in names if n in PARTS) or name}"
            )
    return {name: splits[name] for name in names}


def class_of(cell: Any, kind: str | list[str], at: str) -> tuple[Any, str]:
    """The label as a table has it, and its name."""
    if cell is None or cell == "" or (isinstance(kind, list) and not 0 <= cell < len(kind)):
        raise LikewiseError(
            f"{OWNER}: every row must have a label, got {cell!r} in {at}; take splits that are labelled: ?split=train"
        )
    return cell, kind[cell] if isinstance(kind, list) else ""


def put(folder: Path, name: str, picture: dict | None, at: str) -> str:
    """Write a picture's own bytes, unless they are there; its path below the folder."""
    content, path = (picture or {}).get("bytes"), (picture or {}).get("path")
    if content is None and path is not None and os.path.isfile(path):
        content = Path(path).read_bytes()
    if content is None:
        raise LikewiseError(f"{OWNER}: every row must have a picture, and {at} has none; leave such rows out first")
    suffix = os.path.splitext(path or "")[1].lower()
    file = name + (suffix if suffix in SUFFIXES else suffix_of(content))
    if not (folder / file).is_file() or (folder / file).stat().st_size != len(content):
        aside = folder / f"{file}.{os.getpid()}.part"
        aside.write_bytes(content)
        os.replace(aside, folder / file)
    return file


def suffix_of(content: bytes) -> str:
    """By what the bytes say; those of no known kind are found out when they are decoded."""
    from PIL import Image

    try:
        return f".{(Image.open(io.BytesIO(content)).format or 'img').lower()}"
    except Exception:
        return ".img"
