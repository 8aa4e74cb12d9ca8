"""Samples with several labels each, with some labels dropped and some added, for tests of the audit of label sets."""

import numpy as np
from likewise.types import Items
from PIL import Image, ImageDraw

COLOURS = {"red": (200, 40, 40), "blue": (40, 80, 200), "green": (40, 150, 70)}
NAMES = ("blue", "dress", "green", "red", "shirt", "striped")


def label_matrix(count, seed=0):
    """Return one colour and one garment for every sample, and stripes on some."""
    rng, has = np.random.default_rng(seed), np.zeros((count, len(NAMES)), bool)
    has[np.arange(count), rng.choice([0, 2, 3], count)] = True
    has[np.arange(count), rng.choice([1, 4], count)] = True
    has[:, 5] = rng.random(count) < 0.4
    return has


def noisy_matrix(has, drop=0.1, add=0.03, seed=1):
    """Return the labels with some dropped and some added; every sample keeps a label."""
    rng, noisy = np.random.default_rng(seed), has.copy()
    noisy[has & (rng.random(has.shape) < drop)] = False
    noisy[~has & (rng.random(has.shape) < add)] = True
    empty = ~noisy.any(1)
    noisy[empty] = has[empty]
    return noisy


def features_of(has, noise=0.35, dim=16, seed=2):
    """Return vectors in which every label is a direction."""
    rng = np.random.default_rng(seed)
    x = has @ rng.normal(size=(has.shape[1], dim)) + noise * rng.normal(size=(len(has), dim))
    return x.astype(np.float32)


def items_of(has, **columns):
    """Return the data set of these label sets: a class is a distinct set."""
    sets = [tuple(np.flatnonzero(row).tolist()) for row in has]
    distinct = sorted(set(sets))
    y = np.array([distinct.index(one) for one in sets])
    names = tuple("|".join(NAMES[n] for n in one) for one in distinct)
    return Items("clothes", y, names, label_name=NAMES, label_sets=tuple(distinct), **columns)


def draw(row, seed=0):
    """Return an image of a garment with these labels; no two of different seeds are equal."""
    rng = np.random.default_rng(seed)
    labels = {NAMES[n] for n in np.flatnonzero(row)}
    colour = next((COLOURS[name] for name in COLOURS if name in labels), (150, 150, 150))
    colour = tuple(np.clip(np.array(colour) + rng.integers(-25, 26, 3), 0, 255).tolist())
    image = Image.new("RGB", (120, 120), tuple((np.array([228, 224, 218]) + rng.integers(-15, 16, 3)).tolist()))
    pen = ImageDraw.Draw(image)
    shape = [(60, 12), (108, 108), (12, 108)] if "dress" in labels else [(22, 25), (98, 25), (98, 100), (22, 100)]
    dx, dy = rng.integers(-9, 10, 2).tolist()
    pen.polygon([(x + dx, y + dy) for x, y in shape], fill=colour)
    if "striped" in labels:
        for y in range(20 + dy, 110 + dy, int(rng.integers(10, 17))):
            pen.line([(10, y), (110, y)], fill=(250, 250, 250), width=4)
    return image


def clothes(root, count=240, images=False, drop=0.1, add=0.03):
    """A reader of data, for `--allow-imports`: samples with several labels as images below `root`, or as features."""
    has = label_matrix(count)
    noisy = noisy_matrix(has, drop, add)
    if not images:
        return items_of(noisy, x=features_of(has), split=np.where(np.arange(count) % 3, "train", "test"))
    for row in range(count):
        draw(has[row], row).save(f"{root}/{row}.png")
    return items_of(noisy, path=tuple(f"{row}.png" for row in range(count)), root=str(root))
