"""Retrieval scores side by side with pytorch-metric-learning: time, peak memory, and the same numbers.

    python benchmarks/evaluate.py [--rows 60000] [--dim 512] [--out result.json]

Every contender runs in a process of its own on the same embeddings, one after another; memory is the process's peak above
what it held when the embeddings were ready (read from /proc: Linux only). The peer runs at its best setting (faiss,
k="max_bin_count") and, on fewer rows (its memory grows with their square), at its default.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import time

NAMES = {"P@1": "precision_at_1", "RP": "r_precision", "MAP@R": "mean_average_precision_at_r"}


def embeddings(rows: int, dim: int, per_class: int):
    """Classes of `per_class` around random centres, as spread as in a half-trained network (P@1 0.94 at 60,000 rows)."""
    import torch

    g = torch.Generator().manual_seed(0)
    y = torch.arange(rows) // per_class
    z = torch.randn(int(y[-1]) + 1, dim, generator=g)[y] + 2 * torch.randn(rows, dim, generator=g)
    return torch.nn.functional.normalize(z, dim=1), y


def likewise(z, y) -> dict:
    from likewise.metrics import metric
    from likewise.search import rank

    found = rank(z, y, k=1)
    return {name: metric(name)(found).nanmean().item() for name in NAMES}


def peer_best(z, y) -> dict:
    return peer(z, y, "max_bin_count")


def peer_default(z, y) -> dict:
    return peer(z, y, None)


def peer(z, y, k) -> dict:
    from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator

    scores = AccuracyCalculator(include=tuple(NAMES.values()), k=k).get_accuracy(z, y)
    return {name: float(scores[other]) for name, other in NAMES.items()}


def measure(work, rows: int, dim: int, per_class: int, pipe) -> None:
    z, y = embeddings(rows, dim, per_class)
    work(*embeddings(200, dim, per_class))  # imports and first-call costs are nobody's score
    before = forget_peak()
    started = time.perf_counter()
    values = work(z, y)
    seconds = time.perf_counter() - started
    pipe.send({"seconds": seconds, "peak_mb": (memory("VmHWM") - before) / 2**20, "values": values})


def forget_peak() -> int:
    """Start the kernel's high-water mark anew (making the embeddings raised it), and return what is held now."""
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    return memory("VmRSS")


def memory(name: str) -> int:
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(name))


def alone(work, rows: int, dim: int, per_class: int) -> dict | None:
    """The measurement of one contender in a fresh process; None if it did not survive."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=measure, args=(work, rows, dim, per_class, theirs))
    child.start()
    theirs.close()
    try:
        return ours.recv()
    except EOFError:
        return None
    finally:
        child.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--per-class", type=int, default=5)
    parser.add_argument(
        "--default-rows", type=int, default=10_000, help="rows for the comparison with the peer's default"
    )
    parser.add_argument("--out", help="write the result here as JSON")
    options = parser.parse_args()
    races = [(options.rows, [likewise, peer_best]), (options.default_rows, [likewise, peer_best, peer_default])]
    result = []
    for rows, contenders in races:
        print(f"{rows} x {options.dim}, {options.per_class} of a class")
        first = None
        for work in contenders:
            found = alone(work, rows, options.dim, options.per_class)
            result.append({"rows": rows, "dim": options.dim, "who": work.__name__, **(found or {"failed": True})})
            if found is None:
                print(f"  {work.__name__:14s} did not survive (out of memory?)")
                continue
            first = first or found
            values = "  ".join(f"{k} {v:.6f}" for k, v in found["values"].items())
            print(
                f"  {work.__name__:14s} {found['seconds']:8.2f} s ({found['seconds'] / first['seconds']:5.1f}x)"
                f"  {found['peak_mb']:8.0f} MB ({found['peak_mb'] / first['peak_mb']:5.1f}x)  {values}"
            )
    if options.out:
        with open(options.out, "w", encoding="utf-8") as file:
            json.dump(result, file, indent=2)


if __name__ == "__main__":
    main()
