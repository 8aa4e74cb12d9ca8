"""Decisions until most of the gain of a review is reached: a scripted reviewer, several orders, the same heads."""

from __future__ import annotations

import numpy as np
import torch
from forecast_cells import Cell, Planted, corrected
from torch import Tensor

from likewise.labels.many_heads import HeadSettings, score_heads, train_heads
from likewise.labels.posterior_update import update_posterior
from likewise.labels.review_forecast import Action, label_effects, make_actions

PLANS = ("suspicion", "suspicion, groups", "gain, single", "gain, groups", "gain, groups, updated")
HEAD_SEEDS, CURVE_POINTS = 4, 7
"""Number of heads whose quality is averaged, and of points of a decision curve."""

REACHED_SHARE = 0.9
"""Share of the gain of the whole review that must be reached."""

MIN_GAIN = 0.003
"""Smallest gain in MAP@R of the whole review for which the decisions are counted."""

UPDATE_BLOCK = 20
"""Number of decisions after which the posterior is updated."""


def plan_actions(one: Planted, plan: str) -> list[Action]:
    """Return the actions of a plan in their order."""
    gain = one.candidates.wrong * label_effects(one.given, torch.ones_like(one.given, dtype=torch.bool))
    if plan == "suspicion":
        best = one.candidates.suggested
        return [Action((row,), int(best[row]), float(gain[row])) for row in one.queue.tolist()]
    if plan == "suspicion, groups":
        wrong = one.candidates.wrong
        actions = make_actions(one.candidates, one.queue, wrong, by="suggested")
        return sorted(actions, key=lambda action: -max(float(wrong[row]) for row in action.rows))
    return make_actions(one.candidates, one.queue, gain, by="single" if plan == "gain, single" else "suggested")


def review(one: Planted, plan: str) -> tuple[list[int], list[int]]:
    """Return the rows in the order in which a scripted reviewer decides them with the truth, and the decisions after each.

    An action decides all of its rows; each row whose true label is not the suggested one costs one decision more.
    """
    rows: list[int] = []
    spent: list[int] = []
    total, actions, since = 0, plan_actions(one, plan), 0
    effect = label_effects(one.given, torch.ones_like(one.given, dtype=torch.bool))
    while actions:
        action = actions.pop(0)
        exceptions = sum(int(one.true[row]) != action.suggested for row in action.rows) if len(action.rows) > 1 else 0
        total += 1 + exceptions
        since += 1 + exceptions
        rows += action.rows
        spent += [total] * len(action.rows)
        if plan.endswith("updated") and since >= UPDATE_BLOCK and actions:
            done = torch.tensor(rows)
            now = update_posterior(one.candidates, done, one.true[done])
            left = torch.tensor([row for action in actions for row in action.rows])
            actions, since = make_actions(now, left, now.wrong * effect), 0
    return rows, spent


def measure_orders(one: Planted, cell: Cell, settings: HeadSettings) -> dict:
    """Return the number of decisions of every plan until most of the gain in MAP@R is reached, and the curves."""
    reviews = {plan: review(one, plan) for plan in PLANS}
    count = len(one.queue)
    reviewed = np.unique(np.round(np.linspace(0, 1, CURVE_POINTS) ** 1.3 * count).astype(int)).tolist()
    curves = {plan: quality_curve(one, rows, reviewed, settings) for plan, (rows, _) in reviews.items()}
    start, last = (float(np.mean([curve[at] for curve in curves.values()])) for at in (0, -1))
    found: dict = {"queue": count, "gain": last - start, "wrong": int((one.given != one.true).sum()), "decisions": None}
    found["curves"] = {
        plan: {"decisions": [([0, *spent])[count] for count in reviewed], "mapr": curves[plan]}
        for plan, (_, spent) in reviews.items()
    }
    if last - start >= MIN_GAIN:
        goal = start + REACHED_SHARE * (last - start)
        found["decisions"] = {
            plan: decisions_until(goal, curves[plan], reviewed, reviews[plan][1]) for plan in PLANS
        }  # fmt: skip
    return found


def quality_curve(one: Planted, rows: list[int], reviewed: list[int], settings: HeadSettings) -> list[float]:
    """Return the mean MAP@R of some heads on the clean test rows, after each number of reviewed rows."""
    labels = torch.stack([corrected(one, torch.tensor(rows[:count], dtype=torch.long)) for count in reviewed])
    seeds = torch.arange(HEAD_SEEDS).repeat(len(labels))
    w = train_heads(one.x, labels.repeat_interleave(HEAD_SEEDS, 0), seeds, settings)
    found: Tensor = score_heads(one.test, one.test_y.expand(len(w), -1), w).mapr
    return found.reshape(len(labels), HEAD_SEEDS).mean(1).tolist()


def decisions_until(goal: float, quality: list[float], reviewed: list[int], spent: list[int]) -> float:
    """Return the decisions at which a curve first reaches the goal, between its points by a straight line."""
    for place in range(1, len(quality)):
        if quality[place] >= goal:
            low, high = quality[place - 1], quality[place]
            share = (goal - low) / (high - low) if high > low else 1.0
            rows = reviewed[place - 1] + share * (reviewed[place] - reviewed[place - 1])
            return float(np.interp(rows, np.arange(len(spent) + 1), [0, *spent]))
    return float(spent[-1])
