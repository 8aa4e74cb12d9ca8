"""Settings that several commands share, as base classes of their configs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from likewise.core.settings.cli_types import Device, Folder, Location


@dataclass(frozen=True, kw_only=True)
class Computation:
    """Settings of a command that computes with a network."""

    device: Device | None = None
    """Device that computes: cpu, cuda, cuda:1 or mps. By default the GPU if there is one."""
    workers: int = -1
    """Number of processes that read images; -1 chooses."""
    allow_imports: bool = False
    """Allow the specs, the data and the metrics of the command and its runs to import components by dotted name, which runs
    their code."""
    quiet: bool = False
    """Print no progress bar and no table."""


@dataclass(frozen=True, kw_only=True)
class MovedData(Computation):
    """Settings of a command that opens runs, whose data may have been moved since training."""

    data: Location | None = None
    """Current path of the run's data, if it was moved. By default the path in the run's settings."""
    root: Folder | None = None
    """Current folder of the images of a table, of a named data set or of embeddings, if they were moved. By default the folder in
    the run's settings."""


@dataclass(frozen=True, kw_only=True)
class Checkpoint(MovedData):
    """Settings of a command that opens one network of a run."""

    checkpoint: Literal["best", "last", "untrained"] = "best"
    """Checkpoint of the run: best on validation (last if there was no validation), last, or untrained (as at the start)."""
