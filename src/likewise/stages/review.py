"""Serve the page on which people judge what an audit found, until Ctrl-C."""

from __future__ import annotations

import os
from contextlib import closing, suppress
from pathlib import Path

from PIL import Image

from likewise.audit.read import read_findings
from likewise.config import Review
from likewise.data.images import read_image
from likewise.errors import LikewiseError
from likewise.web.http import choose_token
from likewise.web.review.app import serve
from likewise.web.review.store import Store


def review(config: Review) -> None:
    token, folder = choose_token("review", config.token_file), find_audit(config.audit)
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
        with suppress(KeyboardInterrupt):  # how it is meant to end
            serve(store, token, pictures, config.host, config.port, root, about["title"])
        made = store.standing()
    people = len({d.reviewer for d in made})
    print(f"\nreview: {count(len(made), 'decision')} of {count(people, 'reviewer')} stored in {file}")


def count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def find_audit(place: str) -> Path:
    """An audit's folder, which may be given by that of a run with an audit in it."""
    given = Path(place).expanduser()
    folder = next((one for one in (given, given / "audit") if (one / "audit.json").is_file()), None)
    if folder is None:
        raise LikewiseError(
            f"review: the folder of an audit is wanted, with audit.json, or a run with one in `audit`, got '{place}'; "
            "run `likewise audit` first"
        )
    return folder
