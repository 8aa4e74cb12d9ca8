#!/usr/bin/env python
"""Forecast gains of a review against realised ones, and decisions until most of the gain is reached, on features of real sets.

A cell is a set, a kind of label noise, its share and a seed. The folder has one file NAME.npz per set, with the arrays x
(features) and label. Errors are planted in the training rows; the test rows are clean.

    python benchmarks/forecast.py --quick
    python benchmarks/forecast.py --folder features --data cub200 caltech101 --parts forecast order
    python benchmarks/forecast.py --folder features --data cub200 --parts order --plot orders.png
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from forecast_cells import Cell, corrected, prepare, score_really, train_really
from forecast_order import PLANS, measure_orders
from forecast_plots import draw_forecasts, draw_orders

from likewise.core.render.figures import save_figure
from likewise.labels.many_heads import HeadSettings
from likewise.labels.posterior_update import Candidates
from likewise.labels.review_forecast import METRICS, forecast_review

SHARES = (0.05, 0.1, 0.2, 0.4)
REVIEW_SHARES = (0.3, 1.0)
"""Points of a forecast, as shares of the queue."""

LARGE_GAIN = 0.02
"""Realised gain above which the width of intervals is compared with the gain."""


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("features"), help="folder of NAME.npz")
    parser.add_argument("--data", nargs="+", default=["simulated"], help="names of the sets; simulated: made here")
    parser.add_argument("--noise", nargs="+", default=["uniform", "semantic"], help="uniform, semantic or human")
    parser.add_argument("--shares", nargs="+", type=float, default=list(SHARES), help="shares of wrong labels")
    parser.add_argument("--human", default="", help="file of the labels of people, for --noise human")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1])
    parser.add_argument("--parts", nargs="+", default=["forecast"], choices=["forecast", "order"])
    parser.add_argument("--loss", default="MultiSimilarity", choices=["MultiSimilarity", "ProxyAnchor"])
    parser.add_argument("--worlds", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--out", type=Path, help="JSON file of all numbers; cells that it has are not computed again")
    parser.add_argument(
        "--plot", type=Path, help="picture of the last of --parts: forecasts, or gain against decisions"
    )
    parser.add_argument("--quick", action="store_true", help="toy size")
    return parser.parse_args(words)


def list_cells(args: argparse.Namespace) -> list[Cell]:
    """Return the cells; the labels of people have one share, their own."""
    return [
        Cell(data, noise, share, seed)
        for seed in args.seeds
        for data in args.data
        for noise in args.noise
        for share in (args.shares if noise != "human" else [0.4])
    ]


def measure_forecast(cell: Cell, args: argparse.Namespace, settings: HeadSettings) -> dict:
    """Return forecast and realised gains of one cell, at some shares of its queue."""
    one = prepare(cell, args.folder, args.human)
    queue, count, tests = one.queue, len(one.given), len(one.test_y)
    points = [max(1, round(share * len(queue))) for share in REVIEW_SHARES]
    x = torch.cat([one.x, one.test])
    label = torch.cat([one.given, one.test_y + int(max(one.given.max(), one.candidates.label.max())) + 1])
    kept = one.candidates.label.shape[1]
    certain = torch.zeros(tests, kept, dtype=one.candidates.probability.dtype)
    certain[:, 0] = 1
    both = Candidates(
        torch.cat([one.candidates.label, label[count:, None].expand(-1, kept)]),
        torch.cat([one.candidates.probability, certain]),
    )
    train = torch.arange(len(x)) < count
    start = time.perf_counter()
    found = forecast_review(
        x,
        label,
        both,
        queue,
        train=train,
        test=~train,
        k=points,
        worlds=args.worlds,
        settings=settings,
        seed=100 * cell.seed,
    )
    seconds = time.perf_counter() - start
    seed = 10_000 + cell.seed
    before = score_really(one, train_really(one, one.given, seed, settings, args.loss))
    wrong = one.given != one.true
    result = {
        "rows": count, "wrong": int(wrong.sum()), "expected": float(one.candidates.wrong.sum()), "queue": len(queue),
        "seconds": seconds, "reason": found.reason, "points": [],
    }  # fmt: skip
    for k in points:
        after = score_really(one, train_really(one, corrected(one, queue[:k]), seed, settings, args.loss))
        place = int(np.flatnonzero(found.k == k)[0])
        line: dict = {"k": k, "corrected": int(wrong[queue[:k]].sum())}
        for n, name in enumerate(METRICS):
            if found.curves:
                curve = found.curves[name]
                line[name] = {
                    "real": after[n] - before[n], "start": before[n], "mean": float(curve.mean[place]),
                    "low": float(curve.low[place]), "high": float(curve.high[place]),
                }  # fmt: skip
        result["points"].append(line)
    return result


def covered(cells: Sequence[dict], name: str, place: int = -1) -> dict:
    """Return how many realised gains lie in their intervals, and the width of the intervals where the gain is large."""
    lines = [cell["points"][place][name] for cell in cells if not cell["reason"]]
    inside = [line["low"] <= line["real"] <= line["high"] for line in lines]
    large = [line for line in lines if line["real"] > LARGE_GAIN]
    ratio = [(line["high"] - line["low"]) / line["real"] for line in large]
    return {
        "cells": len(lines), "inside": sum(inside), "share": sum(inside) / max(1, len(lines)), "large": len(large),
        "width_over_gain": float(np.median(ratio)) if ratio else None,
        "mean_error": float(np.mean([line["mean"] - line["real"] for line in lines])) if lines else None,
    }  # fmt: skip


def show(found: dict) -> None:
    """Print the coverage of forecasts and the decisions of orders, by set and over all."""
    cells = found["forecast"]
    if cells:
        print("\n| set | metric | cells | inside | share | gain > 2 points | median width / gain | mean error |")
        print("|---|---|---|---|---|---|---|---|")
        for data in [*dict.fromkeys(name.split(",")[0] for name in cells), "all"]:
            mine = [one for name, one in cells.items() if data in ("all", name.split(",")[0])]
            for metric in METRICS:
                c = covered(mine, metric)
                ratio = "" if c["width_over_gain"] is None else f"{c['width_over_gain']:.2f}"
                error = "" if c["mean_error"] is None else f"{100 * c['mean_error']:+.2f}"
                print(
                    f"| {data} | {metric} | {c['cells']} | {c['inside']} | {c['share']:.2f} | {c['large']} | {ratio} | {error} |"
                )
    if found["order"]:
        print("\n| set | cells | " + " | ".join(PLANS) + " |")
        print("|---|---|" + "---|" * len(PLANS))
        for data in [*dict.fromkeys(name.split(",")[0] for name in found["order"]), "all"]:
            mine = [one for name, one in found["order"].items() if data in ("all", name.split(",")[0])]
            usable = [one for one in mine if one["decisions"]]
            means = [
                np.mean([one["decisions"][plan] / one["decisions"]["suspicion"] for one in usable])
                if usable
                else np.nan
                for plan in PLANS
            ]
            print(f"| {data} | {len(usable)} of {len(mine)} | " + " | ".join(f"{v:.2f}" for v in means) + " |")


def main(words: Sequence[str] | None = None) -> None:
    args = parse(words)
    torch.set_num_threads(1)
    settings = HeadSettings(epochs=args.epochs)
    if args.quick:
        settings, args.worlds, args.parts = HeadSettings(dim=8, epochs=2), 4, ["forecast", "order"]
        args.data, args.shares, args.seeds, args.noise = ["simulated"], [0.2], [0], ["uniform"]
    found: dict = {"forecast": {}, "order": {}}
    if args.out is not None and args.out.exists():
        found = json.loads(args.out.read_text("utf-8"))
    for cell in list_cells(args):
        for part in args.parts:
            if cell.name in found[part]:
                continue
            start = time.perf_counter()
            if part == "forecast":
                found[part][cell.name] = measure_forecast(cell, args, settings)
            else:
                found[part][cell.name] = measure_orders(prepare(cell, args.folder, args.human), cell, settings)
            print(f"{part}: {cell.name}: {time.perf_counter() - start:.0f} s", flush=True)
            if args.out is not None:
                args.out.write_text(json.dumps(found), "utf-8")
    show(found)
    if args.plot is not None:
        draw = draw_forecasts if args.parts[-1] == "forecast" else draw_orders
        save_figure(draw(found[args.parts[-1]]), args.plot)


if __name__ == "__main__":
    main()
