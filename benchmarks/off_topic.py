"""Detection of images of no class: score and flag beside rivals, on sets of features with foreign images mixed in.

    python benchmarks/off_topic.py features/ [--share 0.02] [--noise 0 0.5] [--seeds 1 2] [--out result.json]

The folder has NAME.npz with x (features of one network) and y (labels). Every file is a host in turn, and the others are its
foreign images, which get labels of the host at random; a file with one class (blank images) is only foreign. --skip HOST:KIND
leaves out a pair whose foreign images do show classes of the host. Rivals: distance to the 5th neighbour and to the nearest class
centre by cosine, Mahalanobis distance, the same minus that to the mean of all (relative), distance from the leading principal
components, isolation forest, and the ranking of SelfClean (Groeger et al. 2024): leaves of a single-linkage tree by cosine,
the smaller branch first.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from measure import parse_with_quick
from torch import Tensor
from torch.nn.functional import normalize

from likewise.core.class_sums import class_sums
from likewise.labels.off_topic import off_topic
from likewise.score.metrics.detection import detection


class World(NamedTuple):
    """Features and given labels of a host with foreign samples."""

    x: Tensor
    y: Tensor
    foreign: Tensor


def fifth_neighbour(x: Tensor, y: Tensor) -> Tensor:
    z = normalize(x)
    return torch.cat([1 - (rows @ z.T).topk(6).values[:, 5] for rows in z.split(2048)])


def nearest_centre(x: Tensor, y: Tensor) -> Tensor:
    z = normalize(x)
    total = class_sums(z, y, int(y.max()) + 1)
    own = (z * normalize(total[y] - z)).sum(1, keepdim=True)
    return 1 - (z @ normalize(total).T).scatter(1, y[:, None], own).amax(1)


def mahalanobis(x: Tensor, y: Tensor) -> Tensor:
    z, size = normalize(x), torch.bincount(y)
    mean = class_sums(z, y, len(size)) / size.clamp_min(1)[:, None]
    whiten = whitening(z - mean[y])
    near = torch.cdist(z @ whiten, mean @ whiten).square()
    own = near.gather(1, y[:, None]) * (size[y] / (size[y] - 1).clamp_min(1)).square()[:, None]
    return near.scatter(1, y[:, None], own).amin(1)


def relative_mahalanobis(x: Tensor, y: Tensor) -> Tensor:
    z = normalize(x) - normalize(x).mean(0)
    return mahalanobis(x, y) - (z @ whitening(z)).square().sum(1)


def whitening(rest: Tensor, shrink: float = 0.3) -> Tensor:
    """Return the map after which residuals have unit covariance, with a shrunk covariance."""
    spread = rest.T @ rest / len(rest)
    values, vectors = torch.linalg.eigh(
        (1 - shrink) * spread + shrink * spread.diagonal().mean() * torch.eye(len(spread))
    )
    return vectors / values.clamp_min(1e-9).sqrt()


def component_residual(x: Tensor, y: Tensor) -> Tensor:
    z = normalize(x) - normalize(x).mean(0)
    k = min(128, len(z) // 4, z.shape[1] // 2)
    lead = torch.linalg.eigh(z.T @ z)[1][:, -k:]
    return z.square().sum(1) - (z @ lead).square().sum(1)


def isolation_forest(x: Tensor, y: Tensor) -> Tensor:
    from sklearn.ensemble import IsolationForest

    return torch.as_tensor(-IsolationForest(random_state=0).fit(x.numpy()).score_samples(x.numpy()))


def selfclean(x: Tensor, y: Tensor) -> Tensor:
    from scipy.cluster.hierarchy import linkage

    z, n = normalize(x.double()), len(x)
    above = torch.triu_indices(n, n, 1)
    tree = linkage((1 - z @ z.T).clamp_min(0)[above[0], above[1]].numpy(), "single")
    size, rank, waiting = [1] * n + tree[:, 3].astype(int).tolist(), torch.zeros(n), [2 * n - 2]
    left = n
    while waiting:
        node = waiting.pop()
        if node < n:
            rank[node], left = left, left - 1
        else:
            small, large = sorted(tree[node - n, :2].astype(int).tolist(), key=size.__getitem__)
            waiting += [large, small]
    return rank


RIVALS = {
    work.__name__: work
    for work in (
        fifth_neighbour, nearest_centre, mahalanobis, relative_mahalanobis, component_residual, isolation_forest, selfclean,
    )
}  # fmt: skip


def read(folder: Path, rows: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return features and labels of every file, at most `rows` of each at random; classes of one sample are left out."""
    sets = {}
    for file in sorted(folder.glob("*.npz")):
        with np.load(file) as data:
            x, y = data["x"], data["y"]
        some = np.random.default_rng(0).permutation(len(y))[:rows]
        some = some[np.bincount(y[some])[y[some]] > 1]
        sets[file.stem] = x[some], np.unique(y[some], return_inverse=True)[1]
    return sets


def world(host, foreign, noise: float, share: float, seed: int) -> World:
    """Return the host with a share of wrong labels, and foreign samples with labels of the host at random."""
    rng = np.random.default_rng(seed)
    (x, y), classes = host, int(host[1].max()) + 1
    wrong = rng.random(len(y)) < noise
    given = np.where(wrong, (y + rng.integers(1, classes, len(y))) % classes, y)
    more = foreign[0][rng.permutation(len(foreign[0]))[: round(share * len(y))]] if foreign else x[:0]
    order = rng.permutation(len(x) + len(more))
    labels = np.concatenate([given, rng.choice(given, len(more))])[order]
    foreign_rows = torch.as_tensor(order >= len(x))
    return World(torch.as_tensor(np.concatenate([x, more])[order]).float(), torch.as_tensor(labels), foreign_rows)


def measure(one: World, rivals: Sequence[str]) -> dict:
    """Return the AUROC of every score, and what the flag finds."""
    began = time.perf_counter()
    found = off_topic(one.x, one.y, int(one.y.max()) + 1)
    seconds = time.perf_counter() - began
    flagged = found.probability >= 0.5
    result = {"samples": len(one.y), "seconds": seconds, "false": float(flagged[~one.foreign].double().mean())}
    if not one.foreign.any():
        return result
    scores = {"ours": found.score} | {name: RIVALS[name](one.x, one.y) for name in rivals}
    aurocs = {name: detection(-score.double(), one.foreign).AUROC for name, score in scores.items()}
    return result | {"recall": float(flagged[one.foreign].double().mean()), "AUROC": aurocs}


def as_text(cells: list[dict], rivals: Sequence[str]) -> str:
    names = ["ours", *rivals]
    lines = ["| noise | host | foreign | " + " | ".join(names) + " | flagged of foreign | flagged of host |"]
    lines += ["|" + "---|" * (len(names) + 5)]
    for c in cells:
        values = [f"{100 * c['AUROC'][n]:.1f}" if "AUROC" in c else "" for n in names]
        found = [f"{100 * c['recall']:.0f} %" if "recall" in c else "", f"{100 * c['false']:.2f} %"]
        lines.append(f"| {c['noise']:g} | {c['host']} | {c['kind'] or 'none'} | " + " | ".join(values + found) + " |")
    scored = [c for c in cells if "AUROC" in c]
    for title, over in (("mean", np.mean), ("worst", np.min)) if scored else ():
        values = [f"{100 * over([c['AUROC'][n] for c in scored]):.1f}" for n in names]
        lines.append(f"| | {title} | | " + " | ".join(values) + " | | |")
    return "\n".join(lines) + "\n"


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, default=20000, help="maximum number of samples of each file")
    parser.add_argument("--share", type=float, default=0.02, help="foreign samples as a share of the host")
    parser.add_argument("--noise", type=float, nargs="+", default=[0.0], help="shares of wrong labels of the host")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--hosts", nargs="*", help="files that are hosts; all of them if left out")
    parser.add_argument("--rivals", nargs="*", default=list(RIVALS), choices=list(RIVALS))
    parser.add_argument("--skip", nargs="*", default=[], metavar="HOST:KIND")
    parser.add_argument("--out", type=Path)
    return parse_with_quick(parser, words, rows=300)


def main(words: Sequence[str] | None = None) -> None:
    given = parse(words)
    sets = read(given.folder, given.rows)
    hosts = given.hosts or [name for name, (_, y) in sets.items() if y.max() > 0]
    cells = []
    for noise in given.noise:
        for host in hosts:
            for kind in [None, *(k for k in sets if k != host and f"{host}:{k}" not in given.skip)]:
                each = [
                    measure(world(sets[host], sets.get(kind), noise, given.share, seed), given.rivals)
                    for seed in given.seeds
                ]
                cells.append({"noise": noise, "host": host, "kind": kind} | mean_of(each))
                print(as_text(cells[-1:], given.rivals).splitlines()[2], flush=True)
    print(as_text(cells, given.rivals))
    if given.out:
        given.out.write_text(json.dumps(cells, indent=1), "utf-8")


def mean_of(each: list[dict]) -> dict:
    """Return the means of equal records, key by key."""
    return {
        key: mean_of([one[key] for one in each])
        if isinstance(value, dict)
        else float(np.mean([one[key] for one in each]))
        for key, value in each[0].items()
    }


if __name__ == "__main__":
    main()
