"""tune: search ranges of settings for the best validation score."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from likewise.core.devices import choose_device
from likewise.core.files import make_folder, write_json
from likewise.core.notebook import table, view
from likewise.core.settings import Train, Tune, check
from likewise.core.types import LikewiseError
from likewise.papers.experiments.jobs import Planner
from likewise.papers.experiments.search import check_folder, prepare
from likewise.papers.experiments.trials import run_trials, train_final
from likewise.papers.experiments.tune_files import summary, write_search
from likewise.papers.render.benchmark_table import BenchmarkTable


@dataclass(frozen=True)
class TuneResult:
    """The result of tune: the content of tune.json, the best settings, and the table of the final runs if there are any."""

    about: dict
    best: Train
    final: BenchmarkTable | None
    folder: Path

    @view
    def _repr_html_(self) -> str:
        best, count = self.about["best"], self.about["count"]
        lines = [(name, f"{v:.6g}" if isinstance(v, float) else v) for name, v in best["values"].items()]
        lines.append((f"val {self.about['select']}", f"{100 * best['value']:.1f} %"))
        trials = ", ".join(f"{number} {state}" for state, number in count.items() if number)
        notes = [f"trials: {trials}", f"settings: {self.folder / 'best.toml'}"]
        shown = table(f"best settings, trial {best['number']}", (), lines, notes)
        return shown + (self.final._repr_html_() if self.final else "")


def tune(config: Tune, say=print) -> TuneResult:
    """Run a search, or resume it, and return its result. Processes with the same settings share one search.

    The value of a trial is the best validation score of each fold, averaged over the folds; the test split is not scored. A
    trial that fails has the value 0. The runs of a search keep their logs, but not their networks.
    """
    check(config)
    try:
        from likewise.papers.experiments.optuna_study import counted, open_study, requeue_lost_trials, without_password
    except ModuleNotFoundError:
        raise LikewiseError(
            "tune: the search needs Optuna, which is not installed; pip install 'likewise[tune]'"
        ) from None
    device = choose_device(config.device)
    folder = Path(config.out or Path("tune") / Path(config.config).stem).expanduser()
    planner = Planner(folder / "runs", say)
    search = prepare(config, planner, say)
    check_folder(folder, search)
    make_folder(folder, "tune")
    storage = config.storage or str(folder / "study.journal")
    if not config.storage and os.path.islink(storage):  # its last line may be cut off, and lines are added
        raise LikewiseError(f"tune: '{storage}' must not be a link; give the file that it names with --storage")
    study = open_study(search.name, storage, config.sampler, config.pruner, config.seed)
    requeue_lost_trials(study)
    try:
        run_trials(config, search, study, planner)
    finally:
        written, shown = None, without_password(storage)
        while written != (written := json.dumps(about := summary(config, search, study, shown, device))):
            write_search(
                folder, about, search
            )  # repeated until unchanged: another process may have written a newer state in the meantime
    if about["best"] is None:
        reason = next((t["reason"] for t in about["trials"] if t["reason"]), "no trial has ended")
        raise LikewiseError(
            f"tune: a trial must have a score, but none of {len(about['trials'])} has ({reason}); change settings or ranges"
        )
    best, final = search.settings(about["best"]["values"]), None
    running = [t for t in counted(study) if not t.state.is_finished()]
    if config.final_runs and running:
        say(f"{len(running)} trials are still running in other processes; the last process trains the final runs")
    elif config.final_runs:
        final = train_final(config, best, search, folder, device, say)
        from likewise.papers.render.benchmark import rows_for_csv

        columns, lines = rows_for_csv(final)
        about |= {"final": {"columns": columns, "lines": lines, "notes": final.notes}}
        write_json(folder / "tune.json", about)
    return TuneResult(about, best, final, folder)
