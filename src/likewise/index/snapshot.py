"""What an index holds, as it is at a moment. Whoever searches keeps the moment he began with; changes make a new one.

A place counts what was ever added, removed rows too; a row is the number people see, and it never changes or comes back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor

from likewise.errors import LikewiseError

TABLE = np.dtype([("row", "<i8"), ("label", "<i4"), ("box", "<f4", (4,)), ("path_end", "<i8")])
"""What is known of a row. Boxes as in `Items`; `path_end` is where its path ends in the text of all paths."""


@dataclass(frozen=True, eq=False)
class Rows:
    vectors: Float[np.ndarray, "N D"]  # may lie on disk
    table: np.ndarray  # TABLE, rows ascending
    text: UInt8[np.ndarray, "T"]  # the paths, one after another
    class_name: tuple[str, ...]
    here: Bool[np.ndarray, "N"]  # not removed
    similarity: str

    def __len__(self) -> int:
        return int(self.here.sum())

    @property
    def z(self) -> Float[Tensor, "N D"]:
        return torch.from_numpy(self.vectors)

    @cached_property
    def length(self) -> Float[Tensor, "N"]:
        """Of the vectors, for distances."""
        return torch.cat([part.norm(dim=1) for part in self.z.split(2**16)])

    def places(self, rows: Sequence[int]) -> Int[np.ndarray, "n"]:
        """Where these rows are; an error names the first that is not here."""
        known, asked = self.table["row"], np.asarray([min(max(row, -1), 2**62) for row in rows], np.int64)
        place = np.searchsorted(known, asked).clip(0, len(known) - 1)
        missing = [row for row, ok in zip(rows, (known[place] == asked) & self.here[place], strict=True) if not ok]
        if missing:
            raise LikewiseError(f"search: row {missing[0]} is wanted, but {self.rows_near(missing[0])}")
        return place

    def rows_near(self, row: int) -> str:
        """Which rows there are, in words, with some to choose from."""
        own = self.table["row"][self.here]
        if not len(own):
            return "the target is empty"
        first = int(np.searchsorted(own, min(max(row, -1), 2**62)).clip(2, max(2, len(own) - 1))) - 2
        near = ", ".join(map(str, own[first : first + 3]))
        return f"the target's {len(own)} rows lie in {own[0]} to {own[-1]}; take one of them, such as {near}"

    def path(self, place: int) -> str:
        """The picture's file, seen from the index's folder; empty where there is none."""
        end = self.table["path_end"]
        return bytes(self.text[end[place - 1] if place else 0 : end[place]]).decode("utf-8", "surrogateescape")

    def box(self, place: int) -> tuple[float, ...] | None:
        corners = self.table["box"][place]
        return None if np.isnan(corners).any() else tuple(corners.tolist())

    def label(self, place: int) -> str:
        return self.class_name[self.table["label"][place]]


def pack(
    row: Int[np.ndarray, "n"],
    label: Int[np.ndarray, "n"],
    path: list[str],
    box: Float[np.ndarray, "n 4"] | None = None,
    after: int = 0,
) -> tuple[np.ndarray, UInt8[np.ndarray, "T"]]:
    """Rows as records and the text of their paths, which follows `after` bytes of others."""
    coded = [one.encode("utf-8", "surrogateescape") for one in path]
    table = np.empty(len(row), TABLE)
    table["row"], table["label"], table["box"] = row, label, np.nan if box is None else box
    table["path_end"] = after + np.cumsum([len(one) for one in coded])
    return table, np.frombuffer(b"".join(coded), np.uint8)


def fitting(vectors: Float[np.ndarray, "n D"], similarity: str) -> Float[np.ndarray, "n D"]:
    """Vectors as an index holds them: for cosines of unit length. Those that are already are left as they are."""
    if not np.isfinite(vectors).all():
        bad = np.flatnonzero(~np.isfinite(vectors).all(1))
        raise LikewiseError(
            f"search: embeddings must be finite, got NaN or infinity in {len(bad)} rows (first: place {bad[0]}); leave them out"
        )
    if similarity == "euclidean":
        return vectors
    length = np.sqrt(np.einsum("nd,nd->n", vectors, vectors, dtype=np.float64))[:, None]  # squares may leave float32
    if len(nowhere := np.flatnonzero(length == 0)):
        raise LikewiseError(
            f"search: an embedding must not be all zeros to have a cosine, but {len(nowhere)} of {len(vectors)} are "
            f"(first: place {nowhere[0]}); leave them out"
        )
    return np.where(np.abs(length - 1) < 1e-5, vectors, vectors / length).astype(np.float32)
