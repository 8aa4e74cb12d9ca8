"""Retrieval scores side by side with pytorch-metric-learning: time, peak memory, and the same numbers.

    python benchmarks/evaluate.py [--rows 60502] [--dim 512] [--device cuda] [--out result.json]
    python benchmarks/evaluate.py --million [--device cuda]

Every contender runs in a process of its own on the same embeddings, one after another. Memory is the peak above what was held
when the embeddings were ready (on a CPU the process's, read from /proc: Linux only; on a GPU torch's). On a CPU the peer runs at
its best setting (faiss, k="max_bin_count") and, on fewer rows (its memory grows with their square), at its default; on a GPU
with its own torch search. `--million` ranks a million rows, on a CPU from a memory-mapped file and for `--queries` of them.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

from measure import Clock, NotMeasured, alone, parse_with_quick, ratio

NAMES = {"P@1": "precision_at_1", "RP": "r_precision", "MAP@R": "mean_average_precision_at_r"}
DEEP = ("R@1", "R@100", "MAP@R")


def embeddings(rows: int, dim: int, per_class: int, device: str = "cpu"):
    """Classes of `per_class` around random centres, as spread as in a half-trained network (P@1 0.94 at 60,000 rows)."""
    import torch

    g = torch.Generator(device).manual_seed(0)
    y = torch.arange(rows, device=device) // per_class
    z = torch.randn(int(y[-1]) + 1, dim, generator=g, device=device)[y]
    for part in z.split(2**16):
        part += 2 * torch.randn(part.shape, generator=g, device=device)
        part /= part.norm(dim=1, keepdim=True)
    return z, y


def score(z, y, names, **how) -> dict:
    from likewise.metrics import metric, reach

    from likewise.core.retrieval.ranking import rank

    wanted = reach(names)
    found = rank(z, y, k=1, depth=wanted.k, all_hits=wanted.all_hits, **how)
    return {name: metric(name)(found).nanmean().item() for name in names}


def likewise(z, y) -> dict:
    return score(z, y, NAMES)


def likewise_all_hits(z, y) -> dict:
    return score(z, y, [*NAMES, "mAP", "MRR"])


def likewise_4gb(z, y) -> dict:
    return score(z, y, DEEP, budget=4 * 2**30)


def likewise_half_gb(z, y) -> dict:
    return score(z, y, DEEP)


def peer_best(z, y) -> dict:
    return peer(z, y, "max_bin_count")


def peer_default(z, y) -> dict:
    return peer(z, y, None)


def peer_torch(z, y) -> dict:
    from pytorch_metric_learning.distances import CosineSimilarity
    from pytorch_metric_learning.utils.inference import CustomKNN

    return peer(z, y, "max_bin_count", knn_func=CustomKNN(CosineSimilarity(), batch_size=4096), device=z.device)


def peer(z, y, k, **how) -> dict:
    from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator

    scores = AccuracyCalculator(include=tuple(NAMES.values()), k=k, **how).get_accuracy(z, y)
    return {name: float(scores[other]) for name, other in NAMES.items()}


def measure(work, rows: int, dim: int, per_class: int, device: str) -> dict:
    z, y = embeddings(rows, dim, per_class, device)
    work(*embeddings(min(rows, 2000), dim, per_class, device))  # imports and first-call costs do not count
    clock = Clock(device)
    values = work(z, y)
    return {**clock.stop(), "values": values}


def from_disk(rows: int, dim: int, per_class: int, queries: int) -> dict:
    """Rank all rows, which lie in a file, for some of them."""
    import numpy as np
    import torch

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "z.npy"
        z, y = embeddings(rows, dim, per_class)
        np.save(file, z.numpy())
        del z
        mapped = torch.as_tensor(np.load(file, mmap_mode="c"))
        q = torch.arange(0, rows, rows // queries)[:queries]
        clock = Clock("cpu")
        values = score(mapped[q], y[q], DEEP, gallery_z=mapped, gallery_y=y, own=q, budget=2**30)
        return {**clock.stop(), "values": values}


def contests(options) -> list[tuple[int, list[tuple[str, tuple]]]]:
    """Rows, and the contenders on them: a name, and the work with its arguments."""
    shape, million = (options.dim, options.per_class), options.million_rows
    if options.million and options.device == "cpu":
        name = f"{options.queries} queries, on disk"
        return [(million, [(name, (from_disk, million, *shape, options.queries))])]
    if options.million:
        races = [(million, [likewise_4gb, likewise_half_gb])]
    elif options.device == "cpu":
        races = [(options.rows, [likewise, likewise_all_hits, peer_best])]
        races += [(options.default_rows, [likewise, peer_best, peer_default])]
    else:
        races = [(options.rows, [likewise, likewise_all_hits, peer_torch])]
    return [
        (rows, [(work.__name__, (measure, work, rows, *shape, options.device)) for work in works])
        for rows, works in races
    ]


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=60_502)
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--per-class", type=int, default=5)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--default-rows", type=int, default=10_000, help="rows against the peer's default (CPU)")
    parser.add_argument("--million", action="store_true", help="a million rows in place of the comparison")
    parser.add_argument("--million-rows", type=int, default=10**6, help="another number of them")
    parser.add_argument("--queries", type=int, default=20_000, help="how many of the million rows are queries (CPU)")
    parser.add_argument("--out", help="JSON file for the result")
    return parse_with_quick(parser, words, rows=200, dim=8, default_rows=100, million_rows=500, queries=20)


def main(words: Sequence[str] | None = None) -> None:
    options, result = parse(words), []
    for rows, contenders in contests(options):
        print(f"{rows} x {options.dim}, {options.per_class} of a class, {options.device}")
        first = None
        for name, job in contenders:
            result.append({"rows": rows, "dim": options.dim, "device": options.device, "who": name})
            try:
                found = alone(*job, here=options.quick)
            except NotMeasured as reason:
                print(f"  {name:18s} {reason}")
                continue
            result[-1] |= found
            first = first or found
            seconds, peak = (ratio(found[key], first[key]) for key in ("seconds", "peak_mb"))
            values = "  ".join(f"{k} {v:.6f}" for k, v in found["values"].items())
            print(
                f"  {name:18s} {found['seconds']:8.2f} s ({seconds:>6})  {found['peak_mb']:7.0f} MB ({peak:>6}),"
                f" {found['total_mb']:.0f} in all  {values}"
            )
    if options.out:
        with open(options.out, "w", encoding="utf-8") as file:
            json.dump(result, file, indent=2)


if __name__ == "__main__":
    main()
