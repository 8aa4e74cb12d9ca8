"""The page's server: who is let in, what is shown, what is exported, and no path from the browser is opened."""

import csv
import io
import itertools
import math
import socket

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("fastapi", reason="the review page needs FastAPI")
pytest.importorskip("httpx", reason="its test client needs httpx")

from fastapi.testclient import TestClient

from likewise.data.table import read_table
from likewise.errors import LikewiseError
from likewise.review.app import agreement, make_app, serve, settle, take_port
from likewise.review.store import Decision, Store, read_findings

AUDIT = """row,path,label,score,suggested,confidence,margin,reason,split
10,a/0.png,wren,0.9,,,,,train
11,a/1.png,wren,0.1,robin,0.8,0.5,near robins,train
12,b/2.png,robin,0.7,,,,,train
13,b/3.png,robin,0.05,wren,0.6,0.2,near wrens,test
14,c/4.png,"tit, blue",0.3,robin,,,,test
"""


@pytest.fixture
def store(tmp_path):
    (tmp_path / "audit.csv").write_text(AUDIT)
    (tmp_path / "pairs.csv").write_text("query,other,type,distance\n11,12,confusion,0.25\n14,13,confusion,0.5\n")
    np.savez(tmp_path / "neighbours.npz", row=np.array([11]), near=np.array([[12, 13, -1]]))
    made = Store(tmp_path / "decisions.sqlite", read_findings(tmp_path))
    yield made
    made.close()


def visit(store, **settings):
    return TestClient(make_app(store, **settings), base_url="http://127.0.0.1:8017")


def decide(browser, reviewer, item, verdict, label="", note=""):
    said = {"reviewer": reviewer, "item": item, "verdict": verdict, "label": label, "note": note}
    return browser.post("/api/decide", json=said)


def queue(browser, **asked):
    return browser.get("/api/queue", params={"kind": "sample", "reviewer": "ann", **asked}).json()


def test_suspects_come_most_suspect_first_and_by_filter(store):
    browser = visit(store)
    assert queue(browser) == {"items": ["13", "11", "14"], "done": 0, "whole": 3}
    assert queue(browser, label="wren")["items"] == ["13", "11"]  # claimed or suggested
    assert queue(browser, label="tit, blue", most=0.2)["items"] == []
    assert queue(browser, most=0.1)["items"] == ["13", "11"]
    assert queue(browser, kind="pair")["items"] == ["11-12", "14-13"]
    assert queue(browser, kind="pair", label="wren")["items"] == ["11-12"]
    assert decide(browser, "ann", "13", "keep").json()["done"] == 1
    assert queue(browser) == {"items": ["11", "14"], "done": 1, "whole": 3}
    assert queue(browser, show="all")["items"] == ["13", "11", "14"]
    assert queue(browser, reviewer="bob")["items"] == ["13", "11", "14"]  # blind to one another


def test_an_item_shows_its_classes_and_neighbours_and_only_the_own_decision(store):
    browser = visit(store)
    decide(browser, "ann", "11", "relabel", "robin", "red")
    shown = browser.get("/api/item/11", params={"reviewer": "ann"}).json()
    panel = shown["panels"][0]
    assert (panel["label"], panel["suggested"], panel["score"], panel["margin"]) == ("wren", "robin", 0.1, 0.5)
    assert panel["claimed"] == [10] and panel["instead"] == [12, 13]  # least suspect first, without itself
    assert panel["near"] == [{"row": 12, "label": "robin"}, {"row": 13, "label": "robin"}]
    assert shown["decision"]["label"] == "robin" and shown["decision"]["note"] == "red"
    assert browser.get("/api/item/11", params={"reviewer": "bob"}).json()["decision"] is None
    pair = browser.get("/api/item/14-13", params={"reviewer": "ann"}).json()
    assert [p["row"] for p in pair["panels"]] == [14, 13] and (pair["type"], pair["distance"]) == ("confusion", 0.5)
    assert browser.get("/api/item/99", params={"reviewer": "ann"}).status_code == 400


def test_undo_takes_back_the_own_last_decision(store):
    browser = visit(store)
    decide(browser, "ann", "11", "remove")
    decide(browser, "bob", "11", "keep")
    assert browser.post("/api/undo", params={"reviewer": "ann"}).json()["undone"]["item"] == "11"
    assert browser.post("/api/undo", params={"reviewer": "ann"}).json()["undone"] is None
    assert [d.reviewer for d in store.standing()] == ["bob"]


def test_a_refused_decision_says_why(store):
    answer = decide(visit(store), "ann", "11", "relabel", "robn")
    assert answer.status_code == 400 and "did you mean 'robin'" in answer.json()["error"]


def test_pictures_go_by_row_alone(store):
    asked = []

    def picture(row):
        asked.append(row)
        if row == 12:
            raise LikewiseError("b/2.png: the file is empty (0 bytes); download it again or drop it")
        return Image.new("RGB", (2000, 1000))

    browser = visit(store, picture=picture)
    large = browser.get("/picture/11?large=true")
    assert large.headers["content-type"] == "image/jpeg" and Image.open(io.BytesIO(large.content)).size == (1024, 512)
    assert Image.open(io.BytesIO(browser.get("/picture/11").content)).size == (224, 112)
    assert browser.get("/picture/12").status_code == 400
    for strange in ("99", "-1", "a/1.png", "..%2F..%2Fetc%2Fpasswd", "%2Fetc%2Fpasswd", "1e1"):
        assert browser.get(f"/picture/{strange}").status_code in (404, 422)
    assert asked == [11, 11, 12]
    assert visit(store).get("/picture/11").status_code == 404
    assert visit(store).get("/api/classes").json()["pictures"] is False


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


def test_only_this_machine_is_let_in_without_a_token(store):
    browser = visit(store)
    assert browser.get("/", headers={"host": "evil.example"}).status_code == 403  # a name that was pointed here
    assert browser.get("/", headers={"host": "localhost:8017"}).status_code == 200
    said = {"reviewer": "eve", "item": "11", "verdict": "remove"}
    assert browser.post("/api/decide", json=said, headers={"origin": "http://evil.example"}).status_code == 403
    assert browser.post("/api/decide", json=said, headers={"origin": "http://127.0.0.1:8017"}).status_code == 200


def test_a_token_opens_the_page_and_nothing_else_does(store):
    browser = visit(store, token="sésame")
    for path in ("/", "/api/classes", "/picture/11", "/static/page.js", "/export/corrected.csv", "/?token=wrong"):
        assert browser.get(path).status_code == 403
    assert browser.get("/", params={"token": "sésame"}).status_code == 200
    assert browser.get("/api/classes", headers={"host": "lab.example"}).status_code == 200  # by cookie
    with pytest.raises(LikewiseError, match=r"host='0\.0\.0\.0' lets other machines in, which takes a token"):
        serve(store, host="0.0.0.0")


def test_a_taken_port_proposes_another():
    with take_port("127.0.0.1", 0) as held:
        port = held.getsockname()[1]
        with pytest.raises(LikewiseError, match=rf"port {port} of 127.0.0.1 is taken; choose another, (\d+) is free"):
            take_port("127.0.0.1", port)
    with pytest.raises(LikewiseError, match="cannot be served"):
        take_port("192.0.2.1", 8017)  # no address of this machine
    with socket.socket() as client, pytest.raises(OSError, match="refused"):
        client.connect(("127.0.0.1", port))


def table(answer):
    return list(csv.DictReader(io.StringIO(answer.text)))


def test_the_corrected_table_is_ready_for_training(store, tmp_path):
    browser = visit(store, root=str(tmp_path / "pictures"))
    decide(browser, "ann", "11", "relabel", "tit, blue")
    decide(browser, "ann", "13", "remove", note="two birds")
    decide(browser, "bob", "13", "unsure")  # no say
    decide(browser, "ann", "14", "relabel", "robin")
    decide(browser, "bob", "14", "keep")  # disputed: nothing changes
    answer = browser.get("/export/corrected.csv")
    assert "attachment" in answer.headers["content-disposition"]
    assert [(d["row"], d["label"]) for d in table(answer)] == [
        ("10", "wren"),
        ("11", "tit, blue"),
        ("12", "robin"),
        ("14", "tit, blue"),
    ]
    (tmp_path / "corrected.csv").write_text(answer.text)
    items = read_table(str(tmp_path / "corrected.csv"))
    assert [items.class_name[y] for y in items.y] == ["wren", "tit, blue", "robin", "tit, blue"]
    assert items.split.tolist() == ["train", "train", "train", "test"]
    assert items.path[1] == str(tmp_path / "pictures" / "a" / "1.png")
    changed = [(d["row"], d["change"], d["new_label"], d["notes"]) for d in table(browser.get("/export/changes.csv"))]
    assert changed == [
        ("11", "relabel", "tit, blue", ""),
        ("13", "remove", "", "two birds"),
        ("14", "disputed", "", ""),
    ]
    assert len(table(browser.get("/export/decisions.csv"))) == 5
    assert browser.get("/export/secrets.csv").status_code == 422


def decisions(kind, **by):
    return [
        Decision(n, "", who, kind, str(item), *[*verdict.split(":"), ""][:2], "")
        for who, verdicts in by.items()
        for n, (item, verdict) in enumerate(verdicts.items())
    ]


def test_settling_needs_all_who_are_sure():
    said = decisions("sample", ann={1: "relabel:a", 2: "keep", 3: "unsure"}, bob={1: "relabel:b", 2: "unsure"})
    assert {row: found[:2] for row, found in settle(said).items()} == {1: ("disputed", ""), 2: ("keep", "")}
    assert settle(decisions("pair", ann={"1-2": "agreeable"})) == {}


def by_hand(ann, bob):
    both = [item for item in ann if item in bob]
    views = {*ann.values(), *bob.values()}
    p = sum(ann[i] == bob[i] for i in both) / len(both)
    q = sum(
        sum(ann[i] == v for i in both) / len(both) * (sum(bob[i] == v for i in both) / len(both)) for v in sorted(views)
    )
    return (p - q) / (1 - q)


def test_kappa_by_hand(store):
    ann = {1: "keep", 2: "keep", 3: "relabel:a", 4: "relabel:a", 5: "remove", 9: "keep"}
    bob = {1: "keep", 2: "remove", 3: "relabel:a", 4: "relabel:b", 5: "remove", 8: "keep"}
    [found] = agreement(decisions("sample", ann=ann, bob=bob))
    assert found[:4] == ("sample", "ann", "bob", 5) and found[4] == pytest.approx(by_hand(ann, bob), abs=1e-12)
    assert found[4] == pytest.approx((3 / 5 - 6 / 25) / (1 - 6 / 25))  # keep 2 * 1, remove 1 * 2, a 2 * 1, b 0 * 1
    [undefined] = agreement(decisions("pair", ann={"1-2": "agreeable"}, bob={"1-2": "agreeable"}))
    assert math.isnan(undefined[4])
    assert agreement(decisions("sample", ann={1: "keep"}, bob={2: "keep"})) == []
    browser = visit(store)
    for who, item in itertools.product(("ann", "bob"), ("11", "13")):
        decide(browser, who, item, "keep")
    told = browser.get("/api/reviewers").json()
    assert told["decided"] == {"ann": 2, "bob": 2}
    assert told["agreement"] == [{"kind": "sample", "one": "ann", "other": "bob", "both": 2, "kappa": None}]


@pytest.mark.parity
def test_kappa_as_scikit_learn():
    from sklearn.metrics import cohen_kappa_score

    rng = np.random.default_rng(0)
    for _ in range(5):
        mine, theirs = rng.choice(["keep", "remove", "relabel:a", "relabel:b"], (2, 30))
        theirs = np.where(rng.random(30) < 0.5, mine, theirs)
        said = decisions("sample", ann=dict(enumerate(mine.tolist())), bob=dict(enumerate(theirs.tolist())))
        assert agreement(said)[0][4] == pytest.approx(cohen_kappa_score(mine, theirs), abs=1e-12)
