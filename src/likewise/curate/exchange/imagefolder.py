"""An imagefolder of Hugging Face `datasets`: image files in one folder per split, with a table of metadata beside them.

    train/metadata.parquet    file_name, row, path, label, split, score, ...
    train/00000012.jpg        the bytes of row 12, unchanged

The metadata are Parquet: `datasets` reads a CSV cell "NA" as missing, and a JSON text "2020-01-01" as a time. If some row has no
split, all files are in one folder, which `datasets` loads as the split train; the column `split` has the splits in both cases.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from likewise.core.errors import LikewiseError
from likewise.core.settings import Receive, Send
from likewise.curate.exchange.row_records import Records, arrow_kind, check_utf8, from_cells

OWNER_NAME = "hugging-face"
FOLDER_OF_SPLIT = {"train": "train", "val": "validation", "test": "test"}


def send(records: Records, config: Send) -> list[str]:
    """Copy the images and write their metadata. The folder appears only once it is complete."""
    check_utf8(records, OWNER_NAME)
    folder = Path(config.out).expanduser()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise LikewiseError(
            f"{OWNER_NAME}: --out must be a new or empty folder, got '{config.out}', which exists; choose another"
        )
    if "file_name" in records.columns:
        raise LikewiseError(f"{OWNER_NAME}: a column must not be called file_name, which `datasets` needs; rename it")
    aside = folder.absolute().with_name(f".{folder.name}.{os.getpid()}-{secrets.token_hex(3)}.part")
    try:
        aside.mkdir(parents=True)
        write_folder(records, aside)
        if folder.exists():
            folder.rmdir()
        os.replace(aside, folder)
    except OSError as error:
        raise LikewiseError(
            f"{OWNER_NAME}: cannot write '{config.out}' ({error}); restore the image, or choose another --out"
        ) from None
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return [f"load it: datasets.load_dataset('imagefolder', data_dir={str(folder)!r})"]


def write_folder(records: Records, folder: Path) -> None:
    """Write the images and the metadata of every split."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    split = records.columns.get("split", [""] * len(records))
    has_splits = all(word in FOLDER_OF_SPLIT for word in split)
    for word in dict.fromkeys(split) if has_splits else [None]:
        own = folder / FOLDER_OF_SPLIT[word] if word else folder
        own.mkdir(exist_ok=True)
        part = records.take([place for place, one in enumerate(split) if word in (None, one)])
        names = []
        for row, path in zip(part.row.tolist(), part.columns["path"]):
            names.append(f"{row:08d}{Path(path).suffix.lower()}")
            shutil.copyfile(path, own / names[-1])
        kinds = {name: arrow_kind(name) for name in part.columns}
        table = {name: pa.array(cells, kinds[name]) for name, cells in part.columns.items()}
        pq.write_table(pa.table({"file_name": names, "row": part.row, **table}), own / "metadata.parquet")


def receive(config: Receive) -> Records:
    """Return the metadata of an imagefolder, as `datasets` reads them; without a path, `path` is the image in the folder."""
    from likewise.data.hugging_face import load_imagefolder

    folder = Path(config.source).expanduser()
    if not folder.is_dir():
        raise LikewiseError(f"{OWNER_NAME}: the source must be a folder, got '{config.source}'; check the path")
    cells: dict[str, list] = {}
    for split in load_imagefolder(folder).values():
        image = split["image"]
        own = {name: named(split[name], kind) for name, kind in split.features.items() if name != "image"}
        if "row" not in own or Path(config.into).suffix.lower() in (
            ".npz",
            ".csv",
        ):  # else not the path of the audit's image
            own.setdefault("path", [one["path"] for one in image])
        if cells and own.keys() != cells.keys():
            raise LikewiseError(
                f"{OWNER_NAME}: all splits must have the same columns, got others; write the metadata again"
            )
        cells = {name: [*cells.get(name, []), *column] for name, column in own.items()}
    if "label" not in cells and "labels" not in cells:
        raise LikewiseError(
            f"{OWNER_NAME}: the metadata must have a column label or labels, got: {', '.join(cells)}; add it"
        )
    return from_cells(cells, OWNER_NAME)


def named(cells: Sequence, kind: Any) -> list:
    """Return cells with the names of classes in place of their numbers, if `datasets` stores them as numbers (ClassLabel)."""
    each = kind[0] if isinstance(kind, list) else getattr(kind, "feature", kind)
    names = getattr(each, "names", None)
    if names is None:
        return list(cells)

    def name(cell: Any) -> Any:
        return [name(one) for one in cell] if isinstance(cell, list) else "" if cell in (None, -1) else names[cell]

    return [name(cell) for cell in cells]
