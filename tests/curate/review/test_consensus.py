"""What reviewers make of the labels together: tables that training reads."""

import numpy as np

from likewise.curate.audit.read import read_findings
from likewise.curate.review.consensus import as_csv, changes, corrected, escape_formulas
from likewise.curate.review.store import Decision
from likewise.data.features import read_embeddings
from likewise.data.table import read_table

AUDIT = """row,path,label,score,suggested,confidence,margin,reason,split,vote,query,gallery,group,left,top,right,bottom,weight
1,a/0.png,wren,0.9,,,,,train,0.9,0,1,,,,,,1
2,a/1.png,wren,0.1,robin,0.8,0.5,,train,0.2,0,1,7,1,2,30.5,40,0.5
4,b/2.png,robin,0.7,,,,,val,,1,0,7,,,,,1
5,b/3.png,"tit, blue",0.05,wren,0.6,0.2,,test,0.1,1,1,,,,,,1
"""


def decisions(kind, **by):
    return [
        Decision(n, "", who, kind, str(item), *[*choice.split(":"), ""][:2], "two birds" if choice == "remove" else "")
        for who, verdicts in by.items()
        for n, (item, choice) in enumerate(verdicts.items())
    ]


SAID = [
    *decisions("sample", ann={2: "relabel:tit, blue", 5: "remove", 4: "relabel:wren"}, bob={5: "unsure", 4: "keep"}),
    *decisions("pair", ann={"4-5": "agreeable"}),
]


def findings(folder, text=AUDIT):
    (folder / "audit.json").write_text('{"title": "birds", "root": "", "rows": 8, "pictures": true}')
    (folder / "audit.csv").write_text(text)
    return read_findings(folder)


def test_a_table_of_pictures_can_be_trained_on_as_it_is(tmp_path):
    table = corrected(findings(tmp_path), SAID, str(tmp_path / "pictures"))
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
    table = corrected(findings(tmp_path, text), SAID)
    (tmp_path / "corrected.csv").write_text(as_csv(table))
    np.save(tmp_path / "z.npy", np.eye(8, dtype=np.float32))
    items = read_embeddings(str(tmp_path / "z.npy"), str(tmp_path / "corrected.csv"))
    names = [items.class_name[y] for y in items.y]
    assert [names[row] for row in (1, 2, 4)] == ["wren", "tit, blue", "robin"] and names[0] == names[3] == "not audited"
    assert items.junk.tolist() == [
        True,
        False,
        False,
        True,
        False,
        True,
        True,
        True,
    ]  # row 5 was removed, others not audited
    assert items.split.tolist()[1:6] == ["train", "train", "", "val", "test"]


def test_a_split_that_the_data_does_not_have_is_not_written(tmp_path):
    """Training on the table chooses the split again; an old split would put relabelled classes into train and test."""
    found = findings(tmp_path)
    assert "split" in corrected(found, SAID)[0]
    found.about["own_split"] = False
    head, *lines = corrected(found, SAID)
    assert "split" not in head and all(len(line) == len(head) for line in lines)


def test_columns_without_a_value_are_left_out(tmp_path):
    text = AUDIT.replace(",train,", ",,").replace(",val,", ",,").replace(",test,", ",,")
    head, *lines = corrected(findings(tmp_path, text), SAID)
    assert "split" not in head and "weight" in head and all(len(line) == len(head) for line in lines)


def test_changes_say_what_and_who(tmp_path):
    head, *lines = changes(findings(tmp_path), SAID)
    assert head == ("row", "path", "label", "change", "new_label", "reviewers", "notes")
    assert lines == [
        (2, "a/1.png", "wren", "relabel", "tit, blue", "ann: relabel tit, blue", ""),
        (4, "b/2.png", "robin", "disputed", "", "ann: relabel wren; bob: keep", ""),
        (5, "b/3.png", "tit, blue", "remove", "", "ann: remove", "two birds"),
    ]


def test_formulas_are_disarmed_for_people_and_labels_stay_for_training(tmp_path):
    made = findings(tmp_path, AUDIT.replace("wren", "=cmd|x").replace("robin", "-"))
    table = list(escape_formulas([("+1", -1, 0.5, "@SUM(A1)", "a=b", ""), *changes(made, SAID)]))
    assert table[0] == ["'+1", -1, 0.5, "'@SUM(A1)", "a=b", ""]
    assert table[2][2] == "'=cmd|x" and table[3][2] == "'-"
    (tmp_path / "corrected.csv").write_text(as_csv(corrected(made, SAID, str(tmp_path / "pictures"))))
    items = read_table(str(tmp_path / "corrected.csv"))
    assert [items.class_name[y] for y in items.y] == ["=cmd|x", "tit, blue", "-"]
