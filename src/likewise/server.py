"""What the pages that a command serves share: a port, a guard at the door, headers, pictures, an end by Ctrl-C."""

from __future__ import annotations

import errno
import io
import secrets
import socket
from collections.abc import Callable
from urllib.parse import quote, urlsplit

from PIL import Image

from likewise.errors import LikewiseError

try:
    import uvicorn
    from fastapi import FastAPI, Request, Response
    from fastapi.responses import JSONResponse, PlainTextResponse, RedirectResponse
except ImportError as error:
    raise LikewiseError(
        f"server: the page needs FastAPI and uvicorn ({error}); pip install 'likewise[serve]'"
    ) from None

HERE = ("127.0.0.1", "localhost", "::1")
SIDE = {False: 224, True: 1024}  # longest side in pixels of a small and a large picture
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


def new_app(owner: str, token: str) -> FastAPI:
    """An app without routes yet: guarded, without pages of its own, and it says what is wrong with a request."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    guard(app, owner, token)

    @app.exception_handler(LikewiseError)
    def explain(request: Request, error: LikewiseError) -> JSONResponse:
        return JSONResponse({"error": str(error)}, 400)

    return app


def check_host(owner: str, host: str, token: str) -> None:
    """A host that other machines can reach takes a token, and a token is what a cookie can hold."""
    if not (token.isascii() and token.isprintable()):
        raise LikewiseError(f"{owner}: the token must be plain ASCII letters, digits and signs, got {token!r}")
    if host not in HERE and not token:
        raise LikewiseError(
            f"{owner}: host={host!r} lets other machines in, which takes a token; set one, or {HERE[0]}"
        )


def run_app(app: FastAPI, owner: str, host: str, port: int, token: str) -> None:
    """Serve until interrupted, and say where; port 0 is any free one."""
    check_host(owner, host, token)
    with take_port(owner, host, port) as door:
        name = socket.gethostname() if host in ("0.0.0.0", "::") else f"[{host}]" if ":" in host else host
        key = f"?token={quote(token)}" if token else ""
        print(f"{owner}: http://{name}:{door.getsockname()[1]}/{key} (Ctrl-C ends it)", flush=True)
        uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off", timeout_graceful_shutdown=2)).run(
            sockets=[door]
        )


def take_port(owner: str, host: str, port: int) -> socket.socket:
    """A bound socket, held from here on, so that nobody can take the port in between."""
    for attempt in range(port, min(port + 50, 65536)):
        door = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            door.bind((host, attempt))
            door.listen(128)
        except OSError as error:
            door.close()
            if error.errno != errno.EADDRINUSE:
                raise LikewiseError(
                    f"{owner}: {host}:{port} cannot be served ({error}); choose another host or port"
                ) from None
            continue
        if attempt == port:
            return door
        door.close()
        raise LikewiseError(f"{owner}: port {port} of {host} is taken; choose another, {attempt} is free")
    raise LikewiseError(f"{owner}: port {port} of {host} and those after it are taken; choose another")


def guard(app: FastAPI, owner: str, token: str) -> None:
    """Let in only who may: by token, or else by the name this machine has for itself. Other sites cannot post."""

    @app.middleware("http")
    async def check(request: Request, go_on: Callable) -> Response:
        here, same = addressed(request)
        if token and same:
            given = request.query_params.get("token")
            if given is not None and matches(given, token):
                answer = RedirectResponse(request.url.path, 303)
                answer.set_cookie("token", token, httponly=True, samesite="strict")
                return answer
            welcome = matches(request.cookies.get("token", ""), token)
        else:
            welcome = here and same
        if not welcome:
            told = (
                f"open the address that `likewise {owner}` printed, with its token" if token else "use http://127.0.0.1"
            )
            return PlainTextResponse(f"{owner}: this page is not open to everybody; {told}", 403)
        answer = await go_on(request)
        answer.headers.update(HEADERS)
        answer.headers.setdefault("Cache-Control", "no-cache")
        return answer


def addressed(request: Request) -> tuple[bool, bool]:
    """Whether a request goes to this machine by its own name, and comes from no other site. A broken address: neither."""
    host, origin = request.headers.get("host", ""), request.headers.get("origin")
    try:
        return urlsplit(f"//{host}").hostname in HERE, origin is None or urlsplit(origin).netloc == host
    except ValueError:
        return False, False


def matches(given: str, token: str) -> bool:
    return secrets.compare_digest(given.encode(), token.encode())


def as_jpeg(image: Image.Image, side: int) -> bytes:
    """A picture for the browser, no side of it longer than this."""
    out = io.BytesIO()
    image.thumbnail((side, side))
    image.convert("RGB").save(out, "JPEG", quality=90)
    return out.getvalue()


def send_picture(make: Callable[[], Image.Image], large: bool) -> Response:
    """A picture, or why there is none: the page draws something in its place."""
    try:
        body = as_jpeg(make(), SIDE[large])
    except LikewiseError as error:
        return PlainTextResponse(str(error), 404)
    return Response(body, media_type="image/jpeg", headers={"Cache-Control": "private, max-age=3600"})
