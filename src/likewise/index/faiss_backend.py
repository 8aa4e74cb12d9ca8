"""Approximate indices of faiss: they propose places, and the index compares these exactly. Parameters go by size."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

from likewise.errors import LikewiseError
from likewise.index.snapshot import Rows
from likewise.index.storage import checksum
from likewise.io.files import first_line
from likewise.io.progress import bar

LEARN = 1000
"""Rows that ivfpq takes to learn its codes from, at least."""
BLOCK = 2**15
"""Rows added at a time."""


class BadGraph(LikewiseError):
    """The file of an approximate index is missing or damaged."""


def faiss_of(kind: str):
    try:
        import faiss
    except ImportError as error:
        raise LikewiseError(f"search: --index {kind} needs faiss ({error}); pip install 'likewise[faiss]'") from None
    return faiss


class Approximate:
    """Proposes places of an index's vectors. It holds those below `upto`; what was added later is for others to look at."""

    def __init__(self, kind: str, inner, upto: int):
        self.kind, self.inner, self.upto = kind, inner, upto

    @classmethod
    def build(cls, kind: str, rows: Rows, quiet: bool = True) -> Approximate:
        """Over the rows that are here."""
        faiss, dim, places = faiss_of(kind), rows.vectors.shape[1], np.flatnonzero(rows.here)
        if kind == "ivfpq":
            inner = ivfpq(faiss, dim, len(places))
            some = np.random.default_rng(0).permutation(places)[: max(2**16, 40 * lists_of(len(places)))]
            inner.train(rows.vectors[np.sort(some)])
        else:
            links = 32 if len(places) < 2 * 10**6 else 24
            half = rows.similarity == "cosine"  # other vectors may be too long for float16
            inner = (
                faiss.IndexHNSWSQ(dim, faiss.ScalarQuantizer.QT_fp16, links)
                if half
                else faiss.IndexHNSWFlat(dim, links)
            )
            inner.hnsw.efConstruction, inner.hnsw.efSearch = 80, 96
            if half:
                inner.train(rows.vectors[:1])  # it asks for it, and learns nothing
        made = cls(kind, faiss.IndexIDMap(inner), 0)
        made.extend(rows, quiet)
        return made

    def extend(self, rows: Rows, quiet: bool = True) -> None:
        """Take in what was added later too."""
        places = self.upto + np.flatnonzero(rows.here[self.upto :])
        with bar(self.kind, len(places), quiet=quiet) as progress:
            for first in range(0, len(places), BLOCK):
                some = places[first : first + BLOCK]
                self.inner.add_with_ids(rows.vectors[some], some)
                progress.advance(len(some))
        self.upto = len(rows.vectors)

    def propose(self, z: Float[np.ndarray, "D"], k: int) -> Int[np.ndarray, "n"]:
        """Places that are probably among the k nearest, and others: k of ivfpq are not enough, its distances are coarse."""
        many = k if self.kind == "hnsw" else 16 * k + 64
        found = self.inner.search(z[None], min(many, self.inner.ntotal))[1][0]
        return found[found >= 0]

    def write(self, file: Path) -> None:
        faiss_of(self.kind).write_index(self.inner, str(file))

    @classmethod
    def read(cls, file: Path, about: dict, dim: int) -> Approximate:
        """Read what `write` left. faiss trusts its files, so it gets only the very bytes that were written."""
        faiss = faiss_of(about["kind"])
        try:
            if file.stat().st_size != about["size"]:
                raise RuntimeError(f"it must have {about['size']} bytes and has {file.stat().st_size}")
            if checksum(file) != about["sum"]:
                raise RuntimeError("its bytes are not those that were written")
            inner = faiss.read_index(str(file))
            places = faiss.vector_to_array(inner.id_map)  # pyright: ignore[reportAttributeAccessIssue]
            if inner.d != dim or not ((places >= 0) & (places < about["upto"])).all():
                raise RuntimeError("it is of other vectors")
            return cls(about["kind"], inner, about["upto"])
        except (
            OSError,
            RuntimeError,
            AttributeError,
            MemoryError,
        ) as error:  # AttributeError: an index of another type
            reason = first_line(error)
            raise BadGraph(
                f"search: {file} is damaged ({reason}); build it anew with --index {about['kind']} on the saved index"
            ) from None


def lists_of(rows: int) -> int:
    """Cells that vectors are sorted into: some hundred rows each, and enough rows to learn every one from."""
    return max(1, min(int(4 * math.sqrt(rows)), rows // 40))


def ivfpq(faiss, dim: int, rows: int):
    if rows < LEARN:
        raise LikewiseError(f"search: --index ivfpq must have {LEARN} rows to learn from, got {rows}; use exact")
    parts = max(n for n in range(1, min(64, dim) + 1) if dim % n == 0 and (n == 1 or dim // n >= 2))
    inner = faiss.IndexIVFPQ(faiss.IndexFlatL2(dim), dim, lists_of(rows), parts, 8)
    inner.nprobe = max(8, lists_of(rows) // 32)
    inner.cp.min_points_per_centroid = inner.pq.cp.min_points_per_centroid = 1  # few rows are said in the recall
    return inner
