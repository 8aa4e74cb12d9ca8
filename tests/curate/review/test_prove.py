"""`likewise review --retrain`: decisions in a store become labels, and forecast and result are written and shown."""

from contextlib import closing

import pytest
from audit_folder import write_audit
from likewise.config import Audit, Review
from likewise.types import LikewiseError
from planted_audit import write_features

from likewise.curate.audit.audit import audit
from likewise.curate.audit.read import read_findings, read_order, read_proof
from likewise.curate.review import prove as module
from likewise.curate.review import review
from likewise.curate.review.prove import audit_settings, prove
from likewise.curate.review.store import Choice, Store


def silent(text):
    pass


@pytest.mark.parametrize("split", [False, True])
def test_a_head_gains_as_was_forecast(tmp_path, split):
    true = write_features(tmp_path / "z.npz", split=split)
    settings = {"targets": (str(tmp_path / "z.npz"),), "device": "cpu", "workers": 0, "quiet": True}
    folder = audit(Audit(**settings, out=str(tmp_path / "audit"), forecast=True), say=silent).folder
    findings, queue = read_findings(folder), read_order(folder)
    decided = queue[: len(queue) // 2]
    with closing(Store(folder / "decisions.sqlite", findings)) as store:
        store.decide_all("ann", [right_choice(findings, row, str(true[row])) for row in decided])
        store.decide_all("bob", [Choice(str(queue[-1]), "unsure")])
    found = review(Review(str(folder), retrain=True, quiet=True), silent)
    proof = read_proof(folder)
    assert found.proof == proof and proof["reviewed"] == len(decided) and proof["labels"] == "decisions"
    [part] = proof["parts"]
    assert part["of"] == "head" and [row["metric"] for row in part["rows"]] == ["R@1", "MAP@R"]
    assert ("given labels" if split else "reviewed labels") in part["note"]
    assert "Forecast and result" in found.page.read_text("utf-8") and "head, MAP@R: forecast" in str(found)
    assert "head, MAP@R" in found._repr_html_()
    review(Review(str(folder), retrain=True, quiet=True), silent)
    assert read_proof(folder) == proof  # the same decisions give the same numbers


def right_choice(findings, row, label):
    keeps = findings.sample[row].label == label
    return Choice(str(row), "keep") if keeps else Choice(str(row), "relabel", label)


def test_settled_decisions_of_a_run(tmp_path, monkeypatch):
    write_audit(tmp_path)
    seen = []

    def again(about, labels, config, folder, say):
        seen.append((about["target"], labels, config.checkpoint, config.device))
        return {"rows": [], "summary": "no training label changes"}

    monkeypatch.setattr(module, "retrain_with_decisions", again)
    with closing(Store(tmp_path / "decisions.sqlite", read_findings(tmp_path))) as store:
        for one in (
            ("ann", "1", "relabel", "robin"), ("bob", "1", "relabel", "robin"), ("ann", "8", "remove"), ("ann", "3", "keep"),
            ("ann", "2", "remove"), ("bob", "2", "keep"), ("ann", "9", "unsure"),
        ):  # fmt: skip
            store.decide(*one)
        store.decide("ann", "6-9", "agreeable")
    found = prove(Review(str(tmp_path), retrain=True, quiet=True, device="cpu"), silent)
    assert seen == [("runs/a", {1: "robin", 8: None}, "best", "cpu")]  # row 2 is disputed
    assert "no forecast" in found.proof["reason"] and found.proof["reviewed"] == 0


def test_settings_of_the_audit_open_its_run(tmp_path):
    findings = read_findings(write_audit(tmp_path))
    findings.about["opened"] = {"checkpoint": "last", "data": "moved", "root": "there"}
    found = audit_settings(Review(str(tmp_path), allow_imports=True), findings)
    assert (found.checkpoint, found.data, found.root, found.allow_imports) == ("last", "moved", "there", True)


def test_without_decisions(tmp_path):
    write_audit(tmp_path)
    with pytest.raises(LikewiseError, match="no .*decisions.sqlite"):
        prove(Review(str(tmp_path), retrain=True), silent)
    assert not (tmp_path / "decisions.sqlite").exists()
