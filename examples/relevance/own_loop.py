"""A loop of your own: any network and optimiser, and a matrix of values from 0 to 1 for the pairs of each batch."""

from pathlib import Path

import numpy as np
import torch
from likewise.losses import MultiSimilarity
from likewise.relevance import GivenValues
from PIL import Image
from relevance_data import as_table, glyph_images, parse
from torch import nn
from torch.nn.functional import normalize

import likewise

METRICS = ("R@1", "NDCG@10", "graded-mAP")


def main(folder: str, quick: bool = False) -> dict:
    files, names, is_train = glyph_images(classes=20 if quick else 60)
    grey = np.stack([np.asarray(Image.open(Path(file)).convert("L"), np.float32) / 255 for file in files])
    x, every = torch.from_numpy(grey).flatten(1), sorted(set().union(*names))
    has = torch.tensor([[label in labels for label in every] for labels in names]).float()
    both = has @ has.T
    relevance = both / (has.sum(1)[:, None] + has.sum(1) - both)  # yours: any square matrix; NaN is "not known"

    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(x.shape[1], 256), nn.ReLU(), nn.Linear(256, 64))
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3)
    train, test = (torch.from_numpy(np.flatnonzero(rows)) for rows in (is_train, ~is_train))
    scores = {"before training": scored(network, x[test], relevance[test][:, test])}
    for _ in range(60 if quick else 300):
        rows = train[torch.randperm(len(train))[:112]]
        loss = MultiSimilarity().with_relevance(GivenValues(relevance[rows][:, rows]))
        each = loss(normalize(network(x[rows]), dim=1), torch.arange(len(rows)))  # ids in place of labels
        optimizer.zero_grad()
        each.mean().backward()
        optimizer.step()
    scores["after training"] = scored(network, x[test], relevance[test][:, test])
    text = as_table(METRICS, [(name, [s["metrics"][m] for m in METRICS]) for name, s in scores.items()])
    return {"scores": scores, "text": text}


def scored(network: nn.Module, x: torch.Tensor, relevance: torch.Tensor):
    with torch.no_grad():
        return likewise.evaluate(network(x), np.zeros(len(x)), relevance=relevance.numpy(), metrics=METRICS, quiet=True)


if __name__ == "__main__":
    flags = parse()
    print(main(flags.folder, quick=flags.quick)["text"])
