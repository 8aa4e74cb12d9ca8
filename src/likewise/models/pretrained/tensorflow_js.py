"""Read an unpacked TensorFlow.js model: the tensors of its weight shards, and the settings of its Keras layers."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from likewise.core.errors import LikewiseError

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
