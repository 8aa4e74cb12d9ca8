"""The rows of an index as an immutable snapshot: a change creates a new snapshot, and a running search keeps its own.

A place is a position among all rows ever added, removed rows included. A row is the number that users see; it never changes
and is never used again.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor

from likewise.core.errors import LikewiseError

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
        place = np.searchsorted(known, wanted).clip(0, len(known) - 1)
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
    return unseen if len(np.unique(rows.table["label"][unseen])) > 1 else here


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
