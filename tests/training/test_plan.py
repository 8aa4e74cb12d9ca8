"""Durations of a training in steps."""

import pytest


@pytest.mark.parametrize(("text", "every"), [("30s", "30s"), ("4", 4), ("0.5e", 3)])
def test_states_are_saved_by_steps_passes_or_seconds(items, make, text, every):
    assert make(items, checkpoint_every=text).plan.checkpoint_every == every
