"""The search page's server: answers, limits, bad pictures, a full queue, rows that come and go, and who may do what."""

import asyncio
import base64
import io
import threading
import weakref
import zlib
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from made_calibration import make_calibration, threshold
from make_index import make_index
from PIL import Image

pytest.importorskip("fastapi", reason="the search page needs FastAPI")
pytest.importorskip("httpx", reason="its test client needs httpx")

import httpx
from fastapi.testclient import TestClient
from likewise.errors import LikewiseError

from likewise.deploy.index.known_unknown import IndexCalibration
from likewise.deploy.index.vector_index import Index
from likewise.deploy.search import search_page as page
from likewise.deploy.search.search_page import SearchContext, decode, make_app

KEY = "a token of 24 characters"
BEARER = {"authorization": f"Bearer {KEY}"}


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr("likewise.core.http.REFUSAL_DELAY_SECONDS", 0)


def see(image):
    """A picture is seen as its first pixel, and embedded as that."""
    return torch.tensor(image.convert("RGB").getpixel((0, 0)), dtype=torch.float32)


def embed(seen):
    z = torch.stack(seen).repeat(1, 3)[:, :8] + 1
    return torch.nn.functional.normalize(z).numpy()


def draw(row):
    if row == 8:
        raise LikewiseError("8.png: there is no such file")
    return Image.new("RGB", (2000, 1000), (row * 5 % 256, 0, 0))


def body(kind="PNG", colour=(200, 10, 10), size=(20, 10)):
    out = io.BytesIO()
    Image.new("RGB", size, colour).save(out, kind)
    return out.getvalue()


def serve(index=None, **settings):
    given = {
        "title": "shop",
        "upload": 10_000,
        "picture": draw,
        "see": see,
        "embed": embed,
    } | settings
    return make_app(SearchContext(index or make_index(40, first=100), **given), KEY)


def visit(index=None, headers=BEARER, **settings):
    app = serve(index, **settings)
    return TestClient(app, base_url="http://127.0.0.1:8018", raise_server_exceptions=False, headers=headers)


@pytest.fixture
def saved(tmp_path):
    index = make_index(40, first=100)
    index.save(tmp_path / "i")
    return index


def test_a_row_finds_others_and_votes_are_counted():
    index = make_index(40, first=100)
    told = visit(index).post("/api/search", params={"row": 103, "k": 6}).json()
    hits = index.find(index.rows.vectors[3:4], 6, but=[3])[0]
    assert [one["row"] for one in told["found"]] == [100 + hit.place for hit in hits]
    assert [one["similarity"] for one in told["found"]] == [hit.similarity for hit in hits]
    assert told["query"]["class"] == "wren" and told["found"][0]["name"].endswith(" ü.png")
    count = {name: sum(one["class"] == name for one in told["found"]) for name in index.rows.class_name}
    assert {vote["class"]: vote["count"] for vote in told["votes"]} == {k: v for k, v in count.items() if v}
    only = visit(index).post("/api/search", params={"row": 103, "k": 5, "class": "robin"}).json()["found"]
    assert {one["class"] for one in only} == {"robin"} and len(only) == 5


def with_calibration(index, calibration):
    calibrated = IndexCalibration(index, None)
    calibrated.current = lambda exact=True: calibration
    return visit(index, calibrated=calibrated)


def test_a_query_is_known_or_unknown_by_its_nearest_row():
    index = make_index(40, first=100)
    hit = index.find(index.rows.vectors[3:4], 1, but=[3])[0][0]
    name, near = index.rows.label(hit.place), hit.similarity
    for value, unknown in ((near, False), (near + 0.01, True)):
        told = with_calibration(index, make_calibration(value)).post("/api/search", params={"row": 103, "k": 6}).json()
        assert (told["unknown"], told["label"]) == (unknown, None if unknown else name)
        assert told["probability"] == pytest.approx(near) and told["threshold"] == value and told["nearest"] == name
        assert told["similarity"] == told["found"][0]["similarity"] == near
    # another class is asked for: the decision is still about all rows
    other = next(one for one in index.rows.class_name if one != name)
    told = (
        with_calibration(index, make_calibration(near)).post("/api/search", params={"row": 103, "class": other}).json()
    )
    assert told["label"] == name and {one["class"] for one in told["found"]} == {other}


def test_what_the_page_knows_about_the_threshold():
    index = make_index(40)
    about = with_calibration(index, make_calibration(0.5)).get("/api/about").json()
    assert about["calibrated"] is True and about["threshold"] == 0.5 and about["hint"] == ""
    assert "at most 1 % of images of a class that is not in the gallery" in about["promise"]
    refused = with_calibration(index, make_calibration(unknown=threshold(None)))
    about = refused.get("/api/about").json()
    assert about["calibrated"] is True and about["threshold"] is None and about["hint"] in about["promise"]
    told = refused.post("/api/search", params={"row": 3}).json()
    assert told["unknown"] is told["label"] is None and told["reason"] == about["hint"] and told["probability"] > 0
    plain = visit(index).post("/api/search", params={"row": 3}).json()
    assert plain["unknown"] is plain["label"] is plain["probability"] is None
    assert visit(index).get("/api/about").json()["calibrated"] is False


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF"])
def test_a_picture_of_any_kind_is_told_by_its_content(kind):
    index = make_index(40)
    sent = {"content": body(kind), "headers": {"content-type": "text/plain"}}
    told = visit(index).post("/api/search", params={"k": 3, "preview": True}, **sent)
    z = embed([see(Image.open(io.BytesIO(body(kind))))])
    assert [one["row"] for one in told.json()["found"]] == [hit.place for hit in index.find(z, 3)[0]]
    assert told.json()["query"]["preview"].startswith("data:image/jpeg;base64,")
    assert "preview" not in visit(index).post("/api/search", content=body(kind)).json()["query"]


def bomb():
    """A small file that says it is a huge picture."""
    made = bytearray(body("PNG"))
    made[16:24] = (40_000).to_bytes(4, "big") * 2
    made[29:33] = zlib.crc32(made[12:29]).to_bytes(4, "big")
    return bytes(made)


@pytest.mark.parametrize(
    ("sent", "status", "says"),
    [
        (b"", 400, "an image as its body"),
        (b"path,label\n1.png,wren\n" * 20, 415, "JPEG, PNG"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", 415, "got another format"),
        (body("PNG", size=(64, 64))[:60], 400, "damaged or incomplete"),
        (body("JPEG", size=(64, 64))[:-200], 400, "damaged or incomplete"),
        (b"\xff\xd8\xff\xe0 and then nothing", 400, "damaged or incomplete"),
        (b"RIFF\0\0\0\0WAVE", 400, "damaged or incomplete"),
        (bomb(), 400, "at most 50 million pixels"),
        (body(size=(1, 101)), 400, "must be at most 100 times the short side, got 1 x 101; crop it"),
        (b"\x89PNG" + b"x" * 20_000, 413, "a request must have at most 0.00954 MB, got more"),
    ],
)
def test_what_is_no_picture_is_refused_kindly(sent, status, says):
    browser = visit()
    for how in ({"content": sent}, {"content": iter([sent[:7], sent[7:]])}):  # with its length told, and without
        told = browser.post("/api/search", **how)
        assert told.status_code == status and says in told.json()["error"]
    assert browser.post("/api/search", content=body()).status_code == 200  # and it goes on


def test_wrong_questions_are_answered_kindly():
    browser = visit()
    for params, says in [
        ({"row": 99}, "got 99, but the target has 40 rows in 100 to 139"),
        ({"row": "x"}, "row cannot be 'x'"),
        ({"row": 101, "k": 0}, "k cannot be '0'"),
        ({"row": 101, "k": 1000}, "k cannot be '1000'"),
        ({"row": 101, "class": "gull"}, "the class must be in the index, got 'gull'"),
    ]:
        told = browser.post("/api/search", params=params)
        assert told.status_code == 400 and says in told.json()["error"]
    told = visit(see=None, embed=None).post("/api/search", content=body())
    assert told.status_code == 400 and "queries must be rows, got an image; add --model RUN" in told.json()["error"]


def test_many_at_once_all_get_their_own_and_too_many_are_asked_to_come_again(monkeypatch):
    sizes, go_on = [], threading.Event()

    def slow(seen):
        go_on.wait(600)
        sizes.append(len(seen))
        return embed(seen)

    monkeypatch.setattr(page, "MAX_WAITING_IMAGES", 12)
    index = make_index(40)
    colours = [(20 * i, 255 - 20 * i, 7 * i) for i in range(12)]
    with visit(index, embed=slow) as browser, ThreadPoolExecutor(12) as crowd:  # one event loop for all
        waiting = [crowd.submit(browser.post, "/api/search?k=4", content=body(colour=c)) for c in colours]
        while True:
            late = browser.post("/api/search?row=3")  # rows need no room
            assert late.status_code == 200
            late = browser.post("/api/search", content=b"no picture")
            if late.status_code == 503:
                break
        assert late.headers["retry-after"] == "1" and "12 images are waiting already" in late.json()["error"]
        go_on.set()
        told = [one.result(20) for one in waiting]
    for answer, colour in zip(told, colours, strict=True):
        z = embed([torch.tensor(colour, dtype=torch.float32)])
        assert [one["row"] for one in answer.json()["found"]] == [hit.place for hit in index.find(z, 4)[0]]
    assert sum(sizes) == 12 and len(sizes) < 12


def test_pictures_are_gone_while_they_wait_for_the_network(monkeypatch):
    alive = []

    def decode_and_watch(opened):
        image = decode(opened)
        alive.extend(map(weakref.ref, (opened, image)))
        return image

    def last(seen):
        assert [one() for one in alive] == [None, None]
        return embed(seen)

    monkeypatch.setattr(page, "decode", decode_and_watch)
    told = visit(embed=last).post("/api/search?preview=true", content=body(size=(600, 300)))
    shown = base64.b64decode(told.json()["query"]["preview"].partition(",")[2])
    assert Image.open(io.BytesIO(shown)).size == (480, 240)


def test_an_error_in_the_depths_is_no_end():
    def broken(seen):
        raise RuntimeError("out of memory")

    browser = visit(embed=broken)
    assert browser.post("/api/search", content=body()).status_code == 500
    assert browser.post("/api/search?row=100").status_code == 200


def test_rows_come_and_go(saved):
    browser = visit(saved, changes=True)
    told = browser.post("/api/rows", params={"class": "  red   bird "}, content=body("WEBP"))
    assert told.json() == {"row": 140, "rows": 41}
    again = Index.open(saved.folder)
    assert again.rows.label(40) == "red bird"
    kept = saved.folder / again.rows.path(40)
    assert kept.suffix == ".webp" and kept.read_bytes() == body("WEBP")  # as it was sent, beside the index
    assert browser.post("/api/search", content=body()).json()["found"][0]["row"] == 140
    assert browser.delete("/api/rows/140").json() == {"row": 140, "rows": 40}
    gone = browser.delete("/api/rows/140")
    assert gone.status_code == 404 and "got 140, but the target" in gone.json()["error"]
    assert browser.get("/picture/140").status_code == 404
    assert browser.post("/api/rows", params={"class": "x"}, content=body()).json()["row"] == 141  # never the same again
    for params, sent, status in [({}, body(), 400), ({"class": " "}, body(), 400), ({"class": "x"}, b"no", 415)]:
        assert browser.post("/api/rows", params=params, content=sent).status_code == status
    assert len(list((saved.folder / "pictures").iterdir())) == 2 and len(saved.rows) == 41


def test_an_index_changes_only_where_it_may(saved):
    browser = visit(saved)
    for told in (browser.post("/api/rows?class=x", content=body()), browser.delete("/api/rows/100")):
        assert told.status_code == 403 and "(--save)" in told.json()["error"]
    assert browser.delete("/api/rows/100", headers={"origin": "http://evil.example"}).status_code == 403
    assert len(saved.rows) == 40


def test_pictures_go_by_row_alone():
    browser = visit(make_index(40))
    assert Image.open(io.BytesIO(browser.get("/picture/7").content)).size == (224, 112)
    assert Image.open(io.BytesIO(browser.get("/picture/7?large=true").content)).size == (1024, 512)
    assert browser.get("/picture/8").text == "8.png: there is no such file"
    for strange in ("40", "-1", "bild 1 ü.png", "..%2Findex.json", "9" * 30):
        assert browser.get(f"/picture/{strange}").status_code in (400, 404)


def test_the_page_learns_what_it_is_about_and_asks_nothing_of_others(saved):
    saved.remove([100, 103])
    browser = visit(saved, changes=True)
    about = browser.get("/api/about").json()
    assert about["rows"] == 38 and about["classes"] == ["robin", "tit, blue", "wren"] and about["kind"] == "exact"
    assert about["network"] and about["changes"] and about["pictures"] and about["upload"] == 10_000
    assert len(about["some"]) == 12 and not {one["row"] for one in about["some"]} & {100, 103}
    assert "default-src 'self'" in browser.get("/").headers["content-security-policy"]
    for name in ("page.css", "page.js"):
        text = browser.get(f"/static/{name}").text
        assert text and "http:" not in text and "https:" not in text and "innerHTML" not in text
    assert browser.get("/static/..%2Fapp.py").status_code == 404


def test_a_token_opens_the_page_and_nothing_else_does():
    browser = visit(headers={})
    for path in ("/", "/api/about", "/picture/101", "/static/page.js"):
        assert browser.get(path).status_code == 403
    assert browser.post("/api/search?row=101").status_code == browser.delete("/api/rows/101").status_code == 403
    assert browser.get("/", params={"token": KEY}).status_code == 200
    assert browser.post("/api/search?row=101").status_code == 200  # by cookie


def test_uploads_that_stall_block_nobody(monkeypatch):
    monkeypatch.setattr(page, "MAX_WAITING_IMAGES", 4)

    async def work():
        event, begun = asyncio.Event(), []

        async def drip():
            yield body()[:4]
            begun.append(True)
            await event.wait()

        client = httpx.AsyncClient(transport=httpx.ASGITransport(serve()), base_url="http://127.0.0.1", headers=BEARER)
        async with client:
            stalled = [asyncio.create_task(client.post("/api/search", content=drip())) for _ in range(20)]
            while len(begun) + sum(one.done() for one in stalled) < len(stalled):
                await asyncio.sleep(0)
            assert (await client.post("/api/search", content=body())).status_code == 200
            event.set()
            return {(await one).status_code for one in stalled}

    assert asyncio.run(work()) <= {400, 503}  # read to the end, they are cut short, or too many at once


def test_large_pictures_are_decoded_one_at_a_time_and_small_ones_meanwhile(monkeypatch):
    monkeypatch.setattr(page, "LARGE_IMAGE_PIXELS", 20 * 10)
    here, most, busy, go_on = [0], [0], threading.Event(), threading.Event()

    def look(image):
        if image.width > 20:
            here[0] += 1
            most[0] = max(most[0], here[0])
            busy.set()
            go_on.wait(600)
            threading.Event().wait(0.01)
            here[0] -= 1
        return see(image)

    with visit(see=look) as browser, ThreadPoolExecutor(6) as crowd:
        waiting = [crowd.submit(browser.post, "/api/search", content=body(size=(30, 20))) for _ in range(6)]
        assert busy.wait(600)
        assert browser.post("/api/search", content=body()).status_code == 200
        go_on.set()
        assert [one.result(20).status_code for one in waiting] == [200] * 6
    assert most[0] == 1
