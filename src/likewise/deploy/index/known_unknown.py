"""Known or unknown: the calibration of a run for the rows of an index, and the decision about a query.

Also what a similarity means in an index ("same", "similar" and "different"), and the known classes that an added class will be
confused with, and how often.
"""

from __future__ import annotations

import dataclasses
import threading
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.special import stdtrit

from likewise.core.errors import LikewiseError
from likewise.deploy.calibration.fit_calibration import calibrate_gallery
from likewise.deploy.calibration.threshold_promises import PROMISE_LEVEL, compare
from likewise.deploy.index.stored_rows import Rows, untrained_places
from likewise.deploy.index.vector_index import Hit, Index
from likewise.runs.calibration import CALIBRATION_FILE, Calibration, read_calibration, write_calibration
from likewise.runs.folder import Run

if TYPE_CHECKING:
    from likewise.deploy.index.open_index import Network


MAX_CHANGED_SHARE = 0.01
"""Share of added and removed rows up to which a page keeps the threshold of the rows before."""
MAX_CHECKED_PAIRS, MIN_CHECKED_ROWS = 200_000_000, 100
"""Most similarities between rows, and fewest rows as queries, for the share of an index's own images that are accepted."""
MAX_CHECKED_VECTORS = 64
"""Most vectors of an index that are part of the checksum of its rows."""
BLOCK_PAIRS = 1 << 22
"""Similarities held in memory at a time."""


NO_CLASS = "rows have several labels each, so there is no one class of a query"
"""Why there is no decision about a query in an index whose rows have several labels each."""
SEVERAL_LABELS_HINT = f"known or unknown is not decided: {NO_CLASS}; results show their labels"
"""The same for the search page."""


class IndexCalibration:
    """The calibration of a run for the rows of an index, derived again when the rows change or the run is calibrated again.

    False accepts depend on the rows that a query is compared with, so every index has a threshold of its own. A saved index
    stores it in calibration.json, with checksums of its rows and of the run's calibration.

    Attributes:
        hint: why there is no calibration, and how to get one; "" if there is one, or if the index names no run.
    """

    def __init__(self, index: Index, network: Network | None):
        self.index, self.network, self.hint = index, network, ""
        self._lock = threading.Lock()
        self._rows: Rows | None = None
        self._written: int | None = None
        self._found: Calibration | None = None

    def current(self, exact: bool = True) -> Calibration | None:
        """Return the calibration for the current rows; None without a calibrated run.

        Args:
            exact: derive it again after every change; otherwise only if more than `MAX_CHANGED_SHARE` of the rows changed, so
                that a page to which images are added one by one does not wait each time.
        """
        with self._lock:
            rows, written = self.index.rows, self._written_at()
            most = 0 if exact else MAX_CHANGED_SHARE
            if self._rows is None or written != self._written or changed_share(self._rows, rows) > most:
                self.hint = ""
                self._found, self._rows, self._written = self._find(rows), rows, written
            return self._found

    def _written_at(self) -> int | None:
        """Return when the calibration of the run was written, in nanoseconds; None: there is none."""
        with suppress(OSError):
            return None if self.network is None else (self.network.run.path / CALIBRATION_FILE).stat().st_mtime_ns

    def decide(self, hits: Sequence[Hit]) -> dict | None:
        """Return the decision about a query from its nearest rows among all rows; None without a calibration or a row."""
        calibration = self.current(exact=False) if hits else None
        if calibration is None:
            return None
        return decide(calibration, hits[0].similarity, self.index.rows.label(hits[0].place))

    def _find(self, rows: Rows) -> Calibration | None:
        """Return the stored calibration if it is for these rows and the run's calibration, otherwise a new one."""
        if rows.labels is not None:
            self.hint = SEVERAL_LABELS_HINT if self.network is not None else ""
            return None
        folder, key, source = self.index.folder, checksum_of(rows), self._source()
        stored = None
        if folder is not None:
            with suppress(LikewiseError):  # a damaged file: derived again
                stored = read_calibration(folder)
        if stored is not None and stored.about.get("rows") == key and source in (None, stored.about.get("source")):
            self.hint = ""
            return stored
        if source is None or self.network is None or not len(rows):
            return None
        try:
            found = calibrate_gallery(self.network.run.path, *labelled_vectors(rows))
        except LikewiseError as error:
            self.hint = str(error)
            return None
        trained = self.index.about["made_by"].get("trained", ())
        found = dataclasses.replace(
            found, about=found.about | {"rows": key, "source": source} | own_accepts(rows, found, trained)
        )
        if folder is not None:
            with suppress(OSError):  # a read-only disk: derived at the next opening
                write_calibration(folder, found)
        return found

    def _source(self) -> str | None:
        """Return a checksum of the calibration of the run that embedded the rows; None and a hint if it cannot be used."""
        network = self.network
        if network is None:
            return None
        run = network.run.path
        calibrated = read_calibration(run)
        if calibrated is None:
            if (run / "config.json").exists():
                self.hint = (
                    f"known or unknown is not decided, because the run is not calibrated: run `likewise calibrate {run}` (it "
                    "needs validation classes), then search again"
                )
            return None
        if not network.is_same():
            return None
        checkpoint = calibrated.about.get("checkpoint", "best")
        if not is_same_checkpoint(network.run, network.checkpoint, checkpoint):
            self.hint = (
                f"known or unknown is not decided: the run is calibrated for its checkpoint {checkpoint}, and the index was "
                f"made by {network.checkpoint}"
            )
            return None
        return checksum_of_files(run / CALIBRATION_FILE, run / "calibration.npz")


def own_accepts(rows: Rows, calibration: Calibration, trained: Collection[str] = ()) -> dict[str, str]:
    """Return the entry for `about`: the share of images that are taken for another class of the index if their own is missing.

    It is the mean over classes, with its lower bound of 95 % (Student's t over classes). The promise of the threshold is about
    classes like the validation classes; this is the same rate for classes like those of the index, on a random sample of its
    rows. {} without a threshold or with one class.

    Args:
        trained: classes that trained the network. Training has moved them apart, so their images are no queries here, unless
            fewer than two other classes remain.
    """
    least, here = calibration.unknown.value, np.flatnonzero(rows.here)
    label = rows.table["label"]
    if least is None or len(rows.used_classes) < 2:
        return {}
    sample = np.random.default_rng(0).permutation(untrained_places(rows, trained))[
        : max(MIN_CHECKED_ROWS, MAX_CHECKED_PAIRS // len(here))
    ]
    taken = nearest_of_others(rows, sample, here) >= least
    _, unit, count = np.unique(label[sample], return_inverse=True, return_counts=True)
    each = np.bincount(unit, taken) / count
    below = stdtrit(len(each) - 1, PROMISE_LEVEL) * each.std(ddof=1) / len(each) ** 0.5
    return {"own_accepts": f"{each.mean():.4f}", "own_accepts_bound": f"{max(0.0, each.mean() - below):.4f}"}


def warning_of(calibration: Calibration | None) -> str:
    """Return a warning if the classes of an index are more alike than the promise allows; "" if not."""
    if calibration is None or calibration.unknown.aim != "false accepts":
        return ""
    share, bound = (float(calibration.about.get(name, 0)) for name in ("own_accepts", "own_accepts_bound"))
    if bound <= calibration.unknown.rate:
        return ""
    return (
        f"the classes of this index are more alike than the validation classes: with its own class left out, {100 * share:.0f} % "
        f"of its images are taken for another class, and {100 * calibration.unknown.rate:.3g} % are promised; images of similar "
        "unknown classes are accepted that often"
    )


NO_DECISION = dict.fromkeys(("unknown", "label", "probability"))
"""The fields of a decision that a program reads first, where there is none."""


def decide(calibration: Calibration, sim: float, nearest: str) -> dict:
    """Return the decision about a query from the similarity and the class of its nearest neighbour.

    Returns:
        unknown: whether the query is of no known class; None if there is no threshold. label: the class of the query; None
        unless it is known. probability: that the nearest neighbour has the query's class, if this class is among the known.
        nearest, similarity: class and similarity of that neighbour. threshold: accept from this similarity on; None: none,
        for this `reason`.
    """
    threshold = calibration.unknown
    unknown = None if threshold.value is None else bool(calibration.is_unknown(np.array([sim]))[0])
    return {
        "unknown": unknown, "label": nearest if unknown is False else None,
        "probability": float(calibration.probability(np.array([sim]))[0]), "nearest": nearest, "similarity": float(sim),
        "threshold": threshold.value, "reason": threshold.reason,
    }  # fmt: skip


def is_same_checkpoint(run: Run, one: str, other: str) -> bool:
    """Return whether two checkpoints of a run are the same weights: without a best network, the last one is used."""
    return one == other or ("untrained" not in (one, other) and run.network(one) == run.network(other))


def labelled_vectors(rows: Rows) -> tuple[Float[np.ndarray, "N D"], list[str]]:
    """Return the vectors of the rows that are not removed, and the class name of each."""
    everything = bool(rows.here.all())
    label = rows.table["label"] if everything else rows.table["label"][rows.here]
    return rows.vectors if everything else rows.vectors[rows.here], np.asarray(rows.class_name, object)[label].tolist()


def changed_share(old: Rows, new: Rows) -> float:
    """Return the number of rows that were added to or removed from an index since `old`, relative to its rows then."""
    if old is new:
        return 0.0
    added, removed = len(new.vectors) - len(old.vectors), (old.here & ~new.here[: len(old.here)]).sum()
    return float((added + removed) / max(1, len(old)))


def checksum_of(rows: Rows) -> str:
    """Return a checksum of the rows that are not removed: of all their numbers, and of the vectors of some.

    A row number is never used again in an index. The vectors differ between indexes, so that one does not take over the
    calibration of another.
    """
    places = np.flatnonzero(rows.here)
    some = places[np.linspace(0, len(places) - 1, min(len(places), MAX_CHECKED_VECTORS)).astype(int)]
    crc = zlib.crc32(np.ascontiguousarray(rows.table["row"][places]).tobytes())
    return f"{zlib.crc32(np.ascontiguousarray(rows.vectors[some]).tobytes(), crc):08x}"


def checksum_of_files(*files: Path) -> str:
    """Return a checksum of the content of files; a missing file counts as empty."""
    crc = 0
    for file in files:
        crc = zlib.crc32(file.read_bytes() if file.exists() else b"", crc)
    return f"{crc:08x}"


SAME_SHARE, SIMILAR_SHARE = 0.1, 0.5
"""Share of images that have an image of another class as near as the level "same", and as near as the level "similar"."""
SAMPLED_ROWS, MAX_PAIRS = 1000, 100_000_000
"""Most images, and most similarities, from which the levels are taken."""
MIN_SAMPLED_ROWS = 20
"""Fewest images from which levels are taken."""


class Levels(NamedTuple):
    """The lowest similarities that are read as the same class and as similar, and the meaning of the first in words."""

    same: float
    similar: float
    source: str


def levels_of(rows: Rows, calibration: Calibration | None, trained: Collection[str] = ()) -> Levels | None:
    """Return the levels of an index, from the nearest image of another class of each row; None with too few rows or classes.

    None, too, if rows have several labels each: rows that share some of them are neither the same nor different.

    They describe the rows as they are labelled. A calibrated run has a threshold with a promise, which is then the level "same".

    Args:
        trained: classes that trained the network: left out where other classes remain, because training moved them apart.
    """
    here = np.flatnonzero(rows.here)
    if rows.labels is not None or len(here) < MIN_SAMPLED_ROWS or len(rows.used_classes) < 2:
        return None
    most = min(SAMPLED_ROWS, max(MIN_SAMPLED_ROWS, MAX_PAIRS // len(here)))
    sample = np.random.default_rng(0).permutation(untrained_places(rows, trained))[:most]
    near = nearest_of_others(rows, sample, here)
    same, similar = (float(np.quantile(near, 1 - share)) for share in (SAME_SHARE, SIMILAR_SHARE))
    source = f"{100 * SAME_SHARE:.0f} % of the images here have an image of another class that is this similar"
    threshold = None if calibration is None else calibration.unknown.value
    if threshold is not None:
        same, source = threshold, "the threshold of the calibrated run"
    return Levels(same, min(same, similar), source)


def nearest_of_others(rows: Rows, places: Int[np.ndarray, "n"], among: Int[np.ndarray, "m"]) -> Float[np.ndarray, "n"]:
    """Return for each place the similarity of its nearest row of another class, among these rows."""
    label, query = rows.table["label"], rows.vectors[places]
    found = np.full(len(places), -np.inf, np.float32)
    for part in np.array_split(among, max(1, len(places) * len(among) // BLOCK_PAIRS)):
        sim = compare(query, rows.vectors[part], rows.similarity)
        sim[label[places][:, None] == label[part]] = -np.inf
        np.maximum(found, sim.max(1), out=found)
    return found


MIN_NEW_IMAGES = 10
"""Smallest number of images of a new class for shares: below it the 95 % interval of "0 images" reaches beyond 31 %."""


def add_with_confusions(
    calibrated: IndexCalibration,
    z: Float[np.ndarray, "n D"],
    names: Sequence[str],
    add: Callable[[], Int[np.ndarray, "n"]],
) -> tuple[Int[np.ndarray, "n"], list[dict]]:
    """Add rows with these embeddings and class names by `add`; return their row numbers and the report of every new class.

    Returns:
        For every class that the index did not have: class, images, reason ("" or why there are no shares), `before`: the
        known classes that its images are taken for while it is not in the index (the nearest row reaches the threshold), and
        `after`: the other classes that they are confused with once all images of it are in the index, each compared with the
        other rows. Both are lists of class, images, share, low and high (95 % interval).
    """
    index, rows = calibrated.index, calibrated.index.rows
    known = {rows.class_name[label] for label in rows.used_classes.tolist()}
    new = [place for place, name in enumerate(names) if name not in known]
    before = nearest_accepted(calibrated, z[new], None)
    row = add()
    after = nearest_accepted(calibrated, z[new], index.rows.places(row[new].tolist()).tolist() if new else [])
    reports = []
    for name in dict.fromkeys(names[place] for place in new):
        own = [number for number, place in enumerate(new) if names[place] == name]
        found = {"class": name, "images": len(own), "reason": "", "before": [], "after": []}
        if before is None or after is None:
            calibration = calibrated.current()
            reason = calibrated.hint if calibration is None else calibration.unknown.reason
            found["reason"] = f"no estimate: {reason or 'the index is not calibrated'}"
        elif len(own) < MIN_NEW_IMAGES:
            found["reason"] = f"no estimate: {MIN_NEW_IMAGES} images are needed"
        else:
            found["before"] = shares((before[number] for number in own), name)
            found["after"] = shares((after[number] for number in own), name)
        reports.append(found)
    return row, reports


def nearest_accepted(
    calibrated: IndexCalibration, z: Float[np.ndarray, "n D"], own: Sequence[int] | None
) -> list[str | None] | None:
    """Return the class of the nearest row of every embedding if it reaches the threshold, otherwise None.

    None in place of the list: there is no threshold. `own`: the place of each embedding itself, which is excluded.
    """
    calibration = calibrated.current() if len(z) else None
    if calibration is None or calibration.unknown.value is None:
        return None
    index, least = calibrated.index, calibration.unknown.value

    def accepted(hits: list[Hit]) -> str | None:
        return index.rows.label(hits[0].place) if hits and hits[0].similarity >= least else None

    return [accepted(hits) for hits in index.find(z, 1, but=own)]


def shares(nearest: Iterable[str | None], name: str) -> list[dict]:
    """Return the classes other than `name`, most frequent first, with their share of all and its 95 % interval."""
    everything = list(nearest)
    count = Counter(one for one in everything if one is not None and one != name)
    found = []
    for other, images in sorted(count.items(), key=lambda one: (-one[1], one[0])):
        low, high = binomial_interval(images, len(everything))
        found.append({"class": other, "images": images, "share": images / len(everything), "low": low, "high": high})
    return found


def binomial_interval(count: int, total: int) -> tuple[float, float]:
    """Return the exact 95 % interval of a share (Clopper and Pearson 1934): it covers the share in 95 % of cases or more."""
    from scipy.stats import binomtest  # slow to import

    found = binomtest(count, total).proportion_ci(0.95, "exact")
    return float(found.low), float(found.high)


def sentences(report: dict) -> list[str]:
    """Return the report of a new class as lines of text."""
    head = f"new class {report['class']} ({report['images']} image{'s' * (report['images'] != 1)})"
    if report["reason"]:
        return [f"{head}: {report['reason']}"]
    return [
        f"{head}:",
        f"  taken for a known class before it was added: {listed(report['before'], report['images'])}",
        f"  confused with another class now: {listed(report['after'], report['images'])}",
    ]


def listed(found: list[dict], images: int) -> str:
    """Return classes and their shares of `images` images as text."""
    parts = [
        f"{one['class']} {100 * one['share']:.0f} % ({100 * one['low']:.0f} to {100 * one['high']:.0f})"
        for one in found
    ]
    return ", ".join(parts) or f"none of them (0 to {100 * binomial_interval(0, images)[1]:.0f} %)"
