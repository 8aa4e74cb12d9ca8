"""Product matching: is this image one of the products of my shop, and which? Or is it unknown?

With photographs, `shop` and `new` are folders with one sub-folder per product, and `backbone` and `size` are left out.
"""

from pathlib import Path

from task_data import BAD, GOOD, draw_pattern, draw_rows, parse, start, write_patterns

import likewise


def main(folder: str, quick: bool = False) -> dict:
    home, products = Path(folder), 60 if quick else 160
    shop = write_patterns(home / "shop", range(products), views=6, colour=True)

    run = likewise.train(
        shop, backbone="conv_small", size=40, lr=2e-3, epochs=4 if quick else 10, out=home / "run", quiet=True,
        sampler="SamplesPerClass(batch=32, per_class=4)", protocol="UnseenClasses(train=1, val=0.5)",
    )  # fmt: skip
    likewise.calibrate(run, far=0.2, quiet=True)  # promise: at most 20 % of unknown products are accepted
    likewise.search(run, save=home / "shop.index", quiet=True)

    rows = []
    for number in (*range(0, products, products // 20), *range(1000, 1020)):  # 20 of the shop, 20 others
        image = home / f"query-{number}.png"
        draw_pattern(number, view=99, colour=True).save(image)
        rows.append((number, image, likewise.search(home / "shop.index", image, k=3, quiet=True)))

    answers = [(f"{number:03}", found.decision) for number, _, found in rows]
    right = sum(told["label"] == name for name, told in answers[:20])
    accepted = sum(told["unknown"] is False for _, told in answers[20:])
    text = f"known products: {right} of 20 named; unknown products: {accepted} of 20 accepted"
    return {"right": right, "accepted": accepted, "rows": rows, "text": text}


def draw(result: dict, picture: str) -> None:
    rows = []
    for number, image, found in (*result["rows"][2:5], *result["rows"][20:22]):
        told = found.decision
        known = told["unknown"] is False
        right = known == (number < 1000) and told["label"] in (f"{number:03}", None)
        answer = f"{told['label']}, {100 * told['probability']:.0f} %" if known else "unknown"
        rows.append([(image, answer, GOOD if right else BAD)] + [
            (one["path"], f"{one['class']}: {one['similarity']:.2f}", "#c9ced6") for one in found
        ])  # fmt: skip
    draw_rows(picture, rows, "Query and its decision, nearest products", height=1.4)


if __name__ == "__main__":
    start(main, draw, parse())
