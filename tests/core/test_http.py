"""What served pages share: ports, who is let in, limits of bodies, headers, pictures, and the browser that opens them."""

import asyncio
import io
import json
import os
import socket
import stat
import threading
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

import pytest
from PIL import Image

from likewise.core import http as server
from likewise.core.http import has_display, open_page, page_opener

pytest.importorskip("fastapi", reason="a page needs FastAPI")
pytest.importorskip("httpx", reason="its test client needs httpx")

import httpx
from fastapi import Request
from fastapi.testclient import TestClient
from likewise.errors import LikewiseError

from likewise.core.http import SECURITY_HEADERS, as_jpeg, choose_token, new_app, send_image, take_port

KEY = 'open; "sesame" + 1'
BEARER = {"authorization": f"Bearer {KEY}"}


@pytest.fixture(autouse=True)
def syncs(monkeypatch):
    """No second is waited for a refusal, only noted."""
    noted, sleep = [], asyncio.sleep

    async def note(seconds):
        noted.append(seconds)
        await sleep(0)

    monkeypatch.setattr(server.asyncio, "sleep", note)
    return noted


def test_in_place_of_a_taken_port_the_next_free_one_is_bound():
    with take_port("shop", "127.0.0.1", 0) as held:
        port = held.getsockname()[1]
        with take_port("shop", "127.0.0.1", port) as other:
            assert port < other.getsockname()[1] < port + 50
    with pytest.raises(LikewiseError, match="cannot be served"):
        take_port("shop", "192.0.2.1", 8017)  # no address of this machine
    with socket.socket() as client, pytest.raises(OSError, match="refused"):
        client.connect(("127.0.0.1", port))


def make():
    app = new_app("shop", KEY, 1000)

    @app.get("/")
    def page():
        return {"open": True}

    @app.post("/buy")
    def buy():
        raise LikewiseError("shop: nothing is for sale")

    @app.post("/sell")
    def sell(price: float, thing: dict):
        return len(thing)

    @app.post("/echo")
    async def echo(request: Request):
        return (await request.body()).decode()

    @app.get("/broken")
    def broken():
        raise RuntimeError("a tyre is flat")

    return app


def visit(headers=BEARER, port=80):
    return TestClient(make(), f"http://127.0.0.1:{port}", raise_server_exceptions=False, headers=headers)


def test_the_token_opens_the_page_and_stays_in_a_cookie_of_its_port():
    browser = visit({}, 8123)
    entered = browser.get("/", params={"token": KEY})
    assert entered.status_code == 200 and 'content="0; url=/"' in entered.text and "open" not in entered.text
    cookie = entered.headers["set-cookie"]
    assert cookie.startswith("likewise-8123=") and "HttpOnly" in cookie and "SameSite=strict" in cookie
    assert KEY not in cookie and "sesame" not in cookie
    assert browser.get("/").json() == {"open": True} == browser.get("/").json()  # reloaded
    [(name, value)] = browser.cookies.items()
    assert visit({"cookie": f"{name}={value}"}, 8124).get("/").status_code == 403  # the page of another port
    assert visit({"cookie": f"likewise-8124={value}"}, 8124).get("/").status_code == 200


def test_without_the_token_nothing_is_answered_and_guesses_are_slow(syncs):
    guesses = [{}, {"authorization": "Bearer"}, {"authorization": f"Bearer {KEY}x"}, {"authorization": f"Basic {KEY}"},
               {"cookie": f"likewise-80={KEY}"}, {"cookie": "likewise-80="}]  # fmt: skip
    for count, headers in enumerate(guesses, 1):
        refused = visit(headers).get("/")
        assert refused.status_code == 403 and syncs == [1.0] * count
        assert (
            refused.text
            == "shop: a request must carry the token; open the address that `likewise shop` printed, with its token"
        )
    for address in ("/?token=wrong", "/?token=", f"/buy?token={KEY}"):
        assert visit({}).get(address).status_code == 403
    del syncs[:]
    assert visit().get("/").status_code == 200 and syncs == []  # those who know it never wait


def test_other_sites_and_broken_addresses_are_refused():
    for headers in ({"origin": "http://evil.example"}, {"origin": "null"}, {"host": "["}, {"origin": "http://["},
                    {"host": "a:b"}, {"origin": "http://127.0.0.1:81"}):  # fmt: skip
        assert visit().post("/buy", headers=headers).status_code == 403
        assert "set-cookie" not in visit({}).get("/", params={"token": KEY}, headers=headers).headers
    assert visit().post("/buy", headers={"origin": "http://127.0.0.1"}).status_code == 400
    assert visit().get("/", headers={"host": "lab.example:99"}).status_code == 200


def test_the_token_leads_to_no_other_site():
    for path in ("//evil.example/", "//evil.example", "/\\evil.example/"):
        told = answer_to("GET", path, f"token={KEY}", {})
        assert told["status"] == 403 and b"evil" not in told["body"] and "location" not in told["headers"]


def answer_to(method, path, query, headers):
    """Call the app as a server would, with a path that no client would send."""
    scope = {"type": "http", "http_version": "1.1", "method": method, "scheme": "http", "path": path,
             "raw_path": path.encode(), "query_string": query.encode(), "root_path": "",
             "headers": [(b"host", b"127.0.0.1"), *((k.encode(), v.encode()) for k, v in headers.items())],
             "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80)}  # fmt: skip
    told = {"body": b""}

    async def receive():
        return {"type": "http.request", "body": b""}

    async def send(message):
        if message["type"] == "http.response.start":
            told["status"] = message["status"]
            told["headers"] = {key.decode(): value.decode() for key, value in message["headers"]}
        else:
            told["body"] += message.get("body", b"")

    asyncio.run(make()(scope, receive, send))
    return told


def test_every_answer_has_the_security_headers():
    browser = visit()
    answers = [browser.get("/"), browser.get("/nowhere"), browser.post("/buy"), browser.put("/buy"),
               browser.get("/broken"), browser.post("/sell"), browser.post("/echo", content=b"x" * 2000),
               visit({}).get("/"), visit({}).get("/", params={"token": KEY})]  # fmt: skip
    assert [told.status_code for told in answers] == [200, 404, 400, 405, 500, 400, 413, 403, 200]
    for told in answers:
        assert {name: told.headers.get(name) for name in SECURITY_HEADERS} == SECURITY_HEADERS
    assert SECURITY_HEADERS["Cross-Origin-Resource-Policy"] == "same-origin"
    assert answers[0].headers["cache-control"] == "no-cache" and answers[-1].headers["cache-control"] == "no-store"


def test_errors_are_one_sentence_of_json():
    browser = visit()
    assert browser.post("/buy").json() == {"error": "shop: nothing is for sale"}
    assert browser.post("/sell?price=x", json={}).json()["error"].startswith("shop: price cannot be 'x': ")
    for body in (b"NaN", b"[1e999]", b'{"a": ', b"\xff", b"1" * 900):
        told = browser.post("/sell?price=1", content=body, headers={"content-type": "application/json"})
        assert told.status_code == 400 and json.loads(told.text)
    told = browser.post("/sell?price=1", json="long " * 100)
    assert len(told.json()["error"]) < 200
    assert browser.get("/broken").json()["error"].startswith("shop: the server failed (RuntimeError)")


def together(work):
    """Run some work with a client of an app, in one event loop."""

    async def run():
        client = httpx.AsyncClient(
            transport=httpx.ASGITransport(make()), base_url="http://127.0.0.1", headers=BEARER, timeout=600
        )
        async with client:
            return await work(client)

    return asyncio.run(run())


async def drip(*parts, then=None):
    for part in parts:
        yield part
    if then is not None:
        await then.wait()


def test_bodies_arrive_whole_or_are_refused(monkeypatch):
    async def work(client):
        assert (await client.post("/echo", content=drip(b"ab", b"", b"cd"))).json() == "abcd"
        assert (await client.post("/echo", content=drip(b"x" * 600, b"y" * 400))).json() == "x" * 600 + "y" * 400
        for long in (b"x" * 1001, drip(b"x" * 600, b"y" * 401)):
            told = await client.post("/echo", content=long)
            assert told.status_code == 413 and "a request must have at most 0.000954 MB" in told.json()["error"]
        monkeypatch.setattr(server, "BODY_SECONDS", 0.01)
        told = await client.post("/echo", content=drip(b"ab", then=asyncio.Event()))
        assert told.status_code == 408 and told.json()["error"].startswith("shop: the request was not complete after")

    together(work)


def test_bodies_together_are_bounded_and_a_stalled_one_takes_only_its_bytes(monkeypatch):
    monkeypatch.setattr(server, "MAX_BODIES_IN_MEMORY", 2)

    async def work(client):
        go_on = asyncio.Event()
        stalled = [asyncio.create_task(client.post("/echo", content=drip(b"x" * 15, then=go_on))) for _ in range(100)]
        await asyncio.sleep(0)
        while (late := await client.post("/echo", content=b"y" * 501)).status_code == 200:  # until all 100 have begun
            pass
        assert late.status_code == 503 and late.headers["retry-after"] == "1"
        assert (await client.post("/echo", content=b"y" * 500)).status_code == 200
        go_on.set()
        assert {told.json() for told in await asyncio.gather(*stalled)} == {"x" * 15}
        assert (await client.post("/echo", content=b"y" * 1000)).status_code == 200  # and all is free again

    together(work)


def test_a_request_that_is_cut_short_does_not_reach_the_app():
    reached = []

    async def work():
        guard = server.Guard(lambda *call: reached.append(call), "shop", KEY, 1000)
        come = iter([{"type": "http.request", "body": b"half", "more_body": True}, {"type": "http.disconnect"}])

        async def receive():
            return next(come)

        async def send(message):
            pass

        headers = [(b"host", b"127.0.0.1"), (b"authorization", f"Bearer {KEY}".encode())]
        await guard(
            {"type": "http", "method": "POST", "path": "/", "query_string": b"", "headers": headers}, receive, send
        )
        return guard.held

    assert asyncio.run(work()) == 0 and reached == []


def test_a_token_is_taken_from_a_file_or_the_environment_or_made(monkeypatch, tmp_path):
    monkeypatch.delenv("LIKEWISE_TOKEN", raising=False)
    made = {choose_token("shop", None) for _ in range(3)}
    assert len(made) == 3 and all(len(token) == 32 for token in made)
    monkeypatch.setenv("LIKEWISE_TOKEN", "of the environment")
    assert choose_token("shop", None) == "of the environment"
    file = tmp_path / "key ü"
    file.write_text("a token of a file\n")
    file.chmod(0o640)
    assert choose_token("shop", str(file)) == "a token of a file"
    file.chmod(0o644)
    with pytest.raises(LikewiseError, match="--token-file must be closed to other accounts.*run chmod 600 '.*ü'"):
        choose_token("shop", str(file))
    for wrong in (tmp_path, tmp_path / "gone"):
        with pytest.raises(LikewiseError, match="shop: --token-file must be a text file, got .*; name another"):
            choose_token("shop", str(wrong))


def test_short_and_simple_tokens_are_refused(monkeypatch):
    for token, got in [("short", "got 5 characters"), ("a" * 40, "40 characters, 1 different"),
                       ("fifteen letters", "got 15"), ("двенадцать на дюжину", "not all printable ASCII")]:  # fmt: skip
        monkeypatch.setenv("LIKEWISE_TOKEN", token)
        with pytest.raises(LikewiseError, match=f"LIKEWISE_TOKEN must have at least 16.*{got}") as told:
            choose_token("shop", None)
        assert token not in str(told.value)


def test_two_pictures_of_rows_are_decoded_at_a_time():
    here, most, lock = [0], [0], threading.Lock()

    def draw():
        with lock:
            here[0] += 1
            most[0] = max(most[0], here[0])
        threading.Event().wait(0.01)
        with lock:
            here[0] -= 1
        return Image.new("L", (10, 20))

    crowd = [threading.Thread(target=send_image, args=(draw, False)) for _ in range(12)]
    [one.start() for one in crowd]
    [one.join() for one in crowd]
    assert most[0] <= 2


def test_pictures_are_made_small_or_missed_politely():
    assert Image.open(io.BytesIO(as_jpeg(Image.new("RGBA", (300, 100)), 150))).size == (150, 50)
    found = send_image(lambda: Image.new("L", (10, 20)), large=True)
    assert found.status_code == 200 and Image.open(io.BytesIO(found.body)).size == (10, 20)

    def gone():
        raise LikewiseError("7.png: there is no such file")

    missed = send_image(gone, large=False)
    assert missed.status_code == 404 and missed.body == b"7.png: there is no such file"


def test_responses_do_not_wait_for_an_acknowledgement():
    """Without TCP_NODELAY the second packet of a response waits some 40 ms for the client's acknowledgement of the first."""

    async def accept(listener):
        found = asyncio.get_running_loop().create_future()

        def look(reader, writer):
            found.set_result(writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        async with await asyncio.start_server(look, sock=listener):
            _, writer = await asyncio.open_connection(*listener.getsockname())
            writer.close()
            return await found

    with take_port("shop", "127.0.0.1", 0) as listener:
        assert listener.proto == socket.IPPROTO_TCP
        assert asyncio.run(accept(listener)) != 0


def test_images_stay_in_memory_up_to_a_number_of_bytes():
    drawn = []

    def draw(row):
        drawn.append(row)
        if row == 9:
            raise LikewiseError("9.png: there is no such file")
        return Image.new("L", (10, 20))

    async def send(cache, *rows, large=False):
        return [await cache.send(row, lambda row=row: draw(row), large) for row in rows]

    size = len(send_image(lambda: Image.new("L", (10, 20)), False).body)
    cache = server.ImageCache(2 * size)
    first = asyncio.run(send(cache, 1, 2, 1, 3, 1, 2))
    assert drawn == [1, 2, 3, 2] and {told.body for told in first} == {first[0].body} and cache.held == 2 * size
    assert {told.headers["cache-control"] for told in first} == {"private, max-age=3600"}
    assert [told.status_code for told in asyncio.run(send(cache, 9, 9))] == [404, 404] and drawn[-2:] == [9, 9]
    asyncio.run(send(cache, 2, 2, large=True))
    assert drawn[-2:] == [2, 2] and cache.held == 2 * size


ADDRESS = "http://127.0.0.1:8017/?token=a&b"


def test_the_browser_opens_a_private_file_that_leads_to_the_page(monkeypatch):
    opened, there = [], threading.Event()
    monkeypatch.setattr(server.webbrowser, "open", lambda address: (opened.append(address), there.set()))
    monkeypatch.setattr(server, "has_display", lambda: True)
    with page_opener(True) as opener:
        opener(ADDRESS)
        assert there.wait(60) and len(opened) == 1 and "token" not in opened[0]
        file = Path(url2pathname(urlsplit(opened[0]).path))
        assert "url=http://127.0.0.1:8017/?token=a&amp;b" in file.read_text()
        assert os.name != "posix" or stat.S_IMODE(file.stat().st_mode) == 0o600
    assert not file.exists()


@pytest.mark.parametrize(("wanted", "display"), [(False, True), (True, False)])
def test_no_browser_without_a_wish_or_a_display(monkeypatch, wanted, display):
    monkeypatch.setattr(server, "has_display", lambda: display)
    with page_opener(wanted) as opener:
        assert opener is None


def test_a_folder_that_cannot_be_written_opens_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(server, "show", lambda address: pytest.fail("nothing to show"))
    open_page(ADDRESS, tmp_path / "nowhere" / "open.html")


def test_without_a_browser_nothing_happens(monkeypatch):
    def fail(address):
        raise server.webbrowser.Error("could not locate runnable browser")

    monkeypatch.setattr(server.webbrowser, "open", fail)
    server.show("file:///tmp/a.html")


@pytest.mark.parametrize(
    ("platform", "names", "found"),
    [
        ("linux", {}, False),
        ("linux", {"DISPLAY": ":0"}, True),
        ("linux", {"WAYLAND_DISPLAY": "wayland-0"}, True),
        ("linux", {"BROWSER": "firefox"}, True),
        ("darwin", {}, True),
    ],
)
def test_displays(monkeypatch, platform, names, found):
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    for name, value in names.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(server.sys, "platform", platform)
    assert has_display() is found
