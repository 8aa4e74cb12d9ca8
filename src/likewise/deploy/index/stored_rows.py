"""The rows of an index: an immutable snapshot in memory, and the files of a saved index.

A change creates a new snapshot, and a running search keeps its own. A place is a position among all rows ever added, removed
rows included. A row is the number that users see; it never changes and is never used again.

New rows are appended to the files and never moved; index.json holds the number of valid bytes of every file.

    index.json     number of rows, classes, removed rows, origin of the vectors, checksums; always written last
    vectors.f32    the vectors, float32, memory-mapped
    table.bin      one record per row (`ROW_DTYPE`)
    paths.txt      the paths of all rows, concatenated
    NAME.faiss     the approximate index, if there is one
    `pictures/`    images that users added on the web page
    lock           locked while the index is changed

A crash while appending leaves bytes beyond the sizes in index.json; the next change overwrites them.
"""

from __future__ import annotations

import json
import math
import os
import re
import secrets
import shutil
import zlib
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor

from likewise.core.errors import LikewiseError
from likewise.core.files import atomic_write, crc32_of, no_link, write_json
from likewise.core.locks import file_lock
from likewise.data.images import folders_of_paths

ROW_DTYPE = np.dtype([("row", "<i8"), ("label", "<i4"), ("box", "<f4", (4,)), ("path_end", "<i8")])
"""Record of a row. `box` as in `Items`; `path_end`: offset in bytes of the end of its path in the concatenated paths."""


@dataclass(frozen=True, eq=False)
class Rows:
    """Vectors, labels, boxes and paths of an index at one moment."""

    vectors: Float[np.ndarray, "N D"]  # may be memory-mapped
    table: np.ndarray  # ROW_DTYPE, rows ascending
    text: UInt8[np.ndarray, "T"]  # the concatenated paths
    class_name: tuple[str, ...]
    here: Bool[np.ndarray, "N"]  # False: removed
    similarity: str
    labels: tuple[tuple[str, ...], ...] | None = None  # labels of every class, if rows have several labels each

    def __len__(self) -> int:
        return int(self.here.sum())

    @property
    def z(self) -> Float[Tensor, "N D"]:
        return torch.from_numpy(self.vectors)

    @cached_property
    def length(self) -> Float[Tensor, "N"]:
        """Euclidean norms of the vectors."""
        return torch.cat([chunk.norm(dim=1) for chunk in self.z.split(2**16)])

    def places(self, rows: Sequence[int]) -> Int[np.ndarray, "n"]:
        """Return the places of these rows; raise an error that names the first missing or removed row."""
        known, wanted = self.table["row"], np.asarray([min(max(row, -1), 2**62) for row in rows], np.int64)
        place = find_sorted(known, wanted).clip(0, len(known) - 1)
        missing = [row for row, ok in zip(rows, (known[place] == wanted) & self.here[place], strict=True) if not ok]
        if missing:
            raise LikewiseError(
                f"search: the row must be in the target, got {missing[0]}, but {self.rows_near(missing[0])}"
            )
        return place

    def rows_near(self, row: int) -> str:
        """Return a text for an error: the range of rows, and three existing rows near `row`."""
        own = self.table["row"][self.here]
        if not len(own):
            return "the target is empty"
        first = int(np.searchsorted(own, min(max(row, -1), 2**62)).clip(2, max(2, len(own) - 1))) - 2
        near = ", ".join(map(str, own[first : first + 3]))
        return f"the target has {len(own)} rows in {own[0]} to {own[-1]}; choose one of them, such as {near}"

    def path(self, place: int) -> str:
        """Return the path of a row's image, relative to the folder of the index; empty if the row has no image."""
        end = self.table["path_end"]
        return bytes(self.text[end[place - 1] if place else 0 : end[place]]).decode("utf-8", "surrogateescape")

    def box(self, place: int) -> tuple[float, ...] | None:
        """Return the box of a row; None if it has none."""
        corners = self.table["box"][place]
        return None if np.isnan(corners).any() else tuple(corners.tolist())

    def folders(self) -> list[tuple[str, int, int]]:
        """Return every folder of image files, the number of its files, and the place of the first."""
        return folders_of_paths(self.text, np.append(0, self.table["path_end"]))

    @cached_property
    def used_classes(self) -> Int[np.ndarray, "C"]:
        """The numbers of the classes that have a row, ascending."""
        return np.flatnonzero(np.bincount(self.table["label"][self.here]))

    def label(self, place: int) -> str:
        """Return the class name of a row."""
        return self.class_name[self.table["label"][place]]

    @cached_property
    def label_names(self) -> tuple[str, ...]:
        """Return all labels, sorted: the single labels, or the class names if rows have one label each."""
        return tuple(sorted(self.class_name if self.labels is None else {name for own in self.labels for name in own}))

    @cached_property
    def label_numbers(self) -> tuple[tuple[int, ...], ...]:
        """Return the labels of every class as numbers of `label_names`, ascending."""
        number = {name: place for place, name in enumerate(self.label_names)}
        sets = ((name,) for name in self.class_name) if self.labels is None else self.labels
        return tuple(tuple(sorted(number[name] for name in own)) for own in sets)

    def labels_of(self, place: int) -> tuple[str, ...]:
        """Return the labels of a row; its class name if rows have one label each."""
        return tuple(self.label_names[number] for number in self.label_numbers[self.table["label"][place]])


def find_sorted(values: Int[np.ndarray, "N"], wanted: Int[np.ndarray, "n"]) -> Int[np.ndarray, "n"]:
    """Return what `np.searchsorted` returns, reading only the compared values; numpy copies all values of a field of records."""
    low, high = np.zeros(len(wanted), np.int64), np.full(len(wanted), len(values), np.int64)
    while (is_open := low < high).any():
        middle = np.where(is_open, (low + high) // 2, 0)
        is_below = values[middle] < wanted
        low, high = np.where(is_open & is_below, middle + 1, low), np.where(is_open & ~is_below, middle, high)
    return low


def shared_share(ours: Collection[str], theirs: Collection[str]) -> float:
    """Return the relevance of two rows: the number of labels in common, divided by the number of all of their labels."""
    return len(set(ours) & set(theirs)) / max(1, len(set(ours) | set(theirs)))


def describe_labels(rows: Rows, place: int, query: int | None) -> dict:
    """Return the labels of a row and its relevance to a query row, if rows have several labels each; otherwise nothing."""
    if rows.labels is None:
        return {}
    own = rows.labels_of(place)
    known = {} if query is None else {"relevance": shared_share(own, rows.labels_of(query))}
    return {"labels": list(own), **known}


def untrained_places(rows: Rows, trained: Collection[str]) -> Int[np.ndarray, "n"]:
    """Return the places of the rows whose class did not train; all rows unless there are two such classes or more."""
    here, names = np.flatnonzero(rows.here), set(trained)
    label = rows.table["label"][here]
    unseen = here[~np.isin(label, [number for number, name in enumerate(rows.class_name) if name in names])]
    several = len(unseen) and (rows.table["label"][unseen] != rows.table["label"][unseen[0]]).any()
    return unseen if several else here


def pack(
    row: Int[np.ndarray, "n"],
    label: Int[np.ndarray, "n"],
    path: list[str],
    box: Float[np.ndarray, "n 4"] | None = None,
    after: int = 0,
) -> tuple[np.ndarray, UInt8[np.ndarray, "T"]]:
    """Return rows as records and their concatenated paths. `after`: bytes of paths that are already stored before them."""
    encoded = [name.encode("utf-8", "surrogateescape") for name in path]
    table = np.empty(len(row), ROW_DTYPE)
    table["row"], table["label"], table["box"] = row, label, np.nan if box is None else box
    table["path_end"] = after + np.cumsum([len(name) for name in encoded])
    return table, np.frombuffer(b"".join(encoded), np.uint8)


def prepare_vectors(vectors: Float[np.ndarray, "n D"], similarity: str) -> Float[np.ndarray, "n D"]:
    """Return vectors as an index stores them: for cosine scaled to unit length, unless they already have it."""
    if not np.isfinite(vectors).all():
        bad = np.flatnonzero(~np.isfinite(vectors).all(1))
        raise LikewiseError(
            f"search: embeddings must be finite, got NaN or infinity in {len(bad)} rows (first: place {bad[0]}); remove them"
        )
    if similarity == "euclidean":
        return vectors
    length = np.sqrt(np.einsum("nd,nd->n", vectors, vectors, dtype=np.float64))[:, None]  # squares may overflow float32
    if len(zero := np.flatnonzero(length == 0)):
        raise LikewiseError(
            f"search: an embedding must not be all zeros to have a cosine, but {len(zero)} of {len(vectors)} are "
            f"(first: place {zero[0]}); remove these rows"
        )
    return np.where(np.abs(length - 1) < 1e-5, vectors, vectors / length).astype(np.float32)


FORMAT = 1
"""Version of the file format; change it when index.json or a file changes in an incompatible way."""
LABELS_FORMAT = 2
"""Version of an index whose rows have several labels: index.json also has `labels`, those of every class."""
MAX_CHECKSUM_BYTES = 256 * 2**20
"""Above this size only the length of a file is checked: reading the whole file would take longer than the search."""
DATA_FILES = ("vectors.f32", "table.bin", "paths.txt")
"""The files that rows are appended to, in the order vectors, table, paths."""
GRAPH_FILE_PATTERN = re.compile(r"(hnsw|ivfpq)-[0-9]{1,18}\.faiss")
"""Names of the files that `save_graph` writes; it deletes no others."""


def is_index(folder: Path) -> bool:
    """Whether a folder holds a saved index."""
    return (folder / "index.json").is_file()


def create(folder: Path, rows: Rows, made_by: dict) -> dict:
    """Write a new index and return the content of index.json. The folder appears only once it is complete."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise LikewiseError(
            f"search: --save must be a new or empty folder, got '{folder}', which exists; to change an index, give it as "
            "TARGET with --add, --remove or --index"
        )
    aside = folder.absolute().with_name(f".{folder.name}.{os.getpid()}-{secrets.token_hex(3)}.part")
    try:
        aside.mkdir(parents=True)
        about = {
            "format": FORMAT, "version": 0, "similarity": rows.similarity, "dim": rows.vectors.shape[1], "rows": 0,
            "next": 0, "classes": [], "removed": [], "sizes": dict.fromkeys(DATA_FILES, 0), "sums": dict.fromkeys(DATA_FILES, 0),
            "made_by": made_by, "graph": None,
        }  # fmt: skip
        about = append(aside, about, rows.vectors, rows.table, rows.text, rows.class_name, rows.labels)
        if folder.exists():
            folder.rmdir()
        os.replace(aside, folder)
    except OSError as error:
        raise LikewiseError(f"search: --save must be a writable folder, got '{folder}' ({error.strerror})") from None
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return about


def append(folder: Path, about: dict, vectors, table, text, class_name: tuple[str, ...], labels=None) -> dict:
    """Append rows to the data files and return the new content of index.json. `labels`: those of every class, or None."""
    about = about | {"sizes": dict(about["sizes"]), "sums": dict(about["sums"]), "classes": list(class_name)}
    if labels is not None:
        about |= {"format": LABELS_FORMAT, "labels": [list(own) for own in labels]}
    for name, new in zip(DATA_FILES, (vectors, table, text), strict=True):
        with open(folder / name, "r+b" if (folder / name).exists() else "wb", opener=no_link) as file:
            file.truncate(about["sizes"][name])
            file.seek(0, os.SEEK_END)
            for chunk in np.array_split(np.ascontiguousarray(new), max(1, new.nbytes // 2**24)):
                body = chunk.tobytes()
                file.write(body)
                about["sums"][name] = zlib.crc32(body, about["sums"][name])
                about["sizes"][name] += len(body)
            file.flush()
            os.fsync(file.fileno())
    about["rows"] += len(table)
    about["next"] = max([about["next"], *(table["row"][-1:] + 1).tolist()])
    return write_about(folder, about)


def write_about(folder: Path, about: dict) -> dict:
    """Write index.json with the next version number, which makes a change valid, and return it."""
    about = about | {"version": about["version"] + 1}
    write_json(folder / "index.json", about)
    return about


def save_graph(folder: Path, about: dict, graph: dict | None, write) -> dict:
    """Replace the approximate index of a folder. `write(file)` writes it; `graph`: its entry in index.json; None: delete it."""
    last = about["graph"]
    if graph is not None:
        graph = graph | {"file": f"{graph['kind']}-{about['version'] + 1}.faiss"}
        with atomic_write(folder / graph["file"]) as aside:
            write(aside)
            graph |= {"size": aside.stat().st_size, "sum": crc32_of(aside)}
    about = write_about(folder, about | {"graph": graph})
    if last is not None:
        (folder / last["file"]).unlink(missing_ok=True)
    return about


def read(folder: Path, checked: bool = True) -> tuple[Rows, dict]:
    """Return the rows of a saved index and the content of index.json; raise if a file is missing, too short or damaged.

    Args:
        checked: whether to check the content of the files, too; without, no file is read as a whole.
    """
    about = read_about(folder)
    table = _map(folder, about, "table.bin", ROW_DTYPE, (about["rows"],))
    here, removed = np.ones(about["rows"], bool), np.asarray(about["removed"], np.int64)
    if len(removed) and len(table):
        place = find_sorted(table["row"], removed).clip(max=len(table) - 1)
        here[place[table["row"][place] == removed]] = False
    rows = Rows(
        _map(folder, about, "vectors.f32", np.dtype("<f4"), (about["rows"], about["dim"])),
        table,
        _map(folder, about, "paths.txt", np.dtype("u1"), (about["sizes"]["paths.txt"],)),
        tuple(about["classes"]),
        here,
        about["similarity"],
        tuple(map(tuple, about["labels"])) if about["format"] == LABELS_FORMAT else None,
    )
    if checked:
        check_content(folder, about, rows)
    return rows, about


def check_content(folder: Path, about: dict, rows: Rows, sizes: range | None = None) -> None:
    """Raise unless the labels of an index are classes and its files of these sizes have the checksums of index.json.

    Args:
        sizes: numbers of bytes; None: up to MAX_CHECKSUM_BYTES.
    """
    sizes = range(MAX_CHECKSUM_BYTES + 1) if sizes is None else sizes
    for name, array in zip(DATA_FILES, (rows.vectors, rows.table, rows.text), strict=True):
        if array.nbytes in sizes and checksum_of_array(array) != about["sums"][name]:
            raise _damaged(folder, f"the checksum of {name} does not match")
    label = rows.table["label"]
    if len(label) and not 0 <= label.min() <= label.max() < len(rows.class_name):
        raise _damaged(folder, "table.bin has labels beyond the classes")


def read_about(folder: Path) -> dict:
    """Return the content of index.json; raise unless every value has the expected type and range."""
    try:
        about = json.loads((folder / "index.json").read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise _damaged(folder, f"index.json: {error}") from None
    if not isinstance(about, dict) or "format" not in about:
        raise _damaged(folder, "index.json must be an object with the key format")
    if about["format"] not in (FORMAT, LABELS_FORMAT):
        raise LikewiseError(
            f"search: the index '{folder}' must have format {FORMAT} or {LABELS_FORMAT}, got {about['format']!r}; update "
            "likewise, or save it again"
        )
    invalid = [name for name, is_valid in _FIELD_CHECKS.items() if name not in about or not is_valid(about[name])]
    if not invalid and about["format"] == LABELS_FORMAT and not _labels(about.get("labels"), len(about["classes"])):
        invalid = ["labels"]
    if invalid:
        raise _damaged(folder, f"index.json: {invalid[0]} is missing or invalid")
    graph = about["graph"]
    if graph is not None and (graph["upto"] > about["rows"] or not graph["file"].startswith(f"{graph['kind']}-")):
        raise _damaged(folder, "index.json: graph belongs to other rows")
    return about


def _count(value) -> bool:
    """Whether a value is a whole number that fits in an int64."""
    return type(value) is int and 0 <= value < 2**62


def _counts(value) -> bool:
    return isinstance(value, dict) and all(_count(value.get(name)) for name in DATA_FILES)


def _labels(value, classes: int) -> bool:
    """Whether a value has at least one label for each of the classes."""
    if not isinstance(value, list) or len(value) != classes:
        return False
    return all(isinstance(own, list) and own and all(isinstance(name, str) for name in own) for own in value)


def _graph(value) -> bool:
    if value is None:
        return True
    if not isinstance(value, dict) or not all(_count(value.get(name)) for name in ("size", "upto", "sum")):
        return False
    file, recall = value.get("file"), value.get("recall", 1.0)
    plain = isinstance(file, str) and GRAPH_FILE_PATTERN.fullmatch(file)  # no path outside the folder
    return bool(plain) and value.get("kind") in ("hnsw", "ivfpq") and type(recall) in (int, float)


def _origin(value) -> bool:
    texts = ("run", "checkpoint", "similarity", "identity")
    if not isinstance(value, dict) or not isinstance(value.get("trained", []), list):
        return False
    return all(isinstance(value.get(name, ""), str) for name in texts)


_FIELD_CHECKS = {
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
"""Key of index.json -> function that checks its value."""


def checksum_of_array(array: np.ndarray) -> int:
    """Return the CRC-32 of the bytes of an array, computed in blocks: a thread must let others work."""
    crc, body = 0, array.reshape(-1).view(np.uint8)
    for first in range(0, len(body), 2**24):
        crc = zlib.crc32(body[first : first + 2**24].data, crc)
    return crc


def _map(folder: Path, about: dict, name: str, kind: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    """Return a data file as a memory-mapped array; raise if its size is wrong."""
    file, size = folder / name, about["sizes"][name]
    size_on_disk = file.stat().st_size if file.is_file() else -1
    if size_on_disk < size or size != math.prod(shape) * kind.itemsize:
        raise _damaged(folder, f"{name} must have {size} bytes and has {max(size_on_disk, 0)}")
    if not size:
        return np.empty(shape, kind)
    return np.asarray(np.memmap(file, kind, "c", shape=shape))


def _damaged(folder: Path, problem: str) -> LikewiseError:
    return LikewiseError(
        f"search: the index '{folder}' is damaged or incomplete ({problem}); save it again with --save"
    )


@contextmanager
def _writable(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise LikewiseError(
            f"search: the index '{folder}' cannot be written ({error.strerror}); its previous content is unchanged"
        ) from None


@contextmanager
def changing(folder: Path, about: dict) -> Iterator[None]:
    """Lock the folder for a change, and raise if another process changed it since `about` was read."""
    with _writable(folder), file_lock(folder / "lock"):  # without flock (Windows), only the version shows a change
        if read_about(folder)["version"] != about["version"]:
            raise LikewiseError(
                f"search: the index '{folder}' must not change while it is open, but another command changed it; open it again"
            )
        yield
