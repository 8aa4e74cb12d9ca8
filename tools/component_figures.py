"""Draw the flow of a training, and an explanatory figure for a component by running it on a small example."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import torch
from likewise.metrics import metric
from likewise.relevance import SharedLabels
from likewise.similarity import compare
from likewise.types import Embedded, Items, Pairs, PeerView, Relabelling, Retrieval
from loss_figures import draw as draw_loss
from svg import HUES, PULL, PUSH, THIRD, Drawing, Panel, legend
from torch.nn import functional as F

from likewise.core.settings.spec import build
from likewise.data import load
from likewise.data.images import image_of

GREY = "#8a93a0"


def clusters(classes: int, each: int, dim: int, spread: float, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return unit embeddings around one random centre per class."""
    g = torch.Generator().manual_seed(seed)
    y = torch.arange(classes).repeat_interleave(each)
    centre = F.normalize(torch.randn(classes, dim, generator=g), dim=1)
    return F.normalize(centre[y] + spread * torch.randn(len(y), dim, generator=g), dim=1), y


def draw_miner(name: str) -> Drawing:
    """Draw the distances of the positives and negatives that a miner selects, over 150 batches of 16 classes."""
    torch.manual_seed(0)
    miner, edges = build(name, classes=16), np.linspace(0, 2, 41)
    there, taken, turned = np.zeros((2, 40)), np.zeros((2, 40)), np.zeros(40)
    for number in range(150):
        z, y = clusters(16, 4, 16, 0.22, number)
        sim, pairs = compare(z, y)
        d = (2 - 2 * sim).clamp_min(0).sqrt()
        miner.see_teacher(z)
        found = miner(sim, pairs, 16, 0.2)
        if isinstance(found, Pairs):
            chosen = d[found.pos], d[found.neg]
        else:
            usual, other = found.valid & found.pull, found.valid & ~found.pull
            chosen = d[found.a[usual], found.p[usual]], d[found.a[usual], found.n[usual]]
            turned += np.histogram(d[found.a[other], found.n[other]], edges)[0]
        for side, (every, some) in enumerate(zip((d[pairs.pos], d[pairs.neg]), chosen)):
            there[side] += np.histogram(every, edges)[0]
            taken[side] += np.histogram(some, edges)[0]
    drawing = Drawing(640, 196, f"{name}: distances of those it takes")
    both = taken[1].sum() + turned.sum()
    pale = there / there.sum(1, keepdims=True)
    full = taken[0] / taken[0].sum(), taken[1] / both
    for side, (left, title, colour) in enumerate(((44, "class mates", PULL), (352, "strangers", PUSH))):
        panel = Panel(drawing, (left, 26, 270, 104), (0, 2), (0, 1.04 * max(pale[side].max(), full[side].max())))
        panel.axes(title, "distance to the anchor", (0, 0.5, 1, 1.5, 2), ())
        panel.bars(edges, pale[side], GREY, opacity="0.45")
        panel.bars(edges, full[side], colour, opacity="0.8")
        if side and turned.any():
            panel.bars(edges, turned / both, THIRD, opacity="0.8")
    more = [(THIRD, "a class mate in a stranger's place")] if turned.any() else []
    legend(drawing, 44, 186, [(GREY, "all there are"), (PULL, "taken"), (PUSH, "taken"), *more])
    return drawing


def draw_sampler(name: str) -> Drawing:
    """Draw the first batches; for samplers that use embeddings, also the embeddings of the first batch."""
    sizes = (12, 10, 9, 8, 8, 7, 6, 6)
    labels = np.repeat(np.arange(len(sizes)), sizes)
    rng = np.random.default_rng(0)
    angle = labels * 0.62 + rng.normal(0, 0.16, len(labels)) * (1 + labels / 3)
    z = np.stack([np.cos(angle), np.sin(angle)], 1)
    looks = name in ("DistanceMatching", "FrechetMatching", "GreedyCoreset")
    sets = [(c, 8 + c // 2) for c in range(8)]  # a label of its own, and one that A and B share, C and D, ...
    facts = {"label_sets": sets, "relevance": SharedLabels(sets, threshold=0.3)}
    sampler = build(f"{name}(batch=12{', pool=40' if looks else ''})", labels=labels, seed=0, **facts)
    sampler.start(lambda: Embedded(torch.tensor(z).float(), torch.tensor(labels), torch.arange(len(labels))))
    batches = sampler.epoch_batches(0)[:4]
    drawing = Drawing(640, 168, f"{name}: the first batches of a small data set")
    drawing.write(16, 18, "the first four batches of 12; a colour is a class", 11.5, font_weight="600")
    for down, rows in enumerate(batches):
        drawing.write(16, 46 + 31 * down, str(down + 1), 11, opacity="0.75")
        for across, row in enumerate(rows):
            x, y = 32 + 31 * across, 30 + 31 * down
            drawing.box(x, y, 27, 27, HUES[labels[row]], rx="4", opacity="0.88")
            drawing.write(x + 13.5, y + 17.5, chr(65 + labels[row]), 11, "middle", fill="#fff", font_weight="600")
    if looks:
        drawing.write(430, 18, "where the first one lies", 11.5, font_weight="600")
        for row, (across, up) in enumerate(z):
            inside = row in batches[0]
            radius = 52 + 5 * (row % 3)  # three rings, so that neighbours do not hide one another
            drawing.dot(
                520 + radius * across,
                94 - radius * up,
                HUES[labels[row]],
                4.5 if inside else 1.8,
                opacity="1" if inside else "0.5",
            )
    return drawing


def draw_confidence(name: str) -> Drawing:
    """Draw the sample weights of right and of wrong labels over the suspicion of the confidence."""
    torch.manual_seed(0)
    z, true = clusters(8, 40, 16, 0.36, 5)
    g = torch.Generator().manual_seed(1)
    wrong = torch.rand(len(true), generator=g) < 0.25
    y = torch.where(wrong, (true + torch.randint(1, 8, true.shape, generator=g)) % 8, true)
    centres = F.normalize(torch.stack([z[true == c].mean(0) for c in range(8)]), dim=1)
    loss = F.cross_entropy(4 * z @ centres.T, y, reduction="none")
    given = {
        "classes": 8,
        "dim": 16,
        "labels": y.numpy(),
        "per_pass": 5,
        "seed": 0,
        "label_sets": tuple((c,) for c in range(8)),
    }
    share = "(share=0.25)" if name in ("PRISM", "CoTeaching", "CoTeachingPlus") else ""
    part, row = build(f"{name}{share}", **given), torch.arange(len(y))
    for step in range(1, 301):  # enough batches for components with a state
        few = torch.randperm(len(y), generator=g)[:64]
        said = weigh(part, z[few], y[few], few, loss[few], centres)
        part.after_step(step)
    said = part.relabel(Embedded(z, y, row)) or weigh(part, z, y, row, loss, centres)
    by, w = said.suspicion, said.w
    if name == "CoTeachingPlus":  # it keeps the easy samples on which the two networks disagree
        by = loss
    drawing = Drawing(640, 214, f"{name}: weight by suspicion")
    low, high = float(by.min()), float(by.max())
    panel = Panel(drawing, (44, 26, 578, 122), (low - 0.02 * (high - low), high * 1.02), (-0.12, 1.12 * float(w.max())))
    ticks = [round(low + (high - low) * share, 2) for share in (0.0, 0.25, 0.5, 0.75, 1.0)]
    panel.axes("weight of 320 labels, a quarter of them wrong", "suspicion of a label", ticks, (0, 1))
    if said.threshold is not None:
        cut = float(said.threshold)
        if low < cut < high:
            panel.curve((cut, cut), panel.y, "currentColor", width=1.2, stroke_dasharray="4 3", opacity="0.7")
    lift = torch.rand(len(y), generator=g) * 0.12 - 0.06  # so that equal weights do not hide one another
    for number in range(len(y)):
        x, up = panel.at(float(by[number]), float(w[number] + lift[number]))
        drawing.dot(x, up, PUSH if wrong[number] else PULL, 2.2, opacity="0.75")
    right, bad = float(w[~wrong].mean()), float(w[wrong].mean())
    words = f"wrong label, mean weight {bad:.2f}"
    if isinstance(said, Relabelling):
        words = f"wrong label: {int((said.y == true)[wrong].sum())} of {int(wrong.sum())} made right"
    legend(drawing, 44, 204, [(PULL, f"right label, mean weight {right:.2f}"), (PUSH, words)])
    return drawing


def weigh(part, z, y, row, loss, centres):
    if part.peers == 1:
        return part(z, y, row, loss if part.needs_loss else None)
    turn = torch.roll(z, 1, 1) * 0.9  # embeddings of a second, slightly different network
    views = [z, F.normalize(z + turn, dim=1)]
    seen = [
        PeerView(v, F.cross_entropy(4 * v @ centres.T, y, reduction="none"), (v @ centres.T).argmax(1)) for v in views
    ]
    return part.exchange(seen, y, row)[1]


@cache
def few_glyphs() -> Items:
    return load("glyphs(classes=20)")


def draw_noise(name: str) -> Drawing:
    """Draw the label transitions of 20 glyph classes: a row is a true class, a column a given label."""
    items = few_glyphs()
    rows = np.concatenate([np.flatnonzero(items.y == c)[: 24 - c] for c in range(items.classes)])
    y, facts = items.y[rows], {"class_names": items.class_name, "taxonomy": items.taxonomy}
    if name == "SmallCluster":
        facts["features"] = np.stack(
            [np.asarray(image_of(items, int(r)).resize((8, 8)), np.float32).ravel() for r in rows]
        )
    resamples = 1 if name == "SmallCluster" else 40
    table = np.zeros((items.classes, items.classes))
    for seed in range(resamples):
        np.add.at(table, (y, build(name, **facts)(y, np.random.default_rng(seed))), 1)
    table /= table.sum(1, keepdims=True)
    drawing, side = Drawing(640, 330, f"{name}: where labels go"), 14
    times = "in one draw" if resamples == 1 else f"mean of {resamples} draws"
    drawing.write(44, 18, f"20 glyphs: true class down, given label across; {times}", 11.5, font_weight="600")
    for c in range(items.classes):
        letter = items.class_name[c].split()[-1]
        drawing.write(32, 41 + side * c, letter, 10, "middle", opacity="0.85")
        drawing.write(51 + side * c, 30 + side * items.classes + 14, letter, 10, "middle", opacity="0.85")
    drawing.box(
        44, 30, side * items.classes, side * items.classes, "none", stroke="currentColor", stroke_opacity="0.25"
    )
    for true, given in zip(*np.nonzero(table > 0.002)):
        share = table[true, given]
        strong = f"{0.12 + 0.88 * min(1, share if true == given else share / 0.3):.2f}"
        colour = PULL if true == given else PUSH
        drawing.box(44.5 + side * given, 30.5 + side * true, side - 1, side - 1, colour, opacity=strong)
    for line, (colour, words) in enumerate(((PULL, "stays as it is"), (PUSH, "becomes this one"))):
        legend(drawing, 346, 46 + 20 * line, [(colour, words)])
    drawing.write(
        346, 92, f"wrong in all: {100 * (1 - np.average(np.diag(table), weights=np.bincount(y))):.0f} %", 10.5
    )
    drawing.write(346, 110, "the stronger, the more often", 10.5, opacity="0.75")
    return drawing


SPLITS = {
    "UnseenClasses": ("UnseenClasses()", "UnseenClasses(val=0.34)"),
    "SeenClasses": ("SeenClasses()", "SeenClasses(val=0.2, gallery='train')"),
    "ClassFolds": ("ClassFolds(fold=0)", "ClassFolds(fold=1)"),
    "QueryGallery": ("QueryGallery()", "QueryGallery(val=0.34)"),
    "StratifiedLabels": ("StratifiedLabels()", "StratifiedLabels(test=0.25, val=0.34)"),
    "UnseenLabels": ("UnseenLabels()", "UnseenLabels(test=0.25, val=0.34)"),
}
ROLES = {
    "trains": THIRD, "validates": "#d99a2b", "test: query and gallery": PULL, "test: query": PUSH, "test: gallery": "#5aa469",
}  # fmt: skip


def draw_protocol(name: str) -> Drawing:
    """Draw the splits of 12 classes with 8 samples each."""
    y = np.repeat(np.arange(12), 8)
    place = np.tile(np.arange(8), 12)
    items = Items("small", y, tuple(f"class {c}" for c in range(12)), query=place < 3, gallery=place >= 3)
    drawing, used = Drawing(640, 206, f"{name}: who trains, validates and tests"), set()
    for left, text in zip((24, 340), SPLITS[name]):
        protocol = build(text)
        role = np.full(len(y), "", dtype="<U30")
        for part, word in (
            ("val", "validates"),
            ("train", "trains"),
        ):  # training rows can be gallery rows in validation
            role[protocol.rows(items, part)] = word
        test = protocol.rows(items, "test")
        asks, answers = protocol.query_gallery(items, test)
        both = np.select([asks & answers, asks], ["test: query and gallery", "test: query"], "test: gallery")
        trains = role[test] == "trains"
        role[test[~trains]] = both[~trains]
        drawing.write(left, 18, text, 11.5, font_weight="600", font_family="ui-monospace,monospace")
        for sample in range(len(y)):
            x, down = left + 22 * y[sample], 28 + 16 * place[sample]
            if role[sample]:
                used.add(str(role[sample]))
                drawing.box(x, down, 19, 13, ROLES[role[sample]], rx="2", opacity="0.88")
            if role[sample] == "trains" and answers[trains].any():
                drawing.dot(x + 9.5, down + 6.5, "#fff", 2)
                used.add("also answers")
        drawing.write(left + 131, 172, "a column is a class, a box a sample", 10.5, "middle", opacity="0.75")
    legend(drawing, 24, 196, [(colour, word) for word, colour in ROLES.items() if word in used])
    if "also answers" in used:
        drawing.write(440, 196, "white dot: answers too", 10.5)
    return drawing


def draw_head(name: str) -> Drawing:
    """Draw the layer widths from the pooled feature to the embedding."""
    dim = 512 if name == "Identity" else 128
    head, f = build(name, features=512, dim=dim), torch.randn(2, 512, generator=torch.Generator().manual_seed(0))
    steps = [("feature", [512])]
    for layer in head.modules():
        if isinstance(layer, torch.nn.Linear) and name != "Relational":
            layer.register_forward_hook(lambda _, __, out: steps.append(("linear", [out.shape[1]])))
    out = head(f)
    if name == "Relational":
        u = head.slices(f)
        steps += [("slices", [u.shape[2]] * len(u)), ("nodes", [out[1].shape[2]] * out[1].shape[1])]
        out = out[0]
    steps.append(("embedding", [out.shape[1]]))
    if steps[-2] == ("linear", [dim]):
        del steps[-2]
    drawing = Drawing(640, 168, f"{name}: widths from feature to embedding")
    gap = 520 / max(len(steps) - 1, 1)
    for number, (what, widths) in enumerate(steps):
        x, tall = 40 + gap * number, 100 * sum(widths) / 512
        each = tall / len(widths)
        for part in range(len(widths)):
            colour = HUES[part] if len(widths) > 1 else (THIRD, PULL)[number == len(steps) - 1]
            drawing.box(
                x, 70 - tall / 2 + each * part, 34, each - (2 if len(widths) > 1 else 0), colour, rx="3", opacity="0.88"
            )
        label = f"{len(widths)} x {widths[0]}" if len(widths) > 1 else str(widths[0])
        drawing.write(x + 17, 142, label, 11, "middle", font_weight="600")
        drawing.write(x + 17, 157, what, 10.5, "middle", opacity="0.75")
        if number + 1 < len(steps):
            drawing.line([(x + 44, 70), (x + gap - 10, 70)], "currentColor", 1.5, opacity="0.5")
            drawing.line(
                [(x + gap - 16, 65), (x + gap - 10, 70), (x + gap - 16, 75)], "currentColor", 1.5, opacity="0.5"
            )
    return drawing


RANKINGS = ("1111000000", "1010010010", "0111100000", "0000111100", "1000000111", "0000000000")
SCORES = ("R@1", "R@5", "P@5", "RP", "MAP@R", "MRR", "NDCG@5", "mAP", "mAP/C", "mAP@5/R", "mAP@5/min", "mAP@5/hits")


def draw_metrics() -> Drawing:
    """Draw the metrics of rankings of ten results, with four more relevant rows possibly far below."""
    hits = [[place + 1 for place, hit in enumerate(one) if hit == "1"] or [97, 98, 99, 100] for one in RANKINGS]
    start = np.cumsum([0, *map(len, hits)])
    none = torch.zeros(len(hits), 0)
    found = Retrieval(
        query=torch.arange(len(hits)), row=none.long(), match=none.bool(), sim=none, relevant=torch.full((len(hits),), 4),
        depth=torch.full((len(hits),), 1000), hit_rank=torch.tensor(sum(hits, [])), start=torch.tensor(start),
    )  # fmt: skip
    drawing = Drawing(790, 66 + 30 * len(hits), "what rankings score")
    drawing.write(12, 20, "first ten answers", 11.5, font_weight="600")
    for column, name in enumerate(SCORES):
        x = 214 + 45 * column
        drawing.write(x, 46, name, 10, transform=f"rotate(-24 {x} 46)", font_weight="600")
    for line, one in enumerate(RANKINGS):
        for place, hit in enumerate(one):
            colour = {"fill": PULL, "opacity": "0.9"} if hit == "1" else {"fill": GREY, "opacity": "0.3"}
            drawing.box(12 + 18 * place, 56 + 30 * line, 15, 20, rx="2", **colour)
    for column, name in enumerate(SCORES):
        for line, value in enumerate(metric(name)(found).tolist()):
            drawing.box(206 + 45 * column, 54 + 30 * line, 42, 24, PULL, rx="3", opacity=f"{0.05 + 0.55 * value:.2f}")
            drawing.write(227 + 45 * column, 70 + 30 * line, f"{value:.2f}", 10.5, "middle")
    return drawing


BOX_WIDTH, BOX_HEIGHT = 112, 44
FLOW_ROWS = {
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
AFTER_FLOW = "audit  ·  review  ·  report  ·  search  ·  export  ·  compare  ·  bench  ·  tune"


def draw_flow() -> Drawing:
    """Draw the flow of a training, and of what follows it: docs/flow.svg."""
    drawing = Drawing(760, 318, "how data flows through likewise")
    for word, (top, colour, boxes) in FLOW_ROWS.items():
        drawing.write(8, top + 26, word, 11.5, font_weight="600", opacity="0.75")
        for number, box in enumerate(boxes):
            left = flow_place(number)
            name, _, holds = box.partition("|")
            drawing.box(left, top, BOX_WIDTH, BOX_HEIGHT, colour, rx="6", opacity="0.16")
            drawing.box(left, top, BOX_WIDTH, BOX_HEIGHT, "none", rx="6", stroke=colour, stroke_width="1.4")
            drawing.write(left + BOX_WIDTH / 2, top + 19, name, 12.5, "middle", font_weight="600")
            drawing.write(left + BOX_WIDTH / 2, top + 34, holds, 9.5, "middle", opacity="0.8")
            if number + 1 < len(boxes) and word != "learn":
                arrow(drawing, [(left + BOX_WIDTH + 3, top + 22), (flow_place(number + 1) - 3, top + 22)])
    first, last = flow_place(0) + BOX_WIDTH / 2, flow_place(4) + BOX_WIDTH / 2
    # the output goes to three components, whose outputs meet again
    arrow(drawing, [(last, 73), (last, 98), (first, 98), (first, 123)])
    for number in (1, 2):
        arrow(drawing, [(flow_place(number) + BOX_WIDTH / 2, 98), (flow_place(number) + BOX_WIDTH / 2, 123)])
    for number in (0, 2, 3):
        arrow(drawing, [(flow_place(number) + BOX_WIDTH + 3, 148), (flow_place(number + 1) - 3, 148)])
    arrow(
        drawing,
        [
            (flow_place(1) + BOX_WIDTH / 2, 173),
            (flow_place(1) + BOX_WIDTH / 2, 184),
            (flow_place(3) + 30, 184),
            (flow_place(3) + 30, 173),
        ],
    )
    arrow(drawing, [(last, 173), (last, 200), (first, 200), (first, 223)])
    drawing.write(flow_place(0), 300, f"and from the run folder:  {AFTER_FLOW}", 11, opacity="0.85")
    return drawing


def flow_place(number: int) -> float:
    return 62 + number * 139


def arrow(drawing: Drawing, points: list[tuple[float, float]]) -> None:
    (x0, y0), (x, y) = points[-2:]
    back = 5 if (x, y) > (x0, y0) else -5
    sides = (
        [(x - back, y - 4), (x, y), (x - back, y + 4)] if y == y0 else [(x - 4, y - back), (x, y), (x + 4, y - back)]
    )
    drawing.line(points, "currentColor", 1.3, opacity="0.5")
    drawing.line(sides, "currentColor", 1.3, opacity="0.5")


DRAW: dict[str, Callable[[str], Drawing]] = {
    "losses": draw_loss, "miners": draw_miner, "samplers": draw_sampler, "confidence": draw_confidence, "noise": draw_noise,
    "protocols": draw_protocol, "heads": draw_head,
}  # fmt: skip
"""Registry -> function that draws a component; other registries have no figure per component."""

WITHOUT_FIGURE = ("AddLabels", "DropLabels")
"""Components of these registries that the drawn data, which has one label per sample, cannot show."""
