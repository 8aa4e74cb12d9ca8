"""clean: from a folder of images to corrected labels, without training."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from likewise.core.errors import LikewiseError, print_text
from likewise.core.http import choose_token, take_port
from likewise.core.settings import Apply, Audit, Clean, Review, check
from likewise.curate.audit.apply import Applied, apply
from likewise.curate.audit.apply_steps import check_new_folder
from likewise.curate.audit.audit import Audited, audit
from likewise.curate.audit.source import default_folder
from likewise.curate.audit.summary import show_findings
from likewise.curate.review.review_page import Reviewed, serve_review


@dataclass(frozen=True)
class Cleaned:
    """The audit, the review, and the new folder if one was written."""

    audited: Audited
    reviewed: Reviewed
    applied: Applied | None


def clean(config: Clean, say=print, show=lambda audited: None) -> Cleaned:
    """Audit the data, serve the review page until people finish it, and write the corrected table and folder.

    Args:
        show: gets the findings before the page is served.
    """
    check(config)
    out = Path(config.out or default_folder(config.data))
    if config.to:
        check_new_folder(config.to, (out / "corrected.csv").absolute(), "clean")
    choose_token("clean", None)  # checked now, because the page is served after the features are computed
    take_port("clean", config.host, config.port).close()
    audited = audit(
        Audit(
            targets=(config.data,), out=str(out), backbone=config.backbone, weights=config.weights, root=config.root,
            votes=config.votes, strict=config.strict, device=config.device, workers=config.workers,
            allow_imports=config.allow_imports, quiet=config.quiet,
        ),
        say,
    )  # fmt: skip
    if config.to and "labels" in audited.about:
        raise LikewiseError(
            f"clean: --to writes a folder for each label, but images of '{config.data}' have several labels each; leave it out, "
            f"and train on the corrected table (the audit is in {audited.folder})"
        )
    show(audited)
    reviewed = serve_review(
        Review(audit=str(audited.folder), host=config.host, port=config.port, browser=config.browser), say
    )
    applied = None
    if config.to and reviewed.corrected is not None:
        applied = apply(Apply(table=str(reviewed.corrected), to=config.to), say)
    return Cleaned(audited, reviewed, applied)


def clean_and_show(config: Clean, say=print) -> Cleaned:
    """Clean the data, and print the findings before the page is served; no findings with --quiet."""
    return clean(config, say, show=lambda found: None if config.quiet else show_findings(found))


def show_cleaned(cleaned: Cleaned, config: Clean) -> None:
    """Print the review and the changes of the new folder, or that none was written."""
    print_text(f"\nreview: {cleaned.reviewed}")
    if cleaned.applied:
        print_text("\n".join(cleaned.applied.lines()))
    elif config.to:
        print_text(f"no folder was written to {config.to}: there are no decisions yet")
