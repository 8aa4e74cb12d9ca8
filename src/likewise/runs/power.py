"""Measure the energy of a GPU (NVML) and of the CPU packages (RAPL), if the machine has such counters.

NVML is called through ctypes: it comes with the driver, and five calls do not justify a dependency such as pynvml.
"""

from __future__ import annotations

import ctypes
import threading
import weakref
from pathlib import Path

import torch

POWERCAP_FOLDER = Path("/sys/class/powercap")
"""Folder of the RAPL counters on Linux."""

POLL_SECONDS = 60.0
"""Interval between two readings: the counter of a CPU package overflows after about ten minutes of full load."""


def open_nvml():
    """Return the initialised NVML library; None if there is no NVIDIA driver."""
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
        return library if library.nvmlInit_v2() == 0 else None
    except OSError:
        return None


def driver_version(nvml) -> str | None:
    """Return the version of the NVIDIA driver; None if it cannot be read."""
    text = ctypes.create_string_buffer(96)
    return text.value.decode() if nvml and nvml.nvmlSystemGetDriverVersion(text, len(text)) == 0 else None


class GpuCounter:
    """The energy counter of one GPU, found by its UUID: CUDA and the driver number GPUs differently."""

    def __init__(self, nvml, uuid: str):
        self.nvml, self.handle = nvml, ctypes.c_void_p()
        self.available = (
            nvml is not None and nvml.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(self.handle)) == 0
        )

    def joules(self) -> float | None:
        """Return the energy since the driver was loaded, in joules; None if it cannot be read."""
        total = ctypes.c_ulonglong()
        read = self.available and self.nvml.nvmlDeviceGetTotalEnergyConsumption(self.handle, ctypes.byref(total)) == 0
        return total.value / 1000 if read else None

    def processes(self) -> int:
        """Return the number of visible processes that use the GPU; a container may see none."""
        count = ctypes.c_uint(0)  # a buffer of size 0: NVML fails, but sets the required size, which is the count
        if self.available and hasattr(
            self.nvml, "nvmlDeviceGetComputeRunningProcesses_v3"
        ):  # missing in drivers before 510
            self.nvml.nvmlDeviceGetComputeRunningProcesses_v3(self.handle, ctypes.byref(count), None)
        return count.value


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
