"""The search page: an image or a row in, its nearest rows out; rows can be added and removed if the index may change.

No text from the browser is opened as a path: rows are numbers, and an image is the body of its request. `core.http` reads the
body before the image takes one of MAX_WAITING_IMAGES places here; if all are taken, the response is 503. The format of an image
is read from its content, not from its name. Threads decode images, large ones one at a time; one thread runs the network.

Memory for uploads is bounded: `http.MAX_BODIES_IN_MEMORY` bodies of the largest size, one decoded image of MAX_IMAGE_PIXELS,
DECODER_THREADS decoded images of LARGE_IMAGE_PIXELS pixels, and MAX_WAITING_IMAGES network inputs.
"""

from __future__ import annotations

import asyncio
import base64
import io
import math
import queue
import secrets
import sys
import threading
import warnings
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float
from PIL import Image
from torch import Tensor

from likewise.core.devices import bytes_of
from likewise.core.errors import LikewiseError, printable
from likewise.core.files import atomic_write
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
from likewise.core.image_files import as_jpeg
from likewise.core.settings import Search
from likewise.data.images import check_shape, to_rgb, upright
from likewise.deploy.calibration.threshold_promises import describe_promise
from likewise.deploy.index.known_unknown import NO_DECISION, IndexCalibration, levels_of, warning_of
from likewise.deploy.index.open_index import path_of, row_image
from likewise.deploy.index.row_labels import MAX_FILTER_LETTERS, parse_filter
from likewise.deploy.index.stored_rows import Rows, describe_labels
from likewise.deploy.index.vector_index import Hit, Index, in_background

from fastapi import FastAPI, Query, Request, Response  # isort: skip - `core.http` raises if FastAPI is missing
from fastapi.responses import FileResponse  # isort: skip
from fastapi.staticfiles import StaticFiles  # isort: skip

STATIC_FOLDER = Path(__file__).parent / "static"
MAX_WAITING_IMAGES = 64
"""Maximum number of images that are processed or wait; further requests get status 503."""
LARGE_IMAGE_PIXELS = 4_000_000
"""Images with more pixels are decoded one at a time."""
DECODER_THREADS = 4
"""Number of smaller images that are decoded at a time."""
MAX_NEIGHBOURS = 100
"""Maximum number of neighbours in a response."""
IMAGE_SUFFIXES = {"JPEG": ".jpg", "PNG": ".png", "WEBP": ".webp", "BMP": ".bmp", "GIF": ".gif", "TIFF": ".tif"}
"""Accepted image format -> suffix of its files."""
START_ROWS = 12
"""Number of random rows on the start page."""
PREVIEW_SIDE = 480
"""Longest side in pixels of the preview of a query."""
MAX_IMAGE_PIXELS = 50_000_000
"""Maximum number of pixels of an image: a small file can contain a huge image. Decoding takes up to 28 bytes per pixel (WebP
with transparency; an RGB image takes 8), so at most 1.4 GB."""
PIXEL_LIMIT_TEXT = f"an image must have at most {MAX_IMAGE_PIXELS / 1e6:.0f} million pixels"
"""Start of the error for a larger image."""
IMAGE_SIGNATURES = (b"\xff\xd8\xff", b"\x89PNG", b"GIF8", b"BM", b"RIFF", b"II*\0", b"MM\0*")
"""First bytes of the accepted image formats."""
Embed = Callable[[list[Tensor]], Float[np.ndarray, "n D"]]
"""Inputs of the network -> their embeddings."""


class Refusal(Exception):
    """A request that is refused with a status and a sentence."""

    def __init__(self, status: int, message: str):
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class SearchContext:
    """Index, network and functions that the page uses.

    `see` returns the input of the network for a decoded image, `embed` runs the network. Without a network, only rows can be
    queries.
    """

    index: Index
    title: str
    upload: int  # bytes
    picture: Callable[[int], Image.Image]  # by position in the index
    see: Callable[[Image.Image], Tensor] | None = None
    embed: Embed | None = None
    changes: bool = False  # rows may be added and removed
    calibrated: IndexCalibration | None = None
    scope: str = ""  # what is searched, in words
    path: Callable[[int], str] = lambda place: ""  # whole path of an image, where the page may show it


def check_serving(config: Search) -> tuple[int, str]:
    """Return the maximum upload in bytes and the token; raise before any work if one of them is not valid."""
    try:
        upload = bytes_of(config.max_upload)
    except LikewiseError:
        raise LikewiseError(
            f"search: --max-upload must be an amount such as '20MB', got '{config.max_upload}'"
        ) from None
    return upload, choose_token("search", config.token_file)


def serve(
    config: Search,
    calibrated: IndexCalibration,
    upload: int,
    token: str,
    scope: str,
    facts: Callable[[], list[str]],
    say=print,
) -> None:
    """Serve the page for an index until Ctrl-C, or until the index is found to be damaged, which raises.

    Args:
        scope: what is searched, in words.
        facts: returns lines about the index for `say`, which gets the address first.
    """
    index, network = calibrated.index, calibrated.network
    if network is not None and network.run.about["features"] is None:
        _ = network.opened.network  # opened now: the first client does not wait, and errors appear here
    else:
        network = None
    desk = SearchContext(
        index=index, title=Path(config.target).resolve().name, upload=upload,
        picture=lambda place: row_image(index, place), see=network and network.see, embed=network and network.embed,
        changes=index.folder is not None and config.host in LOOPBACK_HOSTS, calibrated=calibrated,
        scope=scope, path=(lambda place: path_of(index, place)) if config.host in LOOPBACK_HOSTS else lambda place: "",
    )  # fmt: skip
    app, started = make_app(desk, token), []

    def check() -> None:
        """Check what the page has opened, in the background, and say facts; end the server if something is damaged."""
        try:
            calibrated.current()
            index.wait_for_checks()
            for line in facts():
                say(printable(line))
            sys.stdout.flush()  # for a program that reads the lines from a pipe
        except BaseException:
            app.state.stop()
            raise

    with suppress(KeyboardInterrupt), page_opener(config.browser) as opener:  # an interrupt is the normal end

        def open_page(address: str) -> None:
            started.append(in_background(check))
            if opener is not None:
                opener(address)

        run_app(app, "search", config.host, config.port, token, say, open_page)
    if started and started[0].done():
        started[0].result()


def make_app(context: SearchContext, token: str) -> FastAPI:
    """Return the app of the page for an index; requests must carry the token."""
    app = new_app("search", token, context.upload)

    @app.exception_handler(Refusal)
    def refuse(request: Request, error: Refusal) -> JSONResponse:
        wait = {"Retry-After": "1"} if error.status == 503 else None
        return JSONResponse({"error": str(error)}, error.status, headers=wait)

    @app.get("/")
    def page() -> FileResponse:
        return FileResponse(STATIC_FOLDER / "index.html")

    add_index_routes(app, context)
    uploads = ImageUploads(context) if context.embed is not None else None
    add_search_routes(app, context, uploads)
    add_change_routes(app, context, uploads)
    app.mount("/static", StaticFiles(directory=STATIC_FOLDER))
    return app


class ImageUploads:
    """Converts uploaded images to embeddings. At most MAX_WAITING_IMAGES wait at a time; `room` refuses further ones."""

    def __init__(self, context: SearchContext):
        assert context.embed is not None
        self.context, self.batching = context, MicroBatcher(context.embed)
        # threads, because Pillow releases the interpreter lock
        self.small, self.large = ThreadPoolExecutor(DECODER_THREADS, "decode"), ThreadPoolExecutor(1, "decode-large")
        self.here = 0

    @asynccontextmanager
    async def room(self) -> AsyncIterator[None]:
        """Hold one of the places for waiting images; raise if all are taken."""
        if self.here >= MAX_WAITING_IMAGES:
            raise Refusal(503, f"search: {MAX_WAITING_IMAGES} images are waiting already; try again in a second")
        self.here += 1
        try:
            yield
        finally:
            self.here -= 1

    async def see(self, body: bytes, preview: bool = False) -> tuple[str, str | None, Tensor]:
        """Return the format of an image, a small preview if wanted, and the input of the network.

        The image itself is freed before the input waits for the network.
        """
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(self.small, self.look, body, preview, LARGE_IMAGE_PIXELS)
        found = found or await loop.run_in_executor(self.large, self.look, body, preview, math.inf)
        assert found is not None  # there is no limit
        return found

    async def embed(self, x: Tensor) -> Float[np.ndarray, "D"]:
        """Return the embedding of a network input."""
        return await asyncio.wrap_future(self.batching.submit(x))

    async def read(self, request: Request) -> bytes:
        """Return the body of a request; raise if it is empty."""
        body = await request.body()
        if not body:
            raise Refusal(400, "search: the request must have an image as its body, or ?row=, got neither; send one")
        return body

    def look(self, body: bytes, preview: bool, most: float) -> tuple[str, str | None, Tensor] | None:
        """Decode an image; return its format, a preview if wanted, and the input of the network; None: it has more pixels."""
        opened = open_image(body)
        if opened is None:
            raise Refusal(415, f"search: the file must be an image ({', '.join(IMAGE_SUFFIXES)}), got another format")
        if opened.width * opened.height > most:
            return None
        kind = "JPEG" if opened.format == "MPO" else str(opened.format)
        image = decode(opened)
        assert self.context.see is not None
        x = self.context.see(image)  # before the preview, which shrinks the image
        return kind, inline(image) if preview else None, x


class MicroBatcher:
    """Accepts inputs of the network, and returns a future of each embedding. The thread ends with the process."""

    def __init__(self, embed: Embed, most: int = 16):
        self.embed, self.most = embed, most
        self.waiting: queue.SimpleQueue[tuple[Tensor, Future]] = queue.SimpleQueue()
        threading.Thread(target=self._work, daemon=True).start()

    def submit(self, x: Tensor) -> Future:
        promise: Future = Future()
        self.waiting.put((x, promise))
        return promise

    def _work(self) -> None:
        while True:
            batch = [self.waiting.get()]
            while len(batch) < self.most and not self.waiting.empty():
                batch.append(self.waiting.get())
            batch = [one for one in batch if one[1].set_running_or_notify_cancel()]  # without cancelled requests
            if not batch:
                continue
            try:
                found = self.embed([x for x, _ in batch])
            except Exception as error:  # passed on to the waiting clients; the thread must continue
                for _, promise in batch:
                    promise.set_exception(error)
            else:
                for (_, promise), z in zip(batch, found, strict=True):
                    promise.set_result(z)


def open_image(body: bytes) -> Image.Image | None:
    """Return the image of a body, not decoded yet; None: another format."""
    if not body.startswith(IMAGE_SIGNATURES):
        return None
    with translating_errors(), warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # MAX_IMAGE_PIXELS is lower
        image = Image.open(io.BytesIO(body), formats=tuple(IMAGE_SUFFIXES))
        if image.width * image.height > MAX_IMAGE_PIXELS:
            raise LikewiseError(f"search: {PIXEL_LIMIT_TEXT}, got {image.width} x {image.height}; shrink it first")
        return check_shape(image, "search")


def decode(image: Image.Image) -> Image.Image:
    """Return an opened image upright and in RGB, and close it, which frees its own pixels."""
    with translating_errors():
        image.load()
        turned = upright(image)
        if turned is not image:
            image.close()
        return to_rgb(turned)


@contextmanager
def translating_errors() -> Iterator[None]:
    """Turn the many errors that Pillow raises for damaged files into one sentence."""
    try:
        yield
    except LikewiseError:
        raise
    except Image.DecompressionBombError:
        raise LikewiseError(f"search: {PIXEL_LIMIT_TEXT}, got many more; shrink it first") from None
    except Exception as error:
        reason = str(error).splitlines()[0].partition(" <")[0] if str(error) else type(error).__name__
        raise LikewiseError(f"search: the image is damaged or incomplete ({reason}); save or send it again") from None


def add_index_routes(app: FastAPI, context: SearchContext) -> None:
    """Add the routes that describe the index and return its images."""
    images = ImageCache()
    start = secrets.token_hex(4)  # part of image addresses: browsers cache images by address
    levels = LevelsCache(context)

    @app.get("/api/about")
    def about() -> JSONResponse:
        rows, index = context.index.rows, context.index
        known, here = index.about["graph"] or {}, np.flatnonzero(rows.here)
        some = np.random.default_rng().choice(here, min(START_ROWS, len(here)), replace=False)
        return JSONResponse({
            "title": context.title, "scope": context.scope, "rows": len(rows), "kind": index.kind, "recall": known.get("recall"),
            "classes": sorted(rows.class_name[label] for label in rows.used_classes.tolist()),
            "similarity": rows.similarity, "upload": context.upload, "pictures": bool(len(rows.text)),
            "network": context.embed is not None, "changes": context.changes, "start": start,
            "some": [describe(context, Hit(int(place), 1.0)) for place in some],
            "labels": None if rows.labels is None else used_labels(rows), **describe_calibration(context.calibrated),
        })  # fmt: skip

    @app.get("/api/levels")
    def similarity_levels() -> JSONResponse:
        return JSONResponse(levels.current())

    @app.get("/picture/{row}")
    async def image(row: int, large: bool = False) -> Response:
        try:
            place = int(context.index.rows.places([row])[0])
        except LikewiseError as error:
            return plain_text(str(error), 404)
        if not context.index.rows.path(place):
            return plain_text(f"search: row {row} has no image", 404)
        return await images.send(row, lambda: context.picture(place), large)


def add_search_routes(app: FastAPI, context: SearchContext, uploads: ImageUploads | None) -> None:
    """Add the route that searches the index."""

    @app.post("/api/search")
    async def search(
        request: Request,
        row: int | None = None,
        k: int = Query(12, ge=1, le=MAX_NEIGHBOURS),
        label: Text | None = Query(None, alias="class"),
        filter: Text = Query("", max_length=MAX_FILTER_LETTERS),
        preview: bool = False,
    ) -> JSONResponse:
        """Return the nearest rows of an image (the body) or of a row, and the decision: known or unknown.

        The decision compares with all rows, also where `class` or `filter` (such as `red & !striped`) limits the rows that are
        returned. `preview`: also return a small copy of the image for the page.
        """
        wanted = parse_filter(filter) if filter.strip() else None
        if row is not None:
            place = int(context.index.rows.places([row])[0])
            z, own, query = context.index.rows.vectors[place], place, describe(context, Hit(place, 1.0))
        elif uploads is None:
            raise Refusal(
                400, "search: this index has no network, so queries must be rows, got an image; add --model RUN"
            )
        else:
            body = await uploads.read(request)
            async with uploads.room():
                _, small, x = await uploads.see(body, preview)
                z, own, query = await uploads.embed(x), None, {"preview": small} if preview else {}

        def rank() -> dict:
            hits = context.index.find(z[None], k, but=[own], label=label or None, wanted=wanted)
            found = [describe(context, hit, own) for hit in hits[0]]
            count = Counter(one["class"] for one in found)
            votes = [{"class": name, "count": number} for name, number in count.most_common()]
            if label or wanted is not None:
                hits = context.index.find(z[None], 1, but=[own])
            decision = context.calibrated and context.calibrated.decide(hits[0])
            about = describe_calibration(context.calibrated)  # it may be newer than the page
            return {"query": query, **about, **(decision or NO_DECISION), "found": found, "votes": votes}

        return JSONResponse(await asyncio.to_thread(rank))


def add_change_routes(app: FastAPI, context: SearchContext, uploads: ImageUploads | None) -> None:
    """Add the routes that add and remove rows."""

    def must_change() -> None:
        if not context.changes:
            raise Refusal(
                403,
                "search: rows can change only if the index was saved (--save) and only this machine has access "
                "(--host 127.0.0.1)",
            )

    @app.post("/api/rows")
    async def add(request: Request, label: Text = Query(alias="class", min_length=1, max_length=200)) -> JSONResponse:
        """Add an image (the body) to the index with a class."""
        must_change()
        if uploads is None:
            raise Refusal(400, "search: this index has no network, so it cannot embed an image; add --model RUN")
        body = await uploads.read(request)
        async with uploads.room():
            kind, _, x = await uploads.see(body)
            z = await uploads.embed(x)
            row = await asyncio.to_thread(keep, context.index, body, IMAGE_SUFFIXES[kind], z, " ".join(label.split()))
        return JSONResponse({"row": row, "rows": len(context.index.rows)})

    @app.delete("/api/rows/{row}")
    def remove(row: int) -> JSONResponse:
        must_change()
        try:
            context.index.rows.places([row])
        except LikewiseError as error:
            raise Refusal(404, str(error)) from None
        context.index.remove([row])
        return JSONResponse({"row": row, "rows": len(context.index.rows)})


def keep(index: Index, body: bytes, suffix: str, z: Float[np.ndarray, "D"], label: str) -> int:
    """Write an image beside the index, add its row, and return the row number."""
    if not label:
        raise LikewiseError("search: a new row must have a class, got an empty name")
    assert index.folder is not None  # rows are added to saved indexes only
    folder = index.folder / "pictures"
    folder.mkdir(exist_ok=True)
    file = folder / f"{secrets.token_hex(8)}{suffix}"
    with atomic_write(file) as aside:
        aside.write_bytes(body)
    try:
        return int(index.add(z[None], [label], [f"pictures/{file.name}"])[0])
    except BaseException:
        file.unlink(missing_ok=True)
        raise


def describe_calibration(calibrated: IndexCalibration | None) -> dict:
    """Return whether queries get a decision, the threshold for these rows and its promise, or a hint how to get one."""
    calibration = calibrated and calibrated.current(exact=False)
    if calibrated is None or calibration is None:
        return {"calibrated": False, "hint": "" if calibrated is None else calibrated.hint}
    unknown = calibration.unknown
    hint = unknown.reason or warning_of(calibration)
    return {"calibrated": True, "threshold": unknown.value, "promise": describe_promise(unknown), "hint": hint}


def describe_levels(context: SearchContext) -> dict | None:
    """Return from which similarity on a result is read as the same class and as similar; None if unknown."""
    index, calibrated = context.index, context.calibrated
    levels = levels_of(
        index.rows, calibrated and calibrated.current(exact=False), index.about["made_by"].get("trained", ())
    )
    return levels and levels._asdict()


class LevelsCache:
    """The levels of an index, found again only when its rows or its calibration have changed: 2 s with a million rows."""

    def __init__(self, context: SearchContext):
        self.context, self.of, self.found, self.lock = context, None, None, threading.Lock()

    def current(self) -> dict | None:
        """Return the levels; see `describe_levels`."""
        index, calibrated = self.context.index, self.context.calibrated
        with self.lock:
            calibration = calibrated and calibrated.current(exact=False)
            state = (index.about.get("version"), len(index.rows.here), int(index.rows.here.sum()), calibration)
            if self.of != state:
                self.found, self.of = describe_levels(self.context), state
            return self.found


def used_labels(rows: Rows) -> list[str]:
    """Return the labels that a row has, sorted."""
    used = {number for one in rows.used_classes.tolist() for number in rows.label_numbers[one]}
    return [rows.label_names[number] for number in sorted(used)]


def describe(context: SearchContext, hit: Hit, query: int | None = None) -> dict:
    """Return row, similarity, class and file name of a result, and its path if the page may show it.

    If rows have several labels each, also the labels, and the relevance to the query if that is a row (its place).
    """
    rows = context.index.rows
    name = Path(rows.path(hit.place)).name
    row = int(rows.table["row"][hit.place])
    return {
        "row": row,
        "similarity": hit.similarity,
        "class": rows.label(hit.place),
        "name": name,
        "path": context.path(hit.place),
        **describe_labels(rows, hit.place, query),
    }


def inline(image: Image.Image) -> str:
    """Return an image as a data URI."""
    return "data:image/jpeg;base64," + base64.b64encode(as_jpeg(image, PREVIEW_SIDE)).decode()
