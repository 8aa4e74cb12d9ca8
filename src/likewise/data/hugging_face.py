"""Data sets of Hugging Face `datasets`, unpacked once into image files and a table.

    hf:NAME[:CONFIG]              a data set on the hub, all its splits
    hf:NAME?image=img&label=fine  names the columns if there are several; `split=train,test` selects splits
    FOLDER, FILE.parquet          written by `save_to_disk`, or a Parquet file with images; hf:FOLDER?label=fine names columns

The splits train, validation and test become train, val and test; a data set with one split is split by the protocol. The bytes
of the images are unchanged. The files are in the cache folder under the data set's fingerprint and are read like any table.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from likewise.core.errors import LikewiseError, nearest_name
from likewise.core.files import first_line
from likewise.core.types import Items
from likewise.data.table import read_table
from likewise.data.tabular import parquet_errors
from likewise.data.unpack import ERROR_OWNER, Kind, SeveralLabels, SplitFiles, unpack
from likewise.models.pretrained.weights import offline_if_unreachable

OPTION_NAMES = ("image", "label", "split")
"""Options that may follow the ? of `hf:NAME?...`."""


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
    import tempfile

    datasets = package()
    if not is_imagefolder(path):
        raise LikewiseError(
            f"{ERROR_OWNER}: {path} must be a folder of images with metadata.parquet, .jsonl or .csv, got none; check the path"
        )
    try:
        with (
            only_cached(),
            tempfile.TemporaryDirectory() as cache,
        ):  # its own cache: `datasets` looks at names and times alone
            found = datasets.load_dataset("imagefolder", data_dir=str(path), cache_dir=cache, keep_in_memory=True)
            return found.cast_column("image", datasets.Image(decode=False))
    except Exception as error:  # datasets raises many types for damaged folders
        raise LikewiseError(
            f"{ERROR_OWNER}: {path} must be a folder of images with metadata, but it cannot be read ({first_line(error)}); "
            "write it again"
        ) from None


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
            f"{ERROR_OWNER}: this data needs the package datasets, which is not installed; pip install 'likewise[datasets]'"
        ) from None
    return datasets


def load_folder(path: Path):
    datasets = package()
    try:
        return datasets.load_from_disk(str(path))
    except Exception as error:  # datasets raises many types for damaged folders
        raise LikewiseError(
            f"{ERROR_OWNER}: {path} must be a folder written by save_to_disk, but it cannot be read ({first_line(error)}); "
            "write it again"
        ) from None


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
