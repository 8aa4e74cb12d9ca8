"""bench: a paper's table, or any grid of settings -> a run for each cell -> the table beside the printed one, and its files."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

from likewise.config import KEPT_OUT, Bench, Train, check
from likewise.config.overrides import must_know
from likewise.config.spec import brief
from likewise.experiments.followups import follow_up
from likewise.experiments.grid import Cell, Grid, adapted, as_train, cells, chosen, read_grid, shipped
from likewise.experiments.jobs import Crew, Job, Planner
from likewise.experiments.ray_executor import RayCrew, crew_for
from likewise.experiments.results_table import SEED, provenance, tabulate
from likewise.experiments.slurm import script, words_of
from likewise.io.files import make_folder, write_aside, write_csv
from likewise.io.progress import bar
from likewise.published import numbers
from likewise.render.benchmark import html, latex, markdown, rows_for_csv
from likewise.render.benchmark_table import Sheet
from likewise.render.tables import Table
from likewise.runs.defaults import fold_specs
from likewise.runs.devices import choose_device
from likewise.types import LikewiseError

RUNS = Path("bench") / "runs"
"""Where trainings stand unless `out` says otherwise: all tables share them, so what two have in common is trained once."""


@dataclass(frozen=True)
class Planned:
    """One training of the grid: the number of its cell, from 1; `fold` numbers those that make up one cell.

    `error`: why it failed. `differs`: settings that are not the paper's, as (name, here, there).
    """

    number: int
    cell: Cell
    fold: int | None
    job: Job
    differs: tuple[tuple[str, str, str], ...] = ()
    error: str | None = None

    @property
    def status(self) -> str:
        return f"failed: {self.error}" if self.error else self.job.state


def bench(config: Bench, say=print) -> Sheet | Table:
    """Train what is not there yet and sum everything up; with `list` or `slurm`, only say what would be trained.

    Everything is checked before the first training. A training that fails is shown with its reason, and the others go on.
    """
    check(config)
    grid = adapted(read_grid(config.grid), config.data, config.root, config.set, config.quick)
    folder = Path(config.out or Path("bench") / grid.name).expanduser()
    device = choose_device(config.device)
    crew = None if config.list or config.slurm else crew_for(config, say)
    must_be_printed(grid)
    plan = lay_out(grid, config, Planner(folder / "runs" if config.out else RUNS, say))
    wanted = set(chosen(cells(grid), config.only))
    if crew is None:
        return planned(grid, [t for t in plan if t.number - 1 in wanted], config, folder)
    plan = train_all(plan, wanted if config.train else set(), crew, config.quiet)
    make_folder(folder, "bench")
    write_results(folder / "results.csv", plan, list(grid.axes))
    notes = [f"failed: {_named(t.cell)}: {t.error}. Again: {again(config, t)}" for t in plan if t.error]
    sheet = tabulate(grid, plan, folder, device, notes)
    pictures, said = follow_up(grid, sheet, plan, config)
    sheet = replace(sheet, notes=(*sheet.notes, *said))
    write_sheet(sheet, pictures)
    return sheet


def must_be_printed(grid: Grid) -> None:
    """What points say they stand for is in the table that the grid names, or there is an error with the nearest name."""
    there = (
        numbers(**{key: value for key, value in grid.published.items() if key != "dataset"}) if grid.published else []
    )
    for point in (point for along in grid.axes.values() for point in along if there):
        for key, value in point.published.items():
            known = {f"{n.share:g}" if key == "share" else getattr(n, key): None for n in there}
            must_know(f"{float(value):g}" if key == "share" else value, known, f"printed {key}")


def lay_out(grid: Grid, config: Bench, planner: Planner) -> list[Planned]:
    """Every training of the grid, its settings checked, and in what they are not the paper's. No run may stand there twice."""
    ours = {k: v for k in ("device", "metrics", "allow_imports") if (v := getattr(config, k))}
    table = None if config.quick else shipped(grid)
    paper = cells(table) if table else []
    plan, seen = [], {}
    for number, cell in enumerate(cells(grid), 1):
        try:
            whole = as_train(cell.settings, **ours)
            folds = fold_specs(whole.protocol) if whole.protocol else None
            jobs = [planner.job(replace(whole, protocol=protocol)) for protocol in folds or [whole.protocol]]
        except LikewiseError as error:
            raise LikewiseError(f"bench: {_named(cell)}: {error}") from None
        there = counterpart(cell, paper)
        differs = difference(as_train(there.settings, **ours), whole) if there else ()
        for fold, job in enumerate(jobs):
            if seen.setdefault(job.identity, cell) is not cell:
                raise LikewiseError(
                    f"bench: {_named(seen[job.identity])} and {_named(cell)} are the same run; leave one of them out"
                )
            plan.append(Planned(number, cell, fold if folds else None, job, differs))
    return plan


def counterpart(cell: Cell, paper: Sequence[Cell]) -> Cell | None:
    """The paper's cell whose printed numbers are this one's, whatever a file of one's own calls it. A method has to be said."""
    alike = [c for c in paper if "method" in cell.published and cell.published.items() <= c.published.items()]
    return min(alike, key=lambda one: len(one.published), default=None)


def difference(there: Train, here: Train) -> tuple[tuple[str, str, str], ...]:
    """The settings that change what is learned and are not the paper's: name, here, there. Specs are short, files by name.

    Another seed is no other setting.
    """
    names = [f.name for f in fields(Train) if f.name == "data" or f.name not in (*KEPT_OUT, SEED)]
    sides = {name: (getattr(here, name), getattr(there, name)) for name in names}
    return tuple((name, _brief(a), _brief(b)) for name, (a, b) in sides.items() if a != b)


def _brief(value: object) -> str:
    if isinstance(value, tuple):
        return " + ".join(map(_brief, value)) or "none"
    if isinstance(value, str) and "(" in value:
        return re.sub(r"'[^']*/([^'/]+)'", r"'\1'", brief(value))
    return "none" if value is None else Path(value).name if isinstance(value, str) else str(value)


def planned(grid: Grid, plan: list[Planned], config: Bench, folder: Path) -> Table:
    """What would be trained, a line a training; with `slurm`, the script that trains it is written too."""
    columns = ["cell", *grid.axes, *(["fold"] if any(t.fold is not None for t in plan) else []), "state", "run"]
    lines = [[str(t.number), *names(t, columns), t.job.state, t.job.run.path.name] for t in plan]
    left = sum(t.job.state != "finished" for t in plan)
    notes = [f"{left} of {len(plan)} trainings are to be done"]
    if config.slurm:
        if config.only or config.on:
            flag = "--only" if config.only else "--on"
            raise LikewiseError(f"bench: the script trains every cell that is not finished, got {flag}; leave it out")
        file = Path(config.slurm).expanduser()
        if file.is_dir() or not file.parent.is_dir():
            raise LikewiseError(f"bench: --slurm must be a file in a folder that exists, got '{config.slurm}'")
        with write_aside(file) as aside:
            aside.write_text(script(words_of(config), len(cells(grid)), grid.name, file=str(file)), "utf-8")
        notes.append(f"script: {file} (its first lines are for you to edit; then sbatch)")
    return Table(grid.title, columns, lines, notes, folder)


def train_all(plan: list[Planned], wanted: set[int], crew: Crew | RayCrew, quiet: bool) -> list[Planned]:
    """Train what is wanted and not finished, several at once."""
    mine = [place for place, t in enumerate(plan) if t.number - 1 in wanted]
    plan, left, failed = list(plan), [place for place in mine if plan[place].job.state != "finished"], 0
    if not left:
        return plan
    title = bar("bench", len(mine), start=len(mine) - len(left), quiet=quiet)
    with crew, title as progress:
        for place, outcome in crew.work([plan[i].job.config for i in left]):
            plan[left[place]] = replace(plan[left[place]], error=outcome.error)
            failed += outcome.error is not None
            progress.advance(1, f"{failed} failed" if failed else "")
    return plan


def write_results(file: Path, plan: list[Planned], axes: list[str]) -> None:
    """One line a training: where it stands in the grid, every metric, how it ended, and what made it."""
    metrics = list(dict.fromkeys(m for t in plan for m in t.job.config.metrics))
    made = [provenance(t) for t in plan]
    facts = list(dict.fromkeys(fact for one in made for fact in one))
    lines = []
    for t, one in zip(plan, made):
        known = (t.job.run.scores or {}).get("metrics", {}) if t.status == "finished" else {}
        where = [t.number, *names(t, axes), "" if t.fold is None else t.fold]
        lines.append([*where, *(known.get(m, "") for m in metrics), t.status, *(one.get(fact, "") for fact in facts)])
    write_csv(file, ["cell", *axes, "fold", *metrics, "status", *facts], lines)


def write_sheet(sheet: Sheet, pictures: dict[str, bytes]) -> None:
    """The table in every form that people paste."""
    texts = {"table.md": markdown(sheet), "table.tex": latex(sheet), "table.html": html(sheet, pictures)}
    for name, text in texts.items():
        with write_aside(sheet.folder / name) as file:
            file.write_text(text, "utf-8")
    write_csv(sheet.folder / "table.csv", *rows_for_csv(sheet))


def again(config: Bench, training: Planned) -> str:
    """The command that trains one cell again."""
    return shlex.join(["likewise", *words_of(config), "--only", str(training.number)])


def names(training: Planned, columns: Sequence[str]) -> list[str]:
    """How the axes among these columns call a training."""
    known = training.cell.names | ({} if training.fold is None else {"fold": str(training.fold)})
    return [known[column] for column in columns if column in known]


def _named(cell: Cell) -> str:
    return ", ".join(f"{axis} {name}" for axis, name in cell.names.items()) or "the one cell"
