import json

from likewise.cli.machine_view import Machine

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


def test_lines():
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
