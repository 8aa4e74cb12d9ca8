"""Write the files of a table: results.csv (one line for each training), table.md, .tex, .html and .csv, and figures."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from likewise.core.files import atomic_write, make_folder, write_csv
from likewise.core.render.figures import Picture
from likewise.core.settings import Bench
from likewise.papers.experiments.followups import follow_up
from likewise.papers.experiments.grid_plan import names
from likewise.papers.experiments.grid_types import cell_name
from likewise.papers.experiments.jobs import GridPlan, PlannedRun
from likewise.papers.experiments.results_table import provenance, tabulate
from likewise.papers.experiments.slurm import words_of
from likewise.papers.render.benchmark import html, latex, markdown, rows_for_csv
from likewise.papers.render.benchmark_table import BEST_EPOCH, BenchmarkTable


def write_table(plan: GridPlan, config: Bench, device: torch.device) -> BenchmarkTable:
    """Return the table of a grid, and write all its files."""
    make_folder(plan.folder, "bench")
    write_results(plan.folder / "results.csv", plan.runs, list(plan.grid.axes))
    failed = [f"failed: {cell_name(t.cell)}: {t.error}. Again: {again(config, t)}" for t in plan.runs if t.error]
    sheet = replace(tabulate(plan.grid, plan.runs, plan.folder, device, (*plan.notes, *failed)), failed=len(failed))
    pictures, notes = follow_up(plan.grid, sheet, plan.runs, config)
    return write_page(sheet, pictures, notes)


def write_figures(plan: GridPlan, config: Bench) -> BenchmarkTable:
    """Return the page of a grid without trainings, which has notes and no entries, and write it with its figures."""
    make_folder(plan.folder, "bench")
    grid = plan.grid
    sheet = BenchmarkTable(
        grid.name, grid.title or grid.name, (), (), (grid.note,) if grid.note else (), folder=plan.folder
    )
    pictures, notes = follow_up(grid, sheet, [], config)
    return write_page(sheet, pictures, notes)


def write_page(sheet: BenchmarkTable, pictures: Sequence[Picture], notes: Sequence[str]) -> BenchmarkTable:
    """Return the table with these notes and the names of its leading figures, and write it in all formats."""
    leading = tuple(picture.file for picture in pictures if picture.leads)
    sheet = replace(sheet, notes=(*sheet.notes, *notes), figures=leading)
    write_sheet(sheet, pictures)
    return sheet


def write_results(file: Path, plan: Sequence[PlannedRun], axes: list[str]) -> None:
    """Write results.csv: for each training its cell, every metric, its status, and its provenance; `--adopt` reads it."""
    metrics = list(dict.fromkeys(m for t in plan for m in t.job.config.metrics))
    metrics += [f"{m}{BEST_EPOCH}" for m in metrics if any(m in best_epoch(t) for t in plan)]
    made = [provenance(t) for t in plan]
    facts = list(dict.fromkeys(fact for one in made for fact in one))
    lines = []
    for t, one in zip(plan, made):
        known = t.scores["metrics"] | {f"{m}{BEST_EPOCH}": v for m, v in best_epoch(t).items()} if t.finished else {}
        where = [t.number, *names(t, axes), "" if t.fold is None else t.fold]
        lines.append([*where, *(known.get(m, "") for m in metrics), t.status, *(one.get(fact, "") for fact in facts)])
    write_csv(file, ["cell", *axes, "fold", *metrics, "status", *facts], lines)


def best_epoch(t: PlannedRun) -> dict[str, float]:
    """Return metric -> value of the best test epoch of a finished training that was tested during training."""
    return (t.scores.get("best_test_epoch") or {}) if t.finished else {}


def write_sheet(sheet: BenchmarkTable, pictures: Sequence[Picture]) -> None:
    """Write the table as Markdown, LaTeX, HTML and CSV; a page without entries as Markdown and HTML."""
    texts = {"table.md": markdown(sheet, pictures), "table.html": html(sheet, pictures)}
    texts |= {"table.tex": latex(sheet)} if sheet.entries else {}
    for name, text in texts.items():
        with atomic_write(sheet.folder / name) as file:
            file.write_text(text, "utf-8")
    if sheet.entries:
        write_csv(sheet.folder / "table.csv", *rows_for_csv(sheet))


def again(config: Bench, training: PlannedRun) -> str:
    """Return the command that trains one cell again."""
    return shlex.join(["likewise", *words_of(config), "--only", str(training.number)])
