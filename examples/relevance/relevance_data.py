"""Data, flags and the table of the scripts in this folder: glyphs, so that they run without a download."""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from likewise import data

SMALL = {"backbone": "conv_small", "size": 24, "augment": "affine", "lr": 0.001, "quiet": True}
"""Settings of a training that takes seconds on a CPU; on photographs of your own, leave them out."""


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the flags of a script: the folder to work in, and --quick."""
    flags = argparse.ArgumentParser(description="One kind of supervision of docs/relevance.md.")
    flags.add_argument("folder", help="new folder for the data and the runs")
    flags.add_argument("--quick", action="store_true", help="toy size, in seconds")
    return flags.parse_args(words)


def write_table(file: Path, columns: Sequence[str], lines: Iterable[Sequence]) -> Path:
    """Write a .csv file, and return it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w", newline="", encoding="utf-8") as out:
        writer = csv.writer(out)
        writer.writerow(columns)
        writer.writerows(lines)
    return file


def glyph_images(classes: int, per_class: int = 12) -> tuple[list[str], list[set[str]], np.ndarray]:
    """Return the image files of the built-in characters, the labels of each, and which of them train."""
    items = data.load(f"glyph_labels(size=24, classes={classes}, per_class={per_class})")
    names = [set(items.class_name[y].split("|")) for y in items.y]
    is_train = np.random.default_rng(0).random(len(names)) < 0.7
    return [str(Path(items.root, file)) for file in items.path], names, is_train


def write_images(folder: Path, files: Sequence[str], is_train: np.ndarray) -> Path:
    """Write a table of images without labels worth the name: every image has the same one."""
    splits = np.where(is_train, "train", "test").tolist()
    return write_table(
        folder / "images.csv", ("path", "label", "split"), [(f, "glyph", s) for f, s in zip(files, splits)]
    )


def jaccard(one: set[str], other: set[str]) -> float:
    """Return the share of labels in common."""
    return len(one & other) / len(one | other)


def as_table(heads: Sequence[str], lines: Iterable[tuple[str, Sequence[float]]]) -> str:
    """Return a Markdown table of percentages."""
    text = [f"| | {' | '.join(heads)} |", "|---|" + "---|" * len(heads)]
    text += [f"| {name} | {' | '.join(f'{100 * v:.1f} %' for v in values)} |" for name, values in lines]
    return "\n".join(text)
