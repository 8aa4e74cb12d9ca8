"""Serve the review page of an audit until Ctrl-C."""

from __future__ import annotations

import os
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from likewise._notebook import table, view
from likewise.audit.read import find_audit, read_findings
from likewise.config import Review
from likewise.data.images import read_image
from likewise.web.http import choose_token
from likewise.web.review.app import serve
from likewise.web.review.store import Store


@dataclass(frozen=True)
class Reviewed:
    """The file of decisions, and the number of its decisions and reviewers."""

    file: Path
    decisions: int
    reviewers: int

    def __str__(self) -> str:
        return f"{count(self.decisions, 'decision')} of {count(self.reviewers, 'reviewer')} stored in {self.file}"

    @view
    def _repr_html_(self) -> str:
        lines = [("decisions", self.decisions), ("reviewers", self.reviewers), ("file", self.file)]
        return table("review of an audit", (), lines)


def serve_review(config: Review, say=print) -> Reviewed:
    """Serve the review page of an audit until Ctrl-C. `say` gets its address."""
    token, folder = choose_token("review", config.token_file), find_audit(config.audit, "review")
    findings = read_findings(folder)
    about = findings.about
    root = about["root"] if config.root is None else config.root
    root = os.path.abspath(os.path.expanduser(root)) if root else ""

    def picture(row: int) -> Image.Image:
        one = findings.sample[row]
        return read_image(os.path.join(root, one.path), one.box)

    file = folder / "decisions.sqlite" if config.store is None else Path(config.store).expanduser()
    pictures = picture if about["pictures"] else None
    with closing(Store(file, findings)) as store:
        with suppress(KeyboardInterrupt):  # the normal end
            serve(store, token, pictures, config.host, config.port, root, about["title"], say)
        made = store.current_decisions()
    return Reviewed(file, len(made), len({decision.reviewer for decision in made}))


def count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"
