"""What a training writes of itself on the way: its log, and what it thinks of its samples. Nothing in here waits for the device
but `must_be_sound` and those that ask it."""

from __future__ import annotations

import math

import numpy as np
import torch

from likewise.distributed.collectives import world
from likewise.runs.folder import Run
from likewise.runs.loss_history import Losses, write_losses
from likewise.runs.sample_weights import FinalWeights, write_sample_weights
from likewise.runs.usage import Session
from likewise.training.async_scalars import Journal
from likewise.training.interrupts import must_be_finite
from likewise.training.logger_dispatch import Telling
from likewise.training.step import Stepping


class Recording(Stepping):
    """What a training is made of, how it moves, and the record of it."""

    def keep_record(self, run: Run, session: Session, telling: Telling) -> None:
        """Where to, from here on."""
        self.run, self.session, self.telling = run, session, telling
        self.journal, self.shown, self.told = Journal(), None, None

    def must_be_sound(self) -> None:
        """A diverged network is neither saved nor scored."""
        self.journal.settle(wait=True)
        if self.counted:
            must_be_finite(float(self.total) / self.counted, self.step, self.run.path)
        parts = (*self.embedders, *self.losses, *self.terms)
        moved = [p.detach() for part in parts for p in part.parameters() if p.numel() and p.is_floating_point()]
        if moved and not torch.stack([n.float() for n in torch._foreach_norm(moved, math.inf)]).isfinite().all():
            must_be_finite(math.nan, self.step, self.run.path, "a weight")

    def note(self, line: dict) -> None:
        """A line of the log, after those that are still on their way."""
        self.journal.settle(wait=True)
        self.write(line)

    def write(self, line: dict) -> None:
        """Into the log, and to whoever else is told of it."""
        if world()[0] == 0:
            self.run.log([line])
            self.telling.tell(line)

    def log(self, rate: float) -> None:
        """A line of the log, once its numbers have come."""
        line = {"step": self.step, "loss": None, "lr": {g["name"]: g["lr"] for g in self.optimizer.param_groups}}
        line |= {"images_per_s": round(rate, 1)} | self.tried()
        seen = {"loss": self.total / self.counted}
        for part in (self.loss, self.sampler, self.confidence, *self.terms):
            seen |= {} if part is None else part.observe_state()
        known = tuple(seen)

        def write(numbers: dict[str, float]) -> None:
            must_be_finite(numbers["loss"], line["step"], self.run.path)
            trust = self.watch.means(numbers)
            self.write(line | {name: numbers[name] for name in known} | ({"trust": trust} if trust else {}))
            self.shown = f"loss {numbers['loss']:.3f}  {rate:.0f} images/s"

        self.journal.add(seen | self.watch.take(), write)
        self.journal.settle(wait=world()[1] > 1)  # all processes must learn of a NaN in the same step
        self.total, self.counted = torch.zeros_like(self.total), 0

    def tried(self) -> dict:
        """How the network runs, in the first line after that was found out."""
        known = self.fast[0].known
        if known is None or known == self.told:
            return {}
        self.told = known
        tried = {way: round(ms, 2) for way, ms in self.fast[0].tried.items() if ms < math.inf}
        return {"speed": known} | ({"speed_ms": tried} if tried else {})

    def log_trust(self) -> None:
        """What the confidence makes of the samples, once a pass."""
        if (histogram := self.watch.histogram()) is not None:
            self.note({"step": self.step, "suspicion": histogram})

    def keep_trust(self) -> None:
        """The same in the end, sample by sample."""
        suspicion, _, w = self.watch.last.cpu().numpy()
        names = np.asarray(self.class_names)
        final = FinalWeights(self.rows, names[self.labels], names[self.y.cpu()], suspicion, w)
        write_sample_weights(self.run.path, final)

    def keep_losses(self) -> None:
        """What `Run.losses` reads."""
        assert self.history is not None
        loss = np.reshape([line.numpy() for line in self.history.loss], (-1, len(self.rows))).astype(np.float32)
        write_losses(self.run.path, Losses(self.rows, loss, np.asarray(self.history.step, np.int64)))
