"""The page in a real browser: judge by keyboard, reload, undo, export; two reviewers; a server that is gone; links."""

import csv
import http.server
import os
import subprocess
import sys
import threading
from urllib.parse import urlsplit

import pytest
from PIL import Image

from likewise.errors import LikewiseError

pytest.importorskip("fastapi", reason="the review page needs FastAPI")
pytest.importorskip("playwright", reason="the browser is driven by playwright")

import uvicorn
from playwright import sync_api as api

from likewise.audit.read import read_findings
from likewise.web.http import take_port
from likewise.web.review.app import make_app
from likewise.web.review.store import Store

pytestmark = pytest.mark.browser

KEY = "a-token-of-24-characters"


def picture(row):
    if row == 8:
        raise LikewiseError("8.png: there is no such file")
    return Image.new("RGB", (90, 60), (row * 40 % 256, 120, 200))


class Server:
    """The page, served by a thread of this process."""

    def __init__(self, folder, picture, token=KEY):
        self.store, door = (
            Store(folder / "decisions.sqlite", read_findings(folder)),
            take_port("review", "127.0.0.1", 0),
        )
        self.address = f"http://127.0.0.1:{door.getsockname()[1]}/?token={token}"
        app = make_app(self.store, token, picture, title="birds")
        self.server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off"))
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [door]})
        self.thread.start()

    def stop(self):
        self.server.should_exit = True
        self.thread.join()
        self.store.close()


def write_audit(folder):
    names = ["wren", "robin", "tit"]
    (folder / "audit.json").write_text('{"title": "birds", "root": "", "rows": 13, "pictures": true}')
    with open(folder / "audit.csv", "w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["row", "path", "label", "score", "suggested", "confidence", "margin", "reason", "split"])
        for row in range(12):
            suspect = row % 2 == 0
            other = names[(row + 1) % 3] if suspect else ""
            score, split = row / 20 if suspect else 0.9, "train" if row < 8 else "test"
            table.writerow([row, f"{row}.png", names[row % 3], score, other, 0.8 * suspect, 0.5 * suspect, "", split])
        table.writerow([12, "12.png", "gull", 0.9, "", "", "", "", "test"])
    (folder / "pairs.csv").write_text(
        "query,other,type,distance,wrong,mate\n0,1,confusion,0.25,1,3\n3,5,mis-similar,0.5,4,5\n"
    )
    (folder / "causes.csv").write_text(
        "error,kind,direction,place,row,influence,relative\n0-1,confusion,harmful,1,7,0.2,2.5\n0-1,confusion,helpful,1,6,-1,-3\n"
    )


@pytest.fixture
def server(tmp_path):
    write_audit(tmp_path)
    made = Server(tmp_path, picture)
    yield made
    made.stop()


@pytest.fixture
def visit(browser):
    """A browser of its own for each reviewer, who has said who they are."""
    opened, wrong = [], []

    def visit(address, name):
        context = browser.new_context(viewport={"width": 1280, "height": 800}, accept_downloads=True)
        context.set_default_timeout(10_000)
        page = context.new_page()
        page.on("pageerror", lambda error: wrong.append(str(error)))
        own = (address.partition("?")[0], "data:", "blob:")
        page.on("request", lambda asked: asked.url.startswith(own) or wrong.append(asked.url))
        page.goto(address)
        page.fill("#name", name)
        page.press("#name", "Enter")
        see(page, "row 0 ")
        opened.append(context)
        return page

    yield visit
    [context.close() for context in opened]
    assert wrong == []  # no script failed, and nothing was asked of another server


@pytest.fixture
def enter(visit, server):
    return lambda name: visit(server.address, name)


def see(page, text, where="#main"):
    api.expect(page.locator(where)).to_contain_text(text, timeout=60_000)


def press(page, key, told):
    page.keyboard.press(key)
    see(page, told, "#said")


def download(page, name):
    page.click("#who")
    with page.expect_download() as waiting:
        page.click(f"a[href='/export/{name}.csv']")
    with open(waiting.value.path(), newline="") as file:
        found = list(csv.DictReader(file))
    page.keyboard.press("Escape")
    return found


def test_a_reviewer_relabels_three_reloads_and_exports(enter):
    page = enter("ann")
    assert page.locator(".large img").evaluate("i => i.decode().then(() => i.naturalWidth)") == 90
    press(page, "r", "Saved: 0 relabel robin")
    press(page, "r", "Saved: 2 relabel wren")
    page.keyboard.press("l")
    page.fill("#pick", "gul")
    see(page, "gull is a class of test: with this label, train and test share a class.", "#leak")
    page.fill("#pick", "wren")
    api.expect(page.locator("#leak")).to_be_empty()
    page.press("#pick", "Enter")
    see(page, "Saved: 4 relabel wren", "#said")
    page.keyboard.press("l")
    page.fill("#pick", "tit")
    page.click("#choose button:text('Cancel')")
    see(page, "Saved: 4 relabel wren", "#said")
    press(page, "x", "Saved: 6 remove")
    press(page, "z", "Undone: 6 remove")
    see(page, "row 6 ")
    page.keyboard.press("n")
    page.keyboard.type("kept on purpose")
    page.keyboard.press("Enter")
    press(page, "k", "Saved: 6 keep")
    page.reload()
    see(page, "row 8 ")
    see(page, "4 of 6", "#count")
    changed = download(page, "changes")
    assert [(c["row"], c["label"], c["new_label"]) for c in changed] == [
        ("0", "wren", "robin"),
        ("2", "tit", "wren"),
        ("4", "robin", "wren"),
    ]
    corrected = {line["path"]: line["label"] for line in download(page, "corrected")}
    assert len(corrected) == 13 and corrected["0.png"] == "robin" and corrected["6.png"] == "wren"
    assert [d["note"] for d in download(page, "decisions") if d["item"] == "6"] == ["kept on purpose"]


def test_two_reviewers_at_once_lose_nothing_and_see_how_they_agree(enter):
    ann, bob = enter("ann"), enter("bob")
    for row in range(0, 12, 2):
        press(ann, "k", f"Saved: {row} keep")
        press(bob, "k" if row < 8 else "x", f"Saved: {row} ")
    see(ann, "No items left to review here.")
    assert len(download(ann, "decisions")) == 12
    bob.keyboard.press("p")
    see(bob, "ann and bob, labels60.00", "#table")  # ann always says keep: no better than chance
    see(bob, "2 disputed", "#table")
    bob.keyboard.press("Escape")
    bob.select_option("#show", "disputed")
    see(bob, "Disputed. ann: keep")


def test_errors_are_shown_as_triples_with_their_causes_and_labels_can_be_judged_from_there(enter):
    page = enter("ann")
    page.keyboard.press("2")
    see(page, "The model takes this wren for robin.")
    see(page, "confusion, distance 0.250")
    assert page.locator(".panel .large img").count() == 3
    see(page, "+2.5 robin", ".harmful")
    see(page, "−3.0 wren", ".helpful")
    page.click(".harmful .thumb")
    see(page, "row 7 · train")
    see(page, "aside", "#place")
    assert page.locator("[data-key=r]").is_disabled()  # nobody suggests another label
    press(page, "x", "Saved: 7 remove")
    see(page, "The model takes this wren for robin.")  # where the queue was left
    press(page, "a", "Saved: 0-1 agreeable")
    press(page, "d", "Saved: 3-5 disagreeable")
    see(page, "2 of 2", "#count")
    page.keyboard.press("1")
    see(page, "row 0 ")
    press(page, "z", "Undone: 3-5 disagreeable")
    see(page, "1 of 2", "#count")
    page.select_option("#among", "confusion")
    see(page, "No items left to review here.")


def test_filters_and_broken_pictures(enter):
    page = enter("ann")
    page.keyboard.press("/")
    page.keyboard.type("r")
    page.keyboard.press("Enter")
    see(page, "There is no class r.", "#said")  # robin, wren
    page.keyboard.press("/")
    page.keyboard.type("ROB")
    page.keyboard.press("Enter")
    page.fill("#most", "0.25")
    page.locator("#most").blur()
    see(page, "1 / 2", "#place")  # row 2 is no robin, and nobody says it is; row 6 is above the score
    page.keyboard.press("ArrowRight")
    see(page, "row 4 ")
    page.fill("#label", "")
    page.fill("#most", "1")
    page.select_option("#among", "test")
    see(page, "row 8 · test")
    see(page, "8.png: there is no such file", ".large .broken")


SERVER = """
import sys
from likewise.audit.read import read_findings
from likewise.web.review.app import serve
from likewise.web.review.store import Store
serve(Store(sys.argv[1] + "/decisions.sqlite", read_findings(sys.argv[1])), sys.argv[3], port=int(sys.argv[2]))
"""


def start(folder, port):
    here = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    command = [sys.executable, "-c", SERVER, str(folder), str(port), KEY]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=here)
    return process, process.stdout.readline().split()[1]


def kill(process):
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_server_that_was_killed_and_came_back_has_every_saved_decision(visit, tmp_path):
    write_audit(tmp_path)
    process, address = start(tmp_path, 0)
    try:
        page = visit(address, "ann")
        press(page, "k", "Saved: 0 keep")
        kill(process)
        press(page, "k", "The server does not respond")
        see(page, "row 2 ")  # not saved, so not passed over
        process, _ = start(tmp_path, urlsplit(address).port)  # with the same token the open page goes on
        press(page, "k", "Saved: 2 keep")
        page.reload()
        see(page, "row 4 ")
    finally:
        kill(process)


def test_nothing_is_cut_off_on_a_desk_or_a_phone(enter):
    page = enter("ann")
    for width, height in ((1440, 900), (1024, 700), (390, 844)):
        page.set_viewport_size({"width": width, "height": height})
        for tab, word in (("#pairs", "Agreeable"), ("#samples", "Relabel")):
            page.click(tab)
            see(page, word, "#actions")
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            for button in page.locator("footer button").all():
                api.expect(button).to_be_in_viewport(ratio=1)


def test_without_pictures_the_page_shows_ids(visit, tmp_path):
    write_audit(tmp_path)
    made = Server(tmp_path, None)
    try:
        page = visit(made.address, "ann")
        see(page, "0 · 0.png", ".large")
        assert page.locator("img").count() == 0
    finally:
        made.stop()


def test_copies_with_two_labels_and_samples_of_no_class(visit, tmp_path):
    (tmp_path / "audit.json").write_text('{"title": "birds", "root": "", "rows": 7, "pictures": true}')
    head = "row,path,label,score,state,suggested,confidence,margin,reason,split,same_as,off_topic"
    lines = [
        '0,0.png,wren,0.1,conflict,robin,0.9,0.8,"same image as row 3, labelled robin",train,0,0.1',
        "1,1.png,robin,0.2,flagged,wren,0.5,0.1,far from its class,train,,0.2",
        "2,2.png,robin,0.6,off-topic,,,,fits no class,train,,0.97",
        '3,3.png,robin,0.85,conflict,,,,"same image as row 0, labelled wren",train,0,0.1',
        "4,4.png,wren,,unknown,,,,the only sample of its class,test,,",
        "5,5.png,wren,0.9,ok,,,,,train,,0",
        "6,6.png,robin,0.9,ok,,,,,train,,0",
    ]
    (tmp_path / "audit.csv").write_text("\n".join([head, *lines]) + "\n")
    made = Server(tmp_path, picture)
    try:
        page = visit(made.address, "ann")
        see(page, "same image as row 3, labelled robin")
        see(page, "Suggested: relabel as robin", ".advice")
        assert page.locator("button.advised").inner_text().startswith("Relabel")
        press(page, "r", "Saved: 0 relabel robin")
        see(page, "row 3 ")
        see(page, "Suggested: keep robin", ".advice")
        press(page, "k", "Saved: 3 keep")
        see(page, "Suggested: remove. No label is likelier than not.", ".advice")
        page.select_option("#state", "off-topic")
        see(page, "fits no class 0.970", ".facts")
        assert page.locator("#actions button.relabel").is_disabled() and page.locator("#count").inner_text().startswith(
            "2 of 4"
        )
        press(page, "x", "Saved: 2 remove")
        assert {line["row"]: line["label"] for line in download(page, "corrected")} == {
            "0": "robin", "1": "robin", "3": "robin", "4": "wren", "5": "wren", "6": "robin",
        }  # fmt: skip
    finally:
        made.stop()


class Chat(http.server.BaseHTTPRequestHandler):
    """Another site, which shows a link."""

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(f"<a href='{self.server.link}'>have a look</a>".encode())

    def log_message(self, *args):
        pass


@pytest.mark.slow
def test_a_link_on_another_site_opens_the_page_and_pages_of_two_ports_stay_open(browser, server, tmp_path):
    (tmp_path / "other").mkdir()
    write_audit(tmp_path / "other")
    other, chat = Server(tmp_path / "other", None, "another-token-than-that"), http.server.HTTPServer(("", 0), Chat)
    chat.link = server.address
    thread = threading.Thread(target=chat.serve_forever)
    thread.start()
    context = browser.new_context()
    context.set_default_timeout(10_000)
    try:
        one, two = context.new_page(), context.new_page()
        one.goto(f"http://localhost:{chat.server_port}/")  # another site than 127.0.0.1
        one.click("a")
        see(one, "birds", "#title")
        assert one.url == server.address.partition("?")[0]  # the token does not stay in the address bar
        two.goto(other.address)
        see(two, "birds", "#title")
        for page in (one, two):
            page.reload()
            see(page, "birds", "#title")
        context.clear_cookies()
        one.fill("#name", "ann")
        one.press("#name", "Enter")
        see(
            one,
            "a request must carry the token; open the address that `likewise review` printed, with its token",
            "#said",
        )
    finally:
        context.close()
        chat.shutdown()
        thread.join()
        chat.server_close()
        other.stop()
