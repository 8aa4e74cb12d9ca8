"""Clean a folder: find wrong labels without training, correct them, and write a clean copy of the folder.

With photographs of your own and a person who decides, this is one command: likewise clean photos/ --to cleaned/
Here a CSV table takes the place of the review page, and every suggestion of the audit is accepted.
"""

import csv
from pathlib import Path

import numpy as np
from task_data import BAD, GOOD, draw_rows, parse, start, write_glyphs

import likewise


def main(folder: str, quick: bool = False) -> dict:
    home = Path(folder)
    photos = write_glyphs(home / "photos", classes=6 if quick else 24, per_class=16)
    move_some(photos, share=0.08)

    audit = likewise.audit_run(photos, out=home / "audit", backbone="efficientnet_lite0", quiet=True)
    likewise.send(audit, "csv", home / "labels.csv", quiet=True)
    accept_suggestions(home / "labels.csv")  # or edit the column `label` in any program
    likewise.receive(home / "labels.csv", "csv", home / "audit" / "corrected.csv", quiet=True)
    applied = likewise.apply(home / "audit", to=home / "cleaned")

    wrong = [
        sum(file.parent.name != file.stem.split("-")[0] for file in home.glob(f"{name}/*/*.png"))
        for name in ("photos", "cleaned")
    ]
    text = "wrong labels before and after: {} and {}".format(*wrong)
    return {"wrong": wrong, "moves": [m for m in applied.moves if m.change == "relabel"], "text": text}


def move_some(photos: Path, share: float) -> None:
    """Move a share of the images to the folder of another class."""
    files, rng = sorted(photos.glob("*/*.png")), np.random.default_rng(0)
    folders = sorted(photos.iterdir())
    for place in rng.choice(len(files), round(share * len(files)), replace=False):
        others = [one for one in folders if one != files[place].parent]
        files[place].rename(others[rng.integers(len(others))] / files[place].name)


def accept_suggestions(table: Path) -> None:
    """Replace each flagged label of the table by the suggested one."""
    with table.open(newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    for line in lines:
        line["label"] = line["suggested"] if line["suggested"] and float(line["score"]) < 0.5 else line["label"]
    with table.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, lines[0])
        writer.writeheader()
        writer.writerows(lines)


def draw(result: dict, picture: str) -> None:
    shown = []
    for move in result["moves"][:16]:
        old, new, true = (
            Path(move.source).parent.name,
            Path(move.target).parent.name,
            Path(move.source).stem.split("-")[0],
        )
        shown.append((move.source, f"{old} →\n{new}", GOOD if new == true else BAD))
    draw_rows(
        picture, [row for row in (shown[:8], shown[8:]) if row], f"{result['text']}. Blue: the right class", height=1.6
    )


if __name__ == "__main__":
    start(main, draw, parse())
