"""calibration.json: thresholds and probabilities that `likewise calibrate` chose; calibration.npz: what it chose them from."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float, Int

from likewise.core.argument_checks import misfit
from likewise.core.errors import LikewiseError
from likewise.core.files import atomic_write, load_arrays, read_json, write_json
from likewise.runs.scores import REWRITE_HINT

CALIBRATION_FILE = "calibration.json"
VALIDATION_FILE = "calibration.npz"

ERROR_KINDS = ("false accepts", "precision")
"""What a rate limits: the share of different pairs (or unknown images) that are accepted, or of accepted ones that are wrong."""


THRESHOLD_TYPES = {
    "value": float | None, "rate": float, "smallest_rate": float, "observed": float | None, "true_accepts": float | None,
    "classes": int, "reason": str, "aim": str,
}  # fmt: skip
FILE_TYPES = {
    "similarity": str, "pair": THRESHOLD_TYPES, "unknown": THRESHOLD_TYPES, "knot_sim": list[float],
    "knot_probability": list[float], "gallery": dict[str, int], "prevalence": float | None, "same_pairs": float | None,
    "curves": dict[str, list[float]], "about": dict[str, str],
}  # fmt: skip
"""Types of the entries of calibration.json."""


@dataclass(frozen=True)
class Threshold:
    """A threshold of similarity with a promise about its errors, or the reason why there is none.

    Args:
        value: accept from this similarity on; None: refused.
        rate: the requested rate: largest share of errors. For the aim "precision" it is 1 - precision.
        smallest_rate: the smallest rate that the validation classes can promise.
        observed: the share of errors at the threshold on the validation classes; nan if refused.
        true_accepts: share of pairs of one class (or of queries of known classes) that are accepted; nan if refused.
        classes: validation classes that the promise is made from.
        reason: why there is no threshold; "" if there is one.
        aim: one of `ERROR_KINDS`.
    """

    value: float | None
    rate: float
    smallest_rate: float
    observed: float
    true_accepts: float
    classes: int
    reason: str = ""
    aim: str = "false accepts"

    def accepts(self, sim: Float[np.ndarray, "..."]) -> Bool[np.ndarray, "..."]:
        """Return which similarities reach the threshold; raises if there is none."""
        if self.value is None:
            raise LikewiseError(f"calibrate: there is no threshold: {self.reason}")
        return np.asarray(sim) >= self.value


@dataclass(frozen=True)
class Calibration:
    """Decisions from similarities: same or different, known or unknown, and the probability that a neighbour is right.

    Args:
        similarity: "cosine", or "euclidean" (minus the distance).
        pair: two images show the same class from this similarity on.
        unknown: an image is of a known class if its nearest neighbour in the gallery is at least this similar.
        knot_sim, knot_probability: the probability curve; linear between knots, constant beyond them.
        gallery: rows and classes of the gallery that `unknown` and the probability are for.
        prevalence: share of validation queries whose nearest neighbour has their class.
        same_pairs: share of the pairs of validation images that have the same class.
        curves: what the figures draw: name -> numbers.
        about: checkpoint, split and other words.
    """

    similarity: str
    pair: Threshold
    unknown: Threshold
    knot_sim: tuple[float, ...]
    knot_probability: tuple[float, ...]
    gallery: dict[str, int] = field(default_factory=dict)
    prevalence: float = math.nan
    same_pairs: float = math.nan
    curves: Mapping[str, list[float]] = field(default_factory=dict)
    about: dict[str, str] = field(default_factory=dict)

    def probability(self, sim: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
        """Return the probability that the nearest neighbour at this similarity has the class of the query."""
        return np.interp(np.asarray(sim, np.float64), self.knot_sim, self.knot_probability)

    def is_unknown(self, sim: Float[np.ndarray, "..."]) -> Bool[np.ndarray, "..."]:
        """Return which queries are of no known class, from the similarity of their nearest neighbour; raises if refused."""
        return ~self.unknown.accepts(sim)


@dataclass(frozen=True, eq=False)
class Validation:
    """Embeddings of validation classes: what a calibration is made from. Labels are 0 to C - 1."""

    z: Float[np.ndarray, "N D"]
    y: Int[np.ndarray, "N"]
    class_name: tuple[str, ...]
    similarity: str
    group: Int[np.ndarray, "N"] | None = None


def write_validation(folder: Path, held: Validation) -> None:
    """Write calibration.npz into a run folder."""
    group = {} if held.group is None else {"group": held.group}
    names, similarity = np.asarray(held.class_name, str), np.asarray(held.similarity, str)
    with atomic_write(Path(folder) / VALIDATION_FILE) as aside, aside.open("wb") as out:
        np.savez(out, z=held.z, y=held.y, class_name=names, similarity=similarity, **group)  # pyright: ignore[reportArgumentType]


def read_validation(folder: Path) -> Validation | None:
    """Return the validation embeddings in a run folder; None if `likewise calibrate` was not run."""
    file = Path(folder) / VALIDATION_FILE
    if not file.exists():
        return None
    kinds = {"z": ("f", 2), "y": ("iu", 1), "class_name": ("U", 1), "similarity": ("U", 0), "group": ("iu", 1)}
    stored = load_arrays(file, "run", REWRITE_HINT, kinds, need=False)
    z, y = stored.get("z", np.zeros(0)), stored.get("y", np.zeros(0))
    whole = {"class_name", "similarity"} <= stored.keys() and z.ndim == 2 and y.shape == z.shape[:1] and len(y) > 0
    whole &= stored.get("group", y).shape == y.shape and str(stored.get("similarity")) in ("cosine", "euclidean")
    if not whole or not np.isfinite(z).all() or not 0 <= y.min() <= y.max() < len(stored["class_name"]):
        raise LikewiseError(f"run: {file} is damaged (z, y and class_name must be of one calibration); {REWRITE_HINT}")
    return Validation(z, y, tuple(stored["class_name"].tolist()), str(stored["similarity"]), stored.get("group"))


def write_calibration(folder: Path, calibration: Calibration) -> None:
    """Write calibration.json into a run folder."""
    words = asdict(calibration)
    for part in (words, words["pair"], words["unknown"]):
        part |= {name: None for name, value in part.items() if isinstance(value, float) and math.isnan(value)}
    write_json(Path(folder) / CALIBRATION_FILE, words)


def read_calibration(folder: Path) -> Calibration | None:
    """Return the calibration in a run folder; None if `likewise calibrate` was not run."""
    file = Path(folder) / CALIBRATION_FILE
    if not file.exists():
        return None
    stored = read_json(file, "run", hint=REWRITE_HINT)
    try:
        if (wrong := misfit(stored, FILE_TYPES)) is not None:
            raise ValueError(f"the value of {wrong} has another type")
        parts = {
            name: Threshold(**with_nan(stored.pop(name), ("observed", "true_accepts"))) for name in ("pair", "unknown")
        }
        knots = {name: tuple(map(float, stored.pop(name))) for name in ("knot_sim", "knot_probability")}
        found = Calibration(**parts, **knots, **with_nan(stored, ("prevalence", "same_pairs")))
        check(found)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise LikewiseError(f"run: {file} is damaged ({error}); {REWRITE_HINT}") from None
    return found


def with_nan(stored: dict, names: tuple[str, ...]) -> dict:
    """Return the entries of a JSON object with nan for null, under these names."""
    return stored | {name: math.nan for name in names if stored.get(name, math.nan) is None}


def check(found: Calibration) -> None:
    """Raise ValueError unless the numbers of a calibration can be used."""
    if found.similarity not in ("cosine", "euclidean"):
        raise ValueError(f"similarity {found.similarity!r}")
    sim, probability = np.asarray(found.knot_sim), np.asarray(found.knot_probability)
    if not len(sim) or len(sim) != len(probability) or not np.isfinite(sim).all() or not (np.diff(sim) > 0).all():
        raise ValueError("knot_sim and knot_probability must be of one length, and knot_sim must increase")
    if not ((probability >= 0) & (probability <= 1)).all():
        raise ValueError("knot_probability must be between 0 and 1")
    for one in (found.pair, found.unknown):
        if not (one.reason if one.value is None else math.isfinite(one.value)):
            raise ValueError("a threshold must be a finite number, or have a reason")
        if any(map(math.isinf, (one.rate, one.smallest_rate, one.observed, one.true_accepts))):
            raise ValueError("the rates of a threshold must be finite")
        if one.aim not in ERROR_KINDS:
            raise ValueError(f"the aim of a threshold must be {' or '.join(ERROR_KINDS)}")
    if not all(math.isfinite(float(found.about.get(name, 0))) for name in ("own_accepts", "own_accepts_bound")):
        raise ValueError("own_accepts must be a finite number")
