"""The page in a real browser: judge by keyboard, reload, undo, export; two reviewers at once; a server that is gone."""

import csv
import os
import shutil
import subprocess
import sys
import urllib.request
from urllib.parse import urlsplit

import pytest

pytest.importorskip("fastapi", reason="the review page needs FastAPI")
api = pytest.importorskip("playwright.sync_api", reason="the browser is driven by playwright")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium on this machine")]

SERVER = """
import sys
from PIL import Image
from likewise.review.app import serve
from likewise.review.store import Store, read_findings
folder, port, pictures = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "pictures"
picture = (lambda row: Image.new("RGB", (90, 60), (row * 40 % 256, 120, 200))) if pictures else None
serve(Store(folder + "/decisions.sqlite", read_findings(folder)), picture, port=port)
"""


class Server:
    def __init__(self, folder, pictures="pictures"):
        self.folder, self.pictures, self.port = folder, pictures, 0
        self.start()

    def start(self):
        here = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        command = [sys.executable, "-c", SERVER, str(self.folder), str(self.port), self.pictures]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=here)
        self.address = self.process.stdout.readline().split()[1]
        self.port = urlsplit(self.address).port
        urllib.request.urlopen(
            self.address, timeout=20
        ).read()  # the door is open already: this waits until it is answered

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


def write_audit(folder):
    names = ["wren", "robin", "tit"]
    with open(folder / "audit.csv", "w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["row", "path", "label", "score", "suggested", "confidence", "margin", "reason"])
        for row in range(12):
            suspect = row % 2 == 0
            other = names[(row + 1) % 3] if suspect else ""
            score = row / 20 if suspect else 0.9
            table.writerow([row, f"{row}.png", names[row % 3], score, other, 0.8 * suspect, 0.5 * suspect, ""])
    (folder / "pairs.csv").write_text("query,other,type,distance\n0,1,confusion,0.25\n3,5,confusion,0.5\n")


@pytest.fixture
def server(tmp_path):
    write_audit(tmp_path)
    made = Server(tmp_path)
    yield made
    made.kill()


@pytest.fixture(scope="module")
def chromium():
    with api.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@pytest.fixture
def enter(chromium, server):
    """A browser of its own for each reviewer, who has said who they are."""
    opened, wrong = [], []

    def visit(name):
        context = chromium.new_context(viewport={"width": 1280, "height": 800}, accept_downloads=True)
        context.set_default_timeout(10_000)
        page = context.new_page()
        page.on("pageerror", lambda error: wrong.append(str(error)))
        own = (server.address, "data:", "blob:")
        page.on("request", lambda asked: asked.url.startswith(own) or wrong.append(asked.url))
        page.goto(server.address)
        page.fill("#name", name)
        page.press("#name", "Enter")
        see(page, "row 0 ")
        opened.append(context)
        return page

    yield visit
    [context.close() for context in opened]
    assert wrong == []  # no script failed, and nothing was asked of another server


def see(page, text, where="#main"):
    api.expect(page.locator(where)).to_contain_text(text, timeout=10_000)


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
    page.fill("#pick", "wren")
    page.press("#pick", "Enter")
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
    assert len(corrected) == 12 and corrected["0.png"] == "robin" and corrected["6.png"] == "wren"
    assert [d["note"] for d in download(page, "decisions") if d["item"] == "6"] == ["kept on purpose"]


def test_two_reviewers_at_once_lose_nothing_and_see_how_they_agree(enter):
    ann, bob = enter("ann"), enter("bob")
    for row in range(0, 12, 2):
        press(ann, "k", f"Saved: {row} keep")
        press(bob, "k" if row < 8 else "u", f"Saved: {row} ")
    see(ann, "Nothing left to judge here.")
    assert len(download(ann, "decisions")) == 12
    bob.click("#who")
    see(bob, "ann and bob, samples60.00", "#table")  # ann always says keep: no better than chance


def test_pairs_filter_and_undo_across_kinds(enter):
    page = enter("ann")
    page.click("#pairs")
    see(page, "confusion, distance 0.250")
    press(page, "a", "Saved: 0-1 agreeable")
    press(page, "d", "Saved: 3-5 disagreeable")
    see(page, "2 of 2", "#count")
    page.click("#samples")
    page.fill("#most", "0.25")
    page.fill("#label", "robin")
    page.press("#label", "Enter")
    page.locator("#label").blur()
    see(page, "row 0 ")
    page.keyboard.press("ArrowRight")
    see(page, "row 4 ")  # row 2 is no robin, and nobody says it is
    page.keyboard.press("ArrowRight")
    see(page, "Nothing left")  # row 6 is above the score
    press(page, "z", "Undone: 3-5 disagreeable")
    see(page, "1 of 2", "#count")


def test_a_server_that_was_killed_and_came_back_has_every_saved_decision(enter, server):
    page = enter("ann")
    press(page, "k", "Saved: 0 keep")
    server.kill()
    press(page, "k", "The server does not answer")
    see(page, "row 2 ")  # not saved, so not passed over
    server.start()
    press(page, "k", "Saved: 2 keep")
    page.reload()
    see(page, "row 4 ")


def test_nothing_is_cut_off_on_a_desk_or_a_phone(enter):
    page = enter("ann")
    for width, height in ((1280, 800), (390, 844)):
        page.set_viewport_size({"width": width, "height": height})
        for tab, word in (("#pairs", "Agreeable"), ("#samples", "Relabel")):
            page.click(tab)
            see(page, word, "#actions")
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            for button in page.locator("#actions button").all():
                api.expect(button).to_be_in_viewport(ratio=1)


def test_without_pictures_the_page_shows_ids(chromium, tmp_path):
    write_audit(tmp_path)
    made = Server(tmp_path, "none")
    try:
        page = chromium.new_page()
        page.goto(made.address)
        page.fill("#name", "ann")
        page.press("#name", "Enter")
        see(page, "0 · 0.png", ".large")
        assert page.locator("img").count() == 0
        page.close()
    finally:
        made.kill()
