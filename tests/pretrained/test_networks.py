"""Weights in installed packages: the right file reaches the right network, and the package's code never runs."""

import sys

import pytest
import timm
import torch

from likewise.models.backbones import build_backbone
from likewise.pretrained import networks, weights
from likewise.pretrained.networks import LITE_BACKBONES, LITE_SCALE, WEIGHT_PACKAGES, create_timm, lite_of
from likewise.types import LikewiseError


@pytest.fixture
def install(tmp_path, monkeypatch):
    """A function that installs a made package of this name with this state; its code raises."""
    monkeypatch.syspath_prepend(tmp_path)

    def put(name, state):
        package = WEIGHT_PACKAGES[name]
        file = tmp_path / package.module / package.pattern.replace("*", "w")
        file.parent.mkdir(parents=True)
        (tmp_path / package.module / "__init__.py").write_text("raise RuntimeError('imported')")
        torch.save(state, file)
        return file

    # Packages that are really installed would be found as well.
    monkeypatch.setattr(sys, "path", [str(tmp_path), *(p for p in sys.path if "site-packages" not in p)])
    return put


def renamed(state):
    """The state under the package's kind of names: another classifier, a prefix, the same order."""
    return {("_fc." if name.startswith("classifier.") else "_x.") + name: t for name, t in state.items()}


def test_names_of_efficientnet_lite():
    assert LITE_BACKBONES == ("efficientnet_lite0", "efficientnet_lite1", "efficientnet_lite2")
    for name in ("efficientnet_lite1", "tf_efficientnet_lite1", "tf_efficientnet_lite1.in1k"):
        assert lite_of(name) == "efficientnet_lite1"
    for name in ("efficientnet_lite0.ra_in1k", "tf_efficientnet_lite4", "resnet50"):
        assert lite_of(name) is None


@pytest.mark.parametrize("name", ["efficientnet_lite1", "efficientnet_lite2"])
def test_lite_networks_load_their_package_in_order(install, name):
    torch.manual_seed(1)
    whole = timm.create_model(f"tf_{name}")
    install(name, renamed(whole.state_dict()))
    backbone = build_backbone(name)
    assert (backbone.mean, backbone.std) == LITE_SCALE and backbone.size == {"1": 240, "2": 260}[name[-1]]
    for key, tensor in backbone.net.state_dict().items():
        assert torch.equal(tensor, whole.state_dict()[key]), key
    with_classifier = create_timm(name, pretrained=True)
    assert torch.equal(with_classifier.classifier.weight, whole.classifier.weight)


def test_a_package_of_another_network_is_refused(install):
    install("efficientnet_lite1", renamed(timm.create_model("tf_efficientnet_lite0").state_dict()))
    with pytest.raises(LikewiseError, match=r"w\.pth must hold 320 tensors, got 245; install version 0\.1\.0"):
        build_backbone("efficientnet_lite1")


@torch.no_grad()
def test_mobilenet_is_torchvisions(install):
    from torchvision.models import mobilenet_v2

    torch.manual_seed(1)
    whole = mobilenet_v2(weights=None).eval()
    file = install("mobilenet_v2", whole.state_dict())
    x = torch.rand(2, 3, 64, 64)
    for backbone in (build_backbone("mobilenet_v2"), build_backbone("mobilenet_v2", weights=file)):
        torch.testing.assert_close(backbone.eval()(x), whole.features(x).flatten(2))
    assert (backbone.channels, backbone.size, backbone.mean) == (1280, 224, (0.485, 0.456, 0.406))


@pytest.mark.parametrize("name", ["efficientnet_lite1", "mobilenet_v2"])
def test_without_hub_and_package_the_error_names_the_package(monkeypatch, name):
    def refuse(*_, pretrained=True, **__):
        raise OSError("no hub")

    monkeypatch.setattr(networks.WeightPackage, "find", lambda package: None)
    monkeypatch.setattr(timm, "create_model", refuse)
    monkeypatch.setattr("torchvision.models._api.load_state_dict_from_url", refuse)
    monkeypatch.setattr(weights, "is_reachable", lambda address: False)
    with pytest.raises(LikewiseError, match=f"run `{WEIGHT_PACKAGES[name].command}`, or give a local file"):
        build_backbone(name)
