"""clean: from a folder of images to corrected labels, without training."""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from likewise.core.errors import LikewiseError, print_text
from likewise.core.http import choose_token, take_port
from likewise.core.settings import Apply, Audit, Clean, Review, Train, check
from likewise.curate.audit.apply import Applied, apply
from likewise.curate.audit.apply_steps import check_new_folder
from likewise.curate.audit.audit import Audited, audit
from likewise.curate.audit.source import default_folder
from likewise.curate.audit.summary import show_findings
from likewise.curate.review.review_page import Reviewed, serve_review
from likewise.learn.training.fit import train
from likewise.learn.training.loop import Hooks, StepTimer, in_words
from likewise.learn.training.state import TrainState


@dataclass(frozen=True)
class Cleaned:
    """The audit, the review, and the new folder if one was written."""

    audited: Audited
    reviewed: Reviewed
    applied: Applied | None
    head_seconds: float | None = None
    """Estimated time of training a head on the corrected features, from its first steps; None: it cannot be trained."""


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
    take_port("clean", config.host, config.port).close()  # raises if the host cannot be served
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
        Review(audit=str(audited.folder), host=config.host, port=config.port, browser=config.browser),
        say,
        config.to or "",
    )
    applied = None
    if config.to and reviewed.corrected is not None:
        applied = apply(Apply(table=str(reviewed.corrected), to=config.to), say)
    seconds = None if reviewed.features is None else head_seconds(reviewed.features, config.device)
    return Cleaned(audited, reviewed, applied, seconds)


def head_seconds(features: Path, device: str | None) -> float | None:
    """Return the time that `likewise train` takes for these features, by its first steps; None: it refuses them."""
    began, timer = time.monotonic(), StepTimer()

    def after_step(state: TrainState) -> None:
        if (seconds := timer.after_step()) is not None:
            raise Measured(time.monotonic() - began + seconds * (state.plan.steps - state.step))

    try:
        with tempfile.TemporaryDirectory(prefix="likewise-") as folder:
            config = Train(str(features), out=f"{folder}/run", device=device, evaluate=False, quiet=True)
            train(config, lambda line: None, Hooks(after_step=after_step))
    except Measured as measured:
        return measured.seconds
    except LikewiseError:
        return None
    return time.monotonic() - began


class Measured(Exception):
    """The first steps of a training were timed, so that it ends; `seconds`: the time that all of it would take."""

    def __init__(self, seconds: float):
        self.seconds = seconds


def clean_and_show(config: Clean, say=print) -> Cleaned:
    """Clean the data, and print the findings before the page is served; no findings with --quiet."""
    return clean(config, say, show=lambda found: None if config.quiet else show_findings(found))


def show_cleaned(cleaned: Cleaned, config: Clean) -> None:
    """Print the review, the time of training a head, and the changes of the new folder or why there is none."""
    print_text(f"\nreview: {cleaned.reviewed}")
    if config.to and cleaned.reviewed.corrected is None:
        print_text(
            f"no decision was made, so neither the corrected table nor the folder {config.to} was written; "
            f"{config.data} is as before, and the same command continues"
        )
    if cleaned.head_seconds is not None:
        print_text(
            f"training the head takes about {in_words(cleaned.head_seconds)} on this machine; the network takes longer"
        )
    if cleaned.applied:
        print_text("\n".join(cleaned.applied.lines()))
