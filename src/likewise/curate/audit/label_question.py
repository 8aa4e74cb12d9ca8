"""A question about one label of one sample: is it missing, or superfluous?"""

from __future__ import annotations

from typing import NamedTuple


class LabelQuestion(NamedTuple):
    """One line of labels.csv: a label that a sample may lack ("missing") or have wrongly ("superfluous")."""

    row: int
    label: str
    kind: str
    chance: float | None  # None: unknown
    state: str
    reason: str = ""
    nearest_with: str = ""  # rows of the nearest samples with the label
    nearest_without: str = ""

    @property
    def item(self) -> str:
        """Return the name of the question: decisions are kept for each row and label."""
        return f"{self.row}:{self.label}"

    @property
    def advice(self) -> str:
        """Return what the audit suggests to do."""
        if self.state != "flagged":
            return "keep"
        return "add" if self.kind == "missing" else "remove"
