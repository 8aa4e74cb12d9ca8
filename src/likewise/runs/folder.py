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
import tempfile
import threading
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from likewise._notebook import table, view
from likewise.errors import RunBusy
from likewise.io.files import read_json, write_aside, write_json
from likewise.io.processes import lives, mark
from likewise.pretrained.weights import DIGEST, brief, digest, read_safetensors
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

ANEW = "delete it, and the same command writes it anew"

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

    def __fspath__(self) -> str:
        """The folder, so that a run can stand wherever a path can."""
        return str(self.path)

    @view
    def _repr_html_(self) -> str:
        from likewise.render.results import Scored

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
        about: dict[str, Any] = {"data": ""} | self.read_json("config.json")
        kinds = {"format": int, "identity": str, "data": str, "config": dict}
        if any(not isinstance(about.get(name), kind) for name, kind in kinds.items()):
            raise LikewiseError(f"run: {file} is not a run's config")
        if type(about.get("features")) not in (int, type(None)):
            raise LikewiseError(f"run: {file} is damaged (features must be a whole number, got {about['features']!r})")
        if about["format"] > FORMAT:
            raise LikewiseError(
                f"run: '{self.path}' was written by a newer likewise (format {about['format']}, this one reads up to "
                f"{FORMAT}); update likewise"
            )
        return about

    @property
    def scores(self) -> dict | None:
        if not (self.path / "scores.json").exists():
            return None
        scores = self.read_json("scores.json")
        values = scores.get("metrics")
        if not isinstance(values, dict) or any(type(v) not in (int, float, type(None)) for v in values.values()):
            raise LikewiseError(f"run: {self.path / 'scores.json'} is damaged (metrics must be numbers); {ANEW}")
        return scores

    @property
    def environment(self) -> dict:
        """What environment.json says; empty where the run has none."""
        if not (self.path / "environment.json").exists():
            return {}
        made = self.read_json("environment.json")
        if any(not isinstance(made.get(name, {}), dict) for name in ("versions", "device")):
            raise LikewiseError(
                f"run: {self.path / 'environment.json'} is damaged; delete it, it is only for the record"
            )
        return made

    def read_json(self, name: str) -> dict:
        hint = ANEW if name in (*RESULTS, "cost.json") else "delete it, it is only for the record"
        return read_json(self.path / name, "run", hint=hint if name != "config.json" else "")

    def write_json(self, name: str, value) -> None:
        write_json(self.path / name, value)

    def log(self, lines: list[dict]) -> None:
        with (self.path / "log.jsonl").open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)

    def read_log(self) -> list[dict]:
        """Return the lines of the log; a last line that a crash cut short is left out."""
        file, lines = self.path / "log.jsonl", []
        texts = file.read_bytes().splitlines() if file.exists() else []
        for number, text in enumerate(texts, 1):
            try:
                line = json.loads(text.decode())
                if not isinstance(line, dict):
                    raise ValueError(f"a {type(line).__name__} instead of an object")
            except (ValueError, RecursionError) as error:
                if number == len(texts):
                    break
                raise LikewiseError(f"run: line {number} of {file} is damaged ({error}); delete that line") from None
            lines.append(line)
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
            tensors = {k: v.detach().cpu().contiguous() for k, v in tensors.items()}
            save_file(tensors, file, {DIGEST: digest(tensors)})
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
            return read_safetensors(file)
        except (SafetensorError, OSError, ValueError) as error:
            raise LikewiseError(
                f"run: {file} is damaged ({error}); restore a copy of it, or train the run anew with --again"
            ) from None

    def save_state(self, state: dict) -> None:
        with write_aside(self.path / "state.pt") as aside, aside.open("wb") as file:
            torch.save(state, file)  # given a path, it would not say that the disk is full

    def load_state(self) -> dict | None:
        file = self.path / "state.pt"
        if not file.exists():
            return None
        try:
            with zipfile.ZipFile(file) as records:  # torch writes their check sums, but does not look at them
                if damaged := records.testzip():
                    raise ValueError(f"the check sum of {damaged} does not match")
            return torch.load(file, map_location="cpu", weights_only=True)
        except Exception as error:  # zipfile and torch raise many kinds for damaged or unsafe files
            raise LikewiseError(
                f"run: {file} cannot be loaded as plain weights ({brief(error)}); it is damaged or not ours. "
                "Restore a copy of it, or delete it to train from the start"
            ) from None

    @contextmanager
    def owned(self) -> Iterator[None]:
        """Be the only one who trains here: a lock file with a heartbeat. Makes the folder if it is not there yet."""
        self.path.mkdir(parents=True, exist_ok=True)
        lock = self.path / "lock"
        me = json.dumps({"host": socket.gethostname(), "since": time.time(), **mark()})
        for _ in range(2):
            try:
                with lock.open("x") as file:
                    file.write(me)
                break
            except FileExistsError:
                if not _left_behind(lock):
                    owner = _owner(lock)
                    raise RunBusy(
                        f"run: another process is training in '{self.path}' ({owner.get('pid', 'unknown')} on "
                        f"{owner.get('host', 'an unknown machine')}); wait for it, or delete {lock} if it is gone"
                    ) from None
                _take_away(lock)
        else:
            raise RunBusy(f"run: '{self.path}' is being taken by another process; try again")
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
            if _owner(lock) == json.loads(me):  # not another's, should ours have been taken for left behind
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
    """Whether the owner of a lock is gone: by its process where that can be seen from here, else by its heartbeat."""
    try:
        beat = lock.stat().st_mtime
        with tempfile.TemporaryFile(dir=lock.parent) as now:  # by the clock of the disk, which may be a server's
            age = os.fstat(now.fileno()).st_mtime - beat
    except FileNotFoundError:
        return True
    alive = lives(_owner(lock))
    return age > STALE if alive is None else not alive


def _owner(lock: Path) -> dict:
    """What a lock says; nothing where it is damaged, half written or gone."""
    try:
        return read_json(lock, "run")
    except (LikewiseError, OSError):
        return {}


def identity(config: dict, fingerprint: str) -> str:
    """What makes two runs the same: settings, data and the format of the folder."""
    text = json.dumps([FORMAT, fingerprint, config], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
