"""ReviewWidget: questions, decisions in the same store as the page, undo, the corrected table, and its view in a browser."""

import csv
import json

import pytest
from audit_folder import write_audit as write_other_audit
from PIL import Image
from review_page import write_audit, write_copies

pytest.importorskip("anywidget", reason="needs likewise[notebook]")

from likewise.errors import LikewiseError
from widget_page import View

from likewise import ReviewWidget
from likewise.curate.audit.audit import Audited
from likewise.curate.audit.read import read_findings
from likewise.curate.review.items import flagged_questions
from likewise.curate.review.store import Store


@pytest.fixture
def audit(tmp_path):
    """An audit of 13 birds, of which 0, 2, 4, 6, 8 and 10 are flagged; 8 has no file."""
    write_audit(tmp_path)
    about = json.loads((tmp_path / "audit.json").read_text())
    (tmp_path / "audit.json").write_text(json.dumps(about | {"root": str(tmp_path)}))
    for row in range(13):
        if row != 8:
            Image.new("RGB", (90, 60), (row * 20, 120, 200)).save(tmp_path / f"{row}.png")
    return tmp_path


@pytest.fixture
def widget(audit):
    made = ReviewWidget(audit, reviewer="ann")
    yield made
    made.close()


def order(folder):
    return list(flagged_questions(read_findings(folder)))


def press(widget, action, **more):
    """Send a message as the view does."""
    widget._handle_custom_msg({"do": action, **more}, [])


def test_it_begins_with_the_most_suspect_label(widget, audit):
    assert order(audit) == ["0", "2", "4", "6", "8", "10"]
    assert (widget.question["item"], widget.question["label"], widget.question["suggested"]) == ("0", "wren", "robin")
    assert widget.progress == {"done": 0, "whole": 6, "place": 0}
    assert widget.classes == ["gull", "robin", "tit", "wren"] and widget.pictures
    assert {one["label"] for one in widget.question["panels"][0]["claimed"]} == {"wren"}
    assert widget.question["ahead"] == [2]


def test_no_path_is_sent_to_the_browser(widget, audit):
    state = {name: value for name, value in widget.get_state().items() if name not in ("_esm", "_css")}
    assert str(audit) not in json.dumps(state, default=str)


def test_decisions_are_stored_and_the_next_open_question_is_shown(widget):
    press(widget, "decide", item="0", choice="relabel", label="robin")
    press(widget, "decide", item="2", choice="keep")
    press(widget, "decide", item="4", choice="remove")
    press(widget, "decide", item="6", choice="unsure")
    made = [(d.reviewer, d.item, d.choice, d.label) for d in widget.decisions]
    assert made == [
        ("ann", "0", "relabel", "robin"), ("ann", "2", "keep", ""), ("ann", "4", "remove", ""), ("ann", "6", "unsure", ""),
    ]  # fmt: skip
    assert widget.question["item"] == "8" and widget.progress == {"done": 4, "whole": 6, "place": 4}


def test_a_key_that_arrives_twice_decides_once(widget):
    press(widget, "decide", item="0", choice="keep")
    press(widget, "decide", item="0", choice="keep")
    assert len(widget.decisions) == 1 and widget.question["item"] == "2"


def test_skipped_questions_come_back_and_then_the_end(widget):
    press(widget, "go", step=1)
    for item in ("2", "4", "6", "8", "10"):
        assert widget.question["item"] == item
        widget.decide("keep")
    assert widget.question["item"] == "0"
    widget.decide("keep")
    assert widget.question == {} and widget.progress == {"done": 6, "whole": 6, "place": 6}
    with pytest.raises(LikewiseError, match="item must be a question of this audit, got None"):
        widget.decide("keep")
    press(widget, "go", step=1)
    assert widget.question == {}
    press(widget, "go", step=-1)
    assert (widget.question["item"], widget.question["choice"]) == ("10", "keep")


def test_undo_shows_the_question_again(widget):
    widget.decide("relabel", "robin")
    widget.decide("remove")
    press(widget, "undo")
    assert widget.question["item"] == "2" and widget.message == "Undone: remove."
    press(widget, "undo")
    assert widget.question["item"] == "0" and widget.message == "Undone: relabel robin." and widget.decisions == []
    press(widget, "undo")
    assert "there is no decision to undo" in widget.message


def test_the_page_and_the_widget_share_their_decisions(widget, audit):
    widget.decide("keep")
    page = Store(audit / "decisions.sqlite", read_findings(audit))
    assert [(d.item, d.choice) for d in page.current_decisions()] == [("0", "keep")]
    page.decide("ann", "2", "relabel", "wren")
    page.decide("ann", "7", "remove")  # a label that is not flagged, which only the page shows
    page.close()
    again = ReviewWidget(audit, reviewer="ann")
    assert again.question["item"] == "4" and again.progress["done"] == 2
    assert [d.item for d in again.undo()] == ["7"] and again.question["item"] == "4"
    other = ReviewWidget(audit, reviewer="bob")
    assert other.question["item"] == "0" and other.question["choice"] == ""
    again.close()
    other.close()


def test_the_corrected_table_has_the_decisions(widget, audit):
    assert widget.write_corrected() is None and not (audit / "corrected.csv").exists()
    press(widget, "write")
    assert widget.message == "Nothing is decided yet, so nothing was written."
    widget.decide("relabel", "robin")
    widget.decide("remove")
    assert widget.write_corrected() == audit / "corrected.csv"
    with open(audit / "corrected.csv", newline="") as file:
        label = {line["path"]: line["label"] for line in csv.DictReader(file)}
    assert label[str(audit / "0.png")] == "robin" and str(audit / "2.png") not in label and len(label) == 12
    press(widget, "write")
    assert widget.message == f"Written: {audit / 'corrected.csv'}"


def test_a_new_class_must_be_meant(widget):
    press(widget, "decide", item="0", choice="relabel", label="robbin")
    assert "a new label must be a class of this audit, got 'robbin'" in widget.message and not widget.decisions
    press(widget, "decide", item="0", choice="relabel", label="owl", new_class=True)
    assert widget.message == "" and widget.decisions[0].label == "owl" and "owl" in widget.classes


def test_copies_of_an_image_are_decided_together(tmp_path):
    write_copies(tmp_path)
    widget = ReviewWidget(tmp_path, reviewer="ann")
    assert widget.question["rows"] == [0, 3]
    right = widget.question["labels"][1]
    widget.decide("relabel", right)
    assert {(d.item, d.choice, d.label) for d in widget.decisions} == {("0", "relabel", right), ("3", "keep", "")}
    assert len(widget.undo()) == 2 and widget.question["rows"] == [0, 3]
    widget.close()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"do": "decide", "item": "0", "choice": "maybe"}, "the choice for a sample must be one of"),
        ({"do": "decide", "item": "1", "choice": "keep"}, "item must be a question of this audit, got '1'"),
        ({"do": "decide", "item": 0, "choice": "keep"}, "choice, label and item must be texts"),
        ({"do": "decide", "item": "0", "choice": "relabel", "label": "wren"}, "is labelled 'wren' already"),
        ({"do": "go", "step": 10**9}, "an action must be decide, undo, go or write"),
        ({"do": "delete"}, "an action must be decide, undo, go or write"),
    ],
)
def test_a_bad_message_changes_nothing(widget, content, words):
    widget._handle_custom_msg(content, [])
    assert words in widget.message and widget.decisions == [] and widget.question["item"] == "0"


def test_images_are_loaded_by_row(widget, audit):
    assert widget.load_image(2).size == (90, 60)
    for row in (99, -1):
        with pytest.raises(LikewiseError, match="has no image"):
            widget.load_image(row)
    with pytest.raises(LikewiseError, match=r"8\.png"):
        widget.load_image(8)


def test_bad_arguments_and_folders(tmp_path, audit):
    with pytest.raises(LikewiseError, match="ReviewWidget: audit must be a folder .* got a int"):
        ReviewWidget(3)
    with pytest.raises(LikewiseError, match="ReviewWidget: the folder must be an audit"):
        ReviewWidget(tmp_path / "nothing")
    with pytest.raises(LikewiseError, match="reviewer must be a name"):
        ReviewWidget(audit, reviewer=" ")
    ReviewWidget(audit, reviewer="ann").close()
    write_other_audit(audit)
    with pytest.raises(LikewiseError, match="holds decisions about other samples"):
        ReviewWidget(audit)


def test_the_result_of_an_audit_and_the_name_of_the_account(audit, monkeypatch):
    monkeypatch.setattr("getpass.getuser", lambda: "eve")
    widget = ReviewWidget(Audited(audit, {}))
    assert widget.decide("keep")[0].reviewer == "eve"
    widget.close()


@pytest.fixture
def view(browser, widget):
    made = View(browser, widget)
    yield made
    made.close()


@pytest.mark.browser
def test_the_view_shows_a_question_and_sends_what_is_clicked(view, widget):
    page = view.page
    first = view.answer()
    assert all(one["do"] == "image" for one in first) and {"do": "image", "row": 0, "large": True} in first
    page.wait_for_selector(".lw-large img[src^='data:image/jpeg']")
    assert "Labelled wren, looks like robin" in page.inner_text("h3")
    assert page.inner_text(".lw-count") == "0 of 6 reviewed, label 1"
    page.click("text=Change to robin")
    assert [one for one in view.answer() if one["do"] != "image"] == [
        {"do": "decide", "item": "0", "choice": "relabel", "label": "robin", "new_class": False}
    ]
    assert page.inner_text(".lw-count") == "1 of 6 reviewed, label 2"
    page.click("text=Keep tit")
    view.answer()
    page.click("text=Remove")
    view.answer()
    assert [(d.item, d.choice, d.label) for d in widget.decisions] == [
        ("0", "relabel", "robin"), ("2", "keep", ""), ("4", "remove", ""),
    ]  # fmt: skip
    page.click("text=Write corrected.csv")
    view.answer()
    assert page.inner_text(".lw-message").startswith("Written: ")


@pytest.mark.browser
def test_the_keys_of_the_view_and_no_key_of_the_notebook(view, widget):
    page = view.page
    view.answer()
    page.evaluate("() => { window.leaked = []; document.addEventListener('keydown', (e) => leaked.push(e.key)); }")
    page.focus(".lw-review")
    for key in ("k", "r", "x", "u", "Backspace", "ArrowLeft", "ArrowRight", "d"):
        page.keyboard.press(key)
        view.answer()
    assert [(d.item, d.choice) for d in widget.decisions] == [("0", "keep"), ("2", "relabel"), ("4", "remove")]
    assert widget.question["item"] == "6" and page.evaluate("() => leaked") == []
    unsafe = page.locator(":is(button, input, [tabindex]):not([data-lm-suppress-shortcuts])")
    assert unsafe.count() == 0 and page.locator("button[data-lm-suppress-shortcuts]").count() > 5
    page.keyboard.press("Control+k")
    assert view.answer() == []


@pytest.mark.browser
def test_another_label_is_typed_and_an_error_is_shown(view, widget):
    page = view.page
    view.answer()
    page.focus(".lw-review")
    page.keyboard.press("l")
    page.keyboard.type("lark")
    page.keyboard.press("Enter")
    view.answer()
    assert "a new label must be a class of this audit, got 'lark'" in page.inner_text(".lw-message")
    page.keyboard.press("l")
    page.keyboard.type("lark")
    page.check("input[type=checkbox]")
    page.click(".lw-other button")
    view.answer()
    assert [(d.item, d.label) for d in widget.decisions] == [("0", "lark")] and page.inner_text(".lw-message") == ""
    assert page.evaluate("() => [...document.querySelectorAll('option')].map((o) => o.value)") == widget.classes


@pytest.mark.browser
def test_a_missing_image_shows_its_reason_and_the_last_question_an_end(view, widget):
    for _ in range(4):
        widget.decide("keep")
    view.page.click("text=Next")
    view.answer()
    view.page.click("text=Back")
    view.answer()
    assert "8.png" in view.page.inner_text(".lw-large .lw-missing")
    for _ in range(2):
        view.page.click("text=Keep")
        view.answer()
    assert view.page.inner_text(".lw-end") == "The last label is reached: 6 of 6 are reviewed."
    view.page.click("text=Undo")
    view.answer()
    assert widget.question["item"] == "10" and view.page.is_visible("text=Keep")


@pytest.mark.browser
def test_copies_in_the_view_have_a_button_per_label(browser, tmp_path):
    write_copies(tmp_path)
    widget = ReviewWidget(tmp_path, reviewer="ann")
    view, right = View(browser, widget), widget.question["labels"][1]
    view.answer()
    assert "exists 2 times" in view.page.inner_text("h3")
    view.page.click(f"text=It is {right}")
    view.answer()
    assert {(d.item, d.choice, d.label) for d in widget.decisions} == {("0", "relabel", right), ("3", "keep", "")}
    view.close()
    widget.close()
