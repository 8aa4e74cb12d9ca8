"""Labels: how often each occurs and is found, by hand."""

import json

import numpy as np
import pytest
from page_reader import Reader
from report.made_facts import SCRIPT, label_facts, made_facts, small_pool

from likewise.report.sections.labels import count_labels, label_matrix, recall_of
from likewise.report.write_report import pack_page, write_page


def test_labels_are_counted_by_hand():
    lines = count_labels(small_pool(), np.array([0, 1, 3]), np.array([1, 3, -1]), {"red": 0.25})
    assert [(line.label, line.samples, line.queries, line.found, line.recall) for line in lines] == [
        (1, 4, 2, 0.5, None), (3, 4, 1, 0.0, 0.25), (0, 2, 1, 1.0, None), (2, 2, 0, None, None), (4, 1, 0, None, None),
    ]  # fmt: skip
    assert lines[0].chance == pytest.approx(4 / 6)


def test_scores_by_label_are_read_in_any_form():
    assert recall_of({}) == recall_of({"per_label": None}) == recall_of({"per_label": [1]}) == {}
    forms = ({"red": 0.5, "x": "?"}, {"red": {"R@1": 0.5}}, {"red": {"metrics": {"R@1": 0.5}}}, {"R@1": {"red": 0.5}})
    assert all(recall_of({"per_label": form}) == {"red": 0.5} for form in forms)


def test_the_payload_has_labels_and_relevance():
    facts = label_facts()
    first, more = (json.loads(block.text) for block in pack_page(facts)[0][:2])
    assert first["pools"][0]["labels"]["sets"][0] == [1, 3]
    told = more["runs"][0]
    assert all(len(near) == 4 and 0 <= near[3] <= 1 for query in told["galleries"]["worst"] for near in query[2])
    assert told["confusion"]["labels"] is True and len(told["labels"]) == 5


def test_the_payload_of_single_labels_has_nothing_new():
    facts = made_facts(100, 8, 10)
    first, more = (json.loads(block.text) for block in pack_page(facts)[0][:2])
    assert list(first["pools"][0]) == ["name", "split", "n", "classes", "groupings"]
    assert all(list(run["confusion"]) == ["pairs", "classes", "matrix"] and "labels" not in run for run in more["runs"])
    assert all(len(near) == 3 for run in more["runs"] for query in run["galleries"]["worst"] for near in query[2])


def test_names_of_labels_stay_text(tmp_path):
    text = write_page(label_facts(), tmp_path / "a.html", True).read_text("utf-8")
    page = Reader(text)
    assert SCRIPT not in text and "Confused labels" in page.text and "how relevant a neighbour is" in page.text
    single = Reader(write_page(made_facts(100, 8, 10), tmp_path / "b.html", True).read_text("utf-8"))
    assert "labels" not in single.sections() and "Confused classes" in single.text and "how relevant" not in single.text


@pytest.mark.browser
def test_chips_bars_and_the_map_of_a_label(open_page, tmp_path):
    facts = label_facts()
    page = open_page(write_page(facts, tmp_path / "a.html", True))
    page.locator("#galleries .relevance").first.wait_for(timeout=60_000)
    first = facts.runs[0].found["galleries"]["worst"][0]
    row = page.locator("#galleries .query-row").first
    assert row.locator(".relevance").count() == len(first.neighbours)
    assert row.locator(".relevance").first.inner_text() == f"{first.neighbours[0].relevance:.2f}"
    assert row.locator(".chip.shared").count() and not row.locator(".tile.wrong, .tile.right").count()
    page.locator("#labels table.labels tbody tr").first.wait_for(timeout=60_000)
    assert page.locator("#labels tbody tr").count() == 5
    assert SCRIPT in page.locator("#labels").inner_text()  # as text
    page.locator("#map select option").first.wait_for(state="attached", timeout=60_000)
    options = page.locator("#map select option").all_inner_texts()
    assert "dress" in options and "nearest shares a label" in options and "class" not in options
    page.fill("#map input[type=search]", "shirt")
    assert page.locator("#map select").evaluate("one => one.selectedOptions[0].text") == "shirt"


def test_a_line_per_place_and_a_column_per_label():
    found = label_matrix(small_pool(), np.array([0, 4])).toarray()
    assert found.tolist() == [[0, 1, 0, 1, 0], [0, 1, 1, 1, 0]]
