"""Energy: counters that start over, cards that others use too, and machines that count nothing."""

import ctypes
import gc
import os
import threading
import time
from types import SimpleNamespace

import pytest
import torch

from likewise.runs import power as energy
from likewise.runs.power import Meter, driver_version

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
    """A driver with one card, which has used so many millijoules."""

    def __init__(self, used=5_000, processes=1):
        self.used, self.processes, self.asked = used, processes, None

    def nvmlDeviceGetHandleByUUID(self, uuid, handle):
        self.asked = uuid
        handle._obj.value = 42
        return 0

    def nvmlDeviceGetTotalEnergyConsumption(self, handle, total):
        assert handle.value == 42
        total._obj.value = self.used or 0
        return 0 if self.used is not None else 3  # not supported

    def nvmlDeviceGetComputeRunningProcesses_v3(self, handle, count, room):
        assert count._obj.value == 0 and room is None
        count._obj.value = self.processes
        return 7 if self.processes else 0  # they do not fit

    def nvmlSystemGetDriverVersion(self, text, size):
        assert size == ctypes.sizeof(text)
        text.value = b"570.1"
        return 0


@pytest.fixture(autouse=True)
def cards(monkeypatch):
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda device: SimpleNamespace(uuid=f"uuid-{device.index}")
    )


def test_a_card_is_asked_by_its_uuid(powercap):
    nvml = Nvml()
    meter = Meter(CUDA, nvml, powercap.folder)
    nvml.used = 17_500
    assert meter.read() == {"gpu": 12.5} and nvml.asked == b"GPU-uuid-1"
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
