"""The budget of a bench: what still fits, and the alarm at its end."""

import signal
import sys
import time

import pytest
from likewise.errors import LikewiseError

from likewise.learn.training.interrupts import stop_on_signal
from likewise.papers.bench import Budget, BudgetSpent


def test_a_training_starts_only_if_the_longest_so_far_fits():
    now = [100.0]
    budget = Budget(10, clock=lambda: now[0])  # 600 s, of which 20 s are for the table: the end is at 680
    assert budget.end == 680 and budget.fits()
    budget.record(60)
    budget.record(30)
    now[0] = 619
    assert budget.fits() and not budget.is_spent()
    now[0] = 620
    assert not budget.fits() and not budget.is_spent()
    now[0] = 680
    assert budget.is_spent()


def test_a_short_budget_keeps_a_twentieth_for_the_table():
    assert Budget(1, clock=lambda: 0.0).end == 57


def test_without_a_budget_everything_fits():
    budget = Budget(None)
    budget.record(1e9)
    assert budget.fits() and not budget.is_spent()


@pytest.mark.parametrize("minutes", [0, -1, float("nan"), float("inf")])
def test_a_budget_is_positive_and_finite(minutes):
    with pytest.raises(LikewiseError, match="above 0"):
        Budget(minutes)


def test_the_alarm_raises_outside_of_a_training_and_leaves_no_timer():
    with pytest.raises(BudgetSpent), Budget(0.001).alarm():
        time.sleep(30)
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_an_evaluation_under_way_gets_half_of_the_time_for_the_table(monkeypatch):
    monkeypatch.setattr("likewise.papers.bench.TABLE_SHARE", 0.95)
    budget = Budget(0.1)  # 6 s: the end is after 0.3 s, and an evaluation may take 2.85 s more
    with budget.alarm():
        while not budget.is_spent():
            time.sleep(0.01)
        time.sleep(0.1)
    assert budget.is_spent()


def test_the_alarm_ignores_handlers_of_other_libraries():
    """Ray leaves a handler of SIGTERM that exits the process."""
    before = signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(number))
    try:
        with pytest.raises(BudgetSpent), Budget(0.001).alarm():
            time.sleep(30)
    finally:
        signal.signal(signal.SIGTERM, before)


def test_the_alarm_asks_a_training_to_save():
    with Budget(0.001).alarm(), stop_on_signal() as stop:
        assert stop.wait(30)
