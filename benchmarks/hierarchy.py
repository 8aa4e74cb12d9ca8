"""Cost of groups of classes: a step of training with Hierarchical around a loss, over a step with that loss alone.

    python benchmarks/hierarchy.py [--device cuda] [--classes 11318] [--clusters 500] [--batch 128] [--backbone resnet50]

"loss" is the loss alone: forward, backward, the optimiser's step on its proxies, and what it does after a step, the clustering of
every 20th (--period) included. "captured": forward, backward and optimiser as one CUDA graph, so that the device never waits
for the host (the graph cannot contain the clustering; "regroup" is one clustering). "step" includes a network, with
images of `size` pixels in bfloat16. Contenders take turns, and medians of 20 steps and more count; times on the CPU are those
of the process.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence

import torch
from confidence import captured
from likewise.contracts import Loss
from losses import race
from measure import parse_with_quick
from torch.nn import functional as F

from likewise.core.settings.spec import build
from likewise.learn.training.schedule import reset_state
from likewise.models import Embedder
from likewise.runs.network import to_device

LOSSES = ("ProxyAnchor()", "ProxyNCA(positive_in_denominator=True)")


class Steps:
    """Train proxies only, or a network too, for one period of steps per call."""

    def __init__(self, text: str, options, network: Embedder | None = None):
        torch.manual_seed(0)
        facts = {"classes": options.classes, "dim": options.dim, "per_pass": 1}
        self.loss = build(text, Loss, **facts).to(options.device)
        self.network, self.step, self.device, self.steps = network, 0, options.device, options.period
        self.y = torch.randint(options.classes, (options.batch,), device=options.device)
        self.z = F.normalize(torch.randn(options.batch, options.dim, device=options.device), dim=1).requires_grad_()
        self.x = torch.randint(
            256, (options.batch, 3, options.size, options.size), dtype=torch.uint8, device=options.device
        )
        parameters = [*self.loss.parameters(), *(network.parameters() if network else ())]
        self.optimizer = torch.optim.AdamW(parameters, lr=1e-4, capturable=options.device.startswith("cuda"))
        for _ in range(2):
            self.learn()
            self.after()

    def learn(self) -> None:
        z = self.z
        if self.network:
            with torch.autocast(self.device.split(":")[0], torch.bfloat16):
                z = self.network(self.x).z
        self.optimizer.zero_grad(set_to_none=False)
        self.loss(z, self.y).mean().backward()
        self.optimizer.step()

    def after(self) -> None:
        self.step += 1
        reset_state(self.optimizer, self.loss.after_step(self.step))

    def period(self) -> None:
        for _ in range(self.steps):
            self.learn()
            self.after()


def compare(name: str, works: dict, options, steps: int) -> dict:
    """Return one row: milliseconds of a step with and without groups, and the difference."""
    ms = {k: v / steps for k, v in race(works, options.device, options.rounds, options.patience).items()}
    more = ms["groups"] / ms["plain"] - 1
    print(f"{name:52s} plain {ms['plain']:8.3f} ms | with groups {ms['groups']:8.3f} ms | {more:+.1%}", flush=True)
    return {"what": name, "ms": ms, "more": more}


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--classes", type=int, default=11318)
    parser.add_argument("--clusters", type=int, default=500)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--backbone", default="resnet50", help='"none" leaves out the step with a network')
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--period", type=int, default=20, help="steps from one clustering to the next")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", help="JSON file for the result")
    parser.add_argument(
        "--patience", type=float, default=2.0, help="work that takes longer, in seconds, is measured once"
    )
    toy = {
        "classes": 24,
        "coarse": 3,
        "batch": 8,
        "dim": 8,
        "backbone": "conv_small",
        "size": 16,
        "period": 4,
        "patience": 0.0,
    }
    return parse_with_quick(parser, words, **toy)


def main(words: Sequence[str] | None = None) -> None:
    options = parse(words)
    if options.device.startswith("cuda"):
        torch.backends.cuda.matmul.allow_tf32 = True
    lines = []
    for text in LOSSES:
        texts = {"plain": text, "groups": f"Hierarchical(loss={text}, coarse={options.coarse}, every={options.period})"}
        made = {k: Steps(t, options) for k, t in texts.items()}
        lines.append(compare(f"loss, {text}", {k: m.period for k, m in made.items()}, options, options.period))
        if options.device.startswith("cuda"):
            graphs = {k: captured(m.learn) for k, m in made.items()}
            lines.append(compare(f"captured, {text}", graphs, options, steps=1))
        regroup = made["groups"].loss.regroup
        regroup = race({"regroup": regroup}, options.device, options.rounds, options.patience)["regroup"]
        lines.append({"what": f"regroup, {text}", "ms": regroup})
        print(f"{lines[-1]['what']:52s} {regroup:8.3f} ms, {regroup / options.period:.3f} ms a step", flush=True)
        if options.backbone != "none":
            network = Embedder(options.backbone, options.dim, pretrained=False, size=options.size)
            network = to_device(network, torch.device(options.device))
            made = {k: Steps(t, options, network) for k, t in texts.items()}
            works = {k: m.period for k, m in made.items()}
            lines.append(compare(f"step of {options.backbone}, {text}", works, options, options.period))
    if options.out:
        with open(options.out, "w", encoding="utf-8") as file:
            json.dump({"options": vars(options), "lines": lines}, file, indent=1)


if __name__ == "__main__":
    main()
