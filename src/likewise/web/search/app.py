"""The search page's server: a picture or a row in, its nearest rows out; rows come and go where the index may change.

Nothing the browser sends is ever opened as a path: rows go by number, and a picture is the body of its request.
`server` reads the body before the picture takes one of MAX_WAITING_IMAGES places here; when all are taken, the answer is 503. The
format of a picture is read from its content, not from its name. Threads decode pictures, large ones one at a time; one
thread runs the network (`batching`).

Memory for uploads is bounded: `server.BODIES` bodies of the largest size, one decoded picture of the largest size that
`SearchContext.open` accepts, DECODER_THREADS decoded pictures of LARGE_IMAGE_PIXELS pixels, and MAX_WAITING_IMAGES inputs of the network.
"""

from __future__ import annotations

import asyncio
import base64
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float
from PIL import Image
from torch import Tensor

from likewise.errors import LikewiseError
from likewise.index.index import Hit, Index
from likewise.io.files import write_aside
from likewise.web.http import as_jpeg, new_app, send_image
from likewise.web.search.micro_batcher import Embed, MicroBatcher

from fastapi import FastAPI, Query, Request, Response  # isort: skip - `server` says what to install where it is missing
from fastapi.responses import FileResponse, JSONResponse, PlainTextResponse  # isort: skip
from fastapi.staticfiles import StaticFiles  # isort: skip

STATIC_FOLDER = Path(__file__).parent / "static"
MAX_WAITING_IMAGES = 64
"""ImageUploads that are worked on or wait at most; who comes then is asked to come again."""
LARGE_IMAGE_PIXELS = 4_000_000
"""Pixels above which pictures are decoded one at a time."""
DECODER_THREADS = 4
"""ImageUploads up to that size that are decoded at a time."""
MAX_NEIGHBOURS = 100
"""Neighbours to ask for, at most."""
IMAGE_SUFFIXES = {"JPEG": ".jpg", "PNG": ".png", "WEBP": ".webp", "BMP": ".bmp", "GIF": ".gif", "TIFF": ".tif"}
"""ImageUploads that are taken, and what their files are called."""
START_ROWS = 12  # rows to begin with, drawn at random
PREVIEW_SIDE = 480  # longest side of the query as the page shows it


class Refusal(Exception):
    """A request that is answered with a status and a sentence."""

    def __init__(self, status: int, words: str):
        super().__init__(words)
        self.status = status


@dataclass(frozen=True)
class SearchContext:
    """What the page works with, from those who know of data and networks.

    `open(body, formats)` returns the picture in some bytes, not decoded yet, None for another format, or raises a
    LikewiseError. `decode` returns its RGB pixels and closes it. `see` returns the input of the network for a decoded
    picture, `embed` runs the network. Without a network only rows can be asked for.
    """

    index: Index
    title: str
    upload: int  # bytes
    open: Callable[[bytes, tuple[str, ...]], Image.Image | None]
    decode: Callable[[Image.Image], Image.Image]
    picture: Callable[[int], Image.Image]  # of a place
    see: Callable[[Image.Image], Tensor] | None = None
    embed: Embed | None = None
    changes: bool = False  # rows may be added and removed


def make_app(desk: SearchContext, token: str) -> FastAPI:
    """Return the page over an index; requests must carry the token."""
    app = new_app("search", token, desk.upload)

    @app.exception_handler(Refusal)
    def refuse(request: Request, error: Refusal) -> JSONResponse:
        wait = {"Retry-After": "1"} if error.status == 503 else None
        return JSONResponse({"error": str(error)}, error.status, headers=wait)

    @app.get("/")
    def page() -> FileResponse:
        return FileResponse(STATIC_FOLDER / "index.html")

    add_index_routes(app, desk)
    pictures = ImageUploads(desk) if desk.embed is not None else None
    add_search_routes(app, desk, pictures)
    add_change_routes(app, desk, pictures)
    app.mount("/static", StaticFiles(directory=STATIC_FOLDER))
    return app


class ImageUploads:
    """From the body of a request to an embedding, a bounded number at a time."""

    def __init__(self, desk: SearchContext):
        assert desk.embed is not None
        self.desk, self.batching = desk, MicroBatcher(desk.embed)
        # threads, because Pillow releases the interpreter lock
        self.small, self.large = ThreadPoolExecutor(DECODER_THREADS, "decode"), ThreadPoolExecutor(1, "decode-large")
        self.here = 0

    @asynccontextmanager
    async def room(self) -> AsyncIterator[None]:
        if self.here >= MAX_WAITING_IMAGES:
            raise Refusal(503, f"search: {MAX_WAITING_IMAGES} pictures are waiting already; try again in a second")
        self.here += 1
        try:
            yield
        finally:
            self.here -= 1

    async def see(self, body: bytes, preview: bool = False) -> tuple[str, str | None, Tensor]:
        """Of a picture: its format, itself made small where that is wanted, and what the network sees. While they wait for the
        network, the picture itself is gone."""
        loop = asyncio.get_running_loop()
        image = await loop.run_in_executor(self.small, self.desk.open, body, tuple(IMAGE_SUFFIXES))
        if image is None:
            raise Refusal(415, f"search: a picture is wanted ({', '.join(IMAGE_SUFFIXES)}), and this is none of them")
        threads = self.large if image.width * image.height > LARGE_IMAGE_PIXELS else self.small
        kind = "JPEG" if image.format == "MPO" else str(image.format)
        del image  # while it waits: WebP allocates the pixels when it is opened
        return kind, *await loop.run_in_executor(threads, self.look, body, preview)

    async def embed(self, x: Tensor) -> Float[np.ndarray, "D"]:
        return await asyncio.wrap_future(self.batching.submit(x))

    async def read(self, request: Request) -> bytes:
        body = await request.body()
        if not body:
            raise Refusal(400, "search: a picture is wanted as the body of the request, or ?row=; got nothing")
        return body

    def look(self, body: bytes, preview: bool) -> tuple[str | None, Tensor]:
        opened = self.desk.open(body, tuple(IMAGE_SUFFIXES))
        assert opened is not None and self.desk.see is not None  # `see` opened it before
        image = self.desk.decode(opened)
        x = self.desk.see(image)
        return inline(image) if preview else None, x


def add_index_routes(app: FastAPI, desk: SearchContext) -> None:
    """What is in the index, and its pictures."""
    start = secrets.token_hex(4)  # a browser keeps pictures by address: after a new start they have another

    @app.get("/api/about")
    def about() -> dict:
        rows, index = desk.index.rows, desk.index
        used = np.unique(rows.table["label"][rows.here])
        known, here = index.about["graph"] or {}, np.flatnonzero(rows.here)
        some = np.random.default_rng().permutation(here)[:START_ROWS]
        return {
            "title": desk.title, "rows": len(rows), "classes": sorted(rows.class_name[label] for label in used),
            "kind": index.kind, "recall": known.get("recall"), "similarity": rows.similarity, "upload": desk.upload,
            "pictures": bool(len(rows.text)), "network": desk.embed is not None, "changes": desk.changes, "start": start,
            "some": [describe(index, Hit(int(place), 1.0)) for place in some],
        }  # fmt: skip

    @app.get("/picture/{row}")
    def image(row: int, large: bool = False) -> Response:
        try:
            place = int(desk.index.rows.places([row])[0])
        except LikewiseError as error:
            return PlainTextResponse(str(error), 404)
        if not desk.index.rows.path(place):
            return PlainTextResponse(f"search: there is no picture of row {row}", 404)
        return send_image(lambda: desk.picture(place), large)


def add_search_routes(app: FastAPI, desk: SearchContext, pictures: ImageUploads | None) -> None:
    @app.post("/api/search")
    async def search(
        request: Request,
        row: int | None = None,
        k: int = Query(12, ge=1, le=MAX_NEIGHBOURS),
        label: str | None = Query(None, alias="class"),
        preview: bool = False,
    ) -> dict:
        """The nearest rows of a picture (the body) or of a row. `preview`: the picture comes back, small, for the page."""
        if row is not None:
            place = int(desk.index.rows.places([row])[0])
            z, own, query = desk.index.rows.vectors[place], place, describe(desk.index, Hit(place, 1.0))
        elif pictures is None:
            raise Refusal(
                400, "search: this index came without a network, so it takes rows and no pictures; give --model RUN"
            )
        else:
            body = await pictures.read(request)
            async with pictures.room():
                _, small, x = await pictures.see(body, preview)
                z, own, query = await pictures.embed(x), None, {"preview": small} if preview else {}
        hits = await asyncio.to_thread(desk.index.find, z[None], k, but=[own], label=label or None)
        found = [describe(desk.index, hit) for hit in hits[0]]
        votes = Counter(one["class"] for one in found).most_common()
        return {"query": query, "found": found, "votes": [{"class": name, "count": count} for name, count in votes]}


def add_change_routes(app: FastAPI, desk: SearchContext, pictures: ImageUploads | None) -> None:
    def must_change() -> None:
        if not desk.changes:
            raise Refusal(
                403,
                "search: rows come and go only where the index was saved (--save) and only this machine is let in "
                "(--host 127.0.0.1)",
            )

    @app.post("/api/rows")
    async def add(request: Request, label: str = Query(alias="class", min_length=1, max_length=200)) -> dict:
        """Keep a picture (the body) in the index, under a class."""
        must_change()
        if pictures is None:
            raise Refusal(400, "search: this index came without a network, so it takes no pictures; give --model RUN")
        body = await pictures.read(request)
        async with pictures.room():
            kind, _, x = await pictures.see(body)
            z = await pictures.embed(x)
            row = await asyncio.to_thread(keep, desk.index, body, IMAGE_SUFFIXES[kind], z, " ".join(label.split()))
        return {"row": row, "rows": len(desk.index.rows)}

    @app.delete("/api/rows/{row}")
    def remove(row: int) -> dict:
        must_change()
        try:
            desk.index.rows.places([row])
        except LikewiseError as error:
            raise Refusal(404, str(error)) from None
        desk.index.remove([row])
        return {"row": row, "rows": len(desk.index.rows)}


def keep(index: Index, body: bytes, suffix: str, z: Float[np.ndarray, "D"], label: str) -> int:
    """Put a picture beside the index and its row into it."""
    if not label:
        raise LikewiseError("search: a new row must have a class, got an empty name")
    assert index.folder is not None  # rows are added to saved indexes alone
    folder = index.folder / "pictures"
    folder.mkdir(exist_ok=True)
    file = folder / f"{secrets.token_hex(8)}{suffix}"
    with write_aside(file) as aside:
        aside.write_bytes(body)
    try:
        return int(index.add(z[None], [label], [f"pictures/{file.name}"])[0])
    except BaseException:
        file.unlink(missing_ok=True)
        raise


def describe(index: Index, hit: Hit) -> dict:
    rows = index.rows
    path = Path(rows.path(hit.place))
    row = int(rows.table["row"][hit.place])
    return {"row": row, "similarity": hit.similarity, "class": rows.label(hit.place), "name": path.name}


def inline(image: Image.Image) -> str:
    return "data:image/jpeg;base64," + base64.b64encode(as_jpeg(image, PREVIEW_SIDE)).decode()
