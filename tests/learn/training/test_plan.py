"""Durations of a training in steps."""

import pytest


@pytest.mark.parametrize(("text", "every"), [("30s", "30s"), ("4", 4), ("0.5e", 3)])
def test_states_are_saved_by_steps_passes_or_seconds(items, make, text, every):
    assert make(items, checkpoint_every=text).plan.checkpoint_every == every


@pytest.mark.parametrize(("given", "steps", "every"), [(None, 21, 1), (None, 300, 6), (None, 5000, 20), (7, 21, 7)])
def test_a_short_training_logs_more_often(items, make, given, steps, every):
    assert make(items, log_every=given, steps=steps).plan.log_every == every
