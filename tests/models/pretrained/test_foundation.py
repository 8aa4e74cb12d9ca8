"""Short names of foundation backbones: their table beside timm's, and their real weights where a hub answers."""

import functools
import urllib.request
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from likewise.config import Train
from PIL import Image

from likewise.models.embedder import Embedder
from likewise.models.pretrained.foundation import FOUNDATION_BACKBONES, foundation_entries, similar_names
from likewise.runs.network import transforms


def test_the_table_is_that_of_timm(subtests):
    """Name, native size, scale, licence; and the width of the feature, by a shallow network without memory."""
    for name, one in FOUNDATION_BACKBONES.items():
        with subtests.test(name):
            facts = timm.get_pretrained_cfg(one.timm)
            assert one.timm in timm.list_pretrained(one.timm.split(".")[0] + ".*")
            assert (facts.input_size[-1], (facts.mean, facts.std)) == (one.native, one.scale)
            assert facts.license == one.licence and facts.interpolation == one.preprocess.interpolation
            vit = "convnext" not in one.timm
            with torch.device("meta"):
                shallow = {"depth": 1} if vit else {"depths": (1, 1, 1, 1)}
                net = timm.create_model(one.timm, **one.options, **shallow).eval()
                assert net(torch.zeros(1, 3, one.native, one.native)).shape == (1, one.width)
            assert one.patch == (net.patch_embed.patch_size[0] if vit else 1)
            assert one.size % one.patch == 0 and one.native % one.patch == 0
            pooled = {"token": "token", "projected token": "token", "attention": "map"}.get(one.feature)
            assert getattr(net, "global_pool", None) == pooled
            assert (net.num_classes > 0) == (one.feature == "projected token")


@pytest.mark.slow
def test_numbers_of_parameters(subtests):
    for name, one in FOUNDATION_BACKBONES.items():
        with subtests.test(name), torch.device("meta"):
            net = timm.create_model(one.timm, **one.options)
            assert round(sum(p.numel() for p in net.parameters()) / 1e6) == one.parameters


def test_every_name_has_one_line():
    lines = dict(foundation_entries())
    assert lines.keys() == FOUNDATION_BACKBONES.keys() and not any("\n" in line for line in lines.values())
    assert lines["clip-base-16"].endswith("86 M parameters, 512 features (class token, projected), 224 px, apache-2.0")
    assert "dinov3-license" in lines["dinov3-small"]


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("dinov2", "dinov2-small"), ("CLIP", "clip-base-32"), ("siglip_base", "siglip-base"), ("eva02", "eva02-clip-base"),
        ("dinov2-smal", "dinov2-small"), ("dinov3_vits", None), ("resnet50", None), ("", None),
    ],
)  # fmt: skip
def test_incomplete_names_have_a_family(name, first):
    found = similar_names(name)
    assert (found[:1] or [None])[0] == first
    assert name != "dinov2" or (len(found) == 8 and all(one.startswith("dinov2-") for one in found))


@functools.cache
def hub_answers() -> bool:
    """One request, also through a proxy; the library of the hub would try again for most of a minute."""
    from huggingface_hub import constants

    try:
        urllib.request.urlopen(constants.ENDPOINT, timeout=3).close()
    except OSError:
        return False
    return not constants.HF_HUB_OFFLINE


def photo(seed: int) -> Image.Image:
    """Smooth blobs of colour."""
    coarse = np.random.default_rng(seed).integers(0, 256, (5, 6, 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize((300, 250), Image.Resampling.BICUBIC)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dinov2-small", "dinov3-small", "siglip-base", "clip-base-32", "eva02-clip-base"])
def test_real_weights_of_every_family(name):
    """An image is nearer to a part of itself than to another image, in the feature that the table names."""
    if not hub_answers():
        pytest.skip("the model hub cannot be reached: the weights are not here")
    embedder = Embedder(name, FOUNDATION_BACKBONES[name].width, torch.nn.Identity(), freeze_backbone=True).eval()
    look = transforms(Train(data="", backbone=name, augment="crop"), embedder)[1]
    images = [photo(0), photo(0).crop((10, 10, 290, 240)), photo(1)]
    with torch.no_grad():
        z = embedder(torch.stack([look(image) for image in images])).z
    sim = z @ z.T
    assert torch.isfinite(z).all() and sim[0, 1] > sim[0, 2] + 0.01


def test_the_documentation_has_the_table():
    page = (Path(__file__).parents[3] / "docs" / "foundation.md").read_text("utf-8")
    lines = [line for line in page.splitlines() if line.startswith("| `") and line.count("|") == 8][1:]
    assert lines == [
        f"| `{name}` | `{f.timm}` | {f.parameters} | {f.width} | {f.size} ({f.native}) | {f.patch} | {f.licence} |"
        for name, f in FOUNDATION_BACKBONES.items()
    ]
