"""What a review leaves: the store, the corrected table, and how many decisions of how many people there are."""

import asyncio
import csv
import gc
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from threading import Timer

import pytest

pytest.importorskip("fastapi", reason="the review page needs FastAPI")
pytest.importorskip("httpx", reason="the server is asked by httpx")

import httpx
from audit_folder import write_audit
from fastapi import FastAPI
from likewise.config import Review
from likewise.errors import LikewiseError

from likewise.core.http import run_app
from likewise.curate.audit.page import write_page
from likewise.curate.review import review_page as module
from likewise.curate.review.review_page import Reviewed, serve_review, write_corrected_table
from likewise.curate.review.store import Store


def serving(monkeypatch, *decisions):
    """The page is not served: people decide this and press Ctrl-C."""

    def run_app(app, owner, host, port, token, say, opener):
        say("review: http://...")
        seen.append((opener is not None, served[-1].user, served[-1].title))
        for one in decisions:
            stores[-1].decide(*one)
        raise KeyboardInterrupt

    def make_app(store, token, given):
        stores.append(store)
        served.append(given)

    seen, stores, served = [], [], []
    monkeypatch.setattr(module, "run_app", run_app)
    monkeypatch.setattr(module, "make_app", make_app)
    return seen


def test_decisions_are_counted_and_ctrl_c_writes_the_table(tmp_path, monkeypatch):
    write_audit(tmp_path)
    serving(monkeypatch, ("ann", "1", "keep"), ("bob", "1", "keep"), ("ann", "8", "remove"))
    said = []
    found = serve_review(Review(str(tmp_path), browser=False), said.append)
    assert found == Reviewed(tmp_path / "decisions.sqlite", 3, 2, tmp_path / "corrected.csv")
    assert said == ["review: http://..."] and str(found).startswith("3 decisions of 2 reviewers stored in ")
    with open(found.corrected, newline="") as file:
        assert [line["row"] for line in csv.DictReader(file)] == [str(row) for row in range(12) if row != 8]
    assert f"{found.corrected}: the corrected table" in str(found) and "corrected table" in found._repr_html_()
    assert str(Reviewed(found.file, 1, 1)) == f"1 decision of 1 reviewer stored in {found.file}"


def test_the_audit_page_says_how_much_is_reviewed(tmp_path, monkeypatch):
    folder = tmp_path / "a & b \udcff"
    folder.mkdir()
    write_audit(folder)
    page = write_page(folder, lambda row: None, quiet=True)
    assert '<p id="reviewed" hidden></p>' in page.read_text("utf-8")
    serving(monkeypatch)
    serve_review(Review(str(folder), browser=False), [].append)
    assert '<p id="reviewed" hidden></p>' in page.read_text("utf-8")  # no decision, no table
    for decided, count in [(("ann", "1", "keep"), 1), (("bob", "8", "remove"), 2)]:  # the second one changes the line
        serving(monkeypatch, decided)
        serve_review(Review(str(folder), browser=False), [].append)
        text = page.read_text("utf-8")
        assert f"<b>Reviewed: {count} of 2.</b> The corrected table is" in text and "a &amp; b" in text
        assert text.count('id="reviewed"') == 1


def test_without_decisions_no_table_is_written(tmp_path, monkeypatch):
    write_audit(tmp_path)
    serving(monkeypatch)
    assert serve_review(Review(str(tmp_path), browser=False), lambda line: None).corrected is None
    assert not (tmp_path / "corrected.csv").exists()


@pytest.mark.parametrize(
    ("display", "wanted", "host", "seen"),
    [
        (True, True, "127.0.0.1", (True, "ann", "birds: Triplet()")),
        (True, False, "127.0.0.1", (False, "ann", "birds: Triplet()")),
        (False, True, "0.0.0.0", (False, "", "birds: Triplet()")),  # others must say who they are
    ],
)
def test_a_browser_opens_if_it_is_wanted_and_there_is_a_display(tmp_path, monkeypatch, display, wanted, host, seen):
    write_audit(tmp_path)
    monkeypatch.setattr("likewise.core.http.has_display", lambda: display)
    monkeypatch.setattr("getpass.getuser", lambda: "ann")
    found = serving(monkeypatch)
    serve_review(Review(str(tmp_path), host=host, browser=wanted), lambda line: None)
    assert found == [seen]


def test_an_account_without_a_name_is_asked(monkeypatch):
    def fail():
        raise OSError("no such account")

    monkeypatch.setattr("getpass.getuser", fail)
    assert module.system_user() == ""


def test_a_table_that_cannot_be_written_says_where_the_decisions_are(tmp_path):
    from likewise.curate.audit.read import read_findings

    store = Store(tmp_path / "decisions.sqlite", read_findings(write_audit(tmp_path)))
    store.decide("ann", "1", "keep")
    with pytest.raises(LikewiseError, match="corrected.csv cannot .*decisions.sqlite"):
        write_corrected_table(store, tmp_path / "nowhere" / "corrected.csv", "")
    store.close()


def test_finish_ends_the_server(tmp_path, monkeypatch):
    """The real server, asked by a program: it stops by itself, and the table is there."""
    write_audit(tmp_path)
    monkeypatch.setenv("LIKEWISE_TOKEN", "a-token-of-24-characters")
    said, results, there = [], [], threading.Event()

    def say(line):
        said.append(line)
        there.set()

    config = Review(str(tmp_path), port=0, browser=False)
    thread = threading.Thread(target=lambda: results.append(serve_review(config, say)))
    thread.start()
    assert there.wait(60)
    base = said[0].split()[1].partition("/?")[0]
    asked = httpx.Client(base_url=base, headers={"authorization": "Bearer a-token-of-24-characters"}, timeout=60)
    sent = {"reviewer": "ann", "choices": [{"item": "1", "choice": "relabel", "label": "robin"}]}
    assert asked.post("/api/decide", json=sent).json()["decisions"][0]["label"] == "robin"
    told = asked.post("/api/finish").json()
    asked.close()
    thread.join(60)
    assert not thread.is_alive() and told["written"] is True and told["changed"] == 1
    assert results == [Reviewed(tmp_path / "decisions.sqlite", 1, 1, tmp_path / "corrected.csv")]
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", int(base.rpartition(":")[2]))) != 0


def test_order_and_stop_rule_reach_the_page(tmp_path, monkeypatch):
    write_audit(tmp_path)
    served = []
    monkeypatch.setattr(module, "run_app", lambda *about: None)
    monkeypatch.setattr(module, "make_app", lambda store, token, given: served.append(given))
    serve_review(Review(str(tmp_path), browser=False, order="gain", stop_below=0.2), lambda line: None)
    serve_review(Review(str(tmp_path), browser=False), lambda line: None)
    assert [(one.folder, one.order, one.stop_below) for one in served] == [
        (tmp_path, "gain", 0.2),
        (tmp_path, "", None),
    ]


@pytest.mark.slow
@pytest.mark.process
def test_every_acknowledged_decision_survives_a_kill_of_the_server(tmp_path, monkeypatch):
    """Reviewers decide at the same time, and the server is killed again and again in the middle of their requests."""
    write_audit(tmp_path)
    monkeypatch.setenv("LIKEWISE_TOKEN", "a-token-of-24-characters")
    here = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    command = [sys.executable, "-m", "likewise", "review", str(tmp_path), "--port", "0", "--no-browser"]
    acknowledged = set()
    for kill in range(3):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=here) as server:
            address = server.stdout.readline().split()[1].partition("?")[0]
            enough = threading.Event()

            def work(name, address=address, enough=enough):
                with httpx.Client(
                    base_url=address, headers={"authorization": "Bearer a-token-of-24-characters"}
                ) as asked:
                    for number in range(10**6):
                        choices = [{"item": str(row), "choice": ("keep", "remove")[number % 2]} for row in (1, 2, 8)]
                        try:
                            told = asked.post("/api/decide", json={"reviewer": name, "choices": choices}, timeout=600)
                        except httpx.TransportError:
                            return  # it was killed
                        acknowledged.update((d["id"], name, d["item"], d["choice"]) for d in told.json()["decisions"])
                        if number >= 5:
                            enough.set()

            crowd = [threading.Thread(target=work, args=(f"reviewer {kill} {n}",)) for n in range(12)]
            [one.start() for one in crowd]
            assert enough.wait(600)
            server.send_signal(signal.SIGKILL)
            [one.join(600) for one in crowd]
    with closing(sqlite3.connect(tmp_path / "decisions.sqlite")) as base:
        assert base.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        stored = set(base.execute("SELECT id, reviewer, item, choice FROM decision"))
        sizes = base.execute("SELECT count(*) FROM decision GROUP BY bulk").fetchall()
    assert len(acknowledged) >= 3 * 6 * 3 and acknowledged <= stored and {*sizes} == {(3,)}  # each request whole


def test_the_page_is_served_where_an_event_loop_runs_already():
    """As in a notebook, whose cells run in the thread of an event loop."""
    app, lines = FastAPI(), []

    async def cell():
        def stop(address):
            Timer(0.3, lambda: app.state.stop()).start()

        run_app(app, "review", "127.0.0.1", 0, "token", lines.append, stop)

    asyncio.run(cell())
    assert lines[0].startswith("review: http://127.0.0.1:")
    assert gc.get_freeze_count() == 0  # frozen objects would be reported as leaks at the end of the process
