"""Decisions of several reviewers as votes: agreement as before for two, the model from three on."""

from likewise.audit.read import read_findings
from likewise.web.review.consensus import find_consensus
from likewise.web.review.reviewer_votes import REMOVED, votes_of_decisions, weigh_decisions
from likewise.web.review.store import Decision

ROWS = "row,path,label,score,suggested,confidence,margin,reason,split,vote\n" + "".join(
    f"{row},{row}.png,{'wren' if row % 2 else 'robin'},0.5,,,,,train,0.5\n" for row in range(40)
)


def findings(folder, text):
    (folder / "audit.json").write_text('{"title": "birds", "root": "", "rows": 40, "pictures": true}')
    (folder / "audit.csv").write_text(text)
    return read_findings(folder)


def decisions(kind, **by):
    return [
        Decision(n, "", who, kind, str(item), *[*choice.split(":"), ""][:2], "")
        for who, made in by.items()
        for n, (item, choice) in enumerate(made.items())
    ]


def test_decisions_are_votes(tmp_path):
    made = decisions("sample", ann={0: "keep", 1: "remove"}, bob={0: "relabel:wren", 1: "unsure"})
    votes, items, names = votes_of_decisions(findings(tmp_path, ROWS), made)
    assert items == ["0", "1"] and votes.worker_name == ("ann", "bob")
    chosen = [(items[r], votes.worker_name[w], names[c]) for r, w, c in zip(*(v.tolist() for v in votes[:3]))]
    assert chosen == [("0", "ann", "robin"), ("1", "ann", REMOVED), ("0", "bob", "wren")]


def test_two_reviewers_must_agree(tmp_path):
    made = decisions("sample", ann={0: "keep", 1: "remove"}, bob={0: "relabel:wren", 1: "remove"})
    found = weigh_decisions(findings(tmp_path, ROWS), made)
    assert found.settled == find_consensus(made) and found.wrong == {}
    assert found.settled["0"].choice == "disputed" and [r.name for r in found.reviewers] == ["ann", "bob"]
    assert weigh_decisions(findings(tmp_path, ROWS), []).settled == {}


def test_three_reviewers_are_weighed(tmp_path):
    """ann and bob agree on all 40 samples but one; cid often differs, and is weighed less."""
    good = {row: "keep" if row % 3 else "relabel:tit" for row in range(40)}
    bad = {row: "keep" if row % 2 else "remove" for row in range(40)}
    made = decisions("sample", ann=good, bob=good | {5: "relabel:tit"}, cid=bad)
    found = weigh_decisions(findings(tmp_path, ROWS), made)
    assert found.settled["0"].choice == "relabel" and found.settled["0"].label == "tit"
    assert found.settled["1"].choice == "keep" and 0 <= found.wrong["1"] < 0.2
    worst = min(found.reviewers, key=lambda one: one.accuracy)
    assert worst.name == "cid" and worst.low < worst.accuracy < worst.high
