"""What served pages share: ports, who is let in, pictures."""

import io
import socket

import pytest
from PIL import Image

pytest.importorskip("fastapi", reason="a page needs FastAPI")
pytest.importorskip("httpx", reason="its test client needs httpx")

from fastapi.testclient import TestClient

from likewise.errors import LikewiseError
from likewise.server import as_jpeg, check_host, new_app, send_picture, take_port


def test_a_taken_port_proposes_another():
    with take_port("shop", "127.0.0.1", 0) as held:
        port = held.getsockname()[1]
        with pytest.raises(LikewiseError, match=rf"port {port} of 127.0.0.1 is taken; choose another, (\d+) is free"):
            take_port("shop", "127.0.0.1", port)
    with pytest.raises(LikewiseError, match="cannot be served"):
        take_port("shop", "192.0.2.1", 8017)  # no address of this machine
    with socket.socket() as client, pytest.raises(OSError, match="refused"):
        client.connect(("127.0.0.1", port))


def visit(token=""):
    app = new_app("shop", token)

    @app.get("/")
    def page():
        return {"open": True}

    @app.post("/buy")
    def buy():
        raise LikewiseError("shop: nothing is for sale")

    return TestClient(app, base_url="http://127.0.0.1:80")


def test_only_this_machine_is_let_in_without_a_token():
    browser = visit()
    assert browser.get("/").json() == {"open": True}
    assert "default-src 'self'" in browser.get("/").headers["content-security-policy"]
    refused = browser.get("/", headers={"host": "evil.example"})
    assert refused.status_code == 403 and refused.text.startswith(
        "shop: this page is not open to everybody; use http://"
    )
    assert browser.post("/buy", headers={"origin": "http://evil.example"}).status_code == 403


def test_a_token_opens_the_page_and_stays_in_a_cookie():
    browser = visit('open; "sesame')
    assert "the address that `likewise shop` printed" in browser.get("/?token=wrong").text
    assert browser.get("/", params={"token": 'open; "sesame'}).json() == {"open": True}
    assert browser.get("/", headers={"host": "lab.example"}).status_code == 200


@pytest.mark.parametrize("token", ["", "sesame"])
def test_broken_addresses_are_refused(token):
    for headers in ({"host": "["}, {"origin": "http://["}):
        browser = visit(token)
        assert browser.get("/", params={"token": token}, headers=headers).status_code == 403


def test_errors_of_the_house_are_told_and_hosts_for_others_take_a_token():
    told = visit().post("/buy")
    assert told.status_code == 400 and told.json() == {"error": "shop: nothing is for sale"}
    check_host("shop", "127.0.0.1", "")
    check_host("shop", "0.0.0.0", "key")
    with pytest.raises(LikewiseError, match=r"shop: host='0\.0\.0\.0' lets other machines in, which takes a token"):
        check_host("shop", "0.0.0.0", "")
    for token in ("ключ", "sésame", "two\nlines"):
        with pytest.raises(LikewiseError, match="shop: the token must be plain ASCII letters, digits and signs, got"):
            check_host("shop", "127.0.0.1", token)


def test_pictures_are_made_small_or_missed_politely():
    assert Image.open(io.BytesIO(as_jpeg(Image.new("RGBA", (300, 100)), 150))).size == (150, 50)
    found = send_picture(lambda: Image.new("L", (10, 20)), large=True)
    assert found.status_code == 200 and Image.open(io.BytesIO(found.body)).size == (10, 20)

    def gone():
        raise LikewiseError("7.png: there is no such file")

    missed = send_picture(gone, large=False)
    assert missed.status_code == 404 and missed.body == b"7.png: there is no such file"
