"""Re-identification of animals or faces: the same individual before another camera, and individuals that are new.

With photographs, write the table path,label,split,camera yourself (docs/re-identification.md), and leave out `backbone` and
`size`.
"""

import csv
from pathlib import Path

from task_data import BAD, GOOD, draw_pattern, draw_rows, parse, start

import likewise


def main(folder: str, quick: bool = False) -> dict:
    home, animals = Path(folder), 80 if quick else 200
    table = write_table(home, range(animals))  # the last 20 are the test split

    run = likewise.train(
        table, backbone="conv_small", size=40, lr=2e-3, epochs=6 if quick else 15, out=home / "run", quiet=True,
        sampler="SamplesPerClass(batch=32, per_class=4)", protocol="UnseenClasses(val=0.5)",
    )  # fmt: skip
    scores = likewise.evaluate(run, metrics=("R@1", "mAP"), quiet=True)["metrics"]  # never within one camera
    likewise.calibrate(run, far=0.2, quiet=True)
    likewise.search(run, split="test", save=home / "known.index", quiet=True)

    number = [*range(animals - 20, animals), *range(1000, 1020)]  # the known animals, and 20 new ones
    query = [draw_pattern(one, view=99, camera=2) for one in number]  # a new image by the third camera
    found = likewise.load(run).identify(query, index=home / "known.index")

    right = sum(one.label == f"animal {name}" for name, one in zip(number[:20], found[:20], strict=True))
    accepted = sum(one.is_unknown is False for one in found[20:])
    text = (
        f"R@1 {100 * scores['R@1']:.1f} %, mAP {100 * scores['mAP']:.1f} % across cameras; "
        f"known: {right} of 20 named; new: {accepted} of 20 accepted"
    )
    return {
        "scores": scores, "right": right, "accepted": accepted, "number": number, "query": query, "found": found, "text": text,
    }  # fmt: skip


def write_table(home: Path, animals: range) -> Path:
    """Write two images of every animal by each of three cameras, and the table of them."""
    (home / "images").mkdir(parents=True)
    lines = [("path", "label", "split", "camera")]
    for animal in animals:
        for camera, view in ((camera, view) for camera in range(3) for view in range(2)):
            name = f"images/{animal}-{camera}-{view}.png"
            draw_pattern(animal, view, camera=camera).save(home / name)
            lines.append((name, f"animal {animal}", "test" if animal >= len(animals) - 20 else "train", f"c{camera}"))
    with (home / "animals.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(lines)
    return home / "animals.csv"


def draw(result: dict, picture: str) -> None:
    shown = []
    for place in (*range(8), *range(20, 28)):
        one, query = result["found"][place], result["query"][place]
        right = one.label == (f"animal {result['number'][place]}" if place < 20 else None)
        neighbour = (one.neighbour.path, f"nearest: {one.neighbour.similarity:.2f}", "#c9ced6")
        shown.append([(query, one.label or "unknown", GOOD if right else BAD), neighbour])
    rows = [sum(shown[at : at + 4], []) for at in range(0, 16, 4)]
    draw_rows(picture, rows, f"{result['text']}\nUpper rows: known animals. Lower rows: new ones", height=1.4)


if __name__ == "__main__":
    start(main, draw, parse())
