"""Time of a label audit of features in memory, and of cleanlab's way on the same features.

    python benchmarks/label_speed.py                       # 16,000 samples, 1,280 features, 200 classes
    python benchmarks/label_speed.py --features FILE.npz   # x and y of a file

With `--peer`, cleanlab is timed too: out-of-sample probabilities of a logistic regression, as its documentation recommends.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from measure import parse_with_quick
from rivals import cleanlab_scores

import likewise
from likewise.core.devices import choose_device
from likewise.labels.class_overlap import class_overlap
from likewise.score.metrics.detection import detection


def simulate(samples: int, features: int, classes: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return features of overlapping classes with correlated dimensions, and true labels."""
    rng = np.random.default_rng(seed)
    y = np.arange(samples) % classes
    centre, mix = rng.normal(size=(classes, 64)), rng.normal(size=(64, features)).astype(np.float32)
    x = 0.6 * centre[y] + rng.normal(size=(samples, 64))
    return x.astype(np.float32) @ mix + 2 * rng.normal(size=(samples, features)).astype(np.float32), y


def measure(x: np.ndarray, y: np.ndarray, wrong: float, device: str | None, peer: bool) -> dict:
    """Return seconds and average precision with a share of wrong labels."""
    rng = np.random.default_rng(1)
    classes, bad = int(y.max()) + 1, rng.random(len(y)) < wrong
    given = np.where(bad, (y + rng.integers(1, classes, len(y))) % classes, y)
    began = time.perf_counter()
    found = likewise.audit_labels(x, given, features=x, device=device)
    labels = time.perf_counter() - began
    chosen = choose_device(device)
    began = time.perf_counter()
    class_overlap(torch.as_tensor(x).to(chosen), torch.as_tensor(given).to(chosen)).probability.cpu()
    result = {
        "samples": len(x), "features": x.shape[1], "classes": classes, "device": str(chosen),
        "threads": torch.get_num_threads(), "labels_seconds": labels, "classes_seconds": time.perf_counter() - began,
        "noise_rate": found.noise_rate, "wrong": float(bad.mean()),
        "AP": detection(torch.as_tensor(found.score), torch.as_tensor(bad)).AP,
    }  # fmt: skip
    if peer:
        began = time.perf_counter()
        scores, _ = cleanlab_scores(given, {"regression": (x - x.mean(0)) / x.std()}, x)
        result["cleanlab_seconds"] = time.perf_counter() - began
        result["cleanlab_AP"] = max(
            detection(torch.as_tensor(score), torch.as_tensor(bad)).AP for score in scores.values()
        )
    return result


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--features", type=Path, help="file with x and y, in place of simulated features")
    parser.add_argument("--samples", type=int, default=16_000)
    parser.add_argument("--dimensions", type=int, default=1_280)
    parser.add_argument("--classes", type=int, default=200)
    parser.add_argument("--wrong", type=float, default=0.1)
    parser.add_argument("--peer", action="store_true", help="also time cleanlab")
    parser.add_argument("--device")
    return parse_with_quick(parser, words, samples=300, dimensions=24, classes=5)


def main(words: Sequence[str] | None = None) -> None:
    given = parse(words)
    if given.features:
        with np.load(given.features) as data:
            x, y = data["x"].astype(np.float32), data["y"]
    else:
        x, y = simulate(given.samples, given.dimensions, given.classes)
    print(json.dumps(measure(x, y, given.wrong, given.device, given.peer), indent=1))


if __name__ == "__main__":
    main()
