"""Review of samples with several labels: questions, decisions per row and label, consensus, undo, and the corrected table."""

import csv
import io

import pytest

pytest.importorskip("fastapi", reason="the review page needs FastAPI")

from fastapi.testclient import TestClient
from likewise.config import Apply
from likewise.errors import LikewiseError
from review_page import KEY, press, see, write_sets

from likewise.curate.audit.apply import apply
from likewise.curate.audit.read import read_findings
from likewise.curate.review.consensus import as_csv, changes, corrected, outcome, write_corrected_table
from likewise.curate.review.items import ItemFilter, Questioned
from likewise.curate.review.review_page import Served, make_app
from likewise.curate.review.store import Store, kind_of


@pytest.fixture
def store(tmp_path):
    found = Store(tmp_path / "decisions.sqlite", read_findings(write_sets(tmp_path)))
    yield found
    found.close()


def test_questions_and_their_content(store):
    findings = store.findings
    asked = Questioned(findings)
    assert list(asked.flagged) == ["0:striped", "1:red"] and list(asked.others) == ["3:dress", "2:rare/odd"]
    assert asked.rows("1:red") == (1,) and asked.progress("label", {"1:red", "3:dress"}) == {"done": 1, "whole": 2}
    assert kind_of(findings, "0:striped") == "label"
    tile = asked.tile("0:striped", {})
    assert tile["tags"] == ["dress", "red"] and tile["question"] == "missing" and tile["advice"] == "add"
    panel = asked.content("0:striped", "/c")["panels"][0]
    assert [one["row"] for one in panel["with"]] == [3] and [one["row"] for one in panel["without"]] == [1, 2]
    assert panel["file"] == "/c/0.png"
    for wanted, matches in (
        ({}, True),
        ({"label": "red"}, False),
        ({"state": "missing"}, True),
        ({"suspicion": 0.95}, False),
    ):
        assert asked.matches("0:striped", ItemFilter("label", **wanted)) is matches


def test_decisions_per_row_and_label(store, tmp_path):
    store.decide("ann", "0:striped", "add")
    store.decide("ann", "1:red", "remove")
    store.decide("bob", "1:red", "keep")
    store.decide("ann", "2:rare/odd", "unsure")
    made, findings = store.current_decisions(), store.findings
    assert outcome(findings, made) == (1, 0, 0, 1, 1, pytest.approx(2.5 - 0.9))
    table = {
        line["path"]: line["labels"] for line in csv.DictReader(io.StringIO(as_csv(corrected(findings, made, "/c"))))
    }
    assert list(table) == [f"/c/{row}.png" for row in range(4)]
    assert list(table.values()) == ["dress|red|striped", "blue|red", "dress|rare/odd", "blue|striped"]
    store.decide("bob", "1:red", "remove")
    assert [d.item for d in store.undo("ann")] == ["2:rare/odd"]
    file = write_corrected_table(store, tmp_path / "corrected.csv", "/c")
    assert file is not None and "/c/1.png,blue," in file.read_text()
    lines = changes(findings, store.current_decisions())
    assert [line[3:5] for line in lines[1:]] == [("striped", "add"), ("red", "remove")]
    shown = apply(Apply(table=str(file)), print).lines()
    assert "2 images relabelled" in shown[0]
    with pytest.raises(LikewiseError, match="train on the table"):
        apply(Apply(table=str(file), to=str(tmp_path / "new")), print)


def test_a_sample_without_labels_left_is_gone(store):
    store.decide("ann", "2:rare/odd", "remove")
    (question,) = [q for q in (store.findings.questions or {}).values() if q.row == 2]
    findings = store.findings
    findings.sample[2] = findings.sample[2]._replace(label=question.label)
    assert [line[0] for line in corrected(findings, store.current_decisions())] == ["path", "0.png", "1.png", "3.png"]


@pytest.mark.parametrize(
    ("item", "choice", "message"),
    [
        ("0:striped", "remove", "the choice for a missing label must be one of keep, add, unsure"),
        ("1:red", "add", "the choice for a superfluous label must be one of keep, remove, unsure"),
        ("0", "remove", "samples with several labels are decided label by label"),
        ("9:red", "keep", "an item must be a row or a pair of this audit"),
    ],
)
def test_other_choices_are_refused(store, item, choice, message):
    with pytest.raises(LikewiseError, match=message):
        store.decide("ann", item, choice)


def test_routes(store):
    client = TestClient(make_app(store, KEY, Served()), headers={"Authorization": f"Bearer {KEY}"})
    client.get(f"/?token={KEY}")
    about = client.get("/api/about").json()
    assert about["several_labels"] and about["states"] == ["missing", "superfluous"] and about["flagged"] == 2
    queue = client.get("/api/queue", params={"reviewer": "ann", "kind": "label"}).json()
    assert [one["item"] for one in queue["items"]] == ["0:striped", "1:red"]
    one = client.get("/api/item/2%3Arare%2Fodd", params={"reviewer": "ann"}).json()
    assert one["label"] == "rare/odd" and one["panels"][0]["reason"] == "few samples have it"
    sent = {"reviewer": "ann", "choices": [{"item": "0:striped", "choice": "add"}]}
    assert client.post("/api/decide", json=sent).json()["done"] == 1
    assert client.get("/api/outcome", params={"reviewer": "ann"}).json()["open"] == 1


@pytest.mark.browser
def test_page(tmp_path, browser, serve):
    from PIL import Image

    server = serve(write_sets(tmp_path), lambda row: Image.new("RGB", (60, 60), (row * 60, 120, 200)), user="ann")
    page = browser.new_page()
    page.goto(server.address)
    see(page, "Is ‘striped’ missing?")
    see(page, "+ striped", ".chip.absent")
    press(page, "r", "Saved. striped, 0.png: added")
    see(page, "Is ‘red’ right?")
    assert page.locator(".chip.asked").inner_text() == "red"
    press(page, "k", "Saved. red, 1.png: kept")
    press(page, "Backspace", "Undone: red, 1.png")
    press(page, "r", "Saved. red, 1.png: removed")
    see(page, "Done: 1 added, 1 removed, 0 kept.")
    page.click("#main .main")
    see(page, "The corrected table is")
    text = server.table.read_text()
    assert "dress|red|striped" in text and "/birds/1.png,blue," in text
