"""Training and embedding at the speed of the network: `likewise train` beside the bare network, at the same batch on one GPU.

    python benchmarks/train_step.py [--out result.json] [--nets efficientnet_lite0:160:112 resnet50:224:128] [--steps 200]
    python benchmarks/train_step.py --memory          # batches of 4,096, with and without chunks; also without a GPU
    python benchmarks/train_step.py --run TABLE [--weights FILE]     # a whole run of 30 passes, from settings to scores
    python benchmarks/train_step.py --classes 1000000                # proxies shared out among processes

"bare": forward, backward and a fused optimiser step of the network on one batch that lies on the device, in bfloat16, with the
sum of its embeddings for a loss: as it is, captured as a CUDA graph, compiled and captured. "ours": steps of a real training on
pictures (random crops, a proxy and a pair loss, logging), once the first tenth has passed. "embed" is `embed_rows` on the
same pictures, beside the bare network in evaluation mode. Ratios are between numbers of the same call.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from input import made_up

from likewise.capture import Captured, Looking
from likewise.configs import Train
from likewise.data import load
from likewise.data.augment import Plain
from likewise.data.resident import hold
from likewise.embedding import embed_rows
from likewise.losses import ArcFace
from likewise.models.embedder import Embedder
from likewise.run import Run
from likewise.sharded import shard
from likewise.stages.assemble import resolve, to_device
from likewise.stages.train import Training, train
from likewise.types import Items

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
WAYS = ("eager", "graph", "compile")


def network(name: str, size: int, freeze_bn: bool = False) -> Embedder:
    torch.manual_seed(0)
    return to_device(Embedder(name, 512, pretrained=False, size=size, freeze_bn=freeze_bn), DEVICE).train()


def some_batch(batch: int, size: int) -> torch.Tensor:
    x = torch.randint(0, 256, (batch, 3, size, size), dtype=torch.uint8, device=DEVICE)
    return x.contiguous(memory_format=torch.channels_last)


def bare(name: str, size: int, batch: int, way: str, steps: int) -> dict:
    """Pictures a second of the network alone, and how long it took to get ready."""
    embedder, x = network(name, size), some_batch(batch, size)
    optimizer = torch.optim.AdamW(embedder.parameters(), lr=1e-5, fused=True)
    torch.cuda.synchronize()
    began = time.perf_counter()
    work = embedder if way == "eager" else Captured(embedder, x, bf16=True, compiled=way == "compile")

    def step() -> None:
        with torch.autocast("cuda", torch.bfloat16):
            out = work(x)
        optimizer.zero_grad(set_to_none=True)
        out.z.sum().backward()
        optimizer.step()

    for _ in range(5):
        step()
    torch.cuda.synchronize()
    ready, began = time.perf_counter() - began, time.perf_counter()
    for _ in range(steps):
        step()
    torch.cuda.synchronize()
    return {"images_per_s": round(steps * batch / (time.perf_counter() - began)), "ready_s": round(ready, 1)}


class Timed(Training):
    """Notes when a tenth of the steps is done, and when all are."""

    def one_step(self, batch) -> None:
        super().one_step(batch)
        if self.step in (max(1, self.steps // 10), self.steps):
            if self.device.type == "cuda":
                torch.cuda.synchronize()
            self.times = (*getattr(self, "times", ()), time.perf_counter())


def settings(name: str, size: int, batch: int, **more) -> Train:
    return Train(
        "", backbone=name, size=size, pretrained=False, dim=512, precision="bf16", lr=1e-5, device="cuda", keep="device",
        sampler=f"SamplesPerClass(batch={batch}, per_class=4)", quiet=True, evaluate=False, **more,
    )  # fmt: skip


def begun(config: Train, items: Items, folder: Path) -> Timed:
    """Train as `likewise train` does, without a run's identity."""
    training = Timed(resolve(config, items), items, DEVICE)
    run = Run(folder)
    run.path.mkdir(parents=True)
    training.loop(run, lambda line: None)
    return training


def ours(net: tuple[str, int, int], way: str, loss: str, steps: int, items: Items) -> float:
    """Pictures a second of a training."""
    with tempfile.TemporaryDirectory() as folder:
        training = begun(settings(*net, speed=way, loss=loss, length=str(steps)), items, Path(folder) / "run")
    first, last = training.times
    return (steps - steps // 10) * net[2] / (last - first)


@torch.no_grad()
def embedding(net: tuple[str, int, int], items: Items) -> dict:
    """Pictures a second of `embed_rows`, of the network alone as it is and captured, and ratios. Batches of 256, float32."""
    name, size, _ = net
    embedder, look, x = network(name, size).eval(), Plain(size), some_batch(256, size)
    rows = np.tile(np.arange(len(items)), 4)
    held = hold(items, rows, DEVICE, "device", quiet=True)
    rates, captured = {"eager": 0.0, "captured": 0.0, "ours": 0.0}, Looking(embedder)
    for _ in range(3):
        for way in rates:
            torch.cuda.synchronize()
            began = time.perf_counter()
            if way != "ours":
                for _ in range(len(rows) // 256):
                    (embedder if way == "eager" else captured)(x)
            else:
                embed_rows(embedder, items, rows, look, device=DEVICE, held=held, quiet=True)
            torch.cuda.synchronize()
            rates[way] = max(rates[way], len(rows) // 256 * 256 / (time.perf_counter() - began))
    ratios = {f"of {way}": round(rates["ours"] / rates[way], 3) for way in ("eager", "captured")}
    return {k: round(v) for k, v in rates.items()} | ratios


def speed(options) -> dict:
    result = {}
    with tempfile.TemporaryDirectory() as folder:
        items = load(options.data, None) if options.data else made_up(Path(folder), 2000, classes=100)
        for text in options.nets:
            name, size, batch = text.split(":")
            net = name, int(size), int(batch)
            found = {"bare": {}, "ours": {}}
            for way in options.ways:
                alone = found["bare"][way] = bare(*net, way, options.steps)
                print(text, way, "bare", alone, flush=True)
                for loss in options.losses:
                    rate = ours(net, way, loss, options.steps, items)
                    told = {"images_per_s": round(rate), "ratio": round(rate / alone["images_per_s"], 3)}
                    found["ours"][f"{way}, {loss}"] = told
                    print(text, way, loss, told, flush=True)
            found["embed"] = embedding(net, items)
            print(text, "embed", found["embed"], flush=True)
            result[text] = found
    return result


def memory(options) -> dict:
    """Gigabytes that steps with a batch of 4,096 take at most, with the network in chunks and without."""
    result = {}
    with tempfile.TemporaryDirectory() as folder:
        made_up(Path(folder), 4096, (96, 96), classes=512)
        for text in options.nets:
            for chunk in (128, None):
                file = Path(folder) / "found.json"
                file.unlink(missing_ok=True)
                torch.multiprocessing.spawn(one_size, (text, chunk, folder), nprocs=1)
                result[f"{text} chunk {chunk}"] = json.loads(file.read_text())
                print(text, "chunk", chunk, result[f"{text} chunk {chunk}"], flush=True)
    return result


def one_size(_, text: str, chunk: int | None, folder: str) -> None:
    name, size, _ = text.split(":")
    items, found = load(f"{folder}/table.csv", None), {}
    config = replace(
        settings(name, int(size), 4096, speed="eager", length="2", chunk=chunk), device=DEVICE.type, keep="auto",
        sampler="SamplesPerClass(batch=4096, per_class=16, with_replacement=True)",
        precision="bf16" if DEVICE.type == "cuda" else "fp32",
    )  # fmt: skip
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        times = begun(config, items, Path(folder) / f"{name}-{size}-{chunk}").times
        found["images_per_s"] = round(4096 / (times[1] - times[0]))
    except torch.OutOfMemoryError:
        found["out_of_memory"] = True
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    found["peak_gb"] = round(torch.cuda.max_memory_allocated() / 1e9 if DEVICE.type == "cuda" else peak / 1e6, 2)
    (Path(folder) / "found.json").write_text(json.dumps(found))


def shared_out(options) -> dict:
    """Gigabytes and milliseconds of a step of ArcFace with very many classes, in each of so many processes on one GPU."""
    result = {}
    for ranks in (1, 2):
        with tempfile.TemporaryDirectory() as folder:
            torch.multiprocessing.spawn(one_share, (ranks, options.classes, folder), nprocs=ranks)
            found = [json.loads(file.read_text()) for file in sorted(Path(folder).glob("*.json"))]
        result[f"{ranks} processes"] = found
        print(f"{options.classes} classes, {ranks} processes:", found, flush=True)
    return result


def one_share(rank: int, ranks: int, classes: int, folder: str) -> None:
    torch.distributed.init_process_group("gloo", f"file://{folder}/meet", rank=rank, world_size=ranks)
    torch.manual_seed(0)
    loss = ArcFace(classes=classes, dim=512)
    shard(loss)
    loss.to(DEVICE)
    optimizer = torch.optim.Adam(loss.parameters(), lr=1e-3, fused=True)
    y = torch.randint(classes, (112,), device=DEVICE)
    z = torch.nn.functional.normalize(torch.randn(112, 512, device=DEVICE), dim=1).requires_grad_()
    for step in range(12):
        if step == 2:
            torch.cuda.synchronize()
            began = time.perf_counter()
        value = loss(z, y).mean()
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
    torch.cuda.synchronize()
    took = (time.perf_counter() - began) * 100
    peak = torch.cuda.max_memory_allocated() / 1e9
    told = {"peak_gb": round(peak, 2), "ms": round(took, 1), "loss": value.item(), "slope": z.grad.norm().item()}
    (Path(folder) / f"{rank}.json").write_text(json.dumps(told))


def whole_run(options) -> dict:
    """Seconds from settings to scores: 30 passes, decoded pictures, run as `--speed` says."""
    result = {}
    for way in options.ways:
        with tempfile.TemporaryDirectory() as folder:
            config = Train(
                options.run, backbone="efficientnet_lite0", weights=options.weights, pretrained=False, pool="avg+max", dim=512,
                size=160, freeze_bn=True, precision="bf16", optimizer="adam", weight_decay=4e-4, lr=3e-4, backbone_lr=3e-5,
                loss="ProxyNCA(scale=3, positive_in_denominator=True)", sampler="SamplesPerClass(batch=112, per_class=2)",
                length="30e", speed=way, device="cuda", out=f"{folder}/run", quiet=True,
            )  # fmt: skip
            hold(
                load(options.run, None), np.arange(1), torch.device("cpu"), "disk", quiet=True
            )  # decoding is not counted
            began = time.perf_counter()
            run = train(config, say=lambda line: None)
            took = time.perf_counter() - began
            lines = [line for line in run.read_log() if "images_per_s" in line]
            result[way] = {
                "seconds": round(took, 1), "R@1": run.scores["metrics"]["R@1"], "steps": lines[-1]["step"],
                "way": next((line["speed"] for line in lines if "speed" in line), None),
            }  # fmt: skip
            print("30 passes", way, result[way], flush=True)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nets", nargs="+", default=["efficientnet_lite0:160:112", "resnet50:224:128"])
    parser.add_argument("--ways", nargs="+", default=list(WAYS))
    parser.add_argument("--losses", nargs="+", default=["ProxyNCA(positive_in_denominator=True)", "MultiSimilarity()"])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--data", help="a table of pictures; by default they are made up")
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--run", help="a table of pictures for a whole run")
    parser.add_argument("--weights")
    parser.add_argument("--classes", type=int, help="share out the proxies of so many classes")
    parser.add_argument("--out")
    options = parser.parse_args()
    work = memory if options.memory else whole_run if options.run else shared_out if options.classes else speed
    result = {"device": torch.cuda.get_device_name() if DEVICE.type == "cuda" else "cpu", "torch": torch.__version__}
    result |= work(options)
    if options.out:
        Path(options.out).write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
