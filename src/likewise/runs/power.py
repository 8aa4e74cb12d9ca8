"""How much energy a GPU and the processors used, where they count it: NVML for the card, RAPL for CPU packages.

NVML is asked through ctypes: it comes with the driver, and five of its calls are not worth a dependency such as pynvml.
"""

from __future__ import annotations

import ctypes
import threading
import weakref
from pathlib import Path

import torch

POWERCAP = Path("/sys/class/powercap")
EVERY = 60.0
"""Seconds between two looks: a package's counter starts over after some ten minutes of hard work."""


def open_nvml():
    """The driver's library, ready to be asked; None where there is none."""
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
        return library if library.nvmlInit_v2() == 0 else None
    except OSError:
        return None


def driver_version(nvml) -> str | None:
    """Of the NVIDIA driver."""
    text = ctypes.create_string_buffer(96)
    return text.value.decode() if nvml and nvml.nvmlSystemGetDriverVersion(text, len(text)) == 0 else None


class Card:
    """The counters of one GPU, found by its UUID: numbers of cards differ between CUDA and the driver."""

    def __init__(self, nvml, uuid: str):
        self.nvml, self.handle = nvml, ctypes.c_void_p()
        self.there = nvml is not None and nvml.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(self.handle)) == 0

    def joules(self) -> float | None:
        """Since the driver was loaded."""
        total = ctypes.c_ulonglong()
        read = self.there and self.nvml.nvmlDeviceGetTotalEnergyConsumption(self.handle, ctypes.byref(total)) == 0
        return total.value / 1000 if read else None

    def processes(self) -> int:
        """How many compute on it, as far as this process may see: from within a container, perhaps none."""
        count = ctypes.c_uint(0)  # room for none: only how many is wanted, and an error says that they do not fit
        if self.there and hasattr(
            self.nvml, "nvmlDeviceGetComputeRunningProcesses_v3"
        ):  # drivers before 510 have it not
            self.nvml.nvmlDeviceGetComputeRunningProcesses_v3(self.handle, ctypes.byref(count), None)
        return count.value


class Package:
    """The counter of one CPU package, in microjoules; it starts over at its end."""

    def __init__(self, folder: Path):
        self.file, self.sum = folder / "energy_uj", 0
        self.range = int((folder / "max_energy_range_uj").read_text())
        self.last = int(self.file.read_text())

    def joules(self) -> float:
        """Since it was first looked at."""
        now = int(self.file.read_text())
        self.sum += (now - self.last) % (self.range + 1)
        self.last = now
        return self.sum / 1e6


class Meter:
    """Joules since it was made, by what counts them: "gpu" the device's card, "cpu" all packages of the machine.

    Counters belong to the card and the machine, not to a process: what others do there is in the number. `shared` is False
    only where this process was the only one ever seen on the card.
    """

    def __init__(self, device: torch.device, nvml=None, powercap: Path = POWERCAP):
        self.card = None
        if device.type == "cuda":
            self.card = Card(nvml or open_nvml(), f"GPU-{torch.cuda.get_device_properties(device).uuid}")
        self.first = self.card and self.card.joules()
        self.packages = _packages(powercap)
        self.alone = self.card is not None
        self._lock, gone = threading.Lock(), threading.Event()
        if self.first is not None or self.packages:
            weakref.finalize(self, gone.set)
            threading.Thread(target=_watch, args=(weakref.ref(self), gone), daemon=True).start()

    @property
    def shared(self) -> bool:
        return not self.alone

    def read(self) -> dict[str, float] | None:
        """None where nothing counts, or it may not be read."""
        with self._lock:
            self.alone = self.alone and self.card is not None and self.card.processes() == 1
            gpu = None if self.first is None or self.card is None else self.card.joules()
            found = {} if gpu is None or self.first is None else {"gpu": gpu - self.first}
            try:
                found |= {"cpu": sum(p.joules() for p in self.packages)} if self.packages else {}
            except OSError:
                self.packages = []  # half a sum would be no sum
            return found or None


def _watch(meter: weakref.ref, gone: threading.Event) -> None:
    """Look now and then, for as long as somebody has the meter."""
    while not gone.wait(EVERY):
        if there := meter():
            there.read()
        there = None


def _packages(powercap: Path) -> list[Package]:
    """Cores and memory are parts of a package, and packages of the whole machine ("psys"): what is counted twice is left out.
    Most systems let only root read."""
    try:
        domains = sorted(powercap.glob("intel-rapl:*"))
        return [Package(folder) for folder in domains if (folder / "name").read_text().startswith("package")]
    except (OSError, ValueError):
        return []
