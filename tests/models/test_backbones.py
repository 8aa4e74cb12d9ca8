import pytest
import torch
from likewise.types import LikewiseError

from likewise.models.backbones import ConvSmall, build_backbone, width_of


def test_tokens_leave_the_class_token_out():
    backbone = build_backbone("vit_tiny_patch16_224", pretrained=False, size=32).eval()
    x = torch.rand(2, 3, 32, 32)
    with torch.no_grad():
        tokens = backbone.net.forward_features(x)
        assert tokens.shape == (2, 1 + 4, 192)
        torch.testing.assert_close(backbone(x), tokens[:, 1:].transpose(1, 2))


@pytest.mark.parametrize("name", ["conv_small", "resnet18", "vit_tiny_patch16_224"])
def test_the_width_of_a_backbone_is_that_of_its_feature(name):
    size = 224 if name.startswith("vit") else 32
    backbone = build_backbone(name, pretrained=False).eval()
    with torch.no_grad():
        assert backbone.finish(backbone(torch.rand(1, 3, size, size)).mean(2)).shape == (1, width_of(name))
    with pytest.raises(LikewiseError, match="resnet5O"):
        width_of("resnet5O")


def test_a_class_token_the_network_does_not_tell_of_is_found():
    assert build_backbone("xcit_nano_12_p16_224", pretrained=False).prefix == 1


def test_maps_with_channels_last():
    backbone = build_backbone("mambaout_femto", pretrained=False).eval()
    x = torch.rand(2, 3, 64, 64)
    with torch.no_grad():
        found = backbone.net.forward_features(x)
        assert found.shape == (2, 2, 2, 288)
        torch.testing.assert_close(backbone(x).mean(2), found.mean((1, 2)))


@pytest.mark.parametrize("name", ["convnext_atto", "inception_next_atto", "mobilenetv3_small_050"])
def test_no_parameter_stays_without_gradient(name):
    backbone = build_backbone(name, pretrained=False)
    f = backbone.finish(backbone(torch.rand(2, 3, 64, 64)).mean(2))
    assert f.shape == (2, backbone.channels) and backbone.channels > 0
    f.square().sum().backward()
    assert [n for n, p in backbone.named_parameters() if p.grad is None or p.numel() == 0] == []


def test_the_norm_after_pooling_is_the_networks_own():
    import timm

    torch.manual_seed(0)
    backbone = build_backbone("convnext_atto", pretrained=False).eval()
    whole = timm.create_model("convnext_atto", num_classes=0).eval()
    with torch.no_grad():
        backbone.net.head.norm.weight.uniform_(0.5, 2)
        assert not whole.load_state_dict(backbone.net.state_dict(), strict=True).missing_keys
        x = torch.rand(2, 3, 64, 64)
        torch.testing.assert_close(backbone.finish(backbone(x).mean(2)), whole(x))


def test_googlenet_sees_what_torchvision_shows_it():
    from torchvision.models import GoogLeNet

    torch.manual_seed(0)
    backbone = build_backbone("googlenet", pretrained=False).eval()
    whole = GoogLeNet(aux_logits=False, init_weights=False, transform_input=True).eval()
    whole.fc = torch.nn.Identity()
    whole.load_state_dict(backbone.net.state_dict())
    x = torch.rand(2, 3, 64, 64)
    mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    ours = (x - torch.tensor(backbone.mean).view(1, 3, 1, 1)) / torch.tensor(backbone.std).view(1, 3, 1, 1)
    with torch.no_grad():
        torch.testing.assert_close(backbone(ours).mean(2), whole((x - mean) / std), rtol=1e-4, atol=1e-5)


def test_googlenet_takes_torchvisions_file_with_its_side_classifiers(tmp_path):
    from torchvision.models import GoogLeNet

    whole = GoogLeNet(aux_logits=True, init_weights=False)
    torch.save(whole.state_dict(), tmp_path / "googlenet.pth")
    net = build_backbone("googlenet", weights=tmp_path / "googlenet.pth").net
    assert torch.equal(net.inception5b.branch1.conv.weight, whole.inception5b.branch1.conv.weight)


@torch.no_grad()
def test_inception_v3_takes_torchvisions_file_with_its_side_classifier(tmp_path):
    from torchvision.models import inception_v3

    torch.manual_seed(0)
    whole = inception_v3(weights=None, aux_logits=True, transform_input=True, init_weights=False).eval()
    torch.save(whole.state_dict(), tmp_path / "inception_v3.pth")
    backbone = build_backbone("inception_v3", weights=tmp_path / "inception_v3.pth").eval()
    assert (backbone.channels, backbone.size) == (2048, 299)
    assert not any("AuxLogits" in name or name.startswith("fc.") for name, _ in backbone.net.named_parameters())
    whole.fc = torch.nn.Identity()
    x = torch.rand(2, 3, 107, 107)
    # torchvision normalises by ImageNet's mean and deviation, and converts the result inside the network.
    mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    ours = (x - torch.tensor(backbone.mean).view(1, 3, 1, 1)) / torch.tensor(backbone.std).view(1, 3, 1, 1)
    torch.testing.assert_close(backbone(ours).mean(2), whole((x - mean) / std), rtol=1e-4, atol=1e-5)


def test_weights_made_for_the_networks_own_size_serve_another(tmp_path):
    import timm

    torch.save(timm.create_model("vit_tiny_patch16_224").state_dict(), tmp_path / "vit.pth")
    backbone = build_backbone("vit_tiny_patch16_224", weights=tmp_path / "vit.pth", size=64)
    assert backbone.size == 64 and backbone(torch.rand(1, 3, 64, 64)).shape == (1, 192, 16)


@pytest.mark.parametrize(
    ("name", "near"),
    [("resnet5O", "resnet50"), ("bn_inceptoin", "bn_inception"), ("resnet50.a1_in2k", "resnet50.a1_in1k")],
)
def test_an_unknown_name_suggests_the_nearest(name, near):
    with pytest.raises(LikewiseError, match=rf"got '{name}'; did you mean .*{near}"):
        build_backbone(name, pretrained=False)


def test_suggestions_with_weights_come_first(monkeypatch):
    """efficientnet_lite4 is nearer, and efficientnet_b8 has no published weights."""
    monkeypatch.setattr("likewise.models.pretrained.available.installed_backbones", lambda: ["efficientnet_lite0"])
    monkeypatch.setattr("likewise.models.pretrained.available.cached_backbones", list)
    with pytest.raises(LikewiseError, match="did you mean efficientnet_lite0 or"):
        build_backbone("efficientnet_lite", pretrained=False)
    with pytest.raises(LikewiseError, match="did you mean (?!.*efficientnet_b8)"):
        build_backbone("efficientnet_b", pretrained=False)


def test_what_cannot_be_had_is_told():
    with pytest.raises(LikewiseError, match="conv_small has no pretrained weights"):
        build_backbone("conv_small")


def test_networks_with_several_maps_are_told(monkeypatch):
    import timm

    net = timm.create_model("resnet18", num_classes=0)
    net.forward_features = lambda x: [x, x]
    monkeypatch.setattr(timm, "create_model", lambda *_, **__: net)
    with pytest.raises(LikewiseError, match="return one map or one row of tokens, resnet18 does not"):
        build_backbone("resnet18", pretrained=False)


@torch.no_grad()
def test_a_foundation_backbone_returns_the_feature_of_its_authors(toy_vit):
    backbone = build_backbone(toy_vit, pretrained=False).eval()
    x = torch.rand(2, 3, 32, 32)
    assert (backbone.channels, backbone.size, backbone.preprocess.interpolation) == (64, 32, "bicubic")
    torch.testing.assert_close(backbone(x)[:, :, 0], backbone.net.forward_features(x)[:, 0])
    patches = build_backbone(toy_vit, pretrained=False, pool="avg").eval()
    assert patches(x).shape == (2, 64, 4) and patches.preprocess == backbone.preprocess


@torch.no_grad()
def test_any_network_has_its_own_pooling():
    import timm

    torch.manual_seed(0)
    backbone = build_backbone("resnet18", pretrained=False, pool="own").eval()
    whole = timm.create_model("resnet18", num_classes=0).eval()
    whole.load_state_dict(backbone.net.state_dict())
    x = torch.rand(2, 3, 64, 64)
    assert torch.equal(backbone(x)[:, :, 0], whole(x)) and build_backbone("resnet18", pretrained=False)(x).shape[2] == 4


def test_sizes_are_multiples_of_the_patch(toy_vit):
    assert build_backbone(toy_vit, pretrained=False, size=64)(torch.rand(1, 3, 64, 64)).shape == (1, 64, 1)
    for name, size in ((toy_vit, 40), ("vit_tiny_patch16_224", 40)):
        with pytest.raises(LikewiseError, match=f"a multiple of 16, the patch of {name}, got 40; use 32 or 48"):
            build_backbone(name, pretrained=False, size=size)
    with pytest.raises(LikewiseError, match="a multiple of 16, the patch of toy-vit, got 5; use 16"):
        build_backbone(toy_vit, pretrained=False, size=5)


def test_incomplete_names_of_foundation_backbones():
    with pytest.raises(LikewiseError, match="got 'dinov2'; did you mean dinov2-small or dinov2-base or"):
        build_backbone("dinov2", pretrained=False)
    with pytest.raises(LikewiseError, match=r"got 'dino'; did you mean dinov2-small .*, \.\.\.\?"):
        build_backbone("dino", pretrained=False)


def test_networks_on_the_hub(monkeypatch):
    """timm reads their settings from the hub, also where the weights are random."""
    import timm

    facts = timm.get_pretrained_cfg("test_vit.r160_in1k").to_dict()
    monkeypatch.setattr("timm.models._factory.load_model_config_from_hf", lambda *_, **__: (facts, "test_vit", {}))
    monkeypatch.setattr("likewise.models.pretrained.weights.is_reachable", lambda address: False)
    assert build_backbone("hf-hub:someone/net", pretrained=False).channels == 64
    with pytest.raises(LikewiseError, match="'hf-hub:someone/net' must be downloaded, but"):
        build_backbone("hf-hub:someone/net")


@pytest.mark.parametrize("size", [28, 40, 64])
def test_map_of_glyph_sized_pictures(size):
    side = -(-size // 16)
    assert ConvSmall()(torch.rand(2, 3, size, size)).shape == (2, 256, side, side)


def test_small_enough_and_every_parameter_learns():
    net = ConvSmall()
    assert 300_000 < sum(p.numel() for p in net.parameters()) < 700_000
    net(torch.rand(4, 3, 28, 28)).square().mean().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in net.parameters())


def test_the_residual_block_adds_to_its_input():
    net = ConvSmall().eval()
    x = torch.rand(2, 3, 28, 28)
    with torch.no_grad():
        net.residual[1].weight.zero_()
        net.residual[1].bias.zero_()
        torch.testing.assert_close(net(x), net.block4(net.block3(net.block2(net.block1(x)))))
