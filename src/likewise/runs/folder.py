"""The run folder: the only thing stages share.

    config.json          every setting, resolved; the data's fingerprint; the run's identity
    environment.json     versions, device, hardware, commit
    usage.json            its sessions: when, how long, on what, with how much energy
    log.jsonl            one line every so many steps
    model.safetensors    the last network and loss; best.safetensors the best on validation, where there was one
    state.pt             what resuming needs besides
    losses.npz           the loss of every training sample in every pass, where it was to be kept
    sample_weights.npz            label and weight of every training sample in the end, where a confidence set them
    scores.json          means; per_query.parquet the values behind them; embeddings.npz what was scored
    done                 present when training has finished

Opening a run never executes code that came with it: tensors are safetensors or loaded as plain weights, specs are parsed.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from likewise._notebook import table, view
from likewise.errors import RunBusy
from likewise.io.files import read_json, write_aside, write_json
from likewise.io.locks import HeartbeatLock, LockHeld
from likewise.pretrained.weights import DIGEST, brief, digest, read_safetensors
from likewise.runs.log import append_log, read_log, rewind_log
from likewise.runs.loss_history import Losses, read_losses
from likewise.runs.scores import ANEW, read_scores
from likewise.types import LikewiseError

FORMAT = 1
RESULTS = (
    "scores.json", "per_query.parquet", "embeddings.npz", "gallery.png", "report.html", "hierarchy.png", "hierarchy.csv",
    "hierarchy.json", "detected.json",
)  # fmt: skip
"""What evaluating a run, and showing it, writes: of no other training, so it goes when a run is trained anew."""

TRAINED = (
    "config.json", "environment.json", "log.jsonl", "model.safetensors", "best.safetensors", "state.pt", "sample_weights.npz",
    "losses.npz", "guidance.safetensors", "usage.json", "loggers.json", "done",
)  # fmt: skip
"""What training writes."""


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
        told = ("data", "backbone", "dim", "loss", "confidence", "noise", "epochs", "steps")
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
        """What scores.json says; None where the run was not evaluated."""
        return read_scores(self.path)

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
        hint = ANEW if name in (*RESULTS, "usage.json") else "delete it, it is only for the record"
        return read_json(self.path / name, "run", hint=hint if name != "config.json" else "")

    def write_json(self, name: str, value) -> None:
        write_json(self.path / name, value)

    def log(self, lines: list[dict]) -> None:
        append_log(self.path, lines)

    def read_log(self) -> list[dict]:
        """Return the lines of the log; a last line that a crash cut short is left out."""
        return read_log(self.path)

    def rewind_log(self, step: int) -> None:
        """Remove the lines after `step`, which a resumed training computes again."""
        rewind_log(self.path, step)

    def losses(self) -> Losses | None:
        """What training with `record_losses` kept so far; None where it kept nothing."""
        return read_losses(self.path)

    def save_tensors(self, name: str, tensors: dict[str, Tensor]) -> None:
        with write_aside(self.path / name) as file:
            tensors = {k: v.detach().cpu().contiguous() for k, v in tensors.items()}
            save_file(tensors, file, {DIGEST: digest(tensors)})
            with suppress(OSError):  # it would be for its owner alone
                shutil.copymode(self.path / "config.json", file)

    def network(self, checkpoint: str) -> str:
        """The file of the network that is "best" on validation, where there was one, or else the "last"."""
        return (
            "best.safetensors"
            if checkpoint == "best" and (self.path / "best.safetensors").exists()
            else "model.safetensors"
        )

    def load_tensors(self, name: str) -> dict[str, Tensor]:
        file = self.path / name
        if not file.exists():
            raise LikewiseError(
                f"run: '{self.path}' has no {name} "
                + ("any more; --restart trains it anew" if self.done else "yet; train it first")
            )
        try:
            return read_safetensors(file)
        except (SafetensorError, OSError, ValueError) as error:
            raise LikewiseError(
                f"run: {file} is damaged ({error}); restore a copy of it, or train the run anew with --restart"
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
        lock = HeartbeatLock(self.path / "lock")
        try:
            lock.acquire()
        except LockHeld as held:
            if held.owner is None:
                raise RunBusy(f"run: '{self.path}' is being taken by another process; try again") from None
            raise RunBusy(
                f"run: another process is training in '{self.path}' ({held.owner.get('pid', 'unknown')} on "
                f"{held.owner.get('host', 'an unknown machine')}); wait for it, or delete {lock.file} if it is gone"
            ) from None
        try:
            yield
        finally:
            lock.release()


def identity(config: dict, fingerprint: str) -> str:
    """What makes two runs the same: settings, data and the format of the folder."""
    text = json.dumps([FORMAT, fingerprint, config], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def find_target(target: str, owner: str) -> Path:
    """Return the path of a run folder or a file of embeddings, which must exist."""
    path = Path(target).expanduser()
    if not path.exists():
        raise LikewiseError(f"{owner}: there is no '{target}'; give a run folder, or a file of embeddings")
    return path
