"""Keys of the content of samples: equal for equal files and boxes, or for equal feature vectors, in any data set."""

from __future__ import annotations

import hashlib
import os

import numpy as np
from jaxtyping import Bool, Int, UInt8

from likewise.core.types import Items, LikewiseError
from likewise.data.copies import map_rows, whole_or_box
from likewise.data.images import file_of

KEY_BYTES = 16
"""Length of a key."""

BLOCK_BYTES = 4096
"""Length of the three blocks of a file (first, middle and last) that a key covers, beside its size."""


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
