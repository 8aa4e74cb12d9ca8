"""The consensus of reviewers: kappa by hand, disputes and votes, and the tables that training reads."""

import math

import numpy as np
import pytest
from likewise.errors import LikewiseError
from review_page import write_copies

from likewise.curate.audit.read import FEATURES_FILE, OWN_FILE, read_findings
from likewise.curate.review.consensus import (
    REMOVED_CLASS,
    agreement,
    answers,
    as_csv,
    changes,
    corrected,
    escape_formulas,
    find_consensus,
    outcome,
    settle,
    votes_of_decisions,
    write_corrected_features,
)
from likewise.curate.review.store import Choice, Decision, Store
from likewise.data.features import read_embeddings
from likewise.data.table import read_table
from likewise.runs.embeddings import origin


def decisions(kind, **by):
    return [
        Decision(n, "", who, kind, str(item), *[*choice.split(":"), ""][:2], "two birds" if choice == "remove" else "")
        for who, made in by.items()
        for n, (item, choice) in enumerate(made.items())
    ]


def findings(folder, text, rows=40):
    (folder / "audit.json").write_text(f'{{"title": "birds", "root": "", "rows": {rows}, "pictures": true}}')
    (folder / "audit.csv").write_text(text)
    return read_findings(folder)


def test_settling_needs_all_who_are_sure():
    said = decisions("sample", ann={1: "relabel:a", 2: "keep", 3: "unsure"}, bob={1: "relabel:b", 2: "unsure"})
    said += decisions("pair", ann={"1-2": "agreeable"}, bob={"1-2": "disagreeable"})
    found = {item: one[:2] for item, one in find_consensus(said).items()}
    assert found == {"1": ("disputed", ""), "2": ("keep", ""), "1-2": ("disputed", "")}


def by_hand(ann, bob):
    both = [item for item in ann if item in bob]
    views = {*ann.values(), *bob.values()}
    p = sum(ann[i] == bob[i] for i in both) / len(both)
    q = sum(
        sum(ann[i] == v for i in both) / len(both) * (sum(bob[i] == v for i in both) / len(both)) for v in sorted(views)
    )
    return (p - q) / (1 - q)


def test_kappa_by_hand():
    ann = {1: "keep", 2: "keep", 3: "relabel:a", 4: "relabel:a", 5: "remove", 9: "keep"}
    bob = {1: "keep", 2: "remove", 3: "relabel:a", 4: "relabel:b", 5: "remove", 8: "keep"}
    [found] = agreement(decisions("sample", ann=ann, bob=bob))
    assert found[:4] == ("sample", "ann", "bob", 5) and found[4] == pytest.approx(by_hand(ann, bob), abs=1e-12)
    assert found[4] == pytest.approx((3 / 5 - 6 / 25) / (1 - 6 / 25))  # keep 2 * 1, remove 1 * 2, a 2 * 1, b 0 * 1
    [undefined] = agreement(decisions("pair", ann={"1-2": "agreeable"}, bob={"1-2": "agreeable"}))
    assert math.isnan(undefined[4])
    assert agreement(decisions("sample", ann={1: "keep"}, bob={2: "keep"})) == []


@pytest.mark.parity
def test_kappa_as_scikit_learn():
    from sklearn.metrics import cohen_kappa_score

    rng = np.random.default_rng(0)
    for _ in range(5):
        mine, theirs = rng.choice(["keep", "remove", "relabel:a", "relabel:b"], (2, 30))
        theirs = np.where(rng.random(30) < 0.5, mine, theirs)
        said = decisions("sample", ann=dict(enumerate(mine.tolist())), bob=dict(enumerate(theirs.tolist())))
        assert agreement(said)[0][4] == pytest.approx(cohen_kappa_score(mine, theirs), abs=1e-12)


ROWS = "row,path,label,score,suggested,confidence,margin,reason,split,vote\n" + "".join(
    f"{row},{row}.png,{'wren' if row % 2 else 'robin'},0.5,,,,,train,0.5\n" for row in range(40)
)


@pytest.fixture
def forty(tmp_path):
    return findings(tmp_path, ROWS)


def test_decisions_are_votes(forty):
    made = decisions("sample", ann={0: "keep", 1: "remove"}, bob={0: "relabel:wren", 1: "unsure"})
    votes, items, names = votes_of_decisions(forty, made)
    assert items == ["0", "1"] and votes.worker_name == ("ann", "bob")
    chosen = [(items[r], votes.worker_name[w], names[c]) for r, w, c in zip(*(v.tolist() for v in votes[:3]))]
    assert chosen == [("0", "ann", "robin"), ("1", "ann", REMOVED_CLASS), ("0", "bob", "wren")]


def choices(found):
    return {item: one[:2] for item, one in found.items()}


def test_two_reviewers_must_agree(forty):
    made = decisions("sample", ann={0: "keep", 1: "remove"}, bob={0: "relabel:wren", 1: "remove"}, cid={0: "unsure"})
    found = settle(forty, made)
    assert found == find_consensus(made) and choices(found) == {"0": ("disputed", ""), "1": ("remove", "")}
    assert settle(forty, []) == {}


def test_three_reviewers_are_weighed(forty):
    """ann and bob agree on all 40 samples but one; cid often differs, and is weighed less."""
    good = {row: "keep" if row % 3 else "relabel:tit" for row in range(40)}
    bad = {row: "keep" if row % 2 else "remove" for row in range(40)}
    made = decisions("sample", ann=good, bob=good | {2: "relabel:tit"}, cid=bad)
    found = settle(forty, made)
    assert choices(find_consensus(made))["0"] == ("disputed", "") and choices(found)["0"] == ("relabel", "tit")
    assert choices(found)["4"] == ("keep", "") and choices(found)["1"] == ("keep", "")
    assert choices(found)["2"] == ("disputed", "")  # three different choices: no majority
    table = {line[-1]: line[1] for line in corrected(forty, made)[1:]}
    assert len(table) == 40 and table[0] == "tit" and table[2] == "robin"
    assert outcome(forty, made).disputed == 1


def test_copies_with_different_labels_count_once(tmp_path):
    """The numbers of the end add up to the questions of the audit page and of the review page."""
    write_copies(tmp_path)  # rows 0 and 3 are one image
    found = read_findings(tmp_path)
    for copy, count in [
        ({0: "relabel:robin", 3: "keep"}, (1, 0, 1, 1, 0)),
        ({0: "remove", 3: "keep"}, (0, 1, 1, 1, 0)),
        ({0: "remove", 3: "remove"}, (0, 1, 1, 1, 0)),
        ({0: "unsure", 3: "unsure"}, (0, 0, 1, 2, 0)),
    ]:
        made = decisions("sample", ann=copy | {1: "keep", 2: "unsure"})
        assert outcome(found, made)[:5] == count
        assert len(answers(found, made)) == sum(count) == found.to_review()[0] == 3
    made = decisions("sample", ann={0: "relabel:robin", 3: "keep"}, bob={0: "keep", 3: "relabel:wren"})
    assert outcome(found, made)[:5] == (0, 0, 0, 0, 1) and len(answers(found, made)) == 2  # one of each


def test_a_majority_that_the_model_doubts_stays_disputed(forty):
    """bob and cid contradict the three others in every sample; about sample 39 they outvote ann."""
    good = dict.fromkeys(range(39), "keep")
    bad = {row: "relabel:wren" if row % 2 == 0 else "relabel:robin" for row in range(39)}
    say = {"bob": bad | {39: "relabel:robin"}, "cid": bad | {39: "relabel:robin"}}
    made = decisions("sample", ann=good | {39: "keep"}, dan=good, eve=good, **say)
    found = choices(settle(forty, made))
    assert found["39"] == ("disputed", "") and found["0"] == ("keep", "")


def test_pairs_are_not_voted_on(forty):
    made = decisions("pair", **{who: {"1-2": "agreeable"} for who in ("ann", "bob")}, cid={"1-2": "disagreeable"})
    assert choices(settle(forty, made)) == {"1-2": ("disputed", "")}


def test_without_knowledge_of_the_reviewers_a_dispute_stays(forty):
    """One sample does not show who is right more often."""
    made = decisions("sample", ann={0: "remove"}, bob={0: "remove"}, cid={0: "keep"})
    assert choices(settle(forty, made))["0"] == ("disputed", "")
    made += decisions("sample", **{who: dict.fromkeys(range(1, 40), "keep") for who in ("ann", "bob", "cid")})
    assert choices(settle(forty, made))["0"] == ("remove", "")


AUDIT = """row,path,label,score,suggested,confidence,margin,reason,split,vote,query,gallery,group,left,top,right,bottom,weight
1,a/0.png,wren,0.9,,,,,train,0.9,0,1,,,,,,1
2,a/1.png,wren,0.1,robin,0.8,0.5,,train,0.2,0,1,7,1,2,30.5,40,0.5
4,b/2.png,robin,0.7,,,,,val,,1,0,7,,,,,1
5,b/3.png,"tit, blue",0.05,wren,0.6,0.2,,test,0.1,1,1,,,,,,1
"""


SAID = [
    *decisions("sample", ann={2: "relabel:tit, blue", 5: "remove", 4: "relabel:wren"}, bob={5: "unsure", 4: "keep"}),
    *decisions("pair", ann={"4-5": "agreeable"}),
]


def test_a_table_of_pictures_can_be_trained_on_as_it_is(tmp_path):
    table = corrected(findings(tmp_path, AUDIT, 8), SAID, str(tmp_path / "pictures"))
    (tmp_path / "corrected.csv").write_text(as_csv(table))
    items = read_table(str(tmp_path / "corrected.csv"))
    assert [items.class_name[y] for y in items.y] == ["wren", "tit, blue", "robin"]  # row 4 is disputed, row 5 is gone
    assert items.path[1] == str(tmp_path / "pictures" / "a" / "1.png")
    assert items.split.tolist() == ["train", "train", "val"]
    assert items.query.tolist() == [False, False, True] and items.gallery.tolist() == [True, True, False]
    assert items.group.tolist() == [-1, 7, 7] and items.weight.tolist() == [1, 0.5, 1]
    assert items.box[1].tolist() == [1, 2, 30.5, 40] and np.isnan(items.box[[0, 2]]).all()


def test_without_pictures_it_labels_every_row_of_the_embeddings(tmp_path):
    text = AUDIT
    for path in ("a/0.png", "a/1.png", "b/2.png", "b/3.png"):
        text = text.replace(path, "")
    table = corrected(findings(tmp_path, text, 8), SAID)
    (tmp_path / "corrected.csv").write_text(as_csv(table))
    np.save(tmp_path / "z.npy", np.eye(8, dtype=np.float32))
    items = read_embeddings(str(tmp_path / "z.npy"), str(tmp_path / "corrected.csv"))
    names = [items.class_name[y] for y in items.y]
    assert [names[row] for row in (1, 2, 4)] == ["wren", "tit, blue", "robin"] and names[0] == names[3] == "not audited"
    assert np.flatnonzero(items.junk).tolist() == [0, 3, 5, 6, 7]  # row 5 was removed, others not audited
    assert items.split.tolist()[1:6] == ["train", "train", "", "val", "test"]


def test_a_split_that_the_data_does_not_have_is_not_written(tmp_path):
    """Training on the table chooses the split again; an old split would put relabelled classes into train and test."""
    found = findings(tmp_path, AUDIT, 8)
    assert "split" in corrected(found, SAID)[0]
    found.about["own_split"] = False
    head, *lines = corrected(found, SAID)
    assert "split" not in head and all(len(line) == len(head) for line in lines)


def test_columns_without_a_value_are_left_out(tmp_path):
    text = AUDIT.replace(",train,", ",,").replace(",val,", ",,").replace(",test,", ",,")
    head, *lines = corrected(findings(tmp_path, text, 8), SAID)
    assert "split" not in head and "weight" in head and all(len(line) == len(head) for line in lines)


def test_changes_say_what_and_who(tmp_path):
    head, *lines = changes(findings(tmp_path, AUDIT, 8), SAID)
    assert head == ("row", "path", "label", "change", "new_label", "reviewers", "notes")
    assert lines == [
        (2, "a/1.png", "wren", "relabel", "tit, blue", "ann: relabel tit, blue", ""),
        (4, "b/2.png", "robin", "disputed", "", "ann: relabel wren; bob: keep", ""),
        (5, "b/3.png", "tit, blue", "remove", "", "ann: remove", "two birds"),
    ]


def test_formulas_are_disarmed_for_people_and_labels_stay_for_training(tmp_path):
    made = findings(tmp_path, AUDIT.replace("wren", "=cmd|x").replace("robin", "-"), 8)
    table = list(escape_formulas([("+1", -1, 0.5, "@SUM(A1)", "a=b", ""), *changes(made, SAID)]))
    assert table[0] == ["'+1", -1, 0.5, "'@SUM(A1)", "a=b", ""]
    assert table[2][2] == "'=cmd|x" and table[3][2] == "'-"
    (tmp_path / "corrected.csv").write_text(as_csv(corrected(made, SAID, str(tmp_path / "pictures"))))
    items = read_table(str(tmp_path / "corrected.csv"))
    assert [items.class_name[y] for y in items.y] == ["=cmd|x", "tit, blue", "-"]


OWN = """price,path,label,class_name,coarse,box,label_clean
1.50,a/x.png,9,,,,9
2,a/0.png,3,wren,song/small,,3
,a/1.png,3,wren,song/small,1 2 30.5 40,5
4,z/3.png,5,robin,song,,5
5,b/2.png,5,robin,song,,5
6,b/3.png,7,"tit, blue",,,7
"""


def test_the_corrected_table_of_a_table_keeps_its_rows_and_columns(tmp_path):
    """Rows 0 and 3 were not audited. Row 2 gets number, name and ancestors of its new class, row 4 a class of its own."""
    found = findings(tmp_path, AUDIT, 6)
    (tmp_path / OWN_FILE).write_text(OWN)
    found = read_findings(tmp_path)
    made = decisions("sample", ann={2: "relabel:tit, blue", 4: "relabel:9", 5: "keep"})
    head, *lines = corrected(found, made, "/p")
    assert head == ("price", "path", "label", "class_name", "coarse", "box", "label_clean", "row")
    assert lines == [
        ("1.50", "/p/a/x.png", "9", "", "", "", "9", 0),
        ("2", "/p/a/0.png", "3", "wren", "song/small", "", "3", 1),
        ("", "/p/a/1.png", "7", "tit, blue", "", "1 2 30.5 40", "5", 2),
        ("4", "/p/z/3.png", "5", "robin", "song", "", "5", 3),
        ("5", "/p/b/2.png", "9", "", "", "", "5", 4),
        ("6", "/p/b/3.png", "7", "tit, blue", "", "", "7", 5),
    ]
    new = corrected(found, decisions("sample", ann={2: "remove", 4: "relabel:3"}), "/p")
    assert [line[2:5] for line in new[1:]] == [
        ("9", "", ""), ("3", "wren", "song/small"), ("5", "robin", "song"), ("3'", "3", ""), ("7", "tit, blue", ""),
    ]  # fmt: skip
    (tmp_path / "corrected.csv").write_text(as_csv(new))
    items = read_table(str(tmp_path / "corrected.csv"))
    assert [items.class_name[y] for y in items.y] == ["9", "wren", "robin", "3", "tit, blue"]


def test_own_columns_of_another_number_of_rows_are_refused(tmp_path):
    findings(tmp_path, AUDIT, 8)
    (tmp_path / OWN_FILE).write_text(OWN)
    with pytest.raises(LikewiseError, match="must have 8 rows like the audit, got 6"):
        corrected(read_findings(tmp_path), SAID)


def test_features_with_the_corrected_labels(tmp_path):
    """Row 2 is relabelled, row 5 removed; rows 0 and 3 were not audited and stay."""
    found = findings(tmp_path, AUDIT, 6)
    given = ["ant", "wren", "wren", "ant", "robin", "tit, blue"]
    coarse = ["insect", "song", "song", "insect", "song", ""]
    x = np.arange(12, dtype=np.float32).reshape(6, 2)
    stored = {"x": x, "class_name": given, "label": [0, 3, 3, 0, 1, 2], "coarse": coarse, "row": np.arange(6)}
    words = {"data": "digest", "network": "resnet18", "path": [f"/{n}.png" for n in range(6)]}
    store = Store(tmp_path / "decisions.sqlite", found)
    assert write_corrected_features(store, tmp_path) is None  # no decisions, no features
    np.savez(tmp_path / FEATURES_FILE, **stored, **words)
    assert write_corrected_features(store, tmp_path) is None
    store.submit_decisions("ann", [Choice("2", "relabel", "robin"), Choice("5", "remove", "")]).result()
    file = write_corrected_features(store, tmp_path)
    items = read_embeddings(str(file))
    assert [items.class_name[y] for y in items.y] == ["ant", "wren", "robin", "ant", "robin"]
    assert np.array_equal(np.asarray(items.x), x[:5]) and items.path == tuple(f"/{n}.png" for n in range(5))
    assert items.taxonomy == {"ant": ("insect",), "robin": ("song",), "wren": ("song",)}
    assert origin(file)["network"] == "resnet18" and "data" not in origin(file)  # it is not the data that was embedded
    store.close()
