"""The run folder, through which all commands exchange data.

    config.json          every setting, resolved; the data's fingerprint and skipped images; the run's identity
    environment.json     versions, device, hardware, commit
    usage.json           sessions: start, duration, device, energy
    log.jsonl            one line for every `log_every` steps, validation and relabelling round
    model.safetensors    the last network and loss; best.safetensors: the best on validation, if there is a validation split
    state.pt             the checkpoint that resuming needs; `likewise train` deletes it at the end
    losses.npz           the loss of every training sample in every epoch, with `record_losses`
    trained.npz          keys of the samples that trained, so that an evaluation on other data leaves them out
    sample_weights.npz   final label and weight of every training sample, with a confidence
    scores.json          mean of every metric; per_query.parquet: its values; embeddings.npz: the embeddings
    calibration.json     thresholds and probabilities that `calibrate` chose; calibration.npz: the validation embeddings
    done                 present when training has finished

Opening a run never executes code from its folder: tensors are safetensors or loaded with weights_only, specs are parsed.
"""

from __future__ import annotations

import hashlib
import json
import os
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

from likewise.core.argument_checks import fits, misfit
from likewise.core.errors import RunBusy
from likewise.core.files import atomic_write, no_link, read_json, write_json
from likewise.core.locks import HeartbeatLock, LockHeld
from likewise.core.notebook import table, view
from likewise.core.types import LikewiseError
from likewise.data.shards import is_shards
from likewise.models.pretrained.weights import DEFAULT_BACKBONE, DIGEST_KEY, brief, digest, read_safetensors
from likewise.runs.scores import REWRITE_HINT, read_scores
from likewise.runs.training_files import Losses, read_losses

LOG_FILE = "log.jsonl"

LINE_TYPES = {
    "step": int, "loss": float | None, "lr": dict[str, float], "images_per_s": float, "sample_weights": dict[str, float],
    "relabelling": dict[str, float],
    "suspicion": {
        "edges": [float, float], "right": list[int], "wrong": list[int] | None, "weight": list[float | None],
        "threshold": float | None,
    },
}  # fmt: skip
"""Types of the entries of a line that training and the report read again."""

TEST_PREFIX = "test "
"""Prefix of the metrics that training measures on the test split (`test_every`)."""


def best_test_epoch(lines: list[dict]) -> dict[str, float] | None:
    """Return the best value of each metric that training measured on the test split (`test_every`); None if it did not.

    These values are selected by test labels. Use them only to compare with papers that report such values.
    """
    seen: dict[str, list[float]] = {}
    for line in lines:
        for key, value in line.items():
            if key.startswith(TEST_PREFIX):
                seen.setdefault(key.removeprefix(TEST_PREFIX), []).append(value)
    return {name: max(values) for name, values in seen.items()} or None


FORMAT = 1
RESULT_FILES = (
    "scores.json", "per_query.parquet", "embeddings.npz", "all_embeddings.npz", "gallery.png", "report.html", "hierarchy.png",
    "hierarchy.csv", "hierarchy.json", "detected.json", "spectra.json", "calibration.json", "calibration.npz", "calibration.png",
)  # fmt: skip
"""Files that evaluation and reports write. Training a run again deletes them: they describe its old network."""

TRAINING_FILES = (
    "config.json", "environment.json", "log.jsonl", "model.safetensors", "best.safetensors", "state.pt", "sample_weights.npz",
    "losses.npz", "guidance.safetensors", "usage.json", "loggers.json", "trained.npz", "done",
)  # fmt: skip
"""Files that training writes."""


class Run:
    """The folder of one training: settings, log, network and scores."""

    def __init__(self, path: str | Path):
        self.path = Path(path).expanduser()

    def __repr__(self) -> str:
        return f"Run('{self.path}')"

    def __fspath__(self) -> str:
        """Return the folder, so that a run can be used as a path."""
        return str(self.path)

    @view
    def _repr_html_(self) -> str:
        config = self.about["config"]
        shown = ("data", "backbone", "dim", "loss", "confidence", "noise", "epochs", "steps")
        lines = [("training", "finished" if self.done else "not finished")]
        lines += [(name, config[name]) for name in shown if config.get(name) is not None]
        if self.scores is not None:
            lines += [(name, f"{value:.4f}") for name, value in self.scores["metrics"].items()]
        return table(f"run {self.path}", (), lines)

    @property
    def done(self) -> bool:
        """Whether training has finished."""
        return (self.path / "done").exists()

    @property
    def backbone_note(self) -> str:
        """A sentence about the backbone, if it was chosen in place of the default one; otherwise ""."""
        choice = str(self.about.get("backbone_chosen", ""))
        if not choice or self.about["config"].get("backbone") == DEFAULT_BACKBONE:
            return ""
        return f"No backbone was named, so one was chosen: {choice.removeprefix('backbone ')}."

    @property
    def about(self) -> dict:
        """The content of config.json: format, identity, data fingerprint, config."""
        file = self.path / "config.json"
        if not file.exists():
            raise LikewiseError(
                f"run: '{self.path}' is not a run folder: it has no config.json; give a folder that `likewise train` wrote"
            )
        about: dict[str, Any] = {"data": ""} | self.read_json("config.json")
        kinds = {"format": int, "identity": str, "data": str, "config": dict}
        if any(not isinstance(about.get(name), kind) for name, kind in kinds.items()):
            raise LikewiseError(
                f"run: {file} must have format, identity, data and config, as `likewise train` writes them; it is damaged or "
                "from another program: restore a copy of it"
            )
        if type(about.get("features")) not in (int, type(None)):
            raise LikewiseError(
                f"run: {file} is damaged (features must be a whole number, got {about['features']!r}); restore a copy of it"
            )
        if about["format"] > FORMAT:
            raise LikewiseError(
                f"run: '{self.path}' was written by a newer version of likewise (format {about['format']}, this version reads up "
                f"to {FORMAT}); update likewise"
            )
        return about

    @property
    def skipped(self) -> list[list]:
        """Row and path of the images that the training skipped, because they could not be decoded."""
        skipped = self.about.get("skipped", [])
        if not isinstance(skipped, list) or not all(fits(one, [int, str]) for one in skipped):
            raise LikewiseError(
                f"run: {self.path / 'config.json'} is damaged (skipped must be pairs of row and path); restore a copy of it"
            )
        return skipped

    @property
    def scores(self) -> dict | None:
        """The content of scores.json; None if the run was not evaluated."""
        return read_scores(self.path)

    @property
    def environment(self) -> dict:
        """The content of environment.json; empty if the run has none."""
        if not (self.path / "environment.json").exists():
            return {}
        made = self.read_json("environment.json")
        if any(not isinstance(made.get(name, {}), dict) for name in ("versions", "device")):
            raise LikewiseError(f"run: {self.path / 'environment.json'} is damaged; delete it: no command needs it")
        return made

    def read_json(self, name: str) -> dict:
        """Return the content of a JSON file of the run."""
        hint = REWRITE_HINT if name in (*RESULT_FILES, "usage.json") else "delete it: no command needs it"
        return read_json(self.path / name, "run", hint=hint if name != "config.json" else "restore a copy of it")

    def write_json(self, name: str, value) -> None:
        """Write a JSON file of the run."""
        write_json(self.path / name, value)

    def log(self, lines: list[dict]) -> None:
        """Append lines to the log."""
        with open(self.path / LOG_FILE, "a", encoding="utf-8", opener=no_link) as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)

    def read_log(self) -> list[dict]:
        """Return the lines of the log, without a last line that a crash has truncated."""
        file, lines = self.path / LOG_FILE, []
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
            scores = {name: float for name in line if name.startswith(("val ", TEST_PREFIX))}
            if (wrong := misfit(line, LINE_TYPES | scores)) is not None:
                raise LikewiseError(
                    f"run: line {number} of {file} is damaged (the value of {wrong} has another type); delete that line"
                )
            lines.append(line)
        return lines

    def rewind_log(self, step: int) -> None:
        """Remove the lines after `step`, which a resumed training computes again."""
        kept = [line for line in self.read_log() if line.get("step", 0) <= step]
        with atomic_write(self.path / LOG_FILE) as file:
            file.write_text("".join(json.dumps(line) + "\n" for line in kept), "utf-8")

    def losses(self) -> Losses | None:
        """Return the losses that training with `record_losses` has written so far; None if there are none."""
        return read_losses(self.path)

    def save_tensors(self, name: str, tensors: dict[str, Tensor]) -> None:
        """Write a safetensors file of the run, with a digest of its content."""
        with atomic_write(self.path / name) as file:
            tensors = {k: v.detach().cpu().contiguous() for k, v in tensors.items()}
            save_file(tensors, file, {DIGEST_KEY: digest(tensors)})
            with suppress(OSError):  # a temporary file is readable for its owner only
                shutil.copymode(self.path / "config.json", file)

    def network(self, checkpoint: str) -> str:
        """Return the name of the file of a checkpoint: "best" on validation, or "last". Without a best one, the last."""
        return (
            "best.safetensors"
            if checkpoint == "best" and (self.path / "best.safetensors").exists()
            else "model.safetensors"
        )

    def load_tensors(self, name: str) -> dict[str, Tensor]:
        """Return the tensors of a safetensors file of the run."""
        file = self.path / name
        if not file.exists():
            raise LikewiseError(
                f"run: '{self.path}' has no {name} "
                + ("any more; use --restart to train it again" if self.done else "yet; train it first")
            )
        try:
            return read_safetensors(file)
        except (SafetensorError, OSError, ValueError) as error:
            raise LikewiseError(
                f"run: {file} is damaged ({error}); restore a copy of it, or train the run again with --restart"
            ) from None

    def save_state(self, state: dict) -> None:
        """Write the checkpoint of training, state.pt."""
        with atomic_write(self.path / "state.pt") as aside, aside.open("wb") as file:
            torch.save(state, file)  # a file object: with a path, torch's error would not mention a full disk

    def load_state(self) -> dict | None:
        """Return the checkpoint of training; None if there is none."""
        file = self.path / "state.pt"
        if not file.exists():
            return None
        try:
            with zipfile.ZipFile(file) as records:  # torch writes check sums but does not verify them
                if damaged := records.testzip():
                    raise ValueError(f"the check sum of {damaged} does not match")
            return torch.load(file, map_location="cpu", weights_only=True)
        except Exception as error:  # zipfile and torch raise many kinds for damaged or unsafe files
            raise LikewiseError(
                f"run: {file} must be a checkpoint of plain tensors, but cannot be loaded ({brief(error)}); it is damaged or "
                "from another program: restore a copy of it, or delete it to train from the start"
            ) from None

    def finish(self) -> None:
        """Mark the training as finished, and delete results of an earlier checkpoint."""
        for name in RESULT_FILES:
            (self.path / name).unlink(missing_ok=True)
        (self.path / "done").touch()

    @contextmanager
    def owned(self) -> Iterator[None]:
        """Hold the lock of the folder, so that no other process trains in it; creates the folder. Raises RunBusy if locked."""
        self.path.mkdir(parents=True, exist_ok=True)
        lock = HeartbeatLock(self.path / "lock")
        try:
            lock.acquire()
        except LockHeld as held:
            if held.owner is None:
                raise RunBusy(f"run: another process is just locking '{self.path}'; try again") from None
            raise RunBusy(
                f"run: another process is training in '{self.path}' (process {held.owner.get('pid', 'unknown')} on "
                f"{held.owner.get('host', 'an unknown machine')}); wait until it ends, or delete {lock.file} if that process "
                "does not exist any more"
            ) from None
        try:
            yield
        finally:
            lock.release()


def identity(config: dict, fingerprint: str) -> str:
    """Return the identity of a run: a hash of its settings, its data and the format of the folder."""
    text = json.dumps([FORMAT, fingerprint, config], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def find_target(target: str, owner: str) -> Path:
    """Return the path of a run folder, an embeddings file or a folder of shards, which must exist."""
    path = Path(target).expanduser()
    if not os.path.exists(path):
        raise LikewiseError(f"{owner}: there is no '{target}'; give a run folder, or a file of embeddings")
    return path


def is_folder_of_run(path: Path) -> bool:
    """Whether a path is a folder, but not one of shards, which is read as a file of embeddings."""
    return path.is_dir() and not is_shards(path)
