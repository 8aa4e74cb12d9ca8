"""What a run cost: its sessions, one a process that worked at it, with their time, memory and energy, in usage.json."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import torch

from likewise.distributed.collectives import world
from likewise.runs.environment import commit, device_name
from likewise.runs.folder import Run
from likewise.runs.power import Meter
from likewise.types import LikewiseError

FILE = "usage.json"
KINDS = {"peak_gpu_bytes": int | None, "energy_joules": dict | None}


class Session:
    """The work of this process at a run. It is written at its start and with every checkpoint: a kill loses what followed.

    Of several processes that train together the first one writes, and energy is left out: it would be one card's of many.
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
        """That training stands at this step: first where it goes on from, then with every checkpoint."""
        first = (self.about["steps"] or [step])[0]
        self.write(steps=[first, step], train_seconds=time.monotonic() - self.began)

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        began = time.monotonic()
        yield
        self.write(evaluate_seconds=time.monotonic() - began)

    def write(self, **facts) -> None:
        if world()[0] != 0:
            return
        self.about |= facts
        if self.device.type == "cuda":
            self.about["peak_gpu_bytes"] = torch.cuda.max_memory_reserved(self.device)
        if self.meter:
            self.about |= {"energy_joules": self.meter.read(), "shared": self.meter.shared}
        others = [s for s in sessions(self.run) if s["started"] != self.about["started"]]
        self.run.write_json(FILE, {"sessions": [*others, self.about]})


def sessions(run: Run) -> list[dict]:
    """Sessions of a run in order; empty before the first one has written anything."""
    if not (run.path / FILE).exists():
        return []
    found = run.read_json(FILE).get("sessions")
    if not isinstance(found, list) or any(not is_session(one) for one in found):
        raise LikewiseError(f"run: {run.path / FILE} is damaged; delete it, it is only for the record")
    return found


def is_session(one: object) -> bool:
    """Whether a record is what `Session` writes, as far as `cost` reads it."""
    return (
        isinstance(one, dict)
        and all(isinstance(one.get(name), str | None) for name in ("started", "device", "commit"))
        and all(isinstance(one.get(name), int | float) for name in ("train_seconds", "evaluate_seconds", "shared"))
        and all(name in one and isinstance(one[name], kind) for name, kind in KINDS.items())
    )


def cost(run: Run) -> dict:
    """Summed over the sessions of a run; None where nothing was recorded. `energy_joules`: of what counted in all of them."""
    all_ = sessions(run)
    if not all_:
        begun = run.environment
        known = {"device": begun.get("device", {}).get("name"), "commit": begun.get("commit")}
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
    """What sessions say, each thing once."""
    return ", ".join(dict.fromkeys(name for name in names if name)) or None
