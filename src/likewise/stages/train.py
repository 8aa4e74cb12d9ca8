"""train: settings -> parts -> run folder. The loop is visible and counted in steps."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch

from likewise.configs import Train, check
from likewise.contracts import BatchSampler
from likewise.data.batches import batches, choose_workers
from likewise.files import write_aside
from likewise.metrics import of_the_set
from likewise.optimise import clip, forget
from likewise.progress import bar
from likewise.run import RESULTS, Run
from likewise.scoring import as_compared, mean_score, score
from likewise.stages.assemble import choose_device, load_items, resolve
from likewise.stages.claim import find_run, take
from likewise.stages.evaluate import PEEK, evaluate_run
from likewise.stages.folds import fold_specs
from likewise.stages.guard import leave_cores_for, stop_on_signal
from likewise.stages.parts import Parts
from likewise.types import Batch, Embedded, LikewiseError


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
        if config.keep_losses and run.losses() is None:
            say("it was trained without --keep-losses, so it has none; --again trains it anew and keeps them")
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


class Training(Parts):
    """The loop over what a training is made of."""

    def loop(self, run: Run) -> None:
        """Step after step, until the end, a stop on request, or patience runs out."""
        self.run = run
        self.prepare_pictures()
        self.prepare_terms(run)
        self.restore()
        config, began = self.config, time.monotonic()
        workers = 0 if self.items.x is not None else choose_workers(config.workers)
        self.start_sampler()
        feed = batches(
            self.items, self.chosen_rows(), self.augment, device=self.device, workers=workers, seed=config.seed,
            first_draw=self.step,
        )  # fmt: skip
        for embedder in self.embedders:
            embedder.train()
        self.network = torch.compile(self.embedder) if config.compile else self.embedder
        images = 0
        title = bar("train", self.steps, start=self.step, quiet=config.quiet)
        with stop_on_signal() as stop, leave_cores_for(workers, self.device), title as progress:
            while self.step < self.steps and not self.out_of_patience():
                if self.judge_every and self.step % self.judge_every == 0:
                    self.judge()
                batch = self.next_batch(feed)
                self.one_step(batch)
                images += len(batch.row)
                last, facts = self.step == self.steps, None
                if self.step % config.log_every == 0 or last:
                    facts = self.log(images / max(time.monotonic() - began, 1e-9))
                    images, began = 0, time.monotonic()
                if self.confidence and (self.step % self.per_pass == 0 or last):
                    self.log_trust()
                if self.history and self.step % self.per_pass == 0:
                    self.history.end_pass(self.step)
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
        if self.confidence:
            self.keep_trust()
        if self.history:
            self.history.end_pass(self.step)  # the last one may be cut short
        self.save()

    def start_sampler(self) -> None:
        """Samplers count the samples they draw from, not rows of the table."""
        kept = torch.arange(len(self.kept))
        self.sampler.start(lambda: replace(self.embed(self.rows[self.kept]), row=kept))

    def chosen_rows(self) -> Iterator[list[int] | None]:
        """Rows of every batch; None where what follows is chosen by the embeddings, or the labels, of what went before."""
        step = self.step
        while True:
            observes = type(self.sampler).observe is not BatchSampler.observe
            for chosen in self.sampler:
                yield self.rows[self.kept[chosen]].tolist() * self.config.views
                step += 1
                if self.judge_every and step % self.judge_every == 0:
                    yield None  # the sampler may be another one after it
                    break
                if observes and step % len(self.sampler) == 0:
                    yield None

    def judge(self) -> None:
        """Let the confidence look at the whole training set, and go on by what it says."""
        given = torch.as_tensor(self.labels, device=self.device)
        e = self.embed(self.rows, features=True)
        z, f = e.z.to(self.device), e.f.to(self.device)
        verdict = self.confidence.judge(Embedded(z, given, torch.arange(len(given), device=self.device), f=f))
        if verdict is None:
            return
        self.adopt(verdict)
        self.start_sampler()
        facts = self.watch.verdict(verdict, given, self.clean)
        self.run.log([{"step": self.step + 1, "verdict": facts}])  # the first step that goes by it

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
        for embedder in self.embedders:
            for parameter in embedder.backbone_parameters():
                parameter.requires_grad_(self.step >= self.warmup)
        place = self.place[batch.row]
        batch, w = Batch(batch.x, self.y[place], place), self.weight[batch.row]
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.config.precision == "bf16"):
            if self.mixup:
                out, shares = self.mixup(batch.x)
                z = out.z if self.loss.input == "unit" else out.e
                # A label, wherever it is mixed in, brings its weight.
                parts = [share * (w[whose] * self.loss(z, batch.y[whose])).mean() for whose, share in shares]
                value, trusts, losses = self.config.loss_weight * sum(parts), [], []
            else:
                outs = [self.network(batch.x), *(other(batch.x) for other in self.embedders[1:])]
                seen = self.teacher(batch.x).z if self.watchers else None
                for miner in self.watchers:
                    miner.look(seen)
                out = outs[0]
                value, trusts, losses = self.objective(outs, batch, w)
        self.optimizer.zero_grad(set_to_none=True)
        value.backward()
        clip(self.config, [*self.embedders, *self.losses, *self.terms])
        self.optimizer.step()
        self.step += 1
        self.sampler.observe(out.z.detach(), self.within[place])
        for part in (*self.losses, self.sampler, self.confidence, *self.terms):
            if part is not None:
                forget(self.optimizer, part.after_step(self.step))
        if self.teacher is not None:
            self.teacher.update(self.embedder)
        for trust in trusts[:1]:
            self.watch.see(trust, place)
        if self.history:
            self.history.see(losses[0], place)
        # Pair losses skip pairs whose similarity is NaN and stay finite; what is logged must not.
        self.total += value.detach() + 0 * out.e.detach().sum()
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
        seen = {}
        for part in (self.loss, self.sampler, self.confidence, *self.terms):
            seen |= {} if part is None else part.observe_state()
        line |= {k: v.float().mean().item() for k, v in seen.items()}
        self.run.log([line | ({"trust": means} if (means := self.watch.means()) else {})])
        self.total, self.counted = torch.zeros_like(self.total), 0
        return f"loss {loss:.3f}  {rate:.0f} images/s"

    def log_trust(self) -> None:
        """What the confidence makes of the samples, once a pass."""
        if (histogram := self.watch.histogram()) is not None:
            self.run.log([{"step": self.step, "suspicion": histogram}])

    def keep_trust(self) -> None:
        """The same in the end, sample by sample."""
        suspicion, _, w = self.watch.last.cpu().numpy()
        names = np.asarray(self.class_names)
        columns = {"row": self.rows, "given": names[self.labels], "label": names[self.y.cpu()], "weight": w}
        with write_aside(self.run.path / "trust.npz") as aside, aside.open("wb") as file:
            np.savez_compressed(file, suspicion=suspicion, **columns)

    def keep_losses(self) -> None:
        """What `Run.losses` reads."""
        loss = np.reshape([line.numpy() for line in self.history.loss], (-1, len(self.rows))).astype(np.float32)
        with write_aside(self.run.path / "losses.npz") as aside, aside.open("wb") as file:
            np.savez(file, row=self.rows, loss=loss, step=np.asarray(self.history.step, np.int64))

    def validate(self) -> None:
        """Score the validation part; keep the best network. The test part is never looked at here."""
        self.must_be_sound()
        e = self.embed(self.val_rows)
        score = mean_score(e, self.items, self.protocol, self.config.select, self.similarity, self.device)
        if score > self.best:
            self.run.save_tensors("best.safetensors", self.tensors("embedder", "loss"))
        self.schedule.validated(score)
        self.waited = 0 if score > self.best else self.waited + 1
        self.best = max(self.best, score)
        line = {"step": self.step, f"val {self.config.select}": score}
        if self.items.y_clean is not None:  # for the record; nothing listens to it
            clean = replace(self.items, y=self.items.y_clean)
            e = replace(e, y=torch.as_tensor(clean.y[self.val_rows]))
            line[f"val {self.config.select} by true labels"] = mean_score(
                e, clean, self.protocol, self.config.select, self.similarity, self.device
            )
        self.run.log([line])

    def peek(self) -> None:
        """Score the test part for the record, by the labels that evaluation goes by. Nothing here decides anything."""
        rows = self.protocol.rows(self.given, "test")
        e = replace(as_compared(self.embed(rows), self.similarity), y=torch.as_tensor(self.given.y[rows]))
        names = [name for name in self.config.metrics if not of_the_set(name)]  # of those, high is good
        scores, _ = score(e, self.given, self.protocol, names, self.similarity, self.device, quiet=True)
        self.run.log([{"step": self.step, **{f"{PEEK}{k}": float(np.nanmean(v)) for k, v in scores.each.items()}}])

    def out_of_patience(self) -> bool:
        return self.config.patience is not None and self.waited >= self.config.patience

    def save(self) -> None:
        """One file from which training goes on exactly, and the network for everyone else."""
        self.must_be_sound()
        self.run.save_state(self.state())
        self.run.save_tensors("model.safetensors", self.tensors("embedder", "loss"))
        if self.history:
            self.keep_losses()

    def restore(self) -> None:
        state = self.run.load_state()
        if state is None:
            self.run.rewind_log(0)
            return
        self.load(state, self.run.path / "state.pt")
        self.run.rewind_log(self.step)
