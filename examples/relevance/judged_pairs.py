"""Judged pairs: people looked at two images, and said whether they are the same."""

from pathlib import Path

import numpy as np
from relevance_data import SMALL, as_table, glyph_images, parse, write_images, write_table

import likewise

METRICS = ("R@1", "MAP@R", "mAP")


def main(folder: str, quick: bool = False) -> dict:
    files, names, is_train = glyph_images(classes=20 if quick else 60)
    images = write_images(Path(folder), files, is_train)
    letter = [min(labels, key=len) for labels in names]  # the letter is the shortest label; the judges look at it alone
    lines = []
    for a, b in judged_by_people(letter, is_train, np.random.default_rng(0)):
        lines.append((files[a], files[b], "yes" if letter[a] == letter[b] else "no"))
    pairs = write_table(Path(folder, "judged.csv"), ("a", "b", "same"), lines)

    run = likewise.train(
        images, loss="Contrastive()", relevance=f"JudgedPairs(file='{pairs}')", steps=60 if quick else 400,
        out=Path(folder, "run"), metrics=METRICS, **SMALL,
    )  # fmt: skip
    before = likewise.evaluate(run, checkpoint="untrained", metrics=METRICS, quiet=True)
    scores = {"before training": before, "after training": run.scores}
    text = as_table(METRICS, [(name, [s["metrics"][m] for m in METRICS]) for name, s in scores.items()])
    return {"scores": scores, "lines": len(lines), "text": f"{len(lines):,} judged pairs\n{text}"}


def judged_by_people(letter: list[str], is_train: np.ndarray, rng: np.random.Generator) -> list[tuple[int, int]]:
    """Return the pairs that were judged: for each image four of the same letter and twelve others, in the same split."""
    letters, found = np.array(letter), set()
    for a in range(len(letter)):
        in_split = is_train == is_train[a]
        for rows, count in ((letters == letter[a], 4), (letters != letter[a], 12)):
            others = np.flatnonzero(rows & in_split)
            chosen = rng.choice(others, min(count, len(others)), replace=False).tolist()
            found |= {(min(a, b), max(a, b)) for b in chosen if b != a}
    return sorted(found)


if __name__ == "__main__":
    flags = parse()
    print(main(flags.folder, quick=flags.quick)["text"])
