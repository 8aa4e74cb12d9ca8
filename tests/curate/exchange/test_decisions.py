"""Decisions of another tool in the store of an audit: all or none, each once, beside those of the review page."""

import json
import sqlite3
from contextlib import closing

import pytest
from exchange_rows import LABELS, write_audit
from likewise.errors import LikewiseError

import likewise
from likewise.curate.audit.read import LabelQuestion, read_findings
from likewise.curate.exchange.decisions import store_decisions
from likewise.curate.exchange.row_records import from_cells
from likewise.curate.review.store import Store


def made(**cells):
    return from_cells(cells, "tool")


def stored(audit):
    with closing(Store(audit / "decisions.sqlite", read_findings(audit))) as store:
        return [tuple(d)[2:] for d in store.current_decisions()]


def test_decisions_are_added_beside_those_of_the_page(tmp_path):
    audit = write_audit(tmp_path, n=10)
    with closing(Store(audit / "decisions.sqlite", read_findings(audit))) as store:
        store.decide("Ann", "3", "keep")
    records = made(
        row=[3, 3, 4], label=[LABELS[3], LABELS[3], LABELS[4]], reviewer=["Ann", " Bo  B ", ""],
        choice=["relabel", "remove", "keep"], new_label=["wren", "owl", ""], note=["", "blurred\nimage", ""],
    )  # fmt: skip
    assert store_decisions(records, str(audit), "Cem", "tool")[1:] == (3, 3, 1)
    assert stored(audit) == [
        ("Ann", "sample", "3", "relabel", "wren", ""),
        ("Bo B", "sample", "3", "remove", "", "blurred image"),
        ("Cem", "sample", "4", "keep", "", ""),
    ]
    assert store_decisions(records, str(audit), "Cem", "tool")[1:] == (3, 0, 0)


def test_without_a_reviewer_the_tool_is_named(tmp_path):
    audit = write_audit(tmp_path, n=4)
    store_decisions(made(row=[1], label=["wren"]), str(audit), "", "tool")
    assert stored(audit) == [("tool", "sample", "1", "relabel", "wren", "")]


def test_a_folder_without_an_audit(tmp_path):
    with pytest.raises(LikewiseError, match="receive: the folder must be an audit"):
        store_decisions(made(row=[0], label=["a"]), str(tmp_path), "", "tool")


def all_rows(audit):
    """Return every row of the store, also those that are not current."""
    with closing(sqlite3.connect(audit / "decisions.sqlite")) as base:
        return base.execute("SELECT * FROM decision ORDER BY id").fetchall()


def test_decisions_of_reviewers_are_never_lost(tmp_path):
    """A refused export adds nothing. Another reviewer's decision stays; an own one is replaced, with a note, until an undo."""
    audit = write_audit(tmp_path, n=6)
    with closing(Store(audit / "decisions.sqlite", read_findings(audit))) as store:
        store.decide("Ann", "0", "remove")
        store.decide("Bo", "0", "unsure")
    before = all_rows(audit)
    for row, choice, label in ((9, "keep", ""), (1, "burn", ""), (1, "relabel", "no such bird")):
        cells = {"row": [0, row], "choice": ["keep", choice], "new_label": ["", label]}
        with pytest.raises(LikewiseError):
            store_decisions(made(**cells), str(audit), "Ann", "tool")
        assert all_rows(audit) == before
    (tmp_path / "t.csv").write_text("row,label,choice\n0,wren,keep\n")
    got = likewise.receive(tmp_path / "t.csv", "csv", audit, reviewer="Ann")
    assert got.notes == (
        "1 of them replace another decision of the same reviewer, which stays in the store and is current again after an undo",
    )
    assert all_rows(audit)[:2] == before
    assert stored(audit) == [("Bo", "sample", "0", "unsure", "", ""), ("Ann", "sample", "0", "keep", "", "")]
    with closing(Store(audit / "decisions.sqlite", read_findings(audit))) as store:
        store.undo("Ann")
    assert [one[0::3] for one in stored(audit)] == [("Ann", "remove"), ("Bo", "unsure")]


def test_classes_that_reviewers_added_are_known(tmp_path):
    audit = write_audit(tmp_path, n=4)
    with closing(Store(audit / "decisions.sqlite", read_findings(audit))) as store:
        store.decide("Bo", "2", "relabel", "emu", new_class=True)
    store_decisions(made(row=[0], label=[" emu "]), str(audit), "Ann", "tool")
    assert stored(audit)[-1] == ("Ann", "sample", "0", "relabel", "emu", "")


def test_an_audit_with_several_labels_per_sample(tmp_path):
    audit = write_audit(tmp_path, n=2)
    about = json.loads((audit / "audit.json").read_text())
    (audit / "audit.json").write_text(json.dumps(about | {"labels": {}}))
    (audit / "labels.csv").write_text(",".join(LabelQuestion._fields) + "\n")
    with pytest.raises(LikewiseError, match="tool: .*samples with one label"):
        store_decisions(made(row=[0], label=["owl"]), str(audit), "Ann", "tool")
