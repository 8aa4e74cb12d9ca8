"""A class tree: ancestors in the column `coarse`; a wrong result of a near class is better than one of a far class."""

from pathlib import Path

from relevance_data import SMALL, as_table, parse, write_table

import likewise
from likewise import data

METRICS = ("R@1", "NDCG@10", "graded-mAP")


def main(folder: str, quick: bool = False) -> dict:
    items = data.load(f"glyphs(size=24, classes={24 if quick else 120}, per_class=12)")
    lines = []
    for file, y, split in zip(items.path, items.y, items.split):
        name = items.class_name[y]
        lines.append((str(Path(items.root, file)), name, "/".join(items.taxonomy[name]), split))
    table = write_table(Path(folder, "tree.csv"), ("path", "label", "coarse", "split"), lines)

    scores = {}
    for name, relevance in (("classes", None), ("class tree", "TreeDepth()")):
        out = Path(folder, name.replace(" ", "-"))
        run = likewise.train(
            table, loss="MultiSimilarity()", relevance=relevance, epochs=2 if quick else 8, out=out, **SMALL
        )
        scores[name] = likewise.evaluate(run, relevance="TreeDepth()", metrics=METRICS, quiet=True)
    text = as_table(METRICS, [(name, [s["metrics"][m] for m in METRICS]) for name, s in scores.items()])
    return {"scores": scores, "text": text}


if __name__ == "__main__":
    flags = parse()
    print(main(flags.folder, quick=flags.quick)["text"])
