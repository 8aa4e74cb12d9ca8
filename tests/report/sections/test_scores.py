"""Scores and their scales; notes."""

import pytest
from report.made_facts import bare, sure

from likewise.report.section import Facts, Score
from likewise.report.sections.notes import SECTION, context
from likewise.report.sections.scores import clear_best, scale, scales
from likewise.report.sections.scores import context as of_page


def test_the_best_is_named_only_where_intervals_are_apart():
    apart, close = sure(0.6, 0.55, 0.65), sure(0.52, 0.46, 0.56)
    low = sure(0.4, 0.35, 0.45)
    assert clear_best("R@1", [low, apart]) is apart
    assert clear_best("R@1", [apart, close, low]) is None  # 0.55 < 0.56
    assert clear_best("R@1", [apart]) is None
    assert clear_best("R@1", [apart, Score(0.1, None, None, "10 %")]) is None
    assert clear_best("rho", [low, apart]) is None  # it only describes
    assert clear_best("severity", [low, apart]) is low  # low is good
    assert clear_best("severity", [apart, close]) is None
    runs = bare("a", {"R@1": low}, 0), bare("b", {"R@1": apart}, 1)
    assert not any(line.best for line in scale("R@1", runs).lines), "not the same samples"
    runs = bare("a", {"R@1": low}, 0), bare("b", {"R@1": apart}, 0), bare("c")
    assert [line.best for line in scale("R@1", runs).lines] == [False, True]


def test_metrics_whose_names_do_not_explain_themselves_are_explained():
    runs = (bare("a", {"R@1": sure(0.4, 0.3, 0.5), "RP": sure(0.4, 0.3, 0.5)}, 0),)
    assert [line.partition(":")[0] for line in of_page(Facts("x", runs, ()))["explained"]] == ["RP"]


def test_before_training_has_a_line_of_its_own():
    before, after = sure(0.3, 0.2, 0.4), sure(0.6, 0.5, 0.7)
    runs = bare("a", {"R@1": after}, 0, before={"R@1": before}), bare("b", {"R@1": before}, 0, before={"R@1": before})
    found = scale("R@1", runs)
    assert [(line.before, line.run, line.score) for line in found.lines] == [
        (True, 0, before), (False, 0, after), (False, 1, before),  # both began alike
    ]  # fmt: skip
    assert found.low == "14" and found.high == "76 %"  # the scale holds its interval
    assert [line.best for line in found.lines] == [False, True, False]
    other = bare("c", {"R@1": after}, 0, before={"R@1": after})
    assert sum(line.before for line in scale("R@1", (*runs, other)).lines) == 2


def test_scales_hold_all_intervals():
    runs = (
        bare("a", {"R@1": sure(0.4, 0.3, 0.5)}, 0),
        bare("b", {"R@1": sure(0.6, 0.55, 0.7), "rho": Score(0.2, None, None, "0.2")}, 0),
    )
    first, second = scales(Facts("x", runs, ()))
    pad = 0.12 * 0.4
    by_hand = [(value - (0.3 - pad)) / (0.4 + 2 * pad) for value in (0.4, 0.3, 0.5)]
    assert first.lines[0][2:5] == pytest.approx(by_hand) and (first.low, first.high) == ("25", "75 %")
    assert second.low == "" and second.lines[0].at is None and second.lines[0].run == 1
    nan = scale("R@1", (bare("a", {"R@1": Score(float("nan"), None, None, "nan")}, 0),))
    assert nan.lines[0].at is None
    same = scale("R@1", (bare("a", {"R@1": sure(1.0, 1.0, 1.0)}, 0),))
    assert 0 <= same.lines[0].low <= same.lines[0].high <= 1


def test_a_reason_for_no_interval_is_given_once_per_metric():
    score = Score(0.9, None, None, "90.0 %", "too few classes")
    found = scale(
        "R@1", (bare("a", {"R@1": score}, 0, before={"R@1": score}), bare("b", {"R@1": sure(0.5, 0.4, 0.6)}, 0))
    )
    assert len(found.lines) == 3 and found.reasons() == ["too few classes"]


def test_notes_of_the_page_come_first_and_without_notes_there_is_no_section():
    run = bare("mine", notes=("late",))
    assert context(Facts("x", (run,), (), notes=("all",))) == [("", "all"), ("mine", "late")]
    assert SECTION.is_shown(Facts("x", (run,), ())) and not SECTION.is_shown(Facts("x", (), ()))
