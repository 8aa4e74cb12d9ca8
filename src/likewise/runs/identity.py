"""Find the run folder of a training, and prepare it for training from the start or for resuming."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import torch

from likewise.core.errors import RunBusy
from likewise.core.settings import SETTINGS_OUTSIDE_IDENTITY, SPECS, Train, texts_of, to_dict
from likewise.core.settings.spec import files
from likewise.core.types import Items, LikewiseError
from likewise.data.fingerprint import fingerprint
from likewise.models.pretrained.encoders import content_of
from likewise.runs.folder import FORMAT, RESULT_FILES, TRAINING_FILES, Run, identity
from likewise.runs.machine import environment

STARTUP_FILES = {"lock", "environment.json"}
"""Files in the folder of a training that was killed before it wrote config.json."""

FAILURE_FILES = ("config.json", "environment.json", "usage.json", "log.jsonl")
"""Files that a training writes before its first checkpoint, and that are worth nothing without one."""


@dataclass(frozen=True)
class Claim:
    """The run folder of a training, and the content of config.json that identifies the training."""

    run: Run
    about: dict


def find_run(config: Train, items: Items, data: str | None = None, choice: str = "") -> Claim:
    """Return the run folder of these settings and data, which may not exist yet. Raises if it holds another run.

    Args:
        data: fingerprint of the items; None: it is computed.
        choice: why this backbone was chosen; "" if the user or the data chose it. It is stored, and no part of the identity.
    """
    settings, data = to_dict(config), data or fingerprint(items)
    learned = learned_settings(config)
    key = identity_of(config, data)
    run = Run(config.out or default_folder(config, items, key))
    features = None if items.x is None else items.x.shape[1]
    about = {"format": FORMAT, "identity": key, "data": data, "features": features, "config": settings}
    about |= {"backbone_chosen": choice} if choice else {}
    about |= {"relevance_files": read} if (read := contents_of(config.relevance)) else {}
    about |= {"skipped": [list(one) for one in items.skipped]} if items.skipped else {}
    if (run.path / "config.json").exists():
        stored = run.about
        if stored["identity"] != key and not is_free(run):
            old = stored["config"]
            changes = [f"{k}: {old[k]} there, {v} here" for k, v in learned.items() if k in old and old[k] != v]
            changes += ["the data"] if stored["data"] != data else []
            reason = "; ".join(changes[:4]) or "another weight file or format"
            other = old.get("backbone") if choice and old.get("backbone") != config.backbone else None
            raise LikewiseError(
                f"train: '{run.path}' must be empty or hold a run with the same settings, but it holds another run ({reason}); "
                + (f"add --backbone {other} for that run, " if other else "")
                + "choose another --out, or delete that folder"
            )
    elif run.path.exists() and (
        not run.path.is_dir() or {p.name for p in run.path.iterdir()} - STARTUP_FILES - unfinished(run)
    ):
        raise LikewiseError(
            f"train: '{run.path}' must be empty or a run folder, but it exists and is not a run; choose another --out"
        )
    return Claim(run, about)


NEUTRAL_VALUES = {"freeze_backbone": False, "lora": None, "relevance": None, "votes": None, "average": 0.0}
"""Settings that were added after the first records were published -> the value that trains as before. With this value they are
no part of the identity, so `bench --adopt` still recognises these records."""


def learned_settings(config: Train) -> dict:
    """Return the settings that change what is learned."""
    settings = {k: v for k, v in to_dict(config).items() if k not in SETTINGS_OUTSIDE_IDENTITY}
    return {k: v for k, v in settings.items() if k not in NEUTRAL_VALUES or v != NEUTRAL_VALUES[k]}


def identity_of(config: Train, data: str) -> str:
    """Return the identity of resolved settings with data of this fingerprint."""
    read = {file: content for text in texts_of(config, SPECS) for file, content in contents_of(text).items()}
    counts = learned_settings(config) | {"weights": hash_of(config.weights)} | ({"files": read} if read else {})
    counts |= {"votes": hash_of(config.votes, "--votes")} if config.votes else {}
    return identity(counts, data)


def contents_of(text: str | None) -> dict[str, str]:
    """Return the files and folders in a spec -> SHA-256 of their content."""
    return {file: content_of(file) for file in files(text)} if text else {}


def default_folder(config: Train, items: Items, key: str) -> str:
    """Return the folder of a run without --out."""
    return f"runs/{items.name}-{config.loss.split('(')[0]}-{key[:8]}"


def unfinished(run: Run) -> set[str]:
    """Return the temporary files of a killed training; the files that they should have replaced are still valid."""
    return {file.name for name in TRAINING_FILES for file in run.path.glob(f".{name}.*.part")}


def is_free(run: Run) -> bool:
    """Return whether the folder has no checkpoint yet, so that a training with other settings may use it."""
    return not any((run.path / name).exists() for name in ("state.pt", "model.safetensors", "done"))


@contextmanager
def cleared_after_failure(
    run: Run, writes: bool = True, has_begun: Callable[[], bool] = lambda: False
) -> Iterator[None]:
    """Delete what a training wrote if it fails before its first step, and the folder if it is then empty.

    Args:
        writes: whether this process writes into the folder.
        has_begun: returns whether a step was made: the folder then stays, with its log.
    """
    try:
        yield
    except RunBusy:  # the folder belongs to another process
        raise
    except LikewiseError:
        if writes and not has_begun() and is_free(run) and not (run.path / "lock").exists():
            for name in FAILURE_FILES:
                (run.path / name).unlink(missing_ok=True)
            with suppress(OSError):  # the folder has other files
                run.path.rmdir()
        raise


def hash_of(file: str | None, flag: str = "--weights") -> str | None:
    """Return the SHA-256 of a weight file or folder: other content under the same name gives another identity."""
    if file is None:
        return None
    if Path(file).expanduser().is_dir():
        return content_of(file)
    try:
        with Path(file).expanduser().open("rb") as content:
            return hashlib.file_digest(content, "sha256").hexdigest()
    except OSError as error:
        raise LikewiseError(f"train: {flag} '{file}' cannot be read ({error.strerror}); check the path") from None


def prepare_folder(claim: Claim, config: Train, device: torch.device) -> None:
    """Prepare the run folder for training; call it with the lock held.

    A run with the same identity keeps its checkpoint, unless it is finished and `restart` is set. Otherwise the files of the
    old run are deleted, and config.json and environment.json are written.
    """
    run = claim.run
    for name in unfinished(run):
        (run.path / name).unlink(missing_ok=True)
    if (run.path / "config.json").exists():
        if run.about["identity"] == claim.about["identity"] and (not config.restart or not run.done):
            for name in RESULT_FILES:  # they describe an earlier checkpoint
                (run.path / name).unlink(missing_ok=True)
            return
        for name in (*TRAINING_FILES, *RESULT_FILES):  # only these: users may keep files of their own in the folder
            (run.path / name).unlink(missing_ok=True)
    run.write_json("environment.json", environment(device))
    run.write_json("config.json", claim.about)
