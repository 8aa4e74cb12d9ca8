"""Features with known wrong labels, for benchmarks: real sets and simulated worlds, subsampled, with injected noise."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from likewise.noise import Uniform

UNIFORM_SHARES = (0.0, 0.05, 0.1, 0.2, 0.3, 0.5)
WORLD_SHARES = (*UNIFORM_SHARES, 0.7, 0.9)
SEMANTIC_SHARE = 0.2
SIMILAR_CLASSES = 3
"""Number of nearest classes among which a semantic error falls."""

VARIANTS = ("plain", "long tail", "copies")
COPY_JITTER = 0.1
"""Standard deviation of the noise that is added to copies, as a share of that of the features."""

TAIL_RATIO = 50
"""Size of the largest class of a long tail over that of the smallest, where the data have enough samples."""

LONG_TAIL_SIZES = (400, 200, 120, 80, 60, 40, 30, 25, 20, 18, 16, 15, 15, 12, 10, 8, 6, 5, 4, 3, 3, 2, 2, 2, 2)

NO_CLASS = -1
"""True label of a sample that belongs to no class."""


@dataclass(frozen=True, eq=False)
class LabelSet:
    """Features with true labels, and further labels from people by name."""

    x: np.ndarray
    true: np.ndarray
    human: dict[str, np.ndarray]
    base: np.ndarray  # the original sample of every row; copies share it


@dataclass(frozen=True)
class Cell:
    """One experiment: a set, a variant of it, a kind of noise and a seed."""

    data: str
    variant: str
    noise: str
    seed: int

    @property
    def name(self) -> str:
        return f"{self.data}, {self.variant}, {self.noise}, {self.seed}"


@dataclass(frozen=True, eq=False)
class Labelled:
    """What a label judge sees (features and class numbers without gaps), and which labels are wrong."""

    x: np.ndarray
    given: np.ndarray
    true: np.ndarray
    base: np.ndarray
    wrong: np.ndarray


def read_features(file: Path) -> LabelSet:
    """Return the features x and labels y of a file, and its human labels (arrays y_NAME)."""
    with np.load(file) as data:
        human = {name.removeprefix("y_"): data[name] for name in data.files if name.startswith("y_")}
        x, y = data["x"].astype(np.float32), data["y"]
    return LabelSet(x, y, human, np.arange(len(y)))


def simulate_world(name: str, seed: int) -> LabelSet:
    """Return a simulated world: Gaussian classes of unit deviation, whose centres are drawn with another deviation."""
    rng = np.random.default_rng(seed)
    sizes, dim, separation, copies, strangers = {
        "balanced": ([44] * 25, 32, 0.5, 1, 0.0),
        "balanced, strong": ([44] * 25, 64, 0.7, 1, 0.0),
        "long tail": (LONG_TAIL_SIZES, 32, 0.5, 1, 0.0),
        "long tail, strong": (LONG_TAIL_SIZES, 64, 0.7, 1, 0.0),
        "wide": ([30] * 20, 1024, 0.3, 1, 0.0),
        "classes of 2 to 5": (rng.integers(2, 6, 150), 64, 1.0, 1, 0.0),
        "copies": ([30] * 20, 128, 0.4, 2, 0.0),
        "open set": ([44] * 25, 64, 0.7, 1, 0.1),
        "two classes": ([200, 200], 16, 0.7, 1, 0.0),
    }[name]
    y = np.repeat(np.arange(len(sizes)), sizes)
    y = np.concatenate([y, np.full(round(strangers * len(y)), NO_CLASS)])
    centres = separation * rng.standard_normal((len(sizes), dim))
    alone = (separation**2 + 1) ** 0.5 * rng.standard_normal((len(y), dim))
    x = np.where(y[:, None] == NO_CLASS, alone, centres[y] + rng.standard_normal((len(y), dim)))
    return add_copies(LabelSet(x.astype(np.float32), y, {}, np.arange(len(y))), np.full(len(y), copies), rng)


WORLDS = (
    "balanced", "balanced, strong", "long tail", "long tail, strong", "wide", "classes of 2 to 5", "copies", "open set",
    "two classes",
)  # fmt: skip


def add_copies(one: LabelSet, times: np.ndarray, rng: np.random.Generator) -> LabelSet:
    """Return the set with every sample as often as `times` says, all but its first with a small jitter."""
    rows = np.repeat(np.arange(len(one.true)), times)
    again = np.append(False, rows[1:] == rows[:-1])
    x = one.x[rows]
    jitter = COPY_JITTER * (x - x.mean(0)).std() * rng.standard_normal(x.shape, np.float32)
    return LabelSet(
        x + again[:, None] * jitter, one.true[rows], {k: v[rows] for k, v in one.human.items()}, one.base[rows]
    )


def take_rows(one: LabelSet, rows: np.ndarray) -> LabelSet:
    """Return some rows of a set."""
    return LabelSet(one.x[rows], one.true[rows], {k: v[rows] for k, v in one.human.items()}, one.base[rows])


def draw_rows(
    true: np.ndarray, variant: str, max_samples: int, max_classes: int, rng: np.random.Generator
) -> np.ndarray:
    """Return sorted rows of at most so many classes and samples; for the long tail with class sizes that fall exponentially."""
    size = np.bincount(true)
    classes = rng.permutation(np.flatnonzero(size > 1))[:max_classes]
    rows = rng.permutation(np.flatnonzero(np.isin(true, classes)))
    if variant != "long tail":
        return np.sort(rows[: max_samples // (2 if variant == "copies" else 1)])
    largest = int(size[classes].max())
    share = TAIL_RATIO ** -np.linspace(0, 1, len(classes))
    wished = np.maximum(2, largest * share)
    while np.minimum(wished, size[classes]).sum() > max_samples:
        wished = np.maximum(2, 0.9 * wished)
    return np.sort(np.concatenate([rows[true[rows] == c][: int(n)] for c, n in zip(classes, wished)]))


def inject_noise(one: LabelSet, noise: str, rng: np.random.Generator) -> np.ndarray:
    """Return given labels; copies of a sample share theirs, also when it is wrong. Samples of no class get any label."""
    if noise.startswith("human"):
        return one.human[noise.removeprefix("human ")]
    kind, share = noise.split()
    _, first, again = np.unique(one.base, return_index=True, return_inverse=True)
    true = one.true[first]
    strangers = np.flatnonzero(true == NO_CLASS)
    true = true.copy()
    true[strangers] = rng.choice(np.unique(true[true != NO_CLASS]), len(strangers))
    if kind == "uniform":
        return Uniform(float(share))(true, rng)[again]
    return swap_similar(one.x[first], true, float(share), rng)[again]


def swap_similar(x: np.ndarray, true: np.ndarray, share: float, rng: np.random.Generator) -> np.ndarray:
    """Return labels of which a share is one of the classes with the most similar centres, by the cosine of centred centres."""
    classes, place = np.unique(true, return_inverse=True)
    centres = np.stack([x[place == c].mean(0) for c in range(len(classes))]) - x.mean(0)
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    similarity = centres @ centres.T
    np.fill_diagonal(similarity, -np.inf)
    near = np.argsort(-similarity, axis=1)[:, : min(SIMILAR_CLASSES, len(classes) - 1)]
    rows = rng.permutation(len(true))[: round(share * len(true))]
    given = true.copy()
    given[rows] = classes[near[place[rows], rng.integers(near.shape[1], size=len(rows))]]
    return given


def prepare(one: LabelSet, cell: Cell, max_samples: int, max_classes: int) -> Labelled:
    """Return the features and labels of a cell. The same seed chooses the same samples for every kind of noise."""
    rng = np.random.default_rng([cell.seed, VARIANTS.index(cell.variant)])
    if cell.data not in WORLDS:
        one = take_rows(one, draw_rows(one.true, cell.variant, max_samples, max_classes, rng))
    if cell.variant == "copies":
        one = add_copies(one, rng.integers(1, 4, len(one.true)), rng)
    given = inject_noise(one, cell.noise, np.random.default_rng([cell.seed, 7]))
    order = np.random.default_rng(cell.seed).permutation(len(given))  # rows sorted by class must not help anyone
    return Labelled(
        one.x[order],
        np.unique(given, return_inverse=True)[1][order],
        one.true[order],
        one.base[order],
        (given != one.true)[order],
    )


def list_cells(data: str, human: tuple[str, ...], seeds: int) -> Iterator[Cell]:
    """Yield the cells of a set. Simulated worlds have no variants, and noise up to 90 %."""
    shares = WORLD_SHARES if data in WORLDS else UNIFORM_SHARES
    shares = [
        share for share in shares if data != "two classes" or share < 0.5
    ]  # beyond, right and wrong are exchanged
    noises = [*(f"uniform {share}" for share in shares), f"semantic {SEMANTIC_SHARE}", *(f"human {k}" for k in human)]
    for seed in range(seeds):
        for variant in VARIANTS[:1] if data in WORLDS else VARIANTS:
            yield from (Cell(data, variant, noise, seed) for noise in noises)
