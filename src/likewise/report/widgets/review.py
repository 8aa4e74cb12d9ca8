"""ReviewWidget: decide about the flagged labels of an audit in a notebook, into the same file as the review page."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from PIL import Image

from likewise.core.errors import LikewiseError
from likewise.curate.audit.read import find_audit, read_findings
from likewise.curate.review.consensus import write_corrected_table
from likewise.curate.review.items import Questioned, find_root, load_image, shown, tile
from likewise.curate.review.store import Choice, Decision, Store, system_user, tidy
from likewise.report.widgets.widget import STATIC_FOLDER, Widget, traitlets

PANEL_FIELDS = ("row", "label", "name", "split", "reason", "claimed", "instead", "near", "copies")
"""What the view gets of each sample of a question; paths are not among it."""
DEFAULT_REVIEWER_NAME = "notebook"
"""Name of a reviewer whose account has no name."""


class ReviewWidget(Widget):
    """The flagged labels of an audit one by one, with their images, suggested labels and neighbours.

        widget = likewise.ReviewWidget("runs/mine")  # the last expression of a cell shows it
        widget.decisions, widget.write_corrected()

    Keys: K keep, R change to the suggested label, L other label, X remove, U unsure, Backspace undo, arrows back and next.
    Decisions are in decisions.sqlite of the audit folder, as those of `likewise review`: both can be used in turn.

    Args:
        audit: the folder of an audit, a run with an audit, or the result of `likewise.audit_run`.
        reviewer: name of the person who decides; None: the name of the account.
        root: folder that relative image paths start from; None: that of the audit.
    """

    _esm = STATIC_FOLDER / "review.js"
    _css = STATIC_FOLDER / "widgets.css"
    question = traitlets.Dict().tag(sync=True)
    """The shown question; empty after the last one."""
    progress = traitlets.Dict().tag(sync=True)
    """Numbers of decided questions (`done`) and of all questions (`whole`), and the index of the shown one (`place`)."""
    classes = traitlets.List(traitlets.Unicode()).tag(sync=True)
    """The classes that a label can be changed to."""
    pictures = traitlets.Bool().tag(sync=True)
    """Whether the audited samples have images."""

    def __init__(self, audit: Any, *, reviewer: str | None = None, root: str | os.PathLike | None = None):
        if not isinstance(audit, str | os.PathLike):
            raise LikewiseError(
                f"ReviewWidget: audit must be a folder or the result of likewise.audit_run, got a {type(audit).__name__}; "
                "pass the folder of an audit"
            )
        self._folder = find_audit(os.fspath(audit), "ReviewWidget")
        self._findings = read_findings(self._folder)
        self._root = find_root(self._findings, None if root is None else os.fspath(root))
        self._reviewer = tidy((system_user() or DEFAULT_REVIEWER_NAME) if reviewer is None else reviewer)
        if not self._reviewer:
            raise LikewiseError("ReviewWidget: reviewer must be a name, got an empty one; pass reviewer='ann'")
        self._store = Store(self._folder / "decisions.sqlite", self._findings)
        self._questions = Questioned(self._findings)
        self._items, self._place = list(self._questions.flagged), -1
        super().__init__(pictures=self._findings.about["pictures"])
        self._advance()

    @property
    def decisions(self) -> list[Decision]:
        """Return the current decisions of all reviewers, in order of time."""
        return self._store.current_decisions()

    def write_corrected(self) -> Path | None:
        """Write corrected.csv of the audit folder and return its path; None, and nothing is written, without decisions."""
        return write_corrected_table(self._store, self._folder / "corrected.csv", self._root)

    def decide(
        self, choice: str, label: str = "", *, item: str | None = None, new_class: bool = False
    ) -> list[Decision]:
        """Store a decision about the shown question, and show the next open one; return the decisions.

        Args:
            choice: keep, relabel, remove or unsure.
            label: the new label, for relabel. Of the copies of an image, those that have this label already are kept.
            item: another question, by the number of its row.
            new_class: whether the label may be a class that the data does not have yet.
        """
        item = self.question.get("item") if item is None else item
        if item not in self._questions.flagged:
            raise LikewiseError(
                f"ReviewWidget: item must be a question of this audit, got {item!r}; undo shows the last one"
            )
        rows, sample = self._questions.rows(item), self._findings.sample
        is_kept = [choice == "relabel" and len(rows) > 1 and sample[row].label == label for row in rows]
        choices = [
            Choice(str(row), "keep") if kept else Choice(str(row), choice, label) for row, kept in zip(rows, is_kept)
        ]
        made = self._store.decide_all(self._reviewer, choices, new_class=new_class)
        self._place = self._items.index(item)
        self._advance()
        return made

    def undo(self) -> list[Decision]:
        """Undo the last decision of this reviewer, also one that was made on the page, and show its question; return it."""
        taken = self._store.undo(self._reviewer)
        if not taken:
            raise LikewiseError("ReviewWidget: there is no decision to undo; decide about a label first")
        first = self._questions.first.get(int(taken[0].item)) if taken[0].kind == "sample" else None
        self._place = self._place if first is None else self._items.index(first)
        self._show()
        return taken

    def go(self, step: int) -> None:
        """Show a question before (negative step) or after the shown one, decided or not."""
        self._place = min(max(self._place + step, 0), len(self._items))
        self._show()

    def close(self) -> None:
        """Remove the widget from the notebook and close the file of decisions."""
        super().close()
        if hasattr(self, "_store"):
            self._store.close()

    def load_image(self, row: int) -> Image.Image:
        """Return the image of a row of the audit."""
        if not self.pictures or row not in self._findings.sample:
            raise LikewiseError(f"ReviewWidget: row {row} has no image; use a row of the audit that has one")
        return load_image(self._findings, self._root, row)

    def perform(self, action: str, content: dict) -> str:
        """Do what a button or key of the view requests (decide, undo, go or write), and return what the view shows about it."""
        if action == "decide":
            choice, label, item = (content.get(name, "") for name in ("choice", "label", "item"))
            if not all(isinstance(text, str) for text in (choice, label, item)):
                raise LikewiseError(
                    f"ReviewWidget: choice, label and item must be texts, got {content!r}; decide again"
                )
            self.decide(choice, label, item=item, new_class=content.get("new_class") is True)
        elif action == "undo":
            taken = self.undo()
            return f"Undone: {f'{len(taken)} labels' if len(taken) > 1 else f'{taken[0].choice} {taken[0].label}'.strip()}."
        elif action == "go" and content.get("step") in (-1, 1):
            self.go(content["step"])
        elif action == "write":
            written = self.write_corrected()
            return f"Written: {written}" if written else "Nothing is decided yet, so nothing was written."
        else:
            raise LikewiseError(
                f"ReviewWidget: an action must be decide, undo, go or write, got {content!r}; try again"
            )
        return ""

    def _advance(self) -> None:
        """Show the next question that this reviewer has not decided: after the shown one, or else before it."""
        decided = self._store.decided_items(self._reviewer, "sample")
        ahead = self._place + 1
        order = [*range(ahead, len(self._items)), *range(min(ahead, len(self._items)))]
        is_open = (n for n in order if not all(str(row) in decided for row in self._questions.rows(self._items[n])))
        self._place = next(is_open, len(self._items))
        self._show()

    def _show(self) -> None:
        """Send the question at the current place, the progress and the classes to the view, in one message."""
        decided = {d.item: d for d in self._store.current_decisions(reviewer=self._reviewer)}
        with self.hold_sync():
            self.question = self._describe(decided) if self._place < len(self._items) else {}
            self.progress = {**self._questions.progress("sample", decided), "place": self._place}
            self.classes = sorted({name for _, name in self._findings.members} | set(self._store.added_classes()))

    def _describe(self, decided: dict[str, Decision]) -> dict[str, Any]:
        """Return the question at the current place for the view, and the rows of the next one, which it loads in advance."""
        item = self._items[self._place]
        rows = self._questions.rows(item)
        panels = shown(self._findings, item, rows)["panels"]
        later = self._items[self._place + 1 : self._place + 2]
        return {
            **tile(self._findings, item, rows, decided),
            "panels": [{name: panel[name] for name in PANEL_FIELDS} for panel in panels],
            "ahead": [row for one in later for row in self._questions.rows(one)[:2]],
        }
