"""report: runs -> a picture of how far each believed its labels, and the labels most suspected."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from likewise.configs import Report, Train, check
from likewise.data.images import file_of
from likewise.files import write_aside
from likewise.report.comparison import save_figure
from likewise.report.trust import Suspect, Told, draw_trust
from likewise.run import Run
from likewise.stages.assemble import load_items, read_config
from likewise.stages.evaluate import must_be_its_data
from likewise.types import LikewiseError

COLUMNS = ("row", "given", "label", "suspicion", "weight")
"""Of trust.npz, one entry a training sample."""


def report(config: Report, say: Callable[[str], None] = print) -> list[Told]:
    """Draw every run, and find its suspects."""
    check(config)
    runs = [Run(path) for path in config.runs]
    if not runs:
        raise LikewiseError("report: at least one run folder must be named, got none; `likewise report runs/mine`")
    out = config.out and Path(config.out).expanduser()
    files = [out / f"{name_of(run)}.png" if out else run.path / "trust.png" for run in runs]
    if len(set(files)) < len(files):
        raise LikewiseError("report: two of these runs have one name, and pictures in --out go by it; leave out --out")
    if out:
        out.mkdir(parents=True, exist_ok=True)
    return [tell(run, file, config.top, say) for run, file in zip(runs, files, strict=True)]


def name_of(run: Run) -> str:
    return run.path.resolve().name


def tell(run: Run, file: Path, top: int, say: Callable[[str], None]) -> Told:
    settings, lines = read_config(run), run.read_log()
    if settings.confidence is None:
        raise LikewiseError(
            f"report: '{run.path}' has no confidence, so there is nothing to show; train with --robust, or with a "
            "--confidence of your choice"
        )
    title = f"{name_of(run)}: {settings.confidence}" + (f", {settings.noise}" if settings.noise else "")
    figure = draw_trust(lines, title)
    if figure is None:
        raise LikewiseError(f"report: the log of '{run.path}' says nothing of trust yet; let it train for a while")
    with write_aside(file) as aside:
        save_figure(figure, aside)
    suspects, note = find_suspects(run, lines, top)
    suspects, missing = with_paths(suspects, run, settings, say)
    return Told(file, suspects, f"{run.path}: {note}{missing}")


def find_suspects(run: Run, lines: list[dict], top: int) -> tuple[list[Suspect], str]:
    """The labels most suspected when training ended, and how many there are. Equals go by their weight."""
    file = run.path / "trust.npz"
    if not file.exists():
        return [], "labels are listed when training has finished"
    try:
        with np.load(file) as columns:
            row, given, label, suspicion, weight = (columns[name] for name in COLUMNS)
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise LikewiseError(f"report: {file} is damaged ({error}); --again trains the run anew") from None
    known = np.where(np.isfinite(suspicion), suspicion, -np.inf)
    worst = np.lexsort((weight, -known))[:top]
    each = zip(*(column[worst].tolist() for column in (row, given, label, suspicion, weight)), strict=True)
    found = [Suspect(r, old, new if new != old else None, s, w) for r, old, new, s, w in each]
    threshold = next((line["suspicion"]["threshold"] for line in reversed(lines) if "suspicion" in line), None)
    if threshold is None:
        return found, f"{len(row)} labels were judged"
    return found, f"{(known >= threshold).sum()} of {len(row)} labels have a suspicion of {threshold:.3g} or more"


def with_paths(
    suspects: list[Suspect], run: Run, settings: Train, say: Callable[[str], None]
) -> tuple[list[Suspect], str]:
    """The same with their files, where the data has files and is still there; else why not."""
    if not suspects:
        return suspects, ""
    try:
        items = load_items(settings.data, settings.root, skip_bad=settings.skip_bad, workers=0, quiet=True, say=say)
        must_be_its_data(run, items, settings.data)
    except LikewiseError as error:
        return suspects, f"; without their paths, for {error}"
    if items.path is None:
        return suspects, ""
    return [one._replace(path=file_of(items, one.row)) for one in suspects], ""
