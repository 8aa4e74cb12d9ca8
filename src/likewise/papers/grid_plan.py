"""Plan a grid: all trainings with checked settings, their cells, and their differences from the paper's settings."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from likewise.core.contracts import Confidence
from likewise.core.errors import LikewiseError
from likewise.core.settings import SETTINGS_OUTSIDE_IDENTITY, SPECS, Bench, Train, merged_settings
from likewise.core.settings.overrides import must_know
from likewise.core.settings.spec import brief, build, canonical
from likewise.core.types import Items
from likewise.data import lacks_root
from likewise.data.fingerprint import fingerprint
from likewise.learn.recipes import NO_RECIPE, PRINT_SUFFIX, Recipe, read
from likewise.papers.benchmark_table import BEST_EPOCH, RowNote, notes_by_rows
from likewise.papers.grid import (
    SEED_AXIS,
    Cell,
    Grid,
    adapted,
    as_train,
    cell_name,
    cells,
    chosen,
    read_grid,
    shipped,
    table_names,
)
from likewise.papers.published import numbers
from likewise.runs.folder import Run
from likewise.runs.identity import find_run

SHARED_RUNS_FOLDER = Path("bench") / "runs"
"""Default folder of the runs. All tables share it, so a training in two tables runs once."""

MAX_LISTED_VALUES = 2
"""Largest number of values of a setting that a note lists."""


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


class Difference(NamedTuple):
    """A setting, its value here and in the paper; or only a text, under the setting ""."""

    setting: str
    here: str
    there: str = ""

    @property
    def text(self) -> str:
        return f"{self.setting} {self.here}, not {self.there}" if self.setting else self.here


def plan_grid(config: Bench, say: Callable[[str], None]) -> GridPlan:
    """Return the plan of the grid of bench; all settings are checked before the first training."""
    grid = adapted_grid(config)
    folder = Path(config.out or Path("bench") / grid.name).expanduser()
    check_published(grid)
    runs = lay_out(grid, config, Planner(folder / "runs" if config.out else SHARED_RUNS_FOLDER, say))
    return GridPlan(grid, folder, runs, set(chosen(cells(grid), config.only)))


def adapted_grid(config: Bench) -> Grid:
    """Return the grid that bench runs: with the data, the settings and the size that its arguments give."""
    assert config.grid is not None
    return adapted(read_grid(config.grid), config.data, config.root, config.set, config.quick)


def has_roots(grid: Grid) -> bool:
    """Return whether the data of all cells can be looked for: no named data set lacks its folder."""
    return not any(lacks_root(str(cell.settings.get("data")), cell.settings.get("root")) for cell in cells(grid))


def check_published(grid: Grid) -> None:
    """Raise unless the published keys of all points are in the table of the paper; the error suggests the nearest name."""
    known_numbers = (
        numbers(**{key: value for key, value in grid.published.items() if key != "dataset"}) if grid.published else []
    )
    for method in grid.published_only:
        must_know(method, {n.method: None for n in known_numbers}, "printed method")
    for point in (point for along in grid.axes.values() for point in along if known_numbers):
        for key, value in point.published.items():
            known = {f"{n.share:g}" if key == "share" else getattr(n, key): None for n in known_numbers}
            must_know(f"{float(value):g}" if key == "share" else value, known, f"printed {key}")


def lay_out(grid: Grid, config: Bench, planner: Planner) -> list[PlannedRun]:
    """Return all trainings of the grid with checked settings and their differences from the paper; raises for a repeated run."""
    from likewise.learn.training.defaults import fold_specs

    ours = {k: v for k in ("device", "metrics", "allow_imports") if (v := getattr(config, k))}
    table = None if config.quick else shipped(grid)
    paper = cells(table) if table else []
    is_of_paper = grid.name.removesuffix(f"-{PRINT_SUFFIX}" * grid.is_print) in table_names()
    plan, seen = [], {}
    for number, cell in enumerate(cells(grid), 1):
        try:
            whole = as_train(cell.settings, **ours)
            folds = fold_specs(whole.protocol) if whole.protocol else None
            jobs = [planner.job(replace(whole, protocol=protocol)) for protocol in folds or [whole.protocol]]
        except LikewiseError as error:
            raise LikewiseError(f"bench: {cell_name(cell)}: {error}") from None
        published = counterpart(cell, paper)
        there = as_train(published.settings, **ours) if published else None
        of_paper = bool(published) or (is_of_paper and not grid.published)
        differs = differences(cell, whole, published, there) if of_paper else ()
        taken = assumed(cell) if of_paper else ()
        for fold, job in enumerate(jobs):
            if seen.setdefault(job.identity, cell) is not cell:
                raise LikewiseError(
                    f"bench: {cell_name(seen[job.identity])} and {cell_name(cell)} are the same run; drop one of them"
                )
            plan.append(PlannedRun(number, cell, fold if folds else None, job, differs, taken))
    return plan


def names(training: PlannedRun, columns: Sequence[str]) -> list[str]:
    """Return the names of a training on the axes among these columns."""
    known = training.cell.names | ({} if training.fold is None else {"fold": str(training.fold)})
    return [known[column] for column in columns if column in known]


def data_of(grid: Grid, training) -> str:
    """Return the name of its data set in lower case, as the papers' numbers have it."""
    return str(grid.published.get("dataset", training.job.config.data.split("(")[0])).casefold()


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


def counterpart(cell: Cell, paper: Sequence[Cell]) -> Cell | None:
    """Return the cell of the paper with the same published numbers, by its keys, not its names; None without a "method" key."""
    alike = [c for c in paper if "method" in cell.published and cell.published.items() <= c.published.items()]
    return min(alike, key=lambda one: len(one.published), default=None)


def differences(cell: Cell, here: Train, published: Cell | None, there: Train | None) -> tuple[Difference, ...]:
    """Return all differences of a cell from the paper.

    Args:
        here: the checked settings of the cell.
        published: the cell of the shipped table with the same published numbers; None: the paper has no such cell.
        there: the checked settings of that cell.
    """
    changed = changes(there, here) if there else ()
    ours = [key for key in by_source(cell, "ours") if key not in {one.setting for one in changed}]
    texts = [f"{', '.join(ours)}: {read_recipe(cell).differs or 'ours'}"] if ours else []
    texts += [*(published.differs if published else ()), *cell.differs]
    return (*changed, *(Difference("", text) for text in dict.fromkeys(texts)))


def changes(there: Train, here: Train) -> tuple[Difference, ...]:
    """Return the settings that change what is learned and differ; specs are abbreviated, and the seed does not count."""
    names = [f.name for f in fields(Train) if f.name == "data" or f.name not in (*SETTINGS_OUTSIDE_IDENTITY, SEED_AXIS)]
    sides = {name: (getattr(here, name), getattr(there, name)) for name in names}
    return tuple(
        Difference(name, _brief(name, a), _brief(name, b))
        for name, (a, b) in sides.items()
        if _written(name, a) != _written(name, b)
    )


def assumed(cell: Cell) -> tuple[str, ...]:
    """Return the settings of a cell that no source states, each with its value."""
    recipe = read_recipe(cell)
    return tuple(f"{key} {_brief(key, recipe.values[key])}" for key in by_source(cell, "assumed"))


def by_source(cell: Cell, source: str) -> list[str]:
    """Return the settings that a cell takes from its recipe and that have this source there."""
    recipe = read_recipe(cell)
    used = merged_settings(recipe.values, {key: value for key, value in cell.settings.items() if key != "recipe"})
    return [key for key, one in recipe.source.items() if one == source and key in used and key not in cell.settings]


def read_recipe(cell: Cell) -> Recipe:
    """Return the recipe of a cell for its data; an empty one if the cell has none."""
    name = cell.settings.get("recipe")
    return read(str(name), str(cell.settings.get("data"))) if name else NO_RECIPE


def notes_on_differences(rows: dict[str, list[Difference]]) -> tuple[RowNote, ...]:
    """Return row -> differences as notes. A setting of all rows that differ is one text with at most two values of each side."""
    shared: dict[str, tuple[dict[str, None], dict[str, None]]] = {}
    for one in (one for own in rows.values() for one in own if one.setting):
        if all(any(other.setting == one.setting for other in own) for own in rows.values() if own):
            here, there = shared.setdefault(one.setting, ({}, {}))
            here[one.here], there[one.there] = None, None
    common = {name: Difference(name, _some(here), _some(there)) for name, (here, there) in shared.items()}
    return notes_by_rows({row: [common.get(one.setting, one).text for one in own] for row, own in rows.items()})


def _some(values: dict[str, None]) -> str:
    listed = list(values)
    return " or ".join(listed[:MAX_LISTED_VALUES]) + " or others" * (len(listed) > MAX_LISTED_VALUES)


def _written(name: str, value: object) -> object:
    """Return a spec in one way of writing it; the values of other settings as they are."""
    if isinstance(value, tuple):
        return tuple(_written(name, one) for one in value)
    return canonical(value) if isinstance(value, str) and name in SPECS else value


def _brief(name: str, value: object) -> str:
    """Return a value as text: specs without arguments at their defaults, paths without their folders."""
    if isinstance(value, tuple):
        return " + ".join(_brief(name, one) for one in value) or "none"
    if isinstance(value, str) and name in SPECS:
        return re.sub(r"'[^']*/([^'/]+)'", r"'\1'", brief(value))
    return "none" if value is None else Path(value).name if isinstance(value, str) else str(value)


def adopt(plan: Sequence[PlannedRun], files: Sequence[str]) -> tuple[list[PlannedRun], list[str]]:
    """Return the plan with the records of finished trainings of the same identity, and a note for every file.

    A training that is finished here keeps its own run. Folds are not adopted: their joint scores need their embeddings.
    """
    plan, notes = list(plan), []
    for file in files:
        records = read_records(file)
        fitting = [place for place, t in enumerate(plan) if is_record_of(t, records.get(t.job.identity, {}))]
        for place in fitting:
            job = plan[place].job
            plan[place] = replace(plan[place], record=as_record(records[job.identity], file, job.config.metrics))
        notes.append(
            f"{len(fitting)} of the {len(records)} finished trainings in {file} are cells of this table: adopted"
        )
    return plan, notes


def is_record_of(t: PlannedRun, row: dict[str, str]) -> bool:
    """Return whether a row of results.csv can replace a training: it has all metrics, and the training is not finished here."""
    return t.fold is None and all(row.get(metric) for metric in t.job.config.metrics) and t.job.state != "finished"


def read_records(file: str) -> dict[str, dict[str, str]]:
    """Return identity -> row of every finished training in a results.csv."""
    try:
        with Path(file).expanduser().open(encoding="utf-8", newline="") as lines:
            head, *cells = csv.reader(lines, strict=True)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise LikewiseError(f"bench: --adopt must be a results.csv that bench wrote, got '{file}' ({error})") from None
    except ValueError:
        head, cells = [], []  # an empty file
    if not {"identity", "status"} <= set(head) or len(set(head)) < len(head):
        raise LikewiseError(
            "bench: --adopt must be a results.csv that bench wrote, with the columns identity and status and none twice, got "
            f"'{file}' with {', '.join(head[:6]) or 'nothing'}"
        )
    records: dict[str, dict[str, str]] = {}
    for number, line in enumerate(cells, 2):
        row = dict(zip(head, line))
        if len(line) != len(head):
            raise LikewiseError(
                f"bench: --adopt {file}: line {number} must have {len(head)} cells, got {len(line)}; restore a copy of the file"
            )
        if row["status"] not in ("finished", "adopted"):
            continue
        if records.setdefault(row["identity"], row) != row:
            raise LikewiseError(
                f"bench: --adopt {file}: a training must have one line, but lines with different results have the identity "
                f"{row['identity']}; delete all but one"
            )
    return records


def as_record(row: dict[str, str], file: str, metrics: Sequence[str]) -> Record:
    """Return a row of results.csv as the scores and the facts of a training; raises unless the metrics are finite numbers."""
    numbers = {name: float(text) for name, text in row.items() if _is_number(text)}
    odd = next((metric for metric in metrics if metric not in numbers), None)
    if odd is not None:
        raise LikewiseError(
            f"bench: --adopt {file}: {odd} of a finished training must be a finite number, got {row[odd]!r}; restore a copy of "
            "the file"
        )
    best = {name.removesuffix(BEST_EPOCH): value for name, value in numbers.items() if name.endswith(BEST_EPOCH)}
    return Record({"metrics": numbers, "best_test_epoch": best}, {**row, "adopted": file})


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
