"""The run folder: the only thing stages share.

    config.json          every setting, resolved; the data's fingerprint; the run's identity
    environment.json     versions, device, hardware, commit
    cost.json            its sessions: when, how long, on what, with how much energy
    log.jsonl            one line every so many steps
    model.safetensors    the last network and loss; best.safetensors the best on validation, where there was one
    state.pt             what resuming needs besides
    losses.npz           the loss of every training sample in every pass, where it was to be kept
    scores.json          means; per_query.parquet the values behind them; embeddings.npz what was scored
    done                 present when training has finished

Opening a run never executes code that came with it: tensors are safetensors or loaded as plain weights, specs are parsed.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
import threading
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from likewise.files import write_aside, write_json
from likewise.notebook import table, view
from likewise.types import LikewiseError

FORMAT = 1
RESULTS = (
    "scores.json", "per_query.parquet", "embeddings.npz", "gallery.png", "report.html", "hierarchy.png", "hierarchy.csv",
    "hierarchy.json", "detected.json",
)  # fmt: skip
"""What evaluating a run, and showing it, writes: of no other training, so it goes when a run is trained anew."""

TRAINED = (
    "config.json", "environment.json", "log.jsonl", "model.safetensors", "best.safetensors", "state.pt", "trust.npz",
    "losses.npz", "guidance.safetensors", "cost.json", "loggers.json", "done",
)  # fmt: skip
"""What training writes."""

STALE = 60.0
"""Seconds without a heartbeat after which a lock counts as left behind."""


class Losses(NamedTuple):
    """The loss of every training sample over time: its mean over the times it was in a batch, NaN in a pass without it.

    Unweighted; of the label trained with, where a confidence changed it; of the first network, where there were two.
    """

    row: Int[np.ndarray, "N"]  # of the data
    loss: Float[np.ndarray, "T N"]
    step: Int[np.ndarray, "T"]  # at which each pass ended; the last may have been cut short


class Run:
    """A folder that holds one training: its settings, its log, its network, its scores."""

    def __init__(self, path: str | Path):
        self.path = Path(path).expanduser()

    def __repr__(self) -> str:
        return f"Run('{self.path}')"

    @view
    def _repr_html_(self) -> str:
        from likewise.report.results import Scored

        config = self.about["config"]
        told = ("data", "backbone", "dim", "loss", "confidence", "noise", "length")
        lines = [("training", "finished" if self.done else "not finished")]
        lines += [(name, config[name]) for name in told if config.get(name) is not None]
        scores = "" if self.scores is None else Scored(self.scores)._repr_html_()
        return table(f"run {self.path}", (), lines) + scores

    @property
    def done(self) -> bool:
        return (self.path / "done").exists()

    @property
    def about(self) -> dict:
        """What config.json says: format, identity, data fingerprint, config."""
        file = self.path / "config.json"
        if not file.exists():
            raise LikewiseError(
                f"run: '{self.path}' is not a run folder: it has no config.json; a run is what `likewise train` wrote"
            )
        about = self.read_json("config.json")
        if not isinstance(about, dict) or not {"format", "identity", "config"} <= about.keys():
            raise LikewiseError(f"run: {file} is not a run's config")
        if not isinstance(about["format"], int) or about["format"] > FORMAT:
            raise LikewiseError(
                f"run: '{self.path}' was written by a newer likewise (format {about['format']}, this one reads up to "
                f"{FORMAT}); update likewise"
            )
        return about

    @property
    def scores(self) -> dict | None:
        return self.read_json("scores.json") if (self.path / "scores.json").exists() else None

    def read_json(self, name: str):
        try:
            return json.loads((self.path / name).read_text("utf-8"))
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            hint = "; delete it, and the same command writes it anew" if name in (*RESULTS, "cost.json") else ""
            raise LikewiseError(f"run: {self.path / name} is damaged ({error}){hint}") from None

    def write_json(self, name: str, value) -> None:
        write_json(self.path / name, value)

    def log(self, lines: list[dict]) -> None:
        with (self.path / "log.jsonl").open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)

    def read_log(self) -> list[dict]:
        """Lines of the log; one that a crash cut short is left out."""
        file = self.path / "log.jsonl"
        lines = []
        for text in file.read_text("utf-8").splitlines() if file.exists() else []:
            try:
                lines.append(json.loads(text))
            except json.JSONDecodeError:
                continue
        return lines

    def rewind_log(self, step: int) -> None:
        """Forget what was logged after `step`: it will be computed again."""
        kept = [line for line in self.read_log() if line.get("step", 0) <= step]
        with write_aside(self.path / "log.jsonl") as file:
            file.write_text("".join(json.dumps(line) + "\n" for line in kept), "utf-8")

    def losses(self) -> Losses | None:
        """What training with `keep_losses` kept so far; None where nothing was to be kept."""
        file = self.path / "losses.npz"
        if not file.exists():
            return None
        try:
            with np.load(file) as columns:
                return Losses(*(columns[name] for name in Losses._fields))
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            raise LikewiseError(f"run: {file} is damaged ({error}); --again trains the run anew") from None

    def save_tensors(self, name: str, tensors: dict[str, Tensor]) -> None:
        with write_aside(self.path / name) as file:
            save_file({k: v.detach().cpu().contiguous() for k, v in tensors.items()}, file)
            with suppress(OSError):  # it would be for its owner alone
                shutil.copymode(self.path / "config.json", file)

    def network(self, which: str) -> str:
        """The file of the network that is "best" on validation, where there was one, or else the "last"."""
        return (
            "best.safetensors" if which == "best" and (self.path / "best.safetensors").exists() else "model.safetensors"
        )

    def load_tensors(self, name: str) -> dict[str, Tensor]:
        file = self.path / name
        if not file.exists():
            raise LikewiseError(
                f"run: '{self.path}' has no {name} "
                + ("any more; --again trains it anew" if self.done else "yet; train it first")
            )
        try:
            return load_file(file)
        except (SafetensorError, OSError) as error:
            raise LikewiseError(f"run: {file} is damaged ({error}); it cannot be loaded") from None

    def save_state(self, state: dict) -> None:
        with write_aside(self.path / "state.pt") as aside, aside.open("wb") as file:
            torch.save(state, file)  # given a path, it would not say that the disk is full

    def load_state(self) -> dict | None:
        file = self.path / "state.pt"
        if not file.exists():
            return None
        try:
            return torch.load(file, map_location="cpu", weights_only=True)
        except Exception as error:  # torch raises many kinds for damaged or unsafe files
            reason = str(error).splitlines()[0]
            raise LikewiseError(
                f"run: {file} cannot be loaded as plain weights ({reason}); it is damaged or not ours. "
                "Delete it to train from the start"
            ) from None

    @contextmanager
    def owned(self) -> Iterator[None]:
        """Be the only one who trains here: a lock file with a heartbeat. Makes the folder if it is not there yet."""
        self.path.mkdir(parents=True, exist_ok=True)
        lock = self.path / "lock"
        me = json.dumps({"host": socket.gethostname(), "pid": os.getpid(), "since": time.time()})
        for _ in range(2):
            try:
                with lock.open("x") as file:
                    file.write(me)
                break
            except FileExistsError:
                if not _left_behind(lock):
                    raise LikewiseError(
                        f"run: somebody is training in '{self.path}' ({lock.read_text()}); wait, or delete {lock} "
                        "if you know better"
                    ) from None
                _take_away(lock)
        else:
            raise LikewiseError(f"run: '{self.path}' is being taken by another process; try again")
        stop = threading.Event()

        def beat() -> None:
            while not stop.wait(STALE / 6):
                try:
                    os.utime(lock)
                except OSError:
                    return

        threading.Thread(target=beat, daemon=True).start()
        try:
            yield
        finally:
            stop.set()
            if lock.exists() and lock.read_text() == me:  # not another's, should ours have been taken for left behind
                lock.unlink(missing_ok=True)


def _take_away(lock: Path) -> None:
    """Of two who find the same lock left behind, only one can rename it; the other must not remove the winner's."""
    aside = lock.with_name(f".lock.{os.getpid()}.{time.monotonic_ns()}")
    try:
        os.rename(lock, aside)
    except FileNotFoundError:
        return
    if _left_behind(aside):
        aside.unlink(missing_ok=True)
    else:  # somebody took it between the look and the rename
        os.rename(aside, lock)


def _left_behind(lock: Path) -> bool:
    try:
        owner, age = json.loads(lock.read_text() or "{}"), time.time() - lock.stat().st_mtime
    except (OSError, json.JSONDecodeError):
        return not lock.exists()
    if owner.get("host") == socket.gethostname() and owner.get("pid") and os.name != "nt":  # there, asking is killing
        try:
            os.kill(owner["pid"], 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            pass
    return age > STALE


def identity(config: dict, fingerprint: str) -> str:
    """What makes two runs the same: settings, data and the format of the folder."""
    text = json.dumps([FORMAT, fingerprint, config], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
