"""Frozen features of pretrained backbones: R@1, average precision of wrong labels, time and size, and the order by a rule.

    python benchmarks/frozen_features.py TABLE... --add resnet50_v1=resnet50_v1.safetensors --out found.json

Each TABLE is a folder of class folders, a table, or a file that an earlier call wrote with --out, whose sets are taken over.
Classes and images of a set are drawn at random, the same for all backbones, which have their default image size. R@1 is over all
drawn images. Average precision (AP) is that of the label scores of an audit, with labels moved to other classes at random, mean
of several plantings. Time is CPU time from files to features: on a loaded machine its ratio is steadier than that of seconds.

The order: first the backbone of least time among those whose mean quality, (R@1 + AP) / 2, is not below the best by more than the
reach of its 95 % interval (over sets, of the difference to the best); then the same among the others.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from clean import chosen, drawn, planted
from label_tables import fill_unknown
from measure import parse_with_quick

from likewise import audit_labels, embed, evaluate
from likewise.data import load
from likewise.data.table import write_table
from likewise.models.pretrained.available import installed_backbones
from likewise.models.pretrained.networks import WEIGHT_PACKAGES
from likewise.score.intervals import t_interval
from likewise.score.metrics.detection import detection

UNIT = "efficientnet_lite0"
"""Backbone of time 1."""
FEW = 8
"""Images of the call whose time is subtracted."""


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="+")
    parser.add_argument("--backbones", nargs="*", help="default: those whose weight package is installed")
    parser.add_argument("--add", nargs="*", default=[], metavar="NAME=FILE", help="backbones with a weight file")
    parser.add_argument("--classes", type=int, default=30)
    parser.add_argument("--per-class", type=int, default=20)
    parser.add_argument("--share", type=float, default=0.1)
    parser.add_argument("--plantings", type=int, default=5)
    parser.add_argument("--out", type=Path)
    return parse_with_quick(parser, words, classes=4, per_class=6, plantings=2)


def weight_files(args: argparse.Namespace) -> dict[str, Path]:
    """Return backbone -> weight file."""
    names = installed_backbones() if args.backbones is None else args.backbones
    found = {name: WEIGHT_PACKAGES[name].find() for name in names}
    return {name: file for name, file in found.items() if file} | {
        name: Path(file) for name, file in (word.split("=", 1) for word in args.add)
    }


def measure(data: str, files: dict[str, Path], args: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Return backbone -> its results on one set."""
    items, found = load(data), {}
    rows = drawn(items, args.classes, args.per_class)
    with TemporaryDirectory() as place:
        few, table = Path(place, "few.csv"), Path(place, "images.csv")
        write_table(chosen(items, rows[:FEW]), str(few))
        write_table(chosen(items, rows), str(table))
        for name, file in files.items():
            embedded(name, file, few)  # imports and first calls, which are not measured
            x, y, seconds = embedded(name, file, table)
            seconds -= embedded(name, file, few)[2]  # without the time to build the network
            precision = [wrong_precision(x, y, args.share, seed) for seed in range(args.plantings)]
            recall = evaluate(x, y, metrics=("R@1",), quiet=True)["metrics"]["R@1"]
            found[name] = {"R@1": recall, "AP": float(np.mean(precision)), "seconds": seconds / (len(y) - FEW)}
            print(f"{Path(data).stem:12} {name:20} {json.dumps(found[name])}", flush=True)
    return found


def embedded(name: str, file: Path, table: Path) -> tuple[np.ndarray, np.ndarray, float]:
    """Return features, labels and the CPU seconds to compute the features."""
    weights = {} if name in WEIGHT_PACKAGES else {"weights": str(file)}
    began = time.process_time()
    e = embed(name, table, layer="feature", device="cpu", workers=0, quiet=True, **weights)
    return e.z.numpy(), e.y.numpy(), time.process_time() - began


def wrong_precision(x: np.ndarray, y: np.ndarray, share: float, seed: int) -> float:
    """Return the average precision of the wrong labels by the score of an audit."""
    given = planted(y, share, seed)
    score = fill_unknown(audit_labels(x, given, device="cpu").score.astype(float))
    return detection(torch.as_tensor(score), torch.as_tensor(given != y)).AP


def quality(sets: dict[str, dict], name: str) -> np.ndarray:
    """Return (R@1 + AP) / 2 of every set."""
    return np.array([(one[name]["R@1"] + one[name]["AP"]) / 2 for one in sets.values()])


def seconds(sets: dict[str, dict], name: str) -> float:
    """Return the CPU seconds of an image, mean over sets."""
    return float(np.mean([one[name]["seconds"] for one in sets.values()]))


def order(sets: dict[str, dict], names: Sequence[str]) -> list[str]:
    """Return the names by the rule of this page."""
    left, found = list(names), []
    while left:
        best = max(left, key=lambda name: quality(sets, name).mean())
        gaps = {name: t_interval(quality(sets, best) - quality(sets, name)) for name in left}
        near = [name for name, gap in gaps.items() if name == best or gap.low <= 0]
        found.append(min(near, key=lambda name: seconds(sets, name)))
        left.remove(found[-1])
    return found


def as_text(sets: dict[str, dict], files: dict[str, int]) -> str:
    """Return the table of all sets, in the order of the rule, with the gap to the best."""
    names = order(sets, list(files))
    best = max(names, key=lambda name: quality(sets, name).mean())
    unit = seconds(sets, UNIT if UNIT in names else names[0])
    lines = [
        f"| backbone | {' | '.join(sets)} | mean R@1 | mean AP | below the best (95 %) | time | MB |",
        "|" + "---|" * (len(sets) + 6),
    ]
    for name in names:
        each = [one[name] for one in sets.values()]
        cells = [f"{100 * one['R@1']:.1f}, {100 * one['AP']:.1f}" for one in each]
        means = [f"{100 * np.mean([one[metric] for one in each]):.1f}" for metric in ("R@1", "AP")]
        gap = t_interval(100 * (quality(sets, best) - quality(sets, name)))
        below = "best" if name == best else f"{gap.mean:.1f} ({gap.low:.1f} to {gap.high:.1f})"
        last = [below, f"{seconds(sets, name) / unit:.2f}", f"{files[name] / 1e6:.0f}"]
        lines.append("| " + " | ".join([f"`{name}`", *cells, *means, *last]) + " |")
    return "\n".join(lines) + "\n"


def main(words: Sequence[str] | None = None) -> None:
    args = parse(words)
    sets, sizes = {}, {}
    files = weight_files(args)
    for data in args.data:
        if data.endswith(".json"):
            new = json.loads(Path(data).read_text())
        else:
            new = {"sets": {Path(data).stem: measure(data, files, args)}}
            new["bytes"] = {name: file.stat().st_size for name, file in files.items()}
        for name, one in new["sets"].items():
            sets.setdefault(name, {}).update(one)
        sizes |= new["bytes"]
        if args.out:
            args.out.write_text(json.dumps({"share": args.share, "sets": sets, "bytes": sizes}, indent=1))
    print("\n" + as_text(sets, sizes))


if __name__ == "__main__":
    main()
