"""aftermath: what follows a table's trainings: pictures, where networks fail together, how soon wrong labels are found."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure

from likewise.audit.attribution import explain
from likewise.audit.label_quality import judge_part, measure
from likewise.audit.source import open_subject
from likewise.config import Audit, Bench
from likewise.evaluation.error_overlap import error_overlap
from likewise.evaluation.overlap_runs import overlap
from likewise.experiments.grid import Grid
from likewise.experiments.results_table import data_of, place_of
from likewise.io.files import read_json, write_aside, write_csv
from likewise.io.progress import bar
from likewise.published import wrong_classes
from likewise.render.benchmark_table import Sheet, against, label, lay_out
from likewise.render.comparison import save_figure
from likewise.render.critical_difference import draw_against, draw_ranks
from likewise.render.detection_curve import Curve, draw_detected
from likewise.render.error_overlap import say_overlap
from likewise.runs.scores import ANEW
from likewise.types import LikewiseError

DETECTED = "detected.json"
"""What judging a run's labels found, beside the run."""


def follow_up(grid: Grid, sheet: Sheet, plan: Sequence, config: Bench) -> tuple[dict[str, bytes], list[str]]:
    """The pictures of a table (title -> PNG), each also a file in its folder, and what they show in words."""
    pictures, said = {}, []
    if sheet.contest and len(sheet.contest.rank) > 1:
        pictures["Ranks"] = save(draw_ranks(sheet.contest), sheet.folder / "ranks.png")
    columns = {column: points for column in lay_out(sheet).columns if len(points := against(sheet, column)) > 2}
    if columns:
        first = next(iter(columns))
        pictures["Against the paper"] = save(draw_against(columns[first], label(first)), sheet.folder / "against.png")
    done = [t for t in plan if t.status == "finished"]
    for follow in grid.then if len(done) > 1 and not config.only else ():
        work, title = FOLLOWS[follow]
        picture, lines = work(grid, sheet, done, config)
        pictures |= {title: picture} if picture else {}
        said += lines
    return pictures, said


def save(figure: Figure, file: Path) -> bytes:
    with write_aside(file) as aside:
        save_figure(figure, aside)
    return file.read_bytes()


def fail_together(grid: Grid, sheet: Sheet, done: Sequence, config: Bench) -> tuple[bytes | None, list[str]]:
    """Whether the networks fail at the same test classes, beside what the influence study found."""
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


def find_wrong(grid: Grid, sheet: Sheet, done: Sequence, config: Bench) -> tuple[bytes | None, list[str]]:
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
    picture = save(draw_detected(curves), sheet.folder / "detection.png")
    return picture, [f"Wrong labels found, average precision in per cent: {found}.", *said]


def detected(run: Path, config: Bench) -> dict[str, dict]:
    """Each score of a run's training labels -> how well it finds the spoiled ones. Worked out once, and kept beside the run."""
    file = run / DETECTED
    if file.exists():
        return read_json(file, "bench", hint=ANEW)
    audit = Audit((str(run),), pairs=0, quiet=True, device=config.device, allow_imports=config.allow_imports)
    subject = open_subject(audit, say=lambda line: None)
    found = {}
    if subject.items.y_clean is not None:
        verdicts = judge_part(subject, "train", explain(subject, audit), audit)
        found = measure(subject.part["train"], verdicts, subject.items)["measured"] or {}
    with write_aside(file) as aside:
        aside.write_text(json.dumps(found), "utf-8")
    return found


FOLLOWS = {
    "overlap": (fail_together, "Test classes at which networks fail"),
    "detection": (find_wrong, "Wrong labels found"),
}
"""What `then` may ask for: the work, and what its picture is called."""
