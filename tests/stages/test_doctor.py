"""What is installed, as the command prints it."""

import json
import tomllib
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from likewise._version import __version__
from likewise.cli.main import main
from likewise.config import Doctor
from likewise.pretrained.available import Available
from likewise.runs import machine
from likewise.stages.doctor import doctor
from likewise.types import LikewiseError


@pytest.fixture
def bare(monkeypatch):
    """A machine without a hub, on which only torch 9.9 and one package of the extra onnx are installed."""

    def version(name):
        if name in ("torch", "onnx"):
            return "9.9"
        raise PackageNotFoundError

    monkeypatch.setattr(machine, "version", version)
    monkeypatch.setattr(machine, "hub_answers", lambda: False)
    monkeypatch.setattr(machine, "installed_backbones", lambda: ["mobilenet_v2"])
    monkeypatch.setattr(machine, "cached_backbones", lambda: ["resnet18.a1_in1k"])
    monkeypatch.setattr(
        machine, "available_backbone", lambda hub: Available("mobilenet_v2", "backbone mobilenet_v2: why")
    )


def test_facts(bare):
    found = doctor(Doctor())
    assert found["versions"]["likewise"] == __version__ and found["versions"]["torch"] == "9.9"
    assert found["versions"]["timm"] is None
    assert found["weights"] == {"installed": ["mobilenet_v2"], "cached": ["resnet18.a1_in1k"], "hub": False}
    assert found["backbone"] == {"name": "mobilenet_v2", "reason": "backbone mobilenet_v2: why"}
    assert found["extras"]["onnx"]["installed"] == {"onnx": "9.9"}
    assert found["extras"]["onnx"]["missing"] == ["onnxscript", "onnxruntime"]
    assert all(size > 0 for size in found["disk"].values()) and found["devices"]["cores"] >= 1
    assert json.loads(found.as_json()) == found


def test_the_table_names_what_is_missing_and_how_to_install_it(bare, capsys):
    main(["doctor"])
    out = " ".join(capsys.readouterr().out.split())
    for part in (
        "likewise",
        __version__,
        "timm",
        "not installed",
        "not reachable",
        "mobilenet_v2: why",
        "resnet18.a1_in1k",
    ):
        assert part in out
    assert "missing: onnxscript, onnxruntime, for likewise export --to onnx: pip install 'likewise[onnx]'" in out


def test_no_weights_at_all_is_a_fact_and_no_error(bare, monkeypatch, capsys):
    def fail(hub):
        raise LikewiseError("backbone: no weights; install some")

    monkeypatch.setattr(machine, "available_backbone", fail)
    main(["doctor", "--json"])
    assert json.loads(capsys.readouterr().out)["backbone"] == {
        "name": None,
        "reason": "backbone: no weights; install some",
    }


def test_a_complete_extra_is_a_line_and_a_missing_one_is_not(monkeypatch, bare):
    monkeypatch.setattr(machine, "version", lambda name: "1.0")
    shown = doctor(Doctor()).table()
    assert ["extra review", "fastapi 1.0, uvicorn 1.0"] in shown.lines and shown.notes == []


def test_free_space_of_a_folder_that_does_not_exist_yet(tmp_path):
    assert machine.free_bytes(tmp_path / "a" / "b") > 0


def test_the_extras_are_those_of_the_package():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    for name, (packages, _) in machine.EXTRAS.items():
        assert [text.split(">")[0].split("[")[0] for text in extras[name]] == list(packages), name
    assert set(extras) - set(machine.EXTRAS) == {"serve", "docs", "dev"}
