"""Near copies: planted copies of real images against their nearest different images, and the probability fitted to them.

    python benchmarks/near_copies.py --measure FOLDER... --out found    # folders of images: found/NAME.npz for each
    python benchmarks/near_copies.py --fit found                          # coefficients, precision and recall, set by set

A copy is made of a drawn image in one of the ways of `COPY_WAYS`. The different images are the candidates that
`near_duplicates` would compare: the nearest neighbours by small colour thumbnails, and images with a similar hash. Images
with equal pixels are left out; pairs of the sets themselves that are copies by eye are in near_copies.json. Each set is
predicted by coefficients that were fitted on the other sets.
"""

from __future__ import annotations

import argparse
import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from likewise.errors import LikewiseError
from measure import parse_with_quick
from PIL import Image, ImageEnhance, ImageOps

from likewise.curate.audit import near_duplicates as near
from likewise.curate.audit.near_duplicates import MIN_DETAIL_DIFFERENCE, copy_log_odds, copy_probabilities
from likewise.curate.audit.single_scores import nearest_samples
from likewise.data.images import read_image

MIN_DIFFERENT_PAIRS = 20
"""Smallest number of listed pairs of different images with which a set counts in the fit of different images."""

SEEN_FILE = Path(__file__).parent / "near_copies.json"
"""Pairs of the sets themselves that were judged by eye: copies, and unclear ones, which are left out."""

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


def read_set(folder: Path, most: int, seed: int) -> tuple[list[Path], list[Image.Image]]:
    """Return up to `most` readable images below a folder, drawn from whole classes, without equal pixels."""
    rng = np.random.default_rng(seed)
    files = sorted(file for file in folder.rglob("*") if file.suffix.lower() in IMAGE_SUFFIXES)
    folders = sorted({file.parent for file in files})
    rank = {name: place for place, name in zip(rng.permutation(len(folders)).tolist(), folders)}
    files = sorted(files, key=lambda file: (rank[file.parent], file))[:most]  # whole classes: hard neighbours
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


def measure(folder: Path, options: argparse.Namespace, seed: int = 0) -> None:
    """Write evidence of planted copies and of different images of one set."""
    names, images = read_set(folder, options.images, seed)
    rng, count = np.random.default_rng(seed), len(images)
    codes = np.stack([near.perceptual_hash(image) for image in images])
    z = thumbs(images)
    close = nearest_samples(z, 5).row.numpy()
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
        for row in rng.choice(count, min(options.copies, count), replace=False).tolist():
            copy = change(images[row], rng)
            both = np.stack([codes[row], near.perceptual_hash(copy)])
            planted.append(compared([images[row], copy], np.array([[0, 1]]), both)[0])
            way.append(name)
    options.out.mkdir(parents=True, exist_ok=True)
    shown = np.array([[str(names[i].relative_to(folder)) for i in row] for row in pair.tolist()])
    np.savez(
        options.out / f"{folder.name}.npz",
        other=other,
        planted=np.array(planted),
        way=np.array(way),
        pair=shown,
        images=count,
    )
    print(
        f"{folder.name}: {count} images, {len(pair)} candidates, {int(np.isfinite(other[:, 1]).sum())} compared",
        flush=True,
    )


def listed(evidence: np.ndarray) -> np.ndarray:
    """Return whether the images of the pairs agree by the thresholds of `near_duplicates`."""
    detail, tint = evidence[:, 1], evidence[:, 2]
    return (detail >= near.MIN_DETAIL_CORRELATION) & (tint <= near.MAX_COLOUR_DIFFERENCE)


def load_set(file: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """Return evidence of planted copies, of copies that the set has already, and of different images; number of images."""
    found, seen = np.load(file), json.loads(SEEN_FILE.read_text()).get(file.stem, {})
    kind = {tuple(pair): kind for kind, pairs in seen.items() for pair in pairs}
    judged = np.array([kind.get(tuple(pair), "other") for pair in found["pair"].tolist()])
    other = found["other"]
    return found["planted"], other[judged == "copy"], other[judged == "other"], int(found["images"])


def fit_odds(sets: list[tuple]) -> np.ndarray:
    """Return the coefficients (1, bits, log(1 - detail)) of the log odds; copies and different images have equal weight."""
    from sklearn.linear_model import LogisticRegression

    x, y, weight = [], [], []
    for planted, _, other, _ in sets:
        for evidence, is_copy in ((planted[listed(planted)], 1), (other[listed(other)], 0)):
            if is_copy or len(evidence) > MIN_DIFFERENT_PAIRS:
                x.append(np.stack([evidence[:, 0], np.log(np.maximum(1 - evidence[:, 1], MIN_DETAIL_DIFFERENCE))], 1))
                y.append(np.full(len(evidence), is_copy))
                weight.append(np.full(len(evidence), 1 / len(evidence)))
    x, y, weight = map(np.concatenate, (x, y, weight))
    weight = 1000 * weight / np.where(y == 1, weight[y == 1].sum(), weight[y == 0].sum())
    model = LogisticRegression(C=1e4, max_iter=9000).fit(x, y, weight)
    return np.concatenate([model.intercept_, model.coef_[0]])


def fit(folder: Path, share: float = 0.01, draws: int = 20) -> None:
    """Print the coefficients, and for every set what coefficients of the other sets find among `share` planted copies."""
    sets = {file.stem: load_set(file) for file in sorted(folder.glob("*.npz"))}
    print("coefficients of all sets:", fit_odds(list(sets.values())).round(2).tolist())
    low = near.MIN_LISTED_PROBABILITY
    print(f"| set | different pairs that agree | recall, p >= {low} | p >= 0.5 | precision, p >= {low} | p >= 0.5 |")
    rng, pooled = np.random.default_rng(0), []
    for name, (planted, real, other, images) in sets.items():
        by = fit_odds([one for key, one in sets.items() if key != name])
        counts = np.zeros(6)
        for _ in range(draws):
            copies = np.concatenate([planted[rng.choice(len(planted), round(share * images))], real])
            evidence = np.concatenate([copies[listed(copies)], other[listed(other)]])
            is_copy = np.arange(len(evidence)) < listed(copies).sum()
            odds = [copy_log_odds(*one[:2], coefficients=tuple(by)) for one in evidence]
            p = copy_probabilities(np.array(odds))
            pooled += [(chance, yes) for chance, yes in zip(p, is_copy)]
            each = [(len(copies), (is_copy & (p >= least)).sum(), (p >= least).sum()) for least in (low, 0.5)]
            counts += np.ravel(each)
        whole, found, all_listed, _, sure, all_sure = counts
        shown = (found / whole, sure / whole, found / all_listed, sure / all_sure)
        print(f"| {name} | {int(listed(other).sum())} | " + " | ".join(f"{value:.3f}" for value in shown) + " |")
    p, is_copy = np.array(pooled).T
    for least, high in ((0, 0.05), (0.05, 0.2), (0.2, 0.5), (0.5, 0.8), (0.8, 0.95), (0.95, 1.01)):
        inside = (p >= least) & (p < high)
        print(
            f"p from {least} to {high}: {inside.sum()} pairs, mean p {p[inside].mean():.3f}, copies {is_copy[inside].mean():.3f}"
        )


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--measure", nargs="+", type=Path, default=[], help="folders of images")
    parser.add_argument("--fit", type=Path, help="folder of the measured sets")
    parser.add_argument("--images", type=int, default=2500, help="images of a set that are compared")
    parser.add_argument("--copies", type=int, default=40, help="copies of each kind")
    parser.add_argument("--out", type=Path, default=Path("found"), help="folder for the measured sets")
    return parse_with_quick(parser, words, images=60, copies=5)


def main(words: Sequence[str] | None = None) -> None:
    options = parse(words)
    for folder in options.measure:
        measure(folder, options)
    if options.fit:
        fit(options.fit)


if __name__ == "__main__":
    main()
