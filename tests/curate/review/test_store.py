"""Decisions are never lost, by threads, processes, crashes or undo."""

import os
import signal
import sqlite3
import subprocess
import sys
import threading

import pytest
from likewise.errors import LikewiseError

from likewise.curate.audit.read import read_findings
from likewise.curate.review.store import Choice, Store, kind_of

AUDIT = """row,path,label,score,suggested,confidence,margin,reason,vote,split
0,a/0.png,wren,0.9,,,,,0.8,train
1,a/1.png,wren,0.1,robin,0.8,0.5,near robins,0.1,train
2,b/2.png,robin,0.7,,,,,0.9,train
3,b/3.png,robin,0.05,wren,0.6,0.2,near wrens,0.2,test
"""
PAIRS = "query,other,type,distance,wrong,mate\n1,2,confusion,0.25,2,0\n"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "audit.json").write_text('{"title": "birds", "root": "", "rows": 4, "pictures": true}')
    (tmp_path / "audit.csv").write_text(AUDIT)
    (tmp_path / "pairs.csv").write_text(PAIRS)
    return tmp_path


@pytest.fixture
def store(folder):
    made = Store(folder / "decisions.sqlite", read_findings(folder))
    yield made
    made.close()


def said(store, **who):
    return [(d.reviewer, d.item, d.choice, d.label) for d in store.current_decisions(**who)]


def test_the_last_decision_stands_and_undo_brings_back_the_one_before(store):
    store.decide("ann", "1", "relabel", "robin", "red breast")
    store.decide("ann", "3", "keep")
    store.decide("bob", "1", "remove")
    store.decide("ann", "1", "unsure", "robin")  # only a relabelling has a label
    assert said(store, reviewer="ann") == [("ann", "3", "keep", ""), ("ann", "1", "unsure", "")]
    assert store.undo("ann")[0][2:6] == ("ann", "sample", "1", "unsure")
    assert said(store, item="1") == [("ann", "1", "relabel", "robin"), ("bob", "1", "remove", "")]
    assert [store.undo("ann")[0].item, store.undo("ann")[0].choice, store.undo("ann")] == ["3", "relabel", []]
    assert said(store) == [("bob", "1", "remove", "")]
    assert (
        store.decided_items(" bob", "sample") == {"1"}
        and store.decided_items("bob", "pair") == store.decided_items("ann", "sample") == set()
    )
    lines = store.base.execute("SELECT count(*), count(undoes) FROM decision").fetchone()
    assert lines == (7, 3)  # nothing was ever taken out


def test_everything_that_a_reviewer_stored(store):
    assert store.history("ann") == [] and store.last_id("ann") == 0
    store.decide("bob", "1", "keep")
    store.decide_all("ann", [Choice("1", "keep"), Choice("3", "remove")])
    store.undo(" ann")
    store.decide("ann", "1", "unsure")
    found = store.history(" ann ")
    assert [one.decision.choice for one in found] == ["keep", "remove", "undo", "undo", "unsure"]
    assert found[0].bulk == found[1].bulk is not None and [one.bulk for one in found[2:]] == [None] * 3
    assert store.last_id("ann") == found[-1].decision.id == 6 and store.last_id("bob") == 1


def test_saying_the_same_twice_adds_nothing(store):
    first = store.decide("ann", "1", "relabel", "robin", "sure")
    assert store.decide(" ann ", "1", "relabel", "robin", "sure ") == first
    assert store.decide("ann", "1", "relabel", "robin", "very sure").id > first.id


def test_a_bulk_is_one_step_back_also_after_a_change_of_mind(store):
    store.decide("ann", "0", "keep")
    store.decide_all("ann", [Choice("1", "relabel", "robin"), Choice("3", "relabel", "wren"), Choice("0", "remove")])
    store.decide("ann", "3", "keep")
    assert [d.choice for d in store.undo("ann")] == ["keep"]
    assert sorted(d.item for d in store.undo("ann")) == ["0", "1", "3"]
    assert said(store) == [("ann", "0", "keep", "")]  # what was there before the bulk
    assert len(store.undo("ann")) == 1 and store.undo("ann") == []


def test_a_bulk_is_stored_whole_or_not_at_all(store):
    with pytest.raises(LikewiseError, match="got 'robn'"):
        store.decide_all("ann", [Choice("1", "keep"), Choice("3", "relabel", "robn")])
    with pytest.raises(LikewiseError, match="items .* must be different"):
        store.decide_all("ann", [Choice("1", "keep"), Choice("1", "remove")])
    assert store.current_decisions() == [] and store.decide("ann", "1", "keep").id == 1  # no transaction is left open


def test_a_repeated_bulk_adds_nothing(store):
    both = [Choice("1", "keep"), Choice("3", "remove")]
    assert store.decide_all("ann", both) == store.decide_all("ann", both)
    assert store.base.execute("SELECT count(*) FROM decision").fetchone() == (2,)


def test_a_store_of_an_earlier_version_is_continued(folder, store):
    store.decide("ann", "1", "keep")
    store.base.execute("ALTER TABLE decision DROP COLUMN bulk")
    store.close()
    again = Store(store.file, read_findings(folder))
    again.decide_all("ann", [Choice("1", "remove"), Choice("3", "keep")])
    assert len(again.undo("ann")) == 2 and said(again) == [("ann", "1", "keep", "")]
    again.close()


def test_new_classes(store):
    assert store.added_classes() == []
    assert store.decide("ann", "1", "relabel", " sea  gull ", new_class=True).label == "sea gull"
    assert store.added_classes() == ["sea gull"] and store.decide("bob", "3", "relabel", "sea gull").label == "sea gull"
    with pytest.raises(LikewiseError, match="a class of this audit, got ''"):
        store.decide("ann", "1", "relabel", "  ", new_class=True)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("ann", "7", "keep"), "an item must be a row or a pair of this audit, got '7'"),
        (("ann", "../1", "keep"), "got '../1'"),
        (("ann", "1", "agree"), "the choice for a sample must be one of keep, relabel, remove, unsure, got 'agree'"),
        (("ann", "1", "relabel", "robn"), "must be a class of this audit, got 'robn'; did you mean 'robin'"),
        (("ann", "1", "relabel", "wren"), "row 1 is labelled 'wren' already"),
        (("  ", "1", "keep"), "a decision must have a reviewer, got an empty name"),
        (("ann", "1-2", "keep"), "agreeable, disagreeable, got 'keep'"),
    ],
)
def test_bad_decisions_are_refused_and_leave_nothing(store, words, told):
    with pytest.raises(LikewiseError, match=told):
        store.decide(*words)
    assert store.current_decisions() == [] and store.decide("ann", "1-2", "agreeable").kind == "pair"


def test_text_that_is_no_unicode_is_kept_as_far_as_it_goes(store):
    assert store.decide("ann\ud800", "1", "keep", note="a\nb").reviewer == "ann?"
    assert store.current_decisions("ann\ud800")[0].note == "a b"


def test_threads_lose_nothing(store):
    def judge(who):
        for number in range(20):
            store.decide(who, "1", ("keep", "remove")[number % 2])

    threads = [threading.Thread(target=judge, args=(f"r{n}",)) for n in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert store.base.execute("SELECT count(*) FROM decision").fetchone()[0] == 80
    assert len(store.current_decisions()) == 4


CHILD = """
import sys, time
from likewise.curate.audit.read import read_findings
from likewise.curate.review.store import Store, kind_of
store = Store(sys.argv[1] + "/decisions.sqlite", read_findings(sys.argv[1]))
for number in range(10**6):
    store.decide(sys.argv[2], "1", ("keep", "remove")[number % 2])
    print(number + 1, flush=True)
    time.sleep(0.01)
"""


def test_what_was_answered_survives_a_kill_and_two_processes(folder, store):
    """Two processes write and are killed in the middle: every decision they were told is saved is there."""
    here = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    command = [sys.executable, "-c", CHILD, str(folder)]
    writers = [subprocess.Popen([*command, who], stdout=subprocess.PIPE, text=True, env=here) for who in ("ann", "bob")]
    heard = [[writer.stdout.readline() for _ in range(15)] for writer in writers]
    assert all(line for lines in heard for line in lines)  # neither of them gave up before it was killed
    answered = {}
    for who, writer in zip(("ann", "bob"), writers, strict=True):
        writer.send_signal(signal.SIGKILL)
        answered[who] = 15 + len(writer.stdout.read().splitlines())
        writer.wait()
    store.decide("cleo", "3", "keep")
    for who, count in answered.items():
        saved = store.base.execute("SELECT count(*) FROM decision WHERE reviewer = ?", (who,)).fetchone()[0]
        assert count <= saved <= count + 1
    assert store.base.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_nobody_writes_between_a_look_and_the_row_it_leads_to(store):
    other = sqlite3.connect(store.file, isolation_level=None, timeout=0)
    with store.writing(), pytest.raises(sqlite3.OperationalError, match="locked"):
        other.execute("BEGIN IMMEDIATE")
    other.close()


def test_a_damaged_store_is_told_apart_from_a_locked_one(folder, store):
    store.decide("ann", "1", "keep")
    other = sqlite3.connect(store.file, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    hasty = read_findings(folder)
    with pytest.raises(LikewiseError, match="0.05 s, because another program locks"):
        Store(store.file, hasty, timeout=0.05)
    other.execute("ROLLBACK")
    other.close()
    Store(store.file, hasty, timeout=0.05).close()
    store.close()
    for text in (b"not a database at all" * 100, store.file.read_bytes()[:4096] + b"\xff" * 8192):
        store.file.write_bytes(text)
        with pytest.raises(LikewiseError, match="is damaged or not a store.*move it"):
            Store(store.file, hasty)
    with pytest.raises(LikewiseError, match="cannot be opened.*permissions"):
        Store(folder / "nowhere" / "decisions.sqlite", hasty)


def test_decisions_outlive_a_new_audit_but_not_other_labels(folder, store):
    store.decide("ann", "1", "keep")
    store.close()
    (folder / "audit.csv").write_text(AUDIT.replace("0.05", "0.5"))
    again = Store(store.file, read_findings(folder))
    assert said(again) == [("ann", "1", "keep", "")]
    again.close()
    (folder / "audit.csv").write_text(AUDIT.replace("b/2.png,robin", "b/2.png,wren"))
    with pytest.raises(LikewiseError, match="other samples or labels"):
        Store(store.file, read_findings(folder))


@pytest.mark.parametrize("item", ["7", "-1", "1-3", "../1", "¹", "9" * 5000, ""])
def test_what_is_no_item_is_refused(store, item):
    assert kind_of(store.findings, "1-2") == "pair" and kind_of(store.findings, "1") == "sample"
    with pytest.raises(LikewiseError, match="must be a row or a pair"):
        kind_of(store.findings, item)


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TRIGGER t AFTER INSERT ON decision BEGIN DELETE FROM decision WHERE id < new.id; END",
        "CREATE VIEW v AS SELECT * FROM decision",
        "UPDATE decision SET note = x'00ff'",
        "UPDATE decision SET undoes = 'all'",
        "UPDATE decision SET kind = 'picture'",
        "UPDATE decision SET choice = 'burn'",
        "UPDATE decision SET item = '99'",
        "UPDATE decision SET item = 'one'",
        "DROP TABLE decision",
        "ALTER TABLE decision DROP COLUMN note",
    ],
)
def test_a_store_with_what_no_review_writes_is_refused(folder, store, statement):
    store.decide("ann", "1", "keep")
    store.base.execute(statement)
    if statement.startswith("DROP"):
        store.base.execute("CREATE TABLE decision (id INTEGER)")
    with pytest.raises(LikewiseError, match="review: "):
        Store(store.file, store.findings)


def test_a_link_is_no_store(folder, tmp_path):
    base = sqlite3.connect(tmp_path / "of another program")
    base.execute("CREATE TABLE own (a)")
    base.close()
    (folder / "decisions.sqlite").symlink_to(tmp_path / "of another program")
    before = (tmp_path / "of another program").read_bytes()
    with pytest.raises(LikewiseError, match="decisions.sqlite must not be a link"):
        Store(folder / "decisions.sqlite", read_findings(folder))
    assert (tmp_path / "of another program").read_bytes() == before


def test_waiting_requests_share_a_transaction(store):
    """While one commit waits, the others gather; none is answered before its transaction."""
    said_sql = []
    store.base.set_trace_callback(said_sql.append)
    with store.lock:  # the first commit waits here
        made = [store.submit_decisions(f"r{n}", [Choice("1", "keep")]) for n in range(40)]
        bad = store.submit_decisions("eve", [Choice("1", "relabel", "robn")])
        made += [store.submit_decisions("ann", [Choice("1", "keep"), Choice("3", "remove")])]
        undone = store.submit_undo("ann")  # of the same reviewer: in a later transaction
        assert not any(one.done() for one in (*made, bad, undone))
    assert [one.result(600)[0].reviewer for one in made] == [*(f"r{n}" for n in range(40)), "ann"]
    assert [d.item for d in undone.result(600)] == ["1", "3"]
    with pytest.raises(LikewiseError, match="got 'robn'"):
        bad.result(600)
    assert said_sql.count("COMMIT") <= 4 and len(said(store)) == 40
    ids = [one.result()[0].id for one in made]
    assert store.base.execute(
        "SELECT count(*) FROM decision WHERE id BETWEEN ? AND ?", (min(ids), max(ids) + 1)
    ).fetchone() == (42,)


def test_a_transaction_that_fails_acknowledges_nothing(folder):
    store = Store(folder / "decisions.sqlite", read_findings(folder), timeout=0.05)
    other = sqlite3.connect(store.file, isolation_level=None)
    with store.lock:
        made = [store.submit_decisions(f"r{n}", [Choice("1", "keep")]) for n in range(5)]
        other.execute("BEGIN IMMEDIATE")
    for one in made:
        with pytest.raises(LikewiseError, match="another program locks it"):
            one.result(600)
    other.execute("ROLLBACK")
    other.close()
    assert said(store) == [] and store.decide("r0", "1", "keep").id == 1
    store.close()


def test_decisions_of_another_process_are_read(folder, store, monkeypatch):
    monkeypatch.setattr("likewise.curate.review.store.OTHERS_SECONDS", 0)
    other = Store(store.file, read_findings(folder))
    store.decide("ann", "1", "keep")
    assert said(other) == [("ann", "1", "keep", "")]
    other.decide("ann", "1", "relabel", "gull", new_class=True)
    assert said(store) == [("ann", "1", "relabel", "gull")] and store.added_classes() == ["gull"]
    assert [d.choice for d in store.undo("ann")] == ["relabel"]
    assert said(other) == [("ann", "1", "keep", "")] and other.added_classes() == []
    other.close()
