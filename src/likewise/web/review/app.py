"""Server of the review page: items to review, images by row number, decisions in, tables out.

No text from the browser is opened as a path: images are requested by row, and the caller's `load_image` loads them. Reviewers
work
blind: the page shows each of them only their own decisions, until they have decided about an item and disagree.
"""

from __future__ import annotations

import math
import secrets
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from PIL import Image

from likewise.audit.read import UNSPLIT_NAME
from likewise.web.http import LOOPBACK_HOSTS, new_app, run_app, send_image
from likewise.web.review.consensus import agreement, as_csv, changes, corrected, escape_formulas, find_consensus
from likewise.web.review.items import ItemFilter, matches_filter, shown
from likewise.web.review.store import Decision, Store, kind_of, tidy

from fastapi import Depends, FastAPI, Response  # isort: skip - `web.http` raises if FastAPI is missing
from fastapi.responses import FileResponse, JSONResponse, PlainTextResponse  # isort: skip
from fastapi.staticfiles import StaticFiles  # isort: skip

ImageLoader = Callable[[int], Image.Image]
STATIC_FOLDER = Path(__file__).parent / "static"
ItemsByKind = dict[str, Collection[str]]  # kind -> its items in order
MAX_REQUEST_BYTES = 2**16
"""Maximum size of a request, in bytes: a decision and its note."""
SPLIT_NAMES = ("train", "val", "test", UNSPLIT_NAME)
"""Splits in the order of the page."""


@dataclass(frozen=True)
class DecisionRequest:
    """A decision as the page sends it."""

    reviewer: str
    item: str
    choice: str
    label: str = ""
    note: str = ""


def serve(
    store: Store,
    token: str,
    load_image: ImageLoader | None = None,
    host: str = LOOPBACK_HOSTS[0],
    port: int = 8017,
    root: str = "",
    title: str = "",
    say: Callable[[str], None] = print,
) -> None:
    """Serve the page until interrupted. Arguments as for `make_app`; `say` gets the address, and port 0 is any free port."""
    run_app(make_app(store, token, load_image, root, title), "review", host, port, token, say)


def make_app(
    store: Store, token: str, load_image: ImageLoader | None = None, root: str = "", title: str = ""
) -> FastAPI:
    """Return the app of the review page, where people decide on the findings of an audit; `store` holds the decisions.

    Args:
        token: the token that requests must carry.
        load_image: returns the image of a row; None: there are no images, and the page shows row numbers and names.
        root: folder that relative image paths start from; if given, the corrected table, a download, has whole paths.
        title: name of the audited run or file.
    """
    app = new_app("review", token, MAX_REQUEST_BYTES)

    @app.get("/")
    def page() -> FileResponse:
        return FileResponse(STATIC_FOLDER / "index.html")

    samples = {str(one.row): None for one in (*store.findings.suspects, *store.findings.off_topic)}
    whole = {"sample": samples, "pair": dict.fromkeys(store.findings.pair)}
    add_item_routes(app, store, whole, {"title": title, "pictures": load_image is not None})
    add_decision_routes(app, store, whole)
    add_file_routes(app, store, load_image, root)
    app.mount("/static", StaticFiles(directory=STATIC_FOLDER))
    return app


def add_item_routes(app: FastAPI, store: Store, whole: ItemsByKind, about: dict) -> None:
    """Add the routes that return the items to review."""
    findings = store.findings
    there = {part: sorted(label for own, label in findings.members if own == part) for part in SPLIT_NAMES}
    about |= {
        "classes": {part: names for part, names in there.items() if names},
        "among": {
            "sample": [part for part in SPLIT_NAMES if there[part]],
            "pair": list(dict.fromkeys(pair.type for pair in findings.pair.values())),
        },
        "states": list(dict.fromkeys(one.state for one in (*findings.suspects, *findings.off_topic))),
        "start": secrets.token_hex(4),  # part of image addresses: browsers cache images by address
    }

    @app.get("/api/about")
    def about_audit() -> dict:
        return about

    @app.get("/api/queue")
    def queue(reviewer: str, wanted: Annotated[ItemFilter, Depends()]) -> JSONResponse:
        """Return the items to review, the worst first, and how many items of this kind the reviewer has decided."""
        found, done = whole[wanted.kind], store.decided_items(reviewer, wanted.kind)
        if wanted.show == "open":
            found = (item for item in found if item not in done)
        elif wanted.show == "disputed":
            found = (
                item for item, one in find_consensus(store.current_decisions()).items() if one.choice == "disputed"
            )
            found = (item for item in found if kind_of(findings, item) == wanted.kind)
        found = [item for item in found if matches_filter(findings, item, wanted)]
        return JSONResponse(
            {"items": found, **progress(done, whole[wanted.kind])}
        )  # without validation: there may be very many items

    @app.get("/api/item/{item}")
    def item(item: str, reviewer: str) -> dict:
        """Return an item; if the reviewer has decided about it and others disagree, also their decisions."""
        kind_of(findings, item)
        decisions = store.current_decisions(item=item)
        own = next((d for d in decisions if d.reviewer == tidy(reviewer)), None)
        disputed = own is not None and any(s.choice == "disputed" for s in find_consensus(decisions).values())
        others = [d._asdict() for d in decisions if disputed and d is not own]
        return {**shown(findings, item), "item": item, "decision": own and own._asdict(), "others": others}


def add_decision_routes(app: FastAPI, store: Store, whole: ItemsByKind) -> None:
    """Add the routes that store and undo decisions, and that compare reviewers."""

    @app.post("/api/decide")
    def decide(sent: DecisionRequest) -> dict:
        made = store.decide(sent.reviewer, sent.item, sent.choice, sent.label, sent.note)
        done = store.decided_items(made.reviewer, made.kind)
        return {"decision": made._asdict(), **progress(done, whole[made.kind])}

    @app.post("/api/undo")
    def undo(reviewer: str) -> dict:
        taken = store.undo(reviewer)
        return {"undone": taken and taken._asdict()}

    @app.get("/api/reviewers")
    def reviewers() -> dict:
        names = ("kind", "one", "other", "both", "kappa")
        made = store.current_decisions()
        agreed = [(*a[:4], None if math.isnan(a[4]) else a[4]) for a in agreement(made)]
        disputed = sum(settled.choice == "disputed" for settled in find_consensus(made).values())
        return {
            "decided": Counter(d.reviewer for d in made),
            "agreement": [dict(zip(names, a, strict=True)) for a in agreed],
            "disputed": disputed,
        }


def add_file_routes(app: FastAPI, store: Store, load_image: ImageLoader | None, root: str) -> None:
    """Add the routes of images and exported tables."""
    findings = store.findings

    @app.get("/picture/{row}")
    def image(row: int, large: bool = False) -> Response:
        if load_image is None or row not in findings.sample:
            return PlainTextResponse(f"review: row {row} has no image", 404)
        return send_image(partial(load_image, row), large)

    @app.get("/export/{name}.csv")
    def export(name: Literal["corrected", "changes", "decisions"]) -> Response:
        made = store.current_decisions()
        if name == "corrected":
            text = as_csv(corrected(findings, made, root))
        else:
            text = as_csv(escape_formulas(changes(findings, made) if name == "changes" else [Decision._fields, *made]))
        return Response(
            text, media_type="text/csv", headers={"Content-Disposition": f'attachment; filename="{name}.csv"'}
        )


def progress(done: set[str], whole: Collection[str]) -> dict[str, int]:
    """Return how many items are decided, and how many there are."""
    return {"done": sum(item in whole for item in done), "whole": len(whole)}
