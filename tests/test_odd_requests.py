"""Odd requests to every route of the review and the search server: no status 5xx, and each refusal is one sentence."""

import io
import json
from urllib.parse import quote

import numpy as np
import pytest
import torch
from make_index import make_index
from PIL import Image

pytest.importorskip("fastapi", reason="the pages need FastAPI")
pytest.importorskip("httpx", reason="their test client needs httpx")

from fastapi.testclient import TestClient
from planned_audit import write_planned

from likewise.curate.audit.read import read_findings
from likewise.curate.review.review_page import Served, make_app
from likewise.curate.review.store import Store
from likewise.deploy.search.search_page import SearchContext
from likewise.deploy.search.search_page import make_app as make_search_app


def encode_png():
    out = io.BytesIO()
    Image.new("L", (4, 4)).save(out, "PNG")
    return out.getvalue()


KEY = "a token of 24 characters"
HEADERS = {"authorization": f"Bearer {KEY}"}
NUMBERS = ("-1", "9" * 400, f"-{'9' * 30}", "1e308", "NaN", "-inf", "1.5", "", "0x10", "%D9%A1", "null")
TEXTS = (
    "",
    "%20",
    "%00",
    "%FF",
    "%ED%B3%BF",
    "a" * 5000,
    "..%2F..%2Foutside",
    "9" * 400,
    "%E2%80%A8",
    "%3Cscript%3E",
    "0%3Ared",
)
PNG = encode_png()
LABELS = (
    "row,label,kind,chance,state\n0,red,missing,0.9,flagged\n1,dress,superfluous,0.8,flagged\n2,blue,missing,0.1,ok\n"
)


def review_requests():
    """Yield (method, address, body) for the review server."""
    for text in TEXTS:
        yield "GET", f"/api/item/{text}?reviewer=ann", None
        yield "GET", f"/api/item/100?reviewer={text}", None
        yield "GET", f"/api/plan?reviewer={text}&order={text}", None
        yield "GET", f"/api/outcome?reviewer={text}", None
        yield "POST", f"/api/undo?reviewer={text}", b""
        yield "GET", f"/export/{text}.csv", None
        yield "GET", f"/static/{text}", None
        yield "GET", f"/api/queue?reviewer=ann&kind={text}&show={text}", None
        for name in ("reviewer", "label", "among", "state", "given", "suggested", "order"):
            yield "GET", f"/api/queue?reviewer=ann&kind=sample&{name}={text}", None
    for number in NUMBERS:
        yield "GET", f"/picture/{number}?large={number}", None
        yield "GET", f"/api/plan?reviewer=ann&least={number}", None
        yield "GET", f"/api/plan?reviewer=ann&since={number}", None
        for name in ("begin", "most", "suspicion", "flagged"):
            yield "GET", f"/api/queue?reviewer=ann&kind=sample&{name}={number}", None
    for kind in ("sample", "pair", "label"):
        for more in ("", "&show=disputed", "&flagged=false", "&order=gain", "&order=votes&show=disputed", "&show=all"):
            yield "GET", f"/api/queue?reviewer=a&kind={kind}{more}", None
    for body in bodies():
        yield "POST", "/api/decide", body
    for method, path in (
        ("PUT", "/api/decide"),
        ("GET", "/api/undo"),
        ("GET", "/%FF"),
        ("GET", "/api/queue"),
        ("GET", "//"),
    ):
        yield method, path, None


def bodies():
    """Yield bodies of odd decisions."""
    yield from (
        b"",
        b"null",
        b"[]",
        b"{}",
        b"NaN",
        b'"',
        b"\xff",
        b"[" * 50_000,
        b'{"reviewer": "a"}',
        b'{"a":' * 50_000,
    )
    for odd in (None, 1, "", [], {}, "\udcff", "\ud800", "x" * 70_000, 10**400, True, "100\0", "-0", "1e2", "９"):
        good = {"item": "100", "choice": "keep", "label": ""}
        for name in good:
            yield json.dumps({"reviewer": "ann", "choices": [good | {name: odd}]}).encode()
        for name in ("reviewer", "choices", "note", "new_class"):
            yield json.dumps({"reviewer": "ann", "choices": [good], name: odd}).encode()
        relabel = {"item": "100", "choice": "relabel", "label": odd}
        yield json.dumps({"reviewer": "ann", "choices": [relabel], "new_class": True}).encode()
    yield json.dumps({"reviewer": "ann", "choices": [good] * 2}).encode()
    yield b'{"reviewer": "ann", "choices": [{"item": "100", "choice": "keep"}], "note": NaN}'


def search_requests():
    """Yield (method, address, body) for the search server."""
    for number in NUMBERS:
        yield "GET", f"/picture/{number}?large={number}", None
        yield "POST", f"/api/search?row={number}", b""
        yield "POST", f"/api/search?row=103&k={number}", b""
        yield "POST", f"/api/search?row=103&preview={number}", b""
        yield "DELETE", f"/api/rows/{number}", None
    for text in TEXTS:
        yield "POST", f"/api/search?row=103&class={text}", b""
        yield "POST", f"/api/search?row=103&filter={text}", b""
        yield "POST", f"/api/rows?class={text}", b"no image"
        yield "POST", f"/api/rows?class={text}", PNG
        yield "GET", f"/static/{text}", None
    for wrong in ("(", "!", "red %26", "a | | b", "(" * 400, "!" * 400, "%00 %26 %FF", ")("):
        yield "POST", f"/api/search?row=103&filter={quote(wrong, safe='%')}", b""
    for body in (
        b"",
        b"x" * 9_000,
        b"\x89PNG",
        b"\xff\xd8\xff",
        b"GIF8",
        b"BM" + b"\xff" * 60,
        b"RIFF" * 20,
        b"II*\0" * 9,
    ):
        yield "POST", "/api/search?preview=true", body
        yield "POST", "/api/rows?class=cup", body
    yield "POST", "/api/search?k=3&class=%FF", PNG
    yield "GET", "/api/about", None


def check_answers(app, requests):
    """Send all requests, and return their number; fail with those whose answer is no sentence."""
    browser, wrong, count = (
        TestClient(app, "http://127.0.0.1:80", raise_server_exceptions=False, headers=HEADERS),
        [],
        0,
    )
    for method, address, body in requests:
        headers = {"content-type": "application/json"} if body is not None else {}
        told, count = browser.request(method, address, content=body, headers=headers), count + 1
        if told.status_code >= 500 or not is_sentence(told):
            wrong.append((method, address[:80], (body or b"")[:80], told.status_code, told.text[:200]))
    assert wrong == []
    return count


def is_sentence(told):
    """Whether a refusal is one sentence of JSON or plain text; other answers have a body of their type."""
    kind = told.headers.get("content-type", "")
    if "json" in kind:
        found = json.loads(told.content.decode())
        if told.status_code < 400:
            return True
        text = found.get("error") or found.get("detail")
        return isinstance(text, str) and "\n" not in text and "Traceback" not in text
    return told.status_code < 400 or kind.startswith("text/plain")


@pytest.fixture
def review(tmp_path):
    """A function that serves the audit of the test's folder."""
    opened = []

    def serve(**settings):
        opened.append(Store(tmp_path / "decisions.sqlite", read_findings(tmp_path)))
        return make_app(opened[-1], KEY, Served(folder=tmp_path, **settings))

    yield serve
    [store.close() for store in opened]


def test_review_of_one_label_per_sample(tmp_path, review):
    write_planned(
        tmp_path, [("wren", "tit", 5, 0.9), ("gull", "finch", 3, 0.8)], copies=[("wren", "robin")], off_topic=[0.9]
    )
    (tmp_path / "pairs.csv").write_text("query,other,type,distance,wrong,mate\n100,105,confusion,0.25,105,101\n")
    assert check_answers(review(load_image=lambda row: Image.new("L", (4, 4))), review_requests()) >= 250


def test_review_of_several_labels_per_sample(tmp_path, review):
    (tmp_path / "labels.csv").write_text(LABELS)
    names = [{"label": name} for name in ("red", "dress", "blue")]
    about = {"title": "", "root": "", "rows": 3, "pictures": False, "labels": names}
    (tmp_path / "audit.json").write_text(json.dumps(about))
    head = "row,path,label,score,suggested,confidence,margin,reason,split"
    (tmp_path / "audit.csv").write_text("\n".join([head, *(f"{row},,dress,0.9,,,,,train" for row in range(3))]) + "\n")
    assert check_answers(review(), review_requests()) >= 250


@pytest.mark.filterwarnings("ignore:Corrupt EXIF data")
def test_search(tmp_path):
    index = make_index(40, first=100)
    index.save(tmp_path / "index")
    context = SearchContext(
        index, "shop", 10_000, lambda place: Image.new("L", (4, 4)), lambda image: torch.ones(8),
        lambda seen: np.ones((len(seen), 8), np.float32) / 8**0.5, changes=True,
    )  # fmt: skip
    assert check_answers(make_search_app(context, KEY), search_requests()) >= 100
