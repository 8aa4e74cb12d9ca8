"""bench: a grid of settings -> a run for each -> one table of means with their intervals over seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from likewise.configs import Bench, check
from likewise.files import write_aside, write_csv
from likewise.grid import Cell, Grid, as_train, cells, read_grid
from likewise.intervals import t_interval
from likewise.metrics import as_text
from likewise.progress import bar
from likewise.stages.assemble import choose_device
from likewise.stages.folds import fold_specs, score_folds
from likewise.stages.many import Crew, Job, Planner
from likewise.types import LikewiseError

SEED = "seed"
"""The axis over which means are taken."""

PLUS_MINUS = (
    "Shares in per cent: the mean ± half the width of its 95 % t-interval over n seeds. "
    "(1 run): one seed, which says nothing of the spread."
)
FOLDS = (
    "separated: mean over the fold models of a seed. concatenated: their embeddings joined to one vector, scored once."
)
CHOSEN = "best test epoch: chosen by looking at the test part, so too good; not to be compared with the other columns."


@dataclass(frozen=True)
class Planned:
    """One training of the grid; `fold` numbers those that make up one cell. `error`: why it failed."""

    cell: Cell
    fold: int | None
    job: Job
    error: str | None = None

    @property
    def status(self) -> str:
        return f"failed: {self.error}" if self.error else self.job.state


@dataclass(frozen=True)
class Table:
    """What bench found, as text: a line a cell, notes below it, and the folder it is written to."""

    title: str
    columns: list[str]
    lines: list[list[str]]
    notes: list[str]
    folder: Path


def bench(config: Bench, say=print) -> Table:
    """Train what is not there yet and sum everything up; with `list`, only say what would be trained.

    Everything is checked before the first training. A training that fails is shown with its reason, and the others go on.
    """
    check(config)
    grid, device = read_grid(config.grid), choose_device(config.device)
    folder = Path(config.out or Path("bench") / Path(config.grid).stem).expanduser()
    plan = lay_out(grid, config, Planner(folder / "runs", say))
    if config.list:
        columns = [*grid.axes, *(["fold"] if any(t.fold is not None for t in plan) else []), "state", "run"]
        lines = [[*_names(t, columns), t.job.state, t.job.run.path.name] for t in plan]
        left = sum(t.job.state != "finished" for t in plan)
        return Table(grid.title, columns, lines, [f"{left} of {len(plan)} trainings are to be done"], folder)
    plan = train_all(plan, config.jobs, config.quiet)
    folder.mkdir(parents=True, exist_ok=True)
    write_results(folder / "results.csv", plan, list(grid.axes))
    table = sum_up(grid, plan, folder, device)
    with write_aside(folder / "table.md") as file:
        file.write_text(markdown(table), "utf-8")
    return table


def lay_out(grid: Grid, config: Bench, planner: Planner) -> list[Planned]:
    """Every training of the grid, its settings checked. Two that are the same run are refused."""
    ours = {k: v for k in ("device", "metrics", "allow_imports") if (v := getattr(config, k))}
    plan, seen = [], {}
    for cell in cells(grid):
        try:
            whole = as_train(cell.settings, **ours)
            folds = fold_specs(whole.protocol) if whole.protocol else None
            jobs = [planner.job(replace(whole, protocol=protocol)) for protocol in folds or [whole.protocol]]
        except LikewiseError as error:
            raise LikewiseError(f"bench: {_words(cell.names)}: {error}") from None
        for fold, job in enumerate(jobs):
            if seen.setdefault(job.identity, cell) is not cell:
                raise LikewiseError(
                    f"bench: {_words(seen[job.identity].names)} and {_words(cell.names)} are the same run; "
                    "leave one of them out"
                )
            plan.append(Planned(cell, fold if folds else None, job))
    return plan


def train_all(plan: list[Planned], jobs: int, quiet: bool) -> list[Planned]:
    """Train what is not finished, several at once."""
    plan, left = list(plan), [place for place, t in enumerate(plan) if t.job.state != "finished"]
    if not left:
        return plan
    title = bar("bench", len(plan), start=len(plan) - len(left), quiet=quiet)
    with Crew(jobs) as crew, title as progress:
        for place, outcome in crew.work([plan[i].job.config for i in left]):
            plan[left[place]] = replace(plan[left[place]], error=outcome.error)
            progress.advance(1, f"failed: {outcome.error[:60]}" if outcome.error else "")
    return plan


def write_results(file: Path, plan: list[Planned], axes: list[str]) -> None:
    """One line a training: where it stands in the grid, its run, every metric, and how it ended."""
    metrics = list(dict.fromkeys(m for t in plan for m in t.job.config.metrics))
    lines = []
    for t in plan:
        known = (t.job.run.scores or {}).get("metrics", {}) if t.status == "finished" else {}
        where = [*_names(t, axes), "" if t.fold is None else t.fold, t.job.identity, t.job.run.path]
        lines.append([*where, *(known.get(m, "") for m in metrics), t.status])
    write_csv(file, [*axes, "fold", "identity", "run", *metrics, "status"], lines)


def sum_up(grid: Grid, plan: list[Planned], folder: Path, device: torch.device) -> Table:
    """A line a cell, or two where folds are scored apart and together; seeds are averaged."""
    axes = [axis for axis in grid.axes if axis != SEED]
    metrics = list(dict.fromkeys(m for t in plan for m in t.job.config.metrics))
    groups: dict[tuple, dict[str, list[Planned]]] = {}
    for t in plan:
        seeds = groups.setdefault(tuple(_names(t, axes)), {})
        seeds.setdefault(t.cell.names.get(SEED, ""), []).append(t)
    found, failures = [], []
    for names, seeds in groups.items():
        scored = [
            score(trainings, device) for trainings in seeds.values() if all(t.status == "finished" for t in trainings)
        ]
        kinds = list(scored[0]) if scored else [""]
        found += [(names, kind, [s[kind] for s in scored], len(seeds)) for kind in kinds]
        failed = list(dict.fromkeys(t.error for trainings in seeds.values() for t in trainings if t.error))
        failures += [f"failed: {_words(dict(zip(axes, names)))}: {'; '.join(failed)}"] if failed else []
    chosen = [m for m in metrics if any(f"{m} (best test epoch)" in s for *_, scores, _ in found for s in scores)]
    shown = metrics + [f"{m} (best test epoch)" for m in chosen]
    folds = any(kind for _, kind, *_ in found)
    columns, lines = [*axes, *(["scores"] if folds else []), *shown, "n"], []
    for names, kind, scores, of in found:
        values = [show(m, [s[m] for s in scores if m in s]) for m in shown]
        count = str(len(scores)) if len(scores) == of else f"{len(scores)} of {of}"
        lines.append([*names, *([kind] if folds else []), *values, count])
    notes = [PLUS_MINUS, *([FOLDS] if folds else []), *([CHOSEN] if chosen else []), *failures]
    return Table(grid.title, columns, lines, notes, folder)


def score(trainings: list[Planned], device: torch.device) -> dict[str, dict[str, float]]:
    """Kind of score -> metric -> value, for one seed: the run's own, or those of its folds apart and together."""
    metrics, stored = trainings[0].job.config.metrics, [t.job.run.scores for t in trainings]
    best = [s.get("best_test_epoch") or {} for s in stored]
    names = [m for m in metrics if all(m in b for b in best)]
    chosen = {f"{m} (best test epoch)": sum(b[m] for b in best) / len(best) for m in names}
    if trainings[0].fold is None:
        return {"": {m: stored[0]["metrics"][m] for m in metrics} | chosen}
    both = score_folds([t.job.run for t in trainings], metrics, device=device, quiet=True)
    return {kind: both[kind]["metrics"] | (chosen if kind == "separated" else {}) for kind in both}


def show(metric: str, values: Sequence[float]) -> str:
    """A mean with half the width of its interval; never a bare number."""
    if not values:
        return "-"
    name = metric.removesuffix(" (best test epoch)")
    if any(map(math.isnan, values)):
        return "nan"
    mean, _, high, n = t_interval(values)
    mean, reach = (as_text(name, value).removesuffix(" %") for value in (mean, high - mean))
    return f"{mean} (1 run)" if n == 1 else f"{mean} ± {reach}"


def markdown(table: Table) -> str:
    """The table as a file people can read and paste."""
    rows = [table.columns, ["---"] * len(table.columns), *table.lines]
    body = "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows)
    return "\n\n".join([*([f"# {table.title}"] if table.title else []), body, *table.notes]) + "\n"


def _names(training: Planned, columns: Sequence[str]) -> list[str]:
    names = training.cell.names | ({} if training.fold is None else {"fold": str(training.fold)})
    return [names[column] for column in columns if column in names]


def _words(names: dict[str, str]) -> str:
    return ", ".join(f"{axis} {name}" for axis, name in names.items()) or "the one cell"
