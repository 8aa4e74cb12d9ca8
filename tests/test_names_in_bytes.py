"""Names with bytes that are not UTF-8, which Python holds as lone surrogates, on both pages: JSON, addresses, exports, store."""

import json
from dataclasses import replace

import pytest
from make_index import make_index

pytest.importorskip("fastapi", reason="the pages need FastAPI")
pytest.importorskip("httpx", reason="their test client needs httpx")

from fastapi.testclient import TestClient
from likewise.errors import LikewiseError
from planned_audit import write_planned

from likewise.curate.audit.read import read_findings
from likewise.curate.audit.samples import Samples
from likewise.curate.review.consensus import write_corrected_table
from likewise.curate.review.review_page import Served, make_app
from likewise.curate.review.store import Store
from likewise.deploy.search.search_page import SearchContext
from likewise.deploy.search.search_page import make_app as make_search_app

KEY = "a token of 24 characters"
HEADERS = {"authorization": f"Bearer {KEY}"}
NAME, BYTES, ESCAPED, ADDRESS = "tit\udcff", b"tit\xff", b'"tit\\udcff"', "tit%FF"


def visit(app):
    return TestClient(app, "http://127.0.0.1:80", headers=HEADERS)


@pytest.fixture
def findings(tmp_path):
    """An audit whose class "tit" and whose files have the byte FF in their names."""
    write_planned(tmp_path, [("wren", "tit", 5, 0.9), ("tit", "gull", 2, 0.8)], forecast=False)
    found = read_findings(tmp_path)

    def rename(one):
        names = {name: NAME if getattr(one, name) == "tit" else getattr(one, name) for name in ("label", "suggested")}
        return one._replace(path=one.path.replace(".png", "\udcff.png"), **names)

    samples = Samples.of(map(rename, found.sample.values()))
    return replace(
        found, sample=samples, suspects=samples.suspects(), off_topic=samples.outside(), members=samples.members()
    )


def test_review(tmp_path, findings):
    def load_image(row):
        raise LikewiseError(f"{findings.sample[row].path}: there is no such file")

    store = Store(tmp_path / "decisions.sqlite", findings)
    browser = visit(make_app(store, KEY, Served(load_image, root="/photos\udcfe")))
    about = browser.get("/api/about")
    assert NAME in about.json()["classes"]["train"] and ESCAPED in about.content and about.content.isascii()
    queue = browser.get(f"/api/queue?reviewer=ann&kind=sample&suggested={ADDRESS}").json()["items"]
    assert [one["item"] for one in queue] == ["100", "101", "102", "103", "104"] and queue[0]["name"] == "0\udcff.png"
    assert browser.get("/api/item/100?reviewer=ann").json()["panels"][0]["file"] == "/photos\udcfe/0\udcff.png"
    assert NAME in {one["suggested"] for one in browser.get("/api/plan?reviewer=ann").json()["groups"]}
    missing = browser.get("/picture/100")
    assert missing.status_code == 404 and missing.content == b"0\\udcff.png: there is no such file"
    sent = {"reviewer": "ann", "choices": [{"item": "100", "choice": "relabel", "label": NAME}], "note": "x"}
    told = browser.post("/api/decide", content=json.dumps(sent), headers={"content-type": "application/json"})
    assert told.status_code == 200 and told.json()["decisions"][0]["label"] == NAME
    store.close()
    again = Store(tmp_path / "decisions.sqlite", findings)
    assert [(d.item, d.label) for d in again.current_decisions()] == [("100", NAME)]
    assert again.base.execute("SELECT CAST(label AS BLOB) FROM decision").fetchone() == (BYTES,)
    browser = visit(make_app(again, KEY, Served(root="/photos\udcfe")))
    corrected = browser.get("/export/corrected.csv").content
    assert b"/photos\xfe/0\xff.png," + BYTES + b"," in corrected
    assert BYTES in browser.get("/export/changes.csv").content and BYTES in browser.get("/export/decisions.csv").content
    assert write_corrected_table(again, tmp_path / "corrected.csv", "/photos\udcfe").read_bytes() == corrected
    assert [one.label for one in again.undo("ann")] == [NAME]
    again.close()


def test_review_of_single_labels(tmp_path):
    (tmp_path / "labels.csv").write_text("row,label,kind,chance,state\n0,tit,missing,0.9,flagged\n")
    about = {"title": "", "root": "", "rows": 1, "pictures": False, "labels": [{"label": "tit"}]}
    (tmp_path / "audit.json").write_text(json.dumps(about))
    head = "row,path,label,score,suggested,confidence,margin,reason,split"
    (tmp_path / "audit.csv").write_text(f"{head}\n0,,dress,0.9,,,,,train\n")
    found = read_findings(tmp_path)
    [question] = [one._replace(label=NAME) for one in found.questions.values()]
    store = Store(tmp_path / "decisions.sqlite", replace(found, questions={question.item: question}))
    browser = visit(make_app(store, KEY))
    item = browser.get(f"/api/item/0%3A{ADDRESS}?reviewer=ann")
    assert item.status_code == 200 and item.json()["item"] == "0:" + NAME
    sent = {"reviewer": "ann", "choices": [{"item": "0:" + NAME, "choice": "add"}]}
    told = browser.post("/api/decide", content=json.dumps(sent), headers={"content-type": "application/json"})
    assert told.json()["done"] == 1 and BYTES in browser.get("/export/changes.csv").content
    store.close()


def test_search():
    index = make_index(40, first=100)
    names = (NAME, *index.rows.class_name[1:])
    index.rows = replace(index.rows, class_name=names)
    context = SearchContext(index, "shop", 10_000, lambda place: None)
    browser = visit(make_search_app(context, KEY))
    assert NAME in browser.get("/api/about").json()["classes"]
    found = browser.post(f"/api/search?row=103&class={ADDRESS}").json()["found"]
    assert found and {one["class"] for one in found} == {NAME}
