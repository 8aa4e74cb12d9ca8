"""The review page's server: items to judge, pictures by row number, decisions in, tables out.

Nothing the browser sends is ever opened as a path: pictures are asked for by row, and the caller's `picture` finds it.
Reviewers judge blind: the page shows each of them only their own decisions, until they have judged an item and differ.
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

from fastapi import Depends, FastAPI, Response  # isort: skip - `server` says what to install where it is missing
from fastapi.responses import FileResponse, JSONResponse, PlainTextResponse  # isort: skip
from fastapi.staticfiles import StaticFiles  # isort: skip

ImageLoader = Callable[[int], Image.Image]
STATIC_FOLDER = Path(__file__).parent / "static"
ItemsByKind = dict[str, Collection[str]]  # all items of a kind, in order
MAX_REQUEST_BYTES = 2**16
"""Bytes of the largest request: a decision and its note."""
SPLIT_NAMES = ("train", "val", "test", UNSPLIT_NAME)


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
    picture: ImageLoader | None = None,
    host: str = LOOPBACK_HOSTS[0],
    port: int = 8017,
    root: str = "",
    title: str = "",
    say: Callable[[str], None] = print,
) -> None:
    """Serve the page until interrupted. Arguments as for `make_app`; `say` takes the address, and port 0 is any free one."""
    run_app(make_app(store, token, picture, root, title), "review", host, port, token, say)


def make_app(store: Store, token: str, picture: ImageLoader | None = None, root: str = "", title: str = "") -> FastAPI:
    """Return the page over a store.

    Args:
        token: what requests must carry.
        picture: a row's image; None: there are no images, and the page shows row numbers and names.
        root: where relative paths start; the corrected table then names whole paths.
        title: what was audited, in a few words.
    """
    app = new_app("review", token, MAX_REQUEST_BYTES)

    @app.get("/")
    def page() -> FileResponse:
        return FileResponse(STATIC_FOLDER / "index.html")

    samples = {str(one.row): None for one in store.findings.suspects}
    whole = {"sample": samples, "pair": dict.fromkeys(store.findings.pair)}
    add_item_routes(app, store, whole, {"title": title, "pictures": picture is not None})
    add_decision_routes(app, store, whole)
    add_file_routes(app, store, picture, root)
    app.mount("/static", StaticFiles(directory=STATIC_FOLDER))
    return app


def add_item_routes(app: FastAPI, store: Store, whole: ItemsByKind, about: dict) -> None:
    """What there is to judge."""
    findings = store.findings
    there = {part: sorted(label for own, label in findings.members if own == part) for part in SPLIT_NAMES}
    about |= {
        "classes": {part: names for part, names in there.items() if names},
        "among": {
            "sample": [part for part in SPLIT_NAMES if there[part]],
            "pair": list(dict.fromkeys(pair.type for pair in findings.pair.values())),
        },
        "start": secrets.token_hex(4),  # a browser keeps pictures by address: after a new start they have another
    }

    @app.get("/api/about")
    def tell() -> dict:
        return about

    @app.get("/api/queue")
    def queue(reviewer: str, asked: Annotated[ItemFilter, Depends()]) -> JSONResponse:
        """Items to judge, the worst first, and how many of this kind the reviewer has judged."""
        found, done = whole[asked.kind], store.decided_items(reviewer, asked.kind)
        if asked.show == "open":
            found = (item for item in found if item not in done)
        elif asked.show == "disputed":
            found = (
                item for item, one in find_consensus(store.current_decisions()).items() if one.choice == "disputed"
            )
            found = (item for item in found if kind_of(findings, item) == asked.kind)
        found = [item for item in found if matches_filter(findings, item, asked)]
        return JSONResponse({"items": found, **progress(done, whole[asked.kind])})  # as it is: there may be very many

    @app.get("/api/item/{item}")
    def item(item: str, reviewer: str) -> dict:
        """An item; once the reviewer has judged it and others see it differently, also what they say."""
        kind_of(findings, item)
        said = store.current_decisions(item=item)
        own = next((d for d in said if d.reviewer == tidy(reviewer)), None)
        disputed = own is not None and any(s.choice == "disputed" for s in find_consensus(said).values())
        others = [d._asdict() for d in said if disputed and d is not own]
        return {**shown(findings, item), "item": item, "decision": own and own._asdict(), "others": others}


def add_decision_routes(app: FastAPI, store: Store, whole: ItemsByKind) -> None:
    """Decisions."""

    @app.post("/api/decide")
    def decide(said: DecisionRequest) -> dict:
        made = store.decide(said.reviewer, said.item, said.choice, said.label, said.note)
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


def add_file_routes(app: FastAPI, store: Store, picture: ImageLoader | None, root: str) -> None:
    """Pictures and tables."""
    findings = store.findings

    @app.get("/picture/{row}")
    def image(row: int, large: bool = False) -> Response:
        if picture is None or row not in findings.sample:
            return PlainTextResponse(f"review: there is no picture of row {row}", 404)
        return send_image(partial(picture, row), large)

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
    return {"done": sum(item in whole for item in done), "whole": len(whole)}
