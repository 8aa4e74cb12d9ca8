"""Disputes among reviewers: two must agree, from three on their votes are weighed."""

from likewise.curate.audit.read import read_findings
from likewise.curate.review.agreement import find_consensus
from likewise.curate.review.consensus import corrected, outcome
from likewise.curate.review.reviewer_votes import REMOVED_CLASS, settle_decisions, votes_of_decisions
from likewise.curate.review.store import Decision

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
    assert chosen == [("0", "ann", "robin"), ("1", "ann", REMOVED_CLASS), ("0", "bob", "wren")]


def choices(found):
    return {item: one[:2] for item, one in found.items()}


def test_two_reviewers_must_agree(tmp_path):
    made = decisions("sample", ann={0: "keep", 1: "remove"}, bob={0: "relabel:wren", 1: "remove"}, cid={0: "unsure"})
    found = settle_decisions(findings(tmp_path, ROWS), made)
    assert found == find_consensus(made) and choices(found) == {"0": ("disputed", ""), "1": ("remove", "")}
    assert settle_decisions(findings(tmp_path, ROWS), []) == {}


def test_three_reviewers_are_weighed(tmp_path):
    """ann and bob agree on all 40 samples but one; cid often differs, and is weighed less."""
    good = {row: "keep" if row % 3 else "relabel:tit" for row in range(40)}
    bad = {row: "keep" if row % 2 else "remove" for row in range(40)}
    made = decisions("sample", ann=good, bob=good | {2: "relabel:tit"}, cid=bad)
    found = settle_decisions(findings(tmp_path, ROWS), made)
    assert choices(find_consensus(made))["0"] == ("disputed", "") and choices(found)["0"] == ("relabel", "tit")
    assert choices(found)["4"] == ("keep", "") and choices(found)["1"] == ("keep", "")
    assert choices(found)["2"] == ("disputed", "")  # three different choices: no majority
    table = {line[-1]: line[1] for line in corrected(findings(tmp_path, ROWS), made)[1:]}
    assert len(table) == 40 and table[0] == "tit" and table[2] == "robin"
    assert outcome(findings(tmp_path, ROWS), made).disputed == 1


def test_a_majority_that_the_model_doubts_stays_disputed(tmp_path):
    """bob and cid contradict the three others in every sample; about sample 39 they outvote ann."""
    good = dict.fromkeys(range(39), "keep")
    bad = {row: "relabel:wren" if row % 2 == 0 else "relabel:robin" for row in range(39)}
    say = {"bob": bad | {39: "relabel:robin"}, "cid": bad | {39: "relabel:robin"}}
    made = decisions("sample", ann=good | {39: "keep"}, dan=good, eve=good, **say)
    found = choices(settle_decisions(findings(tmp_path, ROWS), made))
    assert found["39"] == ("disputed", "") and found["0"] == ("keep", "")


def test_pairs_are_not_voted_on(tmp_path):
    made = decisions("pair", **{who: {"1-2": "agreeable"} for who in ("ann", "bob")}, cid={"1-2": "disagreeable"})
    assert choices(settle_decisions(findings(tmp_path, ROWS), made)) == {"1-2": ("disputed", "")}


def test_without_knowledge_of_the_reviewers_a_dispute_stays(tmp_path, monkeypatch):
    """One sample does not show who is right more often; too many classes are not fitted."""
    made = decisions("sample", ann={0: "remove"}, bob={0: "remove"}, cid={0: "keep"})
    assert choices(settle_decisions(findings(tmp_path, ROWS), made))["0"] == ("disputed", "")
    made += decisions("sample", **{who: dict.fromkeys(range(1, 40), "keep") for who in ("ann", "bob", "cid")})
    assert choices(settle_decisions(findings(tmp_path, ROWS), made))["0"] == ("remove", "")
    monkeypatch.setattr("likewise.labels.annotators.MAX_VOTED_CLASSES", 1)
    assert choices(settle_decisions(findings(tmp_path, ROWS), made))["0"] == ("disputed", "")
