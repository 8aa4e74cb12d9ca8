"""embed: compute embeddings (or features) of any data with a trained network or a published backbone, and write them."""

from __future__ import annotations

import os

import numpy as np

from likewise.core.devices import choose_device
from likewise.core.files import check_output_path
from likewise.core.settings import Embed, check
from likewise.core.types import Embedded, Items, LikewiseError
from likewise.data.dataset import load_items
from likewise.models.backbones import is_hub_name
from likewise.runs.embeddings import save_embeddings
from likewise.runs.engine.embed import embed_rows
from likewise.runs.folder import Run
from likewise.runs.open import OpenRun
from likewise.score.backbone_network import network_of, settings_of_backbone
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
