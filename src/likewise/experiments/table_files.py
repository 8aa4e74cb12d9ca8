"""Write the files of a table: results.csv (one line for each training), table.md, .tex, .html and .csv, and figures."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from likewise.config import Bench
from likewise.experiments.followups import follow_up
from likewise.experiments.grid_plan import cell_name, names
from likewise.experiments.jobs import GridPlan, PlannedRun
from likewise.experiments.results_table import provenance, tabulate
from likewise.experiments.slurm import words_of
from likewise.io.files import atomic_write, make_folder, write_csv
from likewise.render.benchmark import html, latex, markdown, rows_for_csv
from likewise.render.benchmark_table import BenchmarkTable


def write_table(plan: GridPlan, config: Bench, device: torch.device) -> BenchmarkTable:
    """Return the table of a grid, and write all its files."""
    make_folder(plan.folder, "bench")
    write_results(plan.folder / "results.csv", plan.runs, list(plan.grid.axes))
    failed = [f"failed: {cell_name(t.cell)}: {t.error}. Again: {again(config, t)}" for t in plan.runs if t.error]
    sheet = replace(tabulate(plan.grid, plan.runs, plan.folder, device, failed), failed=len(failed))
    figures, notes = follow_up(plan.grid, sheet, plan.runs, config)
    sheet = replace(sheet, notes=(*sheet.notes, *notes))
    write_sheet(sheet, figures)
    return sheet


def write_results(file: Path, plan: Sequence[PlannedRun], axes: list[str]) -> None:
    """Write results.csv: for each training its cell, every metric, its status, and its provenance."""
    metrics = list(dict.fromkeys(m for t in plan for m in t.job.config.metrics))
    made = [provenance(t) for t in plan]
    facts = list(dict.fromkeys(fact for one in made for fact in one))
    lines = []
    for t, one in zip(plan, made):
        known = (t.job.run.scores or {}).get("metrics", {}) if t.finished else {}
        where = [t.number, *names(t, axes), "" if t.fold is None else t.fold]
        lines.append([*where, *(known.get(m, "") for m in metrics), t.status, *(one.get(fact, "") for fact in facts)])
    write_csv(file, ["cell", *axes, "fold", *metrics, "status", *facts], lines)


def write_sheet(sheet: BenchmarkTable, figures: dict[str, bytes]) -> None:
    """Write the table as Markdown, LaTeX, HTML and CSV."""
    texts = {"table.md": markdown(sheet), "table.tex": latex(sheet), "table.html": html(sheet, figures)}
    for name, text in texts.items():
        with atomic_write(sheet.folder / name) as file:
            file.write_text(text, "utf-8")
    write_csv(sheet.folder / "table.csv", *rows_for_csv(sheet))


def again(config: Bench, training: PlannedRun) -> str:
    """Return the command that trains one cell again."""
    return shlex.join(["likewise", *words_of(config), "--only", str(training.number)])
