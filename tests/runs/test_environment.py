"""What made a run: versions and hardware, also of a card that is not there."""

import json
from types import SimpleNamespace

import torch

from likewise.runs.machine import environment


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
