"""Weights in installed packages: the right file reaches the right network, and the package's code never runs."""

import sys

import pytest
import timm
import torch
from likewise.types import LikewiseError
from safetensors.torch import save_file

from likewise.models.backbones import build_backbone
from likewise.models.pretrained import networks, weights
from likewise.models.pretrained.networks import (
    LITE_BACKBONES,
    LITE_SCALE,
    WEIGHT_PACKAGES,
    create_timm,
    lite_of,
    load_file,
)


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


SMALL = {"depth": 1, "embed_dim": 32, "num_heads": 2}


def small(name, seed, **more):
    """A network of this architecture with few and random weights, also where timm would start from zeros."""
    torch.manual_seed(seed)
    net = timm.create_model(name, **SMALL | {"num_classes": 0} | more).eval()
    for parameter in net.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    return net


def of_openai(net):
    """The state of a transformer of timm under the names of OpenAI's CLIP, with a text encoder beside it."""
    swaps = [
        ("patch_embed.proj", "conv1"), ("norm_pre", "ln_pre"), ("norm1", "ln_1"), ("norm2", "ln_2"), ("norm.", "ln_post."),
        ("blocks.", "transformer.resblocks."), ("attn.qkv.", "attn.in_proj_"), ("attn.proj", "attn.out_proj"),
        ("mlp.fc1", "mlp.c_fc"), ("mlp.fc2", "mlp.c_proj"),
    ]  # fmt: skip
    found = {"positional_embedding": torch.zeros(77, 8), "transformer.resblocks.0.ln_1.weight": torch.zeros(8)}
    for name, tensor in net.state_dict().items():
        if name == "cls_token":
            name, tensor = "class_embedding", tensor[0, 0]
        elif name == "pos_embed":
            name, tensor = "positional_embedding", tensor[0]
        elif name == "head.weight":
            name, tensor = "proj", tensor.T
        elif name == "head.bias":
            continue
        for ours, theirs in swaps:
            name = name.replace(ours, theirs)
        found[f"visual.{name}"] = tensor
    return found


def of_dinov2(net):
    """The state under the names of Meta's file of DINOv2 with registers: its class token has a position, ours contains it."""
    found = dict(net.state_dict())
    place = torch.randn(1, 1, SMALL["embed_dim"])
    found["register_tokens"] = found.pop("reg_token")
    found["cls_token"] = found["cls_token"] - place
    found["pos_embed"] = torch.cat([place, found["pos_embed"]], 1)
    return found | {"mask_token": torch.zeros(1, SMALL["embed_dim"])}


def of_dinov3(net):
    """The state under the names of Meta's file of DINOv3, whose biases of qkv are zero."""
    found = {"mask_token": torch.zeros(1, 1, 32), "rope_embed.periods": torch.zeros(4)}
    for name, tensor in net.state_dict().items():
        name = (
            name.replace("reg_token", "storage_tokens").replace("gamma_1", "ls1.gamma").replace("gamma_2", "ls2.gamma")
        )
        found[name] = tensor
    return found | {"blocks.0.attn.qkv.bias": torch.zeros(96), "blocks.0.attn.qkv.bias_mask": torch.zeros(96)}


def of_open_clip(net):
    """The state under the names of a model of open_clip whose image encoder is timm's."""
    return {f"visual.trunk.{name}": t for name, t in net.state_dict().items()} | {"logit_scale": torch.zeros(())}


@pytest.mark.parametrize(
    ("name", "rename", "more"),
    [
        ("vit_small_patch14_reg4_dinov2", of_dinov2, {"img_size": 56}),
        ("vit_small_patch16_dinov3", of_dinov3, {"img_size": 64}),
        ("vit_base_patch32_clip_quickgelu_224", of_openai, {"num_classes": 16}),
        ("vit_base_patch16_siglip_224", of_open_clip, {"img_size": 64}),
        ("eva02_base_patch16_clip_224", of_open_clip, {"img_size": 64, "num_classes": 16}),
    ],
)
@pytest.mark.parametrize("ending", ["pth", "safetensors"])
@torch.no_grad()
def test_files_of_the_authors_are_read(name, rename, more, ending, tmp_path, capsys):
    there, here = small(name, 0, **more), small(name, 1, **more)
    if rename is of_openai:
        for net in (there, here):
            net.head.bias.zero_()  # CLIP's projection has none
    x = torch.rand(2, 3, *[there.patch_embed.img_size[0]] * 2)
    assert not torch.allclose(there(x), here(x), atol=1e-2)
    file = tmp_path / f"published.{ending}"
    state = {key: tensor.contiguous().clone() for key, tensor in rename(there).items()}
    save_file(state, file) if ending == "safetensors" else torch.save({"model": state}, file)
    load_file(here, file)
    torch.testing.assert_close(here(x), there(x), rtol=1e-5, atol=1e-6)  # the class token of DINOv2 was a sum
    assert capsys.readouterr().out == ""


@torch.no_grad()
def test_position_embeddings_of_a_file_are_interpolated_once(tmp_path):
    """As timm does for published weights; a file of the same size is read as it is."""
    own = small("vit_tiny_patch16_224", 0)
    torch.save(own.state_dict(), tmp_path / "own.pth")
    here = small("vit_tiny_patch16_224", 1, img_size=64)
    load_file(here, tmp_path / "own.pth")
    own.set_input_size((64, 64))
    assert here.pos_embed.shape == (1, 17, 32) and torch.equal(here.pos_embed, own.pos_embed)
    torch.save({f"embedder.backbone.net.{k}": t for k, t in own.state_dict().items()}, tmp_path / "run.pth")
    again = small("vit_tiny_patch16_224", 2, img_size=64)
    load_file(again, tmp_path / "run.pth")
    assert torch.equal(again.pos_embed, own.pos_embed)


def test_patches_of_another_size_are_refused(tmp_path):
    torch.save(small("vit_tiny_patch16_224", 0, patch_size=14).state_dict(), tmp_path / "other.pth")
    with pytest.raises(LikewiseError, match=r"must match the network.*patch_embed.proj.weight is \(32, 3, 14, 14\)"):
        load_file(small("vit_tiny_patch16_224", 1), tmp_path / "other.pth")


def test_files_of_another_network_are_refused(tmp_path):
    torch.save(of_openai(small("vit_base_patch32_clip_quickgelu_224", 0, depth=2)), tmp_path / "deep.pth")
    with pytest.raises(LikewiseError, match="got another architecture or layout"):
        load_file(small("vit_base_patch32_clip_quickgelu_224", 0, depth=3), tmp_path / "deep.pth")
    with pytest.raises(LikewiseError, match="got another architecture or layout"):
        load_file(timm.create_model("test_resnet", num_classes=0), tmp_path / "deep.pth")


def test_without_a_hub_the_error_names_the_file_to_copy(monkeypatch):
    monkeypatch.setattr(weights, "is_reachable", lambda address: False)
    with pytest.raises(LikewiseError, match=r"of 'timm/vit_base_patch32_clip_224.openai' on the hub .* --weights FILE"):
        create_timm("clip-base-32", pretrained=True)


def test_an_old_timm_lacks_a_network(toy_vit, monkeypatch):
    monkeypatch.setattr(timm, "is_model", lambda name: False)
    with pytest.raises(
        LikewiseError, match=r"toy-vit needs timm with test_vit.r160_in1k, got timm .*; run `pip install -U"
    ):
        create_timm(toy_vit, pretrained=False)
