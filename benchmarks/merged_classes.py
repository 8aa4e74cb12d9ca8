"""Two names for one class: how many are found, and how many pairs of different classes are merged by mistake.

    python benchmarks/merged_classes.py [--seeds 5] [--votes] [--out result.json]
    python benchmarks/merged_classes.py --features FOLDER [--noise 0 0.2] [--share 0.5] [--names 12]

Without `--features` the classes are simulated: 12 settings of noise rate, separation and class size, then worlds that are harder.
With it, FOLDER has files NAME.npz with features `x` and labels `y`. Some classes of each are split at random into two names, and
uniform noise is added. `unknown` counts merges that the method says it cannot tell. `--votes` adds the vote of neighbours (the
paper's method).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from measure import parse_with_quick
from torch import Tensor
from torch.nn.functional import normalize

from likewise.curate.audit.label_quality import class_findings
from likewise.curate.audit.single_scores import suggest
from likewise.labels.class_overlap import class_overlap

MIN_FOUND_SHARE = 0.9
"""A setting counts as found if this share of its merges is found."""


TABLE_HEAD = (
    "| setting | merges found | unknown | false merges (per 1,000 pairs) | other pairs unknown |\n|---|---|---|---|---|"
)
"""First lines of the printed table."""


class World(NamedTuple):
    """Features, labels, the pairs of names that stand for one class, and groups of samples."""

    x: Tensor
    y: Tensor
    merged: set[tuple[int, int]]
    group: Tensor | None = None


def simulate(
    seed: int, sizes: Sequence[int], dim: int = 32, separation: float = 1.0, noise: float = 0.0, twins: int = 4,
    families: int = 0, tail: float = 0.0, uneven_noise: bool = False,
) -> World:  # fmt: skip
    """Return normal classes around random centres; classes 2i and 2i + 1 share a centre for i < twins.

    Args:
        families: number of families of similar classes; 0: centres are independent.
        tail: degrees of freedom of Student's t for the samples; 0: normal.
        uneven_noise: the second name of a pair has twice the noise rate, the first none.
    """
    draw, classes = torch.Generator().manual_seed(seed), len(sizes)
    centre = separation * torch.randn(classes, dim, generator=draw)
    if families:
        own = separation * torch.randn(families, dim, generator=draw)
        centre = 0.4 * centre + own[torch.arange(classes) // 2 % families]
    centre[1 : 2 * twins : 2] = centre[0 : 2 * twins : 2]
    true = torch.arange(classes).repeat_interleave(torch.tensor(sizes))
    error = torch.randn(len(true), dim, generator=draw)
    if tail:
        error *= (tail / torch.randn(len(true), int(tail), generator=draw).square().sum(1, keepdim=True)).sqrt()
    rate = torch.full((classes,), noise)
    if uneven_noise:
        rate[0 : 2 * twins : 2], rate[1 : 2 * twins : 2] = 0, 2 * noise
    y = exchange(true, rate[true], classes, draw)
    return World(centre[true] + error, y, {(2 * i, 2 * i + 1) for i in range(twins)})


def exchange(y: Tensor, rate: Tensor, classes: int, draw: torch.Generator) -> Tensor:
    """Return labels of which a share `rate` is exchanged with any other class."""
    other = (y + torch.randint(1, classes, y.shape, generator=draw)) % classes
    return torch.where(torch.rand(len(y), generator=draw) < rate, other, y)


def split_names(x: Tensor, y: Tensor, seed: int, noise: float, options, group: Tensor | None = None) -> World:
    """Return a real set in which some random classes have two names; with groups, all samples of a group get the same one."""
    draw = torch.Generator().manual_seed(seed)
    _, y = y.unique(return_inverse=True)
    size = torch.bincount(y)
    able = (size >= options.least).nonzero()[:, 0]
    chosen = able[torch.randperm(len(able), generator=draw)[: min(options.names, max(1, len(able) // 4))]]
    unit = torch.arange(len(y)) if group is None else group
    new = y.clone()
    for place, c in enumerate(chosen.tolist()):
        mine = unit[y == c].unique()
        taken = mine[torch.randperm(len(mine), generator=draw)[: max(2, round(options.share * len(mine)))]]
        new[(y == c) & torch.isin(unit, taken)] = len(size) + place
    classes = len(size) + len(chosen)
    new = exchange(new, torch.full((len(new),), noise), classes, draw)
    return World(x, new, {(c, len(size) + place) for place, c in enumerate(chosen.tolist())}, group)


def by_overlap(world: World, seed: int) -> tuple[set[tuple[int, int]], set[tuple[int, int]], int]:
    """Return the merged pairs, the unknown pairs, and the number of compared pairs."""
    found = class_overlap(world.x, world.y, world.group, seed=seed)
    pairs = list(zip(found.first.tolist(), found.second.tolist(), strict=True))
    of = {name: {p for p, v in zip(pairs, found.state, strict=True) if v == name} for name in ("merge", "unknown")}
    return of["merge"], of["unknown"] | world.merged - set(pairs), len(pairs)


def by_votes(world: World, seed: int) -> tuple[set[tuple[int, int]], set[tuple[int, int]], int]:
    """Return the pairs that the paper's vote of neighbours merges."""
    found = class_findings(world.y, suggest(normalize(world.x - world.x.mean(0), dim=1), world.y, foreign=False).y)
    pairs = zip(found.label.tolist(), found.label[found.target].tolist(), found.kind, strict=True)
    return {(min(a, b), max(a, b)) for a, b, kind in pairs if kind == "merge"}, set(), 0


def measure(make: Callable[[int], World], seeds: int, way: Callable = by_overlap) -> dict:
    """Return counts over seeds: merges, those found and unknown, false merges, class pairs and compared pairs."""
    total = dict.fromkeys(("merges", "found", "unknown", "false", "unknown_others", "pairs", "compared"), 0)
    wrong = []
    for seed in range(seeds):
        world = make(seed)
        merged, unknown, compared = way(world, seed)
        classes = len(world.y.unique())
        wrong += [list(pair) for pair in sorted(merged - world.merged)]
        for name, count in (
            ("merges", len(world.merged)), ("found", len(merged & world.merged)), ("unknown", len(unknown & world.merged)),
            ("false", len(merged - world.merged)), ("unknown_others", len(unknown - world.merged)),
            ("pairs", classes * (classes - 1) // 2 - len(world.merged)), ("compared", compared),
        ):  # fmt: skip
            total[name] += count
    return total | {"per_thousand": 1000 * total["false"] / max(1, total["pairs"]), "wrong": wrong}


def grid(options) -> dict[str, Callable[[int], World]]:
    """Return the 12 settings."""
    return {
        f"noise {noise:g}, separation {separation:g}, {n} a class": lambda seed, n=n, noise=noise, separation=separation: (
            simulate(seed, [n] * options.classes, options.dim, separation, noise)
        )
        for noise, separation, n in product((0.0, 0.05, 0.2), (1.0, 0.5), options.sizes)
    }


def harder(options) -> dict[str, Callable[[int], World]]:
    """Return worlds with small, uneven, many or similar classes, and with features that carry nothing."""
    c, d = options.classes, options.dim
    mixed = np.geomspace(5, 200, c).round().astype(int)

    def uneven(seed: int, **more) -> World:
        return simulate(seed, np.random.default_rng(seed).permutation(mixed).tolist(), d, **more)

    return {
        **{f"{n} a class": lambda seed, n=n: simulate(seed, [n] * c, d) for n in (5, 10, 20)},
        **{f"{n} a class, noise 0.2": lambda seed, n=n: simulate(seed, [n] * c, d, noise=0.2) for n in (10, 20)},
        "5 to 200 a class": uneven,
        "5 to 200 a class, noise 0.2": lambda seed: uneven(seed, noise=0.2),
        "more features than samples": lambda seed: simulate(seed, [10] * c, 20 * d, 0.5),
        "families of similar classes": lambda seed: simulate(seed, [50] * 2 * c, d, families=c // 2),
        "heavy tails": lambda seed: simulate(seed, [50] * c, d, tail=3),
        "noise 0.3 in the second name only": lambda seed: simulate(seed, [50] * c, d, noise=0.15, uneven_noise=True),
        "all classes have two names": lambda seed: simulate(seed, [50] * c, d, twins=c // 2),
        "no merge": lambda seed: simulate(seed, [50] * 3 * c, d, separation=0.5, twins=0),
        "no merge, families": lambda seed: simulate(seed, [50] * 3 * c, d, twins=0, families=c),
        "features of pure noise": lambda seed: simulate(seed, [50] * c, d, separation=0.0, twins=0),
    }


def real(options) -> dict[str, Callable[[int], World]]:
    """Return the sets of a folder of features, with some classes split into two names."""
    found = {}
    for file in sorted(Path(options.features).glob("*.npz")):
        if options.only and file.stem not in options.only:
            continue
        with np.load(file, allow_pickle=False) as data:
            x, y = torch.as_tensor(data["x"], dtype=torch.float32), torch.as_tensor(data["y"]).long()
            group = torch.as_tensor(np.unique(data["group"], return_inverse=True)[1]) if options.by_group else None
        for noise in options.noise:
            found[f"{file.stem}, noise {noise:g}"] = lambda seed, x=x, y=y, noise=noise, group=group: split_names(
                x, y, seed, noise, options, group
            )
    return found


def show(name: str, one: dict) -> None:
    print(
        f"| {name} | {one['found']} of {one['merges']} | {one['unknown']} | {one['false']} of {one['pairs']:,} "
        f"({one['per_thousand']:.2f}) | {one['unknown_others']} of {one['compared']:,} |"
    )


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--classes", type=int, default=20)
    parser.add_argument("--dim", type=int, default=32)
    parser.add_argument("--sizes", type=int, nargs="+", default=[30, 100], help="samples per class of the settings")
    parser.add_argument("--votes", action="store_true", help="also the paper's vote of neighbours")
    parser.add_argument("--features", help="folder of NAME.npz with x and y")
    parser.add_argument("--only", nargs="+", help="names of these files")
    parser.add_argument("--noise", type=float, nargs="+", default=[0.0, 0.05, 0.2], help="noise rates of real sets")
    parser.add_argument(
        "--names", type=int, default=12, help="classes of a real set that get a second name, at most a fourth"
    )
    parser.add_argument("--share", type=float, default=0.5, help="share of their samples with the second name")
    parser.add_argument("--least", type=int, default=20, help="smallest class that gets a second name")
    parser.add_argument(
        "--by-group", action="store_true", help="split by the files' `group`, and pass it to the method"
    )
    parser.add_argument("--out", help="JSON file for the result")
    return parse_with_quick(parser, words, seeds=1, classes=10, dim=8, sizes=[12])


def main(words: Sequence[str] | None = None) -> None:
    options = parse(words)
    settings = {} if options.features else grid(options)
    others = real(options) if options.features else harder(options)
    ways = {"overlap": by_overlap, **({"votes": by_votes} if options.votes else {})}
    result: dict = {}
    for label, way in ways.items():
        print(f"\n{label}\n{TABLE_HEAD}")
        for name, make in (settings | others).items():
            result.setdefault(label, {})[name] = one = measure(make, options.seeds, way)
            show(name, one)
        if settings:
            found = sum(result[label][s]["found"] >= MIN_FOUND_SHARE * result[label][s]["merges"] for s in settings)
            print(f"{label}: merges found in {found} of {len(settings)} settings")
            result[f"{label} settings found"] = found
    if options.out:
        Path(options.out).write_text(json.dumps(result, indent=1), "utf-8")


if __name__ == "__main__":
    main()
