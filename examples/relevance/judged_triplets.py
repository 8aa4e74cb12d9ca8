"""Judged triplets: people saw an image and two others, and said which of the two is nearer to it."""

from pathlib import Path

import numpy as np
from relevance_data import SMALL, as_table, glyph_images, parse, write_images, write_table

import likewise

METRICS = ("triplet-agreement",)


def main(folder: str, quick: bool = False) -> dict:
    files, names, is_train = glyph_images(classes=20 if quick else 60)
    images = write_images(Path(folder), files, is_train)
    letters = np.array([min(labels, key=len) for labels in names])  # the judges find images of the same letter nearer
    rng, lines = np.random.default_rng(0), []
    for a in range(len(files)):
        in_split = (is_train == is_train[a]) & (np.arange(len(files)) != a)
        near, far = (np.flatnonzero(in_split & rows) for rows in (letters == letters[a], letters != letters[a]))
        for _ in range(8 if len(near) else 0):
            lines.append((files[a], files[rng.choice(near)], files[rng.choice(far)]))
    triplets = write_table(Path(folder, "triplets.csv"), ("anchor", "nearer", "farther"), lines)

    run = likewise.train(
        images, loss="Triplet(margin=0.2)", relevance=f"JudgedTriplets(file='{triplets}')", steps=60 if quick else 400,
        out=Path(folder, "run"), metrics=METRICS, **SMALL,
    )  # fmt: skip
    before = likewise.evaluate(run, checkpoint="untrained", metrics=METRICS, quiet=True)
    scores = {"before training": before, "after training": run.scores}
    text = as_table(METRICS, [(name, [s["metrics"][m] for m in METRICS]) for name, s in scores.items()])
    return {"scores": scores, "lines": len(lines), "text": f"{len(lines):,} judged triplets\n{text}"}


if __name__ == "__main__":
    flags = parse()
    print(main(flags.folder, quick=flags.quick)["text"])
