"""Listed pairs: a file with two images and a value from 0 to 1 in every line, such as the share of buyers of both."""

from pathlib import Path

import numpy as np
from relevance_data import SMALL, as_table, glyph_images, jaccard, parse, write_images, write_table

import likewise

METRICS = ("R@1", "NDCG@10", "graded-mAP")


def main(folder: str, quick: bool = False) -> dict:
    files, names, is_train = glyph_images(classes=20 if quick else 60)
    images = write_images(Path(folder), files, is_train)
    rng, lines = np.random.default_rng(0), []
    for a in range(len(files)):  # 40 others for each image, in the same split: those that have something in common
        for b in rng.choice(np.flatnonzero(is_train == is_train[a]), 40, replace=False).tolist():
            if b > a and jaccard(names[a], names[b]) > 0:
                lines.append((files[a], files[b], round(jaccard(names[a], names[b]), 3)))
    pairs = write_table(Path(folder, "pairs.csv"), ("a", "b", "value"), lines)

    run = likewise.train(
        images, loss="MultiSimilarity()", relevance=f"ListedPairs(file='{pairs}', unlisted=None)",
        steps=30 if quick else 300, out=Path(folder, "run"), metrics=METRICS, **SMALL,
    )  # fmt: skip
    before = likewise.evaluate(run, checkpoint="untrained", metrics=METRICS, quiet=True)
    scores = {"before training": before, "after training": run.scores}
    text = as_table(METRICS, [(name, [s["metrics"][m] for m in METRICS]) for name, s in scores.items()])
    return {"scores": scores, "lines": len(lines), "text": f"{len(lines):,} listed pairs\n{text}"}


if __name__ == "__main__":
    flags = parse()
    print(main(flags.folder, quick=flags.quick)["text"])
