"""Follow-ups of a table: figures, error overlap, and detection of label noise."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from likewise.config import Audit, Bench
from likewise.errors import LikewiseError
from likewise.evaluation.error_overlap import error_overlap
from likewise.experiments.detection import find_wrong
from likewise.experiments.grid_plan import data_of
from likewise.experiments.grid_types import Grid
from likewise.experiments.jobs import PlannedRun
from likewise.published import wrong_classes
from likewise.render.benchmark_table import BenchmarkTable, against, label, lay_out
from likewise.render.error_overlap import describe_overlap
from likewise.render.figures import write_figure
from likewise.render.method_means import draw_agreement, draw_means


def follow_up(
    grid: Grid, sheet: BenchmarkTable, plan: Sequence[PlannedRun], config: Bench
) -> tuple[dict[str, bytes], list[str]]:
    """Return the figures of a table (title -> PNG) and notes about them; writes each figure into its folder."""
    figures, notes = {}, []
    if sheet.contest and not sheet.contest.untested:
        figures["Means"] = write_figure(draw_means(sheet.contest), sheet.folder / "means.png")
    columns = {column: points for column in lay_out(sheet).columns if len(points := against(sheet, column)) > 2}
    if columns:
        first = next(iter(columns))
        figures["Against the paper"] = write_figure(
            draw_agreement(columns[first], label(first)), sheet.folder / "against.png"
        )
    done = [t for t in plan if t.finished]
    for follow in grid.then if len(done) > 1 and not config.only else ():
        work, title = FOLLOW_UPS[follow]
        figure, lines = work(grid, sheet, done, config)
        figures |= {title: figure} if figure else {}
        notes += lines
    return figures, notes


def shared_errors(
    grid: Grid, sheet: BenchmarkTable, done: Sequence[PlannedRun], config: Bench
) -> tuple[bytes | None, list[str]]:
    """Return the heat map of the error overlap of all runs, and notes, with the published overlap if there is one."""
    from likewise.evaluation.overlap_runs import overlap

    targets = tuple(str(t.job.run.path) for t in done)
    try:
        found = overlap(Audit(targets, overlap=True, out=str(sheet.folder), quiet=True), say=lambda line: None)
    except LikewiseError as error:
        return None, [f"the error overlap could not be computed: {error}"]
    notes = [f"Most wrong classes: {describe_overlap(found, way)}." for way in found.by]
    data = data_of(grid, done[0])
    if grid.published and data in STUDY_TEST_CLASSES:
        named = wrong_classes(data)
        worst = [torch.tensor(classes) for classes in named.values()]
        theirs = error_overlap(worst, [method for method, _ in named], STUDY_TEST_CLASSES[data])
        notes.append(
            f"In the study, by count, over {len(named)} networks: two of one method share {100 * theirs.within:.0f} %, two of "
            f"different methods {100 * theirs.between:.0f} %; by chance {100 * theirs.chance:.0f} %."
        )
    return (sheet.folder / "overlap.png").read_bytes(), notes


STUDY_TEST_CLASSES = {"cub200": 100, "cars196": 98, "inshop": 3985}
"""Number of test classes of the data sets in the influence study."""


FOLLOW_UPS = {
    "overlap": (shared_errors, "Test classes at which networks fail"),
    "detection": (find_wrong, "Wrong labels found"),
}
"""Names for `then` in a grid -> the function, and the title of its figure."""
