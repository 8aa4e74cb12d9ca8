"""Speed of the input pipeline: the crop kernel, every cache of decoded images, and a usual DataLoader for comparison.

    python benchmarks/input.py [--device cuda] [--data TABLE | --glyphs] [--size 160] [--batch 112] [--workers 16] [--out FILE]

"kernel": one call for a batch of random crops of 500 x 375 images on the device, beside Pillow, and how
many grey levels it is from torchvision's antialiased crop of the same box. "images_per_s": images that arrive as uint8 batches
on the device, nothing else running; "usual" is a torch DataLoader with Pillow and torchvision's RandomResizedCrop and flip (for
glyphs: RandomAffine), what most training code has. Without --data, images are generated (smooth noise, JPEG, 500 x 375); with
--glyphs, they are the demo's, and whole training steps of its network are measured too. Contenders take turns, and the best of
three rounds counts.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import torch
from likewise.config import Train
from likewise.losses import MultiSimilarity
from likewise.samplers import SamplesPerClass
from likewise.types import Items
from measure import made_up, parse_with_quick, training_rate
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional

from likewise.data import load
from likewise.data.augment import MAX_SHIFT_SHARE, MAX_TURN_DEGREES, ZOOM_RANGE, Augment, random_boxes
from likewise.data.crop_resize import cut
from likewise.data.images import image_of
from likewise.data.loader import batches
from likewise.data.placement import hold
from likewise.learn.training.fit import train
from likewise.models.embedder import Embedder


class Usual(Dataset):
    """Images one after another, by Pillow and torchvision."""

    def __init__(self, items: Items, size: int, kind: str):
        self.items = items
        affine = [
            v2.Resize((size, size), antialias=True),
            v2.RandomAffine(
                MAX_TURN_DEGREES,
                (MAX_SHIFT_SHARE, MAX_SHIFT_SHARE),
                ZOOM_RANGE,
                interpolation=v2.InterpolationMode.BILINEAR,
                fill=255,
            ),
        ]
        crop = [v2.RandomResizedCrop(size, antialias=True), v2.RandomHorizontalFlip()]
        self.transform = v2.Compose([*(affine if kind == "affine" else crop), v2.PILToTensor()])

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, row: int) -> tuple[Tensor, int]:
        return self.transform(image_of(self.items, row)), row


def usual(items: Items, order: list[list[int]], options, kind: str) -> Iterator[Tensor]:
    loader = DataLoader(
        Usual(items, options.size, kind), batch_sampler=order, num_workers=options.workers,
        pin_memory=options.device == "cuda",
    )  # fmt: skip
    for x, _ in loader:
        yield x.to(options.device, non_blocking=True)


def ours(items: Items, order: list[list[int]], options, kind: str, keep: str) -> Callable[[], Iterator[Tensor]]:
    device = torch.device(options.device)
    held = hold(items, np.arange(len(items)), device, keep, quiet=True)
    look = Augment(options.size, kind)
    workers = options.workers if held is None else 0
    return lambda: (b.x for b in batches(items, order, look, device=device, held=held, workers=workers))


def rate(feed: Iterator[Tensor], device: str) -> float:
    """Return images per second, from the first request to the last arrival."""
    began, count = time.perf_counter(), 0
    for x in feed:
        count += len(x)
    if device == "cuda":
        torch.cuda.synchronize()
    return count / (time.perf_counter() - began)


def kernel(options) -> dict:
    """Return milliseconds of one batch of crops, of the reference, and the difference from torchvision."""
    device, rng, (h, w) = torch.device(options.device), np.random.default_rng(0), (375, 500)
    pictures = 4 if options.quick else 400
    flat = torch.randint(0, 256, (pictures * h * w, 3), dtype=torch.uint8)
    pixels = flat.to(device) if options.device == "cuda" else flat.numpy()
    row = rng.integers(0, pictures, options.batch)
    boxes = random_boxes(np.tile([h, w], (options.batch, 1)), (0.08, 1.0), rng.random((options.batch, 22)))
    square = np.full((options.batch, 2), options.size)
    plan = np.column_stack([row * h * w, np.full(len(row), w), boxes, square, 0 * square, 0 * row]).astype(np.int64)
    x = cut(pixels, plan, options.size)
    apart = 0
    for number in range(0, options.batch, 8):
        top, left, height, width = boxes[number].tolist()
        picture = flat[row[number] * h * w :][: h * w].view(h, w, 3).permute(2, 0, 1)
        picture = picture[:, top : top + height, left : left + width]
        theirs = functional.resize(picture, [options.size, options.size], antialias=True)
        apart = max(apart, int((theirs.int() - x[number].cpu().int()).abs().max()))
    found = {
        "kernel_ms": milliseconds(lambda: cut(pixels, plan, options.size), options.device, 1 if options.quick else 50),
        "grey_levels_apart": apart,
    }
    if options.device == "cuda":
        from likewise.data import crop_resize_triton as cut_cuda

        there = torch.from_numpy(plan).to(device)
        found["on_device_ms"] = milliseconds(lambda: cut_cuda.cut(pixels, there, options.size), "cuda")
        found["reference_ms"] = milliseconds(lambda: cut(flat.numpy(), plan, options.size), "cuda", 5)
    return found


def milliseconds(work: Callable, device: str, rounds: int = 50) -> float:
    for _ in range(3):
        work()
    if device == "cuda":
        torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(rounds):
        work()
    if device == "cuda":
        torch.cuda.synchronize()
    return (time.perf_counter() - began) / rounds * 1000


def glyph_steps(data: str, options) -> dict:
    """Images per second of training the demo's network: by `likewise.train`, and by a plain loop with a DataLoader."""
    found = {"usual": 0.0, "ours": 0.0}
    for _ in range(2):
        for way, work in (("usual", usual_training), ("ours", our_training)):
            found[way] = max(found[way], work(data, options))
    return {f"train {way}": round(n) for way, n in found.items()} | {"ratio": found["ours"] / found["usual"]}


def our_training(data: str, options) -> float:
    with tempfile.TemporaryDirectory() as folder:
        config = Train(
            data, device=options.device, quiet=True, steps=options.steps, log_every=max(1, options.steps // 10),
            evaluate=False, workers=options.workers, out=f"{folder}/run",
        )  # fmt: skip
        return training_rate(train(config, say=lambda line: None))


def usual_training(data: str, options) -> float:
    items = load(data, None)
    rows = np.flatnonzero(items.split == "train")
    labels = np.unique(items.y[rows], return_inverse=True)[1]
    batch = 4 * min(28, int(labels.max()) + 1)  # the batch that `likewise train` chooses
    sampler = iter(SamplesPerClass(labels=labels, batch=batch, per_class=4, seed=0))
    order = [rows[next(sampler)].tolist() for _ in range(options.steps)]
    network = Embedder("conv_small", pretrained=False).to(options.device)
    loss, y = MultiSimilarity(), torch.as_tensor(items.y)
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-4)
    loader = DataLoader(Usual(items, network.input_size, "affine"), batch_sampler=order, num_workers=options.workers)
    first = options.steps // 5  # as in `training_rate`, the start is not counted
    for step, (x, row) in enumerate(loader):
        if step == first:
            began = time.perf_counter()
        value = loss(network(x.to(options.device)).z, y[row].to(options.device)).mean()
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
    if options.device == "cuda":
        torch.cuda.synchronize()
    return (options.steps - first) * batch / (time.perf_counter() - began)


def measure(options) -> dict:
    result = {"device": options.device, "workers": options.workers, "torch": torch.__version__}
    glyphs = "glyphs(classes=12, per_class=6)" if options.quick else "glyphs"
    given = glyphs if options.glyphs else options.data
    size = (64, 48) if options.quick else (500, 375)
    with nullcontext(given) if given else made_up(12 if options.quick else 1000, size, 4) as data:
        items, kind = load(data, None), "affine" if options.glyphs else "crop"
        result |= {} if options.glyphs else kernel(options)
        rng = np.random.default_rng(0)
        order = [rng.integers(0, len(items), options.batch).tolist() for _ in range(options.batches)]
        ways = {"usual": lambda: usual(items, order, options, kind)}
        for keep in ("files", "disk", "host", "device"):
            ways[keep] = ours(items, order, options, kind, keep)
        rates = dict.fromkeys(ways, 0.0)
        for _ in range(1 if options.quick else 3):
            for name, way in ways.items():
                rates[name] = max(rates[name], rate(way(), options.device))
        result["images_per_s"] = {name: round(n) for name, n in rates.items()}
        result["times_usual"] = {name: round(n / rates["usual"], 2) for name, n in rates.items()}
        result |= glyph_steps(data, options) if options.glyphs else {}
    return result


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--data", help="a table of images; by default random images are generated")
    parser.add_argument(
        "--glyphs", action="store_true", help="use the images of the demo, and measure training steps on them"
    )
    parser.add_argument("--size", type=int, default=160)
    parser.add_argument("--batch", type=int, default=112)
    parser.add_argument("--batches", type=int, default=30)
    parser.add_argument("--steps", type=int, default=100, help="number of training steps on glyphs")
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) // 2))
    parser.add_argument("--out", help="JSON file for the result")
    return parse_with_quick(parser, words, size=24, batch=4, batches=2, steps=10, workers=0)


def main(words: Sequence[str] | None = None) -> None:
    options = parse(words)
    result = measure(options)
    for name, value in result.items():
        print(f"{name:20} {value}")
    if options.out:
        Path(options.out).write_text(json.dumps(result, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
