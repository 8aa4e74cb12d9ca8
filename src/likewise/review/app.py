"""The review page's server: items to judge, pictures by row number, decisions in, tables out.

Nothing the browser sends is ever opened as a path: pictures are asked for by row, and the caller's `picture` finds it.
Reviewers judge blind: the page shows each of them only their own decisions, until they have judged an item and differ.
"""

from __future__ import annotations

import errno
import io
import math
import secrets
import socket
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import quote, urlsplit

from PIL import Image

from likewise.errors import LikewiseError
from likewise.findings import ALL
from likewise.review.outcome import agreement, as_csv, changes, corrected, settle
from likewise.review.panels import Asked, fits, shown
from likewise.review.store import Decision, Store, kind_of, tidy

try:
    import uvicorn
    from fastapi import Depends, FastAPI, Request, Response
    from fastapi.responses import FileResponse, JSONResponse, PlainTextResponse, RedirectResponse
    from fastapi.staticfiles import StaticFiles
except ImportError as error:
    raise LikewiseError(
        f"review: the page needs FastAPI and uvicorn ({error}); pip install 'likewise[review]'"
    ) from None

Picture = Callable[[int], Image.Image]
STATIC = Path(__file__).parent / "static"
HERE = ("127.0.0.1", "localhost", "::1")
Whole = dict[str, Collection[str]]  # all items of a kind, in order
SPLITS = ("train", "val", "test", ALL)
SIDE = {False: 224, True: 1024}  # longest side in pixels of a small and a large picture
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


@dataclass(frozen=True)
class Said:
    """A decision as the page sends it."""

    reviewer: str
    item: str
    verdict: str
    label: str = ""
    note: str = ""


def serve(
    store: Store,
    picture: Picture | None = None,
    host: str = HERE[0],
    port: int = 8017,
    token: str = "",
    root: str = "",
    title: str = "",
) -> None:
    """Serve the page until interrupted. Arguments as for `make_app`; port 0 is any free one.

    A host that other machines can reach takes a token.
    """
    if host not in HERE and not token:
        raise LikewiseError(f"review: host={host!r} lets other machines in, which takes a token; set one, or {HERE[0]}")
    app, door = make_app(store, picture, token, root, title), take_port(host, port)
    with door:
        name = socket.gethostname() if host in ("0.0.0.0", "::") else f"[{host}]" if ":" in host else host
        key = f"?token={quote(token)}" if token else ""
        print(f"review: http://{name}:{door.getsockname()[1]}/{key} (Ctrl-C ends it)", flush=True)
        uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off", timeout_graceful_shutdown=2)).run(
            sockets=[door]
        )


def take_port(host: str, port: int) -> socket.socket:
    """A bound socket, held from here on, so that nobody can take the port in between."""
    for attempt in range(port, min(port + 50, 65536)):
        door = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            door.bind((host, attempt))
            door.listen()
        except OSError as error:
            door.close()
            if error.errno != errno.EADDRINUSE:
                raise LikewiseError(
                    f"review: {host}:{port} cannot be served ({error}); choose another host or port"
                ) from None
            continue
        if attempt == port:
            return door
        door.close()
        raise LikewiseError(f"review: port {port} of {host} is taken; choose another, {attempt} is free")
    raise LikewiseError(f"review: port {port} of {host} and those after it are taken; choose another")


def make_app(store: Store, picture: Picture | None = None, token: str = "", root: str = "", title: str = "") -> FastAPI:
    """The page over a store.

    Args:
        picture: a row's image; None: there are no images, and the page shows row numbers and names.
        token: what a browser must know; empty: only browsers on this machine are let in.
        root: where relative paths start; the corrected table then names whole paths.
        title: what was audited, in a few words.
    """
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    guard(app, token)

    @app.exception_handler(LikewiseError)
    def explain(request: Request, error: LikewiseError) -> JSONResponse:
        return JSONResponse({"error": str(error)}, 400)

    @app.get("/")
    def page() -> FileResponse:
        return FileResponse(STATIC / "index.html")

    samples = {str(one.row): None for one in store.findings.suspects}
    whole = {"sample": samples, "pair": dict.fromkeys(store.findings.pair)}
    add_looking(app, store, whole, {"title": title, "pictures": picture is not None})
    add_judging(app, store, whole)
    add_files(app, store, picture, root)
    app.mount("/static", StaticFiles(directory=STATIC))
    return app


def add_looking(app: FastAPI, store: Store, whole: Whole, about: dict) -> None:
    """What there is to judge."""
    findings = store.findings
    there = {part: sorted(label for own, label in findings.members if own == part) for part in SPLITS}
    about |= {
        "classes": {part: names for part, names in there.items() if names},
        "among": {
            "sample": [part for part in SPLITS if there[part]],
            "pair": list(dict.fromkeys(pair.type for pair in findings.pair.values())),
        },
        "start": secrets.token_hex(4),  # a browser keeps pictures by address: after a new start they have another
    }

    @app.get("/api/about")
    def tell() -> dict:
        return about

    @app.get("/api/queue")
    def queue(reviewer: str, asked: Annotated[Asked, Depends()]) -> JSONResponse:
        """Items to judge, the worst first, and how many of this kind the reviewer has judged."""
        found, done = whole[asked.kind], store.judged(reviewer, asked.kind)
        if asked.show == "open":
            found = (item for item in found if item not in done)
        elif asked.show == "disputed":
            found = (item for item, one in settle(store.standing()).items() if one.verdict == "disputed")
            found = (item for item in found if kind_of(findings, item) == asked.kind)
        found = [item for item in found if fits(findings, item, asked)]
        return JSONResponse({"items": found, **progress(done, whole[asked.kind])})  # as it is: there may be very many

    @app.get("/api/item/{item}")
    def item(item: str, reviewer: str) -> dict:
        """An item; once the reviewer has judged it and others see it differently, also what they say."""
        kind_of(findings, item)
        said = store.standing(item=item)
        own = next((d for d in said if d.reviewer == tidy(reviewer)), None)
        disputed = own is not None and any(s.verdict == "disputed" for s in settle(said).values())
        others = [d._asdict() for d in said if disputed and d is not own]
        return {**shown(findings, item), "item": item, "decision": own and own._asdict(), "others": others}


def add_judging(app: FastAPI, store: Store, whole: Whole) -> None:
    """Decisions."""

    @app.post("/api/decide")
    def decide(said: Said) -> dict:
        made = store.decide(said.reviewer, said.item, said.verdict, said.label, said.note)
        done = store.judged(made.reviewer, made.kind)
        return {"decision": made._asdict(), **progress(done, whole[made.kind])}

    @app.post("/api/undo")
    def undo(reviewer: str) -> dict:
        taken = store.undo(reviewer)
        return {"undone": taken and taken._asdict()}

    @app.get("/api/reviewers")
    def reviewers() -> dict:
        names = ("kind", "one", "other", "both", "kappa")
        made = store.standing()
        agreed = [(*a[:4], None if math.isnan(a[4]) else a[4]) for a in agreement(made)]
        disputed = sum(settled.verdict == "disputed" for settled in settle(made).values())
        return {
            "decided": Counter(d.reviewer for d in made),
            "agreement": [dict(zip(names, a, strict=True)) for a in agreed],
            "disputed": disputed,
        }


def add_files(app: FastAPI, store: Store, picture: Picture | None, root: str) -> None:
    """Pictures and tables."""
    findings = store.findings

    @app.get("/picture/{row}")
    def image(row: int, large: bool = False) -> Response:
        if picture is None or row not in findings.sample:
            return PlainTextResponse(f"review: there is no picture of row {row}", 404)
        try:
            made, out = picture(row), io.BytesIO()
        except LikewiseError as error:  # the page draws something in its place, and says why
            return PlainTextResponse(str(error), 404)
        made.thumbnail((SIDE[large],) * 2)
        made.convert("RGB").save(out, "JPEG", quality=90)
        return Response(out.getvalue(), media_type="image/jpeg", headers={"Cache-Control": "private, max-age=3600"})

    @app.get("/export/{name}.csv")
    def export(name: Literal["corrected", "changes", "decisions"]) -> Response:
        made = store.standing()
        write = {"corrected": lambda: corrected(findings, made, root), "changes": lambda: changes(findings, made)}
        text = as_csv(write[name]() if name in write else [Decision._fields, *made])
        return Response(
            text, media_type="text/csv", headers={"Content-Disposition": f'attachment; filename="{name}.csv"'}
        )


def guard(app: FastAPI, token: str) -> None:
    """Let in only who may: by token, or else by the name this machine has for itself. Other sites cannot post."""

    @app.middleware("http")
    async def check(request: Request, go_on: Callable) -> Response:
        host, origin = request.headers.get("host", ""), request.headers.get("origin")
        if token:
            given = request.query_params.get("token")
            if given is not None and matches(given, token):
                answer = RedirectResponse(request.url.path, 303)
                answer.set_cookie("token", token, httponly=True, samesite="strict")
                return answer
            welcome = matches(request.cookies.get("token", ""), token)
        else:
            welcome = urlsplit(f"//{host}").hostname in HERE
        if not welcome or (origin is not None and urlsplit(origin).netloc != host):
            told = (
                "open the address that `likewise review` printed, with its token" if token else "use http://127.0.0.1"
            )
            return PlainTextResponse(f"review: this page is not open to everybody; {told}", 403)
        answer = await go_on(request)
        answer.headers.update(HEADERS)
        answer.headers.setdefault("Cache-Control", "no-cache")
        return answer


def matches(given: str, token: str) -> bool:
    return secrets.compare_digest(given.encode(), token.encode())


def progress(done: set[str], whole: Collection[str]) -> dict[str, int]:
    return {"done": sum(item in whole for item in done), "whole": len(whole)}
