"""Write the log, checkpoints, sample weights and losses of a training; send the log to loggers. Only the first process writes."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from likewise.core.argument_checks import fits
from likewise.core.contracts import Logger
from likewise.core.distributed.process_group import broadcast_from_first, wait_for_all
from likewise.core.errors import LikewiseError
from likewise.core.settings import Train, to_dict
from likewise.core.settings.spec import build, canonical
from likewise.data.crop_resize import send
from likewise.learn.training.state import TrainState
from likewise.models.cuda_graphs import Mode
from likewise.runs.folder import Run
from likewise.runs.training_files import FinalWeights, Losses, write_losses, write_sample_weights
from likewise.runs.usage import Session


@dataclass(frozen=True, eq=False)
class PendingScalars:
    """Scalars whose copy to the host was started, and the function that receives them."""

    names: tuple[str, ...]
    values: Float[Tensor, "n"]  # pinned host memory; valid once `copied` has happened
    copied: torch.cuda.Event
    write: Callable[[dict[str, float]], None]


class AsyncScalars:
    """Queue of scalars that are copied from the device to the host; callbacks receive them in order, without a device sync."""

    def __init__(self):
        self.pending: deque[PendingScalars] = deque()

    def add(self, values: dict[str, Tensor], write: Callable[[dict[str, float]], None]) -> None:
        """Start copying scalars to the host. `write` gets them as floats: at once on a CPU, else in a later call."""
        device = next(iter(values.values())).device  # the device of the step; scalars of components may be on the host
        stacked = torch.stack([send(v.detach(), device).float().mean() for v in values.values()])
        if not stacked.is_cuda:
            write(dict(zip(values, stacked.tolist(), strict=True)))
            return
        host = torch.empty(stacked.shape, dtype=stacked.dtype, pin_memory=True).copy_(stacked, non_blocking=True)
        copied = torch.cuda.Event()
        copied.record()
        self.pending.append(PendingScalars(tuple(values), host, copied, write))
        self.flush()

    def flush(self, wait: bool = False) -> None:
        """Call `write` for all scalars whose copy is complete; with `wait`, for all pending scalars."""
        while self.pending and (wait or self.pending[0].copied.query()):
            entry = self.pending.popleft()
            entry.copied.synchronize()
            entry.write(dict(zip(entry.names, entry.values.tolist(), strict=True)))


def shown_tensors(state: TrainState) -> dict[str, Tensor]:
    """Return the network, with averaged weights if they are averaged, and the loss, on the CPU. All processes must call it."""
    with state.averaged():
        return {name: t.detach().cpu().clone() for name, t in state.tensors("embedder", "loss").items()}


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
        """Save the network and the loss as the best on validation, with the weights that were scored."""
        best = shown_tensors(state)
        if self.writes:
            self.run.save_tensors("best.safetensors", best)

    def save(self, state: TrainState) -> None:
        """Save a checkpoint for an exact resume (state.pt), and the network alone (model.safetensors)."""
        self.check_finite(state)
        stored, shown = state.state_dict(), shown_tensors(state)
        if not self.writes:
            return
        self.run.save_state(stored)
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


def raise_unless_finite(value: float, step: int, folder: Path, what: str = "the loss") -> None:
    """Raise if a value is NaN or infinite; `what` names the value in the error."""
    if not math.isfinite(value):
        raise LikewiseError(
            f"train: {what} must stay finite, but became {value} before step {step}; lower --lr or set --clip-norm. "
            f"The last finite checkpoint is in {folder}"
        )


LOGGERS_FILE = "loggers.json"
"""File of the run folder: for every logger spec, the key of its record, and the (step, name) pairs that it received after the
last checkpoint."""

STORED_TYPES = {str: {"key": str, "sent": list}}
"""Types of the values in that file."""


def make_loggers(config: Train) -> dict[str, Logger]:
    """Return the loggers of the settings, by spec. Raises if a logger cannot be built, for example without its package."""
    return {canonical(text): build(text, Logger, allow_imports=config.allow_imports) for text in config.loggers}


class LoggerDispatch:
    """The loggers of a run. A context: leaving it ends the loggers, with the scores unless an exception was raised.

    A resumed training computes the steps after its last checkpoint again. The log of the run drops those lines, but a logger
    cannot: so a value that a logger received once, by step and name, is not sent again. A logger that is new to a run receives
    the log so far.
    """

    def __init__(self, run: Run, config: Train, loggers: dict[str, Logger], say: Callable[[str], None]):
        self.run, self.config, self.say = run, config, say
        self.loggers, self.sent = dict(loggers), {}
        self.thread: ThreadPoolExecutor | None = None

    def begin(self, step: int) -> None:
        """Start the loggers. Call it before the log is truncated to `step`, where training resumes."""
        if not self.loggers:
            return
        lines = self.run.read_log()
        stored = self.run.read_json(LOGGERS_FILE) if (self.run.path / LOGGERS_FILE).exists() else {}
        sent = [pair for entry in stored.values() for pair in entry["sent"]] if fits(stored, STORED_TYPES) else [None]
        if not all(fits(pair, [int, str]) for pair in sent):
            raise LikewiseError(
                f"train: {self.run.path / LOGGERS_FILE} must have the key and the sent values of each logger, but is damaged; "
                "delete it: the loggers then start new records"
            )
        beyond = {(line["step"], name) for line in lines if line.get("step", 0) > step for name in numbers_of(line)}
        self.sent = {text: beyond | {(at, name) for at, name in entry["sent"]} for text, entry in stored.items()}
        new = [text for text in self.loggers if text not in stored]
        self.thread = ThreadPoolExecutor(1, "loggers")
        self.thread.submit(self.start, stored)
        for text in new:
            for line in lines:
                if line.get("step", 0) <= step:
                    self.thread.submit(self.log, text, line)

    def start(self, stored: dict[str, dict]) -> None:
        """Call `start` of every logger, and write the keys of their records."""
        settings = {name: value for name, value in to_dict(self.config).items() if value is not None}
        for text, logger in list(self.loggers.items()):
            key = stored.get(text, {}).get("key")
            key = self.attempt(text, lambda: logger.start(self.run.path.name, self.run.path, settings, key))  # noqa: B023
            if key is not None:
                stored[text] = {"key": key, "sent": sorted(self.sent.get(text, ()))}
        self.run.write_json(LOGGERS_FILE, stored)

    def send(self, line: dict) -> None:
        """Send a line of the log to every logger."""
        if self.thread is None:
            return
        for text in list(self.loggers):
            self.thread.submit(self.log, text, line)

    def log(self, text: str, line: dict) -> None:
        """Send a line to one logger, without the values that it has received already."""
        known = self.sent.get(text, ())
        numbers = {n: v for n, v in numbers_of(line).items() if (line["step"], n) not in known}
        if numbers and text in self.loggers:
            self.attempt(text, lambda: self.loggers[text].log(line["step"], numbers))

    def attempt(self, text: str, call: Callable):
        """Call a method of a logger and return its result. A logger that fails is reported once and not used again."""
        try:
            return call()
        except BaseException as error:  # also KeyboardInterrupt: in this thread, the user cannot have caused it
            del self.loggers[text]
            reason = (str(error).splitlines() or [""])[0] or type(error).__name__
            self.say(f"logger {text} failed ({reason}); training continues without it")

    def __enter__(self) -> LoggerDispatch:
        return self

    def __exit__(self, kind: type | None, *_) -> None:
        if self.thread is None:
            return
        scores = None if kind is not None else numbers_of((self.run.scores or {}).get("metrics", {}), "test ")
        for text in list(self.loggers):
            self.thread.submit(self.end, text, scores)
        self.thread.shutdown()

    def end(self, text: str, scores: dict[str, float] | None) -> None:
        """Call `end` of one logger, unless it has failed before."""
        if text in self.loggers:
            self.attempt(text, lambda: self.loggers[text].end(scores))


def numbers_of(line: dict, before: str = "") -> dict[str, float]:
    """Return the numbers of a log line as a flat dict: {"lr": {"head": 0.1}} becomes {"lr/head": 0.1}."""
    found: dict[str, float] = {}
    for name, value in line.items():
        if isinstance(value, dict):
            found |= numbers_of(value, f"{before}{name}/")
        elif isinstance(value, int | float) and not isinstance(value, bool) and (before or name != "step"):
            found[f"{before}{name}"] = float(value)
    return found
