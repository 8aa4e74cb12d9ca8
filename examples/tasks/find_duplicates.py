"""Near duplicates of many images: equal vectors among many embeddings, and copies of images that were changed.

For images of your own, `likewise audit photos/` writes duplicates.csv. In Python, pass their embeddings and a function that opens
an image, as below.
"""

import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps
from task_data import GOOD, draw_rows, parse, start, write_patterns

import likewise
from likewise.curate.audit.near_duplicates import near_duplicates


def main(folder: str, quick: bool = False) -> dict:
    rng, count = np.random.default_rng(0), 2_000 if quick else 50_000
    vectors = rng.normal(size=(count, 128)).astype(np.float32)
    again = rng.choice(count, count // 100, replace=False)  # images that are in the set twice, stored with fewer digits
    vectors = np.concatenate([vectors, vectors[again].astype(np.float16)])

    begin = time.process_time()
    found = near_duplicates(torch.from_numpy(vectors))
    seconds = time.process_time() - begin

    files = write_copies(Path(folder, "photos"), images=30 if quick else 200)
    z = likewise.embed("efficientnet_lite0", Path(folder, "photos"), quiet=True).z
    images = near_duplicates(z, lambda row: Image.open(files[row]).convert("RGB"))

    planted = set(zip(again.tolist(), range(count, len(vectors)), strict=True))
    pairs = set(zip(found.row.tolist(), found.other.tolist(), strict=True))
    copies = [(files[a], files[b]) for a, b in zip(images.row, images.other, strict=True)]
    right = sum(a.stem.split("-")[0] == b.stem.split("-")[0] for a, b in copies)
    text = (
        f"{len(vectors):,} vectors: {len(pairs & planted)} of {len(planted)} duplicates, {len(pairs - planted)} wrong pairs, "
        f"{seconds:.1f} s of CPU time\n"
        f"{len(files)} images: {right} of {len(files) // 2} changed copies, {len(copies) - right} wrong pairs"
    )
    return {"planted": planted, "pairs": pairs, "copies": copies, "right": right, "text": text}


def write_copies(folder: Path, images: int) -> list[Path]:
    """Write generated images, and of each a copy that is smaller, mirrored, compressed, brighter or cropped."""
    write_patterns(folder, range(images), views=1, colour=True, size=48)
    change = {
        "small": lambda image: image.resize((32, 32)), "mirrored": ImageOps.mirror, "jpeg": lambda image: image,
        "bright": lambda image: image.point(lambda value: min(255, value + 25)),
        "cropped": lambda image: image.crop((2, 2, 46, 46)),
    }  # fmt: skip
    for number, file in enumerate(sorted(folder.glob("*/*.png"))):
        name = list(change)[number % len(change)]
        copy = change[name](Image.open(file))
        file.rename(file.with_name(f"{number}-original.png"))
        copy.save(file.with_name(f"{number}-{name}.{'jpg' if name == 'jpeg' else 'png'}"), quality=70)
    return [file for place in sorted(folder.iterdir()) for file in sorted(place.iterdir())]


def draw(result: dict, picture: str) -> None:
    pairs = [[(file, file.stem.split("-")[1], GOOD) for file in pair] for pair in result["copies"][:12]]
    draw_rows(picture, [sum(pairs[at : at + 4], []) for at in range(0, 12, 4)], result["text"], height=1.4)


if __name__ == "__main__":
    start(main, draw, parse())
