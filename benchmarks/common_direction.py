"""R@1 of embeddings that share a large common component: exact ranking, float64 and float32 products.

    python benchmarks/common_direction.py [--rows 1200] [--dims 16 128 512] [--out result.json]

Cosines then differ by less than arithmetic resolves. `offset` is the common component of a coordinate, in standard deviations
of the noise around it. The float64 reference ranks unit vectors by distance after their mean is subtracted, which loses no
digits.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence

import numpy as np
from measure import parse_with_quick

OFFSETS = (0, 100, 1_000, 3_000, 10_000, 30_000)


def embeddings(rows: int, dim: int, offset: float) -> tuple[np.ndarray, np.ndarray]:
    """Return float32 vectors of classes of eight, all moved by the same vector, and their labels."""
    rng, y = np.random.default_rng(0), np.arange(rows) % (rows // 8)
    spread = (rng.normal(size=(rows // 8, dim))[y] + 0.6 * rng.normal(size=(rows, dim))) / np.sqrt(1.36)
    direction = rng.normal(size=dim)
    return (spread + offset * np.sqrt(dim) * direction / np.linalg.norm(direction)).astype(np.float32), y


def measure(rows: int, dim: int, offset: float) -> dict:
    """Return the spread of the directions, and R@1 by every arithmetic."""
    import torch
    from likewise.metrics import metric

    from likewise.core.retrieval.ranking import rank

    x, y = embeddings(rows, dim, offset)

    def exact(similarity: str) -> float:
        found = rank(torch.as_tensor(x), torch.as_tensor(y), k=1, similarity=similarity)
        return float(metric("R@1")(found).nanmean())

    def first_is_right(similarity: np.ndarray) -> float:
        np.fill_diagonal(similarity, -np.inf)
        return float((y[similarity.argmax(1)] == y).mean())

    unit = x.astype(np.float64) / np.linalg.norm(x.astype(np.float64), axis=1, keepdims=True)
    centred = unit - unit.mean(0)
    single = x / np.linalg.norm(x, axis=1, keepdims=True)
    return {
        "dim": dim,
        "offset": offset,
        "spread": 1 - float((unit.mean(0) ** 2).sum()),
        "exact cosine": exact("cosine"),
        "float64 cosine": first_is_right(2 * centred @ centred.T - (centred**2).sum(1)),
        "float32 cosine": first_is_right(single @ single.T),
        "exact euclidean": exact("euclidean"),
    }


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_200)
    parser.add_argument("--dims", type=int, nargs="+", default=[16, 128, 512])
    parser.add_argument("--out", help="JSON file for the result")
    return parse_with_quick(parser, words, rows=160, dims=[16])


def main(words: Sequence[str] | None = None) -> None:
    options = parse(words)
    result = [measure(options.rows, dim, offset) for dim in options.dims for offset in OFFSETS]
    names = list(result[0])
    print("| " + " | ".join(names) + " |\n|" + "---:|" * len(names))
    for one in result:
        cells = [
            f"{one['dim']}",
            f"{one['offset']:,}",
            f"{one['spread']:.1e}",
            *(f"{one[name]:.3f}" for name in names[3:]),
        ]
        print("| " + " | ".join(cells) + " |")
    if options.out:
        with open(options.out, "w", encoding="utf-8") as file:
            json.dump(result, file, indent=2)


if __name__ == "__main__":
    main()
