"""Use my own network: any torch module, trained in your own loop with a likewise loss, then scored and searched by likewise.

With images of your own, replace `read_glyphs` by your own loader.
"""

from pathlib import Path

import numpy as np
import torch
from likewise.losses import ProxyAnchor
from likewise.samplers import SamplesPerClass
from task_data import GOOD, SOFT, chart, parse, read_glyphs, start
from torch import nn
from torch.nn.functional import normalize

import likewise


def main(folder: str, quick: bool = False) -> dict:
    x, y, is_train = read_glyphs(classes=40 if quick else 120)
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Unflatten(1, (1, 24, 24)), nn.Conv2d(1, 24, 5, stride=2), nn.ReLU(), nn.Conv2d(24, 48, 3, stride=2), nn.ReLU(),
        nn.Flatten(), nn.Linear(768, 64),
    )  # fmt: skip
    before = scored(network, x[~is_train], y[~is_train])

    loss = ProxyAnchor(classes=int(y.max()) + 1, dim=64)
    groups = [{"params": network.parameters()}, {"params": loss.parameters(), "lr": 1e-3 * loss.lr_factor}]
    optimizer = torch.optim.AdamW(groups, lr=1e-3)
    batches = iter(SamplesPerClass(labels=y[is_train].numpy(), batch=60, per_class=4, seed=0))
    for step in range(1, 121 if quick else 401):
        rows = torch.as_tensor(next(batches))
        each = loss(normalize(network(x[is_train][rows]), dim=1), y[is_train][rows])
        optimizer.zero_grad()
        each.mean().backward()
        optimizer.step()
        loss.after_step(step)

    after = scored(network, x[~is_train], y[~is_train])
    file = Path(folder, "mine.npz")
    file.parent.mkdir(parents=True, exist_ok=True)
    np.savez(file, x=network(x).detach().numpy(), label=y.numpy())
    found = likewise.search(file, 0, k=5, quiet=True)  # also: likewise audit mine.npz, likewise report mine.npz
    text = "R@1 of unseen classes before and after: " + " and ".join(
        f"{100 * s['metrics']['R@1']:.1f} %" for s in (before, after)
    )
    return {"before": before, "after": after, "found": found, "text": text}


def scored(network: nn.Module, x: torch.Tensor, y: torch.Tensor):
    return likewise.evaluate(network.eval()(x).detach(), y, metrics=("R@1", "MAP@R"))


def draw(result: dict, picture: str) -> None:
    figure, axes = chart(f"{result['text']} (bars: 95 % intervals)", width=7)
    for place, (when, colour) in enumerate((("before", SOFT), ("after", GOOD))):
        for at, name in enumerate(("R@1", "MAP@R")):
            axes.bar(
                at + 0.36 * place,
                100 * result[when]["metrics"][name],
                0.33,
                color=colour,
                label=when if at == 0 else None,
            )
            interval = [100 * bound for bound in result[when]["interval"][name]]
            axes.plot([at + 0.36 * place] * 2, interval, color="#22262e")
    axes.set(ylabel="%", xticks=(0.18, 1.18), xticklabels=("R@1", "MAP@R"))
    axes.legend(frameon=False)
    figure.savefig(picture)


if __name__ == "__main__":
    start(main, draw, parse())
