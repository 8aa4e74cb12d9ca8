"""Everything a training is made of, from its settings: networks, losses, sampler, confidence, terms, and their state."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from likewise.config import Train
from likewise.config.spec import build
from likewise.contracts import BatchSampler, Confidence, Loss, Miner, Term
from likewise.data.loader import batches, choose_workers, in_order
from likewise.data.placement import hold
from likewise.distributed.collectives import world
from likewise.distributed.sharded_proxies import own, own_memory, shard, whole, whole_memory
from likewise.durations import period_of, steps_of
from likewise.engine.cuda_graphs import Mode
from likewise.engine.embed import embed_rows
from likewise.engine.grad_cache import generators
from likewise.evaluation.checks import check_plan
from likewise.models.mixup import Mixup
from likewise.models.teacher import Teacher
from likewise.runs.dataset import spoil
from likewise.runs.devices import bytes_of
from likewise.runs.folder import Run
from likewise.runs.network import facts_of, facts_with, load_into, make_embedder, to_device, transforms
from likewise.runs.settings import make_protocol
from likewise.training.noise_monitor import LossHistory, Watch
from likewise.training.objective import Objective
from likewise.training.optim import Schedule, make_optimizer
from likewise.types import Embedded, Given, Items, LikewiseError, Verdict


class Parts:
    """Built in an order that the seed fixes; saved and restored as a whole."""

    def __init__(self, config: Train, items: Items, device: torch.device):
        self.config, self.device = config, device
        self.protocol = make_protocol(config)
        self.given, self.items = items, spoil(items, self.protocol, config.noise, config.seed, config.allow_imports)
        self.rows, self.val_rows = (self.protocol.rows(self.items, part) for part in ("train", "val"))
        if len(self.rows) == 0:
            raise LikewiseError(f"train: the train part of '{items.name}' is empty; check its `split` column")
        if not len(self.val_rows) and (config.patience is not None or config.schedule == "plateau"):
            raise LikewiseError(
                "train: patience and the plateau schedule listen to validation, and there is no validation part; "
                'carve one from the training classes: --protocol "UnseenClasses(val=0.2)"'
            )
        check_plan(config, items, self.protocol)
        self.number_classes()
        weight = np.ones(len(items)) if items.weight is None else items.weight
        self.weight = torch.as_tensor(weight, dtype=torch.float32, device=device)
        width = None if items.x is None else items.x.shape[1]
        self.embedder = to_device(make_embedder(config, width, reseed=True), device)
        self.build_parts()
        self.check_fit()
        self.mixup = None if config.mixup is None else Mixup(self.embedder, config.mixup, config.mixup_at)
        self.per_pass = len(self.sampler)
        self.steps = steps_of(config.length, self.per_pass, "length")
        self.warmup = steps_of(config.warmup, self.per_pass, "warmup")
        self.validate_every = steps_of(config.validate_every, self.per_pass, "validate_every", least=1)
        peek = config.peek_every
        self.peek_every = steps_of(peek, self.per_pass, "peek_every", least=1) if peek else None
        self.checkpoint_every = period_of(config.checkpoint_every, self.per_pass, "checkpoint_every", least=1)
        every = self.confidence and self.confidence.every
        self.judge_every = every and steps_of(every, self.per_pass, "every", least=1, owner=config.confidence or "")
        self.optimizer = make_optimizer(config, self.embedders, self.losses, self.terms)
        self.schedule = Schedule(config, self.optimizer, self.steps, self.per_pass)
        self.step, self.best, self.waited = 0, -math.inf, 0
        self.way: Mode | None = None  # how the network runs, once that was tried
        self.total = torch.zeros((), device=device)  # loss since the last line of the log,
        self.counted = 0  # and of how many steps

    def seed(self, what: int) -> None:
        """Random numbers from here on depend on the seed, the step and this number alone."""
        drawn = np.random.SeedSequence((self.config.seed, self.step, what)).generate_state(1, np.uint64)
        for generator in generators(self.device):  # torch.manual_seed would look for every kind of device
            generator.manual_seed(int(drawn[0] >> np.uint64(1)))

    def number_classes(self) -> None:
        """Class numbers 0..C-1 for the training samples, by their labels as given, and their places among the training rows.

        A true class that no label names has no number (-1): how many classes there are must not tell of it.
        """
        used = np.unique(self.items.y[self.rows])
        number = np.full(self.items.classes, -1)
        number[used] = np.arange(len(used))
        self.class_names = tuple(self.items.class_name[c] for c in used)
        self.labels = number[self.items.y[self.rows]]  # as given
        clean = self.items.y_clean
        self.clean = None if clean is None else torch.as_tensor(number[clean[self.rows]], device=self.device)
        noisy = None if self.clean is None else self.clean.cpu().numpy() != self.labels
        self.watch = Watch(len(self.rows), noisy, self.device)
        self.history = (
            LossHistory(torch.zeros(2, len(self.rows), device=self.device)) if self.config.keep_losses else None
        )
        self.y = torch.as_tensor(self.labels, device=self.device)  # as believed
        self.place = torch.full((len(self.items),), -1, dtype=torch.int64)  # of a row among the training rows
        self.place[torch.as_tensor(self.rows)] = torch.arange(len(self.rows))
        self.place = self.place.to(self.device)
        self.verdict: Verdict | None = None

    def build_parts(self) -> None:
        config = self.config
        self.facts = facts_of(config, self.class_names, self.labels, self.items.taxonomy)
        self.use(np.arange(len(self.rows)))
        self.facts |= facts_with(config, self.sampler, self.embedder)
        self.embedders, self.loss = [self.embedder], self.make(config.loss, Loss)
        with torch.random.fork_rng(devices=[]):  # whether labels are doubted must not change what terms start from
            self.confidence = self.make(config.confidence, Confidence) if config.confidence else None
        for number in range(1, self.confidence.peers if self.confidence else 1):
            other = replace(config, seed=config.seed + 1000 * number)  # another start for the same network
            width = None if self.items.x is None else self.items.x.shape[1]
            self.embedders.append(to_device(make_embedder(other, width, reseed=True), self.device))
        self.losses = [self.loss, *(self.make(config.loss, Loss) for _ in self.embedders[1:])]
        if config.shard:
            for loss in self.losses:
                shard(loss)

        def make_loss(dim: int) -> Loss:
            return self.make(config.loss, Loss, dim=dim)

        self.terms = [self.make(text, Term, make_loss=make_loss) for text in config.terms]
        self.objective = Objective(self.losses, self.confidence, self.terms, config.loss_weight)
        self.similarity = "cosine" if self.loss.input == "unit" else "euclidean"
        inside = [m for part in (*self.losses, *self.terms) for m in part.modules()]
        self.watchers = [m for m in inside if isinstance(m, Miner) and m.momentum is not None]
        momentum = self.watchers[0].momentum if self.watchers else None
        self.teacher = None if momentum is None else Teacher(self.embedder, momentum)

    def make(self, text: str, kind: type, **more) -> Any:
        return build(text, kind, allow_imports=self.config.allow_imports, **(self.facts | more)).to(self.device)

    def use(self, kept: np.ndarray) -> None:
        """Draw batches from these training samples, by the labels believed now."""
        self.kept = kept
        labels = self.y.cpu().numpy()[kept]
        facts = self.facts | {"labels": labels}
        assert self.config.sampler is not None
        self.sampler = build(self.config.sampler, BatchSampler, allow_imports=self.config.allow_imports, **facts)
        self.within = torch.zeros(len(self.rows), dtype=torch.int64)  # a sample's place among those drawn from
        self.within[torch.as_tensor(kept)] = torch.arange(len(kept))
        self.within = self.within.to(self.device)

    def adopt(self, verdict: Verdict) -> None:
        """Go on with the labels of this verdict, without the samples it leaves out."""
        self.verdict, self.y = verdict, verdict.y.to(self.device)
        step = self.sampler.step
        try:
            self.use(np.flatnonzero(verdict.w.cpu().numpy() > 0))
        except LikewiseError as error:
            raise LikewiseError(
                f"{error}. That is after {self.config.confidence} left out labels; smaller batches need less"
            ) from None
        self.sampler.step = step

    def check_fit(self) -> None:
        """What cannot go together."""
        config = self.config
        if config.keep_budget:
            bytes_of(config.keep_budget)  # knows what is wrong with it
        for part in self.loss.modules():  # an inner loss too
            for name in ("classes", "dim", "largest_class"):
                given = getattr(part, name, None)
                if given is not None and self.facts[name] is not None and given != self.facts[name]:
                    raise LikewiseError(
                        f"train: {config.loss} has {name}={given}, but this training has {self.facts[name]}; leave {name} out, "
                        "it is filled in"
                    )
            if (views := getattr(part, "views", 1)) not in (1, config.views):
                raise LikewiseError(
                    f"train: {config.loss} has views={views}, but a batch holds every picture {config.views} times; train with "
                    f"--views {views}, or give the loss views={config.views}"
                )
        if (
            self.confidence
            and self.confidence.needs_guess
            and self.loss.guess(torch.zeros(1, config.dim, device=self.device)) is None
        ):
            raise LikewiseError(
                f"train: {config.confidence} asks which class the loss would name, and {config.loss} has none; use NormSoftmax()"
            )
        if self.terms and len(self.embedders) > 1:
            raise LikewiseError(
                f"train: {config.confidence} trains {len(self.embedders)} networks, and {config.terms[0]} goes with one; "
                "leave one of them out"
            )
        if config.mixup is None:
            return
        for others, words in (
            (world()[1] > 1, "the samples of a process, so that several would train another way than one"),
            (config.chunk is not None, "samples of the whole batch, and chunk cuts it"),
            (config.recompute, "inside of the network, and recompute would do without"),
        ):
            if others:
                raise LikewiseError(f"train: mixup mixes {words}; leave one of them out")
        if config.keep_losses:
            raise LikewiseError(
                "train: keep_losses wants the loss of every sample, and mixup makes mixtures of them; leave one of them out"
            )
        remembers = type(self.sampler).observe is not BatchSampler.observe, self.loss.remembers
        for part, it_does in zip((config.sampler, config.loss), remembers):
            if it_does:
                raise LikewiseError(
                    f"train: {part} would remember embeddings of mixtures as those of one class; leave out mixup, or use another"
                )
        if self.confidence or self.terms or self.watchers:
            part = config.confidence or "".join(config.terms[:1]) or config.loss
            raise LikewiseError(
                f"train: {part} judges samples, and mixup makes mixtures of them; leave one of them out"
            )

    def prepare_pictures(self, say: Callable[[str], None] = print) -> None:
        """What the network sees of pictures, in training and in evaluation, and where decoded ones are held (None: nowhere)."""
        config = self.config
        self.augment, self.plain = transforms(config, self.embedder)
        rows = np.concatenate([self.rows, self.val_rows])
        if config.peek_every:
            rows = np.concatenate([rows, self.protocol.rows(self.given, "test")])
        self.held = hold(
            self.items, rows, self.device, config.keep, config.keep_side, workers=config.workers, quiet=config.quiet,
            budget=bytes_of(config.keep_budget) if config.keep_budget else None, say=say,
        )  # fmt: skip

    def prepare_terms(self, run: Run) -> None:
        def pictures(transform: Callable | None) -> Iterator[tuple[Tensor, Tensor]]:
            chosen = in_order(self.rows, 128)
            how = {"device": self.device, "workers": choose_workers(self.config.workers)}
            how["held"] = self.held if transform is None else None
            for batch in batches(self.items, chosen, transform or self.plain, **how):
                yield batch.x, self.place[batch.row]

        given = Given(self.labels, self.class_names, pictures, run.path, self.device, self.config.quiet)
        for term in self.terms:
            term.prepare(given)

    def embed(self, rows: np.ndarray, features: bool = False) -> Embedded:
        """These rows under the network as it is now, as evaluation would see them."""
        return embed_rows(
            self.embedder, self.items, rows, self.plain, device=self.device, held=self.held, workers=self.config.workers,
            quiet=True, features=features,
        )  # fmt: skip

    def modules(self) -> dict[str, nn.Module]:
        """Everything with a state, by the name it is stored under."""
        found = {"embedder": self.embedder, "loss": self.loss}
        for number, (embedder, loss) in enumerate(zip(self.embedders[1:], self.losses[1:], strict=True), 2):
            found |= {f"embedder_{number}": embedder, f"loss_{number}": loss}
        found |= {f"term_{number}": term for number, term in enumerate(self.terms)}
        for name in ("confidence", "teacher"):
            if getattr(self, name) is not None:
                found[name] = getattr(self, name)
        return found

    def tensors(self, *names: str) -> dict[str, Tensor]:
        parts = self.modules()
        return {f"{name}.{k}": v for name in names or parts for k, v in whole(parts[name]).items()}

    def state(self) -> dict:
        """All that going on exactly needs. Every process takes part; what the first one gets is whole."""
        verdict = None if self.verdict is None else {"y": self.verdict.y, "w": self.verdict.w}
        return {
            "step": self.step, "best": self.best, "waited": self.waited, "tensors": self.tensors(), "way": self.way,
            "optimizer": whole_memory(self.optimizer, self.losses), "schedule": self.schedule.state_dict(), "verdict": verdict,
            "sampler": self.sampler.state_dict(), "total": self.total, "counted": self.counted,
            "watch": {"last": self.watch.last, "sums": self.watch.sums}, "losses": self.history and vars(self.history),
        }  # fmt: skip

    def load(self, state: dict, where) -> None:
        for name, part in self.modules().items():
            mine = {k.removeprefix(f"{name}."): v for k, v in state["tensors"].items() if k.startswith(f"{name}.")}
            load_into(part, own(part, mine), where)
        try:
            self.optimizer.load_state_dict(own_memory(self.optimizer, state["optimizer"], self.losses))
        except ValueError as error:
            raise LikewiseError(
                f"train: {where} is of another likewise, whose optimiser was told otherwise ({error}); --again starts anew"
            ) from None
        self.schedule.load_state_dict(state["schedule"])
        if state.get("verdict"):
            self.adopt(Verdict(**state["verdict"]))
        self.sampler.load_state_dict(state["sampler"])
        self.step, self.best, self.waited = state["step"], state["best"], state["waited"]
        self.total, self.counted = state["total"].to(self.device), state["counted"]
        if "watch" in state:
            self.watch.last.copy_(state["watch"]["last"])
            self.watch.sums = {name: both.to(self.device) for name, both in state["watch"]["sums"].items()}
        if kept := state.get("losses"):
            self.history = LossHistory(**kept | {"sums": kept["sums"].to(self.device)})
        self.way = state.get("way")
