"""The search behind tune: an Optuna study that several processes may share, and stop and take up at any time.

The one module that needs the extra likewise[tune].
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import optuna
from optuna import Study, Trial, samplers
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileSymlinkLock
from optuna.trial import FrozenTrial, TrialState

from likewise.errors import LikewiseError
from likewise.experiments.search_space import Range
from likewise.io.processes import lives, mark


def open_study(name: str, storage: str, sampler: str, pruner: str, seed: int) -> Study:
    """The study of this name, new or as it was left. `storage`: a journal file, or the address of a database."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    if "://" not in storage:
        Path(storage).parent.mkdir(parents=True, exist_ok=True)
    try:
        return optuna.create_study(
            storage=storage if "://" in storage else open_journal(storage),
            sampler=draw_by_number(sampler, seed),
            pruner=optuna.pruners.MedianPruner() if pruner == "median" else optuna.pruners.NopPruner(),
            study_name=name, direction="maximize", load_if_exists=True,
        )  # fmt: skip
    except Exception as error:  # every database has errors of its own
        reason = (str(error).splitlines() or [""])[0]
        raise LikewiseError(
            f"tune: the storage '{without_password(storage)}' cannot be used ({type(error).__name__}: {reason}); "
            "restore a copy of it, or search anew with another --out or --storage"
        ) from None


def open_journal(file: str) -> JournalStorage:
    """A journal as Optuna's storage. A last line that a killed process cut short is removed: the next would join it."""
    lock = JournalFileSymlinkLock(file)
    backend = JournalFileBackend(file, lock)
    lock.acquire()
    try:
        with open(file, "r+b") as journal:
            text = journal.read()
            last = text.rfind(b"\n", 0, -1) + 1  # where the last line begins
            if not is_entry(text[last:]):
                journal.truncate(last)
    finally:
        lock.release()
    return JournalStorage(backend)


def is_entry(line: bytes) -> bool:
    """Whether this is a whole line of a journal."""
    try:
        return line.endswith(b"\n") and isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def without_password(storage: str) -> str:
    return re.sub(r"(://[^:/@]*):.*@", r"\1:***@", storage)


def draw_by_number(name: str, seed: int) -> samplers.BaseSampler:
    """A sampler whose draws depend on the seed and the trials before that were not interrupted, and on nothing else.

    So a study that was stopped goes on as it would have, and processes that share one do not draw alike.
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


def suggest(trial: Trial, r: Range) -> object:
    if r.choices:
        return trial.suggest_categorical(r.name, r.choices)
    if r.whole:
        return trial.suggest_int(r.name, round(r.low), round(r.high), log=r.log)
    return trial.suggest_float(r.name, r.low, r.high, log=r.log)


def counted(study: Study, before: int | None = None) -> list[FrozenTrial]:
    """The trials that use up the budget: ended, or under way somewhere. Interrupted ones do not."""
    trials = study.get_trials(deepcopy=False)
    return [t for t in trials if t.state != TrialState.FAIL and (before is None or t.number < before)]


def next_trial(study: Study, budget: int) -> Trial | None:
    """A trial of our own, or None when the budget is used up, over all processes that share the study."""
    if not study.get_trials(deepcopy=False, states=(TrialState.WAITING,)) and len(counted(study)) >= budget:
        return None
    trial = study.ask()
    if len(counted(study, trial.number)) >= budget:  # another process was quicker; numbers leave no doubt who
        study.tell(trial, state=TrialState.FAIL)
        return None
    trial.set_user_attr("owner", mark())
    return trial


def hand_back(study: Study, number: int, params: dict) -> None:
    """An interrupted trial: it does not count, and its values are tried again, by whoever asks next."""
    if params:
        study.enqueue_trial(params)
    study.tell(number, state=TrialState.FAIL)


def take_up(study: Study) -> None:
    """Hand back the trials of processes of this machine that are no more."""
    for trial in study.get_trials(deepcopy=False):
        if trial.state == TrialState.RUNNING and lives(trial.user_attrs.get("owner")) is False:
            hand_back(study, trial.number, trial.params)
