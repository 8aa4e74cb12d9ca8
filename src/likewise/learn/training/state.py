"""The samples of a training, and its state: networks, losses, optimiser, sampler, labels, counters, as checkpoints store them."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from likewise.core.contracts import BatchSampler, Confidence, Loss, Miner, Protocol, Term
from likewise.core.distributed.sharded_proxies import full_optimizer_state, own, own_optimizer_state, whole
from likewise.core.errors import LikewiseError, shown_names
from likewise.core.settings import Train
from likewise.core.types import Items, Output, Relabelling
from likewise.data.copies import exact_copies
from likewise.data.votes import votes_of
from likewise.learn.training.noise_monitor import LossHistory, NoiseMonitor
from likewise.learn.training.schedule import Plan, Schedule
from likewise.models.cuda_graphs import Mode
from likewise.models.embedder import Embedder
from likewise.models.grad_cache import generators
from likewise.models.teacher import Teacher
from likewise.models.weight_average import WeightAverage
from likewise.runs.network import load_into


@dataclass(frozen=True, eq=False)
class Samples:
    """Training and validation samples of a data set with N rows: n training rows of C classes, m validation rows.

    Attributes:
        loaded: the data as it was loaded. Evaluation uses its labels.
        items: the data with the labels of training; differs from `loaded` if `--noise` injected wrong labels.
        rows: the training rows, in order; val_rows: the validation rows.
        class_names: names of the classes 0..C-1 that the training labels use.
        labels: class number of the given label of every training sample.
        clean: class number of its true label; -1 if no training label has that class; None if true labels are not known.
        weight: sample weight of every row of the data.
        position: index of every row of the data among the training samples; -1 for other rows.
    """

    loaded: Items
    items: Items
    protocol: Protocol
    rows: Int[np.ndarray, "n"]
    val_rows: Int[np.ndarray, "m"]
    class_names: tuple[str, ...]
    labels: Int[np.ndarray, "n"]
    clean: Int[Tensor, "n"] | None
    weight: Float[Tensor, "N"]
    position: Int[Tensor, "N"]

    @property
    def noisy(self) -> Bool[np.ndarray, "n"] | None:
        """Mask of the wrong labels; None if the true labels are not known."""
        return None if self.clean is None else self.clean.cpu().numpy() != self.labels

    @property
    def features(self) -> int | None:
        """Length of the feature vectors; None for images."""
        return None if self.items.x is None else self.items.x.shape[1]

    def describe_single_classes(self) -> str:
        """Return a sentence that names the training classes with one sample; "" without such classes."""
        single = np.flatnonzero(np.bincount(self.labels) == 1).tolist()
        if not single:
            return ""
        names = shown_names([self.class_names[label] for label in single])
        return f"training skips {len(single)} of {len(self.class_names)} classes, because they have one sample only: {names}"

    def facts(self, votes: str | None = None) -> dict[str, Any]:
        """Return values for the arguments of a confidence that specs may omit, from the rows of the samples.

        Args:
            votes: long table of votes; None: the column `votes` of the data.
        """
        group = None if self.items.group is None else self.items.group[self.rows]
        facts: dict[str, Any] = {"group": group, "copies": lambda: exact_copies(self.items, self.rows)}
        found = votes_of(self.items, votes)
        if found is None:
            return facts
        found, number = found.among(self.rows), np.full(self.items.classes, -1)
        number[np.unique(self.items.y[self.rows])] = np.arange(len(self.class_names))
        kept = number[found.label] >= 0  # a vote for a class that is not trained
        label = number[found.label[kept]]
        if not len(label):
            raise LikewiseError(
                f"votes: there must be votes about the {len(self.rows):,} training samples, got none for one of their "
                f"{len(self.class_names):,} classes; add votes about training samples, or leave out the votes"
            )
        return facts | {"votes": found._replace(row=found.row[kept], worker=found.worker[kept], label=label)}


def number_samples(loaded: Items, items: Items, protocol: Protocol, device: torch.device) -> Samples:
    """Select the samples of a training by the protocol, and number them and their classes from 0.

    Args:
        loaded: the data as it was loaded.
        items: the data with the labels of training, in which wrong labels may have been injected.
    """
    rows, val_rows = (protocol.rows(items, split) for split in ("train", "val"))
    used = np.unique(items.y[rows])
    number = np.full(items.classes, -1)
    number[used] = np.arange(len(used))
    clean = None if items.y_clean is None else torch.as_tensor(number[items.y_clean[rows]], device=device)
    weight = np.ones(len(items)) if items.weight is None else items.weight
    position = torch.full((len(items),), -1, dtype=torch.int64)
    position[torch.as_tensor(rows)] = torch.arange(len(rows))
    return Samples(
        loaded=loaded,
        items=items,
        protocol=protocol,
        rows=rows,
        val_rows=val_rows,
        class_names=tuple(items.class_name[c] for c in used),
        labels=number[items.y[rows]],
        clean=clean,
        weight=torch.as_tensor(weight, dtype=torch.float32, device=device),
        position=position.to(device),
    )


@dataclass(frozen=True, eq=False)
class Components:
    """Networks, losses, confidence and terms of a training.

    Attributes:
        embedders: one network, or several if the confidence trains several together.
        losses: one for each network.
        teacher: moving average of the first network; None if no miner needs one.
        taught_miners: the miners that use the embeddings of the teacher.
        facts: values of the arguments that a spec may omit: classes, dim, labels, seed, steps and others.
    """

    embedders: list[Embedder]
    losses: list[Loss]
    confidence: Confidence | None
    terms: list[Term]
    teacher: Teacher | None
    taught_miners: list[Miner]
    facts: dict[str, Any]
    mixup: Callable[[Tensor], tuple[Output, Any]] | None = None

    @property
    def embedder(self) -> Embedder:
        return self.embedders[0]

    @property
    def loss(self) -> Loss:
        return self.losses[0]

    def trained(self) -> list[nn.Module]:
        """Return the modules that the optimiser trains."""
        return [*self.embedders, *self.losses, *self.terms]

    def modules(self) -> dict[str, nn.Module]:
        """Return all modules with a state, by their names in checkpoints."""
        found: dict[str, nn.Module] = {"embedder": self.embedder, "loss": self.loss}
        for number, (embedder, loss) in enumerate(zip(self.embedders[1:], self.losses[1:], strict=True), 2):
            found |= {f"embedder_{number}": embedder, f"loss_{number}": loss}
        found |= {f"term_{number}": term for number, term in enumerate(self.terms)}
        found |= {} if self.confidence is None else {"confidence": self.confidence}
        return found | ({} if self.teacher is None else {"teacher": self.teacher})


class TrainState:
    """The state of a training. `step` is the number of finished steps.

    Args:
        config: resolved settings.
        samples: the training and validation samples.
        sampler: the first batch sampler.
        make_sampler: builds a batch sampler for other labels, after a relabelling round.
        rank, processes: number of this process, and the number of processes.

    Attributes:
        y: class number of every training sample, as relabelled; `samples.labels` has the given ones.
        kept: the training samples that batches are drawn from: all that were not dropped.
        kept_position: index of every training sample in `kept`.
        total, counted: sum of the losses since the last line of the log, and the number of steps in it.
        average: average of the weights of the first network; None: the last weights count.
        mode: execution mode of the network; None until it was chosen.
        best, waited: best validation score, and the number of validations since then.
    """

    def __init__(
        self,
        config: Train,
        samples: Samples,
        components: Components,
        sampler: BatchSampler,
        make_sampler: Callable[[np.ndarray], BatchSampler],
        plan: Plan,
        optimizer: torch.optim.Optimizer,
        schedule: Schedule,
        device: torch.device,
        rank: int = 0,
        processes: int = 1,
    ):
        self.config, self.samples, self.components, self.plan = config, samples, components, plan
        self.device, self.rank, self.processes = device, rank, processes
        self.similarity = "cosine" if components.loss.input == "unit" else "euclidean"
        self.optimizer, self.schedule = optimizer, schedule
        self.sampler, self.make_sampler = sampler, make_sampler
        self.y = torch.as_tensor(samples.labels, device=device)
        self.kept = np.arange(len(samples.rows))
        self.kept_position = torch.arange(len(samples.rows), device=device)
        self.relabelling: Relabelling | None = None
        self.monitor = NoiseMonitor(len(samples.rows), samples.noisy, device)
        zeros = torch.zeros(2, len(samples.rows), device=device)
        self.history = LossHistory(zeros) if config.record_losses else None
        self.step, self.best, self.waited = 0, -math.inf, 0
        self.total, self.counted = torch.zeros((), device=device), 0
        self.average = WeightAverage(components.embedder, config.average) if config.average else None
        self.mode: Mode | None = None

    def averaged(self) -> AbstractContextManager[None]:
        """Return a context in which the first network has its averaged weights, if they are averaged."""
        return nullcontext() if self.average is None else self.average.applied()

    def seed(self, purpose: int) -> None:
        """Seed torch's generators from the seed of the settings, the step, and a number for the purpose."""
        drawn = np.random.SeedSequence((self.config.seed, self.step, purpose)).generate_state(1, np.uint64)
        for generator in generators(self.device):  # torch.manual_seed would initialise every kind of device
            generator.manual_seed(int(drawn[0] >> np.uint64(1)))

    def out_of_patience(self) -> bool:
        """Return whether the last `patience` validations brought no improvement."""
        return self.plan.patience is not None and self.waited >= self.plan.patience

    def relabel(self, relabelling: Relabelling) -> None:
        """Use the labels of a relabelling round, and draw no more batches from the samples that it drops."""
        self.relabelling, self.y = relabelling, relabelling.y.to(self.device)
        self.kept, step = np.flatnonzero(relabelling.w.cpu().numpy() > 0), self.sampler.step
        try:
            self.sampler = self.make_sampler(self.y.cpu().numpy()[self.kept])
        except LikewiseError as error:
            raise LikewiseError(
                f"{error}. This is after {self.config.confidence} dropped samples; use a smaller --batch-size"
            ) from None
        self.sampler.step = step
        kept_position = torch.zeros(len(self.samples.rows), dtype=torch.int64)
        kept_position[torch.as_tensor(self.kept)] = torch.arange(len(self.kept))
        self.kept_position = kept_position.to(self.device)

    def tensors(self, *names: str) -> dict[str, Tensor]:
        """Return the tensors of these modules (default: all), with sharded tensors gathered. All processes must call it."""
        modules = self.components.modules()
        return {f"{name}.{k}": v for name in names or modules for k, v in whole(modules[name]).items()}

    def state_dict(self) -> dict[str, Any]:
        """Return the state for an exact resume. All processes must call it; only the first gets gathered tensors."""
        relabelling = self.relabelling and {"y": self.relabelling.y, "w": self.relabelling.w}
        return {
            "step": self.step,
            "best": self.best,
            "waited": self.waited,
            "tensors": self.tensors(),
            "mode": self.mode,
            "optimizer": full_optimizer_state(self.optimizer, self.components.losses),
            "schedule": self.schedule.state_dict(),
            "relabelling": relabelling,
            "sampler": self.sampler.state_dict(),
            "total": self.total,
            "counted": self.counted,
            "noise_monitor": {"last": self.monitor.last, "sums": self.monitor.sums},
            "losses": self.history and vars(self.history),
            "average": self.average and self.average.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any], file: str | Path) -> None:
        """Restore a state from `state_dict`; errors name `file`."""
        for name, module in self.components.modules().items():
            stored = {k.removeprefix(f"{name}."): v for k, v in state["tensors"].items() if k.startswith(f"{name}.")}
            load_into(module, own(module, stored), file)
        try:
            self.optimizer.load_state_dict(
                own_optimizer_state(self.optimizer, state["optimizer"], self.components.losses)
            )
        except ValueError as error:
            raise LikewiseError(
                f"train: {file} was saved with other parameter groups of the optimiser ({error}); use --restart to train again"
            ) from None
        self.schedule.load_state_dict(state["schedule"])
        if state["relabelling"]:
            self.relabel(Relabelling(**state["relabelling"]))
        self.sampler.load_state_dict(state["sampler"])
        self.step, self.best, self.waited = state["step"], state["best"], state["waited"]
        self.total, self.counted = state["total"].to(self.device), state["counted"]
        self.monitor.last.copy_(state["noise_monitor"]["last"])
        self.monitor.sums = {name: both.to(self.device) for name, both in state["noise_monitor"]["sums"].items()}
        if stored := state["losses"]:
            self.history = LossHistory(**stored | {"sums": stored["sums"].to(self.device)})
        if self.average is not None:
            self.average.load_state_dict(state["average"])
        self.mode = state["mode"]
