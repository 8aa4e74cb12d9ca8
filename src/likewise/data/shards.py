"""Folders of shards: embeddings that are larger than memory, in files of some rows each.

    shards.json   rows, width and dtype of all vectors, and the files of every shard with their checksums (CRC-32)
    z-00000.npy   vectors of the first shard (rows, width): float32, float16 or int8
    s-00000.npy   for int8: the scale of every row, float32; a vector is its numbers times its scale
    y-00000.npz   columns of these rows: label (position in classes.json), and those of a table, such as row, path or split
    classes.json  the name of every class

A shard is in shards.json when all of its files are complete. Reading takes the memory of a block of rows; see `core.vectors`.
"""

from __future__ import annotations

import io
import os
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
from jaxtyping import Float, Int

from likewise.core.errors import LikewiseError
from likewise.core.files import (
    atomic_write,
    check_output_file,
    check_writable,
    crc32_of,
    first_line,
    read_json,
    write_json,
)
from likewise.core.settings.field_types import StoredType
from likewise.core.vectors import Vectors, block_rows
from likewise.data.tabular import Codes
from likewise.data.vector_files import MappedRows, mapped_rows, read_header

INDEX_FILE = "shards.json"
CLASSES_FILE = "classes.json"
STORED = {"float32": "<f4", "float16": "<f2", "int8": "|i1"}
"""Names of the number types of shards -> their dtype in the files."""
LARGEST = {"float32": float(np.finfo(np.float32).max), "float16": 65504.0, "int8": float(np.finfo(np.float32).max)}
"""Largest absolute value that a number type can store."""

CURE = "write it again (the `likewise embed` command that made the folder replaces only such shards)"
"""End of an error about a damaged shard."""


@dataclass(frozen=True)
class Shard:
    """The files of one shard; names are those of files in the folder."""

    rows: int
    vectors: str
    scale: str | None = None
    columns: str | None = None
    crc32: Mapping[str, str] = field(default_factory=dict)  # file -> CRC-32 of its bytes, in hexadecimal

    @property
    def files(self) -> list[str]:
        return [name for name in (self.vectors, self.scale, self.columns) if name is not None]


@dataclass(frozen=True)
class ShardIndex:
    """Content of shards.json. `shards`: the complete ones by their number, from 0 to `count` - 1."""

    rows: int
    width: int
    dtype: str
    shard_rows: int  # of every shard but the last
    shards: dict[int, Shard]
    made_by: dict[str, Any] = field(default_factory=dict)  # network, data and settings: the same to continue
    about: dict[str, Any] = field(default_factory=dict)  # further words about the origin, see `runs.embeddings.origin`

    @property
    def count(self) -> int:
        """Number of shards of the finished folder."""
        return -(-self.rows // self.shard_rows)

    def rows_of(self, number: int) -> range:
        """Return the rows of a shard."""
        return range(number * self.shard_rows, min(self.rows, (number + 1) * self.shard_rows))


def is_shards(path: str | os.PathLike) -> bool:
    """Whether a path is a folder of shards."""
    return os.path.isdir(path) and os.path.isfile(os.path.join(path, INDEX_FILE))


def read_index(folder: str | os.PathLike) -> ShardIndex:
    """Return the content of shards.json, finished or not; raise if it contradicts itself."""
    file = Path(folder) / INDEX_FILE
    told = read_json(file, "features", hint=f"{CURE}, or delete the folder")

    def wrong(rule: str, got: object) -> LikewiseError:
        return LikewiseError(f"features: {file} must have {rule}, got {got!r}; {CURE}")

    for name in ("rows", "width", "shard_rows"):
        if type(told.get(name)) is not int or told[name] < 1:
            raise wrong(f"a whole number above 0 as {name}", told.get(name))
    if told.get("dtype") not in STORED:
        raise wrong(f"a dtype of {', '.join(STORED)}", told.get("dtype"))
    made_by, about = told.get("made_by", {}), told.get("about", {})
    if not all(isinstance(one, dict) for one in (made_by, about, told.get("shards"))):
        raise wrong("the objects made_by, about and shards", sorted(told))
    index = ShardIndex(told["rows"], told["width"], told["dtype"], told["shard_rows"], {}, made_by, about)
    for number, one in told["shards"].items():
        if not (str(number).isdecimal() and int(number) < index.count and isinstance(one, dict)):
            raise wrong(f"shards 0 to {index.count - 1}", {number: one})
        index.shards[int(number)] = shard_of(one, index, len(index.rows_of(int(number))), wrong)
    return index


def shard_of(one: dict, index: ShardIndex, rows: int, wrong: Callable[[str, object], LikewiseError]) -> Shard:
    """Return a shard as shards.json describes it; raise `wrong` if that contradicts the rest of the index."""
    names = [one.get(name) for name in ("vectors", "scale", "columns")]
    if not names[0] or not all(name is None or name == os.path.basename(str(name)) for name in names):
        raise wrong("plain names of files of every shard", one)
    if (names[1] is None) == (index.dtype == "int8"):
        raise wrong(f"a scale for every shard of int8, and for no other ({names[0]})", names[1])
    if one.get("rows") != rows:
        raise wrong(f"{rows} rows in shard {names[0]}, as its rows and shard_rows say", one.get("rows"))
    shard = Shard(rows, str(names[0]), names[1], names[2], one.get("crc32") or {})
    if not isinstance(shard.crc32, dict) or set(shard.files) - shard.crc32.keys():
        raise wrong(f"a CRC-32 of every file of shard {names[0]}", shard.crc32)
    return shard


def open_shards(folder: str | os.PathLike) -> tuple[Vectors, dict[str, Any]]:
    """Return the vectors of a finished folder of shards, read in blocks, and its columns by name.

    Every file is read once, to check its checksum and that all numbers are finite. Errors name the shard, and the row.
    """
    folder, index = Path(folder), read_index(folder)
    missing = [number for number in range(index.count) if number not in index.shards]
    if missing:
        raise LikewiseError(
            f"features: {folder} must hold {index.count} shards, but {len(missing)} are missing (first: "
            f"{vectors_file(missing[0])}); run the `likewise embed` command that made it again: it continues"
        )
    parts: list[MappedRows] = []
    for number in range(index.count):
        own = checked_parts(folder, index, number)
        check_finite(own, index, number, folder)
        parts += own
    return Vectors(parts, index.width), read_columns(folder, index)


def checked_parts(folder: Path, index: ShardIndex, number: int) -> list[MappedRows]:
    """Return the rows of a shard; raise if one of its files is missing, damaged, or not what the index says."""
    shard = index.shards[number]
    for name in shard.files:
        if not (folder / name).is_file():
            raise LikewiseError(f"features: shard {shard.vectors} of {folder} must have the file {name}; {CURE}")
    header = header_of(folder, shard.vectors, shard.vectors)
    wants, got = (len(index.rows_of(number)), index.width), header.shape
    if header.dtype != np.dtype(STORED[index.dtype]):
        raise not_as_indexed(folder, shard, f"hold {index.dtype}", header.dtype)
    if got != wants or header.fortran:
        kind = "columns first" if header.fortran else "x".join(map(str, got))
        raise not_as_indexed(folder, shard, f"hold {wants[0]} rows of {wants[1]} numbers", kind)
    scale = None
    if shard.scale is not None:
        beside = header_of(folder, shard.scale, shard.vectors)
        if beside.dtype != np.dtype("<f4") or beside.shape != wants[:1]:
            raise not_as_indexed(folder, shard, f"have {wants[0]} scales (float32) in {shard.scale}", beside.shape)
        scale = (str(folder / shard.scale), beside.offset)
    for name in shard.files:
        if (found := f"{crc32_of(folder / name):08x}") != shard.crc32[name]:
            raise not_as_indexed(folder, shard, f"have the CRC-32 {shard.crc32[name]} ({name})", found)
    return mapped_rows(str(folder / shard.vectors), header, scale)


def header_of(folder: Path, name: str, shard: str):
    try:
        return read_header(folder / name)
    except (ValueError, OSError, EOFError) as error:
        raise LikewiseError(
            f"features: shard {shard} of {folder} is damaged ({name}: {first_line(error)}); {CURE}"
        ) from None


def not_as_indexed(folder: Path, shard: Shard, rule: str, got: object) -> LikewiseError:
    """Return the error of a shard that is not what shards.json says."""
    return LikewiseError(f"features: shard {shard.vectors} of {folder} must {rule}, got {got}; {CURE}")


def check_finite(parts: Sequence[MappedRows], index: ShardIndex, number: int, folder: Path) -> None:
    """Raise for the first row of a shard that holds NaN or infinite values."""
    first = index.rows_of(number).start
    for block in (block for part in parts for block in part.blocks(block_rows(index.width))):
        # a sum is finite unless a number is not (or the sum overflows): one pass without a mask
        if not np.isfinite(block.sum()) and len(bad := np.flatnonzero(~np.isfinite(block).all(axis=1))):
            row = first + int(bad[0])
            name = index.shards[number].vectors
            raise LikewiseError(
                f"features: all numbers must be finite, but row {row - index.rows_of(number).start} of shard {name} of {folder} "
                f"(row {row} of all, from 0) holds NaN or infinite values; {CURE}, or drop the row"
            )
        first += len(block)


def read_columns(folder: Path, index: ShardIndex) -> dict[str, Any]:
    """Return the columns of all shards by name, in the order of the rows: arrays, and names of classes by code."""
    found: dict[str, list[np.ndarray]] = {}
    shards = [index.shards[number] for number in range(index.count)]
    if all(shard.columns is None for shard in shards):
        return {}
    for shard in shards:
        columns = columns_of(folder, shard)
        if found and found.keys() != columns.keys():
            raise not_as_indexed(folder, shard, f"have the columns {', '.join(found)}", ", ".join(columns) or "none")
        for name, column in columns.items():
            found.setdefault(name, []).append(column)
    whole: dict[str, Any] = {name: np.concatenate(parts) for name, parts in found.items()}
    return whole | named_classes(folder, whole["label"], index) if "label" in whole else whole


def column_of(folder: str | os.PathLike, name: str) -> np.ndarray | None:
    """Return one column of all shards in the order of the rows; None if they do not have it."""
    index, found = read_index(folder), []
    for number in range(index.count):
        shard = index.shards.get(number)
        columns = {} if shard is None else columns_of(Path(folder), shard, (name,))
        if name not in columns:
            return None
        found.append(columns[name])
    return np.concatenate(found)


def columns_of(folder: Path, shard: Shard, only: Sequence[str] | None = None) -> dict[str, np.ndarray]:
    """Return the columns of one shard, all or `only` some; raise if one does not have an entry for every row."""
    columns = {}
    if shard.columns is not None:
        try:
            with np.load(folder / shard.columns, allow_pickle=False) as arrays:
                columns = {name: arrays[name] for name in arrays.files if only is None or name in only}
        except Exception as error:  # numpy, zipfile and zlib raise many types for damaged files
            raise LikewiseError(
                f"features: shard {shard.vectors} of {folder} is damaged ({shard.columns}: {first_line(error)}); {CURE}"
            ) from None
    for name, column in columns.items():
        if column.shape[:1] != (shard.rows,):
            raise not_as_indexed(folder, shard, f"have {shard.rows} entries of {name} in {shard.columns}", column.shape)
    if "label" in columns and columns["label"].dtype.kind not in "iu":
        got = columns["label"].dtype
        raise not_as_indexed(folder, shard, f"have labels by code (whole numbers) in {shard.columns}", got)
    return columns


def named_classes(folder: Path, code: Int[np.ndarray, "N"], index: ShardIndex) -> dict[str, Any]:
    """Return the columns label, class_name, and if stored labels and coarse, from the codes and classes.json."""
    told = read_json(folder / CLASSES_FILE, "features", hint=CURE)
    names = told.get("class_name")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise LikewiseError(f"features: {folder / CLASSES_FILE} must have the list class_name of texts; {CURE}")
    wrong = np.flatnonzero((code < 0) | (code >= len(names)))
    if len(wrong):
        row = int(wrong[0])
        number = row // index.shard_rows
        raise LikewiseError(
            f"features: labels must be 0 to {len(names) - 1}, the classes of {CLASSES_FILE}, but row "
            f"{row - index.rows_of(number).start} of shard {index.shards[number].vectors} of {folder} (row {row} of all) has "
            f"{int(code[row])}; {CURE}"
        )
    if len(names) > len(code):
        raise LikewiseError(
            f"features: there must be a row of every class, but {folder / CLASSES_FILE} has {len(names)} classes for "
            f"{len(code)} rows (first shard: {index.shards[0].vectors}); drop the classes without rows"
        )
    columns: dict[str, Any] = {"label": Codes.of(code, range(len(names))), "class_name": Codes.of(code, names)}
    if told.get("several"):
        columns["labels"] = columns["class_name"]  # its presence marks names that join several labels
    if isinstance(coarse := told.get("coarse"), list) and len(coarse) == len(names):
        columns["coarse"] = Codes.of(code, coarse)
    return columns


def vectors_file(number: int) -> str:
    """Return the name of the file with the vectors of a shard."""
    return f"z-{number:05d}.npy"


def check_folder(folder: Path) -> None:
    """Raise unless shards can be written into a folder: a new one, an empty one, or one of shards."""
    if not folder.is_dir():
        check_output_file(folder, "embed")
        if not folder.exists():
            return
    if not folder.is_dir() or (not is_shards(folder) and any(folder.iterdir())):
        raise LikewiseError(
            f"embed: --out must be a new or empty folder, or shards of the same embeddings, but '{folder}' has other content; "
            "choose another folder"
        )
    check_writable(folder, "embed")


class ShardWriter:
    """Writes a folder of shards, one shard at a time; a folder that was left unfinished continues.

    Only one process may write a folder at a time (`core.locks.folder_lock`).

    Args:
        folder: a new or empty folder, or one that this class began with the same index.
        index: rows, width, dtype and origin of the finished folder; its `shards` are ignored.
        classes: content of classes.json: class_name, and if there are any: coarse, several.
    """

    def __init__(self, folder: str | os.PathLike, index: ShardIndex, classes: dict[str, Any]):
        self.folder, self.classes = Path(folder), classes
        self.index = replace(index, shards={})
        check_folder(self.folder)
        if is_shards(self.folder):
            self.index.shards.update(same_origin(self.folder, index, read_index(self.folder)).shards)
        self.folder.mkdir(exist_ok=True)
        for part in self.folder.glob(".*.part"):  # files that a killed process did not finish
            part.unlink(missing_ok=True)
        write_json(self.folder / CLASSES_FILE, classes)
        self._write_index()

    def missing(self) -> list[int]:
        """Return the numbers of the shards that must be written: those not in the index, and damaged ones. Reads all files."""
        for number in list(self.index.shards):
            try:
                checked_parts(self.folder, self.index, number)
                columns_of(self.folder, self.index.shards[number])
            except LikewiseError:
                del self.index.shards[number]
        return [number for number in range(self.index.count) if number not in self.index.shards]

    def write(self, number: int, x: Float[np.ndarray, "n F"], columns: dict[str, np.ndarray]) -> None:
        """Write one shard, then the index that names it."""
        name, rows = vectors_file(number), self.index.rows_of(number)
        if x.shape != (len(rows), self.index.width) or any(len(column) != len(rows) for column in columns.values()):
            raise LikewiseError(
                f"embed: shard {name} must hold {len(rows)} rows of {self.index.width} numbers, with as many entries in each "
                f"column, got {x.shape}; give the rows {rows.start} to {rows.stop - 1}"
            )
        stored, scale = encode(x, self.index.dtype, name, rows.start)
        contents = {name: npy_bytes(stored), f"y-{number:05d}.npz": npz_bytes(columns)}
        if scale is not None:
            contents[f"s-{number:05d}.npy"] = npy_bytes(scale)
        for file, content in contents.items():
            with atomic_write(self.folder / file) as aside:
                aside.write_bytes(content)
        crc32 = {file: f"{zlib.crc32(content):08x}" for file, content in contents.items()}
        scales = None if scale is None else f"s-{number:05d}.npy"
        self.index.shards[number] = Shard(len(rows), name, scales, f"y-{number:05d}.npz", crc32)
        self._write_index()

    def _write_index(self) -> None:
        told = asdict(self.index) | {"shards": {str(number): asdict(one) for number, one in self.index.shards.items()}}
        write_json(self.folder / INDEX_FILE, {"format": 1} | told)


def same_origin(folder: Path, wanted: ShardIndex, there: ShardIndex) -> ShardIndex:
    """Return the index of a folder; raise if it is of other embeddings, which must not be mixed with the wanted ones."""
    words = {"rows": "rows", "width": "width", "dtype": "--dtype", "shard_rows": "--shard-rows"}
    new = {words[name]: getattr(wanted, name) for name in words} | wanted.made_by
    old = {words[name]: getattr(there, name) for name in words} | there.made_by
    differ = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    if differ:
        shown = "; ".join(f"{name}: {brief(old.get(name))} there, {brief(new.get(name))} now" for name in differ[:3])
        raise LikewiseError(
            f"embed: the shards in '{folder}' must be of the same network, data and settings to continue, but they differ "
            f"({shown}); choose another folder, or delete this one"
        )
    return there


def brief(value: object) -> str:
    """Return a value as text for an error; the beginning of a checksum."""
    return str(value) if len(str(value)) < 64 else f"{str(value)[:12]}..."


def encode(
    x: Float[np.ndarray, "n F"], dtype: str, name: str, first: int
) -> tuple[np.ndarray, Float[np.ndarray, "n"] | None]:
    """Return vectors as they are stored, and for int8 the scale of every row: its largest absolute value / 127.

    The error of a number is at most 2^-11 of it for float16 (2^-25 below 6.1e-5), and half the row's scale for int8.
    """
    bad = np.flatnonzero(~(np.abs(x).max(axis=1, initial=0) <= LARGEST[dtype]))
    if len(bad):
        largest = f" ({dtype} ends at {LARGEST[dtype]:.0f}: --dtype float32)" if dtype == "float16" else ""
        raise LikewiseError(
            f"embed: all numbers must be finite, but row {int(bad[0])} of shard {name} (row {first + int(bad[0])} of all) holds "
            f"NaN, infinite or too large values{largest}; the shards written so far are kept"
        )
    if dtype != "int8":
        return np.ascontiguousarray(x, STORED[dtype]), None
    scale = np.abs(x).max(axis=1, initial=0).astype(np.float32) / np.float32(127)
    scale[scale == 0] = 1
    return np.rint(x / scale[:, None]).clip(-127, 127).astype(np.int8), scale.astype("<f4")


def npy_bytes(array: np.ndarray) -> bytes:
    """Return the content of a .npy file."""
    out = io.BytesIO()
    np.save(out, array, allow_pickle=False)
    return out.getvalue()


def npz_bytes(columns: dict[str, np.ndarray]) -> bytes:
    """Return the content of an .npz file."""
    out = io.BytesIO()
    np.savez(out, **columns)  # pyright: ignore[reportArgumentType]
    return out.getvalue()


def write_shards(
    folder: str | os.PathLike,
    blocks: Iterator[Float[np.ndarray, "n F"]],
    y: Int[np.ndarray, "N"],
    class_name: Sequence[str],
    *,
    width: int,
    dtype: StoredType = "float16",
    shard_rows: int = 65_536,
) -> None:
    """Write vectors that come in blocks of any size, with labels by code, as a folder of shards.

    Args:
        y: position of every row's class in `class_name`; every class has a row.
        dtype: number type of the files; see `encode` for its error.
        shard_rows: rows of a shard.
    """
    assert dtype in get_args(StoredType)
    writer = ShardWriter(folder, ShardIndex(len(y), width, dtype, shard_rows, {}), {"class_name": list(class_name)})
    held, number = np.empty((0, width), np.float32), 0
    for block in blocks:
        held = np.concatenate([held, block])
        while number < writer.index.count and len(held) >= (n := len(rows := writer.index.rows_of(number))):
            writer.write(number, held[:n], {"label": y[rows.start : rows.stop].astype(np.int32)})
            held, number = held[n:], number + 1
    if number < writer.index.count or len(held):
        raise LikewiseError(f"shards: there must be a vector for each of the {len(y)} labels; give as many of both")
