"""From settings to the things a stage works with: device, items, protocol, network, transforms."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import nn

from likewise.config import SPECS, Train, check, texts_of
from likewise.config.spec import build, canonical, check_names
from likewise.contracts import BatchSampler, Loss, NoiseModel, Protocol
from likewise.data import NAMES, load
from likewise.data.augment import Augment, Plain
from likewise.data.folder import is_flat, read_flat
from likewise.data.images import check_files, drop, find_bad
from likewise.data.loader import choose_workers
from likewise.distributed.collectives import started
from likewise.durations import steps_of
from likewise.errors import printable
from likewise.io.progress import bar
from likewise.models.backbones import OWN, check_name, width_of
from likewise.models.embedder import Embedder
from likewise.runs.folder import Run
from likewise.types import Items, LikewiseError


def choose_device(name: str | None) -> torch.device:
    if name is None:
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    if name == "cuda" and started() > 1:
        name = f"cuda:{os.environ.get('LOCAL_RANK', 0)}"  # each of the processes that torchrun started has its own
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise LikewiseError(f"device '{name}' cannot be used here ({reason}); use --device cpu") from None
    if device.type == "cuda" and device.index is not None:
        torch.cuda.set_device(device)  # kernels of our own, graphs and events go where this says
    return device


def bytes_of(text: str) -> int:
    """ "512MB" as a number."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMG])i?B?", text.strip(), re.IGNORECASE)
    if not found or not float(found[1]):
        raise LikewiseError(f"memory must be an amount such as '512MB' or '4GB', got '{text}'")
    return int(float(found[1]) * 1024 ** (1 + "KMG".index(found[2].upper())))


def load_items(
    data: str,
    root: str | None,
    *,
    skip_bad: bool,
    workers: int,
    quiet: bool,
    say: Callable[[str], None],
    flat: bool = False,
    fetch: bool = True,
    allow_imports: bool = False,
) -> Items:
    """The data set, with every file known to be there; with `skip_bad`, with every picture known to be whole.

    Args:
        flat: a folder without class folders will do, as one class.
        fetch: whether data may be fetched from a hub. False for data that a run names: the run may be a stranger's.
        allow_imports: whether a reader given by dotted name may be imported, which runs its code.
    """
    if flat and data not in NAMES and is_flat(data):
        items = read_flat(data)
    else:
        items = load(data, root, fetch=fetch, allow_imports=allow_imports)
    if not skip_bad or items.path is None or items.x is not None:
        if items.x is None:
            check_files(items)
        return items
    with bar("check pictures", len(items), quiet=quiet) as progress:
        bad = find_bad(items, None, choose_workers(workers), lambda done, of: progress.advance(done - progress.done))
    if not bad:
        return items
    shown = "\n".join(f"  {printable(reason)}" for _, reason in bad[:5]) + ("\n  ..." if len(bad) > 5 else "")
    say(f"{len(bad)} of {len(items)} pictures are broken and left out:\n{shown}")
    return drop(items, [row for row, _ in bad])


def check_texts(config: Train) -> None:
    """A slip in a spec, a duration or the network's name is told at once, before pictures are opened and weights fetched."""
    for text in texts_of(config, SPECS):
        check_names(text)
    steps_of(config.length, 1, "length")
    if config.backbone not in (None, "features", "efficientnet_lite0", *OWN):
        check_name(config.backbone)


def resolve(config: Train, items: Items) -> Train:
    """Fill in what the settings leave to the data, and spell every spec one way."""
    glyphs = items.name == "glyphs"
    backbone = config.backbone or ("features" if items.x is not None else "conv_small" if glyphs else "resnet50")
    if (backbone == "features") != (items.x is not None):
        kind = "features" if items.x is not None else "pictures"
        raise LikewiseError(
            f"train: the data holds {kind}, so backbone '{backbone}' does not fit; leave --backbone out"
        )
    protocol = canonical(config.protocol or ("QueryGallery()" if marked(items) else "UnseenClasses()"))
    sampler = config.sampler
    if sampler is None:
        part = build(protocol, Protocol, allow_imports=config.allow_imports)
        given = spoil(items, part, config.noise, config.seed, config.allow_imports)  # noise may leave fewer classes
        size = np.unique(given.y[part.rows(given, "train")], return_counts=True)[1]
        lonely = ", lonely='skip'" if (size == 1).any() and (size > 1).any() else ""
        sampler = f"SamplesPerClass(batch={4 * max(1, min(28, (size > 1).sum()))}, per_class=4{lonely})"
    own_weights = backbone in ("features", "conv_small")
    pretrained = config.pretrained
    if pretrained is None:
        pretrained = not own_weights and config.weights is None
    known = pretrained or config.weights is not None
    head, dim = canonical(config.head), config.dim
    if head == "Identity()":  # the feature is the embedding, however wide it is
        dim = width_of(backbone) if items.x is None else items.x.shape[1]
    return dataclasses.replace(
        config,
        data=config.data if config.data in NAMES else whole_path(config.data),
        root=config.root and str(Path(config.root).expanduser().absolute()),
        weights=config.weights and str(Path(config.weights).expanduser().absolute()),
        backbone=backbone,
        pretrained=pretrained,
        freeze_bn=known if config.freeze_bn is None else config.freeze_bn,
        protocol=protocol,
        augment=config.augment or ("affine" if glyphs else "crop"),
        loss=canonical(config.loss),
        sampler=canonical(sampler),
        head=head,
        dim=dim,
        noise=canonical(config.noise) if config.noise else None,
        confidence=canonical(config.confidence) if config.confidence else None,
        terms=tuple(canonical(term) for term in config.terms),
    )


def whole_path(data: str) -> str:
    """A path as seen from everywhere, so that a run can be opened from any folder; other data is left as it is."""
    if data.startswith("hf:"):
        place, mark, columns = data.removeprefix("hf:").partition("?")
        return f"hf:{whole_path(place)}{mark}{columns}"
    path = Path(data).expanduser()
    return str(path.absolute()) if path.exists() else data


def marked(items: Items) -> bool:
    """Whether the data says who asks or who answers."""
    return any(column is not None and bool(column.any()) for column in (items.query, items.gallery))


def spoil(items: Items, protocol: Protocol, noise: str | None, seed: int, allow_imports: bool = False) -> Items:
    """Items with wrong labels among the train and val parts together; the true ones kept in `y_clean`. Who validates is then
    decided by the labels as they are now, for nobody has others."""
    if noise is None:
        return items
    rows = np.union1d(protocol.rows(items, "train"), protocol.rows(items, "val"))
    facts = {"class_names": items.class_name, "taxonomy": items.taxonomy, "rows": rows, "samples": len(items)}
    model = build(noise, NoiseModel, allow_imports=allow_imports, **facts)
    y = items.y.copy()
    y[rows] = model(items.y[rows], np.random.default_rng((seed, 77, 0)))
    return dataclasses.replace(items, y=y, y_clean=items.y_first)


def make_protocol(config: Train) -> Protocol:
    assert config.protocol is not None  # resolved settings name it
    return build(config.protocol, Protocol, allow_imports=config.allow_imports)


def make_embedder(config: Train, items_features: int | None, *, empty: bool = False) -> Embedder:
    """The network of these settings, its new parts drawn from the seed; `empty`: its weights will come from a run."""
    torch.manual_seed(config.seed)

    def head(features: int, dim: int) -> nn.Module:
        return build(config.head, nn.Module, allow_imports=config.allow_imports, features=features, dim=dim)

    assert config.backbone is not None
    return Embedder(
        config.backbone, config.dim, head, pool=config.pool, pretrained=bool(config.pretrained) and not empty,
        weights=None if empty else config.weights, layer_norm=config.layer_norm, freeze_bn=bool(config.freeze_bn),
        features=items_features, size=config.size if items_features is None else None,
    )  # fmt: skip


def to_device(embedder: Embedder, device: torch.device) -> Embedder:
    """There, in the layout that convolutions are fastest with there."""
    layout: dict[str, Any] = {"memory_format": torch.channels_last} if device.type == "cuda" else {}
    return embedder.to(device=device, **layout)


def transforms(config: Train, embedder: Embedder) -> tuple[Augment, Plain] | tuple[None, None]:
    """What the network sees of pictures in training, and in evaluation."""
    if config.backbone == "features":
        return None, None
    size = config.size or embedder.input_size
    kind, side = config.augment, config.keep_side
    assert size is not None and kind is not None
    return Augment(size, kind, side, config.crop_scale, config.jitter), Plain(size, kind, side)


def read_config(run: Run, **changes) -> Train:
    """The settings a run was trained with. Never its permission to import: who opens the run gives that anew."""
    stored = run.about["config"]
    known = {f.name for f in dataclasses.fields(Train)}
    if stored.pop("compile", False):  # as it was called once
        stored["speed"] = "compile"
    unknown = sorted(stored.keys() - known)
    if unknown:
        raise LikewiseError(
            f"run: '{run.path}' has settings this likewise does not know: {', '.join(unknown)}; update it"
        )
    stored = {k: tuple(v) if isinstance(v, list) else v for k, v in stored.items()}
    stored: dict[str, Any] = stored | {"allow_imports": False} | changes
    if "data" not in stored:
        raise LikewiseError(f"run: the settings in '{run.path}' name no data; it is damaged or not ours")
    config = Train(**stored)
    check(config)
    for name in ("backbone", "protocol", "sampler", "augment"):  # training writes what it chose
        if getattr(config, name) is None:
            raise LikewiseError(
                f"run: the settings in '{run.path}' name no {name}; its config.json is damaged or not ours"
            )
    return config


def similarity_of(config: Train) -> str:
    """How the run's embeddings are compared: the way its loss was written for."""
    # So many classes as go with every share of wrong labels and number of groups; they take no memory, but in others' losses.
    classes = 1000 if "." in config.loss.split("(")[0] else 10**6
    with torch.device("meta"):
        loss = build(config.loss, Loss, allow_imports=config.allow_imports, classes=classes, dim=config.dim)
    return "cosine" if loss.input == "unit" else "euclidean"


def open_embedder(run: Run, config: Train, which: str, device: torch.device) -> Embedder:
    """The network of a run: best on validation, last, or as it was before training."""
    features = run.about.get("features")
    if which == "untrained":
        with torch.random.fork_rng(devices=[]):  # who only looks at a network keeps his own random numbers
            return to_device(make_embedder(config, features), device).eval()
    name = run.network(which)
    tensors = run.load_tensors(name)
    with torch.random.fork_rng(devices=[]):
        embedder = make_embedder(config, features, empty=True)
    load_into(
        embedder,
        {k.removeprefix("embedder."): v for k, v in tensors.items() if k.startswith("embedder.")},
        run.path / name,
    )
    return to_device(embedder, device).eval()


def facts_of(config: Train, class_names: tuple[str, ...], labels: Int[np.ndarray, "n"], taxonomy: dict | None) -> dict:
    """What parts may be told of the training samples."""
    facts = {"classes": len(class_names), "dim": config.dim, "labels": labels, "class_names": class_names}
    return facts | {"seed": config.seed, "taxonomy": taxonomy}


def facts_with(config: Train, sampler: BatchSampler, embedder: Embedder) -> dict:
    """What parts may be told once batches and network are there."""
    steps = steps_of(config.length, len(sampler), "length")
    return {"largest_class": sampler.largest_class, "per_pass": len(sampler), "steps": steps, "embedder": embedder}


def open_loss(
    run: Run,
    config: Train,
    items: Items,
    rows: Int[np.ndarray, "n"],
    embedder: Embedder,
    which: str,
    device: torch.device,
) -> Loss:
    """The loss of a run with what it has learned; labels of its training rows as the run was given them."""
    used, labels = np.unique(items.y[rows], return_inverse=True)
    facts = facts_of(config, tuple(items.class_name[c] for c in used), labels, items.taxonomy)
    assert config.sampler is not None
    way = {"allow_imports": config.allow_imports}
    with torch.random.fork_rng(devices=[]):
        facts |= facts_with(config, build(config.sampler, BatchSampler, **way, **facts), embedder)
        loss = build(config.loss, Loss, **way, **facts)
    name = run.network(which)
    tensors = {k.removeprefix("loss."): v for k, v in run.load_tensors(name).items() if k.startswith("loss.")}
    load_into(loss, tensors, run.path / name)
    return loss.to(device).eval()


def load_into(module: nn.Module, tensors: dict[str, torch.Tensor], where) -> None:
    """Load tensors that must fit exactly."""
    own = module.state_dict()
    missing, extra = sorted(own.keys() - tensors.keys()), sorted(tensors.keys() - own.keys())
    shapes = [k for k in own.keys() & tensors.keys() if own[k].shape != tensors[k].shape]
    if missing or extra or shapes:
        odd = [f"{k} is missing" for k in missing] + [f"{k} is unknown" for k in extra]
        odd += [f"{k} is {tuple(tensors[k].shape)}, not {tuple(own[k].shape)}" for k in sorted(shapes)]
        raise LikewiseError(
            f"run: {where} is the checkpoint of another architecture: {'; '.join(odd[:3])}"
            f"{f' and {len(odd) - 3} more' if len(odd) > 3 else ''}; use the settings it was trained with"
        )
    module.load_state_dict(tensors)
