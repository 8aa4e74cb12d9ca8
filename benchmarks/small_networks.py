"""Small networks with wrong labels: averages of the weights, ProcSim's proxies and `--robust`, over settings and data sets.

    python benchmarks/small_networks.py average --sets FOLDER --out average.jsonl      # last and best test epoch, by schedule
    python benchmarks/small_networks.py proxies --sets FOLDER --out proxies.jsonl      # proxies that learn beside plain training
    python benchmarks/small_networks.py procsim --sets FOLDER --out procsim.jsonl      # trainings with weights and guidance
    python benchmarks/small_networks.py robust --sets FOLDER --out robust.jsonl        # plain, without the wrong labels, --robust
    python benchmarks/small_networks.py csv procsim.jsonl procsim.csv                  # the records as a table

FOLDER/NAME.npz has x (images as bytes, N x 3 x s x s, s = 40 or 72), y (classes) and split (0: training, 1: test; other classes).
Images of 40 pixels are trained by conv_small from random weights, those of 72 by EfficientNet-Lite0 from ImageNet weights (crops
of 64). Every record is written when its training is finished, and the same command continues. With --validation, a third of the
training classes is held out and scored in place of the test classes.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from likewise.config import Train
from measure import parse_with_quick
from torch import Tensor
from torch.nn import functional as F

from likewise.core.contracts import BatchSampler, Confidence, Loss, Term
from likewise.core.settings.spec import build
from likewise.core.types import Batch, Embedded, TrainingSetInfo
from likewise.learn.confidence.thresholds import otsu
from likewise.learn.training.schedule import Schedule, make_optimizer, reset_state
from likewise.learn.training.step import weighted_mean
from likewise.models.weight_average import WeightAverage
from likewise.runs.network import make_embedder, to_device

SETS = ("cub", "pets", "caltech", "gtsrb", "omniglot", "glyphs")
LOSSES = ("MultiSimilarity()", "ProxyAnchor()", "ProxyNCA()")
NOISE = ("uniform 0.5", "uniform 0.0", "uniform 0.2")
PRINTED = {"start": "normal", "lr": 1e-3, "lam": 1.0, "scale": 1.0, "more": ""}
SIMILAR_CLASSES_COUNT = 4
"""Number of classes from which semantic noise draws a wrong label: those with the most similar mean features before training."""


def average_jobs(options: argparse.Namespace) -> Iterator[dict]:
    """Yield the trainings of the study of averages: every loss, noise rate, set and learning-rate schedule."""
    for seed, schedule, noise, loss, name in product(
        options.seeds, ("constant", "cosine"), options.noise, LOSSES, options.names
    ):
        yield {"set": name, "noise": noise, "loss": loss, "seed": seed, "schedule": schedule, "epochs": options.epochs or 20,
               "batch": 112, "per_class": 4, "optimizer": "adamw", "averages": [0.2, 0.5]}  # fmt: skip


def batch_settings(options: argparse.Namespace, batch: int) -> dict[str, Any]:
    """Return the settings of a training with ProcSim's batches: pairs of a class, drawn with replacement."""
    epochs = options.epochs or (20 if batch == 90 else 40)
    return {"loss": LOSSES[0], "batch": batch, "per_class": 2, "epochs": epochs, "optimizer": "adam", "averages": []}


def proxies_jobs(options: argparse.Namespace) -> Iterator[dict]:
    """Yield plain trainings beside which proxies of every start, learning rate and scale learn."""
    every = [
        {"start": s, "lr": lr, "scale": k}
        for s, lr, k in product(("normal", "eighth", "means"), (1e-3, 1e-2, 5e-2), (1, 4, 16))
    ]
    for seed, noise, name, batch in product(options.seeds, options.noise[:1], options.names, options.batches):
        yield {"set": name, "noise": noise, "seed": seed, "proxies": every} | batch_settings(options, batch)


def procsim_jobs(options: argparse.Namespace) -> Iterator[dict]:
    """Yield trainings without weights, with ProcSim as printed, and with every combination of the given settings."""
    grid = [None, PRINTED] + [
        {"start": "normal", "lr": lr, "lam": lam, "scale": scale, "more": more}
        for lr, lam, scale, more in product(options.lr, options.lam, options.scale, options.more)
    ]
    for seed, noise, name, batch, guidance, procsim in product(
        options.seeds, options.noise, options.names, options.batches, options.guidance, grid
    ):
        about = {"set": name, "noise": noise, "seed": seed, "procsim": procsim} | (
            {"guidance": guidance} if guidance else {}
        )
        yield about | batch_settings(options, batch)


def robust_jobs(options: argparse.Namespace) -> Iterator[dict]:
    """Yield trainings with all labels, without the wrong ones (the oracle), and with `--robust`, all with averaged weights."""
    for seed, noise, name, way in product(options.seeds, options.noise, options.names, ("plain", "oracle", "robust")):
        yield {"set": name, "noise": noise, "loss": LOSSES[0], "seed": seed, "epochs": options.epochs or 20, "way": way,
               "confidence": options.robust if way == "robust" else None, "batch": 112, "per_class": 4, "optimizer": "adamw",
               "schedule": "constant", "averages": [0.2]}  # fmt: skip


def network_settings(job: dict, side: int) -> Train:
    """Return the settings of the network and its optimiser."""
    shared = {
        "data": "arrays", "pool": "avg", "dim": 128, "seed": job["seed"], "loss": job["loss"], "optimizer": job["optimizer"],
        "weight_decay": 1e-4, "epochs": job["epochs"], "freeze_backbone": False,
    }  # fmt: skip
    if side == 40:
        rate, schedule = (2e-3, "cosine") if job["optimizer"] == "adam" else (1e-3, job["schedule"])
        own = {"backbone": "conv_small", "pretrained": False, "freeze_bn": False, "size": 40}
    else:
        rate, schedule = 1e-4, job.get("schedule", "constant")
        own = {"backbone": "efficientnet_lite0", "pretrained": True, "freeze_bn": True, "size": 64}
    return Train(**shared, **own, lr=rate, schedule=schedule)


def wrong_labels(y: np.ndarray, kind: str, share: float, seed: int, near: np.ndarray | None) -> np.ndarray:
    """Return the labels with a share of them wrong: any other class, or one of the similar classes `near`."""
    rng, classes, given = np.random.default_rng((seed, 77, 0)), int(y.max()) + 1, y.copy()
    rows = rng.permutation(len(y))[: round(share * len(y))]
    if near is None:
        given[rows] = (y[rows] + rng.integers(1, classes, len(rows))) % classes
    else:
        given[rows] = near[y[rows], rng.integers(0, near.shape[1], len(rows))]
    return given


def augment(x: Tensor, size: int) -> Tensor:
    """Return random crops with flips (72 pixels), or random small affine transforms (40 pixels), as floats in [0, 1]."""

    def draw(low: float, high: float) -> Tensor:
        return torch.empty(len(x), device=x.device).uniform_(low, high)

    zero = torch.zeros(len(x), device=x.device)
    if size == x.shape[-1]:
        angle, scale, right, down = draw(-0.26, 0.26), draw(0.85, 1.15), draw(-0.1, 0.1), draw(-0.1, 0.1)
        rows = [[scale * angle.cos(), -scale * angle.sin(), right], [scale * angle.sin(), scale * angle.cos(), down]]
    else:
        area, ratio = draw(0.08, 1), draw(math.log(3 / 4), math.log(4 / 3)).exp()
        w, h = (area * ratio).sqrt().clamp_max(1), (area / ratio).sqrt().clamp_max(1)
        flip = torch.where(draw(0, 1) < 0.5, -1.0, 1.0)
        rows = [[w * flip, zero, (1 - w) * draw(-1, 1)], [zero, h, (1 - h) * draw(-1, 1)]]
    theta = torch.stack([torch.stack(row, 1) for row in rows], 1)
    grid = F.affine_grid(theta, [len(x), 3, size, size], align_corners=False)
    return F.grid_sample(x.float() / 255, grid, padding_mode="border", align_corners=False).clamp(0, 1)


@torch.no_grad()
def embed(network, x: Tensor, size: int, features: bool = False) -> Tensor:
    """Return the embeddings, or the features, of the centres of the images."""
    edge, training = (x.shape[-1] - size) // 2, network.training
    network.eval()
    found = [network(part[..., edge : edge + size, edge : edge + size]) for part in x.split(1024)]
    network.train(training)
    return torch.cat([out.f if features else out.z for out in found])


def recall_at_1(z: Tensor, y: Tensor) -> float:
    hits = 0
    for rows in torch.arange(len(z), device=z.device).split(2048):
        sim = z[rows] @ z.T
        sim[torch.arange(len(rows), device=z.device), rows] = -2
        hits += int((y[sim.argmax(1)] == y[rows]).sum())
    return 100 * hits / len(z)


def auroc(score: Tensor, wrong: Tensor) -> float | None:
    """Return the probability that a wrong label has the higher score; None if all labels are right."""
    score, wrong = score[score.isfinite()].double(), wrong[score.isfinite()]
    positive, negative = int(wrong.sum()), int((~wrong).sum())
    if not positive or not negative:
        return None
    rank = score.argsort().argsort().double() + 1
    return float((rank[wrong].sum() - positive * (positive + 1) / 2) / (positive * negative))


def make_sampler(job: dict, facts: dict[str, Any]) -> BatchSampler:
    """Return the batches of a job for the labels in `facts`: smaller ones if there are too few classes."""
    pairs = job["per_class"] == 2
    batch = job["batch"] if pairs else min(job["batch"], 4 * int((np.bincount(facts["labels"]) > 1).sum()))
    spec = f"SamplesPerClass(batch={batch}, per_class={job['per_class']}, lonely='skip', with_replacement={pairs})"
    return build(spec, BatchSampler, **facts)


def class_means(z: Tensor, y: Tensor, classes: int) -> Tensor:
    return F.normalize(torch.zeros(classes, z.shape[1], device=z.device).index_add_(0, y, z), dim=1)


def similar_classes(config: Train, x: Tensor, y: Tensor, size: int) -> np.ndarray:
    """Return the most similar classes of every class, by mean features of the network before training."""
    network = to_device(make_embedder(config, None, reseed=True), x.device)
    f, classes = F.normalize(embed(network, x, size, features=True), dim=1), int(y.max()) + 1
    mean = class_means(f, y, classes)
    mean = F.normalize(mean - mean.mean(0), dim=1)
    sim = (mean @ mean.T).fill_diagonal_(-2)
    return sim.topk(min(SIMILAR_CLASSES_COUNT, classes - 1), 1).indices.cpu().numpy()


class Detection:
    """Counts of flagged wrong and right labels, and the last score of every sample."""

    def __init__(self, wrong: Tensor):
        self.wrong, self.counts = wrong, torch.zeros(4, device=wrong.device)
        self.last = torch.full((len(wrong),), math.nan, device=wrong.device)

    def add(self, score: Tensor, threshold: Tensor, rows: Tensor, counts: bool) -> None:
        self.last[rows] = score.detach().float()
        if counts:
            flagged, wrong = score >= threshold, self.wrong[rows]
            self.counts += torch.stack([(flagged & wrong).sum(), wrong.sum(), (flagged & ~wrong).sum(), (~wrong).sum()])

    def result(self) -> dict[str, float | None]:
        found, wrong, false, right = self.counts.tolist()
        return {"recall": found / wrong if wrong else None, "false alarms": false / right if right else None,
                "AUROC": auroc(self.last, self.wrong)}  # fmt: skip


def prepare_guidance(job: dict, x: Tensor, given: np.ndarray) -> Term:
    """Return the guidance of a job: names that the classifier predicts for the images, enlarged to 224 pixels."""

    def pictures(transform: object) -> Iterator[tuple[Tensor, Tensor]]:
        for rows in torch.arange(len(x), device=x.device).split(256):
            large = F.interpolate(x[rows].float(), size=224, mode="bilinear", antialias=True)
            yield large.round().to(torch.uint8), rows

    term = build(job["guidance"], Term)
    with tempfile.TemporaryDirectory() as folder:
        names = tuple(f"class {number}" for number in range(int(given.max()) + 1))
        term.prepare(TrainingSetInfo(given, names, pictures, Path(folder), x.device, quiet=True))
    return term


def proxy_model(setting: dict, classes: int, dim: int, means: Tensor, steps: int) -> Any:
    """Return ProcSim with proxies of the wanted start."""
    text = (
        f"ProcSim(lam={setting.get('lam', 1.0)}, scale={setting['scale']}, lr={setting['lr']}{setting.get('more', '')})"
    )
    model: Any = build(text, Confidence, classes=classes, dim=dim, steps=steps).to(means.device)
    if setting["start"] == "eighth":
        model.proxies.div_(8)
    elif setting["start"] == "means":
        model.proxies.copy_(means)
    return model


def train(job: dict, folder: Path, validation: bool, device: torch.device) -> dict:
    """Train a job and return its record."""
    with np.load(folder / f"{job['set']}.npz") as data:
        images, labels, split = (data[key] for key in ("x", "y", "split"))
    train_rows, test_rows = np.flatnonzero(split == 0), np.flatnonzero(split == 1)
    if validation:
        held = np.random.default_rng(3).permutation(np.unique(labels[train_rows]))
        mask = np.isin(labels[train_rows], held[: len(held) // 3])
        train_rows, test_rows = train_rows[~mask], train_rows[mask]
    clean = np.unique(labels[train_rows], return_inverse=True)[1]
    classes, side = int(clean.max()) + 1, images.shape[-1]
    config = network_settings(job, side)
    size = config.size or side
    x, x_test = (torch.as_tensor(images[rows], device=device) for rows in (train_rows, test_rows))
    y_test = torch.as_tensor(labels[test_rows], device=device)
    kind, share = job["noise"].split()
    near = similar_classes(config, x, torch.as_tensor(clean, device=device), size) if kind == "semantic" else None
    given = wrong_labels(clean, kind, float(share), job["seed"], near)
    y, wrong = torch.as_tensor(given, device=device), torch.as_tensor(given != clean, device=device)

    facts = {"classes": classes, "dim": config.dim, "labels": given, "seed": job["seed"]}
    network = to_device(make_embedder(config, None, reseed=True), device)
    loss = build(config.loss, Loss, **facts).to(device)
    sampler, kept = make_sampler(job, facts), torch.arange(len(given), device=device)
    feed = iter(sampler)
    if job.get("way") == "oracle":  # as many steps as with all labels
        kept = torch.where(~wrong)[0]
        feed = iter(make_sampler(job, facts | {"labels": clean[~wrong.cpu().numpy()]}))
    relabelling: Any = build(job["confidence"], Confidence, **facts).to(device) if job.get("confidence") else None
    period = round(float(relabelling.every.removesuffix("e")) * len(sampler)) if relabelling else None
    steps = max(1, round(job["epochs"] * len(sampler)))
    means = class_means(embed(network, x, size), y, classes)
    settings = [job["procsim"]] if job.get("procsim") else job.get("proxies", [])
    models = [proxy_model(setting, classes, config.dim, means, steps) for setting in settings]
    detected, weights = [Detection(wrong) for _ in models], bool(job.get("procsim"))
    term = prepare_guidance(job, x, given) if job.get("guidance") else None
    averages = {share: WeightAverage(network, share) for share in job["averages"]}
    optimizer = make_optimizer(config, [network], [loss])
    schedule, curve, began = Schedule(config, optimizer, steps, len(sampler)), [], time.monotonic()
    network.train()
    torch.manual_seed(job["seed"])
    for step in range(steps):
        if period and step % period == 0:
            z, f = (embed(network, x, size, features) for features in (False, True))
            round_ = relabelling.relabel(
                Embedded(z, torch.as_tensor(given, device=device), torch.arange(len(x), device=device), f=f)
            )
            y, kept = round_.y, torch.where(round_.w > 0)[0]
            feed = iter(make_sampler(job, facts | {"labels": y[kept].cpu().numpy()}))
        rows = kept[torch.as_tensor(next(feed), device=device)]
        schedule.before_step(step)
        optimizer.zero_grad(set_to_none=True)
        seen = augment(x[rows], size)
        out, late = network(seen), step >= steps - 2 * len(sampler)
        found = [model(out.z.detach(), y[rows], rows, None) for model in models]
        for one, result in zip(detected, found, strict=True):
            threshold = otsu(result.suspicion) if result.threshold is None else result.threshold
            one.add(result.suspicion, threshold, rows, late)
        each = loss(out.z if loss.input == "unit" else out.e, y[rows], None)
        weighing = relabelling(out.z, y[rows], rows, None) if relabelling else found[0] if weights else None
        ones = torch.ones_like(each)
        value = weighted_mean(each, ones, weighing)
        if term:
            guided = term(out, Batch(seen, y[rows], rows))
            value = value + term.weight * weighted_mean(guided, ones, weighing if term.weighted else None)
        value.backward()
        optimizer.step()
        reset_state(optimizer, loss.after_step(step + 1))
        for model in models:
            model.after_step(step + 1)
        for average in averages.values():
            average.update()
        if (step + 1) % (2 * len(sampler)) == 0 or step + 1 == steps:
            line = {"step": step + 1, "last": recall_at_1(embed(network, x_test, size), y_test)}
            for share, average in averages.items():
                with average.applied():
                    line[f"average {share}"] = recall_at_1(embed(network, x_test, size), y_test)
            curve.append(line)
    record = {key: value for key, value in job.items() if key != "proxies"} | {
        "split": "validation" if validation else "test"
    }
    record |= {"steps": steps, "classes": classes, "curve": curve, "seconds": round(time.monotonic() - began, 1)}
    if weights:
        return record | detected[0].result()
    if relabelling:
        record |= {
            "used": len(kept) / len(y),
            "right labels": float((y == torch.as_tensor(clean, device=device))[kept].float().mean()),
        }
    every = [setting | one.result() for setting, one in zip(settings, detected, strict=True)]
    return record | ({"detected": every} if every else {})


def rows_of(record: dict) -> Iterator[dict]:
    """Yield the lines of the table for a record: one for every way to average, or for every set of proxies."""
    keys = (
        "set",
        "noise",
        "split",
        "way",
        "confidence",
        "loss",
        "guidance",
        "seed",
        "schedule",
        "batch",
        "epochs",
        "steps",
    )
    about = {key: record[key] for key in keys if record.get(key) is not None}
    last, curve = record["curve"][-1], record["curve"]
    for setting in record.get("detected", []):
        yield about | setting
    if "detected" in record:
        return
    procsim = record.get("procsim")
    more = {key: record.get(key) for key in ("recall", "false alarms", "AUROC")} if procsim else {}
    more |= {key: record[key] for key in ("used", "right labels") if key in record}
    for way in (key for key in last if key != "step"):
        yield (
            about
            | {"network": way}
            | (procsim or {})
            | {"R@1": last[way], "best R@1": max(c[way] for c in curve)}
            | more
        )


def write_csv(records: Sequence[Path], file: Path) -> None:
    """Write the records of some files as one table."""
    lines = [row for one in records for text in one.read_text().splitlines() for row in rows_of(json.loads(text))]
    names = list(dict.fromkeys(key for line in lines for key in line))
    with open(file, "w", newline="") as out:
        writer = csv.DictWriter(out, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows({k: f"{v:.4g}" if isinstance(v, float) else v for k, v in line.items()} for line in lines)


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", choices=("average", "proxies", "procsim", "robust", "csv"))
    parser.add_argument("files", nargs="*", type=Path, help="csv: files of records, and the table to write")
    parser.add_argument("--sets", type=Path, help="folder of NAME.npz")
    parser.add_argument("--out", type=Path, default=Path("small_networks.jsonl"))
    parser.add_argument("--names", nargs="+", default=SETS)
    parser.add_argument("--noise", nargs="+", default=NOISE, help='such as "uniform 0.5" "semantic 0.2"')
    parser.add_argument("--seeds", nargs="+", type=int, default=(0, 1, 2))
    parser.add_argument("--epochs", type=float, help="by default 20, and 40 with batches of 360")
    parser.add_argument("--batches", nargs="+", type=int, default=(90, 360))
    parser.add_argument("--lr", nargs="+", type=float, default=(1e-3, 5e-2))
    parser.add_argument("--lam", nargs="+", type=float, default=(1.0, 0.1, 0.01))
    parser.add_argument("--scale", nargs="+", type=float, default=(1.0, 4.0))
    parser.add_argument("--more", nargs="+", default=("",), help='other arguments, such as ", tau_factor=0.5"')
    parser.add_argument(
        "--guidance", nargs="+", default=("",), help='procsim: guidance terms, such as "LanguageGuidance()"'
    )
    parser.add_argument(
        "--robust", default="LabelPosterior()", help="the confidence of `--robust`, or another one that relabels"
    )
    parser.add_argument("--validation", action="store_true", help="score held-out training classes")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return parse_with_quick(
        parser, words, names=["glyphs"], noise=["uniform 0.5"], seeds=[0], epochs=1.0, batches=[90], lr=[0.05], lam=[0.01],
        scale=[4.0],
    )  # fmt: skip


def main(words: Sequence[str] | None = None) -> None:
    options = parse(words)
    if options.study == "csv":
        write_csv(options.files[:-1], options.files[-1])
        return
    studies = {"average": average_jobs, "proxies": proxies_jobs, "procsim": procsim_jobs, "robust": robust_jobs}
    jobs = studies[options.study](options)
    done = options.out.read_text().count("\n") if options.out.exists() else 0
    for number, job in enumerate(jobs):
        if number < done:
            continue
        record = train(job, options.sets, options.validation, torch.device(options.device))
        with open(options.out, "a") as file:
            file.write(json.dumps(record) + "\n")
        print(job["set"], job["noise"], job.get("procsim") or job["loss"], record["curve"][-1], flush=True)


if __name__ == "__main__":
    main()
