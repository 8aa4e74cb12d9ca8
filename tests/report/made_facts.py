"""Facts about runs that never were: clusters on a plane, with everything that a page can show."""

from dataclasses import replace
from pathlib import Path

import numpy as np
from likewise.relevance import SharedLabels
from made_calibration import make_calibration, threshold
from PIL import Image
from scipy.cluster.hierarchy import leaves_list, linkage

from likewise.report import section as f
from likewise.report.report_target import by_class
from likewise.report.sections import noise
from likewise.report.sections.calibration import summarise
from likewise.report.sections.compared import ComparedRuns
from likewise.report.sections.confusion import Confused, Confusion
from likewise.report.sections.curves import Curve
from likewise.report.sections.distances import Distances
from likewise.report.sections.galleries import ranked_query
from likewise.report.sections.labels import count_labels
from likewise.report.sections.spectrum import Spectrum
from likewise.report.sections.tree import Tree
from likewise.score.error_overlap import ErrorOverlap, Named

SCRIPT = "<script>alert(1)</script>"
NEAR = 8


def sure(mean: float, low: float, high: float) -> f.Score:
    return f.Score(mean, low, high, f"{100 * mean:.1f} % ({100 * low:.1f} to {100 * high:.1f})")


def bare(name: str = "one", scores: dict | None = None, pool: int = -1, **more) -> f.RunView:
    """A run of which only the scores are known."""
    return f.RunView(name, pool, "", {}, scores or {}, "R@1", **more)


def coloured(rng: np.random.Generator, label: int, noisy: bool) -> Image.Image:
    if noisy:
        return Image.fromarray(rng.integers(0, 256, (128, 128, 3), dtype=np.uint8))
    tall = rng.integers(60, 128)
    return Image.new("HSV", (128, int(tall)), (label * 37 % 256, 150, int(rng.integers(120, 230)))).convert("RGB")


def pool_of(samples: int, classes: int, pictures: int, noisy: bool = False) -> f.Pool:
    rng = np.random.default_rng(0)
    label = np.sort(np.arange(samples) % classes)
    names = tuple(f"{i:03d}.{SCRIPT if i == 1 else 'some bird'} {i}" for i in range(classes))
    order = f.Grouping("order", ("song birds", "water birds", "owls"), np.arange(classes) % 3)
    chosen = rng.permutation(samples)[:pictures]
    picture = {int(place): coloured(rng, int(label[place]), noisy) for place in chosen}
    files = tuple(f"bird_{i:06d}.jpg" for i in range(samples))
    return f.Pool("birds", "test", np.arange(samples) + 1000, label, names, (order,), files, picture)


def neighbours(pool: f.Pool, shift: int) -> tuple[np.ndarray, np.ndarray]:
    """The samples that follow in the table, some of them of the next class."""
    places = np.arange(len(pool.label))
    near = (places[:, None] + np.arange(1, NEAR + 1) * shift) % len(places)
    return near, np.linspace(0.95, 0.5, NEAR) + np.zeros((len(places), 1))


def asked(pool: f.Pool, place: int, near: np.ndarray, sim: np.ndarray) -> f.RankedQuery:
    right = pool.label[near[place]] == pool.label[place]
    answers = (f.Neighbour(int(n), float(s), bool(r)) for n, s, r in zip(near[place], sim[place], right, strict=True))
    return f.RankedQuery(int(place), float(right.mean()), tuple(answers))


def clusters(pool: f.Pool, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (rng.normal(0, 8, (len(pool.class_name), 2))[pool.label] + rng.normal(0, 0.8, (len(pool.label), 2))).astype(
        np.float32
    )


def confusion_of(pool: f.Pool, size: int = 24) -> Confusion:
    size = min(size, len(pool.class_name))
    matrix = np.eye(size) * 0.7 + np.random.default_rng(0).dirichlet(np.full(size, 0.1), size) * 0.3
    pairs = tuple(Confused(i, i + 1, 10 - i, 0.3 - i / 100) for i in range(min(9, size - 1)))
    return Confusion(pairs, np.arange(size), matrix)


def noise_of(rng: np.random.Generator) -> noise.LabelNoise:
    edge, right = np.linspace(0, 1, 21), np.round(300 * np.exp(-(np.linspace(-2, 3, 20) ** 2))).astype(int)
    passes = tuple(
        noise.SuspicionHistogram(
            f"after pass {i}, step {50 * i}", edge, right, right[::-1] // 3, tuple(np.linspace(1, 0, 20).tolist()), 0.6
        )
        for i in (1, 2, 3)
    )
    inspected = np.linspace(0, 1, 40)
    found = noise.Detection("PRISM", inspected, 1 - (1 - inspected) ** 4, 0.71, 0.93)
    flagged = tuple(
        noise.FlaggedLabel(
            i,
            SCRIPT,
            "wren",
            0.9 - i / 100,
            0.1,
            i % 4 != 0,
            f"file_{i}.jpg",
            coloured(rng, i, False) if i % 3 else None,
        )
        for i in range(20)
    )
    names = tuple(f"class {i}" for i in range(12))
    return noise.LabelNoise(
        "Uniform(rate=0.3)", "PRISM()", 0.3, passes, (found,), flagged, names, np.eye(12) * 0.7 + 0.025, ("A note.",)
    )


def tree_of(pool: f.Pool) -> Tree:
    means = np.random.default_rng(1).normal(size=(min(80, len(pool.class_name)), 4))
    link = linkage(means, "average")
    return Tree(link, np.arange(len(means)), leaves_list(link), 0, "By the means of classes.")


def run_of(name: str, pool: f.Pool, seed: int, shift: int, mean: float) -> f.RunView:
    rng, steps = np.random.default_rng(seed), list(range(0, 1000, 25))
    near, sim = neighbours(pool, shift)
    some = [asked(pool, int(place), near, sim) for place in rng.permutation(list(pool.images) or [0])[:30]]
    loss = [2 * np.exp(-step / 300) + seed / 10 + rng.normal(0, 0.05) for step in steps]
    recall = [0.2 + 0.4 * (1 - np.exp(-step / 300)) + seed / 50 for step in steps[::8]]
    curves = (
        Curve("loss", "MultiSimilarity", steps, [*loss[:-1], float("nan")]),
        Curve("validation", "R@1", steps[::8], recall), Curve("validation", "MAP@R", steps[::8], [v / 2 for v in recall]),
        Curve("learning rate", "network", steps, [1e-4 * (1 - step / 1000) for step in steps]),
    )  # fmt: skip
    centres = np.linspace(-0.5, 1, 61)[:-1]
    hill = [np.exp(-((centres - at) ** 2) / 0.03) for at in (0.7 - seed / 20, 0.15)]
    names = {"MAP@R": mean / 2, "R@1": mean, "R@2": mean + 0.1}
    scores = {
        k: f.Score(v, v - 0.02, v + 0.02, f"{v:.1%} ({v - 0.02:.1%} to {v + 0.02:.1%})".replace("%", " %"))
        for k, v in names.items()
    }
    if seed == 2:  # a long reason beside the scale of the other run
        reason = (
            "the hits are those of less than one of 50 classes, so that another of them could change the mean a lot"
        )
        scores["R@2"] = f.Score(mean + 0.1, None, None, f"{100 * mean + 10:.1f} %", reason)
    value = np.exp(-np.arange(64) / (10 + 10 * seed))
    found = {
        "curves": curves, "map": {"PCA": clusters(pool, 10), "t-SNE": clusters(pool, 20 + seed)},
        "galleries": {"worst": tuple(some[:20]), "best": tuple(some[10:]), "each class": tuple(some)},
        "confusion": confusion_of(pool), "spectrum": Spectrum(value / value.sum(), 0.31 * seed), "calibration": calibrated(seed),
        "distances": Distances(
            "cosine similarity", np.linspace(-0.5, 1, 61), *(one / one.sum() for one in hill), 0.21, (5000, 90000)
        ),
        "noise": noise_of(rng), "tree": tree_of(pool),
    }  # fmt: skip
    return f.RunView(
        name, 0, "MultiSimilarity on birds, ResNet-50, 20 passes", {"loss": "MultiSimilarity(alpha=2)", "batch": "112"},
        scores | {"rho": f.Score(0.31, None, None, "0.3100")}, "MAP@R", found, near, sim, ("It was stopped early.",),
    )  # fmt: skip


def made_facts(samples: int = 600, classes: int = 40, pictures: int = 200, noisy: bool = False) -> f.Facts:
    pool = pool_of(samples, classes, pictures, noisy)
    runs = run_of("plain", pool, 1, 1, 0.5), run_of("robust", pool, 2, 2, 0.62)
    places = list(pool.images)[:12] or [0]
    queries = tuple(tuple(asked(pool, place, run.near, run.near_sim) for run in runs) for place in places)
    heat = np.random.default_rng(0).random((2, 30)) < 0.6
    named = Named(tuple(f"class {i}" for i in range(30)), heat, float("nan"), 0.6, 0.2)
    overlap = ErrorOverlap(
        ("plain", "robust"), ("MS", "MS + PRISM"), 18, classes, {"count": named, "rate": named}, Path(".")
    )
    compared = (ComparedRuns(0, 1, "R@1", "robust is better by 12.0 points of R@1 (9.1 to 14.8).", queries),)
    return f.Facts(
        f"Birds, {SCRIPT}",
        runs,
        (pool,),
        {"compared": compared, "overlap": overlap},
        ("Something to know.",),
        "likewise 1, likewise report a b",
    )


def calibrated(seed):
    """The decisions of a run; the second run has no threshold for unknown images."""
    share = np.linspace(0, 1, 30)
    curves = {
        f"{name}_{what}": value.tolist()
        for name in ("pair", "unknown")
        for what, value in (
            ("true_accepts", 1 - share**4), ("errors", (1 - share) ** 6), ("bound", np.maximum((1 - share) ** 5, 0.004)),
        )
    }  # fmt: skip
    curves |= {"reliability_predicted": [0.1, 0.5, 0.9], "reliability_observed": [0.15, 0.5, 0.85]}
    curves |= {"reliability_share": [0.3, 0.3, 0.4], "calibration_error": [0.03]}
    return summarise(make_calibration(unknown=threshold(None if seed == 2 else 0.7), curves=curves))


NAMES = ("blue", "dress", SCRIPT, "red", "shirt")
SETS = ((1, 3), (0, 1), (2, 3), (0, 4), (1, 2, 3))


def small_pool() -> f.Pool:
    """Six samples: dress red, dress blue, script red, shirt blue, dress script red, dress red."""
    label = np.array([0, 1, 2, 3, 4, 0])
    names = tuple("|".join(NAMES[one] for one in own) for own in SETS)
    return f.Pool("shop", "test", np.arange(6), label, names, (), None, {}, NAMES, SETS)


def label_facts(samples: int = 60, pictures: int = 20) -> f.Facts:
    """Facts of one run on samples with several labels, with galleries, labels, confusions and a map."""
    made = made_facts(samples, len(SETS), pictures)
    names = tuple("|".join(NAMES[one] for one in own) for own in SETS)
    pool = replace(made.pools[0], class_name=names, groupings=(), label_name=NAMES, label_sets=SETS)
    run, relevance = made.runs[0], by_class(SharedLabels(SETS))
    some = list(pool.images)[:8]
    queries = tuple(ranked_query(place, 0.5, pool.label, run.near, run.near_sim, relevance) for place in some)
    lines = count_labels(pool, np.arange(samples), run.near[:, 0])
    confusion = Confusion((Confused(1, 2, 3, 0.2, (some[0], some[1])),), np.array([1, 2]), np.eye(2) * 0.5)
    found = {"map": run.found["map"], "galleries": {"worst": queries, "each label": queries}, "labels": lines,
             "confusion": confusion}  # fmt: skip
    return f.Facts("Shop", (replace(run, found=found),), (pool,))
