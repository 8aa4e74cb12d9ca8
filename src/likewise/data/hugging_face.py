"""Tables of Hugging Face `datasets`, unpacked once into picture files with a table beside them.

    hf:NAME[:CONFIG]              a data set on the hub, all its splits
    hf:NAME?image=img&label=fine  with its columns named, where it has several; `split=train,test` takes some of the splits
    FOLDER, FILE.parquet          what `save_to_disk` wrote, or a table with pictures in it; hf:FOLDER?label=fine names columns

The splits train, validation and test train, validate and test; a data set with only one is left to the protocol. Pictures keep
their bytes. They lie in the cache folder under the data set's fingerprint, so that every command reads them as any table.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from likewise.data.table import read_table
from likewise.data.tabular import parquet_errors
from likewise.data.unpack import ERROR_OWNER, SplitFiles, unpack
from likewise.errors import LikewiseError, nearest_name
from likewise.io.files import first_line
from likewise.pretrained.weights import offline_if_unreachable
from likewise.types import Items

OPTIONS = ("image", "label", "split")


def read_hugging_face(data: str, fetch: bool = True) -> Items:
    """Read `hf:...`, a folder of `save_to_disk`, or a Parquet file that holds pictures. See `load` for `fetch`."""
    where, wish = parse(data)
    path = Path(where).expanduser()
    if path.suffix.lower() == ".parquet" and path.is_file():
        splits = {"train": of_parquet(path)}
    elif is_saved(path) or where.startswith((".", "/", "~")):
        splits = of_datasets(load_folder(path), [str(path)])
    else:
        splits = of_datasets(load_hub(where, fetch), hub_folders(where))
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
    import pyarrow.parquet as pq

    try:
        return any(is_picture(column.type) for column in pq.read_schema(file))
    except Exception:  # pyarrow raises many kinds for damaged files
        return False


def is_picture(kind) -> bool:
    import pyarrow as pa

    if not pa.types.is_struct(kind) or {"bytes", "path"} != {kind.field(i).name for i in range(kind.num_fields)}:
        return False
    content, path, t = kind.field("bytes").type, kind.field("path").type, pa.types
    return (t.is_binary(content) or t.is_large_binary(content) or t.is_null(content)) and (
        t.is_string(path) or t.is_large_string(path) or t.is_null(path)
    )


def parse(data: str) -> tuple[str, dict[str, str]]:
    """`hf:NAME?image=img` -> NAME, and the columns that were named."""
    where, _, words = data.removeprefix("hf:").partition("?")
    wish = {}
    for word in filter(None, words.split("&")):
        name, mark, value = word.partition("=")
        if name not in OPTIONS or not mark or not value:
            raise LikewiseError(
                f"{ERROR_OWNER}: after ? come image=COLUMN, label=COLUMN or split=NAMES, joined by &, got {word!r}"
                f"{nearest_name(name, OPTIONS)} Write it as hf:NAME?image=img&label=fine_label"
            )
        wish[name] = value
    if not where:
        raise LikewiseError(
            f"{ERROR_OWNER}: a name must come after hf:, got {data!r}; write it as hf:NAME or hf:NAME:CONFIG"
        )
    return where, wish


def package() -> Any:  # its modules are loaded when they are first used, which no type can tell
    try:
        import datasets
    except ImportError:
        raise LikewiseError(
            f"{ERROR_OWNER}: reading it needs the package datasets, which is not there; pip install 'likewise[datasets]'"
        ) from None
    return datasets


def load_folder(path: Path):
    datasets = package()
    try:
        return datasets.load_from_disk(str(path))
    except Exception as error:  # of many kinds, for folders that are damaged
        raise LikewiseError(
            f"{ERROR_OWNER}: {path} must be a folder written by save_to_disk, and it cannot be read ({first_line(error)}); "
            "write it anew"
        ) from None


def load_hub(where: str, fetch: bool):
    name, _, config = where.partition(":")
    datasets = package()
    try:
        with offline_if_unreachable() if fetch else only_cached():
            return datasets.load_dataset(name, config or None)
    except Exception as error:  # of many kinds: no network, no such name, no such config, scripts
        if not fetch:
            raise LikewiseError(
                f"{ERROR_OWNER}: the data of a run is fetched from a hub only where you name it yourself, and 'hf:{where}' is not in "
                f"the cache; if you trust it, name it: --data hf:{where} (search: first `likewise evaluate RUN --data ...`)"
            ) from None
        raise LikewiseError(
            f"{ERROR_OWNER}: '{where}' must be a data set on the hub (or in its cache), and it cannot be loaded "
            f"({first_line(error)}); check the name, or the network, or give a folder written by save_to_disk"
        ) from None


@contextmanager
def only_cached() -> Iterator[None]:
    """Let the package look into its cache alone, and contact no server."""
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
    """Return the folders that the package keeps downloaded pictures in, and the local folder of this name."""
    import huggingface_hub.constants

    config = package().config
    return [
        where.partition(":")[0],
        *map(str, (config.HF_DATASETS_CACHE, config.DOWNLOADED_DATASETS_PATH, huggingface_hub.constants.HF_HUB_CACHE)),
    ]


def of_datasets(dataset, within: Sequence[str] | None = None) -> dict[str, SplitFiles]:
    datasets = package()
    if not isinstance(dataset, datasets.Dataset | datasets.DatasetDict):
        raise LikewiseError(
            f"{ERROR_OWNER}: a Dataset or DatasetDict of the package datasets is wanted, got {type(dataset).__name__}; "
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
        str(name): SplitFiles(
            {column: kind(feature) for column, feature in split.features.items()},
            split._fingerprint,
            lambda image, label, split=split: rows(split, image, label),
            within,
        )
        for name, split in whole.items()
    }


def of_parquet(path: Path) -> SplitFiles:
    """Without the package: what it says of columns stands in the schema."""
    import pyarrow.parquet as pq

    with parquet_errors(path, ERROR_OWNER):
        schema = pq.read_schema(path)
    names = class_names(schema)
    kinds = {c.name: "image" if is_picture(c.type) else names.get(c.name) or str(c.type) for c in schema}
    there = path.stat()

    def rows(image: str, label: str) -> Iterator[tuple[dict, Any]]:
        with parquet_errors(path, ERROR_OWNER), pq.ParquetFile(path) as file:
            for batch in file.iter_batches(64, columns=[image, label]):
                yield from zip(batch[image].to_pylist(), batch[label].to_pylist(), strict=True)

    return SplitFiles(kinds, f"{path.absolute()} {there.st_size} {there.st_mtime_ns}", rows, [str(path.parent)])


def class_names(schema) -> dict[str, list[str]]:
    """Return the class names that the package keeps in a Parquet schema, by column; {} where there are none."""
    try:
        features = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
        named = {column: feature.get("names") for column, feature in features.items() if isinstance(feature, dict)}
    except (KeyError, ValueError, TypeError, AttributeError, RecursionError):
        return {}
    return {c: n for c, n in named.items() if isinstance(n, list) and all(isinstance(one, str) for one in n)}
