"""Steps, passes and seconds, as settings write them."""

import pytest
from likewise.durations import period_of, seconds_of, steps_of
from likewise.types import LikewiseError


@pytest.mark.parametrize(("text", "steps"), [("500", 500), ("20e", 240), (" 0.5e ", 6), ("0", 0), ("0e", 0)])
def test_steps_and_passes(text, steps):
    assert steps_of(text, 12, "length") == steps


@pytest.mark.parametrize("text", ["", "e", "1.5", "-3", "3 e", "ten", "s", "-3s", "3 s", "3ss", "3m", "1e3s"])
def test_what_is_neither(text):
    assert seconds_of(text) is None
    with pytest.raises(LikewiseError, match="Mine: ramp must be a number of steps .*, got"):
        steps_of(text, 12, "ramp", owner="Mine")


@pytest.mark.parametrize(("text", "seconds"), [("30s", 30), (" 0.5s ", 0.5), ("0s", 0), ("30", None), ("2e", None)])
def test_seconds(text, seconds):
    assert seconds_of(text) == seconds


def test_a_period_is_steps_or_a_time():
    assert period_of("500", 10, "x") == 500 and period_of("2e", 10, "x") == 20 and period_of("30s", 10, "x") == "30s"
    for text, says in (
        ("3m", "got '3m'; seconds .* are allowed too"),
        ("0.01e", "at least 1 step, got '0.01e', which is 0"),
    ):
        with pytest.raises(LikewiseError, match=says):
            period_of(text, 12, "x", least=1)
