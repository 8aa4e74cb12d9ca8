"""Notes: of the page first, then of every run with its name."""

from likewise.report.records import Facts, RunView
from likewise.report.sections.notes import SECTION, context

RUN = RunView("mine", -1, "", {}, {}, "", notes=("late",))


def test_notes_of_the_page_come_first_and_without_notes_there_is_no_section():
    assert context(Facts("x", (RUN,), (), notes=("all",))) == [("", "all"), ("mine", "late")]
    assert SECTION.is_shown(Facts("x", (RUN,), ())) and not SECTION.is_shown(Facts("x", (), ()))
