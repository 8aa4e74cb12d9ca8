"""usage.json: the sessions of a run (one for each process that trained or evaluated it), with time, memory and energy."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import torch

from likewise.core.argument_checks import misfit
from likewise.core.distributed.collectives import world
from likewise.core.types import LikewiseError
from likewise.runs.environment import commit, device_name
from likewise.runs.folder import Run
from likewise.runs.power import Meter

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
