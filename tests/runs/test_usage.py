"""What a run cost, summed over the processes that worked at it."""

import json
from dataclasses import replace

import pytest
import torch
from likewise.config import Train
from likewise.errors import LikewiseError

from likewise.learn.training.fit import train
from likewise.learn.training.interrupts import Interrupted
from likewise.runs import usage as module
from likewise.runs.folder import Run
from likewise.runs.usage import Session, cost, sessions


def test_a_run_tells_its_sessions(settings, stop_at):
    with pytest.raises(Interrupted):
        train(Train(**settings), hooks=stop_at(23))
    run = Run(settings["out"])
    (first,) = sessions(run)
    assert first["steps"] == [0, 23] and first["train_seconds"] > 0 and first["evaluate_seconds"] == 0
    train(Train(**settings))
    before, second = sessions(run)
    assert before == first and second["steps"] == [23, 40] and second["evaluate_seconds"] > 0
    assert first["started"] < second["started"] and second["started"].endswith("+00:00")
    hardware = run.read_json("environment.json")["hardware"]
    assert second["device"] == hardware["cpu"] and hardware["cores"] >= 1 and hardware["memory"] > 2**20
    total = cost(run)
    assert total["sessions"] == 2
    assert total["train_seconds"] == first["train_seconds"] + second["train_seconds"]
    assert (total["device"], total["peak_gpu_bytes"]) == (hardware["cpu"], None)
    train(Train(**settings))  # finds it finished
    assert len(sessions(run)) == 2
    train(Train(**settings | {"metrics": ("R@1", "R@2")}))  # measures more
    assert [s["steps"] for s in sessions(run)] == [[0, 23], [23, 40], None]
    train(replace(Train(**settings), restart=True))
    assert [s["steps"] for s in sessions(run)] == [[0, 40]]


def test_it_is_no_part_of_what_makes_a_run_itself(settings):
    run = train(Train(**settings | {"steps": 2, "evaluate": False}))
    there = run.about
    (run.path / "usage.json").unlink()
    assert train(Train(**settings | {"steps": 2, "evaluate": False})).about == there
    known = {
        "sessions": 0,
        "train_seconds": None,
        "evaluate_seconds": None,
        "peak_gpu_bytes": None,
        "energy_joules": None,
    }
    environment = run.read_json("environment.json")
    told = {"device": environment["device"]["name"], "commit": environment["commit"]}
    assert cost(run) == known | {"shared": None} | told  # a run of an older likewise
    (run.path / "environment.json").unlink()
    assert cost(run)["device"] is None


@pytest.mark.parametrize(
    ("energy", "total"),
    [
        ([{"gpu": 2.0, "cpu": 1.0}, {"gpu": 3.0, "cpu": 1.5}], {"gpu": 5.0, "cpu": 2.5}),
        ([{"gpu": 2.0, "cpu": 1.0}, {"gpu": 3.0}], {"gpu": 5.0}),  # half a sum would be no sum
        ([{"gpu": 2.0}, None], None),
        ([None, None], None),
    ],
)
def test_what_was_not_always_counted_has_no_sum(tmp_path, energy, total):
    one = {
        "started": "2026-05-04T10:00:00+00:00", "device": "A", "commit": None, "steps": [0, 1],
        "train_seconds": 1.5, "evaluate_seconds": 0.25, "peak_gpu_bytes": 10, "shared": False,
    }  # fmt: skip
    two = one | {"device": "B", "commit": "c", "peak_gpu_bytes": 7, "shared": True}
    both = [s | {"energy_joules": e} for s, e in zip((one, two), energy)]
    (tmp_path / "usage.json").write_text(json.dumps({"sessions": both}))
    assert cost(Run(tmp_path)) == {
        "sessions": 2, "train_seconds": 3.0, "evaluate_seconds": 0.5, "peak_gpu_bytes": 10, "energy_joules": total,
        "shared": True, "device": "A, B", "commit": "c",
    }  # fmt: skip


def test_damaged_records_are_one_sentence(tmp_path):
    whole = {
        "started": "2026-05-04T10:00:00+00:00", "device": "A", "commit": None, "train_seconds": 1.5,
        "evaluate_seconds": 0.25, "peak_gpu_bytes": 10, "shared": False, "energy_joules": None,
    }  # fmt: skip
    damages = ({"device": []}, {"train_seconds": "2 h"}, {"peak_gpu_bytes": "all"}, {"energy_joules": [1]},
        {"energy_joules": {"gpu": "2"}}, {"started": ""}, {"started": None}, {"steps": "x"}, {"steps": [None, 1]},
    )  # fmt: skip
    broken = [[whole | change] for change in damages] + [7, [7], {"a": 1}, [{}]]
    for content in ([], *({"sessions": one} for one in broken)):
        (tmp_path / "usage.json").write_text(json.dumps(content))
        with pytest.raises(LikewiseError, match="usage.json is damaged.*; delete it"):
            cost(Run(tmp_path))
    (tmp_path / "usage.json").write_text(json.dumps({"sessions": [whole]}))
    assert cost(Run(tmp_path))["sessions"] == 1


def test_of_several_processes_the_first_one_writes_and_no_card_stands_for_all(tmp_path, monkeypatch):
    for rank in (1, 0):
        monkeypatch.setattr(module, "world", lambda rank=rank: (rank, 2))
        Session(Run(tmp_path), torch.device("cpu")).trained(0)
        assert (tmp_path / "usage.json").exists() == (rank == 0)
    (written,) = sessions(Run(tmp_path))
    assert written["processes"] == 2 and written["energy_joules"] is None and written["shared"]
