"""Which folder a training belongs to, and taking it: new, unfinished, or finished already."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import torch

from likewise.config import KEPT_OUT, SPECS, Train, texts_of, to_dict
from likewise.config.spec import files
from likewise.data.fingerprint import fingerprint
from likewise.pretrained.encoders import content_of
from likewise.runs.environment import environment
from likewise.runs.folder import FORMAT, RESULTS, TRAINED, Run, identity
from likewise.types import Items, LikewiseError

BEGINNING = {"lock", "environment.json"}
"""What a training that was killed at its very start may have left."""


@dataclass(frozen=True)
class Claim:
    """A run's folder, and what config.json must say for it to be this training's."""

    run: Run
    about: dict


def find_run(config: Train, items: Items, data: str | None = None) -> Claim:
    """The folder these settings and data belong to, whether or not it exists yet. One that holds something else is refused.

    Args:
        data: the fingerprint of the items, where it is known.
    """
    settings, data = to_dict(config), data or fingerprint(items)
    learned = {k: v for k, v in settings.items() if k not in KEPT_OUT}
    read = {file: content_of(file) for text in texts_of(config, SPECS) for file in files(text)}
    counts = learned | {"weights": hash_of(config.weights)} | ({"files": read} if read else {})
    key = identity(counts, data)
    run = Run(config.out or f"runs/{items.name}-{config.loss.split('(')[0]}-{key[:8]}")
    features = None if items.x is None else items.x.shape[1]
    about = {"format": FORMAT, "identity": key, "data": data, "features": features, "config": settings}
    if (run.path / "config.json").exists():
        there = run.about
        if there["identity"] != key and not is_free(run):
            old = there["config"]
            odd = [f"{k}: {old[k]} there, {v} here" for k, v in learned.items() if k in old and old[k] != v]
            odd += ["the data"] if there["data"] != data else []
            reason = "; ".join(odd[:4]) or "another weight file or format"
            raise LikewiseError(
                f"train: '{run.path}' holds another run ({reason}); choose another --out, or delete that folder first"
            )
    elif run.path.exists() and (
        not run.path.is_dir() or {p.name for p in run.path.iterdir()} - BEGINNING - unfinished(run)
    ):
        raise LikewiseError(f"train: '{run.path}' exists and is not a run; choose another --out")
    return Claim(run, about)


def unfinished(run: Run) -> set[str]:
    """Files that a killed training was writing; their places are still held by those before them."""
    return {file.name for name in TRAINED for file in run.path.glob(f".{name}.*.part")}


def is_free(run: Run) -> bool:
    """Whether a training stopped in this folder before it learned anything, so that another may have it."""
    return not any((run.path / name).exists() for name in ("state.pt", "model.safetensors", "done"))


def hash_of(file: str | None) -> str | None:
    """A file's content, so that another file under the same name is another run."""
    if file is None:
        return None
    try:
        with Path(file).expanduser().open("rb") as content:
            return hashlib.file_digest(content, "sha256").hexdigest()
    except OSError as error:
        raise LikewiseError(f"train: weights '{file}' cannot be read ({error.strerror}); check the path") from None


def take(claim: Claim, config: Train, device: torch.device) -> None:
    """Make the folder ready, or take it up where it was left; with `again`, empty a finished one. Its lock is held already."""
    run = claim.run
    for name in unfinished(run):
        (run.path / name).unlink(missing_ok=True)
    if (run.path / "config.json").exists():
        if run.about["identity"] == claim.about["identity"] and (not config.restart or not run.done):
            for name in RESULTS:  # of an earlier state, if somebody looked at it half way
                (run.path / name).unlink(missing_ok=True)
            return
        for name in (*TRAINED, *RESULTS):  # and nothing else: people keep things beside their runs
            (run.path / name).unlink(missing_ok=True)
    run.write_json("environment.json", environment(device))
    run.write_json("config.json", claim.about)
