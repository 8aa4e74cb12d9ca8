"""Votes in an audit from end to end: the scores, the tables, the terminal, and that an audit without votes has none of it."""

import csv
import json

import numpy as np
import pytest
import torch
from likewise.config import Audit
from likewise.types import Items, Votes

from likewise.curate.audit.audit import audit
from likewise.curate.audit.label_probability import class_label_quality
from likewise.curate.audit.read import read_consensus, read_findings, read_votes, read_workers
from likewise.curate.audit.review_queue import class_numbers, read_queue
from likewise.curate.audit.summary import show_findings
from likewise.curate.audit.weighed_votes import state_of, weigh_votes, write_votes


@pytest.fixture(scope="module")
def voted(tmp_path_factory):
    """Embeddings of three classes with 10 % wrong labels, and votes of four workers, the last of whom guesses."""
    folder, rng = tmp_path_factory.mktemp("voted"), np.random.default_rng(0)
    true = np.arange(150) % 3
    x = 2.5 * rng.normal(size=(3, 8))[true] / 2 + rng.normal(size=(150, 8))
    given = true.copy()
    given[:15] = (true[:15] + 1) % 3
    np.savez(folder / "birds.npz", x=x.astype(np.float32), label=given, class_name=np.array(["wren", "robin", "tit"]))
    names, lines = ("wren", "robin", "tit"), []
    for row in range(140):
        for worker in rng.choice(4, 3, False):
            right = rng.random() < (0.9, 0.85, 0.8, 1 / 3)[worker]
            label = true[row] if right else (true[row] + rng.integers(1, 3)) % 3
            lines.append((row, f"w{worker}", names[label]))
    with (folder / "votes.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("row", "worker", "label"), *lines])
    settings = {"device": "cpu", "workers": 0, "quiet": True, "out": str(folder / "audit")}
    target = (str(folder / "birds.npz"),)
    return (
        audit(Audit(targets=target, votes=str(folder / "votes.csv"), **settings), lambda text: None),
        true,
        given,
        settings,
    )


def test_scores_and_tables(voted):
    found, true, _, _ = voted
    read, names = read_findings(found.folder), ("wren", "robin", "tit")
    consensus, workers = read_consensus(found.folder), read_workers(found.folder)
    assert len(consensus) == 140 and len(workers) == 4 and workers[0].name == "w3"
    assert all(w.low <= w.accuracy <= w.high for w in workers)
    wrong = [one for one in consensus if one.consensus != names[true[one.row]]]
    assert len(wrong) < 14  # the given labels of these rows are wrong in 15
    assert {one.row for one in read.suspects} >= {r for r in range(15) if r not in {one.row for one in wrong}}
    for one in consensus:
        assert read.sample[one.row].score == pytest.approx(one.label_score, abs=1e-5) or one.row in {
            s.row for s in read.off_topic
        }
    differ = [one.state == "agreed" for one in consensus]
    assert differ == sorted(differ)  # disagreements first
    lines = list(csv.DictReader((found.folder / "annotator_confusions.csv").open(newline="", encoding="utf-8")))
    assert {line["worker"] for line in lines} == {"w0", "w1", "w2", "w3"}
    assert all(line["label"] != line["voted"] and 0 < float(line["share"]) < 1 for line in lines)
    wrong_votes = sum(float(line["votes"]) for line in lines if line["worker"] == "w3")
    assert wrong_votes > max(sum(float(o["votes"]) for o in lines if o["worker"] == w) for w in ("w0", "w1", "w2"))
    about = json.loads((found.folder / "audit.json").read_text("utf-8"))["votes"]
    assert about["votes"] == 420 and about["workers"] == 4 and about["without_votes"] == 10 and about["features"]
    with (found.folder.parent / "votes.csv").open(newline="") as file:
        given = [(int(one["row"]), one["worker"], one["label"]) for one in csv.DictReader(file)]
    assert sorted(given) == sorted(tuple(one) for one in read_votes(found.folder))  # samples without votes have none


def test_the_posterior_of_a_forecast_has_the_votes(voted, tmp_path):
    found, _, _, settings = voted
    folder = found.folder.parent
    given = {"targets": (str(folder / "birds.npz"),), "votes": str(folder / "votes.csv"), "forecast": True}
    again = audit(Audit(**(settings | given | {"out": str(tmp_path / "audit")})), lambda text: None)
    findings, queue = read_findings(again.folder), read_queue(again.folder)
    number = class_numbers(queue, findings)
    place, best = {row: at for at, row in enumerate(queue.row.tolist())}, queue.candidates.suggested.tolist()
    voted_rows = {one.row for one in read_consensus(again.folder)}
    flagged = [one for one in findings.suspects if one.row in voted_rows]
    assert len(flagged) > 9
    for one in flagged:
        assert best[place[one.row]] == number[one.suggested]
        share = float(queue.candidates.probability[place[one.row], 1:].max())
        assert share == pytest.approx((1 - one.score) * one.confidence, abs=1e-4)


def test_the_terminal_shows_votes_and_workers(voted, capsys):
    show_findings(voted[0])
    said = " ".join(capsys.readouterr().out.split())
    assert "Votes: 420 of 4 workers about 140 samples" in said and "The least accurate workers" in said


def test_an_audit_without_votes_deletes_the_tables_of_an_earlier_one(voted, tmp_path):
    found, _, _, settings = voted
    target = (str(found.folder.parent / "birds.npz"),)
    out = tmp_path / "audit"
    out.mkdir()
    (out / "consensus.csv").write_text("old")
    again = audit(Audit(targets=target, **(settings | {"out": str(out)})), lambda text: None)
    assert again.about["votes"] is None and not (out / "consensus.csv").exists() and read_workers(out) == []


def test_votes_about_other_rows_are_no_votes():
    items = Items("birds", np.array([0, 1, 0, 1]), ("wren", "robin"), x=np.eye(4, dtype=np.float32))
    votes = Votes(np.array([3]), np.array([0]), np.array([1]), ("anna",))
    assert weigh_votes(votes, np.array([0, 1]), items, torch.eye(4)[:2]) is None


def test_votes_about_one_class_are_no_votes():
    items = Items("one", np.zeros(8, np.int64), ("cat",), x=np.zeros((8, 2), np.float32))
    votes = Votes(np.array([0, 1]), np.array([0, 0]), np.array([0, 0]), ("a",))
    assert weigh_votes(votes, np.arange(8), items, torch.zeros(8, 2)) is None


def test_states():
    assert state_of(True, True, True) == "undecided" and state_of(False, False, False) == "agreed"
    assert state_of(False, True, False) == "votes differ" and state_of(False, True, True) == "other label"


def test_tables_of_votes_among_many_classes(tmp_path):
    """300 classes of four samples: the tables are written from candidate classes, and the scores are those of the consensus."""
    rng = np.random.default_rng(0)
    true = np.arange(1200) % 300
    x = torch.as_tensor(2 * rng.normal(size=(300, 16))[true] + rng.normal(size=(1200, 16)), dtype=torch.float32)
    given = np.where(np.arange(1200) < 60, (true + 7) % 300, true)
    row, worker = np.arange(1100).repeat(2), np.tile([0, 1], 1100)
    label = np.where(rng.random(2200) < 0.8, true[row], (true[row] + 1) % 300)
    items = Items("many", given, tuple(f"c{n}" for n in range(300)), x=x.numpy())
    votes = Votes(row, worker, label, ("anna", "ben"))
    weighed = weigh_votes(votes, np.arange(1200), items, x)
    assert weighed is not None and weighed.found.votes.columns is not None and weighed.uses_features
    about = weighed.summary(items)
    assert about["samples"] == 1100 and about["without_votes"] == 100 and about["exchanged"] == []
    write_votes(tmp_path, weighed, items)
    consensus = read_consensus(tmp_path)
    assert len(consensus) == 1100 and sum(one.consensus == f"c{true[one.row]}" for one in consensus) > 1000
    lines = list(csv.DictReader((tmp_path / "annotator_confusions.csv").open(newline="", encoding="utf-8")))
    assert lines and all(line["label"] != line["voted"] and 0 < float(line["share"]) < 1 for line in lines)
    scored = class_label_quality(x, torch.as_tensor(given))
    found = weighed.rescore(scored, torch.arange(1200), torch.as_tensor(given))
    assert bool((found.score[1100:] == scored.score[1100:]).all())  # samples without votes
    assert float((found.score[:60] < 0.5).double().mean()) > 0.9
    assert float((found.suggested[:60] == torch.as_tensor(true[:60])).double().mean()) > 0.9
    assert found.candidates is not None and bool((found.candidates.label[:, 0] == torch.as_tensor(given)).all())
    one = {line.row: line.label_score for line in consensus}
    assert float(found.score[5]) == pytest.approx(one[5], abs=1e-5)
