"""Votes of workers on the review page."""

import pytest

pytest.importorskip("fastapi", reason="the review page needs FastAPI")
pytest.importorskip("httpx", reason="its test client needs httpx")

from fastapi.testclient import TestClient
from planned_audit import write_planned

from likewise.core.files import write_csv
from likewise.curate.audit.read import ConsensusLine, VoteLine, WorkerLine, read_findings
from likewise.curate.review.items import MAX_LISTED_WORKERS, WorkerVotes
from likewise.curate.review.review_page import Served, make_app
from likewise.curate.review.store import Store


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
