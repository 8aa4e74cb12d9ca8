"""The trials of a search, one after another over all processes that share it, and the final runs of the best settings."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import torch

from likewise.core.files import atomic_write
from likewise.core.progress import bar
from likewise.core.settings import Bench, Train, Tune
from likewise.core.settings.overrides import settings_of
from likewise.core.types import LikewiseError
from likewise.papers.experiments.executors import Executor, LocalExecutor, choose_executor
from likewise.papers.experiments.grid import toml
from likewise.papers.experiments.grid_plan import plan_grid
from likewise.papers.experiments.grid_run import run_grid
from likewise.papers.experiments.grid_types import Grid, Point
from likewise.papers.experiments.jobs import Job, Planner
from likewise.papers.experiments.search import Search
from likewise.papers.render.benchmark_table import BenchmarkTable

WEIGHT_FILES = ("model.safetensors", "best.safetensors", "state.pt")


def run_trials(config: Tune, search: Search, study, planner: Planner) -> None:
    """Run trials until all processes together have used up the budget."""
    from optuna.trial import TrialState

    from likewise.papers.experiments.optuna_study import counted, next_trial, requeue_trial, suggest

    ended = (TrialState.COMPLETE, TrialState.PRUNED)
    before = sum(t.state in ended for t in counted(study))
    with (
        LocalExecutor(config.jobs, planner.say) as executor,
        bar("tune", config.trials, start=before, quiet=config.quiet) as progress,
    ):
        while trial := next_trial(study, config.trials):
            try:
                values = {r.name: suggest(trial, r) for r in search.ranges}
                scores, reason = run_folds(search, values, trial, executor, planner)
            except BaseException:
                requeue_trial(study, trial.number, trial.params)
                raise
            trial.set_user_attr("folds", scores)
            trial.set_user_attr("reason", reason)
            if not reason and len(scores) < len(search.protocols):
                study.tell(trial, state=TrialState.PRUNED)
            else:
                study.tell(trial, 0.0 if reason else sum(scores) / len(scores))
            now = counted(study)
            values = (t.value for t in now if t.state == TrialState.COMPLETE and t.value is not None)
            best = max(values, default=math.nan)
            progress.advance(sum(t.state in ended for t in now) - progress.done, f"best {best:.4f}")


def run_folds(
    search: Search, values: dict, trial, executor: Executor, planner: Planner
) -> tuple[list[float], str | None]:
    """Return the score of each fold in order (fewer if the trial was pruned), and the error of a failed trial or None."""
    try:
        chosen = search.settings(values)
        jobs = [planner.job(replace(chosen, protocol=protocol)) for protocol in search.protocols]
    except LikewiseError as error:
        return [], str(error)
    known = {place: validated(job) for place, job in enumerate(jobs) if job.state == "finished"}
    left, scores = [place for place in range(len(jobs)) if place not in known], []
    with closing(executor.work([jobs[place].config for place in left])) as work:
        while len(scores) < len(jobs):
            while len(scores) not in known:
                place, outcome = next(work)
                if outcome.crashed:
                    raise LikewiseError(
                        f"tune: a training crashed, and its settings are not the cause: {outcome.error}"
                    )
                if outcome.error:
                    return scores, outcome.error
                known[left[place]] = validated(jobs[left[place]])
            scores.append(known[len(scores)])
            trial.report(sum(scores) / len(scores), len(scores))
            if len(scores) < len(jobs) and trial.should_prune():
                break
    return scores, None


def validated(job: Job) -> float:
    """Return the best validation score of a finished run, and delete its networks: a search would fill the disk."""
    scores = [line[f"val {job.config.select}"] for line in job.run.read_log() if f"val {job.config.select}" in line]
    score = max(scores, default=math.nan)
    if not math.isfinite(score):
        raise LikewiseError(
            f"tune: '{job.run.path}' must have a finite {job.config.select} on its validation split, got {scores}; train it again"
        )
    for name in WEIGHT_FILES:
        (job.run.path / name).unlink(missing_ok=True)
    return score


def train_final(
    config: Tune, best: Train, search: Search, folder: Path, device: torch.device, say: Callable[[str], None]
) -> BenchmarkTable:
    """Train all folds with new seeds, score the test split, and return the table; final.toml is its grid."""
    seeds = [Point(str(s), {"seed": s}) for s in range(search.base.seed + 1, search.base.seed + 1 + config.final_runs)]
    with atomic_write(folder / "final.toml") as file:
        file.write_text(
            toml(Grid("the best setting of a search, with new seeds", settings_of(best), {"seed": seeds}, {})),
            "utf-8",
        )
    final = Bench(
        str(folder / "final.toml"), out=str(folder / "final"), jobs=config.jobs, device=config.device,
        allow_imports=config.allow_imports, quiet=config.quiet,
    )  # fmt: skip
    return run_grid(plan_grid(final, say), final, choose_executor(final, say), device)
