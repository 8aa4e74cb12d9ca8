"""The page's server: who is let in, what is shown, what is exported, and no path from the browser is opened."""

import csv
import io
import itertools

import numpy as np
import pytest
import torch
from PIL import Image

pytest.importorskip("fastapi", reason="the review page needs FastAPI")
pytest.importorskip("httpx", reason="its test client needs httpx")

from fastapi.testclient import TestClient
from likewise.errors import LikewiseError
from planned_audit import write_planned

from likewise.core import devices
from likewise.core.files import write_csv
from likewise.curate.audit.read import ConsensusLine, VoteLine, WorkerLine, read_findings
from likewise.curate.review.items import MAX_LISTED_WORKERS, WorkerVotes
from likewise.curate.review.review_page import STATIC_FOLDER, Served, make_app, to_train
from likewise.curate.review.store import Store

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
    monkeypatch.setattr("likewise.core.http.REFUSAL_DELAY_SECONDS", 0)


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
    return TestClient(make_app(store, KEY, Served(**settings)), base_url="http://127.0.0.1:8017", headers=headers)


def decide(browser, reviewer, item, choice, label="", note=""):
    return decide_all(browser, reviewer, [(item, choice, label)], note=note)


def decide_all(browser, reviewer, choices, **more):
    made = [dict(zip(("item", "choice", "label"), one)) for one in choices]
    return browser.post("/api/decide", json={"reviewer": reviewer, "choices": made, **more})


def queue(browser, **asked):
    found = browser.get("/api/queue", params={"kind": "sample", "reviewer": "ann", **asked}).json()
    return found | {"items": [one["item"] for one in found["items"]]}


def test_suspects_come_most_suspect_first_and_by_filter(store):
    browser = visit(store)
    assert queue(browser) == {"items": ["13", "11", "14"], "done": 0, "whole": 3, "next": None}
    for wanted, items in (
        ({"label": "wren"}, ["13", "11"]),  # claimed or suggested
        ({"label": "wren", "among": "train"}, ["11"]),
        ({"label": "tit, blue", "suspicion": 0.8}, []),
        ({"suspicion": 0.9}, ["13", "11"]),
        ({"among": "test"}, ["13", "14"]),
        ({"among": "test", "suspicion": 0.8}, ["13"]),
        ({"among": "val"}, []),
        ({"kind": "pair", "suspicion": 0.9}, ["11-12", "14-13"]),
        ({"kind": "pair", "label": "wren"}, ["11-12"]),
        ({"kind": "pair", "among": "mis-similar"}, ["14-13"]),
    ):
        assert queue(browser, **wanted)["items"] == items, wanted
    assert decide(browser, "ann", "13", "keep").json()["done"] == 1
    assert queue(browser) == {"items": ["11", "14"], "done": 1, "whole": 3, "next": None}
    assert queue(browser, show="all")["items"] == ["13", "11", "14"]
    assert queue(browser, reviewer="bob")["items"] == ["13", "11", "14"]  # blind to one another
    assert decide(browser, "ann", "10", "remove").json()["done"] == 1  # nobody asked, so it is not progress


def look(browser, item, reviewer):
    return browser.get(f"/api/item/{item}", params={"reviewer": reviewer})


def test_others_are_heard_only_after_the_own_decision_and_only_in_a_dispute(store):
    browser = visit(store)
    decide(browser, "ann", "11", "relabel", "robin", "red")
    own = look(browser, "11", " ann ").json()
    assert (own["choice"], own["new_label"], own["note"], own["others"]) == ("relabel", "robin", "red", [])
    fresh = look(browser, "11", "bob").json()
    assert fresh["choice"] == "" and fresh["others"] == [] and fresh["panels"][0]["row"] == 11
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
    assert browser.post("/api/undo", params={"reviewer": "ann"}).json()["undone"][0]["item"] == "11"
    assert browser.post("/api/undo", params={"reviewer": "ann"}).json()["undone"] == []
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
    for name in sorted(one.name for one in STATIC_FOLDER.iterdir() if one.suffix in (".css", ".js")):
        text = browser.get(f"/static/{name}").text
        assert text and "http:" not in text and "https:" not in text and "innerHTML" not in text


def test_a_token_opens_the_page_and_nothing_else_does(store):
    browser, said = visit(store, headers={}), {"reviewer": "eve", "choices": [{"item": "11", "choice": "remove"}]}
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
    long = decide(browser, "ann", "11", "keep", note="x" * 2**20)
    assert long.status_code == 413 and "a request must have at most 1 MB" in long.json()["error"]
    assert decide(browser, "ann", "11", "keep", note="x" * 60_000).status_code == 200
    for value in ("NaN", "1e999", "-Infinity", "[NaN]", "{}", "null"):
        sent = f'{{"reviewer": "ann", "choices": [{{"item": "13", "choice": "keep"}}], "note": {value}}}'
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


def test_labels_beyond_the_flag_come_in_pieces_that_decisions_do_not_move(store):
    browser = visit(store)
    first = queue(browser, flagged=False, most=1)
    assert first["items"] == ["12"] and first["next"] == 1  # robin, 0.7; then the wren, 0.9
    decide(browser, "ann", "12", "keep")
    rest = queue(browser, flagged=False, begin=first["next"], most=1)
    assert rest["items"] == ["10"] and rest["next"] is None and rest["done"] == 0
    assert queue(browser, flagged=False)["items"] == ["10"] and queue(browser, flagged=False, show="all")["items"] == [
        "12",
        "10",
    ]


def test_many_are_decided_at_once_or_not_at_all_and_undone_together(store):
    browser = visit(store)
    bad = decide_all(browser, "ann", [("11", "relabel", "robin"), ("13", "relabel", "robn")])
    assert bad.status_code == 400 and store.current_decisions() == []
    good = decide_all(browser, "ann", [("11", "relabel", "robin"), ("13", "relabel", "wren"), ("14", "keep", "")])
    assert [d["item"] for d in good.json()["decisions"]] == ["11", "13", "14"] and good.json()["done"] == 3
    undone = browser.post("/api/undo", params={"reviewer": "ann"}).json()
    assert sorted(d["item"] for d in undone["undone"]) == ["11", "13", "14"] and undone["done"] == 0


def test_a_move_from_one_class_to_another_is_a_filter(store):
    browser = visit(store)
    assert {"given": "tit, blue", "suggested": "robin", "count": 1} in browser.get("/api/about").json()["moves"]
    assert queue(browser, given="tit, blue", suggested="robin")["items"] == ["14"]
    assert queue(browser, given="robin", suggested="robin")["items"] == []


def test_new_classes_are_added_on_purpose_and_then_known(store):
    browser = visit(store)
    assert decide(browser, "ann", "11", "relabel", "gull").status_code == 400
    assert decide_all(browser, "ann", [("11", "relabel", " grey  gull ")], new_class=True).status_code == 200
    assert browser.get("/api/about").json()["added"] == ["grey gull"]
    assert decide(browser, "bob", "14", "relabel", "grey gull").status_code == 200


def test_a_pair_is_gone_when_one_of_its_images_is_removed_or_relabelled(store):
    browser = visit(store)
    decide(browser, "ann", "12", "keep")
    assert queue(browser, kind="pair")["items"] == ["11-12", "14-13"]
    decide(browser, "ann", "12", "remove")
    decide(browser, "ann", "14", "relabel", "robin")
    assert queue(browser, kind="pair")["items"] == []
    assert queue(browser, kind="pair", reviewer="bob")["items"] == ["11-12", "14-13"]


def test_the_end_counts_what_was_done_and_what_is_left(store, tmp_path):
    browser = visit(store, load_image=lambda row: None, table=tmp_path / "my audit" / "corrected.csv")
    decide_all(browser, "ann", [("11", "relabel", "robin"), ("13", "remove", "")])
    found = browser.get("/api/outcome", params={"reviewer": "ann"}).json()
    assert [found[name] for name in ("changed", "removed", "kept", "unsure", "disputed", "open")] == [1, 1, 0, 0, 0, 1]
    assert found["left"] == pytest.approx(0.1 + 0.3 + 0.7)  # rows 10, 12 and 14
    table = f"'{found['table']}'"
    assert (
        found["commands"] == [f"likewise train {table}", f"likewise apply {table} --to NEW_FOLDER"]
        and found["to"] == ""
    )
    to = (
        visit(store, load_image=lambda row: None, table=tmp_path / "corrected.csv", to="clean photos")
        .get("/api/outcome")
        .json()
    )
    assert to["to"] == "clean photos" and to["commands"] == [f"likewise train {tmp_path / 'corrected.csv'}"]


def test_finish_writes_and_stops(store):
    wrote, stopped = [], []
    browser = visit(store, finish=lambda: wrote.append(1), load_image=None)
    browser.app.state.stop = lambda: stopped.append(list(wrote))
    told = browser.post("/api/finish").json()
    assert (
        told["written"] is False and wrote == [1] and stopped == [[1]]
    )  # nothing was decided; first written, then stopped


def write_tables(folder):
    votes = [VoteLine(100, "anna", "tit"), VoteLine(100, "ben", "wren"), VoteLine(101, "", "tit")]
    write_csv(folder / "annotator_votes.csv", VoteLine._fields, votes)
    lines = [ConsensusLine(100, "", "wren", "tit", 0.2, "other label", 0.1, 2, 1, "tit x 1|wren x 1")]
    write_csv(folder / "consensus.csv", ConsensusLine._fields, lines)
    workers = [WorkerLine(f"w{at}", 9, at / 60, 0.0, 1.0, 0.5, "wren", "tit", 3) for at in range(60)]
    write_csv(folder / "annotators.csv", WorkerLine._fields, workers)


def test_the_votes_about_a_sample(tmp_path):
    write_planned(tmp_path, [("wren", "tit", 5, 0.9)], copies=[("wren", "tit")])
    write_tables(tmp_path)
    store = Store(tmp_path / "decisions.sqlite", read_findings(tmp_path))
    headers = {"authorization": "Bearer a token of 24 characters"}
    app = make_app(store, "a token of 24 characters", Served(folder=tmp_path))
    browser = TestClient(app, base_url="http://127.0.0.1:8017", headers=headers)

    def panels(item):
        return browser.get(f"/api/item/{item}", params={"reviewer": "ann"}).json()["panels"]

    [one] = panels("100")
    assert one["votes"] == [{"worker": "anna", "label": "tit"}, {"worker": "ben", "label": "wren"}]
    assert one["consensus"] == {"label": "tit", "state": "other label", "wrong": 0.2, "votes": 2, "for_consensus": 1}
    [one] = panels("101")
    assert one["votes"] == [{"worker": "", "label": "tit"}] and one["consensus"] is None
    assert [one["votes"] for one in panels("105")] == [[], []]  # a copy has the votes of its own row
    workers = browser.get("/api/reviewers").json()["workers"]
    assert len(workers) == MAX_LISTED_WORKERS and workers[0]["name"] == "w0" and workers[0]["accuracy"] == 0
    assert workers[0]["confusion"] == "wren as tit, 3 times"
    store.close()


def test_without_votes(tmp_path):
    for folder in (None, tmp_path):
        votes = WorkerVotes(folder)
        assert votes.about(3) == {"votes": [], "consensus": None} and votes.workers == []


def test_the_end_names_the_training_that_a_cpu_does_in_seconds(tmp_path, monkeypatch):
    """The corrected features, if the audit has some and there is no GPU; else the corrected table."""
    served = Served(table=tmp_path / "corrected.csv", folder=tmp_path)
    assert to_train(served) == tmp_path / "corrected.csv"
    (tmp_path / "features.npz").write_bytes(b"x")
    for kind, name in (("cpu", "corrected.npz"), ("cuda", "corrected.csv")):
        monkeypatch.setattr(devices, "choose_device", lambda _, kind=kind: torch.device(kind))
        assert to_train(served) == tmp_path / name
