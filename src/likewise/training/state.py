"""The state of a training: what changes from step to step and is checkpointed, beside what it is made of."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from likewise.config import Train
from likewise.contracts import BatchSampler, Confidence, Loss, Miner, Term
from likewise.distributed.sharded_proxies import own, own_memory, whole, whole_memory
from likewise.engine.cuda_graphs import Mode
from likewise.engine.grad_cache import generators
from likewise.errors import LikewiseError
from likewise.models.embedder import Embedder
from likewise.models.teacher import Teacher
from likewise.runs.tensors import load_into
from likewise.training.noise_monitor import LossHistory, Watch
from likewise.training.objective import Objective
from likewise.training.plan import Plan
from likewise.training.samples import Samples
from likewise.training.schedule import Schedule
from likewise.types import Output, Relabelling


@dataclass(frozen=True, eq=False)
class Components:
    """Networks, losses and what goes with them.

    Attributes:
        embedders: one network, or as many as the confidence trains side by side; losses: one for each.
        teacher: a slow copy of the first network, where a miner of `taught` wants one.
        facts: what a spec may leave open: classes, dim, labels, seed, steps and others.
    """

    embedders: list[Embedder]
    losses: list[Loss]
    confidence: Confidence | None
    terms: list[Term]
    teacher: Teacher | None
    taught: list[Miner]
    facts: dict[str, Any]
    mixup: Callable[[Tensor], tuple[Output, Any]] | None = None

    @property
    def embedder(self) -> Embedder:
        return self.embedders[0]

    @property
    def loss(self) -> Loss:
        return self.losses[0]

    def trained(self) -> list[nn.Module]:
        """Every module that the optimiser trains."""
        return [*self.embedders, *self.losses, *self.terms]

    def modules(self) -> dict[str, nn.Module]:
        """Every module with a state, by the name that checkpoints store it under."""
        found: dict[str, nn.Module] = {"embedder": self.embedder, "loss": self.loss}
        for number, (embedder, loss) in enumerate(zip(self.embedders[1:], self.losses[1:], strict=True), 2):
            found |= {f"embedder_{number}": embedder, f"loss_{number}": loss}
        found |= {f"term_{number}": term for number, term in enumerate(self.terms)}
        found |= {} if self.confidence is None else {"confidence": self.confidence}
        return found | ({} if self.teacher is None else {"teacher": self.teacher})


class TrainState:
    """What changes while a training runs. `step` counts finished steps.

    Args:
        config: resolved settings.
        samples: what it trains and validates on.
        sampler: the first one; `make_sampler` builds another for the labels of the samples that remain.
        rank, processes: number of this process, and of all processes.

    Attributes:
        y: class number of every training sample as used now; `samples.labels` are those given.
        kept: training samples that batches are drawn from; within: place of a training sample among them.
        total, counted: sum of the losses since the last line of the log, and the number of steps in it.
        mode: how the network runs, once that was tried; None before.
        best, waited: best validation score, and validations since then.
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
        self.objective = Objective(components.losses, components.confidence, components.terms, config.loss_weight)
        self.similarity = "cosine" if components.loss.input == "unit" else "euclidean"
        self.optimizer, self.schedule = optimizer, schedule
        self.sampler, self.make_sampler = sampler, make_sampler
        self.y = torch.as_tensor(samples.labels, device=device)
        self.kept = np.arange(len(samples.rows))
        self.within = torch.arange(len(samples.rows), device=device)
        self.relabelling: Relabelling | None = None
        self.monitor = Watch(len(samples.rows), samples.noisy, device)
        zeros = torch.zeros(2, len(samples.rows), device=device)
        self.history = LossHistory(zeros) if config.record_losses else None
        self.step, self.best, self.waited = 0, -math.inf, 0
        self.total, self.counted = torch.zeros((), device=device), 0
        self.mode: Mode | None = None

    def seed(self, purpose: int) -> None:
        """Seed torch's generators from the seed of the settings, the step and a number for the purpose alone."""
        drawn = np.random.SeedSequence((self.config.seed, self.step, purpose)).generate_state(1, np.uint64)
        for generator in generators(self.device):  # torch.manual_seed would initialise every kind of device
            generator.manual_seed(int(drawn[0] >> np.uint64(1)))

    def out_of_patience(self) -> bool:
        """Whether validation has not improved for as many times as the settings allow."""
        return self.plan.patience is not None and self.waited >= self.plan.patience

    def relabel(self, verdict: Relabelling) -> None:
        """Use the labels of a relabelling from here on, and draw no batch from the samples that it drops."""
        self.relabelling, self.y = verdict, verdict.y.to(self.device)
        self.kept, step = np.flatnonzero(verdict.w.cpu().numpy() > 0), self.sampler.step
        try:
            self.sampler = self.make_sampler(self.y.cpu().numpy()[self.kept])
        except LikewiseError as error:
            raise LikewiseError(
                f"{error}. That is after {self.config.confidence} left out labels; smaller batches need less"
            ) from None
        self.sampler.step = step
        within = torch.zeros(len(self.samples.rows), dtype=torch.int64)
        within[torch.as_tensor(self.kept)] = torch.arange(len(self.kept))
        self.within = within.to(self.device)

    def tensors(self, *names: str) -> dict[str, Tensor]:
        """Return the tensors of these modules (by default all), sharded ones whole. Every process takes part."""
        modules = self.components.modules()
        return {f"{name}.{k}": v for name in names or modules for k, v in whole(modules[name]).items()}

    def state_dict(self) -> dict[str, Any]:
        """Return what an exact resume needs. Every process takes part; the first one gets the whole."""
        relabelling = self.relabelling and {"y": self.relabelling.y, "w": self.relabelling.w}
        return {
            "step": self.step,
            "best": self.best,
            "waited": self.waited,
            "tensors": self.tensors(),
            "way": self.mode,
            "optimizer": whole_memory(self.optimizer, self.components.losses),
            "schedule": self.schedule.state_dict(),
            "verdict": relabelling,
            "sampler": self.sampler.state_dict(),
            "total": self.total,
            "counted": self.counted,
            "watch": {"last": self.monitor.last, "sums": self.monitor.sums},
            "losses": self.history and vars(self.history),
        }

    def load_state_dict(self, state: dict[str, Any], file: str | Path) -> None:
        """Restore what `state_dict` returned; `file` is named in errors."""
        for name, module in self.components.modules().items():
            stored = {k.removeprefix(f"{name}."): v for k, v in state["tensors"].items() if k.startswith(f"{name}.")}
            load_into(module, own(module, stored), file)
        try:
            self.optimizer.load_state_dict(own_memory(self.optimizer, state["optimizer"], self.components.losses))
        except ValueError as error:
            raise LikewiseError(
                f"train: {file} was saved with other parameter groups of the optimiser ({error}); --restart trains it anew"
            ) from None
        self.schedule.load_state_dict(state["schedule"])
        if state["verdict"]:
            self.relabel(Relabelling(**state["verdict"]))
        self.sampler.load_state_dict(state["sampler"])
        self.step, self.best, self.waited = state["step"], state["best"], state["waited"]
        self.total, self.counted = state["total"].to(self.device), state["counted"]
        self.monitor.last.copy_(state["watch"]["last"])
        self.monitor.sums = {name: both.to(self.device) for name, both in state["watch"]["sums"].items()}
        if stored := state["losses"]:
            self.history = LossHistory(**stored | {"sums": stored["sums"].to(self.device)})
        self.mode = state["way"]
