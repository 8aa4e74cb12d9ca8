"""An index in a folder: what was added is appended and never moved, and index.json says how much of it counts.

    index.json     how many rows, classes, which are removed, who made them, checksums; renamed into place last
    vectors.f32    the vectors, float32, mapped into memory
    table.bin      one record a row (`rows.TABLE`); paths.txt their paths, one after another
    NAME.faiss     the approximate index, where there is one
    pictures/      pictures that were added on the page
    lock           held while something changes

A crash while appending leaves bytes that index.json does not count; the next change writes over them.
"""

from __future__ import annotations

import json
import math
import os
import re
import secrets
import shutil
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from likewise.errors import LikewiseError
from likewise.index.snapshot import TABLE, Rows
from likewise.io.files import write_aside, write_json
from likewise.io.locks import file_lock

FORMAT = 1
LARGE = 256 * 2**20
"""Bytes beyond which a file is checked by its size alone: reading all of it would take longer than the answer."""
FILES = ("vectors.f32", "table.bin", "paths.txt")
GRAPH = re.compile(r"(hnsw|ivfpq)-[0-9]{1,18}\.faiss")
"""Names of the files that `keep_graph` writes, and the only ones that it deletes."""


def is_index(folder: Path) -> bool:
    return (folder / "index.json").is_file()


def create(folder: Path, rows: Rows, made_by: dict) -> dict:
    """Write a new index; the folder is there when it is whole."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise LikewiseError(
            f"search: --save takes a new folder, got '{folder}', where something is already; to change an index give it as "
            "TARGET, with --add, --remove or --index"
        )
    aside = folder.absolute().with_name(f".{folder.name}.{os.getpid()}-{secrets.token_hex(3)}.part")
    try:
        aside.mkdir(parents=True)
        about = {
            "format": FORMAT, "version": 0, "similarity": rows.similarity, "dim": rows.vectors.shape[1], "rows": 0,
            "next": 0, "classes": [], "removed": [], "sizes": dict.fromkeys(FILES, 0), "sums": dict.fromkeys(FILES, 0),
            "made_by": made_by, "graph": None,
        }  # fmt: skip
        about = append(aside, about, rows.vectors, rows.table, rows.text, rows.class_name)
        if folder.exists():
            folder.rmdir()
        os.replace(aside, folder)
    except OSError as error:
        raise LikewiseError(
            f"search: --save must be a folder that can be written, got '{folder}' ({error.strerror})"
        ) from None
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return about


def append(folder: Path, about: dict, vectors, table, text, class_name: tuple[str, ...]) -> dict:
    """Write these rows after the others, and count them."""
    about = about | {"sizes": dict(about["sizes"]), "sums": dict(about["sums"]), "classes": list(class_name)}
    for name, new in zip(FILES, (vectors, table, text), strict=True):
        with (folder / name).open("r+b" if (folder / name).exists() else "wb") as file:
            file.truncate(about["sizes"][name])
            file.seek(0, os.SEEK_END)
            for part in np.array_split(np.ascontiguousarray(new), max(1, new.nbytes // 2**24)):
                body = part.tobytes()
                file.write(body)
                about["sums"][name] = zlib.crc32(body, about["sums"][name])
                about["sizes"][name] += len(body)
            file.flush()
            os.fsync(file.fileno())
    about["rows"] += len(table)
    about["next"] = max([about["next"], *(table["row"][-1:] + 1).tolist()])
    return settle(folder, about)


def settle(folder: Path, about: dict) -> dict:
    """Make a change count."""
    about = about | {"version": about["version"] + 1}
    write_json(folder / "index.json", about)
    return about


def keep_graph(folder: Path, about: dict, graph: dict | None, write) -> dict:
    """Put an approximate index in the place of the last one. `write(file)` writes it; `graph` is what is known of it."""
    last = about["graph"]
    if graph is not None:
        graph = graph | {"file": f"{graph['kind']}-{about['version'] + 1}.faiss"}
        with write_aside(folder / graph["file"]) as aside:
            write(aside)
            graph |= {"size": aside.stat().st_size, "sum": checksum(aside)}
    about = settle(folder, about | {"graph": graph})
    if last is not None:
        (folder / last["file"]).unlink(missing_ok=True)
    return about


def read(folder: Path, known: bool = False) -> tuple[Rows, dict]:
    """An index as it was left, or an error that says what is wrong with it. `known`: it was checked before."""
    about = read_about(folder)
    if known:
        about["sums"] = {}
    table = _map(folder, about, "table.bin", TABLE, (about["rows"],))
    here = np.isin(table["row"], np.asarray(about["removed"], np.int64), invert=True)
    rows = Rows(
        _map(folder, about, "vectors.f32", np.dtype("<f4"), (about["rows"], about["dim"])),
        table,
        _map(folder, about, "paths.txt", np.dtype("u1"), (about["sizes"]["paths.txt"],)),
        tuple(about["classes"]),
        here,
        about["similarity"],
    )
    if about["rows"] and not 0 <= table["label"].min() <= table["label"].max() < len(rows.class_name):
        raise _damaged(folder, "labels beyond its classes")
    return rows, about


def read_about(folder: Path) -> dict:
    """Return what index.json holds; every value is of the type and in the range that others rely on."""
    try:
        about = json.loads((folder / "index.json").read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise _damaged(folder, f"index.json: {error}") from None
    if not isinstance(about, dict) or "format" not in about:
        raise _damaged(folder, "index.json lacks what an index says of itself")
    if about["format"] != FORMAT:
        raise LikewiseError(
            f"search: the index '{folder}' must have format {FORMAT}, got {about['format']!r}; update likewise, or save it anew"
        )
    odd = [name for name, holds in _CHECKS.items() if name not in about or not holds(about[name])]
    if odd:
        raise _damaged(folder, f"index.json: {odd[0]} is missing or not what it must be")
    graph = about["graph"]
    if graph is not None and (graph["upto"] > about["rows"] or not graph["file"].startswith(f"{graph['kind']}-")):
        raise _damaged(folder, "index.json: graph is of other rows")
    return about


def _count(value) -> bool:
    """Whether a value is a whole number that fits in an int64."""
    return type(value) is int and 0 <= value < 2**62


def _counts(value) -> bool:
    return isinstance(value, dict) and all(_count(value.get(name)) for name in FILES)


def _graph(value) -> bool:
    if value is None:
        return True
    if not isinstance(value, dict) or not all(_count(value.get(name)) for name in ("size", "upto", "sum")):
        return False
    file, recall = value.get("file"), value.get("recall", 1.0)
    plain = isinstance(file, str) and GRAPH.fullmatch(file)  # it is read, and deleted: nothing outside of the folder
    return bool(plain) and value.get("kind") in ("hnsw", "ivfpq") and type(recall) in (int, float)


def _origin(value) -> bool:
    texts = ("run", "checkpoint", "similarity", "identity")
    return isinstance(value, dict) and all(isinstance(value.get(name, ""), str) for name in texts)


_CHECKS = {
    "version": _count,
    "similarity": lambda value: value in ("cosine", "euclidean"),
    "dim": _count,
    "rows": _count,
    "next": _count,
    "classes": lambda value: isinstance(value, list) and all(isinstance(name, str) for name in value),
    "removed": lambda value: isinstance(value, list) and all(map(_count, value)),
    "sizes": _counts,
    "sums": _counts,
    "made_by": _origin,
    "graph": _graph,
}
"""What must hold of every value of index.json."""


def checksum(file: Path) -> int:
    """Return the CRC-32 of a file, read a block at a time."""
    found = 0
    with file.open("rb") as body:
        while block := body.read(2**24):
            found = zlib.crc32(block, found)
    return found


def _map(folder: Path, about: dict, name: str, kind: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    file, size = folder / name, about["sizes"][name]
    there = file.stat().st_size if file.is_file() else -1
    if there < size or size != math.prod(shape) * kind.itemsize:
        raise _damaged(folder, f"{name} must have {size} bytes and has {max(there, 0)}")
    if not size:
        return np.empty(shape, kind)
    found = np.memmap(file, kind, "c", shape=shape)
    if size <= LARGE and about["sums"] and zlib.crc32(found.reshape(-1).view(np.uint8).data) != about["sums"][name]:
        raise _damaged(folder, f"the bytes of {name} are not those that were written")
    return np.asarray(found)


def _damaged(folder: Path, what: str) -> LikewiseError:
    return LikewiseError(
        f"search: the index '{folder}' is damaged or only half there ({what}); save it anew with --save"
    )


@contextmanager
def _writable(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise LikewiseError(
            f"search: the index '{folder}' cannot be written ({error.strerror}); what it held is still there"
        ) from None


@contextmanager
def changing(folder: Path, about: dict) -> Iterator[None]:
    """Be the only process that changes the folder, and know that nobody has since it was read."""
    with _writable(folder), file_lock(folder / "lock"):  # without flock (Windows), the version shows a change
        if read_about(folder)["version"] != about["version"]:
            raise LikewiseError(
                f"search: the index '{folder}' must not change under an open one, but another command changed it; open it again"
            )
        yield
