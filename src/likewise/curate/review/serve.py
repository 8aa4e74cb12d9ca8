"""Serve the review page of an audit until people finish it, then write the corrected table."""

from __future__ import annotations

import shlex
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from likewise.core.http import LOOPBACK_HOSTS, choose_token, run_app
from likewise.core.notebook import table, view
from likewise.core.open_page import page_opener
from likewise.core.settings import Review
from likewise.curate.audit.data_name import data_name
from likewise.curate.audit.read import find_audit, read_findings
from likewise.curate.review.app import Served, make_app
from likewise.curate.review.consensus import write_corrected_table
from likewise.curate.review.items import find_root, load_image
from likewise.curate.review.store import Store, system_user


@dataclass(frozen=True)
class Reviewed:
    """The file of decisions, the number of its decisions and reviewers, and the corrected table (None: no decisions)."""

    file: Path
    decisions: int
    reviewers: int
    corrected: Path | None = None

    def __str__(self) -> str:
        made = f"{count(self.decisions, 'decision')} of {count(self.reviewers, 'reviewer')} stored in {self.file}"
        if self.corrected is None:
            return made
        return f"{made}\n{self.corrected}: the corrected table\nnext: likewise train {shlex.quote(str(self.corrected))}"

    @view
    def _repr_html_(self) -> str:
        lines = [("decisions", self.decisions), ("reviewers", self.reviewers), ("file", self.file)]
        lines += [] if self.corrected is None else [("corrected table", self.corrected)]
        return table("review of an audit", (), lines)


def serve_review(config: Review, say=print) -> Reviewed:
    """Serve the review page until people finish it or Ctrl-C, and write corrected.csv. `say` gets the address."""
    token, folder = choose_token("review", config.token_file), find_audit(config.audit, "review")
    findings = read_findings(folder)
    root = find_root(findings, config.root)
    file = folder / "decisions.sqlite" if config.store is None else Path(config.store).expanduser()
    with closing(Store(file, findings)) as store:
        finish = partial(write_corrected_table, store, folder / "corrected.csv", root)
        picture = partial(load_image, findings, root) if findings.about["pictures"] else None
        served = Served(
            picture, root, data_name(findings), folder / "corrected.csv", finish,
            system_user() if config.host in LOOPBACK_HOSTS else "", folder, config.order or "", config.stop_below,
        )  # fmt: skip
        with suppress(KeyboardInterrupt), page_opener(config.browser) as opener:  # an interrupt is the other normal end
            run_app(make_app(store, token, served), "review", config.host, config.port, token, say, opener)
        made = store.current_decisions()
        return Reviewed(file, len(made), len({decision.reviewer for decision in made}), finish())


def count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"
