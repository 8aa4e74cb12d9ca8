"""Section "Notes": limitations and warnings about the page and each run."""

from __future__ import annotations

from likewise.report.section import Facts, Section


def context(facts: Facts) -> list[tuple[str, str]]:
    """Return every note with the name of its run; "" for a note about the page."""
    return [("", note) for note in facts.notes] + [(run.name, note) for run in facts.runs for note in run.notes]


SECTION = Section("notes", "Notes", "Notes", template="notes.html", context=context)
