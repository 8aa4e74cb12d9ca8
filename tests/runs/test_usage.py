"""What a run cost, summed over the processes that worked at it."""

import gc
import json
import os
import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from likewise.config import Train
from likewise.errors import LikewiseError

from likewise.learn.training.fit import train
from likewise.learn.training.loop import Interrupted
from likewise.runs import usage as energy
from likewise.runs import usage as module
from likewise.runs.folder import Run
from likewise.runs.machine import driver_version
from likewise.runs.usage import Meter, Session, cost, sessions


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


CPU, CUDA = torch.device("cpu"), torch.device("cuda", 1)


@pytest.fixture
def powercap(tmp_path):
    """`powercap(package, microjoules)` sets a counter that ends at 999999; what is no package lies beside them."""

    def count(package, microjoules, name=None):
        folder = tmp_path / f"intel-rapl:{package}"
        folder.mkdir(exist_ok=True)
        (folder / "max_energy_range_uj").write_text("999999\n")
        (folder / "name").write_text(f"{name or f'package-{package}'}\n")
        (folder / "new").write_text(f"{microjoules}\n")
        os.replace(folder / "new", folder / "energy_uj")  # a counter is never seen half written

    (tmp_path / "intel-rapl").mkdir()  # the driver's own folder counts nothing
    count.folder = tmp_path
    return count


def test_packages_are_summed_and_their_counters_start_over(powercap):
    for package, start, name in (
        ("0", 400_000, None),
        ("1", 900_000, None),
        ("0:0", 300_000, "core"),
        ("2", 5, "psys"),
    ):
        powercap(package, start, name)
    meter = Meter(CPU, powercap=powercap.folder)
    assert meter.read() == {"cpu": 0} and meter.shared
    powercap("0", 700_000)
    powercap("0:0", 500_000, "core")  # in package 0 already
    powercap("2", 900_000, "psys")  # both packages, and more
    powercap("1", 99_999)  # 99999 to its end, 1 to its start, 99999 more
    assert meter.read() == {"cpu": pytest.approx((300_000 + 99_999 + 1 + 99_999) / 1e6)}
    powercap("0", 699_999)  # once round, but for one
    assert meter.read()["cpu"] == pytest.approx((300_000 + 999_999 + 99_999 + 1 + 99_999) / 1e6)


def test_what_counts_nothing_or_may_not_be_read(powercap, tmp_path):
    assert Meter(CPU, powercap=powercap.folder).read() is None
    assert Meter(CPU, powercap=tmp_path / "nowhere").read() is None
    powercap("0", "not for you")
    assert Meter(CPU, powercap=powercap.folder).read() is None


class Nvml:
    """The module pynvml with one GPU, which has used this many millijoules."""

    class NVMLError(Exception):
        pass

    def __init__(self, used=5_000, processes=1):
        self.used, self.processes, self.uuid = used, processes, None

    def nvmlDeviceGetHandleByUUID(self, uuid):
        self.uuid = uuid
        return 42

    def nvmlDeviceGetTotalEnergyConsumption(self, handle):
        if self.used is None:
            raise self.NVMLError("Not Supported")
        return self.used

    def nvmlDeviceGetComputeRunningProcesses(self, handle):
        return [None] * self.processes

    def nvmlSystemGetDriverVersion(self):
        return "570.1"


@pytest.fixture(autouse=True)
def cards(monkeypatch):
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda device: SimpleNamespace(uuid=f"uuid-{device.index}")
    )


def test_a_card_is_asked_by_its_uuid(powercap):
    nvml = Nvml()
    meter = Meter(CUDA, nvml, powercap.folder)
    nvml.used = 17_500
    assert meter.read() == {"gpu": 12.5} and nvml.uuid == "GPU-uuid-1"
    powercap("0", 0)
    both = Meter(CUDA, nvml, powercap.folder)
    powercap("0", 250_000)
    assert both.read() == {"gpu": 0, "cpu": 0.25}
    assert driver_version(nvml) == "570.1" and driver_version(None) is None


def test_a_counter_that_goes_away_is_no_longer_counted(powercap):
    powercap("0", 0)
    meter = Meter(CUDA, Nvml(), powercap.folder)
    assert meter.read() == {"gpu": 0, "cpu": 0}
    (powercap.folder / "intel-rapl:0" / "energy_uj").unlink()
    assert meter.read() == {"gpu": 0}


def test_a_card_is_ours_alone_only_where_that_was_always_seen(powercap):
    nvml = Nvml()
    meter = Meter(CUDA, nvml, powercap.folder)
    meter.read()
    assert not meter.shared
    nvml.processes = 2
    meter.read()
    nvml.processes = 1
    meter.read()
    assert meter.shared  # somebody was there once
    hidden = Meter(CUDA, Nvml(processes=0), powercap.folder)  # from within a container, not even ourselves
    hidden.read()
    assert hidden.shared


def test_a_card_without_a_counter(powercap, monkeypatch):
    assert Meter(CUDA, Nvml(used=None), powercap.folder).read() is None
    monkeypatch.setattr(energy, "open_nvml", lambda: None)
    meter = Meter(CUDA, powercap=powercap.folder)
    assert meter.read() is None and meter.shared


def test_it_looks_by_itself_until_nobody_wants_to_know(powercap, monkeypatch):
    monkeypatch.setattr(energy, "POLL_SECONDS", 0.01)
    before = set(threading.enumerate())
    powercap("0", 900_000)
    meter, end = Meter(CPU, powercap=powercap.folder), time.monotonic() + 60
    (thread,) = set(threading.enumerate()) - before
    (package,) = meter.packages
    powercap("0", 100_000)
    while package.sum != 200_000 and time.monotonic() < end:
        time.sleep(0.01)
    assert package.sum == 200_000
    del meter, package
    gc.collect()
    thread.join(60)
    assert not thread.is_alive()
