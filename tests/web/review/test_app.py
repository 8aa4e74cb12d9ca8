"""The page's server: who is let in, what is shown, what is exported, and no path from the browser is opened."""

import csv
import io
import itertools

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("fastapi", reason="the review page needs FastAPI")
pytest.importorskip("httpx", reason="its test client needs httpx")

from fastapi.testclient import TestClient

from likewise.audit.read import read_findings
from likewise.errors import LikewiseError
from likewise.web.review.app import make_app
from likewise.web.review.store import Store

KEY = "a token of 24 characters"
BEARER = {"authorization": f"Bearer {KEY}"}

AUDIT = """row,path,label,score,suggested,confidence,margin,reason,split
10,a/0.png,wren,0.9,,,,,train
11,a/1.png,wren,0.1,robin,0.8,0.5,near robins,train
12,b/2.png,robin,0.7,,,,,train
13,b/3.png,robin,0.05,wren,0.6,0.2,near wrens,test
14,c/4.png,"tit, blue",0.3,robin,,,,test
"""
PAIRS = """query,other,type,distance,wrong,mate
11,12,confusion,0.25,12,10
14,13,mis-similar,0.5,13,-1
"""


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr("likewise.web.http.REFUSAL_DELAY_SECONDS", 0)


@pytest.fixture
def store(tmp_path):
    (tmp_path / "audit.json").write_text('{"title": "birds", "root": "", "rows": 15, "pictures": true}')
    (tmp_path / "audit.csv").write_text(AUDIT)
    (tmp_path / "pairs.csv").write_text(PAIRS)
    np.savez(tmp_path / "neighbours.npz", row=np.array([11]), near=np.array([[12, 13, -1]]))
    made = Store(tmp_path / "decisions.sqlite", read_findings(tmp_path))
    yield made
    made.close()


def visit(store, headers=BEARER, **settings):
    return TestClient(make_app(store, KEY, **settings), base_url="http://127.0.0.1:8017", headers=headers)


def decide(browser, reviewer, item, choice, label="", note=""):
    said = {"reviewer": reviewer, "item": item, "choice": choice, "label": label, "note": note}
    return browser.post("/api/decide", json=said)


def queue(browser, **asked):
    return browser.get("/api/queue", params={"kind": "sample", "reviewer": "ann", **asked}).json()


def test_suspects_come_most_suspect_first_and_by_filter(store):
    browser = visit(store)
    assert queue(browser) == {"items": ["13", "11", "14"], "done": 0, "whole": 3}
    assert queue(browser, label="wren")["items"] == ["13", "11"]  # claimed or suggested
    assert queue(browser, label="tit, blue", most=0.2)["items"] == []
    assert queue(browser, most=0.1)["items"] == ["13", "11"]
    assert queue(browser, among="test")["items"] == ["13", "14"]
    assert queue(browser, kind="pair")["items"] == ["11-12", "14-13"]
    assert queue(browser, kind="pair", label="wren")["items"] == ["11-12"]
    assert decide(browser, "ann", "13", "keep").json()["done"] == 1
    assert queue(browser) == {"items": ["11", "14"], "done": 1, "whole": 3}
    assert queue(browser, show="all")["items"] == ["13", "11", "14"]
    assert queue(browser, reviewer="bob")["items"] == ["13", "11", "14"]  # blind to one another
    assert decide(browser, "ann", "10", "remove").json()["done"] == 1  # nobody asked, so it is not progress


def look(browser, item, reviewer):
    return browser.get(f"/api/item/{item}", params={"reviewer": reviewer})


def test_others_are_heard_only_after_the_own_decision_and_only_in_a_dispute(store):
    browser = visit(store)
    decide(browser, "ann", "11", "relabel", "robin", "red")
    own = look(browser, "11", " ann ").json()
    assert own["decision"]["label"] == "robin" and own["decision"]["note"] == "red" and own["others"] == []
    fresh = look(browser, "11", "bob").json()
    assert fresh["decision"] is None and fresh["others"] == [] and fresh["panels"][0]["row"] == 11
    decide(browser, "bob", "11", "unsure")
    assert look(browser, "11", "bob").json()["others"] == []
    decide(browser, "bob", "11", "keep")
    assert [(d["reviewer"], d["choice"]) for d in look(browser, "11", "bob").json()["others"]] == [("ann", "relabel")]
    decide(browser, "bob", "11-12", "agreeable")
    decide(browser, "ann", "11-12", "disagreeable")
    assert queue(browser, show="disputed")["items"] == ["11"]
    assert queue(browser, show="disputed", label="tit, blue")["items"] == []
    assert queue(browser, show="disputed", kind="pair")["items"] == ["11-12"]
    assert browser.get("/api/reviewers").json()["disputed"] == 2
    assert look(browser, "99", "ann").status_code == 400


def test_undo_takes_back_the_own_last_decision(store):
    browser = visit(store)
    decide(browser, "ann", "11", "remove")
    decide(browser, "bob", "11", "keep")
    assert browser.post("/api/undo", params={"reviewer": "ann"}).json()["undone"]["item"] == "11"
    assert browser.post("/api/undo", params={"reviewer": "ann"}).json()["undone"] is None
    assert [d.reviewer for d in store.current_decisions()] == ["bob"]


def test_a_refused_decision_says_why(store):
    answer = decide(visit(store), "ann", "11", "relabel", "robn")
    assert answer.status_code == 400 and "did you mean 'robin'" in answer.json()["error"]


def test_pictures_go_by_row_alone(store):
    asked = []

    def picture(row):
        asked.append(row)
        if row == 12:
            raise LikewiseError("b/2.png: the file is empty")
        return Image.new("RGB", (2000, 1000))

    browser = visit(store, load_image=picture)
    large = browser.get("/picture/11?large=true")
    assert large.headers["content-type"] == "image/jpeg" and Image.open(io.BytesIO(large.content)).size == (1024, 512)
    assert Image.open(io.BytesIO(browser.get("/picture/11").content)).size == (224, 112)
    broken = browser.get("/picture/12")
    assert broken.status_code == 404 and broken.text == "b/2.png: the file is empty"  # the page draws something instead
    assert "max-age" in large.headers["cache-control"] and broken.headers["cache-control"] == "no-cache"
    for strange in ("99", "-1", "a/1.png", "..%2F..%2Fetc%2Fpasswd", "%2Fetc%2Fpasswd", "1e1"):
        assert browser.get(f"/picture/{strange}").status_code in (400, 404)
    assert asked == [11, 11, 12]
    assert visit(store).get("/picture/11").status_code == 404


def test_the_page_learns_what_it_is_about(store):
    about = visit(store, title="birds: Triplet()").get("/api/about").json()
    assert about["title"] == "birds: Triplet()" and about["pictures"] is False
    assert about["classes"] == {"train": ["robin", "wren"], "test": ["robin", "tit, blue"]}
    assert about["among"] == {"sample": ["train", "test"], "pair": ["confusion", "mis-similar"]}
    assert visit(store).get("/api/about").json()["start"] != about["start"]  # no picture of another audit from a cache


@pytest.mark.parametrize("path", ["..%2Fapp.py", "%2e%2e/app.py", "..\\app.py", "%2Fetc%2Fpasswd", ""])
def test_nothing_beside_the_page_is_served(store, path):
    assert visit(store).get(f"/static/{path}").status_code == 404


def test_the_page_asks_nothing_of_other_servers(store):
    browser = visit(store)
    page = browser.get("/")
    assert "likewise review" in page.text and "default-src 'self'" in page.headers["content-security-policy"]
    for name in ("page.css", "page.js"):
        text = browser.get(f"/static/{name}").text
        assert text and "http:" not in text and "https:" not in text and "innerHTML" not in text


def test_a_token_opens_the_page_and_nothing_else_does(store):
    browser, said = visit(store, headers={}), {"reviewer": "eve", "item": "11", "choice": "remove"}
    for path in ("/", "/api/about", "/picture/11", "/static/page.js", "/export/corrected.csv", "/?token=wrong"):
        assert browser.get(path).status_code == 403
    assert browser.post("/api/decide", json=said).status_code == 403
    assert browser.get("/", params={"token": KEY}).status_code == 200
    assert browser.get("/api/about").status_code == 200  # by cookie
    assert browser.post("/api/decide", json=said, headers={"origin": "http://evil.example"}).status_code == 403
    assert store.current_decisions() == []
    assert browser.post("/api/decide", json=said, headers={"origin": "http://127.0.0.1:8017"}).status_code == 200


def test_decisions_are_small_and_well_formed(store):
    browser = visit(store)
    long = decide(browser, "ann", "11", "keep", note="x" * 70_000)
    assert long.status_code == 413 and "a request must have at most 0.0625 MB" in long.json()["error"]
    assert decide(browser, "ann", "11", "keep", note="x" * 60_000).status_code == 200
    for value in ("NaN", "1e999", "-Infinity", "[NaN]", "{}", "null"):
        sent = f'{{"reviewer": "ann", "item": "13", "choice": "keep", "note": {value}}}'
        told = browser.post("/api/decide", content=sent, headers={"content-type": "application/json"})
        assert told.status_code == 400 and told.json()["error"].startswith("review: note cannot be ")
    assert [d.item for d in store.current_decisions()] == ["11"]


def table(answer):
    return list(csv.DictReader(io.StringIO(answer.text)))


def test_tables_can_be_taken_away(store):
    browser = visit(store, root="/pictures")
    decide(browser, "ann", "11", "relabel", "tit, blue")
    decide(browser, "ann", "13", "remove")
    decide(browser, "ann", "11-12", "agreeable")
    answer = browser.get("/export/corrected.csv")
    assert 'attachment; filename="corrected.csv"' in answer.headers["content-disposition"]
    found = {line["path"]: line["label"] for line in table(answer)}
    assert len(found) == 4 and found["/pictures/a/1.png"] == "tit, blue" and "/pictures/b/3.png" not in found
    assert [(d["row"], d["change"]) for d in table(browser.get("/export/changes.csv"))] == [
        ("11", "relabel"),
        ("13", "remove"),
    ]
    assert len(table(browser.get("/export/decisions.csv"))) == 3
    decide(browser, "=eve", "11", "remove", note="@SUM(A1)")
    for name, column, cell in [("changes", "notes", "'@SUM(A1)"), ("decisions", "reviewer", "'=eve")]:
        assert cell in [line[column] for line in table(browser.get(f"/export/{name}.csv"))]
    assert browser.get("/export/secrets.csv").status_code == 400


def test_reviewers_are_told_how_far_they_agree(store):
    browser = visit(store)
    for who, item in itertools.product(("ann", "bob"), ("11", "13")):
        decide(browser, who, item, "keep")
    told = browser.get("/api/reviewers").json()
    assert told["decided"] == {"ann": 2, "bob": 2} and told["disputed"] == 0
    assert told["agreement"] == [{"kind": "sample", "one": "ann", "other": "bob", "both": 2, "kappa": None}]
    decide(browser, "bob", "13", "remove")
    decide(browser, "bob", "14", "remove")
    decide(browser, "ann", "14", "remove")
    assert browser.get("/api/reviewers").json()["agreement"][0]["kappa"] == pytest.approx((2 / 3 - 4 / 9) / (5 / 9))
