"""Graded training next to flat training: nDCG@10 by the class tree or by shared labels, R@1 and MAP@R, paired by seed.

    python benchmarks/graded.py --features FOLDER --tune --seeds 0      # choose on validation classes
    python benchmarks/graded.py --features FOLDER --out graded.json --write docs/relevance.md

FOLDER/NAME.npz has x, label (numbers), names (of the classes) and path, for NAME cub200, grocery, gtsrb and pets; glyph_labels is
drawn here. A head trains on the features. Both sides have the same loss, learning rate, batches, steps and seeds. Flat training
uses the classes, or whole sets of labels ("flat"), or whether a label is shared ("any"); graded training uses the relevance, and
nDCG@10 counts results by it. Test classes are not trained. `--tune` holds out a third of the training classes, and its answer is
in `CHOSEN_POWERS`: the power of best nDCG@10 among those that lose at most 0.5 points of R@1.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from graded_sets import Data, draw_glyphs, halves, read_features, toy
from likewise.contracts import BatchSampler, Loss, Relevance
from measure import parse_with_quick
from torch import nn

from likewise.core.settings.spec import build
from likewise.score.intervals import paired_interval, t_interval

LOSS_SPECS = {
    "MultiSimilarity": "MultiSimilarity()", "SupCon": "SupCon()", "ListwiseKL": "ListwiseKL()", "LogRatio": "LogRatio()",
    "ProxyAnchor": "ProxyAnchor()", "ArcFace": "ArcFace()",
}  # fmt: skip
CHOSEN_POWERS = {
    "cub200": {"SupCon": 8, "LogRatio": 16, "ArcFace": 8},
    "grocery": {"SupCon": 8, "ArcFace": 2},
    "gtsrb": {"SupCon": 2, "ProxyAnchor": 2},
}
"""Set -> loss -> power of `TreeDepth` in graded training, the answer of `--tune`; losses that are not here have 1."""
LABELS_SPEC = "SharedLabels()"
ANY_SPEC = "SharedLabels(measure='any')"
CANDIDATE_POWERS = (1, 2, 4, 8, 16)
METRIC_NAMES = ("nDCG@10", "R@1", "MAP@R")
R1_TOLERANCE = 0.5
"""Points of R@1 within which two sides are equal."""
DEPTH = 10
WEIGHT_DECAY = 4e-4
BLOCK = 1024
BEGIN, END = "<!-- graded begin -->", "<!-- graded end -->"


class Head(nn.Module):
    """A linear layer on features; two layers on pixels."""

    def __init__(self, data: Data, dim: int):
        super().__init__()
        width = data.x.shape[1]
        hidden = () if data.label_sets is None else (nn.Linear(width, 512), nn.ReLU())
        self.layers = nn.Sequential(*hidden, nn.Linear(512 if hidden else width, dim))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


def sampler_for(data: Data, batch: int, seed: int) -> BatchSampler:
    if data.label_sets is not None:
        return build(f"SamplesPerLabel(batch={batch})", BatchSampler, **data.facts(), seed=seed)
    per_class = 4 if len(data.names) * 4 >= batch else -(-batch // len(data.names))
    classes = batch // per_class
    return build(
        f"SamplesPerClass(batch={classes * per_class}, per_class={per_class})", BatchSampler, **data.facts(), seed=seed
    )


def train(data: Data, loss_spec: str, relevance_spec: str | None, seed: int, options) -> Head:
    """Return a trained head; without a relevance the classes are the labels."""
    torch.manual_seed(seed)
    head = Head(data, options.dim)
    relevance = relevance_spec and build(relevance_spec, Relevance, **data.facts())
    classes = relevance.width if relevance and relevance.width else len(data.names)
    loss = build(loss_spec, Loss, classes=classes, dim=options.dim)
    if relevance:
        loss.with_relevance(relevance)
    optimizer = torch.optim.Adam(parameter_groups(head, loss, options.lr), lr=options.lr, weight_decay=WEIGHT_DECAY)
    for rows in batches(sampler_for(data, options.batch, seed), options.steps):
        z = head(data.x[rows])
        z = z if loss.input == "raw" else nn.functional.normalize(z)
        optimizer.zero_grad()
        loss(z, data.y[rows]).mean().backward()
        optimizer.step()
    return head


def parameter_groups(head: nn.Module, loss: Loss, lr: float) -> list[dict]:
    own = list(loss.parameters())
    return [{"params": head.parameters()}, *([{"params": own, "lr": lr * loss.lr_factor}] if own else [])]


def batches(sampler: BatchSampler, steps: int) -> Iterator[list[int]]:
    epoch = 0
    while True:
        for rows in sampler.epoch_batches(epoch):
            if steps == 0:
                return
            steps -= 1
            yield rows
        epoch += 1


class Scores:
    """Metrics per query of embeddings of some test data; every sample is a query to all others."""

    def __init__(self, data: Data):
        self.data = data
        spec = "TreeDepth()" if data.label_sets is None else LABELS_SPEC
        every = torch.arange(len(data.names))
        self.table = build(spec, Relevance, **data.facts())(every, every).double()
        self.others = torch.bincount(data.y)[data.y] - 1
        self.discount = 1 / torch.arange(2, DEPTH + 2, dtype=torch.float64).log2()
        self.best = torch.cat([self._best(rows) for rows in torch.arange(len(data.y)).split(BLOCK)])

    def _best(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the discounted relevance of the most relevant samples."""
        value = self.table[self.data.y[rows]][:, self.data.y]
        value[torch.arange(len(rows)), rows] = -1
        return value.topk(DEPTH).values @ self.discount

    @torch.no_grad()
    def of(self, embed: Callable[[torch.Tensor], torch.Tensor]) -> dict[str, np.ndarray]:
        """Return metric -> its value for every query; R@1 and MAP@R are NaN without another sample of the class."""
        y, found = self.data.y, []
        z = nn.functional.normalize(embed(self.data.x))
        depth = min(max(DEPTH, int(self.others.max())), len(y) - 1)
        for rows in torch.arange(len(y)).split(BLOCK):
            sim = z[rows] @ z.T
            sim[torch.arange(len(rows)), rows] = -torch.inf
            near = y[sim.topk(depth).indices]
            gained = self.table[y[rows][:, None], near[:, :DEPTH]] @ self.discount
            hit = (near == y[rows][:, None]).double()
            rank = torch.arange(1, depth + 1)
            precise = hit * hit.cumsum(1) / rank * (rank <= self.others[rows][:, None])
            lonely = torch.where(self.others[rows] == 0, torch.nan, 1.0)
            found.append([gained / self.best[rows], hit[:, 0] * lonely, precise.sum(1) / self.others[rows]])
        return {
            name: torch.cat(parts).numpy() for name, parts in zip(METRIC_NAMES, zip(*found, strict=True), strict=True)
        }


def tree_spec(power: float) -> str:
    return f"TreeDepth(power={power})"


def ways(data: Data, loss: str) -> dict[str, str | None]:
    """Return the ways to train with a loss: name -> relevance, None for classes."""
    if data.label_sets is None:
        return {"flat": None, "graded": tree_spec(CHOSEN_POWERS.get(data.name, {}).get(loss, 1))}
    proxies = build(LOSS_SPECS[loss], Loss, classes=2, dim=2).relevance_inputs == ("targets",)
    return {"flat": None, **({} if proxies else {"any": ANY_SPEC}), "graded": LABELS_SPEC}


def sources(options) -> Iterator[tuple[Data, Data]]:
    """Yield training and test half of every wanted set."""
    for name in options.sets:
        if name == "toy":
            yield toy()
        elif name == "glyph_labels":
            yield draw_glyphs(options.glyphs, options.per_class)
        else:
            yield read_features(options.features / f"{name}.npz")


def measure(options) -> list[dict]:
    """Return one record per set, loss and way: metrics per query of every seed."""
    records, began = [], time.perf_counter()
    for learn, test in sources(options):
        scores = Scores(test)
        for loss in options.losses:
            for way, relevance in ways(learn, loss).items():
                each = [scores.of(train(learn, LOSS_SPECS[loss], relevance, seed, options)) for seed in options.seeds]
                found = {name: np.stack([one[name] for one in each]) for name in METRIC_NAMES}
                records.append(
                    {"data": test.name, "loss": loss, "way": way, "relevance": relevance, "y": test.y.numpy(), **found}
                )
                means = " ".join(f"{name} {100 * np.nanmean(found[name]):.2f}" for name in METRIC_NAMES)
                print(f"{time.perf_counter() - began:6.1f} s  {test.name} | {loss} | {way}: {means}", flush=True)
    return records


def tune(options) -> dict[str, dict[str, int]]:
    """Return the best power of every set and loss on validation classes, and print all of them."""
    chosen: dict[str, dict[str, int]] = {}
    for learn, _ in sources(options):
        if learn.label_sets is not None:
            continue
        learn, held = halves(learn, 2 / 3, 1)
        scores = Scores(held)
        for loss in options.losses:
            found: dict[int | None, dict[str, float]] = {}
            for power in (None, *CANDIDATE_POWERS):
                relevance = power and tree_spec(power)
                each = [scores.of(train(learn, LOSS_SPECS[loss], relevance, seed, options)) for seed in options.seeds]
                found[power] = {
                    name: 100 * float(np.mean([np.nanmean(one[name]) for one in each])) for name in METRIC_NAMES
                }
                told = " ".join(f"{name} {value:.2f}" for name, value in found[power].items())
                print(f"{learn.name} | {loss} | {relevance or 'flat'}: {told}", flush=True)
            chosen.setdefault(learn.name, {})[loss] = choose(found)
    return chosen


def choose(found: dict[int | None, dict[str, float]]) -> int:
    """Return the power of best nDCG@10 whose R@1 is at most `R1_TOLERANCE` below that of flat training (None).

    Without such a power, that of the highest R@1.
    """
    powers = [power for power in found if power is not None]
    least = found[None]["R@1"] - R1_TOLERANCE
    equal = [power for power in powers if found[power]["R@1"] >= least]
    if equal:
        return max(equal, key=lambda power: found[power]["nDCG@10"])
    return max(powers, key=lambda power: found[power]["R@1"])


def compare(records: Sequence[dict]) -> list[dict]:
    """Return one line per set, loss and flat side: means of both, differences with intervals over seeds and over classes."""
    at, lines = {(one["data"], one["loss"], one["way"]): one for one in records}, []
    for (data, loss, way), flat in at.items():
        if way == "graded":
            continue
        other = at[data, loss, "graded"]
        line = {"data": data, "loss": loss, "flat": way, "graded": other["relevance"]}
        for name in METRIC_NAMES:
            known = ~np.isnan(flat[name][0])
            a, b = (100 * one[name][:, known] for one in (flat, other))
            seeds = t_interval((b - a).mean(1))
            classes = paired_interval(a.mean(0), b.mean(0), flat["y"][known])
            line[name] = {
                "flat": float(a.mean()), "graded": float(b.mean()), "difference": seeds.mean,
                "seeds": [seeds.low, seeds.high], "classes": [classes.low, classes.high],
            }  # fmt: skip
        lines.append(line | {"verdict": verdict(line)})
    return lines


def verdict(line: dict) -> str:
    """Return whether graded training is better in nDCG@10 over seeds, and whether R@1 is equal."""
    low, high = line["nDCG@10"]["seeds"]
    word = "better" if low > 0 else "worse" if high < 0 else "not shown"
    gap = line["R@1"]["difference"]
    return word if abs(gap) <= R1_TOLERANCE else f"{word}; R@1 is {'higher' if gap > 0 else 'lower'}"


def as_table(lines: Sequence[dict]) -> str:
    """Return the lines as a table."""
    head = (
        "set", "loss", "graded by", "nDCG@10 flat", "graded", "difference (seeds)", "(other classes)", "R@1 flat", "difference",
        "MAP@R flat", "difference", "graded is",
    )  # fmt: skip
    rows = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for line in lines:
        gain, first, precise = (line[name] for name in METRIC_NAMES)
        name = line["loss"] + (", flat: a label shared" if line["flat"] == "any" else "")
        cells = [line["data"], name, f"`{line['graded']}`", f"{gain['flat']:.2f}", f"{gain['graded']:.2f}"]
        cells += [f"{gain['difference']:+.2f} ({span(gain['seeds'])})", span(gain["classes"])]
        cells += [text for one in (first, precise) for text in (f"{one['flat']:.2f}", f"{one['difference']:+.2f}")]
        rows.append(f"| {' | '.join([*cells, line['verdict']])} |")
    return "\n".join(rows) + "\n"


def span(ends: Sequence[float]) -> str:
    return "-" if np.isnan(ends).any() else f"{ends[0]:+.2f} to {ends[1]:+.2f}"


def write_between(page: Path, text: str) -> None:
    """Replace what is between the markers of a page."""
    before, rest = page.read_text("utf-8").split(BEGIN)
    page.write_text(f"{before}{BEGIN}\n\n{text}\n{END}{rest.split(END)[1]}", "utf-8")


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--features", type=Path, default=Path("features"), help="folder of the .npz files")
    parser.add_argument("--sets", nargs="+", default=["cub200", "grocery", "gtsrb", "glyph_labels"])
    parser.add_argument("--losses", nargs="+", default=list(LOSS_SPECS), choices=list(LOSS_SPECS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--tune", action="store_true", help="choose the relevance of every loss on validation classes")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=112)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--glyphs", type=int, help="number of characters; default: all")
    parser.add_argument("--per-class", type=int, default=24, help="images of a character")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, help="JSON file for the result")
    parser.add_argument("--write", type=Path, help="page with the markers of the table")
    small = {"sets": ["toy"], "seeds": [0, 1], "steps": 4, "batch": 24, "dim": 8, "glyphs": 12, "per_class": 8}
    return parse_with_quick(parser, words, **small)


def main(words: Sequence[str] | None = None) -> None:
    options = parse(words)
    torch.set_num_threads(options.threads)
    if options.tune:
        found: object = tune(options)
        print(json.dumps(found, indent=1))
    else:
        found = compare(measure(options))
        print(as_table(found))
        if options.write:
            write_between(options.write, as_table(found))
    if options.out:
        options.out.write_text(json.dumps(found, indent=1), "utf-8")


if __name__ == "__main__":
    main()
