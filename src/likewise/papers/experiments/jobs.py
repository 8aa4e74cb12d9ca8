"""Jobs: a training with its run folder (`Job`), its cell in a grid (`PlannedRun`), and the checks before training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from likewise.core.contracts import Confidence
from likewise.core.settings import Train
from likewise.core.settings.spec import build
from likewise.core.types import Items
from likewise.data.fingerprint import fingerprint
from likewise.papers.experiments.deviations import Difference
from likewise.papers.experiments.grid_types import Cell, Grid
from likewise.runs.folder import Run
from likewise.runs.identity import find_run


@dataclass(frozen=True)
class Job:
    """One training: its resolved settings, including `out`, and its identity."""

    config: Train
    identity: str

    @property
    def run(self) -> Run:
        assert self.config.out is not None
        return Run(self.config.out)

    @property
    def state(self) -> str:
        """ "finished"; "unfinished" (not trained or evaluated to the end, or the folder holds another run); or "new"."""
        if not (self.run.path / "config.json").exists():
            return "new"
        if self.run.about["identity"] != self.identity:
            return "unfinished"  # training it will raise with the reason
        scored = (
            not self.config.evaluate
            or not set(self.config.metrics) - (self.run.scores or {"metrics": {}})["metrics"].keys()
        )
        return "finished" if self.run.done and scored else "unfinished"


@dataclass(frozen=True)
class Record:
    """A training that was finished elsewhere: its scores in the form of scores.json, and its row of results.csv."""

    scores: dict[str, dict[str, float]]
    row: dict[str, str]


@dataclass(frozen=True)
class PlannedRun:
    """One training of a grid: the number of its cell, from 1; `fold` numbers the trainings that make up one cell.

    `error`: why it failed. `differs`: differences from what the paper states. `assumed`: settings that no source states.
    `record`: its results, if it was finished elsewhere and adopted.
    """

    number: int
    cell: Cell
    fold: int | None
    job: Job
    differs: tuple[Difference, ...] = ()
    assumed: tuple[str, ...] = ()
    error: str | None = None
    record: Record | None = None

    @property
    def state(self) -> str:
        """The state of the job, or "adopted"."""
        return "adopted" if self.record else self.job.state

    @property
    def finished(self) -> bool:
        return not self.error and self.state in ("finished", "adopted")

    @property
    def status(self) -> str:
        """The state, or the error, as text for the table."""
        return f"failed: {self.error}" if self.error else self.state

    @property
    def scores(self) -> dict:
        """The content of scores.json, of the run or of the record; {} if the run was not evaluated."""
        return self.record.scores if self.record else self.job.run.scores or {}


@dataclass(frozen=True)
class GridPlan:
    """A grid, the folder of its table, its trainings, the indices of the cells that --only chooses, and notes for the table."""

    grid: Grid
    folder: Path
    runs: list[PlannedRun]
    chosen: set[int]
    notes: tuple[str, ...] = ()


class Planner:
    """Makes jobs from settings, in one folder. Every data set is read once."""

    def __init__(self, folder: Path, say: Callable[[str], None]):
        self.folder, self.say = folder, say
        self._items: dict[tuple, tuple[Items, str]] = {}

    def items(self, config: Train) -> tuple[Items, str]:
        """Return the data of these settings, and its fingerprint."""
        from likewise.data.dataset import load_items

        key = (config.data, config.root)
        if key not in self._items:
            options = {"quiet": True, "say": self.say, "allow_imports": config.allow_imports}
            items = load_items(config.data, config.root, skipped=(), **options)  # its trainings are strict
            self._items[key] = items, fingerprint(items)
        return self._items[key]

    def job(self, config: Train) -> Job:
        """Return the job of these settings; raises for settings that cannot work, as far as this needs no network."""
        from likewise.data.dataset import make_protocol
        from likewise.learn.training.defaults import check_durations, check_loss, resolve
        from likewise.score.checks import check_plan

        items, data = self.items(config)
        config = replace(resolve(config, items), quiet=True, restart=False, out=None, strict=True)
        check_loss(config, items)
        rows = np.arange(len(items))
        facts = {
            "class_names": items.class_name, "taxonomy": items.taxonomy, "rows": rows, "samples": len(items),
            "classes": items.classes,
            "dim": config.dim, "labels": items.y, "per_pass": 100, "steps": 100,
        }  # fmt: skip
        if config.confidence:
            build(config.confidence, Confidence, allow_imports=config.allow_imports, **facts)
        check_durations(config)
        check_plan(config, items, make_protocol(config))
        claim = find_run(config, items, data)
        return Job(replace(config, out=str(self.folder / claim.run.path.name)), claim.about["identity"])
