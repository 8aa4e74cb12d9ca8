import os
import pickle

import pytest
import torch
from likewise.types import LikewiseError
from safetensors.torch import save_file

from likewise.models.backbones import ConvSmall, build_backbone
from likewise.models.pretrained import weights


def same(a: torch.nn.Module, b: torch.nn.Module) -> bool:
    return all(torch.equal(p, q) for p, q in zip(a.state_dict().values(), b.state_dict().values(), strict=True))


WRAPPINGS = {
    "plain.pth": lambda s: s,
    "plain.pt": lambda s: s,
    "wrapped.tar": lambda s: {"epoch": 3, "state_dict": {f"module.{k}": v for k, v in s.items()}},
    "model.pth": lambda s: {"model": {f"model.backbone.{k}": v for k, v in s.items()}},
    "untracked.pth": lambda s: {k: v for k, v in s.items() if "num_batches" not in k},
    "classifier.pth": lambda s: {**s, "fc.weight": torch.zeros(10, 256), "classifier.bias": torch.zeros(10)},
}


@pytest.mark.parametrize("name", WRAPPINGS)
def test_files_of_known_wrappings_load_whole(tmp_path, name):
    net = ConvSmall()
    torch.save(WRAPPINGS[name](net.state_dict()), tmp_path / name)
    assert same(build_backbone("conv_small", weights=tmp_path / name).net, net)


def test_safetensors(tmp_path):
    net = ConvSmall()
    save_file(net.state_dict(), tmp_path / "a.safetensors")
    assert same(build_backbone("conv_small", weights=tmp_path / "a.safetensors").net, net)


def test_a_deeper_sister_with_all_the_names_and_shapes_is_another_architecture(tmp_path):
    import timm

    torch.save(timm.create_model("resnet34").state_dict(), tmp_path / "resnet34.pth")
    with pytest.raises(LikewiseError, match=r"another architecture.* not in the network \(layer1\.2"):
        build_backbone("resnet18", weights=tmp_path / "resnet34.pth")


def test_missing_and_misshapen_tensors_are_named_and_nothing_is_loaded():
    net = ConvSmall()
    before = {k: v.clone() for k, v in net.state_dict().items()}
    state = {k: v + 1 for k, v in net.state_dict().items() if k != "block1.0.weight"}
    state["block2.1.bias"] = torch.zeros(63)
    with pytest.raises(LikewiseError) as caught:
        weights.load_whole(net, state, "file.pth")
    assert "1 missing (block1.0.weight)" in str(caught.value)
    assert "1 of another shape (block2.1.bias is (63,), not (64,))" in str(caught.value)
    assert all(torch.equal(v, before[k]) for k, v in net.state_dict().items())


class Payload:
    """What unpickling would run: the making of a folder."""

    def __init__(self, folder):
        self.folder = str(folder)

    def __reduce__(self):
        return os.mkdir, (self.folder,)


def test_a_file_that_carries_code_is_refused_and_not_run(tmp_path):
    file, proof = tmp_path / "evil.pth", tmp_path / "proof"
    torch.save({"state_dict": Payload(proof)}, file)
    with pytest.raises(LikewiseError, match=r"tensors only, .* run code \(\w+\.mkdir\), .* refused"):
        build_backbone("conv_small", weights=file)
    assert not proof.exists()
    torch.load(file, weights_only=False)
    assert proof.exists(), "read with trust, the file does run its code"


@pytest.mark.parametrize("protocol", [2, 4])
def test_a_plain_pickle_is_refused_and_not_run(tmp_path, protocol):
    file, proof = tmp_path / "evil.pt", tmp_path / "proof"
    file.write_bytes(pickle.dumps(Payload(proof), protocol=protocol))
    with pytest.raises(LikewiseError, match=r"evil\.pt must hold tensors only, .* run code.*, so it is refused"):
        build_backbone("conv_small", weights=file)
    assert not proof.exists()


def test_damaged_files_of_each_kind(tmp_path):
    for name, text in (("a.pth", "it is damaged or a pickle"), ("a.safetensors", "must be a complete weight file")):
        (tmp_path / name).write_bytes(b"no weights at all")
        with pytest.raises(LikewiseError, match=f"{name} .*{text}"):
            weights.read_weights(tmp_path / name)
    torch.save(torch.zeros(3), tmp_path / "tensor.pth")
    with pytest.raises(LikewiseError, match=r"tensor\.pth must hold named tensors .* got Tensor"):
        weights.read_weights(tmp_path / "tensor.pth")
    with pytest.raises(LikewiseError, match="must be a file"):
        weights.read_weights(tmp_path / "absent.pth")
    (tmp_path / "a.onnx").write_bytes(b"x")
    with pytest.raises(LikewiseError, match=r"\.safetensors, \.pth, \.pt or \.tar"):
        weights.read_weights(tmp_path / "a.onnx")


def offline_error():
    from huggingface_hub.errors import LocalEntryNotFoundError

    return LocalEntryNotFoundError(
        "An error happened while trying to locate the file on the Hub and we cannot find the requested files in the"
        " local cache. Please check your connection and try again or make sure your Internet connection is on."
    )


@pytest.mark.parametrize("reachable", [False, True])
def test_a_failed_download_is_one_sentence_with_the_ways_out(monkeypatch, reachable):
    import timm
    from huggingface_hub import constants

    seen = []

    def create_model(*_, pretrained, **__):
        seen.append((pretrained, constants.HF_HUB_OFFLINE))
        raise offline_error()

    monkeypatch.setattr(timm, "create_model", create_model)
    monkeypatch.setattr(weights, "is_reachable", lambda address: reachable)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    with pytest.raises(LikewiseError) as caught:
        build_backbone("resnet18")
    text = str(caught.value)
    for part in ("'resnet18'", "LocalEntryNotFoundError", "--weights FILE", "--pretrained False", "likewise[weights]"):
        assert part in text
    assert ". " not in text and "\n" not in text
    assert seen == [(True, not reachable)], "out of reach, the hub must look into its cache only"
    assert constants.HF_HUB_OFFLINE is False, "the hub's setting is put back"


@pytest.mark.parametrize("name", ["googlenet", "bn_inception", "mobilenet_v2"])
def test_networks_outside_timm_fail_the_same_way(monkeypatch, name):
    from urllib.error import URLError

    def refuse(*_, **__):
        raise URLError("Name or service not known")

    monkeypatch.setattr(torch.hub, "load_state_dict_from_url", refuse)
    monkeypatch.setattr("torchvision.models._api.load_state_dict_from_url", refuse)
    monkeypatch.setattr("likewise.models.pretrained.networks.WeightPackage.find", lambda package: None)
    monkeypatch.setattr(weights, "is_reachable", lambda address: False)
    with pytest.raises(LikewiseError, match=rf"'{name}' must be downloaded, but .*failed \(URLError: .*--weights FILE"):
        build_backbone(name)


def test_within_reach(monkeypatch):
    import socket

    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        assert weights.is_reachable(address)
    assert not weights.is_reachable(address)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    assert weights.is_reachable(address), "behind a proxy only a request can tell"
