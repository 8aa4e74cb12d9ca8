"""Several labels per image: a table with the column `labels`, training, scores by any shared label, by all, and per label."""

from pathlib import Path

from relevance_data import SMALL, as_table, glyph_images, parse, write_table

import likewise

METRICS = ("R@1", "NDCG@10", "graded-mAP")


def main(folder: str, quick: bool = False) -> dict:
    files, names, is_train = glyph_images(classes=20 if quick else 80)
    splits = ["train" if one else "test" for one in is_train]
    lines = [(file, "|".join(sorted(labels)), split) for file, labels, split in zip(files, names, splits)]
    table = write_table(Path(folder, "shop.csv"), ("path", "labels", "split"), lines)

    epochs = 2 if quick else 8
    scores = {}
    for loss in ("MultiSimilarity()", "ProxyAnchor()"):  # pairs by labels in common; a proxy for every label
        run = likewise.train(table, loss=loss, epochs=epochs, out=Path(folder, loss[:-2]), metrics=METRICS, **SMALL)
        scores[loss] = run.scores
    rare = run.scores["labels"]["mean"]["R@1"]
    text = as_table(METRICS, [(loss, [s["metrics"][m] for m in METRICS]) for loss, s in scores.items()])
    return {"scores": scores, "text": f"{text}\nProxyAnchor, R@1 as the mean over labels: {100 * rare:.1f} %"}


if __name__ == "__main__":
    flags = parse()
    print(main(flags.folder, quick=flags.quick)["text"])
