"""What an audit looks at: a run or embeddings -> the parts of the data as embeddings, and what is known of the network."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional as F

from likewise.audit.read import UNSPLIT_NAME
from likewise.audit.records import AuditSplit, Subject
from likewise.config import Audit
from likewise.config.spec import brief
from likewise.data.features import read_embeddings
from likewise.models.heads import Linear
from likewise.protocols.splits import split_by
from likewise.runs.devices import choose_device
from likewise.runs.embeddings import origin
from likewise.runs.folder import Run, find_target
from likewise.runs.network import open_loss
from likewise.runs.open import OpenRun
from likewise.types import Embedded, Items, LikewiseError


def open_subject(config: Audit, say: Callable[[str], None]) -> Subject:
    if len(config.targets) != 1:
        raise LikewiseError(
            f"audit: one run folder or file of embeddings must be named, got {len(config.targets)}; "
            "several runs go with --overlap"
        )
    target = find_target(config.targets[0], "audit")
    subject = subject_of_run(config, target, say) if target.is_dir() else subject_of_file(config, target)
    if len(subject.test.e.y) < 2:
        raise LikewiseError(
            f"audit: errors are looked for among two test samples or more, got {len(subject.test.e.y)}; bring more data"
        )
    return subject


def subject_of_file(config: Audit, file: Path) -> Subject:
    """Vectors from elsewhere: labels, pairs and duplicates can be looked at, causes cannot."""
    for name, usual in (("data", None), ("checkpoint", "best"), ("verify", False), ("retrain", False)):
        if getattr(config, name) != usual:
            raise LikewiseError(
                f"audit: '{file}' is a file of embeddings, and --{name} is for a run; leave it out, or audit the run"
            )
    items = read_embeddings(str(file), config.labels, config.root)
    split = items.split if items.split is not None and (items.split != "").any() else np.full(len(items), UNSPLIT_NAME)
    z = torch.as_tensor(np.array(items.x, dtype=np.float32))
    length = z.norm(dim=1)
    if not bool((length > 0).all()):
        raise LikewiseError(
            f"audit: an embedding must not be all zeros, but {int((length == 0).sum())} of {len(z)} are (first: row "
            f"{int((length == 0).nonzero()[0, 0])}); leave them out"
        )
    z = F.normalize(z, dim=1)
    part = {}
    for name in ("train", "val", "test", UNSPLIT_NAME):
        rows = np.flatnonzero(split == name)
        if len(rows):
            part[name] = renumber_labels(Embedded(z[rows], torch.as_tensor(items.y[rows]), torch.as_tensor(rows)), items)
    notes = ["these are embeddings without their network, so which training samples cause an error is not told"]
    if config.labels:
        notes.append(f"labels are those of {config.labels}, whatever the embeddings' own file says")
    if outside := len(z) - sum(len(one.e.y) for one in part.values()):
        notes.append(f"{outside} of {len(z)} rows have no split and are in no part, so nothing is told of them")
    if origin(file).get("similarity", "cosine") != "cosine":
        notes.append("distances are those of unit vectors, though these embeddings were trained for raw ones")
    return Subject(
        file.name, items, part, part.get("test", next(iter(part.values()))), notes, choose_device(config.device)
    )


def subject_of_run(config: Audit, folder: Path, say: Callable[[str], None]) -> Subject:
    """A run's network over all parts of its data, labels as the run was given them."""
    if config.labels:
        raise LikewiseError(f"audit: '{folder}' is a run and has labels of its own; leave out --labels")
    run, notes = Run(folder), []
    opened = OpenRun(
        run, checkpoint=config.checkpoint, device=config.device, data=config.data, root=config.root,
        allow_imports=config.allow_imports, workers=config.workers, quiet=config.quiet, say=say,
    )  # fmt: skip
    settings, items, protocol = opened.settings, opened.noisy_items, opened.protocol
    embedder, device = opened.network, opened.device
    rows = {name: protocol.rows(items, name) for name in ("train", "val", "test")}
    every = np.unique(np.concatenate(list(rows.values())))
    few = device.type == "cpu" and items.x is None  # larger layers' outputs are fetched from the system anew each time
    e = opened.embed(items, every, features=True, batch=32 if few else 256)
    if device.type == "mps":  # which has no float64
        device = torch.device("cpu")
        embedder = embedder.to(device)
    assert e.e is not None and e.f is not None
    if embedder.layer_norm:
        e = dataclasses.replace(e, f=F.layer_norm(e.f, e.f.shape[1:]))
    assert e.e is not None
    bad = (~e.e.isfinite().all(1)).nonzero()[:, 0]
    if len(bad):
        raise LikewiseError(
            f"audit: the network of '{run.path}' must give finite embeddings, and {len(bad)} are not (first: row "
            f"{int(e.row[bad[0]])}); it diverged, --restart trains it anew"
        )
    if opened.similarity != "cosine":
        notes.append("errors and labels go by cosine, though this run's loss compares raw embeddings")
    split = split_by(protocol, items)
    part = {name: renumber_labels(select_rows(e, own), items) for name in rows if len(own := np.flatnonzero(split == name))}
    if not len(rows["test"]):
        raise LikewiseError(f"audit: the test split of '{items.name}' is empty, so there are no errors to explain")
    if not run.done:
        notes.append("this run is not finished; its last state is audited")
    linear = isinstance(embedder.head, Linear) or getattr(embedder.head, "layers", 0) == 1
    if config.checkpoint == "untrained":
        loss, told = None, "an untrained network has no loss to ask for causes"
    else:
        loss, told = open_loss(run, settings, items, rows["train"], embedder, config.checkpoint, device), ""
        if not linear and config.influence != "deep":
            told = (
                f"causes are told by a linear head, and this one is {settings.head}; --influence deep asks all layers"
            )
    notes += [told] if told else []
    kept = run.losses()
    history = None if kept is None else torch.as_tensor(kept.loss)
    test = renumber_labels(select_rows(e, rows["test"]), items)
    title = f"{run.path.resolve().name}: {brief(settings.loss)}"
    return Subject(
        title, items, part, test, notes, device, run, settings, embedder, opened.transform, loss, linear, history
    )


def select_rows(e: Embedded, rows: np.ndarray) -> Embedded:
    """These rows of the data; all of them were embedded, in order."""
    assert e.e is not None and e.f is not None
    at = torch.searchsorted(e.row, torch.as_tensor(rows))
    return Embedded(e.z[at], e.y[at], e.row[at], e.e[at], e.f[at])


def renumber_labels(e: Embedded, items: Items) -> AuditSplit:
    """Labels counted from 0 among these rows."""
    used, y = e.y.unique(return_inverse=True)
    return AuditSplit(dataclasses.replace(e, y=y), tuple(items.class_name[c] for c in used.tolist()))
