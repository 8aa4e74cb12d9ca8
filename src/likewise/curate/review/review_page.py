"""The review page: its server (items to review, images by row number, decisions in, tables out), and the serving of an audit.

No text from the browser is opened as a path: images are requested by row, and the caller's `load_image` loads them. Reviewers
work blind: the page shows each of them only their own decisions, until they have decided about an item and disagree.
"""

from __future__ import annotations

import asyncio
import json
import math
import secrets
import shlex
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from PIL import Image

from likewise.core.errors import LikewiseError
from likewise.core.http import (
    LOOPBACK_HOSTS,
    ImageCache,
    JSONResponse,
    Text,
    choose_token,
    new_app,
    page_opener,
    plain_text,
    run_app,
)
from likewise.core.notebook import table, view
from likewise.core.settings import Review
from likewise.curate.audit.read import UNSPLIT_NAME, Findings, data_name, find_audit, read_findings
from likewise.curate.review.consensus import (
    agreement,
    answers,
    as_csv,
    changes,
    corrected,
    corrected_features,
    escape_formulas,
    find_consensus,
    note_review,
    outcome,
    settle,
    write_corrected_features,
    write_corrected_table,
)
from likewise.curate.review.items import ItemFilter, Questioned, WorkerVotes, current_pairs, find_root, load_row_image
from likewise.curate.review.plan import Planner
from likewise.curate.review.store import Choice, Decision, Store, kind_of, system_user, tidy

from fastapi import BackgroundTasks, Depends, FastAPI, Response  # isort: skip - `core.http` raises if FastAPI is missing
from fastapi.concurrency import run_in_threadpool  # isort: skip
from fastapi.responses import FileResponse  # isort: skip
from fastapi.staticfiles import StaticFiles  # isort: skip

ImageLoader = Callable[[int], Image.Image]
STATIC_FOLDER = Path(__file__).parent / "static"
MAX_REQUEST_BYTES = 2**20
"""Maximum size of a request, in bytes: decisions about some 10,000 samples at once."""
MAX_MOVES_COUNT = 500
"""Maximum number of pairs of a given and a suggested class that the filter offers."""
MAX_TILES_COUNT = 20_000
"""Maximum number of questions whose tiles stay in memory, 0.4 kB each."""
SPLIT_NAMES = ("train", "val", "test", UNSPLIT_NAME)
"""Splits in the order of the page."""


@dataclass(frozen=True)
class Served:
    """What the page shows and does, apart from the findings and decisions in its store."""

    load_image: ImageLoader | None = None
    """Returns the image of a row; None: there are no images, and the page shows row numbers and names."""
    root: str = ""
    """Folder that relative image paths start from; if given, the corrected table has whole paths."""
    title: str = ""
    """Name of the audited data."""
    table: Path = Path("corrected.csv")
    """The corrected table that `finish` writes."""
    finish: Callable[[], Path | None] = lambda: None
    """Writes the corrected table, and returns its path or None if nothing was decided."""
    user: str = ""
    """Name of a reviewer who has not given one; empty: the page requests one."""
    folder: Path | None = None
    """Folder of the audit, with its forecast and votes; None: there are none."""
    to: str = ""
    """Folder that is written with the corrected labels when the page has ended; empty: none."""
    order: str = ""
    """Order of the review that the page begins with; empty: that of the forecast."""
    stop_below: float | None = None
    """The page suggests to stop if the next decisions are expected to gain fewer points of MAP@R; None: never."""


@dataclass(frozen=True)
class ChoiceRequest:
    """A choice as the page sends it."""

    item: Text
    choice: Text
    label: Text = ""


@dataclass(frozen=True)
class DecisionRequest:
    """Decisions as the page sends them: all of them are stored, or none."""

    reviewer: Text
    choices: list[ChoiceRequest]
    note: Text = ""
    new_class: bool = False


def make_app(store: Store, token: str, served: Served | None = None) -> FastAPI:
    """Return the app of the review page, where people decide on the findings of an audit; `store` holds the decisions.

    Args:
        token: the token that requests must carry.
    """
    app, served = new_app("review", token, MAX_REQUEST_BYTES), served or Served()

    @app.get("/")
    def page() -> FileResponse:
        return FileResponse(STATIC_FOLDER / "index.html")

    questions = Questioned(store.findings)
    votes = WorkerVotes(served.folder)
    add_item_routes(app, store, questions, served, votes)
    add_decision_routes(app, store, questions, votes)
    add_result_routes(app, store, questions, served)
    add_file_routes(app, store, served)
    app.mount("/static", StaticFiles(directory=STATIC_FOLDER))
    return app


def describe(questions: Questioned, served: Served) -> dict:
    """Return what the page shows of the audit as a whole."""
    findings = questions.findings
    there = {part: sorted(label for own, label in findings.members if own == part) for part in SPLIT_NAMES}
    moves = suggested_moves(findings)
    several, kinds = findings.questions is not None, {}
    if findings.questions is not None:
        names = sorted({one["label"] for one in findings.about["labels"]})
        there = {part: names if found else [] for part, found in there.items()}
        moves, kinds = [], dict.fromkeys(one.kind for one in findings.questions.values() if one.state == "flagged")
    return {
        "title": served.title,
        "user": served.user,
        "pictures": served.load_image is not None,
        "classes": {part: names for part, names in there.items() if names},
        "among": {
            "label" if several else "sample": [part for part in SPLIT_NAMES if there[part]],
            "pair": list(dict.fromkeys(findings.pair[item].type for item in questions.pairs)),
        },
        "moves": [{"given": given, "suggested": other, "count": count} for (given, other), count in moves],
        "states": list(
            kinds if several else dict.fromkeys([*findings.suspects.states(), *findings.off_topic.states()])
        ),
        "several_labels": several,
        "flagged": len(questions.flagged),
        "others": len(questions.others),
        "start": secrets.token_hex(4),  # part of image addresses: browsers cache images by address
    }


def suggested_moves(findings: Findings) -> list[tuple[tuple[str, str], int]]:
    """Return the most frequent changes that the audit suggests, (given, suggested) and their number, at most MAX_MOVES_COUNT."""
    samples, place = findings.sample, findings.suspects.place
    place = place[~samples.suggested.find("")[place]]
    code = samples.label.code[place].astype(np.int64) * len(samples.suggested.names) + samples.suggested.code[place]
    pair, first, count = np.unique(code, return_index=True, return_counts=True)
    some = np.lexsort((first, -count))[:MAX_MOVES_COUNT]  # of equal numbers, the most suspect first
    given, suggested = (column.tolist() for column in np.divmod(pair[some], max(1, len(samples.suggested.names))))
    names = [(samples.label.names[a], samples.suggested.names[b]) for a, b in zip(given, suggested, strict=True)]
    return list(zip(names, count[some].tolist(), strict=True))


def add_item_routes(app: FastAPI, store: Store, questions: Questioned, served: Served, votes: WorkerVotes) -> None:
    """Add the routes that return the audit as a whole, the plan of the review, and its items."""
    about = describe(questions, served)
    planner = Planner(store, questions, served.folder)
    about |= {"order": planner.check_order(served.order), "stop_below": planner.check_stop(served.stop_below)}

    @app.get("/api/about")
    async def about_audit() -> JSONResponse:
        return JSONResponse(about | {"added": store.added_classes()})

    @app.get("/api/plan")
    async def plan(
        reviewer: Text,
        wanted: Annotated[ItemFilter, Depends(item_filter)],
        order: Text = "",
        least: float | None = None,
        since: int | None = None,
    ) -> Response:
        """Return the reviewer's plan; see `Planner.plan`."""
        return Response(await planner.plan(reviewer, order, least, since, wanted), media_type="application/json")

    @app.get("/api/item/{item:path}")
    async def item(item: Text, reviewer: Text) -> JSONResponse:
        return JSONResponse(show_item(store, questions, served.root, votes, item, reviewer))

    add_queue_route(app, store, questions, planner)


def add_queue_route(app: FastAPI, store: Store, questions: Questioned, planner: Planner) -> None:
    """Add the route that returns the items to review."""

    @lru_cache(maxsize=MAX_TILES_COUNT)
    def undecided_tile(item: str) -> str:
        """Return the tile of a question without decisions as JSON."""
        return json.dumps(questions.tile(item, {}))

    @app.get("/api/queue")
    async def queue(
        reviewer: Text,
        wanted: Annotated[ItemFilter, Depends(item_filter)],
        begin: int = 0,
        most: int = 0,
        order: Text = "",
    ) -> Response:
        """Return the items to review, and how many questions of this kind the reviewer has decided.

        `begin` is a place in the ranking, and at most `most` items from there on are returned (0: all); `next` is where the
        next request must begin (None: at the end). With an `order`, flagged items come in the order of the plan, and those that
        are decided after them; without, the worst come first.
        """
        if wanted.kind not in questions.kinds:
            names = ", ".join(questions.kinds)
            raise LikewiseError(
                f"review: the kind of an item of this audit must be one of {names}, got {wanted.kind!r}; reload the page"
            )
        decided = store.decided(reviewer)
        if wanted.show == "disputed":
            found = await run_in_threadpool(disputed_items, store, questions, wanted.kind)
        else:
            found = current_pairs(questions, decided) if wanted.kind == "pair" else questions.candidates(wanted)
        if order and wanted.flagged and wanted.kind != "pair" and wanted.show != "disputed":
            first, may = await planner.open_items(reviewer, order), set(found) if wanted.is_limit else None
            found = list(dict.fromkeys([*(first if may is None else filter(may.__contains__, first)), *found]))
        items, place, is_limit = [], max(begin, 0), wanted.is_limit
        while place < len(found) and not (most > 0 and len(items) >= most):
            item, place = found[place], place + 1
            if is_limit and not questions.matches(item, wanted):
                continue
            stored = questions.stored_items(item)
            own = sum(one in decided for one in stored)
            if wanted.show != "open" or own < len(stored):
                items.append(json.dumps(questions.tile(item, decided)) if own else undecided_tile(item))
        facts = {"next": place if place < len(found) else None, **questions.progress(wanted.kind, decided)}
        body = f'{{"items":[{",".join(items)}],{json.dumps(facts)[1:]}'  # tiles are JSON already
        return Response(body, media_type="application/json")


def show_item(store: Store, questions: Questioned, root: str, votes: WorkerVotes, item: str, reviewer: str) -> dict:
    """Return an item with its votes; if the reviewer has decided about it and others disagree, also their decisions."""
    findings = store.findings
    kind, rows = kind_of(findings, item), questions.rows(item)
    about_it = [d for one in questions.stored_items(item) for d in store.current_decisions(item=one)]
    own = {d.item: d for d in about_it if d.reviewer == tidy(reviewer)}
    disputed = bool(own) and any(s.choice == "disputed" for s in find_consensus(about_it).values())
    others = [d._asdict() for d in about_it if disputed and d.reviewer != tidy(reviewer)]
    item = str(rows[0]) if kind == "sample" else item
    found = questions.content(item, root)
    panels = [{**one, **votes.about(one["row"])} for one in found["panels"]]
    return {**questions.tile(item, own), **found, "panels": panels, "others": others}


def disputed_items(store: Store, questions: Questioned, kind: str) -> list[str]:
    """Return the questions of a kind about which reviewers disagree."""
    settled = settle(store.findings, store.current_decisions()).items()
    items = [item for item, one in settled if one.choice == "disputed" and kind_of(store.findings, item) == kind]
    return list(dict.fromkeys(questions.first.get(int(item), item) if kind == "sample" else item for item in items))


def item_filter(
    kind: Literal["sample", "pair", "label"] = "sample", label: Text = "", among: Text = "", suspicion: float = 0.0,
    show: Literal["open", "all", "disputed"] = "open", state: Text = "", given: Text = "", suggested: Text = "",
    flagged: bool = True,
) -> ItemFilter:  # fmt: skip
    """Return the filter of a request."""
    return ItemFilter(kind, label, among, suspicion, show, state, given, suggested, flagged)


def add_decision_routes(app: FastAPI, store: Store, questions: Questioned, votes: WorkerVotes) -> None:
    """Add the routes that store and undo decisions, and that compare reviewers."""

    def progress(reviewer: str, made: Iterable[Decision]) -> dict:
        """Return the progress in the kind of these decisions."""
        kind = next((d.kind for d in made), "sample")
        return {"kind": kind, **questions.progress(kind, store.decided_items(reviewer, kind))}

    async def is_stored(change: Future[list[Decision]]) -> list[Decision]:
        """Return the answer to a change of the store when it is on disk, even if the request is cancelled meanwhile."""
        return await asyncio.shield(asyncio.wrap_future(change))

    @app.post("/api/decide")
    async def decide(sent: DecisionRequest) -> JSONResponse:
        choices = [Choice(one.item, one.choice, one.label) for one in sent.choices]
        made = await is_stored(store.submit_decisions(sent.reviewer, choices, sent.note, sent.new_class))
        return JSONResponse({"decisions": [d._asdict() for d in made], **progress(sent.reviewer, made)})

    @app.post("/api/undo")
    async def undo(reviewer: Text) -> JSONResponse:
        taken = await is_stored(store.submit_undo(reviewer))
        return JSONResponse({"undone": [d._asdict() for d in taken], **progress(reviewer, taken)})

    @app.get("/api/reviewers")
    def reviewers() -> JSONResponse:
        names = ("kind", "one", "other", "both", "kappa")
        made = store.current_decisions()
        agreed = [(*a[:4], None if math.isnan(a[4]) else a[4]) for a in agreement(made)]
        disputed = sum(one.choice == "disputed" for one in settle(store.findings, made).values())
        agreements = [dict(zip(names, a, strict=True)) for a in agreed]
        decided = Counter(reviewer for reviewer, _ in answers(store.findings, made))
        return JSONResponse(
            {"decided": decided, "agreement": agreements, "disputed": disputed, "workers": votes.workers}
        )


def to_train(served: Served) -> Path:
    """Return the file to train on: on a CPU the corrected features, if the audit has some, else the corrected table."""
    features = None if served.folder is None else corrected_features(served.folder)
    if features is None:
        return served.table
    from likewise.core.devices import choose_device  # imports torch

    return features if choose_device(None).type == "cpu" else served.table


def add_result_routes(app: FastAPI, store: Store, questions: Questioned, served: Served) -> None:
    """Add the routes of the end: what the decisions come to, and the end of the server."""
    several = store.findings.questions is not None

    def describe_outcome(reviewer: str = "") -> dict:
        """Return the number of decisions of all reviewers, and of flagged questions that this reviewer has not answered."""
        table, trained = (shlex.quote(str(file)) for file in (served.table, to_train(served)))
        commands = [f"likewise train {trained}", f"likewise apply {table} --to NEW_FOLDER"] if served.load_image else []
        if several or served.to:  # a folder per class cannot hold several labels, and --to writes one in any case
            commands = commands[:1]
        found = outcome(store.findings, store.current_decisions())._asdict()
        kind = "label" if several else "sample"
        progress = questions.progress(kind, store.decided_items(reviewer, kind))
        open_count = progress["whole"] - progress["done"]
        return {**found, "open": open_count, "table": str(served.table), "to": served.to, "commands": commands}

    @app.get("/api/outcome")
    def result(reviewer: Text = "") -> JSONResponse:
        return JSONResponse(describe_outcome(reviewer))

    @app.post("/api/finish")
    def finish(after: BackgroundTasks) -> JSONResponse:
        """Write the corrected table, and end the server when the response is sent."""
        written = served.finish()
        after.add_task(app.state.stop)
        return JSONResponse({**describe_outcome(), "written": written is not None})


def add_file_routes(app: FastAPI, store: Store, served: Served) -> None:
    """Add the routes of images and exported tables."""
    findings, load_image, images = store.findings, served.load_image, ImageCache()

    @app.get("/picture/{row}")
    async def image(row: int, large: bool = False) -> Response:
        if load_image is None or row not in findings.sample:
            return plain_text(f"review: row {row} has no image", 404)
        return await images.send(row, partial(load_image, row), large)

    @app.get("/export/{name}.csv")
    def export(name: Literal["corrected", "changes", "decisions"]) -> Response:
        made = store.current_decisions()
        if name == "corrected":
            text = as_csv(corrected(findings, made, served.root))
        else:
            text = as_csv(escape_formulas(changes(findings, made) if name == "changes" else [Decision._fields, *made]))
        return Response(
            text.encode("utf-8", "surrogateescape"),
            media_type="text/csv",
            headers={"Content-Disposition": f'attachment; filename="{name}.csv"'},
        )


@dataclass(frozen=True)
class Reviewed:
    """The file of decisions, the number of decided questions and of reviewers, and the corrected table (None: no decisions)."""

    file: Path
    decisions: int
    reviewers: int
    corrected: Path | None = None
    features: Path | None = None
    """Features of the images with the corrected labels; None: no decisions, or an audit that computed no features."""

    def __str__(self) -> str:
        made = f"{count(self.decisions, 'decision')} of {count(self.reviewers, 'reviewer')} stored in {self.file}"
        if self.corrected is None:
            return made
        fast = f"\n{self.features}: the corrected features, to train a head fast" if self.features is not None else ""
        return f"{made}\n{self.corrected}: the corrected table{fast}"

    @view
    def _repr_html_(self) -> str:
        lines = [("decisions", self.decisions), ("reviewers", self.reviewers), ("file", self.file)]
        lines += [] if self.corrected is None else [("corrected table", self.corrected)]
        return table("review of an audit", (), lines)


def serve_review(config: Review, say=print, to: str = "") -> Reviewed:
    """Serve the review page until people finish it or Ctrl-C, and write corrected.csv. `say` gets the address.

    Args:
        to: folder that the caller writes afterwards, for the page to name.
    """
    token, folder = choose_token("review", config.token_file), find_audit(config.audit, "review")
    findings = read_findings(folder)
    root = find_root(findings, config.root)
    file = folder / "decisions.sqlite" if config.store is None else Path(config.store).expanduser()
    with closing(Store(file, findings)) as store:
        finish = partial(write_corrected_table, store, folder / "corrected.csv", root)
        picture = partial(load_row_image, findings, root) if findings.about["pictures"] else None
        served = Served(
            picture, root, data_name(findings), folder / "corrected.csv", finish,
            system_user() if config.host in LOOPBACK_HOSTS else "", folder, to, config.order or "", config.stop_below,
        )  # fmt: skip
        with suppress(KeyboardInterrupt), page_opener(config.browser) as opener:  # an interrupt is the other normal end
            run_app(make_app(store, token, served), "review", config.host, config.port, token, say, opener)
        made = store.current_decisions()
        reviewers = len({decision.reviewer for decision in made})
        table, features = finish(), write_corrected_features(store, folder)
        note_review(findings, made, folder)
        return Reviewed(file, len(answers(findings, made)), reviewers, table, features)


def count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"
