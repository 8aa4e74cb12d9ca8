"""The page of an audit with more flagged labels than it loads at once: it loads them in pieces."""

import json

import pytest
from browser import until
from review_page import see

pytest.importorskip("fastapi", reason="the review page needs FastAPI")
pytestmark = [pytest.mark.browser, pytest.mark.process]

ROWS, FLAGGED = 6000, 5400


@pytest.fixture
def audited(tmp_path):
    head = "row,path,label,score,suggested,confidence,margin,reason,split"
    lines = [
        f"{n},,class {n % 600},{0.1 + n * 1e-5:.5f},class {(n + 1) % 600},0.9,0.5,near,train" for n in range(FLAGGED)
    ]
    lines += [f"{n},,class {n % 600},0.9,,,,,train" for n in range(FLAGGED, ROWS)]
    (tmp_path / "audit.csv").write_text("\n".join([head, *lines]))
    (tmp_path / "audit.json").write_text(json.dumps({"title": "t", "root": "", "rows": ROWS, "pictures": False}))
    return tmp_path


def test_labels_come_in_pieces(enter, audited):
    page = enter("ann")
    asked = []
    page.on("response", lambda answer: asked.append(answer.url) if "/api/queue" in answer.url else None)
    see(page, "1 / 5000+", "body")
    see(page, f"0 of {FLAGGED:,}", "body")
    page.keyboard.press("k")
    see(page, "2 / 5000+", "body")
    page.click("#groups")  # in the order of the plan
    until(
        page,
        "() => document.querySelectorAll('#group .tile').length > 0 && !document.body.classList.contains('loading')",
    )
    page.keyboard.press("Enter")
    see(page, "Saved.", "#said")
    page.click("#grid")
    until(
        page,
        "() => document.querySelectorAll('#sheet .tile').length > 0 && !document.body.classList.contains('loading')",
    )
    page.click("#one")
    page.click("#sift")
    page.fill("#label", "class 599")  # rows 599, 1199, ..., and those that are suggested to be of this class
    page.keyboard.press("Tab")
    until(page, "() => /^1 . 1[78]$/.test(document.querySelector('#place').textContent)")
    assert all("most=5000" in one for one in asked)
