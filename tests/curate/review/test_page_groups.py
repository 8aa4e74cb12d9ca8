"""Groups on the review page, in a real browser: many labels in one decision, with exceptions, by keys, clicks and touch."""

from urllib.parse import urlsplit

import pytest

pytest.importorskip("fastapi", reason="the review page needs FastAPI")
pytest.importorskip("playwright", reason="the browser is driven by playwright")

from playwright import sync_api as api
from review_page import kill, press, see, start, write_groups, write_sets

pytestmark = pytest.mark.browser

TITS = [str(row) for row in range(14)]


@pytest.fixture
def audited(tmp_path):
    write_groups(tmp_path)
    return tmp_path


@pytest.fixture
def group(enter):
    """The page of a reviewer on the first group."""

    def group(**how):
        page = enter("ann", **how)
        page.keyboard.press("b")
        see(page, "14 images look like tit. Labelled wren and robin.")
        return page

    return group


def pick(page, row):
    return page.locator(f"#group .tile[data-item='{row}'] .pick")


def kept(page):
    return page.eval_on_selector_all(
        "#group .pick[aria-pressed=false]", "found => found.map(one => one.parentElement.dataset.item)"
    )


def test_a_group_is_one_decision_with_exceptions_and_one_undo(group, server):
    page = group()
    see(page, "Accept 14", "#actions")
    pick(page, 3).click()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Space")
    assert kept(page) == ["3", "4"]
    see(page, "Accept 12, keep 2", "#actions")
    press(page, "Enter", "Saved. 14 labels: 12 changed, 2 kept.")
    wanted = dict.fromkeys(TITS, "relabel tit") | {"3": "keep", "4": "keep"}
    assert server.said() == wanted
    see(page, "6 labels left", "#plan")  # the new plan knows this decision
    press(page, "Backspace", "Undone: 14 labels.")
    see(page, "14 images look like tit.")
    assert server.said() == {} and kept(page) == ["3", "4"]
    pick(page, 4).click()
    press(page, "Enter", "Saved. 14 labels: 13 changed, 1 kept.")
    assert server.said() == wanted | {"4": "relabel tit"}
    see(page, "14 of 20", "#count")


def test_an_undo_after_a_reload_brings_the_group_back(group, server):
    page = group()
    pick(page, 3).click()
    press(page, "Enter", "Saved. 14 labels")
    page.reload()
    page.wait_for_selector("#actions button")
    page.keyboard.press("b")
    page.wait_for_selector("#groups[aria-pressed=true]")
    press(page, "Backspace", "Undone: 14 labels.")
    see(page, "14 images look like tit.")
    assert server.said() == {} and kept(page) == ["3"]


def test_some_are_removed_relabelled_or_unsure_and_the_rest_stays(group, server):
    page = group()
    page.keyboard.press("Escape")
    assert len(kept(page)) == 14
    see(page, "Keep 14", "#actions")
    pick(page, 0).click()
    press(page, "x", "Saved. 0.png: removed.")
    see(page, "13 images look like tit.")
    assert kept(page) == []
    page.keyboard.press("Escape")
    pick(page, 1).click()
    pick(page, 2).click()
    page.keyboard.press("l")
    page.fill("#pick", "owl")
    page.press("#pick", "Enter")
    see(page, "Saved. 2 labels: changed.", "#said")
    page.keyboard.press("Escape")
    pick(page, 5).click()
    press(page, "u", "Saved. 5.png: unsure.")
    see(page, "10 images look like tit.")
    press(page, "k", "Saved. 10 labels: kept.")
    assert server.said() == {
        "0": "remove", "1": "relabel owl", "2": "relabel owl", "5": "unsure",
        **dict.fromkeys(set(TITS) - {"0", "1", "2", "5"}, "keep"),
    }  # fmt: skip
    press(page, "Backspace", "Undone: 10 labels.")
    press(page, "Backspace", "Undone: 5.png.")
    see(page, "11 images look like tit.")


def seen_groups(page, keys):
    """Press the keys that decide about each kind of group, until the end; return the headlines."""
    found = []
    while True:
        page.wait_for_selector("main.groups, main.copies, main.ending")
        if page.locator("main.ending").count():
            return found
        found.append(page.locator("main h2.question").inner_text())
        kind = next((name for name in keys if name in found[-1]), "")
        page.keyboard.press(keys[kind])
        api.expect(page.locator("main h2.question", has_text=found[-1])).to_have_count(0, timeout=60_000)


def test_every_kind_of_group_and_the_end(group, server):
    page = group()
    page.keyboard.press("s")  # later
    headlines = seen_groups(page, {"same image": "2", "fit no class": "Enter", "own suggestion": "Enter", "": "Enter"})
    assert sorted(headlines) == [
        "2 images seem to fit no class. Labelled tit.",
        "3 images, each with its own suggestion.",
        "The same image exists twice, with 2 labels. Which one is right?",
    ]
    see(page, "14 labels are still to review.")
    page.click("button:text('Back to the review')")
    see(page, "14 images look like tit.")  # the group that was skipped
    press(page, "Enter", "Saved. 14 labels: changed.")
    see(page, "Done: 18 changed, 2 removed, 0 kept.")
    assert server.said() == {
        **dict.fromkeys(TITS, "relabel tit"), "14": "relabel robin", "15": "relabel wren", "16": "relabel wren",
        "17": "relabel robin", "18": "keep", "19": "remove", "20": "remove",
    }  # fmt: skip


def test_a_suggestion_below_one_half_is_not_selected(visit, tmp_path, serve):
    """Of three images with suggestions of their own, 14 and 16 have a probability of 0.12."""
    write_groups(tmp_path, weak=(14, 16))
    made = serve(tmp_path)
    page = visit(made.address, "ann")
    page.keyboard.press("b")
    while "own suggestion" not in page.locator("main h2.question").inner_text():
        page.keyboard.press("s")
    see(page, "Without a mark (below 50 %): stays open.", ".how")
    assert page.locator("#group .open").count() == 2 and pick(page, 15).get_attribute("aria-pressed") == "true"
    see(page, "Accept 1", "#actions [data-key=Enter]")
    press(page, "Enter", "Saved. 15.png: changed to wren.")
    see(page, "2 images, each with its own suggestion.")
    api.expect(page.locator("#actions [data-key=Enter]")).to_be_disabled()
    page.keyboard.press("Enter")  # nothing is chosen
    pick(page, 14).click()
    see(page, "Accept 1", "#actions [data-key=Enter]")
    press(page, "Enter", "Saved. 14.png: changed to robin.")
    see(page, "One image with its own suggestion.")
    assert made.said() == {"15": "relabel wren", "14": "relabel robin"}
    press(page, "Backspace", "Undone: 14.png.")
    see(page, "2 images, each with its own suggestion.")
    assert page.locator("#group .open").count() == 1  # 14 is selected again
    page.keyboard.press("Escape")
    assert kept(page) == ["14", "16"] and page.locator("#group .open").count() == 0
    press(page, "Enter", "Saved. 2 labels: kept.")


def test_each_image_shows_its_own_suggestion_and_examples_of_both_classes(group):
    page = group()
    pick(page, 0).focus()
    see(page, "Examples of tit", "#examples .instead")
    see(page, "Examples of wren", "#examples .claimed")
    page.keyboard.press("s")
    while "own suggestion" not in page.locator("main h2.question").inner_text():
        page.keyboard.press("s")
    see(page, "→ robin", "#group .tile[data-item='14']")
    pick(page, 15).click()
    see(page, "Examples of wren", "#examples .instead")
    page.keyboard.press("z")
    see(page, "robin 15.png", "#zoom")
    page.keyboard.press("ArrowLeft")
    see(page, "wren 14.png", "#zoom")


def test_enter_presses_the_button_in_focus(group, server):
    page = group()
    page.locator("#actions [data-key=s]").focus()
    page.keyboard.press("Enter")  # Skip, not Accept
    api.expect(page.locator("main h2.question")).not_to_contain_text("look like tit", timeout=60_000)
    page.locator("#help").focus()
    page.keyboard.press("Enter")
    api.expect(page.locator("#keys")).to_be_visible()
    assert server.said() == {}


def test_the_filter_narrows_groups(group):
    page = group()
    page.keyboard.press("f")
    page.select_option("#move", label="robin → tit (6)")
    see(page, "6 images look like tit. Labelled robin.")


@pytest.mark.parametrize("size", [(1280, 800), (390, 844)])
def test_the_whole_group_is_on_the_screen(group, size):
    page = group(viewport=dict(zip(("width", "height"), size, strict=True)), has_touch=True)
    page.wait_for_selector("#examples .thumb")
    for one in (*page.locator("#group .pick").all(), *page.locator("#actions button, #moves button").all()):
        api.expect(one).to_be_in_viewport(ratio=1)
    assert pick(page, 0).bounding_box()["width"] >= 64
    assert page.evaluate("document.documentElement.scrollWidth") <= size[0]


BROKEN_WORDS = """() => [...document.querySelectorAll("#actions .text, .how, #group .words *")].flatMap((one) => {
  const found = [];
  for (const node of [...one.childNodes].filter((child) => child.nodeType === Node.TEXT_NODE)) {
    for (const word of node.data.matchAll(/\\S+/g)) {
      const range = document.createRange();
      range.setStart(node, word.index);
      range.setEnd(node, word.index + word[0].length);
      if (new Set([...range.getClientRects()].map((box) => Math.round(box.top))).size !== 1) found.push(word[0]);
    }
  }
  return one.scrollHeight > one.clientHeight + 1 ? [...found, `cut: ${one.textContent}`] : found;
})"""
"""Words that are broken over two lines, and texts that are cut off."""


def test_a_phone_shows_both_labels_whole_and_what_a_selection_means(group):
    page = group(viewport={"width": 390, "height": 844}, has_touch=True)
    see(
        page,
        "Marked ✓: gets the suggested label. Marked keep: stays as it is. Tap an image to change its mark.",
        ".how",
    )
    while "own suggestion" not in page.locator("main h2.question").inner_text():
        assert page.evaluate(BROKEN_WORDS) == []
        page.locator("#actions [data-key=s]").tap()
    see(page, "wren", "#group .tile[data-item='14'] .given")
    see(page, "→ robin", "#group .tile[data-item='14'] .new")
    assert page.evaluate(BROKEN_WORDS) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_touch_selects_and_a_long_press_shows_the_image_large(group, server):
    page = group(viewport={"width": 390, "height": 844}, has_touch=True)
    pick(page, 3).tap()
    assert kept(page) == ["3"]
    hold = "(one, kind) => one.dispatchEvent(new PointerEvent(kind, { pointerType: 'touch', bubbles: true }))"
    pick(page, 5).evaluate(hold, "pointerdown")
    api.expect(page.locator("#zoom")).to_be_visible(timeout=60_000)
    pick(page, 5).evaluate("one => one.click()")  # the click that ends a long press selects nothing
    page.keyboard.press("Escape")
    assert kept(page) == ["3"]
    page.locator("#actions [data-key=Enter]").tap()
    see(page, "Saved. 14 labels: 13 changed, 1 kept.", "#said")
    assert server.said()["3"] == "keep"


def test_a_refused_decision_brings_the_group_back_with_its_selection(group, server):
    page = group()
    refusal = {"status": 400, "content_type": "application/json", "body": '{"error": "review: no"}'}
    page.route("**/api/decide", lambda route: route.fulfill(**refusal))
    pick(page, 3).click()
    press(page, "Enter", "Not saved: review: no")
    see(page, "14 images look like tit.")
    assert kept(page) == ["3"] and server.said() == {}


def test_groups_wait_for_a_server_that_was_killed_and_came_back(visit, tmp_path):
    write_groups(tmp_path)
    process, address = start(tmp_path, 0)
    try:
        page = visit(address, "ann")
        page.keyboard.press("b")
        see(page, "14 images look like tit.")
        kill(process)
        pick(page, 3).click()
        press(page, "Enter", "Not saved yet: 1. The server does not respond")
        headlines = seen_groups(page, {"same image": "1", "": "Enter"})
        assert len(headlines) == 3
        process, _ = start(tmp_path, urlsplit(address).port)
        see(page, "20 of 20", "#count")
        see(page, "Done: 17 changed, 2 removed, 1 kept.")
    finally:
        kill(process)


def test_groups_of_labels_of_samples_with_several_labels(visit, tmp_path, serve):
    made = serve(write_sets(tmp_path))
    page = visit(made.address, "ann")
    page.keyboard.press("b")
    see(page, "2 images, each with its own suggestion.")  # two small groups share the screen
    see(page, "With striped", "#examples")
    see(page, "+ striped", "#group .tile >> nth=0")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Space")
    press(page, "Enter", "Saved. 2 labels: 1 added, 1 kept.")
    assert made.said() == {"0:striped": "add", "1:red": "keep"}
    see(page, "Done: 1 added")
    press(page, "Backspace", "Undone: 2 labels.")
    page.keyboard.press("f")
    page.select_option("#state", "missing")
    see(page, "This image may lack the label striped.")
    page.select_option("#state", "superfluous")
    see(page, "This image has the label red, probably wrongly.")
    press(page, "Enter", "Saved. red, 1.png: removed")
