"""Accuracy of robust training, next to plain training and to training on the right labels alone, with known true labels.

    python benchmarks/robust.py --features FOLDER --out records --jobs 2    # a linear head on each FOLDER/NAME.npz
    python benchmarks/robust.py --images FOLDER --out records               # the whole network, on each table FOLDER/NAME.csv
    python benchmarks/robust.py --table records                             # differences, paired by seed, with 95 % intervals

A cell is a data set, a loss, a kind of noise, a way to train and a seed. Its record is appended to a file in the folder `records`
when it is finished, and the same command continues a stopped grid. Classes of the test split are never trained, and the last
network counts. The way "oracle" trains only the samples whose label the same noise leaves right. FOLDER/NAME.json has the class
tree for semantic noise; without it, a wrong label falls in a group of classes whose mean features are similar.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from likewise.config import Train
from likewise.types import Items
from measure import parse_with_quick

from likewise.data import load
from likewise.data.dataset import inject_noise, protocol_for
from likewise.data.protocols.splits import split_by
from likewise.learn.recipes import apply
from likewise.papers.executors import LocalExecutor
from likewise.runs.folder import Run
from likewise.runs.usage import cost
from likewise.score.intervals import t_interval

NOISE_MODELS = {
    "clean": "Uniform(share=0)",
    "uniform 50 %": "Uniform(share=0.5)",
    "uniform 20 %": "Uniform(share=0.2)",
    "semantic 20 %": "Semantic(share=0.2, tree={tree!r})",
}
REFERENCE_WAYS = {noise: "plain" if noise == "clean" else "oracle" for noise in NOISE_MODELS}
"""Kind of noise -> the way to train that robust training is compared with."""
WAY_NAMES = ("plain", "oracle", "robust")
LOSS_NAMES = ("MultiSimilarity", "ProxyAnchor")
METRIC_NAMES = ("R@1", "MAP@R")
BATCH_SIZE = 112
BATCH_CLASSES = {"head": 28, "network": 56}
"""Largest number of classes in a batch."""
GROUP_SIZE = 4
"""Smallest number of similar classes in a group."""

HEAD_SETTINGS = {
    "dim": 128, "optimizer": "adam", "weight_decay": 4e-4, "lr": 3e-4, "epochs": 6, "average": 0.0, "device": "cpu",
}  # fmt: skip
"""Chosen once for all sets, by validation classes with right labels and plain training. The last weights count, as in the records
that were published before `average` was a setting."""
NETWORK_SETTINGS = {
    "dim": 512, "pool": "avg+max", "optimizer": "adam", "weight_decay": 4e-4, "lr": 3e-4, "backbone_lr": 3e-5, "epochs": 15,
    "average": 0.0, "freeze_bn": True, "precision": "bf16", "execution": "graph",
}  # fmt: skip


class Cell(NamedTuple):
    """One training."""

    data: str
    loss: str
    noise: str
    way: str
    seed: int


def order_cells(sets: Sequence[str], options: argparse.Namespace) -> list[Cell]:
    """Return the wanted cells: all of the first seed first, and plain training with wrong labels last."""
    every = (
        Cell(data, loss, noise, way, seed)
        for seed, noise, data, loss, way in product(options.seeds, options.noise, sets, options.losses, options.ways)
        if noise != "clean" or way != "oracle"
    )
    return sorted(every, key=lambda cell: cell.way == "plain" and cell.noise != "clean")


def right_rows(file: str, noise: str, seed: int, root: str | None = None) -> Items:
    """Read data in which the rows that get a wrong label by this noise and seed are in no split."""
    items = load(file, root)
    protocol = protocol_for(items)
    split = split_by(protocol, items)
    split[inject_noise(items, protocol, noise, seed).y != items.y] = ""
    return replace(items, split=split)


def group_classes(x: np.ndarray, y: np.ndarray) -> list[list[int]]:
    """Divide the classes into groups of at least `GROUP_SIZE` with similar mean features.

    Formula: of the classes left, the one most similar to another one, with its nearest ones, is the next group
    """
    classes = np.unique(y)
    mean = np.stack([x[y == c].mean(0) for c in classes]) - x.mean(0)
    mean /= np.linalg.norm(mean, axis=1, keepdims=True)
    sim = mean @ mean.T - 2 * np.eye(len(classes))
    left, groups = np.arange(len(classes)), []
    for part in np.array_split(left, max(1, len(classes) // GROUP_SIZE)):
        first = left[sim[np.ix_(left, left)].max(1).argmax()]
        others = left[left != first]
        near = others[np.argsort(-sim[first, others], kind="stable")[: len(part) - 1]]
        groups.append([int(c) for c in classes[[first, *near]]])
        left = np.setdiff1d(left, [first, *near])
    return groups


def class_tree(file: Path, items: Items, folder: Path) -> Path:
    """Return the class tree next to the data; else write one into `folder`, from the training features with right labels."""
    if file.with_suffix(".json").exists():
        return file.with_suffix(".json").absolute()
    if items.x is None:
        raise SystemExit(f"robust: semantic noise needs the class tree {file.with_suffix('.json')}; write it")
    rows = protocol_for(items).rows(items, "train")
    groups = group_classes(items.x[rows].astype(np.float64), items.y[rows])
    tree = {items.class_name[c]: [f"group {number}"] for number, group in enumerate(groups) for c in group}
    (folder / f"{file.stem}.json").write_text(json.dumps(tree), "utf-8")
    return folder / f"{file.stem}.json"


class Source(NamedTuple):
    """A data set: its file, its class tree where semantic noise needs it, and its sampler."""

    file: Path
    tree: Path | None
    sampler: str


def open_source(file: Path, options: argparse.Namespace, folder: Path) -> Source:
    """Return a data set; batches have `BATCH_SIZE` samples or a few less, from as many classes as there are."""
    items = load(str(file))
    classes = len(np.unique(items.y[protocol_for(items).rows(items, "train")]))
    classes = min(classes, BATCH_CLASSES["head" if options.features else "network"])
    per_class = BATCH_SIZE // classes
    tree = class_tree(file, items, folder) if any(noise.startswith("semantic") for noise in options.noise) else None
    return Source(file, tree, f"SamplesPerClass(batch={classes * per_class}, per_class={per_class})")


def settings(cell: Cell, source: Source, options: argparse.Namespace, out: Path) -> Train:
    """Return the settings of the training of a cell, with its run folder below `out`."""
    noise = NOISE_MODELS[cell.noise].format(tree=str(source.tree))
    data, how = str(source.file.absolute()), {"sampler": source.sampler, **options.settings}
    if cell.way == "oracle":
        data = f"robust.right_rows(file={data!r}, noise={noise!r}, seed={cell.seed})"
    else:
        how["noise"] = noise
    return apply(
        "robust" if cell.way == "robust" else None, data, loss=f"{cell.loss}()", seed=cell.seed, metrics=METRIC_NAMES,
        out=str(out / "-".join(map(str, cell)).replace(" ", "")), quiet=True, allow_imports=True, checkpoint_every="600s", **how,
    )  # fmt: skip


def read_rounds(run: Run) -> list[dict]:
    """Return for every relabelling round how many labels are used and right, and the share of right labels that it touched.

    Formula: touched = 1 - P(used, unchanged | right)
        = 1 - (P(used) P(right now | used) - P(wrong) P(repaired | wrong)) / P(right)
    """
    found = []
    for line in run.read_log():
        if "relabelling" not in line:
            continue
        facts = line["relabelling"]
        right, used = facts["right before"], facts["labels used"]
        repaired = (1 - right) * facts.get("wrong labels repaired", 0)
        touched = 1 - (used * facts["right among used"] - repaired) / right
        found.append({"step": line["step"], **facts, "right labels touched": round(max(touched, 0), 6)})
    return found


def measure(options: argparse.Namespace) -> None:
    """Train all cells that have no record yet, several at once, and append their records."""
    suffix, kind = (".npz", "head") if options.features else (".csv", "network")
    files = {file.stem: file for file in sorted((options.features or options.images).glob(f"*{suffix}"))}
    records = options.out / f"{kind}.jsonl"
    options.out.mkdir(parents=True, exist_ok=True)
    known = {Cell(*(one[name] for name in Cell._fields)) for one in read_records(records)}
    cells = [cell for cell in order_cells(options.sets or list(files), options) if cell not in known]
    print(f"{kind}: {len(cells)} cells to train, {len(known)} known", flush=True)
    with tempfile.TemporaryDirectory() as name, LocalExecutor(options.jobs) as executor:
        work, began = Path(name), time.perf_counter()
        sources = {data: open_source(files[data], options, work) for data in {cell.data for cell in cells}}
        configs = [settings(cell, sources[cell.data], options, work) for cell in cells]
        for place, outcome in executor.work(configs):
            cell, run = cells[place], Run(str(configs[place].out))
            if outcome.error:
                print(f"{cell}: {outcome.error}", flush=True)
                continue
            record = read_run(cell, kind, run)
            with records.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")
            shutil.rmtree(run.path)
            scores = " ".join(f"{metric} {100 * record[metric]:.1f}" for metric in METRIC_NAMES)
            print(f"{time.perf_counter() - began:6.1f} s  {' | '.join(map(str, cell))}: {scores}", flush=True)


def read_run(cell: Cell, kind: str, run: Run) -> dict:
    """Return the record of a finished training."""
    assert run.scores is not None
    seconds = {name: round(cost(run)[name], 2) for name in ("train_seconds", "evaluate_seconds")}
    scores = {metric: run.scores["metrics"][metric] for metric in METRIC_NAMES}
    return {"trained": kind, **cell._asdict(), **scores, **seconds, "rounds": read_rounds(run)}


def read_records(file: Path) -> Iterator[dict]:
    """Yield the records of a file; a line that was cut off by a stop is left out."""
    for line in file.read_text("utf-8").splitlines() if file.exists() else ():
        try:
            yield json.loads(line)
        except ValueError:
            continue


class Comparison(NamedTuple):
    """Robust training and its reference, at the same seeds of one set, loss and kind of noise."""

    robust: list[dict]
    reference: list[dict]

    def differences(self, metric: str) -> list[float]:
        return [100 * (a[metric] - b[metric]) for a, b in zip(self.robust, self.reference, strict=True)]


def compare(records: Sequence[dict]) -> dict[tuple[str, str, str, str], Comparison]:
    """Return (trained, data, loss, noise) -> the pairs of robust training and its reference."""
    at = {(one["trained"], *(one[name] for name in Cell._fields)): one for one in records}
    found: dict[tuple[str, str, str, str], Comparison] = defaultdict(lambda: Comparison([], []))
    for (trained, data, loss, noise, way, seed), one in sorted(at.items()):
        other = at.get((trained, data, loss, noise, REFERENCE_WAYS[noise], seed))
        if way == "robust" and other:
            found[trained, data, loss, noise].robust.append(one)
            found[trained, data, loss, noise].reference.append(other)
    return dict(found)


def difference_text(values: Sequence[float]) -> str:
    """Return the mean difference with its 95 % interval over the values, where there are several."""
    mean, low, high, n = t_interval(values)
    return f"{mean:+.1f}" + (f" ({low:+.1f} to {high:+.1f})" if n > 1 else "")


def round_text(pair: Comparison, name: str) -> str:
    """Return a share in the first and the last relabelling round, means over seeds, and the largest of any round and seed."""
    shares = [[100 * one.get(name, np.nan) for one in record["rounds"]] for record in pair.robust if record["rounds"]]
    if not shares:
        return "-"
    first, last = np.mean([each[0] for each in shares]), np.mean([each[-1] for each in shares])
    return f"{first:.1f}, {last:.1f}, {max(map(max, shares)):.1f}"


def cell_table(found: dict[tuple[str, str, str, str], Comparison]) -> list[str]:
    """Return the lines of the table with one line per set, loss and kind of noise."""
    shares = ("right labels touched", "right among used", "false alarms")
    head = (
        "trained",
        "set",
        "loss",
        "noise",
        "seeds",
        "reference R@1",
        "robust R@1",
        "difference",
        "of MAP@R",
        *shares,
    )
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for key, pair in sorted(
        found.items(), key=lambda item: (item[0][0], list(NOISE_MODELS).index(item[0][3]), item[0])
    ):
        means = [f"{100 * np.mean([one['R@1'] for one in side]):.1f}" for side in (pair.reference, pair.robust)]
        gaps = [difference_text(pair.differences(metric)) for metric in METRIC_NAMES]
        cells = [*key, str(len(pair.robust)), *means, *gaps, *(round_text(pair, name) for name in shares)]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def mean_table(found: dict[tuple[str, str, str, str], Comparison]) -> list[str]:
    """Return the lines of the table of means over all sets and seeds, with the lowest mean of a single set."""
    groups: dict[tuple[str, str, str], list[tuple[str, Comparison]]] = defaultdict(list)
    for (trained, data, loss, noise), pair in found.items():
        for one in (loss, "both"):
            groups[trained, one, noise].append((data, pair))
    lines = ["| trained | loss | noise | pairs | difference of R@1 | of MAP@R | lowest set |", "|" + "---|" * 7]
    for key, pairs in sorted(
        groups.items(), key=lambda item: (item[0][0], list(NOISE_MODELS).index(item[0][2]), item[0])
    ):
        values = [[gap for _, pair in pairs for gap in pair.differences(metric)] for metric in METRIC_NAMES]
        by_set: dict[str, list[float]] = defaultdict(list)
        for data, pair in pairs:
            by_set[data] += pair.differences(METRIC_NAMES[0])
        low = min(by_set, key=lambda data: float(np.mean(by_set[data])))
        cells = [*key, str(len(values[0])), *map(difference_text, values), f"{low} {np.mean(by_set[low]):+.1f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def as_text(records: Sequence[dict]) -> str:
    """Return both tables. Shares of labels are per cent in the first and last relabelling round, and the largest of any round."""
    found = compare(records)
    return "\n".join([*cell_table(found), "", *mean_table(found)]) + "\n"


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--features", type=Path, help="folder with NAME.npz: x, label, class_name")
    source.add_argument("--images", type=Path, help="folder with tables NAME.csv: path, label, class_name, split")
    source.add_argument("--table", type=Path, help="print the tables of a folder of records")
    parser.add_argument("--out", type=Path, default=Path("records"), help="folder of the records")
    parser.add_argument("--jobs", type=int, default=1, help="number of trainings at once")
    parser.add_argument("--sets", nargs="+", help="names of the data sets; by default all in the folder")
    parser.add_argument("--losses", nargs="+", default=list(LOSS_NAMES))
    parser.add_argument("--noise", nargs="+", choices=list(NOISE_MODELS), default=list(NOISE_MODELS))
    parser.add_argument("--ways", nargs="+", choices=WAY_NAMES, default=list(WAY_NAMES))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--epochs", type=float, help="by default 6 for heads and 15 for whole networks")
    parser.add_argument("--backbone", default="efficientnet_lite0")
    parser.add_argument("--size", type=int, default=160, help="side of the images in pixels")
    parser.add_argument("--weights", help="weight file of the backbone; by default its published weights")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", help="for whole networks")
    options = parse_with_quick(parser, words, backbone="conv_small", size=16, device="cpu", epochs=4, seeds=[0, 1])
    network = {key: getattr(options, key) for key in ("backbone", "size", "weights", "device")}
    options.settings = dict(HEAD_SETTINGS) if options.features else NETWORK_SETTINGS | network
    options.settings |= {"epochs": options.epochs} if options.epochs else {}
    return options


def main(words: Sequence[str] | None = None) -> None:
    options = parse(words)
    if options.table:
        print(as_text([one for file in sorted(options.table.glob("*.jsonl")) for one in read_records(file)]), end="")
        return
    measure(options)


if __name__ == "__main__":
    main()
