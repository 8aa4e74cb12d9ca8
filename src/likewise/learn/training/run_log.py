"""Write the log, checkpoints, sample weights and losses of a training. Only the first process writes."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch

from likewise.core.distributed.process_group import broadcast_from_first, wait_for_all
from likewise.core.errors import LikewiseError
from likewise.learn.training.async_scalars import AsyncScalars
from likewise.learn.training.interrupts import raise_unless_finite
from likewise.learn.training.logger_dispatch import LoggerDispatch
from likewise.learn.training.state import TrainState
from likewise.runs.engine.cuda_graphs import Mode
from likewise.runs.folder import Run
from likewise.runs.loss_history import Losses, write_losses
from likewise.runs.sample_weights import FinalWeights, write_sample_weights
from likewise.runs.usage import Session

MODEL_PREFIXES = ("embedder.", "loss.")
"""Prefixes of the tensors in model.safetensors: the network, and the parameters of the loss."""


class RunLog:
    """Writes into the run folder and to the loggers.

    Args:
        session: records the time and energy of this process.
        loggers: receive every line of the log.
        writes: whether this process writes files; the others only take part in collective operations.

    Attributes:
        shown: text for the progress bar; None before the first line of the log.
    """

    def __init__(self, run: Run, session: Session, loggers: LoggerDispatch, writes: bool = True):
        self.run, self.session, self.loggers, self.writes = run, session, loggers, writes
        self.scalars = AsyncScalars()
        self.shown: str | None = None
        self.logged_mode: Mode | None = None

    def restore(self, state: TrainState) -> None:
        """Load the last checkpoint into the state, if there is one, and truncate the log to its step."""
        if (stored := self.run.load_state()) is not None:
            state.load_state_dict(stored, self.run.path / "state.pt")
        wait_for_all()
        if int(broadcast_from_first(torch.tensor(state.step))) != state.step:
            raise LikewiseError(
                f"train: all processes must share the run folder '{self.run.path}', but this process found a checkpoint of step "
                f"{state.step} there and the first process found another; use an --out that all machines share"
            )
        if self.writes:
            self.loggers.begin(state.step)
            self.run.rewind_log(state.step)
        self.session.trained(state.step)

    def check_finite(self, state: TrainState) -> None:
        """Raise if the loss or a parameter is not finite: a diverged network is neither saved nor scored."""
        self.scalars.flush(wait=True)
        if state.counted:
            raise_unless_finite(float(state.total) / state.counted, state.step, self.run.path)
        every = [p.detach() for component in state.components.trained() for p in component.parameters()]
        every = [p for p in every if p.numel() and p.is_floating_point()]
        if every and not torch.stack([n.float() for n in torch._foreach_norm(every, math.inf)]).isfinite().all():
            raise_unless_finite(math.nan, state.step, self.run.path, "a parameter")

    def note(self, line: dict) -> None:
        """Write a line to the log, after all lines whose values are still being copied from the device."""
        self.scalars.flush(wait=True)
        self.write(line)

    def write(self, line: dict) -> None:
        """Write a line to the log and to the loggers."""
        if self.writes:
            self.run.log([line])
            self.loggers.send(line)

    def log_step(self, state: TrainState, mode: Mode | None, milliseconds: Mapping[Mode, float], rate: float) -> None:
        """Write a line about the steps since the last line, as soon as its values were copied from the device.

        Args:
            mode: execution mode of the network; None if not decided yet.
            milliseconds: time per step of every execution mode that was tried.
            rate: images per second.
        """
        line = {"step": state.step, "loss": None, "lr": {g["name"]: g["lr"] for g in state.optimizer.param_groups}}
        line |= {"images_per_s": round(rate, 1)} | self.mode_facts(mode, milliseconds)
        seen = {"loss": state.total / state.counted}
        for component in (state.components.loss, state.sampler, state.components.confidence, *state.components.terms):
            seen |= {} if component is None else component.observe_state()
        names, monitor = tuple(seen), state.monitor

        def write(numbers: dict[str, float]) -> None:
            raise_unless_finite(numbers["loss"], line["step"], self.run.path)
            means = monitor.means(numbers)
            self.write(line | {name: numbers[name] for name in names} | ({"sample_weights": means} if means else {}))
            self.shown = f"loss {numbers['loss']:.3f}  {rate:.0f} images/s"

        self.scalars.add(seen | monitor.take_sums(), write)
        self.scalars.flush(wait=state.processes > 1)  # all processes must see a NaN in the same step
        state.total, state.counted = torch.zeros_like(state.total), 0

    def mode_facts(self, mode: Mode | None, milliseconds: Mapping[Mode, float]) -> dict:
        """Return the execution mode and its timings for the first line after it was chosen; {} for later lines."""
        if mode is None or mode == self.logged_mode:
            return {}
        self.logged_mode = mode
        tried = {name: round(ms, 2) for name, ms in milliseconds.items() if ms < math.inf}
        return {"execution": mode} | ({"speed_ms": tried} if tried else {})

    def log_suspicion(self, state: TrainState) -> None:
        """Write the histogram of suspicions to the log, if there are any."""
        if (histogram := state.monitor.histogram()) is not None:
            self.note({"step": state.step, "suspicion": histogram})

    def save_best(self, state: TrainState) -> None:
        """Save the network and the loss as the best on validation."""
        best = state.tensors("embedder", "loss")  # all processes take part
        if self.writes:
            self.run.save_tensors("best.safetensors", best)

    def save(self, state: TrainState) -> None:
        """Save a checkpoint for an exact resume (state.pt), and the network alone (model.safetensors)."""
        self.check_finite(state)
        stored = state.state_dict()  # all processes take part
        if not self.writes:
            return
        self.run.save_state(stored)
        shown = {k: v for k, v in stored["tensors"].items() if k.startswith(MODEL_PREFIXES)}
        self.run.save_tensors("model.safetensors", shown)
        if state.history:
            self.save_losses(state)
        self.session.trained(state.step)

    def save_sample_weights(self, state: TrainState) -> None:
        """Write sample_weights.npz: the last suspicion, label and weight of every training sample."""
        if not self.writes:
            return
        samples = state.samples
        suspicion, _, w = state.monitor.last.cpu().numpy()
        names = np.asarray(samples.class_names)
        final = FinalWeights(samples.rows, names[samples.labels], names[state.y.cpu()], suspicion, w)
        write_sample_weights(self.run.path, final)

    def save_losses(self, state: TrainState) -> None:
        """Write losses.npz: the loss of every training sample in every epoch."""
        history, rows = state.history, state.samples.rows
        assert history is not None
        loss = np.reshape([line.numpy() for line in history.loss], (-1, len(rows))).astype(np.float32)
        write_losses(self.run.path, Losses(rows, loss, np.asarray(history.step, np.int64)))
