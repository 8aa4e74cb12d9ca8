"""Draw the value of a loss and its gradient over the similarity of one pair, by calling the loss."""

from __future__ import annotations

import torch
from likewise.contracts import Loss
from likewise.types import Ref
from svg import PULL, PUSH, THIRD, Drawing, Panel, legend
from torch import Tensor

from likewise.core.settings.spec import build

DIM, CLASSES = 16, 8
MATE, STRANGER = 0.6, 0.3
"""Similarities of the pairs that are not moved."""
SWEEP = torch.linspace(-0.98, 0.98, 99, dtype=torch.float64)
SPREAD = {"FastAP", "SmoothAP", "Histogram"}
"""Similarities of several rows for losses of whole rankings, which the moved row passes."""
FAMILY = {f"class {number}": ("first" if number < 4 else "second",) for number in range(CLASSES)}


def draw(name: str) -> Drawing:
    if name == "CrossBatchMemory":
        return draw_memory()
    mate, stranger = sweep(name, "mate"), sweep(name, "stranger")
    sides = [(PULL, mate), (PUSH, stranger)]
    if name == "Hierarchical":
        sides.append((THIRD, sweep(name, "cousin")))
    drawing = Drawing(640, 214, f"{name}: loss and gradient by similarity")
    for left, title, checkpoint in ((44, "loss", 0), (372, "gradient: below 0 pulls, above 0 pushes", 1)):
        values = torch.stack([side[checkpoint] for _, side in sides])
        low, high = float(values.min()), float(values.max())
        room = max((high - low) * 0.06, 1e-3)
        panel = Panel(drawing, (left, 26, 250, 122), (-1, 1), (low - room, high + room))
        panel.axes(
            title,
            f"similarity {'to the proxy' if has_proxies(name) else 'of the pair'}",
            (-1, -0.5, 0, 0.5, 1),
            (low, high),
        )
        if low < 0 < high:
            panel.curve((-1, 1), (0, 0), "currentColor", width=1, opacity="0.45")
        for colour, side in sides:
            panel.curve(SWEEP.tolist(), side[checkpoint].tolist(), colour)
    words = ("own proxy", "another's proxy") if has_proxies(name) else ("a class mate", "a stranger")
    third = [(THIRD, "another's proxy, same group")] if name == "Hierarchical" else []
    legend(drawing, 44, 204, [(PULL, words[0]), (PUSH, words[1] + (", other group" if third else "")), *third])
    return drawing


def has_proxies(name: str) -> bool:
    part = make(name)
    return any(True for key, _ in part.named_parameters() if "prox" in key or "centre" in key)


def make(name: str) -> Loss:
    torch.manual_seed(0)
    text = "Hierarchical(loss=ProxyAnchor(), depth=1)" if name == "Hierarchical" else name
    facts = {
        "classes": CLASSES,
        "dim": DIM,
        "class_names": tuple(FAMILY),
        "taxonomy": FAMILY,
        "per_pass": 10,
        "steps": 100,
    }
    part = build(text, **facts).double()
    if name == "PairSuperLoss":  # as after some steps: the running mean of the pair losses
        part.mean.fill_(0.5)
        part.count.fill_(1000)
    return part


def sweep(name: str, moved: str) -> tuple[Tensor, Tensor]:
    """Return the loss and its derivative by the similarity of the moved pair, at every similarity of `SWEEP`."""
    ask = at_proxies if has_proxies(name) else among_samples
    found = []
    for value in SWEEP:
        part, s = make(name), value.clone().requires_grad_()
        torch.manual_seed(1)
        number = ask(part, s, moved, name in SPREAD).mean()
        (slope,) = torch.autograd.grad(number, s)
        found.append((number.detach(), slope))
    return torch.stack([a for a, _ in found]), torch.stack([b for _, b in found])


def beside(s: Tensor, axis: int) -> Tensor:
    """Return a unit vector at similarity s to the first axis."""
    basis = torch.eye(DIM, dtype=torch.float64)
    return s * basis[0] + (1 - s * s).clamp_min(0).sqrt() * basis[axis]


def among_samples(part: Loss, s: Tensor, moved: str, spread: bool) -> Tensor:
    """Return one anchor with a positive and a negative, or with several of the kind that does not move."""
    several = torch.linspace(-0.6, 0.6, 5, dtype=torch.float64)
    others = list(several) if spread else [torch.tensor(STRANGER if moved == "mate" else MATE, dtype=torch.float64)]
    own = [s] if moved == "mate" else others
    far = others if moved == "mate" else [s]
    z = torch.stack([beside(value, 2 + place) for place, value in enumerate([*own, *far])])
    third = beside(torch.zeros((), dtype=torch.float64), DIM - 1)[None]  # one more class, for losses that want it
    y = torch.tensor([0] * len(own) + [1] * len(far) + [2] * (not spread))
    anchor = beside(torch.ones((), dtype=torch.float64), 1)[None]
    return part(anchor, torch.tensor([0]), Ref(torch.cat([z, third]) if not spread else z, y))


def at_proxies(part: Loss, s: Tensor, moved: str, spread: bool) -> Tensor:
    """Return a sample at a given similarity to its own or to another proxy, and orthogonal to all others."""
    basis = torch.eye(DIM, dtype=torch.float64)
    with torch.no_grad():
        for key, values in part.named_parameters():
            if key.startswith("coarse"):  # two groups, each in the middle of its four classes
                values.copy_(torch.stack([basis[:4].sum(0), basis[4:8].sum(0)]) / 2)
            else:
                rows = basis[:CLASSES].repeat(len(values) // CLASSES, 1)
                values.copy_(torch.nn.functional.pad(rows, (0, values.shape[1] - DIM)))  # biases of 0
    target = {"mate": 0, "stranger": CLASSES - 1, "cousin": 1}[moved]
    return part((s * basis[target] + (1 - s * s).sqrt() * basis[DIM - 1])[None], torch.tensor([0]))


def draw_memory() -> Drawing:
    """Draw the number of samples that an anchor is compared with over the steps: the batch and the memory."""
    loss = build("CrossBatchMemory(size=48, start=3)", dim=DIM)
    y = torch.arange(8) // 2
    counts = []
    for step in range(1, 15):
        loss(
            torch.nn.functional.normalize(torch.randn(8, DIM, generator=torch.Generator().manual_seed(step)), dim=1), y
        )
        counts.append(int(loss.filled))
        loss.after_step(step)
    drawing = Drawing(640, 190, "CrossBatchMemory: with how many samples an anchor is compared")
    panel = Panel(drawing, (44, 26, 578, 100), (0.5, len(counts) + 0.5), (0, 60))
    panel.axes(
        "samples that an anchor is compared with: size=48, start=3, batches of 8", "step", (1, 5, 10), (0, 8, 56)
    )
    edges = [step + 0.5 for step in range(len(counts) + 1)]
    panel.bars(edges, [8 + count for count in counts], THIRD, opacity="0.75")
    panel.bars(edges, [8] * len(counts), PULL)
    legend(drawing, 44, 180, [(PULL, "the batch, with its gradient"), (THIRD, "remembered from steps before")])
    return drawing
