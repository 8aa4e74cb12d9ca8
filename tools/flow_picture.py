"""The flow of a training and of what follows it, as one drawing: docs/flow.svg."""

from __future__ import annotations

from svg import PULL, PUSH, THIRD, Drawing

WIDE, TALL = 112, 44
ROWS = {
    "train": (
        26, THIRD,
        ("data|Items", "protocol|who trains", "sampler|rows of a batch", "augment|x, y, row", "embedder|z, e, f"),
    ),
    "learn": (
        126, PUSH,
        ("confidence|w: sample weight", "loss|one number a sample", "terms|more than (z, y)", "objective|one formula",
         "step|optimiser, log"),
    ),
    "judge": (
        226, PULL,
        ("run folder|settings, weights, log", "embed|Embedded", "retrieve|Retrieval", "metrics|one number a query",
         "scores|with intervals"),
    ),
}  # fmt: skip
AFTER = "audit  ·  review  ·  report  ·  search  ·  export  ·  compare  ·  bench  ·  tune"


def draw_flow() -> Drawing:
    drawing = Drawing(760, 318, "how data flows through likewise")
    for word, (top, colour, boxes) in ROWS.items():
        drawing.write(8, top + 26, word, 11.5, font_weight="600", opacity="0.75")
        for number, box in enumerate(boxes):
            left = place(number)
            name, _, holds = box.partition("|")
            drawing.box(left, top, WIDE, TALL, colour, rx="6", opacity="0.16")
            drawing.box(left, top, WIDE, TALL, "none", rx="6", stroke=colour, stroke_width="1.4")
            drawing.write(left + WIDE / 2, top + 19, name, 12.5, "middle", font_weight="600")
            drawing.write(left + WIDE / 2, top + 34, holds, 9.5, "middle", opacity="0.8")
            if number + 1 < len(boxes) and word != "learn":
                arrow(drawing, [(left + WIDE + 3, top + 22), (place(number + 1) - 3, top + 22)])
    first, last = place(0) + WIDE / 2, place(4) + WIDE / 2
    arrow(
        drawing, [(last, 73), (last, 98), (first, 98), (first, 123)]
    )  # the output goes to three components, whose outputs meet again
    for number in (1, 2):
        arrow(drawing, [(place(number) + WIDE / 2, 98), (place(number) + WIDE / 2, 123)])
    for number in (0, 2, 3):
        arrow(drawing, [(place(number) + WIDE + 3, 148), (place(number + 1) - 3, 148)])
    arrow(drawing, [(place(1) + WIDE / 2, 173), (place(1) + WIDE / 2, 184), (place(3) + 30, 184), (place(3) + 30, 173)])
    arrow(drawing, [(last, 173), (last, 200), (first, 200), (first, 223)])
    drawing.write(place(0), 300, f"and from the run folder:  {AFTER}", 11, opacity="0.85")
    return drawing


def place(number: int) -> float:
    return 62 + number * 139


def arrow(drawing: Drawing, points: list[tuple[float, float]]) -> None:
    (x0, y0), (x, y) = points[-2:]
    back = 5 if (x, y) > (x0, y0) else -5
    sides = (
        [(x - back, y - 4), (x, y), (x - back, y + 4)] if y == y0 else [(x - 4, y - back), (x, y), (x + 4, y - back)]
    )
    drawing.line(points, "currentColor", 1.3, opacity="0.5")
    drawing.line(sides, "currentColor", 1.3, opacity="0.5")
