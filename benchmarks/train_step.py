"""Training and embedding at the speed of the network: `likewise train` beside the bare network, at the same batch.

    python benchmarks/train_step.py --out result.json                    # embed, proxies and steps: the tables of docs/speed.md
    python benchmarks/train_step.py --nets resnet50:224:112 --ways graph --steps 200
    python benchmarks/train_step.py --parts memory --nets efficientnet_lite0:32:4096     # also without a GPU
    python benchmarks/train_step.py --parts run --data TABLE --weights FILE --ways graph
    python benchmarks/train_step.py --parts start --nets resnet50:224:112 --ways graph

A network is name:side:batch; its weights are random. Parts:

steps    "bare": forward, backward and a fused optimiser step of the network on one batch that stays on the device, with the
         sum of its embeddings for a loss: as it is, captured as a CUDA graph, compiled and captured. "training": the rate
         that a run of `likewise.train` (random crops of images, a loss, logging) writes into its own log, without the
         first fifth. Both in bfloat16 on a GPU. Ratios are between numbers of the same call.
embed    `embed_rows` on the same images, beside the bare network in evaluation mode, as it is and captured.
proxies  a step of ArcFace with --classes classes, its proxies divided among --processes on the same device.
memory   the peak memory of steps with the network in chunks of --chunk-size and without.
run      a whole run of --passes epochs, from settings to scores, with decoded images.
start    `likewise train` twice in a fresh process, for every way and for "auto", with decoded images: seconds from the start of
         the process until modules are imported and the data is listed (`imports`), network and images are on the device
         (`data`), step 1 and step 20 are logged, and the process ends. The second call finds decoded images.

Without --data, 2,000 images of 500 x 375 are generated. A network whose package is missing is reported and left out.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import nullcontext
from datetime import datetime
from pathlib import Path

import numpy as np
import torch
from likewise.config import Train
from likewise.losses import ArcFace
from measure import NotMeasured, alone, made_up, parse_with_quick, training_rate

from likewise.core.distributed.sharded_proxies import shard
from likewise.data import load
from likewise.data.augment import Plain
from likewise.data.placement import hold
from likewise.learn.training.fit import train
from likewise.models.cuda_graphs import Captured, GraphedInference
from likewise.models.embedder import Embedder
from likewise.runs.embed import embed_rows
from likewise.runs.network import to_device

WAYS = {"eager": "kernel by kernel", "graph": "CUDA graph", "compile": "compiled, CUDA graph"}
PARTS = ("steps", "embed", "proxies", "memory", "run", "start")
START_STEPS = 20


def network(name: str, size: int, options) -> Embedder:
    torch.manual_seed(0)
    embedder = Embedder(name, options.dim, pretrained=False, size=size)
    return to_device(embedder, torch.device(options.device)).train()


def some_batch(batch: int, size: int, options) -> torch.Tensor:
    x = torch.randint(0, 256, (batch, 3, size, size), dtype=torch.uint8, device=options.device)
    return x.contiguous(memory_format=torch.channels_last)


def finished(options) -> float:
    """Wait for the device, and return the time."""
    if options.device != "cpu":
        torch.cuda.synchronize()
    return time.perf_counter()


def settings(data: str, name: str, size: int, folder: str, options, **more) -> Train:
    """The training of this network that is measured, but for the batches."""
    usual = {
        "cache": "device",
        "evaluate": False,
        "precision": "fp32" if options.device == "cpu" else "bf16",
        "lr": 1e-5,
    }
    return Train(
        data, backbone=name, size=size, pretrained=False, dim=options.dim, device=options.device, out=f"{folder}/run",
        quiet=True, **usual | more,
    )  # fmt: skip


def bare(net: tuple[str, int, int], way: str, options) -> dict:
    """Images per second of the network alone, and the seconds until it was ready."""
    name, size, batch = net
    embedder, x = network(name, size, options), some_batch(batch, size, options)
    optimizer = torch.optim.AdamW(embedder.parameters(), lr=1e-5, fused=True)
    torch.compiler.reset()  # a function is compiled only a limited number of times
    began = finished(options)
    work = embedder if way == "eager" else Captured(embedder, x, bf16=True, compiled=way == "compile")

    def steps(count: int) -> None:
        for _ in range(count):
            with torch.autocast("cuda", torch.bfloat16, enabled=options.device != "cpu"):
                out = work(x)
            optimizer.zero_grad(set_to_none=True)
            out.z.sum().backward()
            optimizer.step()

    steps(min(5, options.steps))
    ready, began = finished(options) - began, finished(options)
    steps(options.steps)
    return {"images_per_s": round(options.steps * batch / (finished(options) - began), 1), "ready_s": round(ready, 1)}


def training(net: tuple[str, int, int], way: str, loss: str, data: str, options) -> float:
    """Images per second of a run of `likewise.train`."""
    name, size, batch = net
    every = max(1, options.steps // 10)
    torch.compiler.reset()
    sampler = f"SamplesPerClass(batch={batch}, per_class=4)"
    with tempfile.TemporaryDirectory() as folder:
        more = {"execution": way, "loss": loss, "sampler": sampler, "steps": 10 * every, "log_every": every}
        run = train(settings(data, name, size, folder, options, **more), say=lambda line: None)
        return training_rate(run)


def steps(data: str, options) -> dict:
    """The bare network and trainings, for every network, way and loss."""
    result = {}
    for text in options.nets:
        net = parse_net(text)
        try:
            for way in options.ways:
                found = result.setdefault(text, {})[way] = {"bare": bare(net, way, options), "training": {}}
                for loss in options.losses:
                    rate = training(net, way, loss, data, options)
                    share = rate / found["bare"]["images_per_s"]
                    found["training"][loss] = {"images_per_s": round(rate, 1), "ratio": round(share, 4)}
                print(f"{text} {way} {json.dumps(found)}", flush=True)
        except ImportError as error:
            result[text] = {"missing": str(error)}
            print(f"{text}: left out, {error}", flush=True)
    print(speed_table(result, options.losses), flush=True)
    return result


def speed_table(result: dict, losses: Sequence[str]) -> str:
    """The table of docs/speed.md."""
    heads = ["network, side, batch", "run as", "bare", *(f"training, {loss}" for loss in losses)]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for text, ways in result.items():
        for number, (way, found) in enumerate(ways.items() if "missing" not in ways else ()):
            told = [f"{one['images_per_s']:,.0f} ({one['ratio']:.1%})" for one in found["training"].values()]
            first = ", ".join(text.split(":")) if number == 0 else ""
            lines.append(f"| {first} | {WAYS[way]} | {found['bare']['images_per_s']:,.0f} | {' | '.join(told)} |")
    return "\n".join(lines)


@torch.no_grad()
def embed(data: str, options) -> dict:
    """Images per second of `embed_rows`, and of the network alone as it is and captured. Batches of 256, float32."""
    result, items = {}, load(data, None)
    rows = np.tile(np.arange(len(items)), 4)
    held = hold(items, rows, torch.device(options.device), "device", quiet=True)
    batch = min(256, len(rows))
    for text in options.nets:
        name, size, _ = parse_net(text)
        try:
            embedder, x = network(name, size, options).eval(), some_batch(batch, size, options)
        except ImportError as error:
            result[text] = {"missing": str(error)}
            continue
        works = {"eager": embedder} | ({} if options.device == "cpu" else {"captured": GraphedInference(embedder)})
        rates = dict.fromkeys((*works, "ours"), 0.0)
        for _ in range(options.rounds):
            for way in rates:
                began = finished(options)
                if way == "ours":
                    where = {"device": torch.device(options.device), "held": held}
                    embed_rows(embedder, items, rows, Plain(size), quiet=True, **where)
                else:
                    for _ in range(len(rows) // batch):
                        works[way](x)
                rates[way] = max(rates[way], len(rows) // batch * batch / (finished(options) - began))
        ratios = {f"of {way}": round(rates["ours"] / rates[way], 4) for way in works}
        result[text] = {way: round(rate, 1) for way, rate in rates.items()} | ratios
        print(f"{text} embed {result[text]}", flush=True)
    return result


def memory(options) -> dict:
    """Gigabytes that steps take at most, with the network in chunks and without, each in a process of its own."""
    result = {}
    with made_up(*((64, (32, 24), 16) if options.quick else (4096, (96, 96), 512))) as data:
        for text, chunk in ((text, chunk) for text in options.nets for chunk in (options.chunk_size, None)):
            try:
                found = alone(one_size, text, chunk, data, options, here=options.quick)
            except NotMeasured as error:
                found = {"missing": str(error)}
            result[f"{text} chunk {chunk}"] = found
            print(f"{text} chunk {chunk} {found}", flush=True)
    return result


def one_size(text: str, chunk: int | None, data: str, options) -> dict:
    name, size, batch = parse_net(text)
    found, gpu = {}, options.device != "cpu"
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    sampler = f"SamplesPerClass(batch={batch}, per_class={max(2, batch // 256)}, with_replacement=True)"
    more = {"execution": "eager", "steps": 2, "log_every": 1, "chunk_size": chunk, "sampler": sampler, "cache": "auto"}
    with tempfile.TemporaryDirectory() as folder:
        try:
            run = train(settings(data, name, size, folder, options, **more), say=lambda line: None)
            found["images_per_s"] = round(training_rate(run, skip=1), 1)
        except torch.OutOfMemoryError:
            found["out_of_memory"] = True
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    found["peak_gb"] = round(torch.cuda.max_memory_allocated() / 1e9 if gpu else peak / 1e6, 3)
    return found


def proxies(options) -> dict:
    """Gigabytes and milliseconds of a step of ArcFace with very many classes, in each of several processes on one device."""
    result = {}
    for ranks in options.processes:
        with tempfile.TemporaryDirectory() as folder:
            if ranks == 1 and options.quick:
                one_share(0, 1, options, folder)
            else:
                os.environ.setdefault("PYTHONSAFEPATH", "1")  # the children import nothing from the current folder
                torch.multiprocessing.spawn(one_share, (ranks, options, folder), nprocs=ranks)
            found = [json.loads(file.read_text("utf-8")) for file in sorted(Path(folder).glob("*.json"))]
        result[f"{ranks} processes"] = found
        print(f"{options.classes} classes, {ranks} processes: {found}", flush=True)
    return result


def one_share(rank: int, ranks: int, options, folder: str) -> None:
    if ranks > 1:
        torch.distributed.init_process_group("gloo", f"file://{folder}/meet", rank=rank, world_size=ranks)
    torch.manual_seed(0)
    loss = ArcFace(classes=options.classes, dim=options.dim)
    shard(loss)
    loss.to(options.device)
    optimizer = torch.optim.Adam(loss.parameters(), lr=1e-3, fused=True)
    y = torch.randint(options.classes, (112,), device=options.device)
    z = torch.nn.functional.normalize(torch.randn(112, options.dim, device=options.device), dim=1).requires_grad_()
    for step in range(12):
        if step == 2:
            began = finished(options)
        value = loss(z, y).mean()
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
    told = {"ms": round((finished(options) - began) * 100, 3), "loss": value.item(), "slope": z.grad.norm().item()}
    if options.device != "cpu":
        told["peak_gb"] = round(torch.cuda.max_memory_allocated() / 1e9, 2)
    (Path(folder) / f"{rank}.json").write_text(json.dumps(told), "utf-8")
    if ranks > 1:
        torch.distributed.destroy_process_group()


def whole_run(data: str, options) -> dict:
    """Seconds from settings to scores, for the first network. Decoding is done before, and not counted."""
    result, (name, size, batch) = {}, parse_net(options.nets[0])
    hold(load(data, None), np.arange(1), torch.device("cpu"), "disk", quiet=True)
    for way in options.ways:
        with tempfile.TemporaryDirectory() as folder:
            config = settings(
                data, name, size, folder, options, weights=options.weights, pool="avg+max", freeze_bn=True, optimizer="adam",
                weight_decay=4e-4, lr=3e-4, backbone_lr=3e-5, loss="ProxyNCA(scale=3, positive_in_denominator=True)",
                sampler=f"SamplesPerClass(batch={batch}, per_class=2)", epochs=options.passes, execution=way,
                cache="auto", evaluate=True,
            )  # fmt: skip
            began = time.perf_counter()
            run = train(config, say=lambda line: None)
            took = time.perf_counter() - began
            lines = [line for line in run.read_log() if "images_per_s" in line]
            told = {"seconds": round(took, 2), "R@1": run.scores["metrics"]["R@1"], "steps": lines[-1]["step"]}
            result[way] = told
            print(f"{options.passes} passes {way} {told}", flush=True)
    return result


def start(data: str, options) -> dict:
    """Seconds from the start of `likewise train` to its events, for every network and way, twice."""
    result = {}
    hold(load(data, None), np.arange(1), torch.device("cpu"), "disk", quiet=True)
    for text in options.nets:
        for way in options.ways if options.quick else (*options.ways, "auto"):
            found = result.setdefault(text, {})[way] = []
            for _ in range(2):
                with tempfile.TemporaryDirectory() as folder:
                    found.append(
                        one_start(start_words(data, parse_net(text), way, folder, options), Path(folder) / "run")
                    )
                print(f"{text} {way} {found[-1]}", flush=True)
    return result


def start_words(data: str, net: tuple[str, int, int], way: str, folder: str, options) -> list[str]:
    """The flags of `settings` on the command line."""
    name, size, batch = net
    flags = {
        "backbone": name, "size": size, "dim": options.dim, "device": options.device, "out": f"{folder}/run", "lr": 1e-5,
        "precision": "fp32" if options.device == "cpu" else "bf16", "cache": "device", "execution": way, "log-every": 1,
        "steps": START_STEPS + 5, "sampler": f"SamplesPerClass(batch={batch}, per_class=4)",
    }  # fmt: skip
    switches = ("--no-evaluate", "--no-pretrained", "--quiet")
    return ["train", data, *switches, *(str(word) for flag, value in flags.items() for word in (f"--{flag}", value))]


def one_start(words: list[str], run: Path) -> dict:
    """Run the command in a fresh process, and watch its run folder."""
    began, clock, seen = time.time(), time.perf_counter(), {}
    child = subprocess.Popen([sys.executable, "-P", "-m", "likewise", *words])
    while child.poll() is None:
        if "data" not in seen and (run / "usage.json").exists():
            seen["data"] = time.perf_counter() - clock
        lines = (run / "log.jsonl").read_bytes().count(b"\n") if (run / "log.jsonl").exists() else 0
        for step in (1, START_STEPS):
            if lines >= step:
                seen.setdefault(f"step {step}", time.perf_counter() - clock)
        time.sleep(0.005)
    seen["end"] = time.perf_counter() - clock
    if child.returncode:
        raise NotMeasured(f"likewise {' '.join(words)} ended with {child.returncode}")
    session = json.loads((run / "usage.json").read_text("utf-8"))["sessions"][0]
    seen = {"imports": datetime.fromisoformat(session["started"]).timestamp() - began, **seen}
    return {event: round(seconds, 2) for event, seconds in seen.items()}


def parse_net(text: str) -> tuple[str, int, int]:
    name, size, batch = text.split(":")
    return name, int(size), int(batch)


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=["embed", "proxies", "steps"])
    parser.add_argument("--nets", nargs="+", default=["efficientnet_lite0:160:112", "resnet50:224:112"])
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=["eager"] if device == "cpu" else list(WAYS))
    parser.add_argument("--losses", nargs="+", default=["ProxyNCA(positive_in_denominator=True)", "MultiSimilarity()"])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3, help="number of rounds of embedding; the best counts")
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--data", help="a table of images; by default random images are generated")
    parser.add_argument("--weights", help="weight file for a whole run")
    parser.add_argument("--passes", type=int, default=30, help="epochs of a whole run")
    parser.add_argument("--chunk-size", type=int, default=128, help="images per chunk for `memory`")
    parser.add_argument("--classes", type=int, default=1_000_000, help="classes for `proxies`")
    parser.add_argument(
        "--processes", type=int, nargs="+", default=[1], help="processes that share the proxies, such as 1 2"
    )
    parser.add_argument("--device", default=device)
    parser.add_argument("--out", help="JSON file for the result")
    toy = {
        "nets": ["conv_small:16:16"], "steps": 10, "rounds": 1, "dim": 8, "passes": 1, "chunk_size": 8, "classes": 20,
        "processes": [1], "device": "cpu", "ways": ["eager"],
    }  # fmt: skip
    return parse_with_quick(parser, words, **toy)


def main(words: Sequence[str] | None = None) -> None:
    options, began = parse(words), time.perf_counter()
    name = "cpu" if options.device == "cpu" else torch.cuda.get_device_name()
    result = {"device": name, "torch": torch.__version__, "options": vars(options)}
    made = (64, (32, 24), 16) if options.quick else (2000, (500, 375), 100)
    needs = {"steps": steps, "embed": embed, "run": whole_run, "start": start}
    pictures = made_up(*made) if needs.keys() & set(options.parts) and not options.data else nullcontext(options.data)
    with pictures as data:
        for part in options.parts:
            others = {"memory": memory, "proxies": proxies}
            try:
                result[part] = needs[part](data, options) if part in needs else others[part](options)
            except ImportError as error:
                result[part] = {"missing": str(error)}
                print(f"{part}: left out, {error}", flush=True)
            result["seconds"] = round(time.perf_counter() - began, 1)
            if options.out:
                Path(options.out).write_text(json.dumps(result, indent=2) + "\n", "utf-8")
    print(f"{result['seconds']} s in all", flush=True)


if __name__ == "__main__":
    main()
