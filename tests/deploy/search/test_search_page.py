"""The search page's server: answers, limits, bad pictures, a full queue, rows that come and go, and who may do what."""

import asyncio
import base64
import io
import json
import os
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.parse
import urllib.request
import weakref
import zlib
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from made_calibration import make_calibration, threshold
from make_index import make_index
from PIL import Image

pytest.importorskip("fastapi", reason="the search page needs FastAPI")
pytest.importorskip("httpx", reason="its test client needs httpx")

import httpx
from fastapi.testclient import TestClient
from likewise.config import Search
from likewise.errors import LikewiseError

from likewise.deploy.index.known_unknown import IndexCalibration
from likewise.deploy.index.search_index import search
from likewise.deploy.index.vector_index import Index
from likewise.deploy.search import search_page as page
from likewise.deploy.search.search_page import MicroBatcher, SearchContext, check_serving, decode, make_app, open_image

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
    given = {"title": "shop", "upload": 10_000, "picture": draw, "see": see, "embed": embed} | settings
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


def test_those_who_wait_go_together_and_each_gets_their_own():
    sizes, go_on = [], threading.Event()

    def embed(seen):
        go_on.wait(600)
        sizes.append(len(seen))
        return np.stack([2 * x.numpy() for x in seen])

    batching = MicroBatcher(embed, most=4)
    promises = [batching.submit(torch.full((3,), float(i))) for i in range(10)]
    assert promises[9].cancel()  # a client that went away
    go_on.set()
    assert [float(p.result(10)[0]) for p in promises[:9]] == [2.0 * i for i in range(9)]
    assert sum(sizes) == 9 and max(sizes) == 4 and len(sizes) < 6


def test_an_error_reaches_those_who_waited_and_the_next_are_served():
    def embed(seen):
        if any(x.isnan().any() for x in seen):
            raise ValueError("no such picture")
        return np.stack([x.numpy() for x in seen])

    batching = MicroBatcher(embed)
    with pytest.raises(ValueError, match="no such picture"):
        batching.submit(torch.tensor([torch.nan])).result(10)
    assert batching.submit(torch.ones(1)).result(10) == 1


class Process:
    """`likewise search --serve`, in a process of its own."""

    def __init__(self, *words):
        here = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        command = [sys.executable, "-m", "likewise", "search", *words, "--serve", "--port", "0", "--device", "cpu"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=here)
        self.said = []
        while not self.said or "http://" not in self.said[-1]:
            self.said.append(self.process.stdout.readline())
        self.address, _, token = self.said[-1].split()[1].partition("?token=")
        self.said.append(self.process.stdout.readline())
        self.headers = {"Authorization": f"Bearer {urllib.parse.unquote(token)}"}

    def ask(self, path, body=None, method=None):
        request = urllib.request.Request(self.address + path, body, self.headers, method=method)
        return urllib.request.urlopen(request, timeout=600).read()

    def interrupt(self):
        self.process.send_signal(signal.SIGINT)
        said, wrong = self.process.communicate(timeout=600)
        return self.process.returncode, said, wrong


def test_from_run_to_page_and_back(picture_run, pictures, tmp_path):
    folder = tmp_path / "shop"
    served = Process(str(picture_run.path), "--save", str(folder), "--quiet")
    body = (pictures / "4 färg" / "bild 3.png").read_bytes()
    try:
        about = json.loads(served.ask("api/about"))
        assert about["rows"] == 36 and about["network"] and about["changes"]
        told = json.loads(served.ask("api/search?k=5", body))
        expected = search(Search(str(folder), query=str(pictures / "4 färg" / "bild 3.png"), device="cpu"))
        assert [one["row"] for one in told["found"]] == [one["row"] for one in expected]
        assert Image.open(io.BytesIO(served.ask("picture/20"))).size == (24, 20)
        assert json.loads(served.ask("api/rows?class=new", body))["row"] == 36
        served.ask("api/rows/18", method="DELETE")
        with pytest.raises(urllib.error.HTTPError, match="415"):
            served.ask("api/search", b"no picture")
    finally:
        code, _, wrong = served.interrupt()
    assert code == 0 and wrong == "" and served.said[0] == f"index: {folder} (36 rows, exact)\n"
    assert served.said[2] == f"searched: 36 images, 6 classes: all of {pictures.name}\n"
    again = Index.open(folder)
    assert (
        again.rows.table["row"][again.rows.here].tolist() == [*range(18), *range(19, 37)]
        and again.rows.label(36) == "new"
    )


@pytest.mark.process
def test_a_damaged_index_ends_the_server_with_an_error(saved):
    file = saved.folder / "vectors.f32"
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    served = Process(str(saved.folder))
    said, wrong = served.process.communicate(timeout=600)
    assert served.process.returncode == 2 and "checksum of vectors.f32 does not match" in wrong
    assert "searched" not in "".join([*served.said, said])


def test_a_damaged_index_answers_nothing(saved):
    file = saved.folder / "table.bin"
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    browser = visit(Index.open_unchecked(saved.folder))
    for asked in (browser.get("/api/about"), browser.get("/api/levels"), browser.post("/api/search?row=103")):
        assert asked.status_code == 400 and "checksum of table.bin does not match" in asked.json()["error"]


def test_what_stands_in_the_way_is_told_before_the_work(picture_run, monkeypatch):
    monkeypatch.setenv("LIKEWISE_TOKEN", "a token of 24 characters")
    target = str(picture_run.path)
    for settings, says in [
        ({"token_file": "nowhere"}, "search: --token-file must be a text file, got 'nowhere'"),
        ({"max_upload": "lots"}, "search: --max-upload must be an amount such as '20MB', got 'lots'"),
    ]:
        with pytest.raises(LikewiseError, match=says):
            search(Search(target, serve=True, **settings))
    assert check_serving(Search(target, max_upload="2MB")) == (2 * 2**20, "a token of 24 characters")


@pytest.mark.slow
@pytest.mark.process
def test_without_the_extra_it_says_what_to_install(picture_run):
    code = "import sys; sys.modules['fastapi'] = None; from likewise.cli.main import main; main(sys.argv[1:])"
    here = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    command = [sys.executable, "-c", code, "search", str(picture_run.path), "--serve"]
    told = subprocess.run(command, capture_output=True, text=True, env=here)
    assert told.returncode == 2 and "pip install 'likewise[serve]'" in told.stderr and "Traceback" not in told.stderr


def coded(image, kind, **how):
    out = io.BytesIO()
    image.save(out, kind, **how)
    return out.getvalue()


def seen(body):
    return decode(open_image(body))


def test_bytes_become_the_picture_that_people_see():
    turned = Image.new("RGB", (20, 10))
    exif = turned.getexif()
    exif[0x112] = 6  # the camera was held upright
    image = seen(coded(turned, "JPEG", exif=exif))
    assert image.size == (10, 20) and image.mode == "RGB"
    image = seen(coded(Image.new("RGBA", (4, 4), (0, 0, 0, 0)), "PNG"))
    assert image.getpixel((0, 0)) == (255, 255, 255)  # transparent parts on white
    frames = [Image.new("L", (5, 5), grey) for grey in (0, 200)]
    image = seen(coded(frames[0], "GIF", save_all=True, append_images=frames[1:]))
    assert image.getpixel((0, 0)) == (0, 0, 0)  # the first frame
    pair = coded(Image.new("RGB", (8, 8)), "MPO", save_all=True, append_images=[Image.new("RGB", (8, 8))])
    assert seen(pair).size == (8, 8)  # as phones write them
    assert open_image(b"%PDF-1.7") is None and open_image(b"") is None


def test_huge_and_broken_pictures_are_told(monkeypatch):
    monkeypatch.setattr("likewise.deploy.search.search_page.MAX_IMAGE_PIXELS", 50)
    with pytest.raises(LikewiseError, match="got 10 x 10; shrink it first"):
        seen(coded(Image.new("L", (10, 10)), "PNG"))
    monkeypatch.undo()
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
    with pytest.raises(LikewiseError, match="got many more"):
        seen(coded(Image.new("L", (10, 10)), "PNG"))
    with pytest.raises(LikewiseError, match="damaged or incomplete"):
        seen(coded(Image.new("RGB", (3, 3)), "BMP")[:40])
