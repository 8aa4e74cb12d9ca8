"""The index: finds the nearest rows of a query, exactly or with faiss. Rows can be added and removed during searches.

faiss only proposes candidate places, which `Index` ranks exactly; its parameters depend on the number of rows.
"""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from likewise.core.errors import LikewiseError, pip_install
from likewise.core.files import crc32_of, first_line
from likewise.core.progress import bar
from likewise.core.retrieval.integer_scores import euclidean_scale, prepare, readable
from likewise.deploy.index import stored_rows
from likewise.deploy.index.row_labels import LabelFilter, allowed_rows, number_classes
from likewise.deploy.index.stored_rows import Rows, pack, prepare_vectors

EXTRA_RESULTS = 16
"""Candidates beyond k, because rounding may swap neighbours."""
MAX_FAISS_RESULTS = 4096
"""Most candidates to request from faiss if many are excluded; beyond it all rows are compared."""
RECALL_SAMPLES = 500
"""Rows that serve as queries to measure the recall of a faiss index."""
STALE_SHARE = 0.2
"""Share of removed or missing rows above which a faiss index is rebuilt."""


class Hit(NamedTuple):
    """A result of a query: the place of a row, and its similarity to the query."""

    place: int
    similarity: float


def in_background(work: Callable[[], Any]) -> Future:
    """Return a future of `work()`, which a thread computes; the thread ends with the process."""
    promise: Future = Future()

    def run() -> None:
        try:
            promise.set_result(work())
        except BaseException as error:  # for the caller of `result`
            promise.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return promise


class Index:
    """A searchable index. `folder`: where it is saved, or None; only a saved index can change."""

    def __init__(self, rows: Rows, made_by: dict | None = None, graph: Approximate | None = None):
        self._rows, self.graph, self.folder = rows, graph, None
        self.about: dict = {"made_by": made_by or {}, "graph": None}
        self.lock = threading.Lock()
        self._first_check: Future | None = None  # of files up to MAX_CHECKSUM_BYTES: nothing is returned before it ends
        self._last_check: Future | None = None  # of the others, and of the faiss file

    @classmethod
    def open(cls, folder: Path, kind: str | None = None) -> Index:
        """Open a saved index without writing to it.

        Args:
            kind: the kind of index that the caller will build next, so that a damaged faiss file is no error; None: none.
        """
        rows, about = stored_rows.read(folder)
        made = cls(rows, about["made_by"])
        made.folder, made.about = folder, about
        if about["graph"] is not None and kind != "exact":
            try:
                made.graph = Approximate.read(folder, about)
            except BadGraph:
                if (
                    stored_rows.read_about(folder)["version"] != about["version"]
                ):  # another command replaced it meanwhile
                    return cls.open(folder, kind)
                if kind is None:
                    raise
        return made

    @classmethod
    def open_unchecked(cls, folder: Path) -> Index:
        """Open a saved index at once, and check its files in the background, for a page that starts meanwhile.

        The first use of the rows waits until all files up to `stored_rows.MAX_CHECKSUM_BYTES` are checked. Larger ones, and the
        faiss file, are checked next; until the faiss file is read, searches are exact. After damage was found, every use raises.
        """
        rows, about = stored_rows.read(folder, checked=False)
        made = cls(rows, about["made_by"])
        made.folder, made.about = folder, about
        made._first_check = in_background(partial(stored_rows.check_content, folder, about, rows))
        made._last_check = in_background(partial(made._check_rest, folder, about, rows))
        return made

    @property
    def rows(self) -> Rows:
        """The rows; raises if the check in the background has found damage."""
        if self._first_check is not None:
            self._first_check.result()
        if self._last_check is not None and self._last_check.done():
            self._last_check.result()
        return self._rows

    @rows.setter
    def rows(self, rows: Rows) -> None:
        self._rows = rows

    def wait_for_checks(self) -> None:
        """Wait until all checks in the background have ended; raise if they found damage."""
        for check in (self._first_check, self._last_check):
            if check is not None:
                check.result()

    def _check_rest(self, folder: Path, about: dict, rows: Rows) -> None:
        """Read the faiss file, and check the files above MAX_CHECKSUM_BYTES, as they were when the index was opened."""
        if about["graph"] is not None:
            try:
                self.graph = Approximate.read(folder, about)
            except BadGraph:
                if stored_rows.read_about(folder)["graph"] == about["graph"]:  # no other command has replaced it
                    raise
        stored_rows.check_content(folder, about, rows, range(stored_rows.MAX_CHECKSUM_BYTES + 1, sys.maxsize))

    @property
    def kind(self) -> str:
        """Return "exact", or the kind of the faiss index, also while it is read in the background."""
        if self.graph is None and self._last_check is not None and not self._last_check.done():
            return (self.about["graph"] or {}).get("kind", "exact")
        return "exact" if self.graph is None else self.graph.kind

    def save(self, folder: Path) -> None:
        """Save the index in a new folder; later changes are written there."""
        if self.folder is not None:
            raise LikewiseError(
                f"search: --save needs a target that is not a saved index, got '{self.folder}'; to duplicate it, copy the folder"
            )
        self.about = stored_rows.create(folder, self.rows, self.about["made_by"]) | {"graph": None}
        self.folder, self.rows = folder, stored_rows.read(folder, checked=False)[0]
        if self.graph is not None:
            self._save_graph(self.about["graph"])

    def find(
        self,
        z: Float[np.ndarray, "Q D"],
        k: int,
        *,
        but: Sequence[int | None] | None = None,
        label: str | None = None,
        wanted: LabelFilter | None = None,
        exact: bool = False,
    ) -> list[list[Hit]]:
        """Return the k nearest rows of every query, nearest first; fewer if the index has fewer.

        Args:
            but: for every query the place to exclude (its own row), or None.
            label: search only rows of this class.
            wanted: search only rows with and without these labels; the results are the k nearest of them, by exact comparison.
            exact: compare all rows even if there is a faiss index.
        """
        rows, graph = self.rows, self.graph
        if z.shape[1] != rows.vectors.shape[1]:
            raise LikewiseError(
                f"search: the query has {z.shape[1]} dimensions and the target {rows.vectors.shape[1]}; "
                "give the run that made the target: --model RUN"
            )
        z, but, allowed = prepare_vectors(z, rows.similarity), but or [None] * len(z), rows.here
        if label is not None:
            if label not in rows.class_name:
                raise LikewiseError(
                    f"search: the class must be in the index, got '{label}'; omit the class, or choose one of the index"
                )
            allowed = allowed & (rows.table["label"] == rows.class_name.index(label))
        if wanted is not None:
            allowed = allowed & allowed_rows(rows, wanted)
        if graph is None or exact or label is not None or wanted is not None:
            return ranked(rows, z, by_all(rows, z, k, but, allowed), k)
        candidates: list = [by_graph(rows, graph, query, k, own, allowed) for query, own in zip(z, but, strict=True)]
        if unresolved := [number for number, places in enumerate(candidates) if places is None]:
            for number, places in zip(
                unresolved, by_all(rows, z[unresolved], k, [but[q] for q in unresolved], allowed), strict=True
            ):
                candidates[number] = places
        return ranked(rows, z, candidates, k)

    def add(
        self,
        vectors: Float[np.ndarray, "n D"],
        names: Sequence[str],
        paths: Sequence[str],
        box=None,
        labels: Mapping[str, tuple[str, ...]] | None = None,
    ) -> Int[np.ndarray, "n"]:
        """Add rows with these class names, image paths and boxes; return their row numbers.

        Args:
            labels: class name -> labels, if rows have several labels each. In an index with several labels per row, a class
                that is not in it is named by its labels, joined by "|".
        """
        if vectors.shape[1] != self.rows.vectors.shape[1]:
            raise LikewiseError(
                f"search: new rows must have {self.rows.vectors.shape[1]} dimensions like the index, got {vectors.shape[1]}"
            )
        home = self._home()
        with self.lock, stored_rows.changing(home, self.about):
            number, classes, sets = number_classes(self.rows, names, labels)
            row = self.about["next"] + np.arange(len(names))
            label = np.asarray([number[name] for name in names], np.int64)
            table, text = pack(row, label, list(paths), box, self.about["sizes"]["paths.txt"])
            prepared = prepare_vectors(vectors, self.rows.similarity)
            self.about = stored_rows.append(home, self.about, prepared, table, text, classes, sets)
            self.rows = stored_rows.read(home, checked=False)[0]
        return row

    def remove(self, rows: Sequence[int]) -> None:
        """Mark rows as removed; their data stays on disk."""
        with self.lock, stored_rows.changing(self._home(), self.about):
            place = self.rows.places(rows)
            here = self.rows.here.copy()
            here[place] = False
            removed = self.rows.table["row"][~here].tolist()
            self.about = stored_rows.write_about(self._home(), self.about | {"removed": removed})
            self.rows = replace(self.rows, here=here)

    def approximate(self, kind: str, k: int, quiet: bool = True) -> str | None:
        """Build or update the index of this kind and return a message with its recall at k; None if exact or unchanged."""
        if kind == "exact":
            changed = None if self.graph is None and self.about["graph"] is None else "exact"
            self.graph = None
        else:
            changed = self._refresh(kind, quiet)
        if changed is None:
            return None
        measured = None if self.graph is None else recall(self, k)
        if self.folder is not None:
            with self.lock, stored_rows.changing(self.folder, self.about):
                self._save_graph(measured and {"recall": measured[0], "k": k})
        if measured is None:
            return None
        return f"{kind}: finds {100 * measured[0]:.1f} % of the true {k} nearest neighbours ({measured[1]} queries)"

    @property
    def behind(self) -> bool:
        """Whether the faiss index should be updated: too many rows are missing from it, or too many of its rows were removed."""
        if self.graph is None:
            return False
        missing = len(self.rows.vectors) - self.graph.upto
        return max(missing, (~self.rows.here[: self.graph.upto]).sum()) > STALE_SHARE * len(self.rows.vectors)

    def _refresh(self, kind: str, quiet: bool) -> str | None:
        """Build or extend the faiss index if needed, and return its kind; None: it is up to date."""
        rows, graph = self.rows, self.graph
        gone = graph is not None and (~rows.here[: graph.upto]).mean() > STALE_SHARE
        if graph is None or graph.kind != kind or gone or graph.upto < len(rows.vectors) // 2:
            self.graph = Approximate.build(kind, rows, quiet)
        elif graph.upto < len(rows.vectors):
            graph.extend(rows, quiet)
        else:
            return None
        return kind

    def _save_graph(self, known: dict | None) -> None:
        graph = self.graph
        entry = None if graph is None else (known or {}) | {"kind": graph.kind, "upto": graph.upto}
        self.about = stored_rows.save_graph(self._home(), self.about, entry, graph and graph.write)

    def _home(self) -> Path:
        if self.folder is None:
            raise LikewiseError(
                "search: only a saved index can change, and this one is not saved; save it first: --save FOLDER"
            )
        return self.folder


def by_all(
    rows: Rows, z: Float[np.ndarray, "Q D"], k: int, but: Sequence[int | None], allowed: Bool[np.ndarray, "N"]
) -> list[Int[np.ndarray, "_"]]:
    """Return candidates by comparing all rows in float32: enough places that rounding cannot exclude one of the k nearest."""
    total, excluded, candidates = int(allowed.sum()), torch.from_numpy(~allowed), []
    size = max(1, 2**26 // max(1, len(allowed)))
    for first in range(0, len(z), size):
        scores, error_bound = float_scores(rows, z[first : first + size])
        if total < len(allowed):
            scores[:, excluded] = -torch.inf
        for own, score, bound in zip(but[first : first + size], scores, error_bound, strict=True):
            count = total
            if own is not None and allowed[own]:
                score[own], count = -torch.inf, total - 1
            kept = min(k + EXTRA_RESULTS, count)
            top = score.topk(kept)
            while kept < count and top.values[k - 1] - top.values[-1] <= bound:
                kept = min(4 * kept, count)
                top = score.topk(kept)
            candidates.append(top.indices.numpy())
    return candidates


def float_scores(rows: Rows, z, begin: int = 0) -> tuple[Float[Tensor, "q n"], Float[Tensor, "q"]]:
    """Return float32 scores of the vectors from `begin` on (high = near), and a bound of their rounding error per query."""
    query, gallery = torch.from_numpy(z), rows.z[begin:]
    scores, steps = query @ gallery.T, 4 * z.shape[1] * 2.0**-24
    if rows.similarity == "cosine":
        return scores, torch.full((len(z),), steps)
    length = rows.length[begin:]
    scores -= length.square() / 2
    longest = length.max() if len(length) else torch.tensor(0.0)
    return scores, steps * (query.norm(dim=1) * longest + longest**2 / 2)


def by_graph(
    rows: Rows, graph: Approximate, z: Float[np.ndarray, "D"], k: int, own: int | None, allowed: Bool[np.ndarray, "N"]
) -> Int[np.ndarray, "_"] | None:
    """Return candidates from faiss without excluded places, and the rows that faiss does not hold yet.

    If too few candidates remain, more are requested. None: the limit is reached, and the caller should compare all rows.
    """
    if own is not None:
        allowed = allowed.copy()
        allowed[own] = False
    wanted = min(k, int(allowed[: graph.upto].sum()))
    new = np.flatnonzero(allowed[graph.upto :]) + graph.upto
    if len(new) > k + EXTRA_RESULTS:
        score = float_scores(rows, z[None], graph.upto)[0][0][torch.from_numpy(new - graph.upto)]
        new = new[score.topk(k + EXTRA_RESULTS).indices.numpy()]
    count = k + EXTRA_RESULTS
    while True:
        places = graph.propose(z, count)
        places = places[allowed[places]]
        if len(places) >= wanted:
            return np.concatenate([places, new])
        if count >= min(MAX_FAISS_RESULTS, graph.inner.ntotal):
            return None
        count *= 4


def ranked(rows: Rows, z: Float[np.ndarray, "Q D"], places: list[Int[np.ndarray, "_"]], k: int) -> list[list[Hit]]:
    """Rank the candidates of every query and return the first k, by the integer scores of `likewise.core.retrieval.ranking`."""
    union = np.unique(np.concatenate(places))
    if not len(union):
        return [[] for _ in places]
    query, scale = torch.from_numpy(z), None
    if rows.similarity == "euclidean":  # the longest vector sets the scale; the median vector represents the others
        median = int(rows.length.median(0).indices)
        scale = euclidean_scale(query, rows.z[[int(rows.length.argmax()), median, median]])
    cpu = torch.device("cpu")
    queries, gallery = (
        prepare(query, cpu, scale, "query"),
        prepare(rows.z[torch.from_numpy(union)], cpu, scale, "gallery"),
    )
    query_integers, gallery_integers, results = queries.whole(slice(None)), gallery.whole(slice(None)), []
    for number, own in enumerate(places):
        at = torch.from_numpy(np.searchsorted(union, np.sort(own)))
        key = gallery_integers[at] @ query_integers[number]
        if gallery.norm is not None:
            key = 2 * key - gallery.norm[at]
        key, order = key.sort(descending=True, stable=True)  # ties: the lower row first
        sim = readable(key[None, :k], queries, torch.tensor([number]))[0].tolist()
        results.append([Hit(int(p), s) for p, s in zip(union[at[order[:k]].numpy()], sim, strict=True)])
    return results


def recall(index: Index, k: int) -> tuple[float, int]:
    """Return the share of the true k nearest rows that faiss finds, and the number of queries measured."""
    rows = index.rows
    places = np.random.default_rng(0).permutation(np.flatnonzero(rows.here))[:RECALL_SAMPLES]
    exact, approximate = (index.find(rows.vectors[places], k, but=places.tolist(), exact=on) for on in (True, False))
    relevant = [{hit.place for hit in hits} for hits in exact]
    hits = sum(len(own & {hit.place for hit in found}) for own, found in zip(relevant, approximate, strict=True))
    return hits / max(1, sum(len(own) for own in relevant)), len(places)


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
        raise LikewiseError(f"search: --index {kind} needs faiss ({error}); {pip_install('likewise[faiss]')}") from None
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
    def read(cls, folder: Path, about: dict) -> Approximate:
        """Read the file of `write` in the folder of an index. faiss does not validate it, so its checksum is compared first.

        Args:
            about: the content of index.json.
        """
        entry = about["graph"]
        faiss, file = import_faiss(entry["kind"]), folder / entry["file"]
        try:
            if file.stat().st_size != entry["size"]:
                raise RuntimeError(f"it must have {entry['size']} bytes and has {file.stat().st_size}")
            if crc32_of(file) != entry["sum"]:
                raise RuntimeError("its checksum does not match")
            inner = faiss.read_index(str(file))
            places = faiss.vector_to_array(inner.id_map)  # pyright: ignore[reportAttributeAccessIssue]
            if inner.d != about["dim"] or not ((places >= 0) & (places < entry["upto"])).all():
                raise RuntimeError("it belongs to other vectors")
            return cls(entry["kind"], inner, entry["upto"])
        except (
            OSError,
            RuntimeError,
            AttributeError,
            MemoryError,
        ) as error:  # AttributeError: an index of another type
            reason = first_line(error)
            raise BadGraph(
                f"search: {file} is damaged ({reason}); build it again with --index {entry['kind']} on the saved index"
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
