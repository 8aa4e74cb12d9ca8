"""Every criterion once on the demo: glyphs with wrong labels, tested on unseen classes.

    python benchmarks/criteria.py [--epochs 6] [--share 0.2] [--only Triplet Margin] [--out result.json]

All train with the demo's settings (network, batches, learning rate) and their own defaults; parameters of a loss learn at 1e-3,
with two exceptions named below. Nothing is tuned for any of them, so the table shows that each learns, not which is best. rho is
the value for the test embeddings.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from likewise.config import Evaluate
from likewise.contracts import Loss
from measure import parse_with_quick

from likewise import losses
from likewise.core.settings.spec import build
from likewise.learn.recipes import apply
from likewise.learn.training.fit import train
from likewise.runs.open import OpenRun
from likewise.score.evaluate import evaluate_run

METRICS = ("R@1", "MAP@R", "rho")
SPECS = {"CrossBatchMemory": "CrossBatchMemory(start=150)", "Hierarchical": "Hierarchical(loss=ProxyAnchor())"}
"""The memory starts after two epochs, as in its paper: early embeddings move too fast to be stored."""
RATES = {"SoftTriple": 1e-4}
"""Its many centres start eight times smaller than one proxy per class does, so the same step is eight times as far."""


def settings(name: str, options, out: Path):
    own = any(True for _ in build(SPECS.get(name, name), Loss, classes=5, dim=8).parameters())
    return apply(
        "demo", options.data, loss=SPECS.get(name, f"{name}()"), epochs=options.epochs, seed=options.seed, out=str(out / name),
        metrics=METRICS, device=options.device,
        noise=f"Uniform(share={options.share})" if options.share else None, quiet=True, workers=options.workers,
        **({"loss_lr": RATES.get(name, 1e-3)} if own else {}), **({"lr": options.lr} if options.lr else {}),
    )  # fmt: skip


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="glyphs")
    parser.add_argument("--epochs", type=float, default=6)
    parser.add_argument(
        "--share", type=float, default=0.2, help="noise rate: share of the training labels that are wrong"
    )
    parser.add_argument("--lr", type=float, help="learning rate, in place of the demo's")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=-1)
    parser.add_argument("--only", nargs="+", default=losses.__all__)
    parser.add_argument("--out", help="JSON file for the result")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    toy = {"data": "glyphs(classes=48, per_class=8)", "steps": 2, "workers": 0, "device": "cpu"}
    return parse_with_quick(parser, words, **toy)


def main(words: Sequence[str] | None = None) -> None:
    options, lines = parse(words), []
    with tempfile.TemporaryDirectory() as folder:
        for name in options.only:
            started = time.monotonic()
            run = train(settings(name, options, Path(folder)), say=lambda line: None)
            seconds = time.monotonic() - started
            if not lines:
                opened = OpenRun(run, checkpoint="untrained", device=options.device, quiet=True)
                before = evaluate_run(opened, Evaluate(str(run.path), metrics=METRICS))
                lines.append({"loss": "untrained", "seconds": 0.0, **before["metrics"]})
                print(f"{'':20s} {'R@1':>7s} {'MAP@R':>7s} {'rho':>7s} {'seconds':>8s}")
                print(show(lines[-1]))
            lines.append({"loss": name, "seconds": seconds, **run.scores["metrics"]})
            print(show(lines[-1]), flush=True)
            if options.out:
                Path(options.out).write_text(json.dumps(lines, indent=2), "utf-8")


def show(line: dict) -> str:
    return f"{line['loss']:20s} {line['R@1']:7.3f} {line['MAP@R']:7.3f} {line['rho']:7.3f} {line['seconds']:8.0f}"


if __name__ == "__main__":
    main()
