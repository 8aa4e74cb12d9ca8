"""TensorFlow.js folders: what the manifest describes is what is read, and what cannot be read is refused."""

import json

import numpy as np
import pytest
import torch
from likewise.types import LikewiseError

from likewise.models.resnet50_v1 import read_tensorflow_js

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


def write(folder, groups=TWO_GROUPS, topology=LAYERS):
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
    model = read_tensorflow_js(write(tmp_path))
    assert list(model.tensors) == ["conv/kernel", "conv/step", "conv/count", "flags"]
    for name, want in (("conv/kernel", KERNEL), ("conv/count", COUNTS), ("flags", FLAGS)):
        assert torch.equal(model.tensors[name], torch.from_numpy(want)), name
    assert model.tensors["conv/step"].shape == () and float(model.tensors["conv/step"]) == 2.5
    assert model.layers == {"bn": {"name": "bn", "epsilon": 0.001}} and model.name == tmp_path.name
    assert read_tensorflow_js(write(tmp_path, topology=None)).layers == {}


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
        read_tensorflow_js(write(tmp_path / "model", groups))


def test_a_folder_of_something_else(tmp_path):
    with pytest.raises(
        LikewiseError, match=r"unpacked TensorFlow\.js folder with model\.json and all of its shards, got"
    ):
        read_tensorflow_js(tmp_path)
    (tmp_path / "model.json").write_text("not JSON")
    with pytest.raises(LikewiseError, match="JSONDecodeError"):
        read_tensorflow_js(tmp_path)
