"""What made a run: versions and hardware, also of a card that is not there."""

import json
import tomllib
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import SimpleNamespace

import torch
from likewise.types import LikewiseError

from likewise._version import __version__
from likewise.models.pretrained.available import Available
from likewise.runs import environment as machine
from likewise.runs.environment import EXTRA_PACKAGES, environment, examine, free_bytes


def test_the_environment_tells_versions_and_hardware(monkeypatch):
    told = environment(torch.device("cpu"))
    assert told["versions"]["torch"] and told["device"]["name"] == told["hardware"]["cpu"]
    assert told["hardware"].keys() == {"cpu", "cores", "cores_allowed", "memory"}
    card = SimpleNamespace(total_memory=2**34, uuid="1")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: card)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "a card")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    told = environment(torch.device("cuda"))
    assert told["device"]["name"] == "a card" and json.dumps(told)
    known = {"gpu": "a card", "gpus": 4, "cuda": torch.version.cuda, "gpu_memory": 2**34}
    assert {k: told["hardware"][k] for k in known} == known and "driver" in told["hardware"]


def test_facts(monkeypatch):
    def version(name):
        if name in ("torch", "onnx"):
            return "9.9"
        raise PackageNotFoundError

    monkeypatch.setattr(machine, "version", version)
    monkeypatch.setattr(machine, "hub_answers", lambda: False)
    monkeypatch.setattr(machine, "installed_backbones", lambda: ["mobilenet_v2"])
    monkeypatch.setattr(machine, "cached_backbones", lambda: ["resnet18.a1_in1k"])
    monkeypatch.setattr(machine, "available_backbone", lambda hub: Available("mobilenet_v2", f"hub: {hub}"))
    found = examine()
    assert found["versions"]["likewise"] == __version__ and found["versions"]["torch"] == "9.9"
    assert found["versions"]["timm"] is None
    assert found["weights"] == {"installed": ["mobilenet_v2"], "cached": ["resnet18.a1_in1k"], "hub": False}
    assert found["backbone"] == {"name": "mobilenet_v2", "reason": "hub: False"}
    assert found["extras"]["onnx"]["installed"] == {"onnx": "9.9"}
    assert found["extras"]["onnx"]["missing"] == ["onnxscript", "onnxruntime"]
    assert all(size > 0 for size in found["disk"].values()) and found["devices"]["cores"] >= 1


def test_no_weights_at_all_is_a_fact_and_no_error(monkeypatch):
    def fail(hub):
        raise LikewiseError("backbone: no weights; install some")

    monkeypatch.setattr(machine, "available_backbone", fail)
    assert machine.default_backbone(False) == {"name": None, "reason": "backbone: no weights; install some"}


def test_free_space_of_a_folder_that_does_not_exist_yet(tmp_path):
    assert free_bytes(tmp_path / "a" / "b") > 0


def test_the_extras_are_those_of_the_package():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    for name, (packages, _) in EXTRA_PACKAGES.items():
        assert [text.split(">")[0].split("[")[0] for text in extras[name]] == list(packages), name
    assert set(extras) - set(EXTRA_PACKAGES) == {"serve", "docs", "dev"}
