"""Forecast and result of a review: train again with the decisions in its store, and write proof.json and the page again."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from likewise.core.errors import LikewiseError
from likewise.core.notebook import table, view
from likewise.core.settings import Audit, Review
from likewise.curate.audit.page import write_page
from likewise.curate.audit.proof import proof_lines, prove_review
from likewise.curate.audit.read import Findings, find_audit, read_findings
from likewise.curate.audit.retrain import retrain_with_decisions
from likewise.curate.review.consensus import Consensus, note_review, settle
from likewise.curate.review.items import find_root, load_row_image
from likewise.curate.review.store import Store


@dataclass(frozen=True, eq=False)
class Proved:
    """The content of proof.json, and the page of the audit, which shows it."""

    proof: dict
    page: Path

    def __str__(self) -> str:
        count = self.proof["reviewed"]
        head = f"forecast and result after decisions about {count:,} suspect{'s' * (count != 1)}"
        return "\n".join([head, *(f"  {line}" for line in proof_lines(self.proof)), f"page: {self.page}"])

    @view
    def _repr_html_(self) -> str:
        return table("forecast and result", (), [(line,) for line in proof_lines(self.proof)])


def prove(config: Review, say=print) -> Proved:
    """Train again with the settled decisions of a review, and write proof.json and audit.html of the audit."""
    folder = find_audit(config.audit, "review")
    findings = read_findings(folder)
    if findings.questions is not None:
        raise LikewiseError(
            "review: --retrain must be used with one label per sample, but this audit is of several; train on corrected.csv"
        )
    file = folder / "decisions.sqlite" if config.store is None else Path(config.store).expanduser()
    if not file.exists():
        raise LikewiseError(f"review: --retrain needs decisions, but there is no {file}; review the audit first")
    with closing(Store(file, findings)) as store:
        made = store.current_decisions()
    settled = settle(findings, (one for one in made if one.kind == "sample"))
    settled = {int(item): one for item, one in settled.items() if one.choice != "disputed"}
    labels = changed_labels(findings, settled)
    again = None
    if findings.about.get("kind") == "run":
        again = partial(retrain_with_decisions, findings.about, labels, audit_settings(config, findings), folder, say)
    proof = prove_review(folder, findings, labels, set(settled), again)
    root = find_root(findings, config.root)
    shown = partial(load_row_image, findings, root) if findings.about["pictures"] else lambda row: None
    page = write_page(folder, shown, config.quiet)
    note_review(findings, made, folder)
    return Proved(proof, page)


def changed_labels(findings: Findings, settled: dict[int, Consensus]) -> dict[int, str | None]:
    """Return row -> new label, or None if it was removed, as in the corrected table."""
    changed = {row: one for row, one in settled.items() if one.choice in ("relabel", "remove")}
    return {row: None if one.choice == "remove" else one.label for row, one in sorted(changed.items())}


def audit_settings(config: Review, findings: Findings) -> Audit:
    """Return the settings with which the audit opened its run, on the device of the review."""
    opened = findings.about.get("opened") or {}
    return Audit(
        checkpoint=opened.get("checkpoint") or "best", data=opened.get("data"), root=config.root or opened.get("root"),
        device=config.device, workers=config.workers, allow_imports=config.allow_imports, quiet=config.quiet,
    )  # fmt: skip
