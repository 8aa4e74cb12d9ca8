"""The index: the nearest rows of a query, exactly or by way of faiss; rows come and go while others search."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from likewise.errors import LikewiseError
from likewise.index import storage
from likewise.index.faiss_backend import Approximate, BadGraph
from likewise.index.snapshot import Rows, fitting, pack
from likewise.retrieval.integer_scores import euclidean_scale, prepare, readable

SPARE = 16
"""Proposals beyond k, for rounding may swap neighbours."""
DEEPEST = 4096
"""Proposals to ask of faiss at most, where many are no answers, before all rows are compared."""
SAMPLE = 500
"""Rows by which a faiss index is measured."""
STALE = 0.2
"""Share of removed rows from which on a faiss index is built anew."""


class Hit(NamedTuple):
    place: int
    similarity: float


class Index:
    """Rows to search in. `folder` is where it is kept, if it is; only then can it change."""

    def __init__(self, rows: Rows, made_by: dict | None = None, graph: Approximate | None = None):
        self.rows, self.graph, self.folder = rows, graph, None
        self.about: dict = {"made_by": made_by or {}, "graph": None}
        self.lock = threading.Lock()

    @classmethod
    def open(cls, folder: Path, kind: str | None = None) -> Index:
        """Open a saved index without writing to it.

        Args:
            kind: the approximate index that will be made next: a damaged one of another kind, or of this one, is no error.
        """
        rows, about = storage.read(folder)
        known, graph = about["graph"], None
        if known is not None and kind != "exact":
            try:
                graph = Approximate.read(folder / known["file"], known, about["dim"])
            except BadGraph:
                if storage.read_about(folder)["version"] != about["version"]:  # another command replaced it meanwhile
                    return cls.open(folder, kind)
                if kind is None:
                    raise
        made = cls(rows, about["made_by"], graph)
        made.folder, made.about = folder, about
        return made

    @property
    def kind(self) -> str:
        return "exact" if self.graph is None else self.graph.kind

    def save(self, folder: Path) -> None:
        """Keep it in a new folder from here on."""
        if self.folder is not None:
            raise LikewiseError(
                f"search: --save keeps what is not kept yet, and '{self.folder}' is an index; to have it twice, copy the folder"
            )
        self.about = storage.create(folder, self.rows, self.about["made_by"]) | {"graph": None}
        self.folder, self.rows = folder, storage.read(folder, known=True)[0]
        if self.graph is not None:
            self._keep_graph(self.about["graph"])

    def find(
        self,
        z: Float[np.ndarray, "Q D"],
        k: int,
        *,
        but: Sequence[int | None] | None = None,
        label: str | None = None,
        exact: bool = False,
    ) -> list[list[Hit]]:
        """The k nearest of every query, nearest first, fewer where there are fewer.

        Args:
            but: a place that is no answer, for every query: its own.
            label: only rows of this class.
            exact: look at all rows, whatever the index is.
        """
        rows, graph = self.rows, self.graph
        if z.shape[1] != rows.vectors.shape[1]:
            raise LikewiseError(
                f"search: the query has {z.shape[1]} dimensions and the target {rows.vectors.shape[1]}; "
                "give the run that made the target: --model RUN"
            )
        z, but, allowed = fitting(z, rows.similarity), but or [None] * len(z), rows.here
        if label is not None:
            if label not in rows.class_name:
                raise LikewiseError(
                    f"search: the index has no class '{label}'; leave the class out, or choose one it has"
                )
            allowed = allowed & (rows.table["label"] == rows.class_name.index(label))
        if graph is None or exact or label is not None:
            return ranked(rows, z, by_all(rows, z, k, but, allowed), k)
        found: list = [by_graph(rows, graph, one, k, own, allowed) for one, own in zip(z, but, strict=True)]
        if unclear := [place for place, near in enumerate(found) if near is None]:
            for place, near in zip(
                unclear, by_all(rows, z[unclear], k, [but[p] for p in unclear], allowed), strict=True
            ):
                found[place] = near
        return ranked(rows, z, found, k)

    def add(
        self, vectors: Float[np.ndarray, "n D"], names: Sequence[str], paths: Sequence[str], box=None
    ) -> Int[np.ndarray, "n"]:
        """Add rows with these class names and files; their new numbers."""
        if vectors.shape[1] != self.rows.vectors.shape[1]:
            raise LikewiseError(
                f"search: new rows must have {self.rows.vectors.shape[1]} dimensions as the index has, got {vectors.shape[1]}"
            )
        home = self._home()
        with self.lock, storage.changing(home, self.about):
            classes = dict.fromkeys((*self.rows.class_name, *names))
            number = {name: label for label, name in enumerate(classes)}
            row = self.about["next"] + np.arange(len(names))
            label = np.asarray([number[name] for name in names], np.int64)
            table, text = pack(row, label, list(paths), box, self.about["sizes"]["paths.txt"])
            fit = fitting(vectors, self.rows.similarity)
            self.about = storage.append(home, self.about, fit, table, text, tuple(classes))
            self.rows = storage.read(home, known=True)[0]
        return row

    def remove(self, rows: Sequence[int]) -> None:
        with self.lock, storage.changing(self._home(), self.about):
            place = self.rows.places(rows)
            here = self.rows.here.copy()
            here[place] = False
            removed = self.rows.table["row"][~here].tolist()
            self.about = storage.settle(self._home(), self.about | {"removed": removed})
            self.rows = replace(self.rows, here=here)

    def approximate(self, kind: str, k: int, quiet: bool = True) -> str | None:
        """Make the index of this kind, up to date, and say how many of the true k nearest it finds. None: it is exact, or
        nothing was to be done."""
        if kind == "exact":
            fresh = None if self.graph is None and self.about["graph"] is None else "exact"
            self.graph = None
        else:
            fresh = self._refresh(kind, quiet)
        if fresh is None:
            return None
        found = None if self.graph is None else recall(self, k)
        if self.folder is not None:
            with self.lock, storage.changing(self.folder, self.about):
                self._keep_graph(found and {"recall": found[0], "k": k})
        if found is None:
            return None
        return f"{kind}: finds {100 * found[0]:.1f} % of the true {k} nearest ({found[1]} queries)"

    @property
    def behind(self) -> bool:
        """Whether the faiss index should be updated: too many rows are missing from it, or too many in it were removed."""
        if self.graph is None:
            return False
        late = len(self.rows.vectors) - self.graph.upto
        return max(late, (~self.rows.here[: self.graph.upto]).sum()) > STALE * len(self.rows.vectors)

    def _refresh(self, kind: str, quiet: bool) -> str | None:
        """Build, extend or leave the faiss index, whichever is needed."""
        rows, graph = self.rows, self.graph
        gone = graph is not None and (~rows.here[: graph.upto]).mean() > STALE
        if graph is None or graph.kind != kind or gone or graph.upto < len(rows.vectors) // 2:
            self.graph = Approximate.build(kind, rows, quiet)
        elif graph.upto < len(rows.vectors):
            graph.extend(rows, quiet)
        else:
            return None
        return kind

    def _keep_graph(self, known: dict | None) -> None:
        graph = self.graph
        facts = None if graph is None else (known or {}) | {"kind": graph.kind, "upto": graph.upto}
        self.about = storage.keep_graph(self._home(), self.about, facts, graph and graph.write)

    def _home(self) -> Path:
        if self.folder is None:
            raise LikewiseError("search: only a saved index can change; save it first: --save FOLDER")
        return self.folder


def by_all(
    rows: Rows, z: Float[np.ndarray, "Q D"], k: int, but: Sequence[int | None], allowed: Bool[np.ndarray, "N"]
) -> list[Int[np.ndarray, "_"]]:
    """Places that the k nearest are among: the first of all by a product in float32, so many that rounding hides none."""
    whole, forbidden, found = int(allowed.sum()), torch.from_numpy(~allowed), []
    size = max(1, 2**26 // max(1, len(allowed)))
    for first in range(0, len(z), size):
        scores, doubt = near(rows, z[first : first + size])
        if whole < len(allowed):
            scores[:, forbidden] = -torch.inf
        for own, score, unsure in zip(but[first : first + size], scores, doubt, strict=True):
            count = whole
            if own is not None and allowed[own]:
                score[own], count = -torch.inf, whole - 1
            many = min(k + SPARE, count)
            top = score.topk(many)
            while many < count and top.values[k - 1] - top.values[-1] <= unsure:
                many = min(4 * many, count)
                top = score.topk(many)
            found.append(top.indices.numpy())
    return found


def near(rows: Rows, z, begin: int = 0) -> tuple[Float[Tensor, "q n"], Float[Tensor, "q"]]:
    """How near the vectors from `begin` on are, in float32, high = near; and how much of a difference may be rounding."""
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
    """Places that faiss proposes, less those that are no answers; more are asked for where too few are left. Those that it does
    not hold yet come beside them, and in place of none. None: better compare all."""
    if own is not None:
        allowed = allowed.copy()
        allowed[own] = False
    wanted = min(k, int(allowed[: graph.upto].sum()))
    late = np.flatnonzero(allowed[graph.upto :]) + graph.upto
    if len(late) > k + SPARE:
        score = near(rows, z[None], graph.upto)[0][0][torch.from_numpy(late - graph.upto)]
        late = late[score.topk(k + SPARE).indices.numpy()]
    many = k + SPARE
    while True:
        places = graph.propose(z, many)
        places = places[allowed[places]]
        if len(places) >= wanted:
            return np.concatenate([places, late])
        if many >= min(DEEPEST, graph.inner.ntotal):
            return None
        many *= 4


def ranked(rows: Rows, z: Float[np.ndarray, "Q D"], places: list[Int[np.ndarray, "_"]], k: int) -> list[list[Hit]]:
    """The first k of every query's places, by the same whole numbers as `likewise.retrieval.ranking` ranks by."""
    union = np.unique(np.concatenate(places))
    if not len(union):
        return [[] for _ in places]
    query, scale = torch.from_numpy(z), None
    if rows.similarity == "euclidean":  # by the longest vector; the usual one stands for most, as their median
        usual = int(rows.length.median(0).indices)
        scale = euclidean_scale(query, rows.z[[int(rows.length.argmax()), usual, usual]])
    cpu = torch.device("cpu")
    asks, answers = prepare(query, cpu, scale, "query"), prepare(rows.z[torch.from_numpy(union)], cpu, scale, "gallery")
    asked, whole, found = asks.whole(slice(None)), answers.whole(slice(None)), []
    for number, own in enumerate(places):
        at = torch.from_numpy(np.searchsorted(union, np.sort(own)))
        key = whole[at] @ asked[number]
        if answers.norm is not None:
            key = 2 * key - answers.norm[at]
        key, order = key.sort(descending=True, stable=True)  # equal ones: the lower row first
        sim = readable(key[None, :k], asks, torch.tensor([number]))[0].tolist()
        found.append([Hit(int(p), s) for p, s in zip(union[at[order[:k]].numpy()], sim, strict=True)])
    return found


def recall(index: Index, k: int) -> tuple[float, int]:
    """The share of the true k nearest that faiss finds, and of how many queries."""
    rows = index.rows
    places = np.random.default_rng(0).permutation(np.flatnonzero(rows.here))[:SAMPLE]
    true, seen = (index.find(rows.vectors[places], k, but=places.tolist(), exact=exact) for exact in (True, False))
    whole = [{hit.place for hit in hits} for hits in true]
    hits = sum(len(own & {hit.place for hit in found}) for own, found in zip(whole, seen, strict=True))
    return hits / max(1, sum(len(own) for own in whole)), len(places)
