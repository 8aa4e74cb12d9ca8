"""k-means side by side with scikit-learn's and faiss's: time, peak memory, and how well the clusters fit the classes.

    python benchmarks/clustering.py [--rows 5924] [--dim 512] [--per-class 59] [--device cuda] [--out result.json]

Every contender runs in a process of its own on the same embeddings, as many clusters as classes, the same number of iterations,
one start; several seeds, one after another. scikit-learn starts with greedy k-means++ or with random points, faiss with random
points (all of them take part: no subsampling). The peers stay on the CPU. Memory is the peak above what was held before: of the
process (read from /proc: Linux only), or of the device. SOP's size: --rows 60502 --per-class 5 (then leave out scikit-learn).
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Sequence

from evaluate import embeddings
from measure import Clock, NotMeasured, alone, parse_with_quick, ratio


def likewise(z, k: int, iterations: int, seed: int):
    from likewise.core.kmeans import kmeans

    return kmeans(z, k, iterations=iterations, seed=seed).label.cpu()


def sklearn_greedy(z, k: int, iterations: int, seed: int):
    return sklearn(z, k, iterations, seed, "k-means++")


def sklearn_random(z, k: int, iterations: int, seed: int):
    return sklearn(z, k, iterations, seed, "random")


def sklearn(z, k: int, iterations: int, seed: int, init: str):
    import torch
    from sklearn.cluster import KMeans

    found = KMeans(k, init=init, n_init=1, max_iter=iterations, tol=0, random_state=seed).fit(z.numpy())
    return torch.as_tensor(found.labels_)


def faiss(z, k: int, iterations: int, seed: int):
    import faiss as peer
    import torch

    x = z.numpy()
    found = peer.Kmeans(
        x.shape[1], k, niter=iterations, seed=seed, min_points_per_centroid=1, max_points_per_centroid=len(x)
    )
    found.train(x)
    return torch.as_tensor(found.index.search(x, 1)[1][:, 0])


CONTENDERS = {work.__name__: work for work in (likewise, sklearn_greedy, sklearn_random, faiss)}


def measure(who: str, options: argparse.Namespace) -> list[dict]:
    import torch

    from likewise.score.metrics.clustering import ami, nmi, pair_f1

    z, y = embeddings(options.rows, options.dim, options.per_class)
    device = options.device if who == "likewise" else "cpu"
    z, classes, work = z.to(device), int(y[-1]) + 1, CONTENDERS[who]
    work(z[:200].clone(), 20, 2, 0)  # imports and first-call costs do not count
    runs = []
    for seed in range(options.seeds):
        clock = Clock(device)
        label = work(z, classes, options.iterations, seed)
        cost = clock.stop()
        centre = torch.zeros(classes, z.shape[1]).index_add_(0, label.long(), z.cpu())
        centre /= label.bincount(minlength=classes).clamp_min(1)[:, None]
        runs.append({
            **cost, "NMI": nmi(y, label), "AMI": ami(y, label), "F1": pair_f1(y, label),
            "inertia": float((z.cpu() - centre[label.long()]).square().sum()),
        })  # fmt: skip
    return runs


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=5_924)
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--per-class", type=int, default=59)
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--device", default="cpu", help="where likewise computes")
    parser.add_argument("--who", nargs="+", choices=CONTENDERS, default=list(CONTENDERS))
    parser.add_argument("--out", help="JSON file for the result")
    return parse_with_quick(parser, words, rows=240, dim=8, per_class=6, iterations=3, seeds=1)


def main(words: Sequence[str] | None = None) -> None:
    options = parse(words)
    print(f"{options.rows} x {options.dim}, {options.per_class} of a class, {options.iterations} iterations")
    result, first = [], None
    for who in options.who:
        try:
            runs = alone(measure, who, options, here=options.quick)
        except NotMeasured as reason:
            result.append({"who": who, "failed": str(reason)})
            print(f"  {who:14s} {reason}")
            continue
        mean = {name: statistics.mean(run[name] for run in runs) for name in runs[0]}
        mean |= {"peak_mb": max(run["peak_mb"] for run in runs)}
        first = first or mean
        result.append({**vars(options), "who": who, "mean": mean, "runs": runs})
        print(
            f"  {who:14s} {mean['seconds']:8.2f} s ({ratio(mean['seconds'], first['seconds']):>6})  {mean['peak_mb']:6.0f} MB"
            f"  NMI {mean['NMI']:.4f}  AMI {mean['AMI']:.4f}  F1 {mean['F1']:.4f}  inertia {mean['inertia']:.1f}"
        )
    if options.out:
        with open(options.out, "w", encoding="utf-8") as file:
            json.dump(result, file, indent=2)


if __name__ == "__main__":
    main()
