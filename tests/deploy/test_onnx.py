"""ONNX files: heads and pools that are harder than most, one batch size or another, and nothing of this machine inside."""

import importlib.util
import json

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from likewise.config import Train
from likewise.types import LikewiseError

from likewise.data.augment import Plain
from likewise.deploy.export import check_onnx_packages, preprocessing, write_onnx
from likewise.deploy.model import Model
from likewise.models.embedder import Embedder
from likewise.models.heads import Relational
from likewise.runs.folder import Run

CPU, CONFIG = torch.device("cpu"), Train(data="d", backbone="conv_small", head="Relational()")


@pytest.fixture
def run(tmp_path):
    run = Run(tmp_path)
    run.write_json("config.json", {"format": 1, "identity": "me", "config": {}})
    return run


@pytest.mark.slow
@pytest.mark.onnx
def test_several_outputs_and_any_batch(run, tmp_path):
    torch.manual_seed(0)
    embedder = Embedder("conv_small", 8, Relational, pool="avg+max", pretrained=False, size=16)
    model = Model(embedder, Plain(16, "crop"), "euclidean", CPU)
    write_onnx(tmp_path, model, run, CONFIG)
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"))
    for count in (1, 3):
        x = torch.rand(count, 3, 16, 16)
        z, e = session.run(["z", "e"], {"pixels": x.numpy()})
        with torch.no_grad():
            own = embedder(x)
        assert np.allclose(z, own.z, atol=1e-5) and np.allclose(e, own.e, atol=1e-5)
    with pytest.raises(Exception, match="Got invalid dimensions|got: 20|Expected: 16"):
        session.run(None, {"pixels": np.zeros((1, 3, 20, 20), np.float32)})
    file = onnx.load(tmp_path / "model.onnx")
    about = {entry.key: entry.value for entry in file.metadata_props}
    assert about["run"] == "me" and about["similarity"] == "euclidean" and about["size"] == "16" and about["dim"] == "8"
    assert b"likewise/stages" not in file.SerializeToString() and str(tmp_path).encode() not in file.SerializeToString()
    assert json.loads((tmp_path / "preprocess.json").read_text())["output"] == "e"


@pytest.mark.onnx
def test_what_the_exporter_cannot_do_is_one_sentence(run, tmp_path):
    class Odd(torch.nn.Module):
        def __init__(self, features, dim):
            super().__init__()

        def forward(self, f):
            return f[:, :8] * float(f.sum().item() > 0)

    model = Model(Embedder("features", 8, Odd, features=16), None, "cosine", CPU)
    with pytest.raises(LikewiseError, match="cannot be written as ONNX .*--to safetensors"):
        write_onnx(tmp_path, model, run, CONFIG)


def test_packages_that_are_not_there(monkeypatch):
    check_onnx_packages()
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "onnxscript" else real(name))
    with pytest.raises(LikewiseError, match=r"needs onnxscript.*likewise\[onnx\]"):
        check_onnx_packages()


@pytest.mark.parametrize(("kind", "short"), [("crop", 256), ("affine", None), ("none", None)])
def test_preprocessing_in_numbers(kind, short):
    found = preprocessing(Plain(224, kind, 300))
    assert (found["size"], found["short_side"], found["shrink_first"]) == (224, short, 300)
    assert preprocessing(None) == {}
