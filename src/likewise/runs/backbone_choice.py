"""Choose the backbone of a training whose user named none: the best one whose weights can be had."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch

from likewise.core.distributed.process_group import broadcast_from_first
from likewise.core.settings import Train
from likewise.core.types import Items
from likewise.data import DRAWN_DATA
from likewise.models.pretrained.available import PACKAGED_BACKBONES, Available, available_backbone
from likewise.models.pretrained.weights import DEFAULT_BACKBONE
from likewise.runs.defaults import resolve
from likewise.runs.folder import Run
from likewise.runs.identity import Claim, default_folder, find_run, identity_of

BACKBONE_CHOICES = (DEFAULT_BACKBONE, *PACKAGED_BACKBONES)
"""Backbones that a training without a named one may get."""


def leaves_backbone_open(config: Train) -> bool:
    """Whether the user named no backbone, no weights and no recipe, except `robust`, which only sets a confidence."""
    open_settings = (config.backbone, config.weights, config.pretrained) == (None, None, None)
    return open_settings and config.recipe in (None, "robust")


def find_backbone(config: Train) -> Available | None:
    """Return the backbone that a training without a named one gets, before data is read: missing weights are an early error.

    None if the settings name one, or if the data may decide.
    """
    is_image_data = config.data not in DRAWN_DATA and not config.data.lower().endswith((".npz", ")"))
    return available_backbone() if is_image_data and leaves_backbone_open(config) else None


def resolve_with(config: Train, items: Items, found: Available | None) -> tuple[Train, str]:
    """Return the resolved settings, and why their backbone was chosen; "" if the settings or the data decided.

    Args:
        found: what `find_backbone` returned. All processes take the backbone that the first process found.
    """
    if items.x is not None or items.name in DRAWN_DATA or not leaves_backbone_open(config):
        return resolve(config, items), ""
    found = found or available_backbone()
    name = BACKBONE_CHOICES[int(broadcast_from_first(torch.tensor(BACKBONE_CHOICES.index(found.name))))]
    return resolve(replace(config, backbone=name), items), found.reason


def claim_run(config: Train, items: Items, choice: str, say: Callable[[str], None]) -> Claim:
    """Return the run folder of resolved settings. Prints a choice, and the runs of the same command with another backbone."""
    claim = find_run(config, items, choice=choice)
    if choice:
        say(choice)
        others = runs_of_other_choices(config, items, claim.about["data"]) if config.out is None else {}
        for name, folder in others.items():
            say(f"this is another run than {folder}, which has {name}; --backbone {name} continues or shows that one")
    return claim


def runs_of_other_choices(config: Train, items: Items, data: str) -> dict[str, str]:
    """Return backbone -> folder, for the runs that the same command made when it chose another backbone."""
    others = {name: replace(config, backbone=name) for name in BACKBONE_CHOICES if name != config.backbone}
    folders = {name: default_folder(one, items, identity_of(one, data)) for name, one in others.items()}
    return {name: folder for name, folder in folders.items() if (Run(folder).path / "config.json").exists()}
