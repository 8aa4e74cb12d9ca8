"""Near copies: planted copies of real images against their nearest different images, and the probability fitted to them.

    python benchmarks/near_copies.py measure FOLDER... --out found    # folders of images: found/NAME.npz for each
    python benchmarks/near_copies.py fit found                        # coefficients, precision and recall, set by set

A copy is made of a drawn image in one of the ways of `COPY_WAYS`. The different images are the candidates that
`near_duplicates` would compare: the nearest neighbours by small colour thumbnails, and images with a similar hash. Images
with equal pixels are left out. Each set is predicted by coefficients that were fitted on the other sets.
"""

from __future__ import annotations

import argparse
import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageEnhance, ImageOps

from likewise.audit import near_duplicates as near
from likewise.data.images import read_image
from likewise.errors import LikewiseError

MAX_DRAWN_IMAGES, MAX_PLANTED_COPIES = 2500, 40
"""Images of a set that are compared, and copies of each kind."""

COPY_SHARE = 0.01
"""Assumed share of samples with a near copy: the weight of planted copies against different images in the fit."""

IMAGE_SUFFIXES = {".jpg", ".jpeg", ".png", ".ppm", ".bmp"}


def resized(image: Image.Image, share: float) -> Image.Image:
    return image.resize((max(8, round(share * image.width)), max(8, round(share * image.height))))


def compressed(image: Image.Image, quality: int) -> Image.Image:
    file = io.BytesIO()
    image.save(file, "JPEG", quality=quality)
    return Image.open(file).convert("RGB")


def cropped(image: Image.Image, share: float, rng: np.random.Generator) -> Image.Image:
    width, height = (max(1, round(share * side)) for side in image.size)
    left, top = (int(rng.integers(0, whole - part + 1)) for whole, part in zip(image.size, (width, height)))
    return image.crop((left, top, left + width, top + height))


COPY_WAYS: dict[str, Callable[[Image.Image, np.random.Generator], Image.Image]] = {
    "half size": lambda p, rng: resized(p, 0.5),
    "70 % size": lambda p, rng: resized(p, 0.7),
    "JPEG 30": lambda p, rng: compressed(p, 30),
    "JPEG 70": lambda p, rng: compressed(p, 70),
    "mirrored": lambda p, rng: ImageOps.mirror(p),
    "95 % crop": lambda p, rng: cropped(p, 0.95, rng),
    "90 % crop": lambda p, rng: cropped(p, 0.9, rng),
    "brighter": lambda p, rng: ImageEnhance.Brightness(p).enhance(1.2),
    "darker": lambda p, rng: ImageEnhance.Brightness(p).enhance(0.8),
    "mirrored crop, JPEG 50": lambda p, rng: compressed(ImageOps.mirror(cropped(p, 0.92, rng)), 50),
    "half size, brighter": lambda p, rng: ImageEnhance.Brightness(resized(p, 0.5)).enhance(1.15),
}  # fmt: skip


def read_set(folder: Path, seed: int) -> tuple[list[Path], list[Image.Image]]:
    """Return up to `MAX_DRAWN_IMAGES` readable images below a folder, drawn from whole classes, without equal pixels."""
    rng = np.random.default_rng(seed)
    files = sorted(file for file in folder.rglob("*") if file.suffix.lower() in IMAGE_SUFFIXES)
    folders = sorted({file.parent for file in files})
    rank = {name: place for place, name in zip(rng.permutation(len(folders)).tolist(), folders)}
    files = sorted(files, key=lambda file: (rank[file.parent], file))[
        :MAX_DRAWN_IMAGES
    ]  # whole classes: hard neighbours
    names, images, known = [], [], set()
    for file in files:
        try:
            image = read_image(file)
        except LikewiseError:
            continue
        if image.tobytes() not in known:
            known.add(image.tobytes())
            names.append(file)
            images.append(image)
    return names, images


def thumbs(images: list[Image.Image]) -> torch.Tensor:
    """Return unit vectors of small colour thumbnails, without their mean."""
    small = np.stack([np.asarray(image.resize((12, 12)), np.float32).ravel() for image in images])
    small -= small.mean(1, keepdims=True)
    return torch.nn.functional.normalize(torch.as_tensor(small))


def freedom(image: Image.Image) -> float:
    """Return the effective number of frequencies of an image: 1 / sum of squared energy shares."""
    one = near._details(near._thumb(image), near.CROP_WINDOWS[:1])[0]
    return float(1 / max((one**4).sum(), 1e-9)) if one.any() else 0.0


def compared(images: list[Image.Image], pair: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Return bits, detail correlation, colour difference, shorter side and freedom of pairs; NaN if hashes are far apart."""
    bits, how = near._match(codes, pair)
    found = np.full((len(pair), 5), np.nan)
    found[:, 0] = bits
    for p in np.flatnonzero(bits <= near.MAX_HASH_DISTANCE):
        window, turned, mirrored = how[p].tolist()
        i, j = pair[p].tolist()
        both = (images[j], images[i]) if turned else (images[i], images[j])
        found[p, 1:3] = near.agreement(*both, near.CROP_WINDOWS[window], bool(mirrored))
        found[p, 3] = min(min(image.size) for image in both)
        found[p, 4] = min(freedom(image) for image in both)
    return found


def measure(folder: Path, out: Path, seed: int = 0) -> None:
    """Write evidence of planted copies and of different images of one set."""
    names, images = read_set(folder, seed)
    rng, count = np.random.default_rng(seed), len(images)
    codes = np.stack([near.perceptual_hash(image) for image in images])
    z = thumbs(images)
    close, _ = near._neighbours(z, 5)
    pair = near._pairs(
        np.concatenate(
            [
                np.stack([np.repeat(np.arange(count), 5), close.ravel()], 1),
                near._similar_hashes(codes, np.arange(count)),
            ]
        ),
        count,
    )
    other = compared(images, pair, codes)
    planted, way = [], []
    for name, change in COPY_WAYS.items():
        for row in rng.choice(count, min(MAX_PLANTED_COPIES, count), replace=False).tolist():
            copy = change(images[row], rng)
            both = np.stack([codes[row], near.perceptual_hash(copy)])
            planted.append(compared([images[row], copy], np.array([[0, 1]]), both)[0])
            way.append(name)
    out.mkdir(parents=True, exist_ok=True)
    shown = np.array([[str(names[i].relative_to(folder)) for i in row] for row in pair.tolist()])
    np.savez(
        out / f"{folder.name}.npz", other=other, planted=np.array(planted), way=np.array(way), pair=shown, images=count
    )
    print(
        f"{folder.name}: {count} images, {len(pair)} candidates, {int(np.isfinite(other[:, 1]).sum())} compared",
        flush=True,
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["measure", "fit"])
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, default=Path("found"))
    given = parser.parse_args()
    if given.command == "measure":
        for folder in given.folders:
            measure(folder, given.out)
