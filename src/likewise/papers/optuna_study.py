"""The Optuna study of tune, which several processes may share, stop and resume at any time.

Only this module needs the extra likewise[tune].
"""

from __future__ import annotations

import json
import re
import warnings
from pathlib import Path

import matplotlib
import numpy as np
import optuna
from matplotlib import pyplot
from matplotlib.figure import Figure
from optuna import Study, Trial, samplers
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileSymlinkLock
from optuna.trial import FrozenTrial, TrialState

from likewise.core.argument_checks import misfit
from likewise.core.errors import LikewiseError
from likewise.core.processes import lives, mark

JOURNAL_START = b'{"op_code"'
"""First bytes of every line of a journal."""


def open_study(name: str, storage: str, sampler: str, pruner: str, seed: int) -> Study:
    """Open the study of this name, or create it. `storage`: a journal file, or the address of a database."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    if "://" not in storage:
        Path(storage).parent.mkdir(parents=True, exist_ok=True)
    try:
        study = optuna.create_study(
            storage=storage if "://" in storage else open_journal(storage),
            sampler=draw_by_number(sampler, seed),
            pruner=optuna.pruners.MedianPruner() if pruner == "median" else optuna.pruners.NopPruner(),
            study_name=name, direction="maximize", load_if_exists=True,
        )  # fmt: skip
        check_trials(study)
        return study
    except Exception as error:  # every database has its own exception classes
        reason = (str(error).splitlines() or [""])[0]
        raise LikewiseError(
            f"tune: the storage '{without_password(storage)}' cannot be used ({type(error).__name__}: {reason}); "
            "restore a copy of it, or start a new search with another --out or --storage"
        ) from None


def check_trials(study: Study) -> None:
    """Raise ValueError unless every trial has the types that `tune` writes: a journal may be damaged or from elsewhere."""
    for trial in study.get_trials(deepcopy=False):
        facts = {"value": trial.value, "folds": [], "reason": None} | trial.user_attrs
        complete = trial.state == TrialState.COMPLETE
        kinds = {"value": float if complete else float | None, "folds": list[float], "reason": str | None}
        if (wrong := misfit(facts, kinds)) is not None:
            raise ValueError(f"trial {trial.number}: the {wrong} has another type, {facts[wrong]!r}")


def open_journal(file: str) -> JournalStorage:
    """Return a journal file as Optuna storage; removes a truncated last line, to which the next line would be appended."""
    lock = JournalFileSymlinkLock(file)
    backend = JournalFileBackend(file, lock)
    lock.acquire()
    try:
        with open(file, "r+b") as journal:
            text = journal.read()
            if not text.startswith(JOURNAL_START) and not JOURNAL_START.startswith(
                text
            ):  # it may be a file of the user's
                raise ValueError("it is not a journal of Optuna, and stays as it is")
            last = text.rfind(b"\n", 0, -1) + 1  # where the last line begins
            if not is_entry(text[last:]):
                journal.truncate(last)
    finally:
        lock.release()
    return JournalStorage(backend)


def is_entry(line: bytes) -> bool:
    """Return whether this is a complete line of a journal."""
    try:
        return line.endswith(b"\n") and isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def without_password(storage: str) -> str:
    return re.sub(r"(://[^:/@]*):.*@", r"\1:***@", storage)


def draw_by_number(name: str, seed: int) -> samplers.BaseSampler:
    """Return a sampler whose draws depend only on the seed and the number of counted trials before.

    So a stopped study resumes exactly, and processes that share a study draw different values.
    """
    kinds = {"tpe": samplers.TPESampler, "gp": samplers.GPSampler, "random": samplers.RandomSampler}

    class ByNumber(samplers.BaseSampler):
        def __init__(self):
            self.number, self.inner = -1, kinds[name](seed=seed)

        def of(self, study: Study, trial: FrozenTrial) -> samplers.BaseSampler:
            if trial.number != self.number:
                place = len(counted(study, trial.number))
                seed_of = int(np.random.SeedSequence([seed, place]).generate_state(1)[0])
                self.number, self.inner = trial.number, kinds[name](seed=seed_of)
            return self.inner

        def infer_relative_search_space(self, study, trial):
            return self.of(study, trial).infer_relative_search_space(study, trial)

        def sample_relative(self, study, trial, search_space):
            return self.of(study, trial).sample_relative(study, trial, search_space)

        def sample_independent(self, study, trial, param_name, param_distribution):
            return self.of(study, trial).sample_independent(study, trial, param_name, param_distribution)

    return ByNumber()


def counted(study: Study, before: int | None = None) -> list[FrozenTrial]:
    """Return the trials that count for the budget: ended or running. Interrupted trials do not count."""
    trials = study.get_trials(deepcopy=False)
    return [t for t in trials if t.state != TrialState.FAIL and (before is None or t.number < before)]


def next_trial(study: Study, budget: int) -> Trial | None:
    """Return a new trial for this process; None if all processes together have used up the budget."""
    if not study.get_trials(deepcopy=False, states=(TrialState.WAITING,)) and len(counted(study)) >= budget:
        return None
    trial = study.ask()
    if len(counted(study, trial.number)) >= budget:  # another process has taken the last one; lower numbers win
        study.tell(trial, state=TrialState.FAIL)
        return None
    trial.set_user_attr("owner", mark())
    return trial


def requeue_trial(study: Study, number: int, params: dict) -> None:
    """Mark a trial as interrupted, so that it does not count, and queue its values for the next trial."""
    if params:
        study.enqueue_trial(params)
    study.tell(number, state=TrialState.FAIL)


def requeue_lost_trials(study: Study) -> None:
    """Requeue the running trials of processes of this machine that do not exist any more."""
    for trial in study.get_trials(deepcopy=False):
        if trial.state == TrialState.RUNNING and lives(trial.user_attrs.get("owner")) is False:
            requeue_trial(study, trial.number, trial.params)


def draw_search(file: Path, study: Study, label: str) -> None:
    """Write the figure of a search (.png): every complete trial as a line through its settings to its value (`label`)."""
    shown = optuna.create_study(direction="maximize")
    complete = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    shown.add_trials(t for t in complete if not t.user_attrs.get("reason"))
    columns = 1 + max(len(t.params) for t in shown.trials)
    with matplotlib.rc_context({"figure.figsize": (max(8.0, 1.7 * columns), 4.8)}), warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        figure = optuna.visualization.matplotlib.plot_parallel_coordinate(shown, target_name=label).figure
        assert isinstance(figure, Figure)
        figure.savefig(file, format="png", dpi=150, bbox_inches="tight")
        pyplot.close(figure)
