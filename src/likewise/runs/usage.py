"""usage.json: the sessions of a run (one for each process that trained or evaluated it), with time, memory and energy."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from likewise.core.argument_checks import misfit
from likewise.core.distributed.collectives import world
from likewise.core.types import LikewiseError
from likewise.runs.folder import Run
from likewise.runs.machine import commit, device_name, open_nvml

POWERCAP_FOLDER = Path("/sys/class/powercap")
"""Folder of the RAPL counters on Linux."""

POLL_SECONDS = 60.0
"""Interval between two readings: the counter of a CPU package overflows after about ten minutes of full load."""


class GpuCounter:
    """The energy counter of one GPU, found by its UUID: CUDA and the driver number GPUs differently."""

    def __init__(self, nvml: Any, uuid: str):
        self.nvml, self.handle = nvml, None
        with suppress(Exception):  # no driver, or no such GPU
            self.handle = nvml.nvmlDeviceGetHandleByUUID(uuid)

    def joules(self) -> float | None:
        """Return the energy since the driver was loaded, in joules; None if it cannot be read."""
        if self.handle is not None:
            with suppress(Exception):
                return self.nvml.nvmlDeviceGetTotalEnergyConsumption(self.handle) / 1000

    def processes(self) -> int:
        """Return the number of visible processes that use the GPU; a container may see none."""
        if self.handle is not None:
            with suppress(Exception):  # drivers before 510
                return len(self.nvml.nvmlDeviceGetComputeRunningProcesses(self.handle))
        return 0


class CpuCounter:
    """The energy counter of one CPU package; the hardware counts microjoules and overflows."""

    def __init__(self, folder: Path):
        self.file, self.sum = folder / "energy_uj", 0
        self.range = int((folder / "max_energy_range_uj").read_text())
        self.last = int(self.file.read_text())

    def joules(self) -> float:
        """Return the energy since this object was made, in joules."""
        now = int(self.file.read_text())
        self.sum += (now - self.last) % (self.range + 1)
        self.last = now
        return self.sum / 1e6


class Meter:
    """Measures energy in joules since its construction: "gpu" of the GPU of the device, "cpu" of all CPU packages of the machine.

    The counters belong to the GPU and to the machine, so they include the energy of other processes. `shared` is False only if
    no other process was ever seen on the GPU.
    """

    def __init__(self, device: torch.device, nvml=None, powercap: Path = POWERCAP_FOLDER):
        self.card = None
        if device.type == "cuda":
            self.card = GpuCounter(nvml or open_nvml(), f"GPU-{torch.cuda.get_device_properties(device).uuid}")
        self.first = self.card and self.card.joules()
        self.packages = _packages(powercap)
        self.alone = self.card is not None
        self._lock, gone = threading.Lock(), threading.Event()
        if self.first is not None or self.packages:
            weakref.finalize(self, gone.set)
            threading.Thread(target=_poll, args=(weakref.ref(self), gone), daemon=True).start()

    @property
    def shared(self) -> bool:
        return not self.alone

    def read(self) -> dict[str, float] | None:
        """Return the energy so far in joules, by counter; None if there is no counter that may be read."""
        with self._lock:
            self.alone = self.alone and self.card is not None and self.card.processes() == 1
            gpu = None if self.first is None or self.card is None else self.card.joules()
            found = {} if gpu is None or self.first is None else {"gpu": gpu - self.first}
            try:
                found |= {"cpu": sum(p.joules() for p in self.packages)} if self.packages else {}
            except OSError:
                self.packages = []  # a sum over some of the packages would be wrong
            return found or None


def _poll(meter: weakref.ref, gone: threading.Event) -> None:
    """Read the meter every POLL_SECONDS, until it is garbage-collected."""
    while not gone.wait(POLL_SECONDS):
        if alive := meter():
            alive.read()
        alive = None  # keep no reference while waiting


def _packages(powercap: Path) -> list[CpuCounter]:
    """Return the counters of the CPU packages; [] if they may not be read, as on most systems without root.

    The domains of cores and memory are contained in a package, and the packages in "psys": only packages are counted.
    """
    try:
        domains = sorted(powercap.glob("intel-rapl:*"))
        return [CpuCounter(folder) for folder in domains if (folder / "name").read_text().startswith("package")]
    except (OSError, ValueError):
        return []


USAGE_FILE = "usage.json"
SESSION_FIELD_TYPES = {
    "started": str, "device": str | None, "commit": str | None, "steps": ([int, int], None), "train_seconds": float,
    "evaluate_seconds": float, "peak_gpu_bytes": int | None, "energy_joules": dict[str, float] | None, "shared": bool,
}  # fmt: skip
"""Types of the fields of a `Session` that are read again; those that may be None may be missing."""


class Session:
    """Time, memory and energy that this process used for a run; written at the start and with every checkpoint.

    If several processes train together, only the first writes, without energy: it could measure only one of the GPUs.
    """

    def __init__(self, run: Run, device: torch.device):
        self.run, self.device, self.began = run, device, time.monotonic()
        self.meter = Meter(device) if world()[1] == 1 else None
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        self.about = {
            "started": datetime.now(UTC).isoformat(), "device": device_name(device), "processes": world()[1],
            "commit": commit(), "steps": None, "train_seconds": 0.0, "evaluate_seconds": 0.0, "peak_gpu_bytes": None,
            "energy_joules": None, "shared": True,
        }  # fmt: skip

    def trained(self, step: int) -> None:
        """Record that training has reached a step. Call it first at the step of the resume, then at every checkpoint."""
        first = (self.about["steps"] or [step])[0]
        self.write(steps=[first, step], train_seconds=time.monotonic() - self.began)

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Record the time inside this context as time of evaluation."""
        began = time.monotonic()
        yield
        self.write(evaluate_seconds=time.monotonic() - began)

    def write(self, **facts) -> None:
        """Update the entry of this session in usage.json."""
        if world()[0] != 0:
            return
        self.about |= facts
        if self.device.type == "cuda":
            self.about["peak_gpu_bytes"] = torch.cuda.max_memory_reserved(self.device)
        if self.meter:
            self.about |= {"energy_joules": self.meter.read(), "shared": self.meter.shared}
        others = [s for s in sessions(self.run) if s["started"] != self.about["started"]]
        self.run.write_json(USAGE_FILE, {"sessions": [*others, self.about]})


def sessions(run: Run) -> list[dict]:
    """Return the sessions of a run in order; [] if there is no usage.json."""
    if not (run.path / USAGE_FILE).exists():
        return []
    found = run.read_json(USAGE_FILE).get("sessions")
    if not isinstance(found, list) or any(not is_session(one) for one in found):
        raise LikewiseError(f"run: {run.path / USAGE_FILE} is damaged; delete it: no command needs it")
    return [dict.fromkeys(SESSION_FIELD_TYPES) | one for one in found]


def is_session(one: object) -> bool:
    """Return whether a record has the fields of a `Session` that `cost` reads."""
    unset = dict.fromkeys(SESSION_FIELD_TYPES)
    if not isinstance(one, dict) or misfit(unset | one, SESSION_FIELD_TYPES) is not None:
        return False
    try:
        return bool(datetime.fromisoformat(one["started"]))
    except ValueError:
        return False


def cost(run: Run) -> dict:
    """Return time, memory and energy of a run, over all sessions; None for values that were not recorded.

    `energy_joules` has the counters that all sessions have.
    """
    all_ = sessions(run)
    if not all_:
        start = run.environment
        known = {"device": start.get("device", {}).get("name"), "commit": start.get("commit")}
        nothing = ("train_seconds", "evaluate_seconds", "peak_gpu_bytes", "energy_joules", "shared")
        return {"sessions": 0} | dict.fromkeys(nothing) | known
    energy = [s["energy_joules"] or {} for s in all_]
    peaks = [s["peak_gpu_bytes"] for s in all_ if s["peak_gpu_bytes"] is not None]
    return {
        "sessions": len(all_),
        **{name: sum(s[name] for s in all_) for name in ("train_seconds", "evaluate_seconds")},
        "peak_gpu_bytes": max(peaks, default=None),
        "energy_joules": {k: sum(e[k] for e in energy) for k in energy[0] if all(k in e for e in energy)} or None,
        "shared": any(s["shared"] for s in all_),
        **{name: _each(s[name] for s in all_) for name in ("device", "commit")},
    }


def _each(names: Iterator[str | None]) -> str | None:
    """Return the distinct names, separated by commas; None if there are none."""
    return ", ".join(dict.fromkeys(name for name in names if name)) or None
