"""Weights & Biases without a network: the real package writes, and what it wrote is read back."""

import json
import struct
import time
from types import SimpleNamespace

import pytest
from likewise.loggers import WandB
from likewise.types import LikewiseError

from likewise.learn.loggers.wand_b import is_logged_in

pytest.importorskip("wandb")


def records(file):
    """The records of a .wandb file: blocks of 32 kB, in them chunks of a checksum, a length, a kind (1 whole, 2 first, 3 middle,
    4 last) and bytes."""
    from wandb.proto.wandb_internal_pb2 import Record

    raw, at, held = file.read_bytes(), 7, b""
    while at < len(raw):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
        _, length, kind = struct.unpack("<IHB", raw[at : at + 7])
        held += raw[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):
            yield Record.FromString(held)
            held = b""


def told(folder):
    """Lines, summary, settings and ids of every session in a folder."""
    found = {"lines": [], "summary": {}, "config": {}, "id": []}
    for file in sorted(folder.glob("wandb/offline-run-*/*.wandb"), key=lambda file: file.stat().st_mtime_ns):
        for record in records(file):
            items = {i.key or "/".join(i.nested_key): json.loads(i.value_json) for i in record.history.item}
            if items:
                found["lines"].append({k: v for k, v in items.items() if not k.startswith("_")})
            found["summary"] |= {
                i.key or "/".join(i.nested_key): json.loads(i.value_json) for i in record.summary.update
            }
            found["config"] |= {i.key: json.loads(i.value_json) for i in record.run.config.update}
            found["id"] += [record.run.run_id] if record.HasField("run") else []
    return found


@pytest.fixture
def alone(monkeypatch, tmp_path):
    """Nothing of the user's, nothing to the network, no word."""
    for name, value in {"WANDB_CONFIG_DIR": "c", "WANDB_CACHE_DIR": "d", "WANDB_DATA_DIR": "e", "HOME": "h"}.items():
        monkeypatch.setenv(name, str(tmp_path / value))
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    monkeypatch.delenv("WANDB_API_KEY", raising=False)


def test_what_is_told_lies_on_the_disk_and_going_on_keeps_the_id(tmp_path, alone, capfd):
    first, again = WandB(project="birds", mode="offline"), WandB(project="birds", mode="offline")
    key = first.start("run", tmp_path, {"dim": 8, "terms": []}, None)
    first.log(10, {"loss": 0.5, "lr/head": 0.25})
    first.end(None)
    assert again.start("run", tmp_path, {"dim": 8}, key) == key
    again.log(20, {"loss": 0.25})
    again.end({"test R@1": 0.75})
    found, until = told(tmp_path), time.monotonic() + 20
    while len(found["lines"]) < 2 and time.monotonic() < until:  # W&B's own process may write a moment after the end
        time.sleep(0.05)
        found = told(tmp_path)
    assert found["lines"] == [{"step": 10, "loss": 0.5, "lr/head": 0.25}, {"step": 20, "loss": 0.25}]
    assert found["summary"]["test R@1"] == 0.75 and found["config"]["dim"] == 8 and set(found["id"]) == {key}
    assert "".join(capfd.readouterr()) == ""


def test_without_a_key_nobody_is_asked(tmp_path, alone, monkeypatch):
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("it asks"))
    with pytest.raises(LikewiseError, match="API key, .*`wandb login`.*mode='offline'"):
        WandB().start("run", tmp_path, {}, None)


@pytest.mark.parametrize(("key", "known"), [("abc", True), (None, False)])
def test_older_versions_tell_in_another_way(key, known):
    older = SimpleNamespace(
        login=lambda key=None, timeout=None: pytest.fail("it asks"), api=SimpleNamespace(api_key=key)
    )
    assert is_logged_in(older) == known
