"""The study behind tune: a budget that processes share, draws that can be repeated, trials that are handed back."""

import subprocess
import sys

import pytest
from likewise.errors import LikewiseError
from optuna.trial import TrialState

from likewise.core.processes import mark
from likewise.papers.optuna_study import (
    counted,
    next_trial,
    open_study,
    requeue_lost_trials,
    requeue_trial,
    without_password,
)
from likewise.papers.tune import Range, suggest

pytest.importorskip("optuna")


RANGES = [
    Range("lr", "", low=1e-5, high=1e-2, log=True), Range("dim", "", choices=("8", "16")),
    Range("warmup", "", low=1, high=9, whole=True, unit="e"),
]  # fmt: skip


@pytest.fixture
def study(tmp_path):
    return lambda seed=0, sampler="random", name="s": open_study(
        name, str(tmp_path / "new" / "study.journal"), sampler, "median", seed
    )


def play(study, budget):
    """All trials of a budget: what was suggested."""
    drawn = []
    while trial := next_trial(study, budget):
        drawn.append({r.name: suggest(trial, r) for r in RANGES})
        study.tell(trial, drawn[-1]["lr"])
    return drawn


def test_values_lie_in_their_ranges(study):
    drawn = play(study(), 30)
    assert len(drawn) == 30
    assert all(1e-5 <= d["lr"] <= 1e-2 for d in drawn)
    assert {d["dim"] for d in drawn} == {"8", "16"}
    assert {d["warmup"] for d in drawn} <= set(range(1, 10))
    assert sum(d["lr"] < 1e-3 for d in drawn) > 10  # two thirds of a log range


@pytest.mark.parametrize("sampler", ["tpe", "gp", "random"])
def test_a_study_that_was_stopped_goes_on_as_it_would_have(study, sampler):
    whole = play(study(sampler=sampler, name="whole"), 13)
    parts = play(study(sampler=sampler, name="parts"), 5) + play(study(sampler=sampler, name="parts"), 13)
    assert parts == whole
    torn = study(sampler=sampler, name="torn")
    played = play(torn, 5)
    trial = next_trial(torn, 13)
    assert {r.name: suggest(trial, r) for r in RANGES} == whole[5]
    requeue_trial(torn, trial.number, trial.params)
    assert played + play(torn, 13) == whole
    assert play(study(seed=1, sampler=sampler, name="other"), 2) != whole[:2]


def test_an_interrupted_trial_does_not_count_and_its_values_come_again(study):
    s = study()
    play(s, 2)
    trial = next_trial(s, 3)
    values = {r.name: suggest(trial, r) for r in RANGES}
    assert next_trial(s, 3) is None  # it is under way
    requeue_trial(s, trial.number, trial.params)
    assert play(study(), 3) == [values]
    assert [t.state for t in s.trials] == [TrialState.COMPLETE] * 2 + [TrialState.FAIL, TrialState.COMPLETE]
    assert len(counted(s)) == 3


def test_the_trial_of_a_process_that_is_no_more_is_taken_up(study):
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    s = study()
    left, living, elsewhere = (next_trial(s, 9) for _ in range(3))
    dead = mark() | {"pid": gone.pid}
    for trial, owner in ((left, dead), (elsewhere, dead | {"space": "another container of this name"})):
        trial.set_user_attr("owner", owner)
    values = {r.name: suggest(left, r) for r in RANGES}
    assert living.user_attrs["owner"] == mark()
    requeue_lost_trials(s)
    states = [t.state for t in s.trials]
    assert states == [TrialState.FAIL, TrialState.RUNNING, TrialState.RUNNING, TrialState.WAITING]
    again = next_trial(s, 9)
    assert {r.name: suggest(again, r) for r in RANGES} == values


def test_a_journal_that_was_cut_goes_on_and_one_that_is_damaged_is_refused(study, tmp_path):
    """A kill while a line is written, or a full disk: that line never was. What a damaged line held is lost."""
    play(study(), 3)
    (file,) = tmp_path.glob("*/study.journal")
    whole = file.read_bytes()
    for cut in (b'{"op_code":4,"worker', b'{"op_code":4\n', b"[1]\n"):
        file.write_bytes(whole + cut)
        play(study(), 4)
        assert len(counted(study())) == 4
    file.write_bytes(whole.replace(b'"op_code"', b'"op_co', 3))
    with pytest.raises(LikewiseError, match="restore a copy of it, or start a new"):
        study()


def test_who_comes_too_late_by_a_hair_gives_way(study, monkeypatch):
    from likewise.papers import optuna_study as module

    s, real = study(), counted
    play(s, 1)

    def late(study, before=None):  # before asking, the other process's trial cannot be seen yet
        return real(study, before) if before is not None else []

    monkeypatch.setattr(module, "counted", late)
    assert next_trial(s, 1) is None
    assert [t.state for t in s.trials] == [TrialState.COMPLETE, TrialState.FAIL]


def test_passwords_are_not_told():
    assert without_password("postgresql://me:se:c@ret@host:5432/db") == "postgresql://me:***@host:5432/db"
    for plain in ("sqlite:///a.db", "postgresql://me@host:5432/db", "postgresql://host:5432/db", "C:/x@y/study"):
        assert without_password(plain) == plain


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('"values":[', '"values":["a",'),
        ('"values":[', '"values":[[1],'),
        ('"folds":[', '"folds":["a",'),
        ('"reason":null', '"reason":5'),
    ],
)
def test_a_journal_with_values_of_other_types_is_refused(study, tmp_path, before, after):
    """Optuna stores whatever is in its lines."""
    one = study()
    trial = one.ask()
    trial.set_user_attr("folds", [0.5])
    trial.set_user_attr("reason", None)
    one.tell(trial, 0.5)
    file = tmp_path / "new" / "study.journal"
    lines = file.read_text().replace(" ", "")
    assert before in lines
    file.write_text(lines.replace(before, after))
    with pytest.raises(LikewiseError, match="cannot be used .*restore a copy of it"):
        study()


@pytest.mark.parametrize("content", ["the user's notes\nin two lines", '{"a": 1}\n{"b', "[]"])
def test_a_file_that_is_no_journal_is_not_cut(study, tmp_path, content):
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "study.journal").write_text(content)
    with pytest.raises(LikewiseError, match="not a journal .* stays as it is"):
        study()
    assert (tmp_path / "new" / "study.journal").read_text() == content
