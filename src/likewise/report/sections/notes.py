"""Section "Notes": limitations and warnings about the page and each run."""

from __future__ import annotations

from likewise.report.section import Facts, Section


def context(facts: Facts) -> list[tuple[str, str]]:
    """Return every note with the name of its run; "" for a note about the page."""
    return [("", note) for note in facts.notes] + [(run.name, note) for run in facts.runs for note in run.notes]


def has_notes(facts: Facts) -> bool:
    return bool(facts.notes) or any(run.notes for run in facts.runs)


SECTION = Section("notes", "Notes", "Notes", shown_if=has_notes, template="notes.html", context=context, scripts=())
