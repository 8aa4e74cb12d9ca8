"""Every loss side by side with pytorch-metric-learning's: time, memory and waiting, forward and backward, in the same run.

    python benchmarks/losses.py [--device cuda] [--sizes 128 512 2048] [--per-class 4 32] [--compile] [--out result.json]

Ours, the peer and the bare similarity product (forward and backward) take turns, round after round, and medians count. Times
on the CPU are those of the process, on one thread. "products" is the time in units of the product that the loss must form:
B x B, twice that for Angular, B x (memory + B) for CrossBatchMemory, B x all centres for proxy losses. On a GPU: peak memory
above what was held before, and how often forward and backward wait for the device. A peer that fails is shown as such, and one
call of it has to do where that takes longer than --patience.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import time
import warnings
from collections.abc import Iterator, Sequence
from functools import partial

import torch
from likewise.contracts import Loss
from measure import parse_with_quick
from torch import Tensor
from torch.nn import functional as F

from likewise.core.settings.spec import build

SPECS = (
    "Contrastive()", "Triplet(miner=SemiHard())", "Triplet(miner=DistanceWeighted())", "Triplet(miner=BatchHard())",
    "Triplet(miner=EasyPositive())", "Triplet(miner=Random())", "Triplet(miner=SoftHard())", "Triplet(miner=Switch())",
    "Margin()", "MultiSimilarity()", "SNR()", "Quadruplet()", "GeneralizedLifted()", "LiftedStructure()", "NPair()",
    "Angular()", "Circle()", "SupCon()", "Histogram()", "FastAP()", "SmoothAP()", "CrossBatchMemory()", "ArcFace()",
    "CosFace()", "NormSoftmax()", "ProxyNCA()", "ProxyAnchor()", "SoftTriple()",
)  # fmt: skip


def peers(memory: int):
    """Our spec -> how pytorch-metric-learning makes the same, where it can; `memory`: samples of CrossBatchMemory."""
    from pytorch_metric_learning import distances, losses, miners, regularizers

    def mined(loss, miner):
        return lambda z, y: loss(z, y, miner(z, y))

    def all_of(make, miner=None):
        return lambda classes, dim, device: _peer(make(classes, dim), miner, device)

    def _peer(loss, miner, device):
        loss = loss.to(device)
        return loss, (mined(loss, miner) if miner else loss)

    def soft_triple(classes, dim):
        apart = regularizers.SparseCentersRegularizer(classes, 10)
        return losses.SoftTripleLoss(classes, dim, weight_regularizer=apart, weight_reg_weight=0.2)

    triplet = lambda *_: losses.TripletMarginLoss(margin=0.2)  # noqa: E731
    weighted = miners.DistanceWeightedMiner(cutoff=0.5, nonzero_loss_cutoff=1.4)
    return {
        "Contrastive()": all_of(lambda c, d: losses.ContrastiveLoss(pos_margin=0, neg_margin=1)),
        "Triplet(miner=SemiHard())": all_of(triplet, miners.TripletMarginMiner(0.2, "semihard")),
        "Triplet(miner=DistanceWeighted())": all_of(triplet, weighted),
        "Triplet(miner=BatchHard())": all_of(triplet, miners.BatchHardMiner()),
        "Triplet(miner=EasyPositive())": all_of(triplet, miners.BatchEasyHardMiner("easy", "semihard")),
        "Margin()": all_of(lambda c, d: losses.MarginLoss(num_classes=c, learn_beta=True), weighted),
        "MultiSimilarity()": all_of(
            lambda c, d: losses.MultiSimilarityLoss(2, 40, 0.5), miners.MultiSimilarityMiner(0.1)
        ),
        "SNR()": all_of(lambda c, d: losses.TripletMarginLoss(margin=0.2, distance=distances.SNRDistance()), weighted),
        "GeneralizedLifted()": all_of(lambda c, d: losses.GeneralizedLiftedStructureLoss()),
        "LiftedStructure()": all_of(lambda c, d: losses.LiftedStructureLoss()),
        "NPair()": all_of(lambda c, d: losses.NPairsLoss()),
        "Angular()": all_of(lambda c, d: losses.AngularLoss(45)),
        "Circle()": all_of(lambda c, d: losses.CircleLoss()),
        "SupCon()": all_of(lambda c, d: losses.SupConLoss()),
        "Histogram()": all_of(lambda c, d: losses.HistogramLoss(n_bins=64)),
        "FastAP()": all_of(lambda c, d: losses.FastAPLoss(num_bins=10)),
        "SmoothAP()": all_of(lambda c, d: losses.SmoothAPLoss()),
        "CrossBatchMemory()": all_of(lambda c, d: losses.CrossBatchMemory(losses.ContrastiveLoss(0, 1), d, memory)),
        "ArcFace()": all_of(lambda c, d: losses.ArcFaceLoss(c, d, margin=28.6, scale=16)),
        "CosFace()": all_of(lambda c, d: losses.CosFaceLoss(c, d)),
        "NormSoftmax()": all_of(lambda c, d: losses.NormalizedSoftmaxLoss(c, d, temperature=0.05)),
        "ProxyNCA()": all_of(lambda c, d: losses.ProxyNCALoss(c, d, softmax_scale=9)),
        "ProxyAnchor()": all_of(lambda c, d: losses.ProxyAnchorLoss(c, d)),
        "SoftTriple()": all_of(soft_triple),
    }


def with_centres(loss: Loss) -> bool:
    return hasattr(loss, "dim") and bool(list(loss.parameters()))


def embeddings(size: int, dim: int, per_class: int, device: str) -> tuple[Tensor, Tensor]:
    """Classes around random centres, as spread as in a half-trained network: nearer, and the miners find nothing to do."""
    g = torch.Generator().manual_seed(0)
    y = torch.arange(size) // per_class
    z = torch.randn(int(y[-1]) + 1, dim, generator=g)[y] + 2 * torch.randn(size, dim, generator=g)
    order = torch.randperm(size, generator=g)
    return F.normalize(z, dim=1)[order].to(device), y[order].to(device)


def product(z: Tensor, other: Tensor | None) -> None:
    sim = z @ (z if other is None else other).T
    sim.backward(torch.ones_like(sim))


def learn(work, z: Tensor, y: Tensor) -> None:
    work(z, y).mean().backward()


class Clock:
    """Seconds of one call; a round of calls when one is short."""

    def __init__(self, device: str):
        self.cuda = device.startswith("cuda")

    def __call__(self, work, calls: int) -> float:
        started = self.now()
        for _ in range(calls):
            work()
        return (self.now() - started) / calls

    def now(self) -> float:
        if self.cuda:
            torch.cuda.synchronize()
            return time.perf_counter()
        return time.process_time()


def fresh(work, tensors) -> None:
    for t in tensors:
        t.grad = None
    work()


def race(contenders: dict, device: str, rounds: int, patience: float) -> dict:
    """Milliseconds of each contender, taking turns; a word where one could not run."""
    clock, calls, found = Clock(device), {}, {}
    for name, work in contenders.items():
        try:
            work()
            first = clock(work, 1)
        except (RuntimeError, MemoryError) as error:
            found[name] = "out of memory" if "allocat" in str(error).lower() else f"fails: {error}"
            continue
        calls[name] = max(1, min(50, int(0.05 / max(first, 1e-6))))
        found[name] = [first] if first > patience else []
    for _ in range(rounds):
        for name in calls:
            if not found[name] or found[name][0] <= patience:
                found[name].append(clock(contenders[name], calls[name]))
    return {k: 1000 * statistics.median(v) if isinstance(v, list) else v for k, v in found.items()}


def memory(work) -> float:
    """Peak megabytes above what is held now."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    work()
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before) / 2**20


def waits(work) -> int:
    """How often the host waits for the device."""
    torch.cuda.set_sync_debug_mode("warn")
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        work()
    torch.cuda.set_sync_debug_mode("default")
    return sum("synchroniz" in str(w.message) for w in seen)


def one(spec: str, peer, size: int, per_class: int, classes: int, options) -> dict:
    device, dim = options.device, options.dim
    if spec == "CrossBatchMemory()":
        spec = f"CrossBatchMemory(size={options.memory})"
    z, y = embeddings(size, dim, per_class, device)
    most = max(classes, int(y.max()) + 1)
    mine = build(spec, Loss, classes=most, dim=dim, largest_class=per_class).to(device)
    centres = with_centres(mine)
    if centres:
        y, mine = y % classes, build(spec, Loss, classes=classes, dim=dim).to(device)
        most = classes
    z = z.requires_grad_()
    other = None
    if centres:
        other = torch.randn(sum(p.numel() for p in mine.parameters()) // dim, dim, device=device, requires_grad=True)
    elif spec.startswith("CrossBatchMemory"):
        other = torch.randn(options.memory + size, dim, device=device)
        for _ in range(options.memory // size + 1):
            mine(z, y)
            mine.after_step(0)
    own = [z, *mine.parameters()]
    contenders = {
        "product": partial(fresh, partial(product, z, other), [z, other] if other is not None else [z]),
        "ours": partial(fresh, partial(learn, mine, z, y), own),
    }
    if options.compile:
        compiled = torch.compile(lambda z, y: mine(z, y).mean(), fullgraph=True)
        contenders["compiled"] = partial(fresh, partial(learn, compiled, z, y), own)
    if peer:
        try:
            module, work = peer(most, dim, device)
            contenders["peer"] = partial(fresh, partial(learn, work, z, y), [z, *module.parameters()])
        except RuntimeError:  # its regulariser makes a matrix of all centres by all centres
            peer = None
    times = race(contenders, device, options.rounds, options.patience)
    line = {"loss": spec, "size": size, "per_class": per_class, "classes": most if centres else None, "ms": times}
    line["products"] = 2 if spec == "Angular()" else 1
    if device.startswith("cuda"):
        sound = [k for k in contenders if not isinstance(times.get(k), str)]
        line["peak_mb"] = {k: round(memory(contenders[k]), 1) for k in sound}
        line["waits"] = {k: waits(contenders[k]) for k in sound if k != "product"}
    return line


def show(line: dict) -> str:
    ms, unit = line["ms"], line["ms"]["product"] * line["products"]
    where = (
        f"B={line['size']} x{line['per_class']}" if line["classes"] is None else f"B={line['size']} C={line['classes']}"
    )
    text = f"{line['loss']:36s} {where:16s} product {unit:9.3f} ms"
    for name in ("ours", "compiled", "peer"):
        value = ms.get(name)
        if isinstance(value, str):
            text += f" | {name} {value[:40]}"
        elif value is not None:
            text += f" | {name} {value:9.3f} ms = {value / unit:7.2f} products"
            text += f" {line['peak_mb'][name]:7.0f} MB {line['waits'][name]} waits" if "peak_mb" in line else ""
    if isinstance(ms.get("peer"), float) and isinstance(ms.get("ours"), float):
        text += f" | peer / ours {ms['peer'] / ms['ours']:.1f}"
    return text


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--sizes", type=int, nargs="+", default=[128, 512, 2048])
    parser.add_argument("--per-class", type=int, nargs="+", default=[4, 32])
    parser.add_argument("--classes", type=int, nargs="+", default=[100, 10_000], help="for losses with centres")
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--memory", type=int, default=4096, help="samples that CrossBatchMemory remembers")
    parser.add_argument("--only", nargs="+", help="losses whose spec begins with one of these")
    parser.add_argument("--compile", action="store_true", help="also measure the compiled loss")
    parser.add_argument("--no-peer", action="store_true")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1, help="number of CPU threads")
    parser.add_argument(
        "--patience", type=float, default=2.0, help="work that takes longer, in seconds, is measured once"
    )
    parser.add_argument("--out", help="JSON file for the result")
    toy = {"sizes": [16], "per_class": [4], "classes": [6], "dim": 8, "memory": 32, "patience": 0.0}
    return parse_with_quick(parser, words, **toy)


def jobs(options) -> Iterator[tuple[str, int, int, int]]:
    """Spec, batch size, samples of a class, and classes where the loss has centres."""
    for spec in SPECS:
        if options.only and not any(spec.startswith(name) for name in options.only):
            continue
        centres = with_centres(build(spec, Loss, classes=5, dim=options.dim))
        for size in options.sizes:
            for each in options.classes if centres else options.per_class:
                if spec.startswith("SoftTriple") and size * each * 10 > 2**29:
                    continue  # 10 centres a class: the product alone would take a minute on a CPU
                yield (spec, size, 4, each) if centres else (spec, size, each, 0)


def compiled_floor(options) -> float:
    """Milliseconds of a compiled step that does nothing."""
    z, _ = embeddings(2048, options.dim, 4, options.device)
    empty = partial(learn, torch.compile(lambda z, y: z.sum(1).mean()), z.requires_grad_(), None)
    return race({"empty": empty}, options.device, options.rounds, options.patience)["empty"]


def main(words: Sequence[str] | None = None) -> None:
    options, known, lines = parse(words), {}, []
    torch.set_num_threads(options.threads)
    if options.device == "cpu" and not options.quick:  # too much memory is an error, not the end of the machine
        resource.setrlimit(resource.RLIMIT_AS, (14 * 2**30, resource.RLIM_INFINITY))
    if options.compile:
        print(f"a compiled step that does nothing: {compiled_floor(options):.3f} ms", flush=True)
    if not options.no_peer:
        try:
            known = peers(options.memory)
        except ImportError as error:
            print(f"without the peer: {error}; pip install pytorch-metric-learning", flush=True)
    for spec, *job in jobs(options):
        lines.append(one(spec, known.get(spec), *job, options))
        print(show(lines[-1]), flush=True)
        torch.compiler.reset()
        if options.out:
            about = {"device": options.device, "torch": torch.__version__, "dim": options.dim, "lines": lines}
            with open(options.out, "w", encoding="utf-8") as file:
                json.dump(about, file)


if __name__ == "__main__":
    main()
