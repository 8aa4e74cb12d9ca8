"""Content of samples: exact copies (the same file content and box, pixels, or feature vector), and keys to find it elsewhere."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from jaxtyping import Bool, Int, UInt8
from PIL import Image

from likewise.core.image_files import open_image
from likewise.core.types import Items, LikewiseError
from likewise.data.images import file_of, image_of

HASH_THREADS = 8
"""Threads that read files."""
FILES_PER_BLOCK = 64
"""Number of rows that a thread reads per task."""
TAIL_BYTES = 4096
"""Bytes at the end of a file that are compared first: different images of the same size nearly always differ there."""

KEY_BYTES = 16
"""Length of a key."""

BLOCK_BYTES = 4096
"""Length of the three blocks of a file (first, middle and last) that a key covers, beside its size."""

KeyOfRow = Callable[[int], Hashable]


def exact_copies(items: Items, rows: Int[np.ndarray, "n"], pixels: bool = False) -> Int[np.ndarray, "n"]:
    """Return a cluster number for every row: exact copies have the same number, other rows have a number of their own.

    Copies have the same bytes in their files and the same box, or the same feature vector. Different boxes of one file are no
    copies; boxes that cut out the same pixels are the same box. A file that cannot be read has no copies. Clusters are
    numbered in the order of their first rows.

    Args:
        rows: rows of the data set.
        pixels: decode every image, and compare pixels instead of bytes: the same image may be stored in two formats.
    """
    rows = np.asarray(rows, np.int64)
    if (x := items.x) is not None:
        # -0.0 + 0.0 = 0.0
        return clusters_of([hashlib.blake2b((x[row] + 0.0).tobytes()).digest() for row in rows.tolist()])
    if items.path is None:
        return np.arange(len(rows))
    file = file_clusters(items, rows)
    box = [whole_or_box(items, row) for row in rows.tolist()]
    if not pixels:
        return clusters_of(list(zip(file.tolist(), box, strict=True)))
    return pixel_clusters(map_rows(lambda row: read_digest(items, row), rows.tolist()), file, box)


def pixel_clusters(
    digest: Sequence[bytes], file: Int[np.ndarray, "n"], box: Sequence[Hashable]
) -> Int[np.ndarray, "n"]:
    """Return cluster numbers of rows with equal pixels.

    An empty digest has no copies. Two boxes of one file are no copies, even if both show the same plain ground: where a cluster
    has such rows, only rows of the same file and box stay together.

    Args:
        digest: `pixel_digest` of every row.
        file: cluster number of every row's file.
        box: the part of the file that the row shows.
    """
    places = list(zip(file.tolist(), box, strict=True))
    boxes_of: dict[tuple[bytes, int], set] = {}
    for one, place in zip(digest, places, strict=True):
        boxes_of.setdefault((one, place[0]), set()).add(place)
    parted = {one for (one, _), boxes in boxes_of.items() if len(boxes) > 1}
    return clusters_of(
        [
            ("", row) if not one else (one, place) if one in parted else one
            for row, (one, place) in enumerate(zip(digest, places, strict=True))
        ]
    )


def file_clusters(items: Items, rows: Int[np.ndarray, "n"]) -> Int[np.ndarray, "n"]:
    """Return a cluster number for every row: rows whose files have the same content share it, whatever their boxes."""

    def read_or_alone(read: KeyOfRow) -> KeyOfRow:
        def key(row: int) -> Hashable:
            try:
                return read(row)
            except OSError:
                return ("unread", row)

        return key

    keys: list[KeyOfRow] = [lambda row, read=read: read(file_of(items, row)) for read in (size_of, tail_of, hash_of)]
    rows = np.asarray(rows, np.int64)
    known = dict(
        zip(np.unique(rows).tolist(), staged_keys(np.unique(rows).tolist(), [read_or_alone(key) for key in keys]))
    )
    return clusters_of([known[row] for row in rows.tolist()])


def staged_keys(
    rows: list[int],
    keys_of_row: Sequence[KeyOfRow],
    may_match: Callable[[dict[int, tuple]], set] | None = None,
    progress: Callable[[float], None] | None = None,
) -> list[tuple]:
    """Return a key for every row; rows with equal content under all key functions have equal keys.

    Only rows that may still match reach the next key function, so the expensive ones come last.

    Args:
        may_match: returns the keys that may still match, from the keys so far; None: keys of two rows or more.
        progress: called with the fraction of the work that is done.
    """
    key: dict[int, tuple] = dict.fromkeys(rows, ())
    open_rows = rows
    for number, key_of_row in enumerate(keys_of_row):
        reached = None if progress is None else lambda share, n=number: progress((n + share) / len(keys_of_row))
        for row, value in zip(open_rows, map_rows(key_of_row, open_rows, reached), strict=True):
            key[row] = (*key[row], value)
        known = {row: key[row] for row in open_rows}
        count = Counter(known.values())
        alive = {one for one in count if count[one] > 1} if may_match is None else may_match(known)
        open_rows = [row for row in open_rows if key[row] in alive]
    if progress is not None:
        progress(1.0)
    return [key[row] for row in rows]


def map_rows(
    work: Callable[[int], Hashable], rows: Sequence[int], progress: Callable[[float], None] | None = None
) -> list:
    """Return `work(row)` for every row, computed in threads, block by block."""
    blocks, found = [rows[at : at + FILES_PER_BLOCK] for at in range(0, len(rows), FILES_PER_BLOCK)], []
    with ThreadPoolExecutor(HASH_THREADS) as pool:
        for done, values in enumerate(pool.map(lambda block: [work(row) for row in block], blocks), 1):
            found += values
            if progress is not None:
                progress(done / len(blocks))
    return found


def clusters_of(keys: Sequence[Hashable]) -> Int[np.ndarray, "n"]:
    """Return the number of each key, in the order of first occurrence."""
    number: dict[Hashable, int] = {}
    return np.array([number.setdefault(key, len(number)) for key in keys], np.int64)


def pixel_digest(image: Image.Image) -> bytes:
    """Return a digest of the pixels of an image."""
    return hashlib.blake2b(f"{image.mode}{image.size}".encode() + image.tobytes(), digest_size=16).digest()


def read_digest(items: Items, row: int) -> bytes:
    """Return the digest of a row's pixels; empty if its image cannot be read."""
    try:
        return pixel_digest(image_of(items, row))
    except (LikewiseError, OSError):
        return b""


def whole_or_box(items: Items, row: int) -> tuple[int, ...] | None:
    """Return the pixels that a row's box cuts out, as (left, top, right, bottom); None: the whole image."""
    if items.box is None or np.isnan(items.box[row]).any():
        return None
    left, top, right, bottom = items.box[row]
    corners = (max(0, int(left)), max(0, int(top)), int(np.ceil(right)), int(np.ceil(bottom)))
    if corners[:2] == (0, 0) and all(
        far >= side for far, side in zip(sorted(corners[2:]), sorted(size_in_header(items, row)))
    ):
        return None  # sorted: the header has the size before a rotation by the EXIF tag
    return corners


def size_in_header(items: Items, row: int) -> tuple[int, ...]:
    """Return the size of a row's image file in pixels, without decoding it; a size that no box has if it cannot be read."""
    try:
        with open_image(file_of(items, row)) as image:
            return image.size
    except Exception:  # Pillow raises many kinds for a damaged file
        return (2**31, 2**31)


def size_of(file: str) -> int:
    return os.stat(file).st_size


def tail_of(file: str) -> bytes:
    with open(file, "rb", buffering=0) as content:
        content.seek(max(0, os.fstat(content.fileno()).st_size - TAIL_BYTES))
        return hashlib.blake2b(content.read(TAIL_BYTES)).digest()


def hash_of(file: str) -> bytes:
    with open(file, "rb") as content:
        return hashlib.file_digest(content, "blake2b").digest()


def content_keys(items: Items, rows: Int[np.ndarray, "n"]) -> UInt8[np.ndarray, "n 16"]:
    """Return a key of every row that depends on its content alone, not on its path, its label or its data set.

    Rows with the same file content and box, or the same feature vector, have the same key. Files of one size that differ only
    outside of three blocks have the same key too, which no two photographs do.
    """
    found = b"".join(map_rows(lambda row: content_key(items, row), np.asarray(rows).tolist()))
    return np.frombuffer(found, np.uint8).reshape(len(rows), KEY_BYTES)


def content_key(items: Items, row: int) -> bytes:
    """Return the key of one row."""
    digest = hashlib.blake2b(digest_size=KEY_BYTES)
    if items.x is not None:
        digest.update(np.ascontiguousarray(items.x[row] + 0.0, "<f4").tobytes())  # -0.0 + 0.0 = 0.0
        return digest.digest()
    if items.path is None:
        raise LikewiseError(f"content_keys: '{items.name}' must have images or features, got a table of labels alone")
    try:
        digest.update(read_blocks(file_of(items, row)))
    except OSError as error:
        raise LikewiseError(
            f"content_keys: {error.filename or file_of(items, row)} cannot be read ({error.strerror}); check root and the paths"
        ) from None
    digest.update(repr(whole_or_box(items, row)).encode())
    return digest.digest()


def read_blocks(file: str) -> bytes:
    """Return the size of a file with its first, middle and last bytes."""
    with open(file, "rb", buffering=0) as content:
        size = os.fstat(content.fileno()).st_size
        found = size.to_bytes(8, "little")
        for start in sorted({0, max(0, size // 2 - BLOCK_BYTES // 2), max(0, size - BLOCK_BYTES)}):
            content.seek(start)
            found += content.read(BLOCK_BYTES)
    return found


def is_known(key: UInt8[np.ndarray, "n 16"], known: UInt8[np.ndarray, "m 16"]) -> Bool[np.ndarray, "n"]:
    """Return for every key whether it is among the known ones."""
    every = {one.tobytes() for one in known}
    return np.fromiter((one.tobytes() in every for one in key), bool, len(key))
