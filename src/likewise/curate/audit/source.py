"""Source of an audit: a run, a file of embeddings or data -> embeddings of all splits, and the network if there is one."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from likewise.core.devices import choose_device
from likewise.core.files import make_folder
from likewise.core.settings import Audit, Embed
from likewise.core.settings.spec import brief
from likewise.core.types import Embedded, Items, LikewiseError
from likewise.curate.audit.read import BROKEN_FILE, FEATURES_FILE, UNSPLIT_NAME
from likewise.curate.audit.records import AuditSplit, Subject, has_own_split
from likewise.data.dataset import load_items
from likewise.data.features import holds_features, read_embeddings
from likewise.data.fingerprint import fingerprint
from likewise.data.protocols.splits import split_by
from likewise.data.shards import is_shards
from likewise.data.table import own_columns
from likewise.data.votes import votes_of
from likewise.models.heads import Linear
from likewise.models.pretrained.available import available_backbone
from likewise.runs.embeddings import origin, with_paths_below_root
from likewise.runs.folder import Run
from likewise.runs.identity import hash_of
from likewise.runs.network import open_loss
from likewise.runs.open import OpenRun

NO_CAUSES_NOTE = (
    "errors are pairs of different classes, although the run was trained with the relevance of single samples, {}; their causes "
    "are not computed"
)
"""Note on a run that was trained with relevance between samples."""

TargetKind = Literal["run", "file of embeddings", "data"]


def open_subject(config: Audit, say: Callable[[str], None]) -> Subject:
    """Return the data, splits and network of the run, file or data that is audited."""
    if len(config.targets) != 1:
        raise LikewiseError(
            f"audit: the target must be one folder of images, run folder or file of embeddings, got {len(config.targets)}; "
            "use --overlap for several runs"
        )
    target = config.targets[0]
    kind = kind_of(target)
    if kind != "data":
        check_unused(config, ("backbone", "weights", "strict"), f"data, got the {kind} '{target}'")
    if kind != "run":
        check_unused(config, ("data", "checkpoint", "verify", "retrain"), f"a run, got the {kind} '{target}'")
    subject = {"run": subject_of_run, "file of embeddings": subject_of_file, "data": subject_of_data}[kind](config, say)
    check_test_size(len(subject.test.e.y))
    return subject


def kind_of(target: str) -> TargetKind:
    """Return what a target is: a run folder, a file of embeddings, or data. An unknown name is data, whose reader reports it."""
    path = Path(target).expanduser()
    if is_shards(path):
        return "file of embeddings"
    if os.path.isdir(path):
        return "run" if (path / "config.json").exists() else "data"
    if (
        os.path.exists(path)
        and path.suffix.lower() != ".csv"
        and (path.suffix.lower() != ".parquet" or holds_features(str(path)))
    ):
        return "file of embeddings"
    return "data"


def check_unused(config: Audit, names: Iterable[str], where: str) -> None:
    """Raise if one of these settings differs from its default."""
    default = {field.name: field.default for field in dataclasses.fields(Audit)}
    for name in names:
        if getattr(config, name) != default[name]:
            raise LikewiseError(f"audit: --{name} must be used with {where}; leave it out")


def subject_of_data(config: Audit, say: Callable[[str], None]) -> Subject:
    """Return the features of data by a pretrained network. Labels, pairs and duplicates can be audited, causes cannot."""
    if config.labels:
        raise LikewiseError(
            f"audit: --labels must be used with embeddings, got the data '{config.targets[0]}'; leave it out"
        )
    backbone, reason = choose_backbone(config)
    items = read_images(config, say)
    say(reason)
    check_before_work(config, items)
    audited_rows(items)
    file = folder_of(config) / FEATURES_FILE
    write_features(config, items, backbone, file, say)
    z = read_embeddings(str(file)).x
    notes = [f"the features are those of {backbone}, a pretrained network, without training"]
    subject = subject_of_vectors(config, items, torch.as_tensor(np.array(z, dtype=np.float32)), items.name, notes)
    return dataclasses.replace(subject, own=own_columns(config.targets[0], items))


def read_images(config: Audit, say: Callable[[str], None]) -> Items:
    """Return the data of an audit, which must have images."""
    data = config.targets[0]
    items = load_items(
        data, config.root, strict=config.strict, workers=config.workers, quiet=config.quiet, say=say,
        allow_imports=config.allow_imports, listing=planned_folder(config) / BROKEN_FILE,
    )  # fmt: skip
    if items.x is not None:
        raise LikewiseError(f"audit: '{data}' holds features and no images; save it as .npz and audit that file")
    return items


def write_features(config: Audit, items: Items, backbone: str, file: Path, say: Callable[[str], None]) -> None:
    """Write the features of the data; a file that the same network computed from the same data stays."""
    made_by = {"data": fingerprint(items), "network": " ".join(filter(None, (backbone, hash_of(config.weights))))}
    if file.exists() and made_by.items() <= origin(file).items():
        return say(f"the features in {file} are of the same images by the same network, and are used again")
    from likewise.score.embed_data import embed  # loads networks, which an audit of other targets does not need here

    embed(
        Embed(
            run=backbone, data=config.targets[0], out=str(file), root=config.root, layer="feature", weights=config.weights,
            device=config.device, workers=config.workers, allow_imports=config.allow_imports, quiet=config.quiet,
        ),
        say, items=items, made_by=made_by,
    )  # fmt: skip


def choose_backbone(config: Audit) -> tuple[str, str]:
    """Return the backbone of an audit of data, and why it was chosen."""
    if config.backbone is not None:
        return config.backbone, f"backbone {config.backbone}, as given"
    if config.weights is not None:
        raise LikewiseError("audit: --weights needs the name of its network, got none; add --backbone NAME")
    return available_backbone()


def subject_of_file(config: Audit, say: Callable[[str], None]) -> Subject:
    """Return embeddings without their network: labels, pairs and duplicates can be audited, causes cannot."""
    file = Path(config.targets[0]).expanduser()
    items = with_paths_below_root(read_embeddings(str(file), config.labels, config.root), file, config.root)
    check_before_work(config, items)
    notes = ["the causes of errors are not computed, because the file has embeddings without their network"]
    if config.labels:
        notes.append(f"labels are read from {config.labels}, not from the file of embeddings")
    if origin(file).get("similarity", "cosine") != "cosine":
        notes.append("distances are between unit vectors, although these embeddings were trained for raw distances")
    return subject_of_vectors(config, items, torch.as_tensor(np.array(items.x, dtype=np.float32)), file.name, notes)


def subject_of_vectors(config: Audit, items: Items, z: Float[Tensor, "N D"], title: str, notes: list[str]) -> Subject:
    """Return the splits of data whose vectors are given, one per row; z is scaled to unit length in place."""
    rows, length = audited_rows(items), z.norm(dim=1)
    if not bool((length > 0).all()):
        raise LikewiseError(
            f"audit: embeddings must not be all zeros, but {int((length == 0).sum())} of {len(z)} are (first: row "
            f"{int((length == 0).nonzero()[0, 0])}); leave out these rows"
        )
    z.div_(length.clamp_min(1e-12)[:, None])
    splits = {
        name: renumber_labels(
            Embedded(z if len(own) == len(z) else z[own], torch.as_tensor(items.y[own]), torch.as_tensor(own)), items
        )
        for name, own in rows.items()
    }
    if outside := len(z) - sum(len(one.e.y) for one in splits.values()):
        notes.append(f"{outside} of {len(z)} rows are junk or have no split, and are not audited")
    test = splits.get("test", next(iter(splits.values())))
    return Subject(title, items, splits, test, notes, choose_device(config.device))


def audited_rows(items: Items) -> dict[str, Int[np.ndarray, "n"]]:
    """Return the rows of every split of data or embeddings that is audited; raise if there are too few."""
    split = items.split if items.split is not None and has_own_split(items) else np.full(len(items), UNSPLIT_NAME)
    split = split if items.junk is None else np.where(items.junk, "", split)
    names = ("train", "val", "test", UNSPLIT_NAME)
    rows = {name: own for name in names if len(own := np.flatnonzero(split == name))}
    if not rows:
        raise LikewiseError(
            f"audit: at least two rows must be in a split, but all {len(items)} rows of '{items.name}' are junk or have no "
            "split; correct the columns junk and split"
        )
    check_test_size(len(rows.get("test", next(iter(rows.values())))))
    return rows


def check_test_size(count: int) -> None:
    """Raise unless the test split has two samples or more."""
    if count < 2:
        raise LikewiseError(f"audit: the test split must have two samples or more, got {count}; add data")


def check_before_work(config: Audit, items: Items) -> None:
    """Raise for votes that cannot be read and for a folder that cannot be written, before any feature is computed."""
    votes_of(items, config.votes)
    folder_of(config)


def folder_of(config: Audit) -> Path:
    """Create and return the folder of an audit: `audit` in a run's folder, or audit/NAME for data and embeddings."""
    return make_folder(planned_folder(config), "audit")


def planned_folder(config: Audit) -> Path:
    """Return the folder of an audit, without creating it."""
    return Path(config.out).expanduser() if config.out else default_folder(config.targets[0])


def default_folder(target: str) -> Path:
    """Return the folder of the audit of a target, if no other one is given."""
    return Path(target).expanduser() / "audit" if kind_of(target) == "run" else Path("audit") / data_folder_name(target)


def data_folder_name(target: str) -> str:
    """Return the name of data or of a file as the name of a folder: "photos" for photos/ and photos.csv."""
    name = Path(target).expanduser().absolute().stem if Path(target).expanduser().exists() else target
    return re.sub(r"[^\w.-]+", "-", name).strip("-.") or "data"


def subject_of_run(config: Audit, say: Callable[[str], None]) -> Subject:
    """Return the embeddings of all splits by a run's network, with the labels that the run was given."""
    if config.labels:
        raise LikewiseError(
            f"audit: --labels must be used with a file of embeddings, got the run '{config.targets[0]}'; leave out --labels"
        )
    run, notes = Run(config.targets[0]), []
    opened = OpenRun(
        run, checkpoint=config.checkpoint, device=config.device, data=config.data, root=config.root,
        allow_imports=config.allow_imports, workers=config.workers, quiet=config.quiet, say=say,
    )  # fmt: skip
    settings, items, protocol = opened.settings, opened.noisy_items, opened.protocol
    check_before_work(config, items)
    embedder, device = opened.network, opened.device
    rows = {name: protocol.rows(items, name) for name in ("train", "val", "test")}
    every = np.unique(np.concatenate(list(rows.values())))
    e = opened.embed(items, every, features=True)
    if device.type == "mps":  # MPS has no float64
        device = torch.device("cpu")
        embedder = embedder.to(device)
    assert e.e is not None and e.f is not None
    if embedder.layer_norm:
        e = dataclasses.replace(e, f=F.layer_norm(e.f, e.f.shape[1:]))
    check_finite(e, run)
    if opened.similarity != "cosine":
        notes.append("errors and label scores use cosines, although this run's loss compares raw embeddings")
    split = split_by(protocol, items)
    splits = {
        name: renumber_labels(select_rows(e, own), items) for name in rows if len(own := np.flatnonzero(split == name))
    }
    if not len(rows["test"]):
        raise LikewiseError(
            f"audit: the test split must not be empty, but '{items.name}' has none; choose another protocol"
        )
    if not run.done:
        notes.append("this run is not finished; its last checkpoint is audited")
    linear = isinstance(embedder.head, Linear) or getattr(embedder.head, "layers", 0) == 1
    if config.checkpoint == "untrained":
        loss, note = None, "an untrained network has no loss, so causes of errors are not computed"
    else:
        loss, note = open_loss(run, settings, items, rows["train"], embedder, config.checkpoint, device), ""
        if loss.relevance is not None and loss.relevance.by == "sample":
            loss, note = None, NO_CAUSES_NOTE.format(brief(str(settings.relevance)))
        elif not linear:
            note = (
                f"causes of errors are not computed, because they need a linear head, and this one is {settings.head}"
            )
    notes += [note] if note else []
    recorded = run.losses()
    history = None if recorded is None else torch.as_tensor(recorded.loss)
    test = renumber_labels(select_rows(e, rows["test"]), items)
    title = f"{run.path.resolve().name}: {brief(settings.loss)}"
    before = start_features(config, opened, items, every)
    own = None if settings.noise else own_columns(settings.data, items)  # a table has no injected labels
    return Subject(title, items, splits, test, notes, device, run, settings, loss, linear, history, own, before)


def check_finite(e: Embedded, run: Run) -> None:
    """Raise unless all embeddings of a run are finite."""
    assert e.e is not None
    bad = (~e.e.isfinite().all(1)).nonzero()[:, 0]
    if len(bad):
        raise LikewiseError(
            f"audit: the network of '{run.path}' must return finite embeddings, but {len(bad)} are not (first: row "
            f"{int(e.row[bad[0]])}); the training diverged, train again with --restart"
        )


def start_features(config: Audit, opened: OpenRun, items: Items, every: np.ndarray) -> torch.Tensor | None:
    """Return the features of the network that the training started from; None if it started from random weights."""
    settings = opened.settings
    from_weights = settings.weights is not None or bool(settings.pretrained)
    if items.x is not None or not from_weights or config.checkpoint == "untrained":
        return None
    start = OpenRun(
        opened.run, checkpoint="untrained", device=config.device, data=config.data, root=config.root,
        allow_imports=config.allow_imports, workers=config.workers, quiet=config.quiet, settings=settings, items=items,
    )  # fmt: skip
    e = start.embed(items, every, features=True, title="embed with the network before training")
    assert e.f is not None
    found = e.f.new_zeros(len(items), e.f.shape[1])
    found[e.row] = e.f
    return found.cpu()


def select_rows(e: Embedded, rows: np.ndarray) -> Embedded:
    """Return these rows of the data; all rows were embedded, in ascending order."""
    assert e.e is not None and e.f is not None
    at = torch.searchsorted(e.row, torch.as_tensor(rows))
    return Embedded(e.z[at], e.y[at], e.row[at], e.e[at], e.f[at])


def renumber_labels(e: Embedded, items: Items) -> AuditSplit:
    """Return the split with its labels numbered from 0."""
    used, y = e.y.unique(return_inverse=True)
    return AuditSplit(dataclasses.replace(e, y=y), tuple(items.class_name[c] for c in used.tolist()))
