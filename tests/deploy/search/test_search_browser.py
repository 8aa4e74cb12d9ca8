"""The search page in a real browser: drop, click, filter, add, remove, a file that is no picture, a desk and a phone."""

import base64
import threading
from contextlib import contextmanager
from dataclasses import replace

import pytest
from made_calibration import make_calibration, threshold
from make_index import make_index

pytest.importorskip("fastapi", reason="the search page needs FastAPI")
pytest.importorskip("playwright", reason="the browser is driven by playwright")

import numpy as np
import torch
import uvicorn
from PIL import Image
from playwright import sync_api as api

from likewise.core.http import take_port
from likewise.data.augment import Plain
from likewise.data.images import read_image
from likewise.deploy.index.known_unknown import IndexCalibration, levels_of
from likewise.deploy.index.open_index import path_of
from likewise.deploy.search.search_page import SearchContext, make_app

pytestmark = pytest.mark.browser

KEY = "a token of 24 characters"
DROP = """([name, type, body]) => {
  const bytes = Uint8Array.from(atob(body), (c) => c.charCodeAt(0)), data = new DataTransfer();
  data.items.add(new File([bytes], name, { type }));
  document.body.dispatchEvent(new DragEvent("dragover", { bubbles: true, dataTransfer: data }));
  document.body.dispatchEvent(new DragEvent("drop", { bubbles: true, dataTransfer: data }));
}"""


def draw(place):
    return Image.new("RGB", (90, 60), (place * 6 % 256, 120, 200))


def embed(seen):
    return torch.nn.functional.normalize(torch.stack(seen)).numpy()


@pytest.fixture
def served(tmp_path):
    index = make_index(40, first=100)
    index.save(tmp_path / "shop")
    desk = SearchContext(
        index,
        "shop",
        100_000,
        draw,
        lambda image: torch.tensor(index.rows.vectors[5]),
        embed,
        True,
        IndexCalibration(index, None),
        "all of birds",
        lambda place: path_of(index, place),
    )
    with serving(desk) as address:
        yield index, address, desk.calibrated


@contextmanager
def serving(desk):
    """Serve a page from a thread and yield its address."""
    door = take_port("search", "127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(make_app(desk, KEY), log_level="warning", lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [door]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{door.getsockname()[1]}/"
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture
def page(browser, served):
    wrong, address = [], served[1]
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    page.set_default_timeout(15_000)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda asked: asked.url.startswith((address, "data:")) or wrong.append(asked.url))
    page.goto(f"{address}?token={KEY}")
    see(page, "Choose an image", "#found")  # what is dropped before is not taken
    yield page
    page.close()
    assert wrong == []  # no script failed, and nothing was asked of another server


def see(page, text, where):
    api.expect(page.locator(where)).to_contain_text(text, timeout=60_000)


def drop(page, name, body, kind="image/png"):
    page.evaluate(DROP, [name, kind, base64.b64encode(body).decode()])


def picture(tmp_path):
    Image.fromarray(np.full((30, 40, 3), 90, np.uint8)).save(tmp_path / "p.png")
    return (tmp_path / "p.png").read_bytes()


def test_a_picture_is_dropped_a_result_is_followed_and_a_row_removed(page, served, tmp_path):
    index = served[0]
    api.expect(page.locator("#facts")).to_have_text("40 images · 3 classes · all of birds")
    api.expect(page.locator(".card")).to_have_count(12)  # some rows to begin with
    drop(page, "min fågel.png", picture(tmp_path))
    see(page, "min fågel.png", "#query")
    see(page, "5 ü.png", ".card >> nth=0")
    see(page, "Similarity 1.000", ".card >> nth=0")
    see(page, "of 12", ".vote >> nth=0")
    page.click(".card > .pic >> nth=1")
    hits = index.find(index.rows.vectors[5:6], 2)[0]
    see(page, f"{hits[1].place} ü.png", "#query figcaption")
    page.fill("#within", "robin")
    page.press("#within", "Enter")
    api.expect(page.locator(".card .class >> nth=0")).to_have_text("robin")
    page.click("#remove")
    see(page, "Really remove it?", "#remove")
    assert len(index.rows) == 40  # once is not enough
    page.click("#remove")
    see(page, f"{hits[1].place} ü.png is removed.", "#said")
    see(page, "39 images", "#facts")
    assert not index.rows.here[hits[1].place]


def test_a_picture_is_added_under_a_name(page, served, tmp_path):
    page.set_input_files("#file", files=[{"name": "a.png", "mimeType": "image/png", "buffer": picture(tmp_path)}])
    see(page, "a.png", "#query")
    page.click("#add")
    page.fill("#name", "gull")
    page.press("#name", "Enter")
    see(page, "Added to gull, as row 140.", "#said")
    see(page, "41 images · 4 classes", "#facts")
    assert served[0].rows.label(40) == "gull"
    api.expect(page.locator("#history button")).to_have_count(2)


def test_a_photo_has_the_similarity_of_the_command_line(browser, tmp_path):
    """A real JPEG, larger than the preview of the page: the network gets all of its pixels, as from `read_image`."""
    index, look, random = make_index(40), Plain(32), np.random.default_rng(0)
    projection = torch.tensor(random.normal(size=(3 * 32 * 32, 8)), dtype=torch.float32)

    def embed_pixels(seen):
        x = torch.stack(seen).flatten(1).float()
        return torch.nn.functional.normalize((x - x.mean(1, keepdim=True)) @ projection).numpy()

    file = tmp_path / "photo.jpg"
    Image.fromarray(random.integers(0, 256, (900, 1200, 3), np.uint8)).save(file, quality=90)
    hits = index.find(embed_pixels([look(read_image(file))]), 12)[0]
    desk = SearchContext(index, "shop", 20_000_000, draw, look, embed_pixels, scope="shop")
    with serving(desk) as address:
        page = browser.new_page()
        page.goto(f"{address}?token={KEY}")
        see(page, "Choose an image", "#found")
        page.set_input_files("#file", file)
        see(page, "photo.jpg", "#query")
        found = page.evaluate("state.told.found")
        page.close()
    assert [one["row"] for one in found] == [hit.place for hit in hits]
    assert [one["similarity"] for one in found] == pytest.approx([hit.similarity for hit in hits], abs=1e-6)


def test_what_is_no_picture_is_told_kindly_and_the_page_goes_on(page, tmp_path):
    drop(page, "table.csv", b"path,label\n", "text/csv")
    see(page, "The file must be an image (JPEG, PNG, WEBP, BMP, GIF, TIFF), got another format.", "#said.wrong")
    drop(page, "good.png", picture(tmp_path))
    see(page, "good.png", "#query")
    drop(page, "half.png", picture(tmp_path)[:50])
    see(page, "half.png: The image is damaged or incomplete", "#said.wrong")
    see(page, "half.png could not be searched", "#query .failed")  # nothing of the image before remains
    see(page, "No results", "#found")
    assert page.locator(".card, #query img").count() == 0 and not page.locator("#votes").is_visible()
    drop(page, "huge.png", b"x" * 200_000)
    see(page, "Shrink it first", "#said.wrong")
    drop(page, "good.png", picture(tmp_path))
    see(page, "good.png", "#query")
    api.expect(page.locator("#said")).to_have_text("")


def test_nothing_is_cut_off_on_a_desk_or_a_phone(page, tmp_path):
    drop(page, "a_long_name_without_any_spaces_in_it_as_cameras_write_them_20240101_123456.png", picture(tmp_path))
    see(page, "5 ü.png", ".card >> nth=0")
    for width in (1440, 800, 390):
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_result_is_enlarged_and_its_path_copied(page, served, tmp_path):
    index, context = served[0], page.context
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    drop(page, "a.png", picture(tmp_path))
    hits = index.find(index.rows.vectors[5:6], 12)[0]
    see(page, index.rows.path(hits[1].place), ".card >> nth=1")  # the answers have replaced the random images
    page.locator(".card").nth(1).hover()
    page.locator(".card .look").nth(1).click()
    path = str(index.folder / index.rows.path(hits[1].place))
    api.expect(page.locator("#zoom .path")).to_have_text(path)
    page.click("#zoom-copy")
    api.expect(page.locator("#zoom-copy")).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == path
    assert f"/picture/{100 + hits[1].place}?" in page.locator("#zoom-open").get_attribute("href")
    page.locator("#zoom-copy").press("ArrowRight")  # it has the focus, whatever the clipboard did
    see(page, index.rows.path(hits[2].place), "#zoom .path")
    page.click("#zoom-search")
    see(page, index.rows.path(hits[2].place), "#query figcaption")
    assert not page.locator("#zoom").is_visible()


def test_the_similarity_is_read(page, served, tmp_path):
    levels = levels_of(served[0].rows, None)
    drop(page, "a.png", picture(tmp_path))
    see(page, "same", ".card >> nth=0")  # row 105 itself
    sims = [hit.similarity for hit in served[0].find(served[0].rows.vectors[5:6], 12)[0]]
    words = ["same" if sim >= levels.same else "similar" if sim >= levels.similar else "weak" for sim in sims]
    assert page.locator(".reading").all_inner_texts() == words and len(set(words)) > 1
    page.click("#meaning summary")
    see(page, f"Same: {levels.same:.3f} or nearer", "#meaning")


def test_known_unknown_and_undecided(page, served, tmp_path):
    """A row of the index: its nearest other row is nearer than the threshold, or not; then the threshold is refused."""
    index, calibrated = served[0], served[2]
    hit = index.find(index.rows.vectors[3:4], 1, but=[3])[0][0]
    name, near = index.rows.label(hit.place), hit.similarity
    for value, unknown in ((near, False), (near + 0.01, True)):
        calibrated.current = lambda exact=True, value=value: make_calibration(value)
        page.goto(f"{served[1]}?token={KEY}")
        see(page, "Choose an image", "#found")
        drop(page, "a.png", picture(tmp_path))  # row 105 itself: similarity 1
        see(page, index.rows.label(5), "#decision.known b")
        see(page, "> 99 %", "#decision .vote >> nth=1")
        page.evaluate("search({ row: 103 })")
        see(
            page,
            "not near enough to any of the 3 known classes" if unknown else name,
            "#decision.unknown" if unknown else "#decision.known",
        )
        see(page, f"Similarity (threshold {value:.3f})", "#decision .vote >> nth=0")
        see(page, f"{near:.3f}", "#decision .vote >> nth=0")
        see(page, f"{100 * near:.0f} %", "#decision .vote >> nth=1")
        mark = page.locator("#decision .mark").evaluate("mark => mark.offsetLeft / mark.parentElement.offsetWidth")
        assert mark == pytest.approx(value, abs=0.02)  # pixels are whole numbers
        page.focus("#decision summary")
        page.keyboard.press("Enter")
        see(page, "at most 1 % of images of a class that is not in the gallery", "#decision details[open]")
        assert page.locator("#found.strangers").count() == unknown
    for width in (1440, 800, 360):
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    calibrated.current = lambda exact=True: make_calibration(unknown=threshold(None))
    page.goto(f"{served[1]}?token={KEY}")
    see(page, "30 classes promise 0.2 at best", "#found .notice")
    page.click(".card > .pic >> nth=0")
    see(page, "Known or unknown cannot be decided: 30 classes promise 0.2 at best.", "#decision")


def test_a_new_calibration_is_used_by_the_next_query(page, served):
    calibrated = served[2]
    page.evaluate("search({ row: 103 })")
    see(page, "Similarity", ".card >> nth=0")
    assert not page.locator("#decision").is_visible()
    calibrated.current = lambda exact=True: make_calibration(0.25)
    page.click(".card > .pic >> nth=0")
    see(page, "threshold 0.250", "#decision")
    see(page, "at most 1 % of images of a class that is not in the gallery", "#decision details")
    see(page, "the threshold of the calibrated run", "#meaning")


def test_back_and_forward_show_the_queries_again(page, served, tmp_path):
    drop(page, "a.png", picture(tmp_path))
    see(page, "a.png", "#query")
    page.evaluate("search({ row: 103 })")
    see(page, "3 ü.png", "#query figcaption")
    page.click(".card > .pic >> nth=0")
    second = page.url.partition("#row=")[2]
    see(page, f"{int(second) - 100} ü.png", "#query figcaption")
    page.evaluate("again()")  # the same query, such as with another filter: no further entry
    page.go_back()
    see(page, "3 ü.png", "#query figcaption")
    page.reload()
    see(page, "3 ü.png", "#query figcaption")
    page.go_forward()
    see(page, f"{int(second) - 100} ü.png", "#query figcaption")
    page.go_back()
    page.go_back()  # the file, which the reload has lost
    see(page, "Choose an image", "#found")
    drop(page, "b.png", picture(tmp_path))
    see(page, "b.png", "#query")
    page.evaluate("search({ row: 103 })")
    see(page, "3 ü.png", "#query figcaption")
    page.go_back()
    see(page, "b.png", "#query figcaption")
    page.go_back()
    see(page, "Choose an image", "#found")


def test_a_filter_by_label_with_chips_and_relevance(browser, tmp_path):
    """Labels come from users, so one of them is a script."""
    script = "<img src=x onerror=alert(1)> & !"
    index = make_index(40)
    index.rows = replace(index.rows, labels=(("dress", "red"), ("dress", script), ("red", "shirt")))
    desk = SearchContext(index, "shop", 100_000, draw, calibrated=IndexCalibration(index, None), scope="shop")
    with serving(desk) as address:
        wrong, page = [], browser.new_page(viewport={"width": 390, "height": 800})
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("dialog", lambda dialog: wrong.append("alert"))
        page.goto(f"{address}?token={KEY}")
        api.expect(page.locator("#facts")).to_have_text("40 images · 4 labels", timeout=60_000)
        page.evaluate("search({ row: 0 })")
        see(page, "Relevance", ".card >> nth=0")
        api.expect(page.locator(".card .chip.shared").first).to_be_visible()
        page.fill("#within", script)
        page.press("#within", "Enter")
        api.expect(page.locator(".card .chip", has_text=script)).to_have_count(12)
        page.click(".term button >> nth=0")  # without it
        see(page, "without", ".term")
        api.expect(page.locator(".card .chip", has_text=script)).to_have_count(0)
        page.fill("#within", "!shirt")
        page.press("#within", "Enter")
        api.expect(page.locator(".term.not")).to_have_count(2)
        api.expect(page.locator(".card .chip", has_text="shirt")).to_have_count(0)
        page.fill("#within", "nothing like it")
        page.press("#within", "Enter")
        see(page, "No image has the label nothing like it.", "#said")
        page.locator(".term .drop").first.click()
        api.expect(page.locator(".term")).to_have_count(1)
        page.close()
        assert wrong == []
