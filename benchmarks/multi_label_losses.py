"""Losses with several labels per sample next to the same losses with single labels: forward and backward, in the same run.

    python benchmarks/multi_label_losses.py [--device cuda] [--size 2048] [--labels 20] [--vocabulary 200 2000] [--out f.json]

Every sample has `--labels` random labels of `--vocabulary`, and its own set of labels. With single labels a class has four
samples, and a proxy loss has as many proxies as there are labels. Both take turns, round after round, and medians count. Times on
the CPU are those of the process, on one thread. On a GPU also: peak memory above what was held before, and device syncs.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from functools import partial

import torch
from likewise.contracts import Loss
from likewise.relevance import SharedLabels
from losses import embeddings, fresh, learn, memory, race, waits
from measure import parse_with_quick

from likewise.core.settings.spec import build

SPECS = (
    "MultiSimilarity()", "ProxyAnchor()", "SupCon()", "FastAP()", "Circle()", "Contrastive()", "ProxyNCA()", "NormSoftmax()",
    "ListwiseKL()", "LogRatio()",
)  # fmt: skip


def label_sets(size: int, labels: int, vocabulary: int) -> list[list[int]]:
    """Return different random labels for each sample."""
    g = torch.Generator().manual_seed(1)
    return torch.rand(size, vocabulary, generator=g).argsort(1)[:, :labels].sort(1).values.tolist()


def one(spec: str, vocabulary: int, options) -> dict:
    device = options.device
    z, y = embeddings(options.size, options.dim, 4, device)
    z = z.requires_grad_()
    relevance = SharedLabels(label_sets(options.size, options.labels, vocabulary), threshold=options.threshold)
    facts = {"classes": vocabulary, "dim": options.dim}
    single, several = (build(spec, Loss, **facts).to(device) for _ in range(2))
    several.with_relevance(relevance.to(device))
    ids = torch.arange(options.size, device=device)
    classes = y % vocabulary if hasattr(single, "classes") else y
    contenders = {
        name: partial(fresh, partial(learn, loss, z, given), [z, *loss.parameters()])
        for name, loss, given in (("single", single, classes), ("several", several, ids))
    }
    times = race(contenders, device, options.rounds, patience=60.0)
    line = {"loss": spec, "vocabulary": vocabulary, "ms": times, "ratio": times["several"] / times["single"]}
    if device.startswith("cuda"):
        line["peak_mb"] = {name: round(memory(work), 1) for name, work in contenders.items()}
        line["waits"] = {name: waits(work) for name, work in contenders.items()}
    return line


def show(line: dict) -> str:
    ms = line["ms"]
    more = ""
    if "peak_mb" in line:
        more = "".join(f" | {k} {v:.0f} MB, {line['waits'][k]} waits" for k, v in line["peak_mb"].items())
    return (
        f"{line['loss']:20s} vocabulary {line['vocabulary']:6d} | single labels {ms['single']:8.2f} ms | "
        f"several {ms['several']:8.2f} ms = {line['ratio']:.2f}x{more}"
    )


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--size", type=int, default=2048, help="samples in the batch")
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--labels", type=int, default=20, help="labels of a sample")
    parser.add_argument("--vocabulary", type=int, nargs="+", default=[200, 2000], help="number of different labels")
    parser.add_argument("--threshold", type=float, default=0.1, help="relevance from which a pair is positive")
    parser.add_argument("--only", nargs="+", help="losses whose spec begins with one of these")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1, help="number of CPU threads")
    parser.add_argument("--out", help="JSON file for the result")
    return parse_with_quick(parser, words, size=16, dim=8, labels=3, vocabulary=[12], rounds=1)


def main(words: Sequence[str] | None = None) -> None:
    options, lines = parse(words), []
    torch.set_num_threads(options.threads)
    for spec in SPECS:
        if options.only and not any(spec.startswith(name) for name in options.only):
            continue
        for vocabulary in options.vocabulary:
            lines.append(one(spec, vocabulary, options))
            print(show(lines[-1]), flush=True)
    if options.out:
        about = {"device": options.device, "torch": torch.__version__, "size": options.size, "labels": options.labels}
        with open(options.out, "w", encoding="utf-8") as file:
            json.dump(about | {"lines": lines}, file)


if __name__ == "__main__":
    main()
