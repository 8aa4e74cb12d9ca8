"""What is installed on this machine."""

import json
import tomllib
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import SimpleNamespace

import torch
from likewise.config import Doctor
from likewise.types import LikewiseError

from likewise._version import __version__
from likewise.cli.main import main
from likewise.models.pretrained.available import Available
from likewise.runs import machine
from likewise.runs.machine import EXTRA_PACKAGES, Machine, environment, examine, free_bytes


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


FOUND = Machine(
    versions={"python": "3.12.1", "timm": None},
    devices={"cpu": "a CPU", "cores": 8, "cores_allowed": 2, "memory": 2**34, "default": "cuda"}
    | {"gpus": [{"name": "a GPU", "memory": 3 * 2**29}]},
    extras={
        "review": {
            "installed": {"fastapi": "1.0", "uvicorn": "2.0"},
            "missing": [],
            "enables": "pages",
            "command": "pip a",
        },
        "onnx": {"installed": {"onnx": "1.0"}, "missing": ["onnxscript"], "enables": "exports", "command": "pip b"},
    },
    weights={"installed": ["mobilenet_v2"], "cached": [], "hub": False},
    backbone={"name": "mobilenet_v2", "reason": "backbone mobilenet_v2: why"},
    disk={"cache": 5 * 2**30},
)


def test_lines_of_the_table():
    shown = FOUND.table()
    assert shown.lines == [
        ["python", "3.12.1"],
        ["timm", "not installed"],
        ["CPU", "a CPU, 2 of 8 cores, 16.0 GB"],
        ["GPU", "a GPU, 1.5 GB"],
        ["default device", "cuda"],
        ["weights installed", "mobilenet_v2"],
        ["weights in the hub's cache", "none"],
        ["hub", "not reachable"],
        ["default backbone", "mobilenet_v2: why"],
        ["extra review", "fastapi 1.0, uvicorn 2.0"],
        ["free disk, cache", "5.0 GB"],
    ]
    assert shown.notes == ["missing: onnxscript, for exports: pip b"]


def test_json_and_notebook():
    assert json.loads(FOUND.as_json()) == FOUND
    assert "onnxscript, for exports" in FOUND._repr_html_()


def test_the_command_prints_a_table_or_json(monkeypatch, capsys):
    monkeypatch.setattr(machine, "hub_answers", lambda: False)
    found = machine.doctor(Doctor())
    main(["doctor"])
    out = " ".join(capsys.readouterr().out.split())
    for part in ("likewise doctor", __version__, found["versions"]["torch"], "not reachable", "default backbone"):
        assert part in out
    main(["doctor", "--json"])
    assert json.loads(capsys.readouterr().out)["versions"] == found["versions"]


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
