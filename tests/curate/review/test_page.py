"""The page in a real browser: decide by keyboard, reload, undo, export; two reviewers; a server that is gone; links."""

import http.server
import threading
from urllib.parse import urlsplit

import pytest

pytest.importorskip("fastapi", reason="the review page needs FastAPI")
pytest.importorskip("playwright", reason="the browser is driven by playwright")

from playwright import sync_api as api
from review_page import Server, download, kill, press, see, start, write_audit, write_copies

pytestmark = pytest.mark.browser


def test_a_reviewer_relabels_three_reloads_and_exports(enter):
    page = enter("ann")
    see(page, "6 labels look wrong. Is the label right?")
    assert page.title() == "birds · review" and page.locator("#title").inner_text() == "birds"
    assert page.locator(".large img").evaluate("i => i.decode().then(() => i.naturalWidth)") == 90
    see(page, "Keep ‘wren’", "#actions .keep")
    see(page, "Change to ‘robin’", "#actions .relabel")
    press(page, "r", "Saved. 0.png: changed to robin")
    press(page, "r", "Saved. 2.png: changed to wren")
    page.keyboard.press("l")
    page.fill("#pick", "tit")
    page.keyboard.press("Escape")
    see(page, "4.png")
    page.keyboard.press("l")
    page.fill("#pick", "WRE")
    page.press("#pick", "Enter")
    see(page, "Saved. 4.png: changed to wren", "#said")
    press(page, "x", "Saved. 6.png: removed")
    press(page, "Backspace", "Undone: 6.png")
    see(page, "6.png")
    page.keyboard.press("c")
    page.keyboard.type("kept on purpose")
    page.keyboard.press("Enter")
    press(page, "k", "Saved. 6.png: kept")
    page.reload()
    see(page, "8.png")
    see(page, "4 of 6", "#count")
    changed = download(page, "changes")
    assert [(c["row"], c["label"], c["new_label"]) for c in changed] == [
        ("0", "wren", "robin"),
        ("2", "tit", "wren"),
        ("4", "robin", "wren"),
    ]
    corrected = {line["path"]: line["label"] for line in download(page, "corrected")}
    assert len(corrected) == 13 and corrected["/birds/0.png"] == "robin" and corrected["/birds/6.png"] == "wren"
    assert [d["note"] for d in download(page, "decisions") if d["item"] == "6"] == ["kept on purpose"]
    press(page, "Control+z", "Undone: keep")  # also what was decided before the page was loaded
    see(page, "6.png")


def test_the_page_opens_on_the_first_image_and_asks_for_a_name_at_the_first_decision(enter, server):
    page = enter("")
    see(page, "0.png")
    assert not page.locator("#people").is_visible()
    page.keyboard.press("k")
    page.fill("#name", "ann")
    page.press("#name", "Enter")
    see(page, "2.png")
    see(page, "1 of 6", "#count")  # the page moves on before the server answers
    assert [(d.reviewer, d.item) for d in server.store.current_decisions()] == [("ann", "0")]
    page.reload()
    see(page, "ann", "#who")


def test_the_account_is_the_reviewer_until_they_change_the_name(visit, tmp_path, serve):
    write_audit(tmp_path)
    made = serve(tmp_path, user="cleo")
    page = visit(made.address, "")
    press(page, "k", "Saved. 0.png: kept")
    assert made.store.current_decisions()[0].reviewer == "cleo"


def test_keys_pressed_faster_than_the_server_answers_lose_nothing(visit, tmp_path, serve):
    write_audit(tmp_path, 120)
    made = serve(tmp_path)
    page = visit(made.address, "ann")
    keys = ["krxu"[n % 4] for n in range(60)]
    hit = "document.dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true}))"
    page.evaluate(f"keys => keys.forEach(key => document.body.{hit.removeprefix('document.')})", keys[:59])
    page.keyboard.press("Backspace")  # the last of them is undone, and decided again
    page.keyboard.press(keys[58])
    page.keyboard.press(keys[59])
    see(page, "60 of 60", "#count")
    wanted = {"k": "keep", "x": "remove", "u": "unsure"}
    names = ["wren", "robin", "tit"]
    assert made.said() == {
        str(row): wanted.get(key, f"relabel {names[(row + 1) % 3]}")
        for row, key in zip(range(0, 120, 2), keys, strict=True)
    }


def test_two_reviewers_at_once_lose_nothing_and_see_how_they_agree(enter):
    ann, bob = enter("ann"), enter("bob")
    for row in range(0, 12, 2):
        press(ann, "k", f"Saved. {row}.png: kept")
        press(bob, "k" if row < 8 else "x", f"Saved. {row}.png: ")
    see(ann, "Done: 0 changed, 0 removed, ")
    assert len(download(ann, "decisions")) == 12
    bob.keyboard.press("p")
    see(bob, "ann and bob, labels60.00", "#table")  # ann always says keep: no better than chance
    see(bob, "2 disputed", "#table")
    bob.keyboard.press("Escape")
    api.expect(bob.locator("#people")).not_to_be_visible()
    bob.keyboard.press("f")
    bob.select_option("#show", "disputed")
    see(bob, "Disputed. ann: keep")


def test_confusions_say_what_the_answer_does_and_labels_can_be_decided_from_there(enter, server):
    page = enter("ann")
    page.keyboard.press("e")
    see(page, "The model takes this wren for robin. Would a person confuse these two?")
    see(page, "Your answer changes no label.")
    assert page.locator(".panel .large img").count() == 3
    page.click(".more summary")
    see(page, "+2.5 robin", ".harmful")
    see(page, "−3.0 wren", ".helpful")
    page.click(".harmful .thumb")
    page.click("#zoom button:text('Review this label')")
    see(page, "not flagged")
    see(page, "7.png")
    see(page, "aside", "#place")
    assert page.locator("#actions [data-key=r]").count() == 0  # no other label is suggested
    press(page, "x", "Saved. 7.png: removed")
    see(page, "The model takes this wren for robin.")  # where the queue was left
    press(page, "y", "Saved. 0.png: yes")
    press(page, "n", "Saved. 3.png: no")
    see(page, "2 of 2", "#count")
    assert server.said() == {"7": "remove", "0-1": "agreeable", "3-5": "disagreeable"}
    page.keyboard.press("o")
    see(page, "0.png")
    press(page, "Backspace", "Undone: disagreeable")
    see(page, "1 of 2", "#count")


def test_a_late_end_screen_does_not_replace_the_view_that_was_chosen_meanwhile(enter):
    page = enter("ann")
    held = []
    page.route("**/api/outcome*", lambda route: held.append(route))
    page.click("#finish")
    page.keyboard.press("o")
    see(page, "0.png")
    while not held:
        page.wait_for_timeout(20)
    with page.expect_response("**/api/outcome*"):
        held[0].continue_()
    page.wait_for_timeout(100)
    see(page, "0.png")


def test_filters_and_broken_pictures(enter):
    page = enter("ann")
    page.keyboard.press("/")
    page.keyboard.type("r")
    page.keyboard.press("Enter")
    see(page, "There is no class r.", "#said")  # robin, wren
    page.keyboard.press("/")
    page.keyboard.type("ROB")
    page.keyboard.press("Enter")
    page.fill("#suspicion", "0.75")
    page.locator("#suspicion").blur()
    see(page, "1 / 2", "#place")  # row 2 is no robin and does not look like one; row 6 is less suspicious
    page.keyboard.press("ArrowRight")
    see(page, "4.png")
    page.fill("#label", "")
    page.fill("#suspicion", "0")
    page.select_option("#among", "test")
    see(page, "8.png: there is no such file", ".large .broken")


def test_the_last_filter_wins_although_the_answer_to_an_earlier_one_is_late(enter):
    page = enter("ann")
    page.keyboard.press("f")
    held = []
    page.route("**/api/queue*among=train*", lambda route: held.append(route))
    page.select_option("#among", "train")
    page.select_option("#among", "test")
    page.keyboard.press("k")  # about what is on the screen, which is of neither: not taken
    while not held:
        page.wait_for_timeout(20)
    held[0].continue_()
    see(page, "8.png")
    see(page, "1 / 2", "#place")
    see(page, "0 of 6", "#count")


def test_decisions_wait_for_a_server_that_was_killed_and_came_back(visit, tmp_path):
    write_audit(tmp_path)
    process, address = start(tmp_path, 0)
    try:
        page = visit(address, "ann")
        press(page, "k", "Saved. 0.png: kept")
        kill(process)
        press(page, "x", "Not saved yet: 1. The server does not respond")
        press(page, "u", "Not saved yet: 2.")
        process, _ = start(tmp_path, urlsplit(address).port)  # with the same token the open page goes on
        see(page, "Saved. 4.png: unsure", "#said")
        page.reload()
        see(page, "6.png")
        assert [d["choice"] for d in download(page, "decisions")] == ["keep", "remove", "unsure"]
    finally:
        kill(process)


def test_a_refused_decision_brings_the_page_back_to_its_image(enter, server):
    page = enter("ann")
    refusal = {"status": 400, "content_type": "application/json", "body": '{"error": "review: no"}'}
    page.route("**/api/decide", lambda route: route.fulfill(**refusal))
    press(page, "k", "Not saved: review: no")
    see(page, "0.png")
    assert page.locator("button.chosen").count() == 0 and server.said() == {}


def test_without_pictures_the_page_shows_names(visit, tmp_path, serve):
    write_audit(tmp_path)
    made = serve(tmp_path, None)
    page = visit(made.address, "ann")
    see(page, "0.png", ".large")
    assert page.locator("img").count() == 0
    page.keyboard.press("g")
    see(page, "4.png", ".sheet")


def test_copies_with_two_labels_come_first_and_are_decided_at_once(visit, tmp_path, serve):
    write_copies(tmp_path)
    made = serve(tmp_path)
    page = visit(made.address, "ann")
    see(page, "The same image exists twice, with 2 labels. Which one is right?")
    assert page.locator(".beside .large img").count() == 2
    assert page.locator("button.advised").inner_text().startswith("It is ‘robin’")
    press(page, "2", "Saved. 0.png and its copy: changed to robin")
    assert made.said() == {"0": "relabel robin", "3": "keep"}
    see(page, "1 of 3", "#count")
    see(page, "1.png")
    press(page, "Backspace", "Undone: 0.png and its copy")
    assert made.said() == {}
    press(page, "1", "changed to wren")
    assert made.said() == {"0": "keep", "3": "relabel wren"}
    page.keyboard.press("f")
    page.select_option("#state", "off-topic")
    see(page, "This image seems to fit no class. Should it be removed?")
    press(page, "x", "Saved. 2.png: removed")
    assert {line["row"]: line["label"] for line in download(page, "corrected")} == {
        "0": "wren", "1": "robin", "3": "wren", "4": "wren", "5": "wren", "6": "robin",
    }  # fmt: skip


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
        one.click("#grid")
        one.click("#filter select, #sift")
        one.select_option("#show", "all")
        api.expect(one.locator("#said")).to_contain_text(
            "a request must carry the token; open the address that", timeout=60_000
        )
    finally:
        context.close()
        chat.shutdown()
        thread.join()
        chat.server_close()
        other.stop()


def test_an_address_keeps_bytes_that_are_not_utf_8(enter):
    page = enter("ann")
    encode = "text => import('/static/server.js').then(m => m.encoded(text))"
    assert page.evaluate(encode, "tit, blue/ü😀&") == "tit%2C%20blue%2F%C3%BC%F0%9F%98%80%26"
    assert page.evaluate("() => import('/static/server.js').then(m => m.encoded('a\\udcffb\\udc80'))") == "a%ffb%80"
