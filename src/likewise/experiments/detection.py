"""Detection of injected label noise: how well an audit of every run of a table ranks the wrong labels first."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from likewise.config import Audit, Bench
from likewise.errors import LikewiseError
from likewise.experiments.grid_types import Grid, place_of
from likewise.experiments.jobs import PlannedRun
from likewise.io.files import atomic_write, read_json, write_csv
from likewise.io.progress import bar
from likewise.render.benchmark_table import BenchmarkTable, label
from likewise.render.detection_curve import Curve, draw_detection
from likewise.render.figures import write_figure
from likewise.runs.scores import REWRITE_HINT

DETECTION_FILE = "detected.json"
"""File of the run folder: how well each label score detects the injected noise."""


def find_wrong(
    grid: Grid, sheet: BenchmarkTable, done: Sequence[PlannedRun], config: Bench
) -> tuple[bytes | None, list[str]]:
    """Return the detection curves of all runs as a PNG, and notes. Writes detection.csv with one line for each run and score."""
    groups: dict[tuple, list[dict]] = {}
    lines, notes = [], []
    with bar("score labels", len(done), quiet=config.quiet) as progress:
        for t in done:
            try:
                measured = detected(t.job.run.path, config)
            except LikewiseError as error:
                measured = {}
                notes.append(f"the labels of {label(list(t.cell.names.values()))} could not be scored: {error}")
            progress.advance(1)
            if not measured:
                continue
            row, column = place_of(grid, t.cell.names)
            groups.setdefault((label(column), label(row)), []).append(measured["score"])
            lines += [
                [*t.cell.names.values(), score, one["AUROC"], one["AP"], one["recall"], one["share"]]
                for score, one in measured.items()
            ]
    if not groups:
        return None, notes or ["no training of this table has injected label noise, so there is nothing to detect"]
    write_csv(sheet.folder / "detection.csv", [*grid.axes, "score", "AUROC", "AP", "recall", "share"], lines)
    curves = []
    for (panel, name), seeds in groups.items():
        at, share = (np.mean([np.array(one["curve"])[:, side] for one in seeds], 0) for side in (0, 1))
        precision = float(np.mean([one["AP"] for one in seeds]))
        curves.append(Curve(panel, name, at, share, f"AP {100 * precision:.0f}"))
    found = "; ".join(f"{label([c.panel, c.name])} {c.about.removeprefix('AP ')}" for c in curves)
    figure = write_figure(draw_detection(curves), sheet.folder / "detection.png")
    return figure, [f"Wrong labels found, average precision in per cent: {found}.", *notes]


def detected(run: Path, config: Bench) -> dict[str, dict]:
    """Return how well each label score detects the injected wrong labels of a run. Computed once, and stored in its folder."""
    file = run / DETECTION_FILE
    if file.exists():
        return read_json(file, "bench", hint=REWRITE_HINT)
    from likewise.audit.attribution import explain
    from likewise.audit.label_quality import measure, score_splits
    from likewise.audit.source import open_subject

    audit = Audit((str(run),), max_errors=0, quiet=True, device=config.device, allow_imports=config.allow_imports)
    subject = open_subject(audit, say=lambda line: None)
    found = {}
    if subject.items.y_clean is not None:
        quality = score_splits(subject, explain(subject, audit), audit)["train"]
        found = measure(subject.splits["train"], quality, subject.items)["measured"] or {}
    with atomic_write(file) as aside:
        aside.write_text(json.dumps(found), "utf-8")
    return found
