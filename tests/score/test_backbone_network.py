"""Networks that `likewise embed` names by a backbone: their settings, and errors that fit the command."""

import pytest
import torch
from likewise.config import Embed
from likewise.types import LikewiseError

from likewise.score.embed_data import network_of, settings_of_backbone


def test_a_backbone_is_a_network_without_a_head():
    settings = settings_of_backbone(Embed("efficientnet_lite0", "photos", "z.npz"))
    assert (settings.backbone, settings.head, settings.dim, settings.pretrained) == (
        "efficientnet_lite0", "Identity()", 1280, True,
    )  # fmt: skip
    network, transform = network_of(settings, torch.device("cpu"))
    assert not network.training and transform is not None and network.dim == 1280


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (Embed("efficientnet_lite0", "photos", "z.npz", checkpoint="last"), "--checkpoint needs a run folder"),
        (Embed("conv_small", "photos", "z.npz"), "conv_small has none"),
        (Embed("no_such_network", "photos", "z.npz"), "is not a run folder, and no backbone either"),
    ],
)
def test_what_is_no_backbone(config, message):
    with pytest.raises(LikewiseError, match=message):
        settings_of_backbone(config)
