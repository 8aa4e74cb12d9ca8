"""What follows the trainings of a table: pictures, and the test classes at which several networks fail."""

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
from likewise.render.benchmark_table import Sheet, against, label, lay_out
from likewise.render.critical_difference import draw_against, draw_ranks
from likewise.render.error_overlap import say_overlap
from likewise.render.figures import write_figure


def follow_up(
    grid: Grid, sheet: Sheet, plan: Sequence[PlannedRun], config: Bench
) -> tuple[dict[str, bytes], list[str]]:
    """The pictures of a table (title -> PNG), each also a file in its folder, and what they show in words."""
    pictures, said = {}, []
    if sheet.contest and len(sheet.contest.rank) > 1:
        pictures["Ranks"] = write_figure(draw_ranks(sheet.contest), sheet.folder / "ranks.png")
    columns = {column: points for column in lay_out(sheet).columns if len(points := against(sheet, column)) > 2}
    if columns:
        first = next(iter(columns))
        pictures["Against the paper"] = write_figure(
            draw_against(columns[first], label(first)), sheet.folder / "against.png"
        )
    done = [t for t in plan if t.finished]
    for follow in grid.then if len(done) > 1 and not config.only else ():
        work, title = FOLLOWS[follow]
        picture, lines = work(grid, sheet, done, config)
        pictures |= {title: picture} if picture else {}
        said += lines
    return pictures, said


def fail_together(
    grid: Grid, sheet: Sheet, done: Sequence[PlannedRun], config: Bench
) -> tuple[bytes | None, list[str]]:
    """Whether the networks fail at the same test classes, beside what the influence study found."""
    from likewise.evaluation.overlap_runs import overlap

    targets = tuple(str(t.job.run.path) for t in done)
    try:
        found = overlap(Audit(targets, overlap=True, out=str(sheet.folder), quiet=True), say=lambda line: None)
    except LikewiseError as error:
        return None, [f"where networks fail together is not known: {error}"]
    said = [f"Most wrong classes: {say_overlap(found, way)}." for way in found.by]
    data = data_of(grid, done[0])
    if grid.published and data in STUDIED:
        named = wrong_classes(data)
        worst = [torch.tensor(classes) for classes in named.values()]
        theirs = error_overlap(worst, [method for method, _ in named], STUDIED[data])
        said.append(
            f"In the study, by count, over {len(named)} networks: two of one method share {100 * theirs.within:.0f} %, two of "
            f"different methods {100 * theirs.between:.0f} %; by chance {100 * theirs.chance:.0f} %."
        )
    return (sheet.folder / "overlap.png").read_bytes(), said


STUDIED = {"cub200": 100, "cars196": 98, "inshop": 3985}
"""Test classes of the sets that the influence study looked at."""


FOLLOWS = {
    "overlap": (fail_together, "Test classes at which networks fail"),
    "detection": (find_wrong, "Wrong labels found"),
}
"""What `then` may ask for: the work, and what its picture is called."""
