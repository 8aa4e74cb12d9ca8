"""Features of data by a pretrained network, for an audit without training; computed once and kept in the audit folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from likewise.core.settings import Audit, Embed
from likewise.core.types import Items, LikewiseError
from likewise.data.dataset import load_items
from likewise.data.fingerprint import fingerprint
from likewise.data.votes import votes_of
from likewise.models.pretrained.available import available_backbone
from likewise.runs.embeddings import origin
from likewise.runs.identity import hash_of

FEATURES_FILE = "features.npz"
"""File of an audit folder: the features of its data."""


def read_images(config: Audit, say: Callable[[str], None]) -> Items:
    """Return the data of an audit, which must have images."""
    data = config.targets[0]
    items = load_items(
        data, config.root, strict=config.strict, workers=config.workers, quiet=config.quiet, say=say,
        allow_imports=config.allow_imports,
    )  # fmt: skip
    if items.x is not None:
        raise LikewiseError(f"audit: '{data}' holds features and no images; save it as .npz and audit that file")
    return items


def check_votes(config: Audit, items: Items) -> None:
    """Raise for votes that cannot be read; they are weighed after the features are computed."""
    votes_of(items, config.votes)


def write_features(config: Audit, items: Items, backbone: str, file: Path, say: Callable[[str], None]) -> None:
    """Write the features of the data; a file that the same network computed from the same data stays."""
    made_by = {"data": fingerprint(items), "network": " ".join(filter(None, (backbone, hash_of(config.weights))))}
    if file.exists() and made_by.items() <= origin(file).items():
        return say(f"the features in {file} are of the same images by the same network, and are used again")
    from likewise.score.embed_data import (
        embed,  # loads networks, which an audit of other targets does not need here
    )

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
