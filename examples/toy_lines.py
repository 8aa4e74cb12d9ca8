"""The 2-D toys of Roth et al., Revisiting Training Strategies, ICML 2020: what flattens the spectrum of an embedding?

    python examples/toy_lines.py --out lines.png
    python examples/toy_lines.py --lines vertical --out lines.png

A small network learns four classes of points in the plane, embedded on the circle, and is tested on classes that differ in
another direction. The study trains it twice, with a contrastive loss over triplets ("base") and "regularised" by now and
then taking the positive for the negative, with probability p = 0.001; the second spectrum is far flatter.

The effect is real, but it comes from deleting the positive term, not from p = 0.001: the study's script also leaves the pull
d_ap out of the regularised loss, which its text does not mention. Where the pull stays, p = 0.001 changes nothing. Without it the
spectrum is flat with p = 0 too. Second singular value over ten seeds, for base, push only and the study's script: 0.10, 0.41
and 0.41 on the diagonal lines; 0.11, 0.28 and 0.39 on the vertical ones, where swaps do add something once the pull is gone.
So all five variants are trained here, with several seeds:

    base              d_ap + [0.1 - d_an]+
    study's script    [0.1 - d_an]+, and n <- p with probability p
    push only         [0.1 - d_an]+
    swap, as written  d_ap + [0.1 - d_an]+, and n <- p with probability p
    swap, as a miner  the same, and (a, p, n) <- (a, a, p) with probability p, as the study's miners do on real data

With seed 1 the diagonal lines give the numbers of the study's script to all digits it prints with torch 2.15 under
ATEN_CPU_CAPABILITY=default. Training amplifies rounding: with AVX-512 instructions the last loss of "base" is 0.0261 in place of
0.0281, and its second singular value 0.107 in place of 0.093. The script of the vertical lines is not public; their coordinates
are ours.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from likewise.metrics import metric, spectral_decay
from torch import Tensor, nn
from torch.nn import functional as F

from likewise.core.retrieval.ranking import rank
from likewise.score.metrics.spectrum import spectrum

CLASSES, PER_CLASS, STEPS, BATCH, LR, MARGIN = 4, 15, 200, 24, 0.03, 0.1


@dataclass(frozen=True)
class Variant:
    """A variant of the loss: whether it has the positive term, and the swap of a triplet with probability p."""

    name: str
    pull: bool
    p: float = 0.0
    anchor_too: bool = False  # (a, p, n) becomes (a, a, p), not (a, p, p)


@dataclass(frozen=True)
class Result:
    variant: Variant
    loss: float  # of the last step
    train: Tensor  # embeddings (60, 2)
    test: Tensor

    @property
    def spectrum(self) -> list[float]:
        """Both singular values of the training embeddings, scaled to sum 1."""
        return spectrum(self.train).tolist()

    @property
    def rho(self) -> float:
        return spectral_decay(self.train, drop=0)  # there are only two values

    @property
    def recall(self) -> float:
        return float(metric("R@1")(rank(self.test, labels(), k=1)).mean())


def variants(p: float) -> list[Variant]:
    return [
        Variant("base", pull=True),
        Variant("study's script", pull=False, p=p),
        Variant("push only", pull=False),
        Variant("swap, as written", pull=True, p=p),
        Variant("swap, as a miner", pull=True, p=p, anchor_too=True),
    ]


def labels() -> Tensor:
    return torch.arange(CLASSES).repeat_interleave(PER_CLASS)


def draw_points(lines: str, rng: np.random.RandomState) -> tuple[Tensor, Tensor]:
    """Training and test points: 15 of 100 on each of four segments, given as (x from, x to, y from, y to)."""
    if lines == "diagonal":
        train = [(a, a + 0.2, a, a + 0.2) for a in (0.1, 0.35, 0.6, 0.85)]
        test = [(0.2, 0.2, 0.2, 0.4), (0.2, 0.2, 0.55, 0.85), (0.4, 0.6, 0.2, 0.2), (0.7, 0.9, 0.2, 0.2)]
    else:
        train = [(a, a, 0.2, 0.8) for a in (0.2, 0.4, 0.6, 0.8)]
        test = [(0.2, 0.8, a, a) for a in (0.2, 0.4, 0.6, 0.8)]

    def some(segments) -> Tensor:
        points = [np.stack([np.linspace(x, x2, 100), np.linspace(y, y2, 100)], 1) for x, x2, y, y2 in segments]
        chosen = [whole[rng.choice(100, PER_CLASS, replace=False)] for whole in points]
        return torch.as_tensor(np.concatenate(chosen)).float()

    return some(train), some(test)


def make_network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(2, 30), nn.ReLU(), nn.Linear(30, 30), nn.ReLU(), nn.Linear(30, 2))


def all_triplets(y: np.ndarray) -> np.ndarray:
    """Every (a, p, n), by the class of a, the class of n, a, p, n: the order in which the study draws its swaps."""
    same = y[:, None] == y[None, :]
    a, p, n = np.nonzero((same & ~np.eye(len(y), dtype=bool))[:, :, None] & ~same[:, None, :])
    order = np.lexsort((n, p, a, y[n], y[a]))
    return np.stack([a, p, n])[:, order]


def distance(a: Tensor, b: Tensor) -> Tensor:
    return (a - b + 1e-6).norm(dim=1)


def train(network: nn.Sequential, x: Tensor, variant: Variant, rng: np.random.RandomState, steps: int) -> float:
    """Train in place, and return the loss of the last step."""
    y = labels().numpy()
    optimizer = torch.optim.Adam(network.parameters(), lr=LR)
    for _ in range(steps):
        rows = rng.choice(len(x), BATCH, replace=False)
        z = F.normalize(network(x[rows]), dim=1)
        a, p, n = all_triplets(y[rows])
        if variant.p:
            swapped = rng.random_sample(len(a)) >= 1 - variant.p
            n = np.where(swapped, p, n)
            p = np.where(swapped, a, p) if variant.anchor_too else p
        loss = (MARGIN - distance(z[a], z[n])).relu().mean()
        if variant.pull:
            loss = loss + distance(z[a], z[p]).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def play(lines: str, seed: int, p: float = 0.001, steps: int = STEPS) -> tuple[Tensor, Tensor, list[Result]]:
    """Points, and every variant trained on them. The first two see the random numbers of the study's script."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    rng = np.random.RandomState(seed)
    x, other = draw_points(lines, rng)
    chosen = variants(p)
    networks = [make_network() for _ in chosen]
    results = []
    for variant, network in zip(chosen, networks, strict=True):
        loss = train(network, x, variant, rng, steps)
        with torch.no_grad():
            results.append(Result(variant, loss, *(F.normalize(network(part), dim=1) for part in (x, other))))
    return x, other, results


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lines", choices=("diagonal", "vertical"), default="diagonal")
    parser.add_argument("--out", help="file for the figure (.png)")
    parser.add_argument("--p", type=float, default=0.001, help="probability of a swap")
    parser.add_argument("--seeds", type=int, default=3, help="number of trainings, with seeds from 1")
    parser.add_argument("--steps", type=int, default=STEPS, help="steps of each training; the study takes 200")
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> None:
    asked = parse(words)
    plays = [play(asked.lines, seed, asked.p, asked.steps) for seed in range(1, asked.seeds + 1)]
    print(f"{asked.lines} lines, seed 1{'':12}last loss   spectrum          rho     R@1 (unseen classes)")
    for r in plays[0][2]:
        print(
            f"  {title(r.variant):34} {r.loss:.7f}   {r.spectrum[0]:.4f}, {r.spectrum[1]:.4f}   {r.rho:.3f}   {r.recall:.2f}"
        )
    print(f"over {len(plays)} seeds, second singular value and R@1: mean (deviation)")
    for same in zip(*(results for _, _, results in plays), strict=True):
        second, recall = np.array([[r.spectrum[1], r.recall] for r in same]).T
        spread = f"{second.mean():.3f} ({second.std():.3f})   {recall.mean():.2f} ({recall.std():.2f})"
        print(f"  {title(same[0].variant):34} {spread}")
    if asked.out:
        from toy_picture import draw

        draw(plays, asked.lines, asked.out)
        print(f"figure: {asked.out}")


def title(variant: Variant) -> str:
    return variant.name + (f", p = {variant.p:g}" if variant.p else "")


if __name__ == "__main__":
    main()
