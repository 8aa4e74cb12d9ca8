"""The review page's server: items to judge, pictures by row number, decisions in, tables out.

Nothing the browser sends is ever opened as a path: pictures are asked for by row, and the caller's `picture` finds it.
Reviewers judge blind: the page shows each of them only their own decisions.
"""

from __future__ import annotations

import csv
import errno
import io
import itertools
import math
import operator
import os
import secrets
import socket
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import quote, urlsplit

from PIL import Image

from likewise.errors import LikewiseError
from likewise.review.store import VERDICTS, Decision, Findings, Store

try:
    import uvicorn
    from fastapi import FastAPI, Request, Response
    from fastapi.responses import FileResponse, JSONResponse, PlainTextResponse, RedirectResponse
    from fastapi.staticfiles import StaticFiles
except ImportError as error:
    raise LikewiseError(
        f"review: the page needs FastAPI and uvicorn ({error}); pip install 'likewise[review]'"
    ) from None

Picture = Callable[[int], Image.Image]
Kind = Literal["sample", "pair"]
STATIC = Path(__file__).parent / "static"
HERE = ("127.0.0.1", "localhost", "::1")
SHOWN = 6  # exemplars of a class, and neighbours
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
    store: Store, picture: Picture | None = None, host: str = HERE[0], port: int = 8017, token: str = "", root: str = ""
) -> None:
    """Serve the page until interrupted. Arguments as for `make_app`; port 0 is any free one.

    A host that other machines can reach takes a token.
    """
    if host not in HERE and not token:
        raise LikewiseError(f"review: host={host!r} lets other machines in, which takes a token; set one, or {HERE[0]}")
    app, door = make_app(store, picture, token, root), take_port(host, port)
    with door:
        name, key = f"[{host}]" if ":" in host else host, f"?token={quote(token)}" if token else ""
        print(f"review: http://{name}:{door.getsockname()[1]}/{key} (Ctrl-C ends it)", flush=True)
        uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[door])


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


def make_app(store: Store, picture: Picture | None = None, token: str = "", root: str = "") -> FastAPI:
    """The page over a store.

    Args:
        picture: a row's image; None: there are no images, and the page shows row numbers and names.
        token: what a browser must know; empty: only browsers on this machine are let in.
        root: where relative paths start; the corrected table then names whole paths.
    """
    app, findings = FastAPI(docs_url=None, redoc_url=None, openapi_url=None), store.findings
    guard(app, token)

    @app.exception_handler(LikewiseError)
    def explain(request: Request, error: LikewiseError) -> JSONResponse:
        return JSONResponse({"error": str(error)}, 400)

    @app.get("/")
    def page() -> FileResponse:
        return FileResponse(STATIC / "index.html")

    @app.get("/api/classes")
    def classes() -> dict:
        return {"classes": sorted(findings.members), "pictures": picture is not None, "pairs": len(findings.pair)}

    add_judging(app, store)
    add_files(app, store, picture, root)
    app.mount("/static", StaticFiles(directory=STATIC))
    return app


def add_judging(app: FastAPI, store: Store) -> None:
    """Items out, decisions in."""
    findings = store.findings
    whole = {kind: set(listed(findings, kind, "", math.inf)) for kind in VERDICTS}

    def progress(kind: str, done: set[str]) -> dict[str, int]:
        return {"done": len(done & whole[kind]), "whole": len(whole[kind])}

    @app.get("/api/queue")
    def queue(
        kind: Kind, reviewer: str, label: str = "", most: float = 1.0, show: Literal["open", "all"] = "open"
    ) -> dict:
        """Items to judge, most suspect first: of one class (claimed or suggested) and up to a score, where asked."""
        done = {d.item for d in store.standing(reviewer) if d.kind == kind}
        found = [item for item in listed(findings, kind, label, most) if show == "all" or item not in done]
        return {"items": found, **progress(kind, done)}

    @app.get("/api/item/{item}")
    def item(item: str, reviewer: str) -> dict:
        if item not in findings.pair and not (item.isdecimal() and int(item) in findings.sample):
            raise LikewiseError(f"review: an item is a row or a pair of this audit, got {item!r}; reload the page")
        own = store.standing(reviewer, item)
        return {**shown(findings, item), "item": item, "decision": own[0]._asdict() if own else None}

    @app.post("/api/decide")
    def decide(said: Said) -> dict:
        made = store.decide(said.reviewer, said.item, said.verdict, said.label, said.note)
        done = {d.item for d in store.standing(made.reviewer) if d.kind == made.kind}
        return {"decision": made._asdict(), **progress(made.kind, done)}

    @app.post("/api/undo")
    def undo(reviewer: str) -> dict:
        taken = store.undo(reviewer)
        return {"undone": taken and taken._asdict()}

    @app.get("/api/reviewers")
    def reviewers() -> dict:
        names = ("kind", "one", "other", "both", "kappa")
        made, count = store.standing(), defaultdict(int)
        for d in made:
            count[d.reviewer] += 1
        agreed = [(*a[:4], None if math.isnan(a[4]) else a[4]) for a in agreement(made)]
        return {"decided": count, "agreement": [dict(zip(names, a, strict=True)) for a in agreed]}


def add_files(app: FastAPI, store: Store, picture: Picture | None, root: str) -> None:
    """Pictures and tables."""
    findings = store.findings

    @app.get("/picture/{row}")
    def image(row: int, large: bool = False) -> Response:
        if picture is None or row not in findings.sample:
            return PlainTextResponse(f"review: there is no picture of row {row}", 404)
        made, out = picture(row), io.BytesIO()
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
        return answer


def matches(given: str, token: str) -> bool:
    return secrets.compare_digest(given.encode(), token.encode())


def listed(findings: Findings, kind: Kind, label: str, most: float) -> list[str]:
    sample = findings.sample
    if kind == "pair":
        return [
            item for item, p in findings.pair.items() if label in ("", sample[p.query].label, sample[p.other].label)
        ]
    found = [s for s in sample.values() if s.suggested and s.score <= most and label in ("", s.label, s.suggested)]
    return [str(s.row) for s in sorted(found, key=lambda s: (s.score, s.row))]


def shown(findings: Findings, item: str) -> dict:
    """What the page shows of an item: one panel a picture, each with rows that look like its class should."""
    pair = findings.pair.get(item)
    rows = [pair.query, pair.other] if pair else [int(item)]
    panels = [
        {
            **{k: v for k, v in findings.sample[row]._asdict().items() if k != "carried"},
            "claimed": exemplars(findings, findings.sample[row].label, rows),
            "instead": exemplars(findings, findings.sample[row].suggested, rows),
            "near": [{"row": n, "label": findings.sample[n].label} for n in findings.near.get(row, [])[:SHOWN]],
        }
        for row in rows
    ]
    return {"panels": panels, "type": pair.type if pair else "", "distance": pair.distance if pair else None}


def exemplars(findings: Findings, label: str, but: list[int]) -> list[int]:
    return [row for row in findings.members.get(label, [])[: SHOWN + len(but)] if row not in but][:SHOWN]


def agreement(decisions: Iterable[Decision]) -> list[tuple[str, str, str, int, float]]:
    """Cohen's kappa for every kind and two reviewers: (kind, one, other, items of both, kappa); NaN where undefined.

    Formula: (p - q) / (1 - q), p the share of items judged alike, q the share expected of two who judge independently.
    """
    said = defaultdict(dict)
    for d in decisions:
        said[d.kind, d.reviewer][d.item] = (d.verdict, d.label)
    found = []
    for (kind, one), (same, other) in itertools.combinations(sorted(said), 2):
        both = sorted(said[kind, one].keys() & said[same, other].keys()) if kind == same else []
        if both:
            mine, theirs = ([said[kind, who][item] for item in both] for who in (one, other))
            p = sum(map(operator.eq, mine, theirs)) / len(both)
            count, again = Counter(mine), Counter(theirs)
            q = sum(count[v] * again[v] for v in count) / len(both) ** 2
            found.append((kind, one, other, len(both), (p - q) / (1 - q) if q < 1 else math.nan))
    return found


def settle(decisions: Iterable[Decision]) -> dict[int, tuple[str, str, list[Decision]]]:
    """What reviewers make of a sample together: verdict, label, and who said so.

    Unsure ones have no say. Where the others differ it is "disputed", and nothing changes until they agree.
    """
    said = defaultdict(list)
    for d in decisions:
        if d.kind == "sample" and d.verdict != "unsure":
            said[int(d.item)].append(d)
    found = {}
    for row, by in sorted(said.items()):
        views = {(d.verdict, d.label) for d in by}
        found[row] = (*(views.pop() if len(views) == 1 else ("disputed", "")), by)
    return found


def corrected(findings: Findings, decisions: Iterable[Decision], root: str = "") -> list[tuple]:
    """The data's table with the changes made: removed rows are gone, relabelled ones have their new label."""
    settled = settle(decisions)
    table = [("path", "label", *next(iter(findings.sample.values())).carried, "row")]
    for s in findings.sample.values():
        verdict, label, _ = settled.get(s.row, ("keep", "", []))
        if verdict != "remove":
            path = os.path.join(root, s.path) if s.path else ""
            table.append((path, label or s.label, *s.carried.values(), s.row))
    return table


def changes(findings: Findings, decisions: Iterable[Decision]) -> list[tuple]:
    """One line for every sample that is removed, relabelled or disputed."""
    table = [("row", "path", "label", "change", "new_label", "reviewers", "notes")]
    for row, (verdict, label, by) in settle(decisions).items():
        if verdict != "keep":
            s, who = findings.sample[row], "; ".join(f"{d.reviewer}: {d.verdict} {d.label}".strip() for d in by)
            table.append((row, s.path, s.label, verdict, label, who, "; ".join(d.note for d in by if d.note)))
    return table


def as_csv(table: Iterable[Iterable]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(table)
    return out.getvalue()
