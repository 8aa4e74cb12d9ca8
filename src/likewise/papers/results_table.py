"""tabulate: build the table of a grid from its trainings: values beside published numbers, tests between methods, provenance."""

from __future__ import annotations

import shlex
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import torch

from likewise.core.files import atomic_write, make_folder, write_csv
from likewise.core.render.figures import Picture, themed_svg, write_figure
from likewise.core.settings import Bench
from likewise.core.types import LikewiseError
from likewise.papers.benchmark_formats import html, latex, markdown, rows_for_csv
from likewise.papers.benchmark_table import BEST_EPOCH, BenchmarkTable, Entry, against, label, lay_out, notes_by_rows
from likewise.papers.figures import FIGURE_KINDS
from likewise.papers.figures.drawing import FinishedTable, write_drawing
from likewise.papers.figures.method_means import draw_agreement, draw_means
from likewise.papers.grid import SEED_AXIS, Cell, Grid, Place, cell_name, place_of, rows_of
from likewise.papers.grid_plan import GridPlan, PlannedRun, data_of, names, notes_on_differences
from likewise.papers.published import Number, numbers
from likewise.runs.scores import PER_QUERY, PerQuery, read_per_query
from likewise.runs.usage import cost
from likewise.score.metrics import is_set_metric
from likewise.score.significance import MethodComparison

HARMONIC_SUFFIX = " harmonic mean"
"""Suffix of a published metric that is the harmonic mean over all columns of a row."""

FOLD_SCORE_KINDS = ("separated", "concatenated")
"""Kinds of scores of class folds."""

MAX_LISTED_ITEMS = 12
"""Largest number of missing trainings that a note lists."""

FACTS_OF_A_RECORD = (
    "run", "identity", "data", "commit", "device", "torch", "train_seconds", "evaluate_seconds", "sessions", "energy_joules",
    "energy_shared",
)  # fmt: skip
"""Columns of results.csv with the provenance of a training."""

SETTINGS_OF_AGAIN = ("data", "root", "set", "quick", "adopt", "out", "metrics", "device", "allow_imports", "quiet")
"""Settings of bench that the command to train one cell again repeats."""

FOLDS_NOTE = (
    "separated: mean over the fold models of a seed. concatenated: their embeddings joined to one vector, scored once."
)

UNCLEAR_NOTE = "{} printed numbers are not shown: their cells are ambiguous; add keys to published = {{...}}."
BEST_EPOCH_NOTE = (
    "best test epoch: selected on the test split, so biased upwards; do not compare it with the other columns."
)


def tabulate(
    grid: Grid, plan: Sequence, folder: Path, device: torch.device, notes: Sequence[str] = ()
) -> BenchmarkTable:
    """Return the table: trained values, numbers that only the paper has, and notes about missing trainings."""
    groups: dict[Place, dict[str, list]] = {}
    for t in plan:
        groups.setdefault(place_of(grid, t.cell.names), {}).setdefault(t.cell.names.get(SEED_AXIS, ""), []).append(t)
    data = {data_of(grid, t) for t in plan}
    printed = [n for n in numbers(**grid.published) if n.dataset.casefold() in data] if grid.published else []
    entries = [e for place, seeds in groups.items() for e in entries_of(grid, place, seeds, printed, device)]
    used = {id(e.printed) for e in entries}
    left = [] if grid.is_figure else [n for n in printed if id(n) not in used]
    alone = [one for n in left if (one := only_printed(grid, n, plan))]
    places = Counter((e.row, e.column) for e in [*entries, *alone])
    clear = [e for e in alone if places[e.row, e.column] == 1]
    entries += clear
    entries = [with_harmonic_mean(e, entries) for e in entries]
    found, why = tests(groups)
    chosen = any(e.column[-1].endswith(BEST_EPOCH) for e in entries)
    folds = any(t.fold is not None for t in plan)
    unclear = UNCLEAR_NOTE.format(len(alone) - len(clear)) if len(clear) < len(alone) else ""
    texts = [grid.note, unclear, FOLDS_NOTE * folds, BEST_EPOCH_NOTE * chosen, why, missing(plan), *notes]
    return BenchmarkTable(
        grid.name, grid.title or grid.name, tuple(rows_of(grid)), tuple(entries), tuple(filter(None, texts)),
        notes_on_differences(texts_of_rows(grid, plan, "differs")), found,
        tuple(t.cell.names | provenance(t) for t in plan), folder,
        assumed=notes_by_rows(texts_of_rows(grid, plan, "assumed")), published_only=grid.published_only,
    )  # fmt: skip


def entries_of(
    grid: Grid, place: Place, seeds: dict[str, list], printed: list[Number], device: torch.device
) -> list[Entry]:
    """Return the entries of one setting: the values of its seeds for each metric, and for each kind of score of folds."""
    (row, column), first = place, next(iter(seeds.values()))[0]
    scored = [score(ts, device) for ts in seeds.values() if all(t.finished for t in ts)]
    entries = []
    for kind in FOLD_SCORE_KINDS if first.fold is not None else [""]:
        for metric in dict.fromkeys(m for one in scored for m in one[kind]) or first.job.config.metrics:
            name = metric.removesuffix(BEST_EPOCH)
            name = grid.published_scores.get(kind, "") + grid.published_metrics.get(name, name)
            fits = [n for n in printed if n.metric == name and is_of(n, first.cell)]
            fits = [n for n in fits if n.dataset.casefold() == data_of(grid, first)]
            values = tuple(one[kind][metric] for one in scored if metric in one[kind])
            where = (*column, *([kind] if kind else []), metric)
            number = fits[0] if len(fits) == 1 and "method" in first.cell.published else None
            entries.append(Entry(row, where, values, len(seeds), number, bool(first.differs)))
    return entries


def is_of(number: Number, cell: Cell) -> bool:
    """Return whether a published number matches the keys of a cell."""
    return all(
        number.share == float(value) if key == "share" else getattr(number, key) == value
        for key, value in cell.published.items()
    )


def score(trainings: Sequence, device: torch.device) -> dict[str, dict[str, float]]:
    """Return kind of score -> metric -> value for one seed: the scores of its run, or of its folds."""
    from likewise.score.folds import score_folds

    metrics, stored = trainings[0].job.config.metrics, [t.scores for t in trainings]
    best = [s.get("best_test_epoch") or {} for s in stored]
    names = [m for m in metrics if all(m in b for b in best)]
    chosen = {f"{m}{BEST_EPOCH}": sum(b[m] for b in best) / len(best) for m in names}
    if trainings[0].fold is None:
        return {"": {m: stored[0]["metrics"][m] for m in metrics} | chosen}
    allowed = trainings[0].job.config.allow_imports
    both = score_folds([t.job.run for t in trainings], metrics, device=device, quiet=True, allow_imports=allowed)
    return {kind: both[kind]["metrics"] | (chosen if kind == "separated" else {}) for kind in both}


def only_printed(grid: Grid, number: Number, plan: Sequence) -> Entry | None:
    """Return the entry of a published number without a training, in the row and column with the same keys if there are any.

    Returns None if the grid does not have the column. A number over all columns ("all") gets a column of its own.
    """
    alike = {key for t in plan for key in t.cell.published}

    def nearest(keys: tuple[str, ...]) -> dict[str, str]:
        for t in plan:
            own = {key: value for key, value in t.cell.published.items() if key in keys}
            if keys[0] in own and is_of(number, replace(t.cell, published=own)):
                return t.cell.names
        return {}

    row = nearest(("method", "miner", "sampler"))
    miner = f" ({number.miner})" if number.miner not in ("", "none") and "miner" in alike else ""
    usual = {"method": f"{number.method}{miner}", "sampler": number.sampler}
    noise = f"{number.noise} {number.share:g}" if number.noise not in ("none", "all") else number.noise
    column = nearest(("noise", "share"))
    if not column and number.noise != "all" and "noise" in grid.columns:
        return None
    column = column or dict.fromkeys(grid.columns, noise)
    names = [row.get(axis) or usual.get(axis, "") for axis in rows_of(grid)]
    kinds = [kind for kind, begins in grid.published_scores.items() if number.metric.startswith(begins)]
    metric = number.metric.removeprefix(grid.published_scores[kinds[0]]) if kinds else number.metric
    metric = {theirs: ours for ours, theirs in grid.published_metrics.items()}.get(metric, metric)
    return Entry(tuple(names), (*(column[axis] for axis in grid.columns), *kinds, metric), printed=number)


def with_harmonic_mean(entry: Entry, entries: Sequence[Entry]) -> Entry:
    """Return an entry of a published harmonic mean with our value, if all columns of the row have all their seeds."""
    if not entry.column[-1].endswith(HARMONIC_SUFFIX):
        return entry
    metric = entry.column[-1].removesuffix(HARMONIC_SUFFIX)
    columns = [e for e in entries if e.row == entry.row and e.column[-1] == metric]
    if not columns or any(not e.wanted or len(e.values) < e.wanted for e in columns):
        return replace(entry, wanted=max((e.wanted for e in columns), default=0))
    values = tuple(statistics.harmonic_mean(seed) for seed in zip(*(e.values for e in columns)))
    return replace(entry, values=values, wanted=columns[0].wanted, differs=any(e.differs for e in columns))


def tests(groups: dict[Place, dict[str, list]]) -> tuple[MethodComparison | None, str]:
    """Return the tests between methods by the first metric per query, or None; and a note about trainings without a test."""
    from likewise.papers.method_tests import contest

    answers: dict[str, dict[str, list]] = {}
    metrics = (m for one in groups.values() for ts in one.values() for m in ts[0].job.config.metrics)
    metric = next((m for m in metrics if not is_set_metric(m)), None)
    if metric is None:
        return None, ""
    try:
        for (row, column), seeds in groups.items():
            own = answers.setdefault(label(column), {})
            if label(row) in own:
                raise LikewiseError(f"two rows are called '{label(row)}'")
            own[label(row)] = [answers_of(ts, metric) for ts in seeds.values()]
        done = sum(ts[0].finished and len(ts) == 1 for one in groups.values() for ts in one.values())
        lost = done - sum(one is not None for own in answers.values() for seeds in own.values() for one in seeds)
        texts = (
            f"not tested, because per_query.parquet is missing: {lost} trainings; `likewise evaluate RUN` writes it"
            * (lost > 0)
        )
        if all(sum(any(seeds) for seeds in own.values()) < 2 for own in answers.values()):
            return None, texts
        return contest(answers, metric), texts
    except LikewiseError as error:
        return None, f"methods are not tested against one another: {error}"


def answers_of(trainings: Sequence, metric: str) -> PerQuery | None:
    """Return the per-query results of a finished training; None for folds and unfinished trainings."""
    file = trainings[0].job.run.path / PER_QUERY
    there = len(trainings) == 1 and trainings[0].finished and file.exists()
    return read_per_query(file, "bench", (metric,)) if there else None


def missing(plan: Sequence) -> str:
    """Return a note that lists the trainings that are not finished; "" if there are none."""
    left = [t for t in plan if not t.finished and not t.error]
    if not left:
        return ""
    some = "; ".join(dict.fromkeys(label(list(t.cell.names.values())) for t in left[:MAX_LISTED_ITEMS]))
    return f"Missing: {len(left)} of {len(plan)} trainings: {some}{'; ... (see --list)' if len(left) > MAX_LISTED_ITEMS else ''}"


def texts_of_rows(grid: Grid, plan: Sequence, name: str) -> dict[str, list]:
    """Return row -> the "differs" or "assumed" of all its trainings, each once."""
    rows: dict[str, list] = {}
    for t in plan:
        own = rows.setdefault(label(place_of(grid, t.cell.names)[0]), [])
        own += [one for one in getattr(t, name) if one not in own]
    return rows


def provenance(training) -> dict[str, Any]:
    """Return folder, identity, data, versions, commit, hardware, time and energy of a run."""
    run, own = training.job.run, training.job.identity
    if training.record:
        return {fact: training.record.row.get(fact, "") for fact in (*FACTS_OF_A_RECORD, "adopted")}
    if not (run.path / "config.json").exists() or run.about["identity"] != own:
        return {"run": "", "identity": own}  # the run folder does not exist yet
    made, spent = run.environment, cost(run)
    energy = spent["energy_joules"]
    return {
        "run": str(run.path), "identity": run.about["identity"], "data": run.about["data"],
        "commit": spent["commit"], "device": spent["device"], "torch": made.get("versions", {}).get("torch"),
        "train_seconds": spent["train_seconds"], "evaluate_seconds": spent["evaluate_seconds"], "sessions": spent["sessions"],
        "energy_joules": sum(energy.values()) if energy else None, "energy_shared": spent["shared"],
    }  # fmt: skip


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
    """Return the command that trains one cell again, with the settings that decide about its result."""
    words = ["likewise", "bench", config.grid]
    for field in fields(config):
        value = getattr(config, field.name)
        if field.name in SETTINGS_OF_AGAIN and value != field.default:
            flag = f"--{field.name.replace('_', '-')}"
            words += [flag] if value is True else [flag, *value] if isinstance(value, tuple) else [flag, str(value)]
    return shlex.join([*words, "--only", str(training.number)])


def follow_up(
    grid: Grid, sheet: BenchmarkTable, plan: Sequence[PlannedRun], config: Bench
) -> tuple[list[Picture], list[str]]:
    """Return the figures of a table and notes about them; writes each figure into its folder.

    Figures of `then` are drawn from all finished trainings, two or more, and not with --only: on a cluster every cell is a
    command of its own. A grid without trainings has figures that need none.
    """
    pictures = usual_figures(sheet)
    done = [t for t in plan if t.finished]
    if grid.then and config.only:
        return pictures, [f"Not drawn with --only: {', '.join(grid.then)}; run the command again without --only."]
    notes = []
    for name in grid.then if len(done) > 1 or grid.is_figure_only else ():
        kind = FIGURE_KINDS[name]
        png, lines = write_drawing(name, FinishedTable(grid, sheet, done, config))
        pictures += [Picture(kind.title, png, f"{name}.png", kind.leads)] if png else []
        notes += lines
    return pictures, notes


def usual_figures(sheet: BenchmarkTable) -> list[Picture]:
    """Return the figures that every table has if its trainings allow them: means of methods, and ours against the paper."""
    pictures = []
    if sheet.contest and not sheet.contest.untested:
        figure = draw_means(sheet.contest)
        png = write_figure(figure, sheet.folder / "means.png")
        pictures.append(Picture("Means", png, "means.png", svg=themed_svg(figure)))
    columns = {column: points for column in lay_out(sheet).columns if len(points := against(sheet, column)) > 2}
    if columns:
        first = next(iter(columns))
        figure = draw_agreement(columns[first], label(first))
        png = write_figure(figure, sheet.folder / "against.png")
        pictures.append(Picture("Against the paper", png, "against.png", svg=themed_svg(figure)))
    return pictures
