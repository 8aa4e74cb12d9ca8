"""The best backbone whose weights can be had on this machine now. Nothing is downloaded here."""

from __future__ import annotations

import urllib.error
import urllib.request
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from likewise.core.errors import LikewiseError, pip_install
from likewise.models.pretrained.networks import WEIGHT_PACKAGES, timm_name
from likewise.models.pretrained.weights import DEFAULT_BACKBONE, is_reachable
from likewise.models.torchvision_operators import prepare_torchvision

PACKAGED_BACKBONES = ("efficientnet_lite2", "efficientnet_lite1", "efficientnet_lite0", "mobilenet_v2")
"""Backbones with a weight package, the most accurate on ImageNet first."""
WEIGHT_FILES = ("model.safetensors", "pytorch_model.bin")
"""Names of weight files in a repository of the hub."""
CONNECT_SECONDS = 3.0
"""Longest wait for an answer of the hub, in seconds."""
WEIGHT_CURES = (
    f"connect to the hub, run `{pip_install('likewise[weights]')}` for efficientnet_lite0, or name a backbone with a local "
    "weight file"
)
"""What the user can do if no backbone has weights."""


COST = f"it is smaller than {DEFAULT_BACKBONE}: faster, and on most data a little less accurate"
"""What an installed backbone costs in place of the default."""


class Available(NamedTuple):
    """A backbone, and the reason for its choice as a sentence."""

    name: str
    reason: str


def available_backbone(hub: bool | None = None) -> Available:
    """Return the best backbone whose weights are on this disk or can be downloaded, and the reason for this choice.

    The default is taken if its weights are cached or the hub answers; otherwise the best of the installed weight packages.

    Args:
        hub: whether the hub answers; None: it is tried if necessary.
    """
    name = DEFAULT_BACKBONE
    if is_cached(name):
        return Available(name, f"backbone {name}: the default, and its weights are on this disk")
    if hub_answers() if hub is None else hub:
        return Available(name, f"backbone {name}: the default, and its weights can be downloaded from the hub")
    for name in installed_backbones()[:1]:
        why = f"its weights are installed, and {hub_name()} with those of {DEFAULT_BACKBONE} is not reachable"
        return Available(name, f"backbone {name}: {why}; {COST}")
    raise LikewiseError(
        f"backbone: the weights of {DEFAULT_BACKBONE} must be on this disk or on a reachable hub, but {hub_name()} is not "
        f"reachable, and no weight package is installed; {WEIGHT_CURES}"
    )


def hub_name() -> str:
    """Return the name of the hub's server."""
    from huggingface_hub import constants

    return urlsplit(constants.ENDPOINT).netloc


def hub_cache() -> Path:
    """Return the folder in which the hub's library stores downloaded files."""
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE)


def is_cached(name: str) -> bool:
    """Whether the hub's cache on this disk holds the published weights of a timm backbone."""
    prepare_torchvision()
    import timm  # slow to import

    cfg = timm.get_pretrained_cfg(timm_name(name))
    if cfg is None or not cfg.hf_hub_id:
        return False
    return has_weights(hub_cache() / f"models--{cfg.hf_hub_id.replace('/', '--')}")


def has_weights(repository: Path) -> bool:
    """Whether the cached repository of a model holds a complete weight file; unfinished downloads have no snapshot."""
    files = (file for name in WEIGHT_FILES for file in repository.glob(f"snapshots/*/{name}"))
    return any(file.is_file() for file in files)  # a broken link is no file


def cached_backbones() -> list[str]:
    """Return the timm backbones, with their tags, whose weights are in the hub's cache on this disk, sorted."""
    folders = hub_cache().glob("models--timm--*")
    return sorted(folder.name.removeprefix("models--timm--") for folder in folders if has_weights(folder))


def installed_backbones() -> list[str]:
    """Return the backbones whose weight package is installed, the most accurate first."""
    return [name for name in PACKAGED_BACKBONES if WEIGHT_PACKAGES[name].find() is not None]


def hub_answers(seconds: float = CONNECT_SECONDS) -> bool:
    """Whether the hub answers within some seconds. False if its library is set to offline (`HF_HUB_OFFLINE`)."""
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE or not is_reachable(constants.ENDPOINT, seconds):
        return False
    if not urllib.request.getproxies().get(urlsplit(constants.ENDPOINT).scheme):
        return True
    try:  # behind a proxy the connection above was not tried
        request = urllib.request.Request(constants.ENDPOINT, method="HEAD")
        urllib.request.urlopen(request, timeout=seconds).close()
    except urllib.error.HTTPError as error:
        return error.code < 500 and error.code != 407
    except (OSError, ValueError):
        return False
    return True
