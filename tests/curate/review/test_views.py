"""The views around one decision, in a real browser: grid, zoom, labels beyond the flag, the end, dark mode, a phone."""

import csv
import re

import pytest

pytest.importorskip("fastapi", reason="the review page needs FastAPI")
pytest.importorskip("playwright", reason="the browser is driven by playwright")

from playwright import sync_api as api
from review_page import press, see, write_groups

pytestmark = pytest.mark.browser


def pick(page, row):
    return page.locator(f".tile[data-item='{row}'] .pick")


def selected(page):
    return [one.get_attribute("data-item") for one in page.locator(".tile:has(.pick[aria-pressed=true])").all()]


def test_many_labels_are_accepted_in_the_grid_and_undone_in_one_step(enter, server):
    page = enter("ann")
    page.keyboard.press("g")
    see(page, "6 labels look wrong. Select the ones that you agree with.")
    see(page, "wren→ robin", ".tile[data-item='0']")
    see(page, "80 %", ".tile[data-item='0']")
    page.fill("#above", "0.6")
    page.locator("#above").blur()
    page.keyboard.press("a")  # (1 - score) * 0.8: rows 0, 2 and 4
    assert selected(page) == ["0", "2", "4"]
    pick(page, 2).click()
    assert selected(page) == ["0", "4"]
    see(page, "Accept 2 suggestions", "#actions")
    press(page, "r", "Saved. 2 labels: changed.")
    assert server.said() == {"0": "relabel robin", "4": "relabel tit"}
    see(page, "2 of 6", "#count")
    assert page.locator(".tile").count() == 4
    pick(page, 2).click()
    pick(page, 8).click(modifiers=["Shift"])
    assert selected(page) == ["2", "6", "8"]
    press(page, "x", "Saved. 3 labels: removed.")
    press(page, "Backspace", "Undone: 3 labels.")
    assert server.said() == {"0": "relabel robin", "4": "relabel tit"} and selected(page) == ["2", "6", "8"]
    press(page, "Backspace", "Undone: 2 labels.")
    assert server.said() == {} and page.locator(".tile").count() == 6
    page.keyboard.press("Escape")
    assert selected(page) == []


def test_the_grid_by_keyboard(enter, server):
    page = enter("ann")
    page.keyboard.press("g")
    page.keyboard.press("ArrowDown")  # into the grid
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Space")
    assert selected(page) == ["2"]
    page.keyboard.press("Shift+ArrowRight")
    page.keyboard.press("Shift+ArrowRight")
    assert selected(page) == ["2", "4", "6"]
    page.keyboard.press("z")
    api.expect(page.locator("#zoom")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("l")
    page.fill("#pick", "sea gull")
    see(page, "Add the new class ‘sea gull’", "#matches")
    page.press("#pick", "Enter")
    see(page, "Saved. 3 labels: changed.", "#said")
    assert server.said() == dict.fromkeys(("2", "4", "6"), "relabel sea gull")
    page.keyboard.press("l")
    assert not page.locator("#choose").is_visible()  # nothing is selected


def test_the_grid_shows_one_kind_of_mistake_and_decided_ones_on_demand(enter):
    page = enter("ann")
    page.keyboard.press("g")
    page.keyboard.press("f")
    page.select_option("#move", label="wren → robin (2)")
    see(page, "2 labels look wrong.")
    assert [one.get_attribute("data-item") for one in page.locator(".tile").all()] == ["0", "6"]
    pick(page, 0).click()
    press(page, "k", "Saved. 0.png: kept.")
    page.select_option("#show", "all")
    see(page, "kept", ".tile[data-item='0']")
    pick(page, 6).dblclick()
    see(page, "Keep ‘wren’", "#actions")
    see(page, "6.png")


def test_images_are_shown_large(enter):
    page = enter("ann")
    page.click(".large")
    zoom = page.locator("#zoom")
    assert "/picture/0" in zoom.locator("img").get_attribute("src") and "large=true" in zoom.locator(
        "img"
    ).get_attribute("src")
    page.keyboard.press("Escape")
    api.expect(zoom).not_to_be_visible()
    page.keyboard.press("z")
    see(page, "wren 0.png", "#zoom")
    page.keyboard.press("k")  # no decision about an image that covers the buttons
    page.keyboard.press("z")
    api.expect(zoom).not_to_be_visible()
    see(page, "0.png")
    page.click(".claimed .thumb >> nth=0")
    first = zoom.locator("p").inner_text()
    page.keyboard.press("ArrowRight")
    assert zoom.locator("p").inner_text() != first
    zoom.locator(".whole").click()
    api.expect(zoom).not_to_be_visible()


def test_other_labels_are_those_of_all_splits_and_new_ones(enter, server):
    page = enter("ann")
    page.keyboard.press("l")
    assert page.locator("#matches [role=option]").all_inner_texts() == [
        "robin",
        "gull",
        "tit",
    ]  # the suggested one first
    page.keyboard.type("ul")
    assert page.locator("#matches [role=option]").all_inner_texts() == ["gull", "Add the new class ‘ul’"]
    page.keyboard.press("Enter")
    see(page, "changed to gull", "#said")  # a class of the other split
    page.keyboard.press("l")
    page.keyboard.type("heron")
    page.keyboard.press("Enter")
    page.keyboard.press("x")  # at once: the field of the dialog has the focus for another moment
    see(page, "Saved. 4.png: removed", "#said")
    assert server.said() == {"0": "relabel gull", "2": "relabel heron", "4": "remove"}


def test_after_the_flags_the_ranking_goes_on(enter, server):
    page = enter("ann")
    for row in range(0, 12, 2):
        press(page, "k", f"Saved. {row}.png: kept")
    see(page, "Done: 0 changed, 0 removed, 6 kept.")
    see(page, "Of the labels without a decision, about 1 is estimated to be wrong.")
    page.click("button:text('Continue with 7 labels not flagged')")
    see(page, "This label is not flagged: it is probably right. Is it?")
    see(page, "1.png")
    see(page, "+ 1", "#place")
    press(page, "x", "Saved. 1.png: removed")
    see(page, "3.png")
    assert server.said()["1"] == "remove"
    page.keyboard.press("g")
    assert page.locator(".tile .badge").all_inner_texts() == ["not flagged"] * 6


def test_help_details_and_paths(enter):
    page = enter("ann")
    page.keyboard.press("?")
    see(page, "change to the suggested label", "#keys")
    page.keyboard.press("Escape")
    assert page.locator(".more dl").is_hidden()  # rows and scores are for those who ask
    page.click(".more summary")
    see(page, "suspicion1.000", ".more")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.click(".copy")
    see(page, "Copied: /birds/0.png", "#said")
    assert page.evaluate("navigator.clipboard.readText()") == "/birds/0.png"


def test_what_the_neighbours_say(enter):
    page = enter("ann")
    sentence = """async labels => {
      const { similar } = await import('/static/item.js');
      const holder = document.createElement('p');
      holder.append(...similar(labels.map(label => ({ label }))));
      return holder.textContent;
    }"""
    assert page.evaluate(sentence, ["tit"] * 6) == "All 6 most similar images are tit."
    assert page.evaluate(sentence, ["tit"]) == "The most similar image is tit."
    assert page.evaluate(sentence, ["tit", "owl", "tit"]) == "2 of the 3 most similar images are tit, 1 is owl."


def test_finish_writes_the_table_and_ends_the_server(enter, server):
    page = enter("ann")
    press(page, "r", "Saved. 0.png: changed to robin")
    page.click("#finish")
    see(page, "So far: 1 changed, 0 removed, 0 kept.")
    see(page, "5 labels are still to review.")
    see(page, f"likewise train {server.table}", ".commands")
    page.click("button:text('Back to the review')")
    see(page, "2.png")
    page.click("#finish")
    page.click("main button:text-is('Finish')")
    see(page, "Finished: 1 changed, 0 removed, 0 kept.")
    see(page, f"The corrected table is {server.table}.")
    server.thread.join(30)
    assert not server.thread.is_alive()
    with open(server.table, newline="") as file:
        assert next(csv.DictReader(file))["label"] == "robin"


def test_dark_at_night(enter):
    page = enter("ann", color_scheme="dark")
    light = "e => getComputedStyle(e)[%r].match(/\\d+/g).slice(0, 3).reduce((a, b) => a + Number(b), 0)"
    for place in ("body", "header", "#actions .other"):
        assert page.locator(place).first.evaluate(light % "backgroundColor") < 200
        assert page.locator(place).first.evaluate(light % "color") > 550
    page.keyboard.press("?")
    assert page.locator("#keys").evaluate(light % "backgroundColor") < 200
    page.keyboard.press("Escape")
    page.emulate_media(color_scheme="light")
    assert page.locator("body").evaluate(light % "backgroundColor") > 700


def test_on_a_phone_image_label_and_suggestion_are_in_the_first_screen(enter):
    page = enter("ann", viewport={"width": 390, "height": 844}, has_touch=True)
    page.wait_for_selector(".instead .thumb")
    tops = [page.locator(one).first.bounding_box()["y"] for one in (".large", ".claimed h2", "#actions .keep")]
    assert tops == sorted(tops)
    for one in (
        ".question",
        ".large",
        ".claimed h2",
        ".instead h2",
        ".claimed .thumb >> nth=0",
        ".instead .thumb >> nth=0",
    ):
        api.expect(page.locator(one).first).to_be_in_viewport(ratio=1)
    assert page.locator("#filter").is_hidden()
    for button in page.locator("#actions button").all():
        assert button.bounding_box()["height"] >= 44
    page.locator("#sift").tap()
    api.expect(page.locator("#label")).to_be_visible()
    page.locator("#sift").tap()
    page.locator("#grid").tap()
    pick(page, 0).tap()
    pick(page, 4).tap()
    page.locator("#actions .relabel").tap()
    see(page, "Saved. 2 labels: changed.", "#said")


def test_nothing_is_cut_off_on_a_desk_or_a_phone(enter):
    page = enter("ann")
    for width, height in ((1440, 900), (1024, 700), (390, 844)):
        page.set_viewport_size({"width": width, "height": height})
        for tab, word in (("#pairs", "Yes"), ("#one", "Change to"), ("#groups", "Accept"), ("#grid", "")):
            page.click(tab)
            see(page, word, "#actions")
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            for button in page.locator("footer button, header button:visible").all():
                api.expect(button).to_be_in_viewport(ratio=1)


def test_everything_has_a_name_for_those_who_do_not_see_it(enter):
    page = enter("ann")
    nameless = """() => [...document.querySelectorAll('button, input, select, a')].filter(e => e.offsetParent !== null
        && !(e.getAttribute('aria-label')
        || e.alt || e.textContent.trim() || e.querySelector('img[alt]:not([alt=""])') || e.closest('label')
        || (e.id && document.querySelector(`label[for=${e.id}]`)))).map(e => e.outerHTML)"""
    for key in "ogeb":
        page.keyboard.press(key)
        page.wait_for_timeout(200)
        assert page.evaluate(nameless) == []


def test_a_suggested_removal_has_its_reason_beside_the_button(tmp_path, serve, visit):
    """Row 14 has no likely label, row 19 fits no class, and row 0 has a likely label."""
    write_groups(tmp_path, weak=(14,))
    page = visit(serve(tmp_path).address, "ann")
    for row, reason in ((14, "no likely label: robin has 12 %"), (19, "fits no class: 97 %")):
        while page.locator("main .file").first.inner_text() != f"{row}.png":
            page.keyboard.press("ArrowRight")
            page.wait_for_timeout(50)
        api.expect(page.locator("#actions .remove + .why")).to_have_text(reason)
        api.expect(page.locator("#actions .remove")).to_have_class(re.compile("advised"))
    page.reload()
    page.wait_for_selector("#actions .label")  # copies come first
    page.keyboard.press("ArrowRight")
    see(page, "Change to", "#actions .advised")
    assert page.locator("#actions .why").count() == 0


def test_one_button_is_called_finish(enter):
    page = enter("ann")
    finish = page.locator("button:visible", has_text="Finish")
    assert finish.evaluate_all("all => all.map(one => one.id)") == ["finish"]
    finish.click()
    see(page, "So far:")
    assert finish.evaluate_all("all => all.map(one => one.textContent)") == ["Finish"]
