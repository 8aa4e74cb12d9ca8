"""Steps and passes, as settings write them."""

import pytest

from likewise.durations import steps_of
from likewise.types import LikewiseError


@pytest.mark.parametrize(("text", "steps"), [("500", 500), ("20e", 240), (" 0.5e ", 6), ("0", 0), ("0e", 0)])
def test_steps_and_passes(text, steps):
    assert steps_of(text, 12, "length") == steps


@pytest.mark.parametrize("text", ["", "e", "1.5", "-3", "3 e", "ten"])
def test_what_is_neither(text):
    with pytest.raises(LikewiseError, match=r"Mine: ramp is a number of steps \('5000'\) or passes \('20e'\), got"):
        steps_of(text, 12, "ramp", owner="Mine")


def test_too_short():
    with pytest.raises(LikewiseError, match="train: every must be a step or more, got '0.01e', which is 0"):
        steps_of("0.01e", 12, "every", least=1)
