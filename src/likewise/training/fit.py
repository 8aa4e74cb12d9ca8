"""train: settings -> parts -> run folder. The loop is visible and counted in steps."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import torch

from likewise.config import Train, check
from likewise.contracts import BatchSampler
from likewise.data.images import BadImage
from likewise.data.loader import batches, choose_workers
from likewise.distributed.collectives import world
from likewise.distributed.process_group import anybody, joined, one_by_one, same_for_all, wait_for_all
from likewise.errors import memory_errors
from likewise.evaluation.evaluate import PEEK, evaluate_run
from likewise.evaluation.folds import fold_specs
from likewise.evaluation.scoring import as_compared, mean_score, score
from likewise.io.progress import bar
from likewise.metrics import of_the_set
from likewise.runs.folder import RESULTS, Run
from likewise.runs.identity import find_run, take
from likewise.runs.open import check_texts, choose_device, load_items, make_protocol, resolve
from likewise.runs.usage import Session
from likewise.training.interrupts import Saves, leave_cores_for, stop_on_signal
from likewise.training.launch import is_started, launch
from likewise.training.logger_dispatch import Telling, make_loggers
from likewise.training.run_log import Recording
from likewise.types import Batch, Embedded, LikewiseError

LESS_MEMORY = "lower the sampler's batch, --size or --dim, or give --chunk"

SHOWN = ("embedder.", "loss.")
"""What of a training others need: its network, and the loss with what it learned."""


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
    check_texts(config)
    if config.gpus and config.gpus > 1 and not is_started():
        return launch(config)
    with joined(choose_device(config.device)) as device:
        if config.gpus and config.gpus != world()[1]:
            raise LikewiseError(
                f"train: --gpus {config.gpus} was asked for, but {world()[1]} processes were started; leave out --gpus"
            )
        with memory_errors("train", LESS_MEMORY):
            return train_here(config, device, say if world()[0] == 0 else lambda line: None)


def train_here(config: Train, device: torch.device, say) -> Run:
    """In this process, beside others where there are any: the first one of them owns the folder and writes into it."""
    first = world()[0] == 0
    config = config if first else replace(config, quiet=True)
    loggers = make_loggers(config)  # what is missing is said before the work begins
    items = load_items(
        config.data, config.root, skip_bad=config.skip_bad, workers=config.workers, quiet=config.quiet, say=say,
        allow_imports=config.allow_imports,
    )  # fmt: skip
    if folds := config.protocol and fold_specs(config.protocol):
        say(f"this trains the first of {len(folds)} folds; `likewise bench` trains them all and scores them together")
    chosen, config = config.sampler, resolve(config, items)
    if config.evaluate and not make_protocol(config).tests:
        say("all classes train, so none is left to test and nothing is scored")
        config = replace(config, evaluate=False)
    claim = find_run(config, items)
    run, pixels = claim.run, None
    with Telling(run, config, loggers if first else {}, say) as telling:
        session = Session(run, device)
        if run.done and not config.again:
            say(f"this run is finished already: {run.path} (--again trains it anew)")
            if config.keep_losses and run.losses() is None:
                say("it was trained without --keep-losses, so it has none; --again trains it anew and keeps them")
        else:
            training = Training(config, items, device)  # first: settings that cannot work leave no folder behind
            if chosen is None and (lonely := int((np.bincount(training.labels) == 1).sum())):
                say(f"classes with one sample are left out of training: {lonely} of {len(training.class_names)}")
            with run.owned() if first else nullcontext():
                wait_for_all()  # nobody looks at the folder any more while the first one fills it
                if first:
                    take(claim, config, device)
                wait_for_all()
                training.loop(run, say, session, telling)
                pixels = training.held and training.held.pixels
                training = None  # what it holds on the device is not needed any more
                if first:
                    for name in RESULTS:  # of a state on the way, if somebody looked at it
                        (run.path / name).unlink(missing_ok=True)
                    (run.path / "done").touch()
                wait_for_all()
        if config.evaluate and (run.scores is None or set(config.metrics) - run.scores["metrics"].keys()):
            with session.evaluating():
                evaluate_run(
                    run, config=config, items=items, metrics=config.metrics, device=device, workers=config.workers,
                    quiet=config.quiet, pixels=pixels, known=True,
                )  # fmt: skip
            wait_for_all()  # what the first one writes is there for everyone
    return run


class Training(Recording):
    """The loop over what a training is made of."""

    def loop(self, run: Run, say, session: Session, telling: Telling) -> None:
        """Step after step, until the end, a stop on request, or patience runs out."""
        self.keep_record(run, session, telling)
        self.prepare_pictures(say)
        one_by_one(lambda: self.prepare_terms(run))
        self.restore(say)
        session.trained(self.step)
        self.line_up()
        config = self.config
        workers = choose_workers(config.workers) if self.items.x is None and self.held is None else 0
        self.start_sampler()
        feed = batches(
            self.items, self.chosen_rows(), self.augment, device=self.device, held=self.held, workers=workers,
            seed=config.seed, first_draw=self.step, shared=True,
        )  # fmt: skip
        images, began, saves = 0, time.monotonic(), Saves(self.checkpoint_every)
        title = bar("train", self.steps, start=self.step, quiet=config.quiet)
        with stop_on_signal() as stop, leave_cores_for(workers, self.device), title as progress:
            while self.step < self.steps and not self.out_of_patience():
                if self.judge_every and self.step % self.judge_every == 0:
                    self.judge()
                batch = self.next_batch(feed)
                self.one_step(batch)
                images += len(batch.row)
                last = self.step == self.steps
                if self.step % config.log_every == 0 or last:
                    self.log(images / max(time.monotonic() - began, 1e-9))
                    images, began = 0, time.monotonic()
                if self.confidence and (self.step % self.per_pass == 0 or last):
                    self.log_trust()
                if self.history and self.step % self.per_pass == 0:
                    self.history.end_pass(self.step)
                progress.advance(1, self.shown)
                if len(self.val_rows) and (self.step % self.validate_every == 0 or last):
                    self.validate()
                if self.peek_every and (self.step % self.peek_every == 0 or last):
                    self.peek()
                due, stopped = anybody(saves.due(self.step), stop.is_set())
                if (due or stopped) and not last:
                    with saves:
                        self.save()
                if stopped and not last:
                    raise Interrupted(self.run, self.step, self.steps)
        if self.history:
            self.history.end_pass(self.step)  # the last one may be cut short
        self.save()
        if self.confidence and world()[0] == 0:
            self.keep_trust()

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
        self.must_be_sound()
        self.seed(0)
        given = torch.as_tensor(self.labels, device=self.device)
        e = self.embed(self.rows, features=True)
        assert e.f is not None and self.confidence is not None
        z, f = e.z.to(self.device), e.f.to(self.device)
        verdict = self.confidence.judge(Embedded(z, given, torch.arange(len(given), device=self.device), f=f))
        if verdict is None:
            return
        verdict = replace(verdict, y=same_for_all(verdict.y), w=same_for_all(verdict.w))
        self.adopt(verdict)
        self.start_sampler()
        facts = self.watch.verdict(verdict, given, self.clean)
        self.note({"step": self.step + 1, "verdict": facts})  # the first step that goes by it

    def next_batch(self, feed: Iterator[Batch]) -> Batch:
        try:
            return next(feed)
        except LikewiseError as error:  # a broken picture: what was learned so far is not lost
            if world()[1] == 1:  # others wait for this step, and take part in nothing else
                self.save()
            hint = "; --skip-bad leaves such pictures out" if isinstance(error, BadImage) else ""
            raise LikewiseError(f"{error}. Training stopped at step {self.step}{hint}") from None

    def validate(self) -> None:
        """Score the validation part; keep the best network. The test part is never looked at here."""
        self.must_be_sound()
        e = self.embed(self.val_rows)
        score = mean_score(e, self.items, self.protocol, self.config.select, self.similarity, self.device)
        if score > self.best:
            best = self.tensors("embedder", "loss")
            if world()[0] == 0:
                self.run.save_tensors("best.safetensors", best)
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
        self.note(line)

    def peek(self) -> None:
        """Score the test part for the record, by the labels that evaluation goes by. Nothing here decides anything."""
        self.must_be_sound()
        rows = self.protocol.rows(self.given, "test")
        e = replace(as_compared(self.embed(rows), self.similarity), y=torch.as_tensor(self.given.y[rows]))
        names = [name for name in self.config.metrics if not of_the_set(name)]  # of those, high is good
        scores, _ = score(e, self.given, self.protocol, names, self.similarity, self.device, quiet=True)
        self.note({"step": self.step, **{f"{PEEK}{k}": float(np.nanmean(v)) for k, v in scores.each.items()}})

    def out_of_patience(self) -> bool:
        return self.config.patience is not None and self.waited >= self.config.patience

    def save(self) -> None:
        """One file from which training goes on exactly, and the network for everyone else."""
        self.must_be_sound()
        state = self.state()  # all processes take part in it
        if world()[0] != 0:
            return
        self.run.save_state(state)
        self.run.save_tensors("model.safetensors", {k: v for k, v in state["tensors"].items() if k.startswith(SHOWN)})
        if self.history:
            self.keep_losses()
        self.session.trained(self.step)

    def restore(self, say) -> None:
        state = self.run.load_state()
        if state is not None:
            self.load(state, self.run.path / "state.pt")
            if "rng" in state:
                say(
                    "this run was begun by an older likewise and goes on with other random numbers than it would have had"
                )
        wait_for_all()
        if int(same_for_all(torch.tensor(self.step))) != self.step:
            raise LikewiseError(
                f"train: all processes must see one folder '{self.run.path}', and this one finds step {self.step} in it, the "
                "first another; put it where all machines can read it"
            )
        if world()[0] == 0:
            self.telling.begin(self.step)
            self.run.rewind_log(self.step)
