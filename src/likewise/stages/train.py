"""train: settings -> parts -> run folder. The loop is visible and counted in steps."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch

from likewise.configs import Train, check
from likewise.contracts import BatchSampler, Loss, NoiseModel
from likewise.data.batches import batches, choose_workers
from likewise.embedding import embed_rows
from likewise.losses import CrossBatchMemory
from likewise.metrics import of_the_set
from likewise.models.mixup import Mixup
from likewise.optimise import Schedule, clip, make_optimizer, steps_of
from likewise.progress import bar
from likewise.run import RESULTS, Run
from likewise.scoring import as_compared, mean_score, score
from likewise.spec import build
from likewise.stages.assemble import (
    choose_device,
    load_into,
    load_items,
    make_embedder,
    make_protocol,
    resolve,
    spoil,
    transforms,
)  # fmt: skip
from likewise.stages.claim import find_run, take
from likewise.stages.evaluate import PEEK, check_plan, evaluate_run
from likewise.stages.folds import fold_specs
from likewise.stages.guard import leave_cores_for, stop_on_signal
from likewise.types import Batch, Embedded, Items, LikewiseError


class Interrupted(KeyboardInterrupt):
    """Training was stopped on request; its state is saved and the same call goes on from there."""

    def __init__(self, run: Run, step: int, steps: int):
        super().__init__(f"stopped at step {step} of {steps}; the same command goes on from there ({run.path})")


def train(config: Train, say=print) -> Run:
    """Train (or finish, or find) the run that these settings describe, and evaluate it.

    Args:
        say: takes a line for the user.
    """
    check(config)
    device = choose_device(config.device)
    items = load_items(
        config.data, config.root, skip_bad=config.skip_bad, workers=config.workers, quiet=config.quiet, say=say
    )
    if folds := config.protocol and fold_specs(config.protocol):
        say(f"this trains the first of {len(folds)} folds; `likewise bench` trains them all and scores them together")
    config = resolve(config, items)
    claim = find_run(config, items)
    run = claim.run
    if run.done and not config.again:
        say(f"this run is finished already: {run.path} (--again trains it anew)")
    else:
        training = Training(config, items, device)  # first, so that settings that cannot work leave no folder behind
        with run.owned():
            take(claim, config, device)
            training.loop(run)
            (run.path / "done").touch()
            for name in RESULTS:  # of a state on the way, if somebody looked at it
                (run.path / name).unlink(missing_ok=True)
    if config.evaluate and (run.scores is None or set(config.metrics) - run.scores["metrics"].keys()):
        evaluate_run(
            run, config=config, items=items, metrics=config.metrics, device=device, workers=config.workers,
            quiet=config.quiet,
        )  # fmt: skip
    return run


class Training:
    """Everything one training holds while it runs. Built in an order that the seed fixes; saved and restored as a whole."""

    def __init__(self, config: Train, items: Items, device: torch.device):
        self.config, self.device = config, device
        self.protocol = make_protocol(config)
        noise = build(config.noise, NoiseModel, allow_imports=config.allow_imports) if config.noise else None
        self.given, self.items = items, spoil(items, self.protocol, noise, config.seed)
        self.rows, self.val_rows = self.protocol.rows(items, "train"), self.protocol.rows(items, "val")
        if len(self.rows) == 0:
            raise LikewiseError(f"train: the train part of '{items.name}' is empty; check its `split` column")
        if not len(self.val_rows) and (config.patience is not None or config.schedule == "plateau"):
            raise LikewiseError(
                "train: patience and the plateau schedule listen to validation, and there is no validation part; "
                'carve one from the training classes: --protocol "UnseenClasses(val=0.2)"'
            )
        check_plan(config, items, self.protocol)
        used = np.unique(np.concatenate([items.y[self.rows], self.items.y[self.rows]]))
        self.class_number = torch.full((items.classes,), -1, dtype=torch.int64)
        self.class_number[torch.as_tensor(used)] = torch.arange(len(used))
        labels = self.class_number[torch.as_tensor(self.items.y[self.rows])].numpy()
        self.class_number = self.class_number.to(device)
        self.place = torch.full((len(items),), -1, dtype=torch.int64)  # of a row among the training rows
        self.place[torch.as_tensor(self.rows)] = torch.arange(len(self.rows))
        self.place = self.place.to(device)
        weight = np.ones(len(items)) if items.weight is None else items.weight
        self.weight = torch.as_tensor(weight, dtype=torch.float32, device=device)

        self.embedder = make_embedder(config, None if items.x is None else items.x.shape[1]).to(device)
        names = tuple(items.class_name[c] for c in used)
        facts = {"classes": len(used), "dim": config.dim, "labels": labels, "class_names": names, "seed": config.seed}
        imports = config.allow_imports
        self.sampler = build(config.sampler, BatchSampler, allow_imports=imports, **facts)
        facts["largest_class"] = self.sampler.largest_class
        self.loss = build(config.loss, Loss, allow_imports=imports, **facts).to(device)
        self.similarity = "cosine" if self.loss.input == "unit" else "euclidean"
        for part in self.loss.modules():  # an inner loss too
            for name in ("classes", "dim", "largest_class"):
                given = getattr(part, name, None)
                if given is not None and facts[name] is not None and given != facts[name]:
                    raise LikewiseError(
                        f"train: {config.loss} has {name}={given}, but this training has {facts[name]}; leave {name} out, it is "
                        "filled in"
                    )
        self.mixup = None if config.mixup is None else Mixup(self.embedder, config.mixup, config.mixup_at)
        remembers = type(self.sampler).observe is not BatchSampler.observe, isinstance(self.loss, CrossBatchMemory)
        for part, it_does in zip((config.sampler, config.loss), remembers):
            if self.mixup and it_does:
                raise LikewiseError(
                    f"train: {part} would remember embeddings of mixtures as those of one class; leave out mixup, or use another"
                )
        self.augment, self.plain = transforms(config, self.embedder)
        per_pass = len(self.sampler)
        self.steps = steps_of(config.length, per_pass, "length")
        self.warmup = steps_of(config.warmup, per_pass, "warmup")
        self.validate_every = steps_of(config.validate_every, per_pass, "validate_every", least=1)
        self.peek_every = config.peek_every and steps_of(config.peek_every, per_pass, "peek_every", least=1)
        self.checkpoint_every = steps_of(config.checkpoint_every, per_pass, "checkpoint_every", least=1)
        self.optimizer = make_optimizer(config, self.embedder, self.loss)
        self.schedule = Schedule(config, self.optimizer, self.steps, per_pass)
        self.step, self.best, self.waited = 0, -math.inf, 0
        self.total = torch.zeros((), device=device)  # loss since the last line of the log,
        self.counted = 0  # and of how many steps
        torch.manual_seed(config.seed + 1)

    def loop(self, run: Run) -> None:
        """Step after step, until the end, a stop on request, or patience runs out."""
        self.run = run
        self.restore()
        config, began = self.config, time.monotonic()
        workers = 0 if self.items.x is not None else choose_workers(config.workers)
        places = torch.arange(len(self.rows))  # samplers count training rows, not those of the table
        self.sampler.start(lambda: replace(self.embed(self.rows), row=places))
        feed = batches(
            self.items, self.chosen_rows(), self.augment, device=self.device, workers=workers, seed=config.seed,
            first_draw=self.step,
        )  # fmt: skip
        self.embedder.train()
        images = 0
        title = bar("train", self.steps, start=self.step, quiet=config.quiet)
        with stop_on_signal() as stop, leave_cores_for(workers, self.device), title as progress:
            while self.step < self.steps and not self.out_of_patience():
                batch = self.next_batch(feed)
                self.one_step(batch)
                images += len(batch.row)
                last, facts = self.step == self.steps, None
                if self.step % config.log_every == 0 or last:
                    facts = self.log(images / max(time.monotonic() - began, 1e-9))
                    images, began = 0, time.monotonic()
                progress.advance(1, facts)
                if len(self.val_rows) and (self.step % self.validate_every == 0 or last):
                    self.validate()
                if self.peek_every and (self.step % self.peek_every == 0 or last):
                    self.peek()
                if self.step % self.checkpoint_every == 0 and not last:
                    self.save()
                if stop.is_set() and not last:
                    self.save()
                    raise Interrupted(self.run, self.step, self.steps)
        self.save()

    def chosen_rows(self) -> Iterator[list[int] | None]:
        """Rows of every batch; None after a pass, where the next one's are chosen by the embeddings of this one."""
        observes = type(self.sampler).observe is not BatchSampler.observe
        for step, chosen in enumerate(self.sampler, self.step + 1):
            yield self.rows[chosen].tolist()
            if observes and step % len(self.sampler) == 0:
                yield None

    def next_batch(self, feed: Iterator[Batch]) -> Batch:
        try:
            return next(feed)
        except LikewiseError as error:  # a broken picture: what was learned so far is not lost
            self.save()
            raise LikewiseError(
                f"{error}. Training stopped at step {self.step}; --skip-bad leaves such pictures out"
            ) from None

    def one_step(self, batch: Batch) -> None:
        self.schedule.before_step(self.step)
        for parameter in self.embedder.backbone_parameters():
            parameter.requires_grad_(self.step >= self.warmup)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.config.precision == "bf16"):
            out, shares = self.mixup(batch.x) if self.mixup else (self.embedder(batch.x), [(slice(None), 1.0)])
        z = out.z if self.loss.input == "unit" else out.e
        y, w = self.class_number[batch.y], self.weight[batch.row]  # a label, wherever it is mixed in, brings its weight
        value = sum(share * (w[whose] * self.loss(z, y[whose])).mean() for whose, share in shares)
        self.optimizer.zero_grad(set_to_none=True)
        value.backward()
        clip(self.config, [self.embedder, self.loss])
        self.optimizer.step()
        self.step += 1
        self.sampler.observe(out.z.detach(), self.place[batch.row])
        for part in (self.loss, self.sampler):
            part.after_step(self.step)
        # Pair losses skip pairs whose similarity is NaN and stay finite; what is logged must not.
        self.total += value.detach() + 0 * z.detach().sum()
        self.counted += 1

    def must_be_sound(self) -> None:
        """A diverged network is neither saved nor scored."""
        if not torch.isfinite(self.total):
            raise LikewiseError(
                f"train: the loss became {float(self.total)} before step {self.step}; lower lr or set clip_norm. "
                f"The last sound state is kept in {self.run.path}"
            )

    def log(self, rate: float) -> str:
        """Write a line, and hand back what the progress bar shows."""
        self.must_be_sound()
        loss = float(self.total) / self.counted
        lr = {g["name"]: g["lr"] for g in self.optimizer.param_groups}
        line = {"step": self.step, "loss": loss, "lr": lr, "images_per_s": round(rate, 1)}
        seen = self.loss.observe_state() | self.sampler.observe_state()
        self.run.log([line | {k: v.float().mean().item() for k, v in seen.items()}])
        self.total, self.counted = torch.zeros_like(self.total), 0
        return f"loss {loss:.3f}  {rate:.0f} images/s"

    def embed(self, rows: np.ndarray) -> Embedded:
        """These rows under the network as it is now, as evaluation would see them."""
        return embed_rows(
            self.embedder, self.items, rows, self.plain, device=self.device, workers=self.config.workers, quiet=True
        )

    def validate(self) -> None:
        """Score the validation part; keep the best network. The test part is never looked at here."""
        self.must_be_sound()
        e = self.embed(self.val_rows)
        score = mean_score(e, self.items, self.protocol, self.config.select, self.similarity, self.device)
        if score > self.best:
            self.run.save_tensors("best.safetensors", self.tensors())
        self.schedule.validated(score)
        self.waited = 0 if score > self.best else self.waited + 1
        self.best = max(self.best, score)
        self.run.log([{"step": self.step, f"val {self.config.select}": score}])

    def peek(self) -> None:
        """Score the test part for the record, by the labels that evaluation goes by. Nothing here decides anything."""
        rows = self.protocol.rows(self.given, "test")
        e = replace(as_compared(self.embed(rows), self.similarity), y=torch.as_tensor(self.given.y[rows]))
        names = [name for name in self.config.metrics if not of_the_set(name)]  # of those, high is good
        scores, _ = score(e, self.given, self.protocol, names, self.similarity, self.device, quiet=True)
        self.run.log([{"step": self.step, **{f"{PEEK}{k}": float(np.nanmean(v)) for k, v in scores.each.items()}}])

    def out_of_patience(self) -> bool:
        return self.config.patience is not None and self.waited >= self.config.patience

    def tensors(self) -> dict[str, torch.Tensor]:
        parts = {"embedder": self.embedder, "loss": self.loss}
        return {f"{name}.{k}": v for name, part in parts.items() for k, v in part.state_dict().items()}

    def save(self) -> None:
        """One file from which training goes on exactly, and the network for everyone else."""
        self.must_be_sound()
        rng = {"cpu": torch.get_rng_state()}
        if self.device.type == "cuda":
            rng["cuda"] = torch.cuda.get_rng_state(self.device)
        state = {
            "step": self.step, "best": self.best, "waited": self.waited, "tensors": self.tensors(), "rng": rng,
            "optimizer": self.optimizer.state_dict(), "schedule": self.schedule.state_dict(),
            "sampler": self.sampler.state_dict(), "total": self.total, "counted": self.counted,
        }  # fmt: skip
        self.run.save_state(state)
        self.run.save_tensors("model.safetensors", state["tensors"])

    def restore(self) -> None:
        state = self.run.load_state()
        if state is None:
            self.run.rewind_log(0)
            return
        for name, part in (("embedder", self.embedder), ("loss", self.loss)):
            own = {k.removeprefix(f"{name}."): v for k, v in state["tensors"].items() if k.startswith(f"{name}.")}
            load_into(part, own, self.run.path / "state.pt")
        self.optimizer.load_state_dict(state["optimizer"])
        self.schedule.load_state_dict(state["schedule"])
        self.sampler.load_state_dict(state["sampler"])
        self.step, self.best, self.waited = state["step"], state["best"], state["waited"]
        self.total, self.counted = state["total"].to(self.device), state["counted"]
        torch.set_rng_state(state["rng"]["cpu"])
        if self.device.type == "cuda" and "cuda" in state["rng"]:
            torch.cuda.set_rng_state(state["rng"]["cuda"], self.device)
        self.run.rewind_log(self.step)
