"""Approximate indexes of faiss: they propose candidate places, which `Index` ranks exactly. Parameters depend on the size."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

from likewise.core.errors import LikewiseError
from likewise.core.files import first_line
from likewise.core.progress import bar
from likewise.deploy.index.snapshot import Rows
from likewise.deploy.index.storage import checksum

MIN_IVFPQ_ROWS = 1000
"""Fewest rows from which ivfpq can learn its codes."""
ADD_BLOCK_ROWS = 2**15
"""Rows added to faiss at a time."""


class BadGraph(LikewiseError):
    """The file of an approximate index is missing or damaged."""


def import_faiss(kind: str):
    """Import faiss, or raise an error that names the option `--index kind`."""
    try:
        import faiss
    except ImportError as error:
        raise LikewiseError(f"search: --index {kind} needs faiss ({error}); pip install 'likewise[faiss]'") from None
    return faiss


class Approximate:
    """A faiss index over the places below `upto`; the caller compares vectors that were added later."""

    def __init__(self, kind: str, inner, upto: int):
        self.kind, self.inner, self.upto = kind, inner, upto

    @classmethod
    def build(cls, kind: str, rows: Rows, quiet: bool = True) -> Approximate:
        """Build a faiss index over all rows that were not removed."""
        faiss, dim, places = import_faiss(kind), rows.vectors.shape[1], np.flatnonzero(rows.here)
        if kind == "ivfpq":
            inner = ivfpq(faiss, dim, len(places))
            sample = np.random.default_rng(0).permutation(places)[: max(2**16, 40 * lists_of(len(places)))]
            inner.train(rows.vectors[np.sort(sample)])
        else:
            links = 32 if len(places) < 2 * 10**6 else 24
            half = rows.similarity == "cosine"  # vectors of any length may overflow float16
            inner = (
                faiss.IndexHNSWSQ(dim, faiss.ScalarQuantizer.QT_fp16, links)
                if half
                else faiss.IndexHNSWFlat(dim, links)
            )
            inner.hnsw.efConstruction, inner.hnsw.efSearch = 80, 96
            if half:
                inner.train(rows.vectors[:1])  # faiss requires the call; float16 needs no training
        made = cls(kind, faiss.IndexIDMap(inner), 0)
        made.extend(rows, quiet)
        return made

    def extend(self, rows: Rows, quiet: bool = True) -> None:
        """Add the rows from number `upto` on, which are not yet in the faiss index; deleted rows are skipped."""
        places = self.upto + np.flatnonzero(rows.here[self.upto :])
        with bar(self.kind, len(places), quiet=quiet) as progress:
            for first in range(0, len(places), ADD_BLOCK_ROWS):
                block = places[first : first + ADD_BLOCK_ROWS]
                self.inner.add_with_ids(rows.vectors[block], block)
                progress.advance(len(block))
        self.upto = len(rows.vectors)

    def propose(self, z: Float[np.ndarray, "D"], k: int) -> Int[np.ndarray, "n"]:
        """Return candidate places for the k nearest rows: k for hnsw, more for ivfpq, whose distances are coarse."""
        count = k if self.kind == "hnsw" else 16 * k + 64
        places = self.inner.search(z[None], min(count, self.inner.ntotal))[1][0]
        return places[places >= 0]

    def write(self, file: Path) -> None:
        """Write the faiss index to a file."""
        import_faiss(self.kind).write_index(self.inner, str(file))

    @classmethod
    def read(cls, file: Path, about: dict, dim: int) -> Approximate:
        """Read a file of `write`. faiss does not validate its files, so size and checksum are compared first."""
        faiss = import_faiss(about["kind"])
        try:
            if file.stat().st_size != about["size"]:
                raise RuntimeError(f"it must have {about['size']} bytes and has {file.stat().st_size}")
            if checksum(file) != about["sum"]:
                raise RuntimeError("its checksum does not match")
            inner = faiss.read_index(str(file))
            places = faiss.vector_to_array(inner.id_map)  # pyright: ignore[reportAttributeAccessIssue]
            if inner.d != dim or not ((places >= 0) & (places < about["upto"])).all():
                raise RuntimeError("it belongs to other vectors")
            return cls(about["kind"], inner, about["upto"])
        except (
            OSError,
            RuntimeError,
            AttributeError,
            MemoryError,
        ) as error:  # AttributeError: an index of another type
            reason = first_line(error)
            raise BadGraph(
                f"search: {file} is damaged ({reason}); build it again with --index {about['kind']} on the saved index"
            ) from None


def lists_of(rows: int) -> int:
    """Return the number of inverted lists: a few hundred rows per list, and at least 40 rows to train each centroid."""
    return max(1, min(int(4 * math.sqrt(rows)), rows // 40))


def ivfpq(faiss, dim: int, rows: int):
    """Return an untrained IVFPQ index of faiss with parameters for this number of rows."""
    if rows < MIN_IVFPQ_ROWS:
        raise LikewiseError(
            f"search: --index ivfpq must have at least {MIN_IVFPQ_ROWS} rows, got {rows}; use --index exact"
        )
    subvectors = max(n for n in range(1, min(64, dim) + 1) if dim % n == 0 and (n == 1 or dim // n >= 2))
    inner = faiss.IndexIVFPQ(faiss.IndexFlatL2(dim), dim, lists_of(rows), subvectors, 8)
    inner.nprobe = max(8, lists_of(rows) // 32)
    # no warning of faiss about few rows: the measured recall shows their effect
    inner.cp.min_points_per_centroid = inner.pq.cp.min_points_per_centroid = 1
    return inner
