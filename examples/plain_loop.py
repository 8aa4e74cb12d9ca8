"""likewise losses in your own training loop: R@1 on glyphs of unseen classes, before and after training."""

from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.nn.functional import normalize

from likewise import data, losses, metrics, miners, samplers
from likewise.core.retrieval.ranking import rank


def train(classes: int = 60, steps: int = 120) -> tuple[float, float]:
    torch.manual_seed(0)
    items = data.load(f"glyphs(size=24, classes={classes})")
    x = np.stack([np.asarray(Image.open(Path(items.root, file)).convert("L"), np.float32) for file in items.path])
    x, y = torch.from_numpy(x).flatten(1) / 255, torch.from_numpy(items.y)
    known, unseen = (torch.from_numpy(np.flatnonzero(items.split == part)) for part in ("train", "test"))
    network = nn.Sequential(nn.Linear(x.shape[1], 256), nn.ReLU(), nn.Linear(256, 64))
    loss = losses.MultiSimilarity(miner=miners.HardPairs(eps=0.1))  # or one with proxies: ArcFace(classes=..., dim=64)
    optimizer = torch.optim.AdamW([*network.parameters(), *loss.parameters()], lr=1e-3)  # proxies are trained too
    found = [metrics.metric("R@1")(rank(normalize(network(x[unseen]).detach(), dim=1), y[unseen], k=1)).nanmean()]
    batches = iter(samplers.SamplesPerClass(labels=y[known].numpy(), batch=60, per_class=4, seed=0))
    for step in range(1, steps + 1):
        rows = known[next(batches)]
        z = normalize(network(x[rows]), dim=1)
        each = loss(z, y[rows])  # one value per sample; a confidence multiplies it by a sample weight, such as
        optimizer.zero_grad()  # `likewise.confidence.SuperLoss()(z.detach(), y[rows], rows, each.detach()).w`
        each.mean().backward()
        optimizer.step()
        loss.after_step(step)  # for losses that update proxies or a memory themselves
    found += [metrics.metric("R@1")(rank(normalize(network(x[unseen]).detach(), dim=1), y[unseen], k=1)).nanmean()]
    return float(found[0]), float(found[1])


if __name__ == "__main__":
    print("R@1 before and after: {:.3f} {:.3f}".format(*train()))
