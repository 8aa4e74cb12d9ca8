"""likewise losses, samplers and scores in PyTorch Lightning."""

from pathlib import Path

import lightning
import numpy as np
import torch
from likewise.losses import ProxyAnchor
from likewise.protocols import UnseenClasses
from likewise.samplers import SamplesPerClass
from likewise.types import Embedded, Items
from PIL import Image
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from likewise.data import load
from likewise.score.retrieve import Scoring
from likewise.score.scoring import score


class Glyphs(lightning.LightningModule):
    """A small network and a loss whose proxies are trained with the learning-rate factor of its paper."""

    def __init__(self, classes: int, pixels: int, dim: int = 64):
        super().__init__()
        self.network = nn.Sequential(nn.Linear(pixels, 256), nn.ReLU(), nn.Linear(256, dim))
        self.loss = ProxyAnchor(classes=classes, dim=dim)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.normalize(self.network(x), dim=1)

    def training_step(self, batch, _) -> torch.Tensor:
        x, y = batch
        value = self.loss(self(x), y).mean()
        self.log("loss", value)
        return value

    def on_train_batch_end(self, *_) -> None:
        self.loss.after_step(self.global_step)

    def configure_optimizers(self):
        rates = [(self.network, 1e-3), (self.loss, 1e-3 * self.loss.lr_factor)]
        return torch.optim.AdamW([{"params": part.parameters(), "lr": rate} for part, rate in rates])


class OnePass:
    """A likewise sampler, which is endless, as a `batch_sampler` with the length of one epoch, which Lightning needs."""

    def __init__(self, sampler: SamplesPerClass):
        self.sampler, self.number = sampler, 0

    def __len__(self) -> int:
        return len(self.sampler)

    def __iter__(self):
        self.number += 1
        return iter(self.sampler.epoch_batches(self.number - 1))


def evaluate(module: Glyphs, x: torch.Tensor, items: Items) -> dict[str, float]:
    """Return the scores of the test split, as `likewise evaluate` computes them."""
    rows = UnseenClasses().rows(items, "test")
    with torch.no_grad():
        z = module(x[rows])
    e = Embedded(z, torch.from_numpy(items.y[rows]), torch.from_numpy(rows))
    each = score(e, Scoring(items, UnseenClasses(), ["R@1", "MAP@R"], quiet=True))[0].each
    return {name: float(np.nanmean(values)) for name, values in each.items()}


def train(classes: int = 60, passes: int = 20) -> tuple[dict[str, float], dict[str, float]]:
    """Return the scores before and after training."""
    lightning.seed_everything(0, verbose=False)
    items = load(f"glyphs(size=24, classes={classes})")
    pixels = [np.asarray(Image.open(Path(items.root, file)).convert("L"), np.float32) for file in items.path]
    x = torch.from_numpy(np.stack(pixels)).flatten(1) / 255
    rows = UnseenClasses().rows(items, "train")
    y = np.unique(items.y[rows], return_inverse=True)[1]  # losses count the training classes from 0
    batches = OnePass(SamplesPerClass(labels=y, batch=60, per_class=4, seed=0))
    loader = DataLoader(TensorDataset(x[rows], torch.from_numpy(y)), batch_sampler=batches)
    module = Glyphs(len(np.unique(y)), x.shape[1])
    before = evaluate(module, x, items)
    quiet = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    trainer = lightning.Trainer(max_epochs=passes, accelerator="cpu", devices=1, use_distributed_sampler=False, **quiet)
    trainer.fit(module, loader)
    return before, evaluate(module, x, items)


if __name__ == "__main__":
    for when, scores in zip(("before", "after"), train(), strict=True):
        print(when, {name: round(value, 3) for name, value in scores.items()})
