"""Shared server code of the web pages: port, admission by token, limits, headers, texts, images, browser, end by Ctrl-C.

Every request must carry a token, also on the loopback interface, which all accounts of a machine can reach. A browser
gets a cookie when it opens the printed address, which contains the token; a program sends `Authorization: Bearer TOKEN`.

A file name or a class name may have bytes that are not UTF-8. Python holds such a byte as a lone surrogate ("\\udcff"): JSON
carries it as the escape \\udcff in both directions, and an address as %FF.
"""

from __future__ import annotations

import asyncio
import errno
import gc
import hashlib
import html
import io
import json
import os
import reprlib
import secrets
import socket
import stat
import sys
import tempfile
import threading
import webbrowser
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import parse_qsl, quote, unquote_to_bytes, urlsplit

from PIL import Image

from likewise.core.errors import LikewiseError, pip_install
from likewise.core.image_files import as_jpeg

try:
    import uvicorn
    from fastapi import FastAPI, Request, Response
    from fastapi.exceptions import RequestValidationError
    from fastapi.responses import HTMLResponse, PlainTextResponse
    from fastapi.responses import JSONResponse as PlainJSONResponse
    from fastapi.routing import APIRoute
    from pydantic import PlainValidator
    from starlette.datastructures import MutableHeaders, QueryParams
    from starlette.types import ASGIApp, Message, Receive, Scope, Send
except ImportError as error:
    raise LikewiseError(
        f"server: FastAPI and uvicorn must be installed ({error}); run {pip_install('likewise[serve]')}"
    ) from None

LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "::1")
"""Host names that only this machine can reach."""
TOKEN_VARIABLE = "LIKEWISE_TOKEN"
"""Environment variable that may contain the token."""
MIN_TOKEN_LENGTH, MIN_TOKEN_VARIETY = 16, 8
"""Minimum number of characters of a chosen token, and minimum number of different characters."""
REFUSAL_DELAY_SECONDS = 1.0
"""Delay of the response to a request without the token, which slows down guesses. The right token never waits."""
BODY_SECONDS = 60
"""Time in which the body of a request must arrive."""
MAX_BODIES_IN_MEMORY = 16
"""Limit of the memory for bodies of all requests together, in bodies of the largest size."""
IMAGE_SLOTS = threading.Semaphore(2)
"""Limits how many images of rows are decoded at a time."""
IMAGE_SIDES = {False: 224, True: 1024}
"""Whether an image is large -> its longest side in pixels."""
MAX_CACHED_IMAGE_BYTES = 64 * 2**20
"""Limit of the memory for small images that were decoded: about 6,000 at 224 pixels."""
SECURITY_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
"""Headers of every response."""
ENTRY_PAGE = (
    '<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,"><meta http-equiv="refresh" content="0; url=/">'
)
"""Response to the printed address, which redirects to the page. A 303 would fail after a click on another site, such
as a chat: the browser then follows it without the cookie, which is SameSite=Strict."""


def choose_token(owner: str, file: str | None) -> str:
    """Return the token that requests must carry: from a file, from the environment variable, or a new random one.

    There is no setting for the token itself, because other accounts of the machine can read command lines.
    """
    if file is not None:
        source, token = f"the token in '{file}'", read_token(owner, Path(file).expanduser())
    elif os.environ.get(TOKEN_VARIABLE):
        source, token = f"the token in {TOKEN_VARIABLE}", os.environ[TOKEN_VARIABLE].strip()
    else:
        return secrets.token_urlsafe(24)
    plain, length, variety = token.isascii() and token.isprintable(), len(token), len(set(token))
    if not plain or length < MIN_TOKEN_LENGTH or variety < MIN_TOKEN_VARIETY:
        raise LikewiseError(
            f"{owner}: {source} must have at least {MIN_TOKEN_LENGTH} printable ASCII characters, {MIN_TOKEN_VARIETY} of them "
            f"different, got {length} characters, {variety} different{'' if plain else ', not all printable ASCII'}; "
            "choose a longer one, or leave it out for a random one"
        )
    return token


def read_token(owner: str, file: Path) -> str:
    """Return the text of a token file, which other accounts must not be able to read."""
    try:
        with open(file, encoding="utf-8") as text:
            mode = os.fstat(text.fileno()).st_mode
            token = text.read(4096).strip()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise LikewiseError(
            f"{owner}: --token-file must be a text file, got '{file}' ({reason}); name another"
        ) from None
    if os.name == "posix" and mode & stat.S_IROTH:
        raise LikewiseError(
            f"{owner}: --token-file must be closed to other accounts, but they can read '{file}'; "
            f"run chmod 600 '{file}'"
        )
    return token


class JSONResponse(PlainJSONResponse):
    """A response in ASCII: other characters are escaped, also lone surrogates, which UTF-8 cannot hold."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode()


def plain_text(text: str, status: int) -> PlainTextResponse:
    """Return a response with a text; lone surrogates are escaped."""
    return PlainTextResponse(text.encode("utf-8", "backslashreplace"), status)


def check_text(value: object) -> str:
    """Return a text as it is, also with lone surrogates, which pydantic refuses."""
    if not isinstance(value, str):
        raise ValueError("it must be a text")
    return value


Text = Annotated[str, PlainValidator(check_text)]
"""Type of a text in a request."""


def read_address(self: APIRoute) -> Callable:
    """Return the handler of a route, which gets the bytes of an address that are not UTF-8 (%FF) as lone surrogates."""
    answer = APIRoute.get_route_handler(self)

    async def answer_request(request: Request) -> Response:
        address = request.scope["query_string"].decode("latin-1")
        pairs = parse_qsl(address, keep_blank_values=True, errors="surrogateescape")
        request._query_params = QueryParams(pairs)
        return await answer(request)

    return answer_request


class TextRoute(APIRoute):
    """A route whose parameters may have lone surrogates."""

    get_route_handler = read_address


def new_app(owner: str, token: str, largest: int) -> FastAPI:
    """Return an app without routes: guarded by the token, without documentation pages, with errors as one sentence of JSON.

    Args:
        token: the token that requests must carry.
        largest: maximum size of a request body, in bytes.
    """
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, default_response_class=JSONResponse)
    app.router.route_class = TextRoute
    app.add_middleware(Guard, owner=owner, token=token, largest=largest)

    @app.exception_handler(LikewiseError)
    def explain(request: Request, error: LikewiseError) -> JSONResponse:
        return JSONResponse({"error": str(error)}, 400)

    @app.exception_handler(RequestValidationError)
    def correct(request: Request, error: RequestValidationError) -> JSONResponse:
        wrong = error.errors()[0]
        name = wrong["loc"][-1] if isinstance(wrong["loc"][-1], str) else "the body"
        value = reprlib.repr(wrong.get("input"))  # as text, because JSON has no NaN
        return JSONResponse({"error": f"{owner}: {name} cannot be {value}: {wrong['msg']}"}, 400)

    @app.exception_handler(Exception)
    def fail(request: Request, error: Exception) -> JSONResponse:
        """Runs outside of the guard, so it adds the headers itself."""
        message = f"{owner}: the server failed ({type(error).__name__}); the terminal of the server shows the error"
        return JSONResponse({"error": message}, 500, SECURITY_HEADERS)

    return app


def run_app(
    app: FastAPI,
    owner: str,
    host: str,
    port: int,
    token: str,
    say: Callable[[str], None] = print,
    open_page: Callable[[str], None] | None = None,
) -> None:
    """Serve until interrupted, or until a route calls `app.state.stop()`.

    Args:
        port: 0 is any free port; the next free one is taken in place of one that is in use.
        say: gets a line with the address, which opens the page.
        open_page: gets the address when the port takes connections, to show the page in a browser.
    """
    with take_port(owner, host, port) as listener:
        if port and listener.getsockname()[1] != port:
            say(f"{owner}: port {port} is in use, so the page has the next free one")
        name = socket.gethostname() if host in ("0.0.0.0", "::") else f"[{host}]" if ":" in host else host
        key = quote(token, safe="")
        address = f"http://{name}:{listener.getsockname()[1]}/?token={key}"
        say(f"{owner}: {address} (Ctrl-C ends it)")
        sys.stdout.flush()  # for a program that reads the address from a pipe
        gc.collect()
        gc.freeze()  # a collection over the objects of the findings would stop all requests
        how = {"log_level": "warning", "lifespan": "off", "ws": "none", "timeout_graceful_shutdown": 2}
        server = uvicorn.Server(uvicorn.Config(app, **how))
        app.state.stop = partial(setattr, server, "should_exit", True)
        if open_page is not None:
            open_page(address)
        try:
            run_server(server, listener)
        finally:
            gc.unfreeze()  # objects that stay frozen until the end are printed as leaks by libraries such as triton


def run_server(server: uvicorn.Server, listener: socket.socket) -> None:
    """Run a server until it ends; in a thread of its own where an event loop runs already, as in a notebook."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return server.run(sockets=[listener])
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        thread.join()
    except KeyboardInterrupt:  # the cell was interrupted: the page ends, as by Ctrl-C in a terminal
        server.should_exit = True
        thread.join()


def take_port(owner: str, host: str, port: int) -> socket.socket:
    """Return a socket that is bound to the port, or to the next free one, so that no other program can take it."""
    for attempt in range(port, min(port + 50, 65536)):
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        # asyncio sets TCP_NODELAY only if the protocol is given; without it every response waits 40 ms
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, attempt))
            listener.listen(128)
        except OSError as error:
            listener.close()
            if error.errno != errno.EADDRINUSE:
                raise LikewiseError(
                    f"{owner}: {host}:{port} cannot be served ({error}); choose another host or port"
                ) from None
            continue
        return listener
    raise LikewiseError(f"{owner}: port {port} of {host} and the ports after it are in use; choose another one")


class Guard:
    """ASGI middleware: admits requests that carry the token, reads their bodies within limits, adds headers to responses.

    The body is read before the app gets the request, so a slow sender holds its own bytes and nothing else.
    """

    def __init__(self, app: ASGIApp, owner: str, token: str, largest: int):
        self.app, self.owner, self.token, self.largest = app, owner, token, largest
        self.cookie = hashlib.sha256(f"likewise {token}".encode()).hexdigest()  # the token itself stays out of browsers
        self.held = 0  # bytes of the bodies of all active requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self.app(scope, receive, send)
        if raw := scope.get("raw_path"):
            scope["path"] = unquote_to_bytes(raw).decode("utf-8", "surrogateescape")
        request, send = Request(scope), with_headers(send)
        port = own_port(request)
        if port is not None and scope["path"] == "/" and self.is_token(request.query_params.get("token", "")):
            answer = HTMLResponse(ENTRY_PAGE, headers={"Cache-Control": "no-store"})
            answer.set_cookie(f"likewise-{port}", self.cookie, httponly=True, samesite="strict")
            return await answer(scope, receive, send)
        if port is None or not self.admits(request, port):
            await asyncio.sleep(REFUSAL_DELAY_SECONDS)
            hint = f"open the address that `likewise {self.owner}` printed, with its token"
            return await PlainTextResponse(f"{self.owner}: a request must carry the token; {hint}", 403)(
                scope, receive, send
            )
        body = io.BytesIO()
        try:
            refusal = await self.read(request, receive, body)
            await (refusal or self.app)(scope, replay(body.getvalue(), receive), send)
        finally:
            self.held -= body.tell()

    def admits(self, request: Request, port: int) -> bool:
        """Whether a request carries the token or the cookie of its port; browsers send cookies to all ports."""
        given = request.headers.get("authorization", "").removeprefix("Bearer ")
        return self.is_token(given) or matches(request.cookies.get(f"likewise-{port}", ""), self.cookie)

    def is_token(self, given: str) -> bool:
        """Whether a text is the token."""
        return matches(given, self.token)

    async def read(self, request: Request, receive: Receive, body: io.BytesIO) -> Response | None:
        """Read the body of a request; return an error response if it is too large, slow or incomplete, or memory is full."""
        too_large = f"a request must have at most {self.largest / 2**20:.3g} MB, got more; send less at a time"
        length = request.headers.get("content-length", "")
        if length.isdecimal() and len(length) < 20 and int(length) > self.largest:
            return self.refuse(413, too_large)
        try:
            async with asyncio.timeout(BODY_SECONDS):
                more = True
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return self.refuse(400, "the request was incomplete; send it again")
                    chunk, more = message.get("body", b""), message.get("more_body", False)
                    if body.tell() + len(chunk) > self.largest:
                        return self.refuse(413, too_large)
                    if self.held + len(chunk) > MAX_BODIES_IN_MEMORY * self.largest:
                        return self.refuse(503, "the server receives too many requests; try again in a second")
                    self.held += body.write(chunk)
        except TimeoutError:
            return self.refuse(408, f"the request was not complete after {BODY_SECONDS:g} s; send it again")

    def refuse(self, status: int, message: str) -> JSONResponse:
        """Return an error response with one sentence."""
        wait = {"Retry-After": "1"} if status == 503 else None
        return JSONResponse({"error": f"{self.owner}: {message}"}, status, wait)


def with_headers(send: Send) -> Send:
    """Return a `send` that adds the security headers to a response."""

    async def send_with(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers.update(SECURITY_HEADERS)
            headers.setdefault("Cache-Control", "no-cache")
        await send(message)

    return send_with


def replay(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that returns a body that was read already, and then further messages."""
    waiting = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_again() -> Message:
        return waiting.pop() if waiting else await receive()

    return receive_again


def own_port(request: Request) -> int | None:
    """Return the port that the browser used for this server; None for a request of another site, or with a broken address."""
    host, origin = request.headers.get("host", ""), request.headers.get("origin")
    try:
        port = urlsplit(f"//{host}").port or 80
        return port if origin is None or urlsplit(origin).netloc == host else None
    except ValueError:
        return None


def matches(given: str, wanted: str) -> bool:
    """Return whether two texts are equal and not empty, in a time that does not depend on where they differ."""
    return bool(given) and secrets.compare_digest(given.encode("utf-8", "replace"), wanted.encode())


def send_image(make: Callable[[], Image.Image], large: bool) -> Response:
    """Return a response with an image, or with an error that the page shows in its place."""
    try:
        with IMAGE_SLOTS:
            body = as_jpeg(make(), IMAGE_SIDES[large])
    except LikewiseError as error:
        return plain_text(str(error), 404)
    return image_response(body)


def image_response(body: bytes) -> Response:
    return Response(body, media_type="image/jpeg", headers={"Cache-Control": "private, max-age=3600"})


class ImageCache:
    """Responses with images of rows. The small images that were requested last stay in memory, up to a number of bytes."""

    def __init__(self, most: int = MAX_CACHED_IMAGE_BYTES):
        self.most, self.held = most, 0
        self.threads = ThreadPoolExecutor(2, "image")  # no more: many would compete with the event loop
        self.bodies: OrderedDict[object, bytes] = OrderedDict()  # used in the event loop only

    async def send(self, key: object, make: Callable[[], Image.Image], large: bool) -> Response:
        """Return a response with an image.

        Args:
            key: what the image is of; the same key is always the same image.
        """
        if not large and key in self.bodies:
            self.bodies.move_to_end(key)
            return image_response(self.bodies[key])
        found = await asyncio.get_running_loop().run_in_executor(self.threads, send_image, make, large)
        if not large and found.status_code == 200 and key not in self.bodies:
            self.bodies[key] = bytes(found.body)
            self.held += len(found.body)
            while self.held > self.most:
                self.held -= len(self.bodies.popitem(last=False)[1])
        return found


REDIRECT_PAGE = '<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url={address}">'
"""Content of the file that the browser opens."""


def has_display() -> bool:
    """Return whether a browser window can appear: on a desktop, or with the program that the variable BROWSER names."""
    if os.environ.get("BROWSER") or sys.platform in ("darwin", "win32"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


@contextmanager
def page_opener(wanted: bool) -> Iterator[Callable[[str], None] | None]:
    """Yield a function that opens an address in the browser; None if that is not wanted, or without a display."""
    if not wanted or not has_display():
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="likewise-") as folder:
        yield partial(open_page, file=Path(folder, "open.html"))


def open_page(address: str, file: Path) -> None:
    """Open an address in the browser by a file that only this account can read.

    Other accounts of the machine can read command lines, so the address, which contains the token, is not on one. Without a
    browser, or if the file cannot be written, nothing happens: the address was printed.
    """
    try:
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as text:
            text.write(REDIRECT_PAGE.format(address=html.escape(address)))
    except OSError:
        return
    threading.Thread(target=show, args=(file.resolve().as_uri(),), daemon=True).start()  # a browser may block


def show(address: str) -> None:
    """Show an address in the browser; without a browser nothing happens."""
    with suppress(webbrowser.Error):
        webbrowser.open(address)
