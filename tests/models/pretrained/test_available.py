import pytest
from likewise.types import LikewiseError

from likewise.models.pretrained import available
from likewise.models.pretrained.available import PACKAGED_BACKBONES, available_backbone, cached_backbones, hub_answers
from likewise.models.pretrained.networks import WEIGHT_PACKAGES, WeightPackage


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """`machine(hub=True, installed=(...))` sets what this machine has; returns the folder of the hub's cache."""
    monkeypatch.setattr(available, "hub_cache", lambda: tmp_path)

    def change(hub: bool, installed: tuple[str, ...] = ()):
        monkeypatch.setattr(available, "hub_answers", lambda: hub)
        found = dict.fromkeys(installed, tmp_path / "weights.pth")
        for name in WEIGHT_PACKAGES:
            package = WeightPackage(name, "", "")
            monkeypatch.setitem(WEIGHT_PACKAGES, name, package)
        monkeypatch.setattr(WeightPackage, "find", lambda package: found.get(package.module))
        return tmp_path

    return change


def store(cache, model, file="model.safetensors"):
    folder = cache / f"models--timm--{model}" / "snapshots" / "0a1b"
    folder.mkdir(parents=True)
    (folder / file).write_bytes(b"0")


CACHED = "resnet50.a1_in1k"
INSTALLED = (
    f"its weights are installed, and {available.hub_name()} with those of resnet50 is not reachable; {available.COST}"
)
CHOICES = [  # whether the hub answers, what is installed, models in its cache -> backbone, end of the sentence about it
    (True, ("efficientnet_lite0",), (), "resnet50", "the default, and its weights can be downloaded from the hub"),
    *((False, ("efficientnet_lite0",), ((CACHED, file),), "resnet50", "the default, and its weights are on this disk")
      for file in available.WEIGHT_FILES),
    (False, ("mobilenet_v2", "efficientnet_lite0", "efficientnet_lite1"), (("resnet18.a1_in1k", "model.safetensors"),),
     "efficientnet_lite1", INSTALLED),
    (False, ("mobilenet_v2",), (), "mobilenet_v2", INSTALLED),
]  # fmt: skip


@pytest.mark.parametrize(("hub", "installed", "cached", "name", "why"), CHOICES)
def test_the_best_backbone_at_hand(machine, hub, installed, cached, name, why):
    cache = machine(hub, installed)
    for model, file in cached:
        store(cache, model, file)
    assert available_backbone() == (name, f"backbone {name}: {why}")


def test_nothing_at_hand_is_an_error_with_the_cures(machine):
    machine(hub=False)
    with pytest.raises(LikewiseError, match="no weight package is installed; connect"):
        available_backbone()


def test_every_weight_package_has_a_place_in_the_order():
    assert sorted(PACKAGED_BACKBONES) == sorted(WEIGHT_PACKAGES)


def test_an_unfinished_download_is_not_cached(machine):
    cache = machine(hub=False)
    store(cache, "resnet50.a1_in1k", "model.safetensors.incomplete")
    store(cache, "vit_base_patch16_224.dino")
    link = cache / "models--timm--convnext_tiny.fb_in1k" / "snapshots" / "0" / "model.safetensors"
    link.parent.mkdir(parents=True)
    link.symlink_to(cache / "missing")
    assert cached_backbones() == ["vit_base_patch16_224.dino"] and not available.is_cached("resnet50")


def test_the_hub_library_set_to_offline_is_no_hub(monkeypatch):
    from huggingface_hub import constants

    monkeypatch.setattr(available, "is_reachable", lambda address, seconds: True)
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    assert hub_answers()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert not hub_answers()


def test_a_proxy_without_a_hub_behind_it_is_no_hub(monkeypatch):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", "https://hub.invalid")
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")  # the discard port: nothing listens there
    assert not hub_answers()
