"""Train on my folder: one sub-folder per class in, scores on classes that did not train and a search by image out.

With photographs, leave out `backbone` and `size`: training then starts from a pretrained network.
"""

from pathlib import Path

from task_data import BAD, GOOD, draw_rows, parse, start, write_glyphs

import likewise


def main(folder: str, quick: bool = False) -> dict:
    home = Path(folder)
    photos = write_glyphs(home / "photos", classes=24 if quick else 80, per_class=12 if quick else 24)

    run = likewise.train(
        photos, backbone="conv_small", size=40, lr=2e-3, epochs=8 if quick else 12, out=home / "run", quiet=True,
        sampler="SamplesPerClass(batch=48, per_class=4)", protocol="UnseenClasses(train=0.5)",
    )  # fmt: skip
    before = likewise.evaluate(run, checkpoint="untrained", quiet=True)["metrics"]["R@1"]
    after = likewise.evaluate(run, quiet=True)["metrics"]["R@1"]
    queries = sorted(photos.glob("*/*-00.png"))[-4:]  # the last classes did not train
    found = [likewise.search(run, query, k=7, split="test", quiet=True) for query in queries]

    text = f"R@1 of unseen classes before and after: {100 * before:.1f} % and {100 * after:.1f} %"
    return {"before": before, "after": after, "queries": queries, "found": found, "text": text}


def draw(result: dict, picture: str) -> None:
    rows = []
    for query, found in zip(result["queries"], result["found"], strict=True):
        others = [one for one in found if not one["same"]][:6]
        rows.append([(query, "query", "#22262e")] + [
            (one["path"], f"{one['similarity']:.2f}", GOOD if one["class"] == query.parent.name else BAD) for one in others
        ])  # fmt: skip
    draw_rows(picture, rows, result["text"], height=1.45)


if __name__ == "__main__":
    start(main, draw, parse())
