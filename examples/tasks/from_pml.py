"""Migrate from pytorch-metric-learning: the same loop with a loss of either library, and the scores by likewise.

docs/from-pytorch-metric-learning.md has the counterpart of every loss, miner, sampler and metric.
"""

import torch
from likewise.losses import MultiSimilarity
from likewise.samplers import SamplesPerClass
from pytorch_metric_learning import losses as pml_losses
from pytorch_metric_learning import miners as pml_miners
from task_data import BAD, GOOD, chart, parse, read_glyphs, start
from torch.nn.functional import normalize

import likewise


def main(folder: str, quick: bool = False) -> dict:
    x, y, is_train = read_glyphs(classes=40 if quick else 120)
    x = x.double()  # in float32, rounding grows until the miner picks other pairs
    theirs, mine = pml_losses.MultiSimilarityLoss(alpha=2, beta=50, base=0.5), MultiSimilarity(beta=50)
    miner = pml_miners.MultiSimilarityMiner(epsilon=0.1)
    losses = {
        "pytorch-metric-learning": lambda e, y: theirs(e, y, miner(e, y)),
        "likewise": lambda e, y: mine(normalize(e, dim=1), y).mean(),  # one value per sample; the miner is included
    }
    curve, score = {}, {}
    for name, loss in losses.items():
        torch.manual_seed(0)
        network = torch.nn.Sequential(torch.nn.Linear(x.shape[1], 256), torch.nn.ReLU(), torch.nn.Linear(256, 64))
        optimizer = torch.optim.AdamW(network.double().parameters(), lr=1e-3)
        batches = iter(SamplesPerClass(labels=y[is_train].numpy(), batch=60, per_class=4, seed=0))
        curve[name] = []
        for _ in range(40 if quick else 200):
            rows = torch.as_tensor(next(batches))
            value = loss(network(x[is_train][rows]), y[is_train][rows])
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
            curve[name].append(value.item())
        z = network(x[~is_train]).detach()
        score[name] = likewise.evaluate(z, y[~is_train], metrics=("R@1", "MAP@R"))["metrics"]

    apart = [abs(a - b) for a, b in zip(*curve.values(), strict=True)]
    text = f"losses differ by {apart[0]:.0e} at the first step, by {max(apart):.0e} at most; R@1: " + ", ".join(
        f"{name} {100 * found['R@1']:.1f} %" for name, found in score.items()
    )
    return {"curve": curve, "score": score, "apart": apart, "text": text}


def draw(result: dict, picture: str) -> None:
    figure, axes = chart(result["text"], width=8)
    for (name, values), colour, width in zip(result["curve"].items(), (BAD, GOOD), (5, 1.5), strict=True):
        axes.plot(values, color=colour, linewidth=width, alpha=0.4 if width == 5 else 1, label=name)
    axes.set(xlabel="step", ylabel="loss")
    axes.legend(frameon=False)
    figure.savefig(picture)


if __name__ == "__main__":
    start(main, draw, parse())
