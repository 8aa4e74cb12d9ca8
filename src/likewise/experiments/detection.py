"""Wrong labels found: how soon an audit of every network of a table finds the labels that its noise model spoiled."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from likewise.config import Audit, Bench
from likewise.errors import LikewiseError
from likewise.experiments.grid_types import Grid, place_of
from likewise.experiments.jobs import PlannedRun
from likewise.io.files import read_json, write_aside, write_csv
from likewise.io.progress import bar
from likewise.render.benchmark_table import Sheet, label
from likewise.render.detection_curve import Curve, draw_detected
from likewise.render.figures import write_figure
from likewise.runs.scores import ANEW

DETECTED = "detected.json"
"""What judging a run's labels found, beside the run."""


def find_wrong(grid: Grid, sheet: Sheet, done: Sequence[PlannedRun], config: Bench) -> tuple[bytes | None, list[str]]:
    """How soon an audit of each network finds the labels that were spoiled; detection.csv has a line a network and score."""
    groups: dict[tuple, list[dict]] = {}
    lines, said = [], []
    with bar("judge labels", len(done), quiet=config.quiet) as progress:
        for t in done:
            try:
                measured = detected(t.job.run.path, config)
            except LikewiseError as error:
                measured = {}
                said.append(f"the labels of {label(list(t.cell.names.values()))} are not judged: {error}")
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
        return None, said or ["no training of this table had labels spoiled, so there is nothing to find"]
    write_csv(sheet.folder / "detection.csv", [*grid.axes, "score", "AUROC", "AP", "recall", "share"], lines)
    curves = []
    for (panel, name), seeds in groups.items():
        at, share = (np.mean([np.array(one["curve"])[:, side] for one in seeds], 0) for side in (0, 1))
        precision = float(np.mean([one["AP"] for one in seeds]))
        curves.append(Curve(panel, name, at, share, f"AP {100 * precision:.0f}"))
    found = "; ".join(f"{label([c.panel, c.name])} {c.about.removeprefix('AP ')}" for c in curves)
    picture = write_figure(draw_detected(curves), sheet.folder / "detection.png")
    return picture, [f"Wrong labels found, average precision in per cent: {found}.", *said]


def detected(run: Path, config: Bench) -> dict[str, dict]:
    """Each score of a run's training labels -> how well it finds the spoiled ones. Worked out once, and kept beside the run."""
    file = run / DETECTED
    if file.exists():
        return read_json(file, "bench", hint=ANEW)
    from likewise.audit.attribution import explain
    from likewise.audit.label_quality import judge_part, measure
    from likewise.audit.source import open_subject

    audit = Audit((str(run),), pairs=0, quiet=True, device=config.device, allow_imports=config.allow_imports)
    subject = open_subject(audit, say=lambda line: None)
    found = {}
    if subject.items.y_clean is not None:
        verdicts = judge_part(subject, "train", explain(subject, audit), audit)
        found = measure(subject.part["train"], verdicts, subject.items)["measured"] or {}
    with write_aside(file) as aside:
        aside.write_text(json.dumps(found), "utf-8")
    return found
