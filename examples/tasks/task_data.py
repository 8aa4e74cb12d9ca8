"""Data, flags and figures of the scripts in this folder: glyphs and generated patterns, so that they run without a download."""

from __future__ import annotations

import argparse
import shutil
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure
from PIL import Image, ImageFilter
from torch import Tensor

from likewise import data

INK, SOFT, GOOD, BAD = "#22262e", "#8a909c", "#2e6f9e", "#d1495b"


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the flags of a script: the folder to work in, --quick, and --picture."""
    flags = argparse.ArgumentParser(description="One task of docs/gallery.md.")
    flags.add_argument("folder", help="new folder for the data and the results")
    flags.add_argument("--quick", action="store_true", help="toy size, in seconds")
    flags.add_argument("--picture", help="file for a figure of the result (.png)")
    return flags.parse_args(words)


def start(main: Callable, draw: Callable, flags: argparse.Namespace) -> None:
    """Run a script: print its result, and draw it where --picture is given."""
    result = main(flags.folder, quick=flags.quick)
    print(result["text"])
    if flags.picture:
        draw(result, flags.picture)


def write_glyphs(folder: Path, classes: int, per_class: int) -> Path:
    """Write glyphs as a folder with one sub-folder per class, and return it. Names of files start with the class."""
    items = data.load(f"glyphs(classes={classes}, per_class={per_class})")
    for number, file in enumerate(items.path):
        name = items.class_name[items.y[number]].split()[0]
        (folder / name).mkdir(parents=True, exist_ok=True)
        shutil.copy(Path(items.root, file), folder / name / f"{name}-{number % per_class:02}.png")
    return folder


def read_glyphs(classes: int, size: int = 24) -> tuple[Tensor, Tensor, Tensor]:
    """Return glyphs as flat vectors of grey values, their labels from 0, and whether each is of a training class."""
    items = data.load(f"glyphs(size={size}, classes={classes})")
    grey = [np.asarray(Image.open(Path(items.root, file)).convert("L"), np.float32) / 255 for file in items.path]
    return (
        torch.from_numpy(np.stack(grey)).flatten(1),
        torch.from_numpy(items.y),
        torch.from_numpy(items.split == "train"),
    )


def draw_pattern(identity: int, view: int, colour: bool = False, camera: int = 0, size: int = 40) -> Image.Image:
    """Return one view of a generated individual: its pattern of two tones, moved, turned and lit differently in every view."""
    own, seen = np.random.default_rng([identity, 7]), np.random.default_rng([identity, view, camera])
    field = Image.fromarray(own.integers(0, 256, (64, 64), np.uint8)).filter(ImageFilter.GaussianBlur(3.5))
    field = field.rotate(seen.uniform(-8, 8), Image.Resampling.BILINEAR)
    left, top = seen.integers(8, 17, 2).tolist()
    field = np.asarray(field.crop((left, top, left + size, top + size)), np.float64)
    share = 1 / (1 + np.exp(-(field - np.median(field)) / 1.5))[..., None]
    tones = own.integers(20, 236, (2, 3)) if colour else np.array([[235, 225, 205], [45, 38, 32]])
    light = np.array([[1, 1, 1], [0.6, 0.65, 0.8], [1.05, 0.9, 0.7]])[camera] * seen.uniform(0.85, 1.1)
    pixels = (share * tones[0] + (1 - share) * tones[1]) * light + seen.normal(0, 6, (size, size, 3))
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


def write_patterns(folder: Path, identities: Sequence[int], views: int, **kind) -> Path:
    """Write generated individuals as a folder with one sub-folder for each, and return the folder."""
    for identity in identities:
        place = folder / f"{identity:03}"
        place.mkdir(parents=True, exist_ok=True)
        for view in range(views):
            draw_pattern(identity, view, **kind).save(place / f"{view:02}.png")
    return folder


def draw_rows(
    file: str, rows: Sequence[Sequence[tuple[str | Path | Image.Image, str, str]]], title: str, height: float = 1.5
) -> None:
    """Draw rows of images; each image is a file or an image, the text below it, and the colour of its frame."""
    wide = max(map(len, rows))
    figure = Figure(figsize=(1.25 * wide + 0.2, height * len(rows) + 0.55), dpi=90)
    figure.suptitle(title, x=0.02, ha="left", size=10, weight="bold", color=INK)
    axes = figure.subplots(len(rows), wide, squeeze=False)
    for line, images in zip(axes, rows, strict=True):
        for one in line[len(images) :]:
            one.axis("off")
        for one, (place, text, colour) in zip(line, images, strict=False):
            one.imshow((place if isinstance(place, Image.Image) else Image.open(place)).convert("RGB"))
            one.set(xticks=(), yticks=())
            one.set_xlabel(text, size=7.5, color=INK)
            for spine in one.spines.values():
                spine.set(color=colour, linewidth=2.5)
    figure.tight_layout(rect=(0, 0, 1, 0.99), pad=0.5)
    figure.savefig(file, pil_kwargs={"quality": 60})


def chart(title: str, width: float = 6.5, height: float = 3.2):
    """Return a figure and its axes, in the style of the gallery."""
    figure = Figure(figsize=(width, height), dpi=90, layout="constrained")
    axes = figure.subplots()
    axes.set_title(textwrap.fill(title, int(9 * width)), loc="left", size=9.5, weight="bold", color=INK)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes
