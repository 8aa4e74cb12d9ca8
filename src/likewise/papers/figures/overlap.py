"""Error overlap: whether the networks of a table fail at the same test classes, beside the study."""

from __future__ import annotations

import torch

from likewise.core.errors import LikewiseError
from likewise.core.settings import Audit
from likewise.papers.figures.drawing import Drawing, FinishedTable
from likewise.papers.grid_plan import data_of
from likewise.papers.published import wrong_classes
from likewise.score.error_overlap import describe_overlap, error_overlap

STUDY_TEST_CLASSES = {"cub200": 100, "cars196": 98, "inshop": 3985}
"""Number of test classes of the data sets in the influence study."""


def draw(table: FinishedTable) -> Drawing:
    """Return the heat map of the error overlap of all runs, and notes, with the published overlap if there is one."""
    from likewise.score.error_overlap import overlap

    targets = tuple(str(t.job.run.path) for t in table.done)
    try:
        found = overlap(Audit(targets, overlap=True, out=str(table.sheet.folder), quiet=True), say=lambda line: None)
    except LikewiseError as error:
        return Drawing(None, [f"the error overlap could not be computed: {error}"])
    notes = [f"Most wrong classes: {describe_overlap(found, way)}." for way in found.by]
    data = data_of(table.grid, table.done[0])
    if table.grid.published and data in STUDY_TEST_CLASSES:
        named = wrong_classes(data)
        worst = [torch.tensor(classes) for classes in named.values()]
        theirs = error_overlap(worst, [method for method, _ in named], STUDY_TEST_CLASSES[data])
        notes.append(
            f"In the study, by count, over {len(named)} networks: two of one method share {100 * theirs.within:.0f} %, two of "
            f"different methods {100 * theirs.between:.0f} %; by chance {100 * theirs.chance:.0f} %."
        )
    return Drawing((table.sheet.folder / "overlap.png").read_bytes(), notes)
