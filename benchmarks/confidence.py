"""Cost of a confidence: the time that it adds to a training step, eager, compiled and as a CUDA graph.

    python benchmarks/confidence.py [--device cuda] [--batch 360] [--classes 100 11318] [--compile] [--out result.json]

"threshold + weights" is a way to compute tau and Lambert's W together, from given losses; the name of a component is the whole of
it: the sample weights of the batch, and the update after the step. Compiled: the weights are, the update is not. Captured: both,
in one CUDA graph, which fails if anything waits for the host. Contenders take turns, and medians count; times on the CPU are
process times. "waits": number of times that the host waits for the device.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from functools import partial

import numpy as np
import torch
from likewise.contracts import Confidence
from losses import race, waits
from measure import parse_with_quick
from torch import Tensor
from torch.nn import functional as F

from likewise.core.settings.spec import build
from likewise.learn.confidence.thresholds import mixture, otsu, weigh

THRESHOLDS = {"otsu + weights": otsu, "mixture + weights": mixture}
PARTS = (
    "ProcSim(lam=0.1)",
    "ProcSim(lam=0.1, threshold='mean')",
    "ProcSim(lam=0.1, threshold='mixture')",
    "ProcSim(lam=0.1, score_by='loss')",
    "SuperLoss()",
    "PRISM(share=0.2)",
    "N2D2()",
)


def believe(find, losses: Tensor) -> Tensor:
    return weigh(losses, find(losses), 0.1)


def step(part: Confidence, relabel, inputs: tuple) -> None:
    relabel(*inputs)
    part.after_step(1)


def captured(work):
    """Return a function that replays the work as one CUDA graph."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            work()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph.replay


def measure(name: str, works: dict, options, **about) -> dict:
    """Return one row of the table: milliseconds of every way to run the same work."""
    cuda = options.device.startswith("cuda")
    found = {}
    if cuda:
        try:
            works["captured"] = captured(works["plain"])
        except RuntimeError as error:
            found["captured"] = f"fails: {str(error).splitlines()[0]}"
    line = {"what": name, **about, "ms": race(works, options.device, options.rounds, options.patience) | found}
    if cuda:
        line["waits"] = waits(works["plain"])
    text = " | ".join(f"{k} {v:8.4f} ms" if isinstance(v, float) else f"{k} {v}" for k, v in line["ms"].items())
    where = " ".join(f"{k}={v}" for k, v in about.items())
    print(f"{name:40s} {where:22s} {text}" + (f" | {line['waits']} waits" if cuda else ""), flush=True)
    return line


def threshold(name: str, size: int, options) -> dict:
    g = torch.Generator().manual_seed(0)
    losses = torch.cat(
        [torch.randn(size // 2, generator=g) / 5 + 3, torch.randn(size - size // 2, generator=g) / 5 + 4]
    )
    losses = losses[torch.randperm(size, generator=g)].to(options.device)
    work = partial(believe, THRESHOLDS[name])
    works = {"plain": partial(work, losses)}
    if options.compile:
        works["compiled"] = partial(torch.compile(work, fullgraph=True), losses)
    return measure(name, works, options, batch=size)


def part(spec: str, size: int, classes: int, options) -> dict:
    torch.manual_seed(0)
    labels = np.arange(options.samples) % classes
    z = F.normalize(torch.randn(size, options.dim), dim=1).to(options.device)
    y, row = torch.arange(size, device=options.device) % classes, torch.arange(size, device=options.device)
    works = {}
    for way in ("plain", "compiled") if options.compile else ("plain",):
        made = build(spec, Confidence, classes=classes, dim=options.dim, labels=labels).to(options.device)
        relabel = torch.compile(made, fullgraph=True) if way == "compiled" else made
        works[way] = partial(step, made, relabel, (z, y, row, torch.rand(size, device=options.device)))
    return measure(spec, works, options, batch=size, classes=classes)


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batch", type=int, nargs="+", default=[360])
    parser.add_argument("--classes", type=int, nargs="+", default=[100, 11_318])
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--samples", type=int, default=8054, help="number of training samples, which PRISM stores")
    parser.add_argument("--compile", action="store_true", help="also measure compiled code")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1, help="number of CPU threads")
    parser.add_argument("--out", help="JSON file for the result")
    parser.add_argument(
        "--patience", type=float, default=2.0, help="work that takes longer, in seconds, is measured once"
    )
    return parse_with_quick(parser, words, batch=[16], classes=[8], dim=8, samples=64, patience=0.0)


def main(words: Sequence[str] | None = None) -> None:
    options = parse(words)
    torch.set_num_threads(options.threads)
    lines = [threshold(name, size, options) for size in options.batch for name in THRESHOLDS]
    for size in options.batch:
        for classes in options.classes:
            for spec in PARTS:
                lines.append(part(spec, size, classes, options))
                torch.compiler.reset()
    if options.out:
        with open(options.out, "w", encoding="utf-8") as file:
            json.dump({"device": options.device, "torch": torch.__version__, "dim": options.dim, "lines": lines}, file)


if __name__ == "__main__":
    main()
