"""An audit's folder is read as it was written, whole or not at all."""

import numpy as np
import pytest
from audit_folder import HEADS, write_audit
from likewise.errors import LikewiseError

from likewise.curate.audit.read import UNSPLIT_NAME, LabelQuestion, read_findings


@pytest.fixture
def folder(tmp_path):
    return write_audit(tmp_path)


def test_tables_are_read_with_their_kinds_and_in_order(folder):
    found = read_findings(folder)
    one = found.sample[1]
    assert one[:9] == (1, "a/1.png", "wren", 0.0004, "robin", 0.75, 0.5, "far from its class", "train")
    corners = {"left": "2", "top": "3", "right": "40.5", "bottom": "50"}
    assert one.carried == {"split": "train", "group": "7", **corners} and one.box == [2, 3, 40.5, 50]
    assert found.sample[0].margin is None and found.sample[0].box is None and found.sample[0].name == "0.png"
    assert [one.row for one in found.suspects] == [1, 8]
    assert found.single == {1: {"posterior": 0.05, "loss": 0.025}, 8: {"posterior": 0.4, "loss": None}}
    assert found.members["train", "wren"] == [2, 0, 1]  # the best score first
    assert found.near[1] == [1, 1] and found.near[8] == [8, 8]  # without the -1
    assert found.pair["6-9"] == (6, 9, "confusion", 0.25, 9, 7) and found.pair["9-6"].mate == -1
    assert [c.row for c in found.causes["group", "tit"]["harmful"]] == [5, 4]  # by place
    assert found.causes["confusion", "6-9"] == {"helpful": [("6-9", "confusion", "helpful", 1, 0, -3)]}
    first, second = found.duplicates
    assert (first.bits, first.same_label, first.across) == (3, False, True)
    assert (second.bits, second.same_label, second.across) == (None, True, False)
    assert found.across == {"train-test": 1}
    assert [(one.label, one.partner, one.overlap) for one in found.merges()] == [("robin", "wren", 0.99)]


def test_a_group_counts_the_errors_of_its_class(folder):
    (group,) = read_findings(folder).groups()
    assert group[:4] == ("tit", "test", 2, 3)  # the mis-similar pair is the same query's, and not counted again
    assert group.confused == [("owl", 2)]


def test_suspects_with_equal_scores_stand_by_row(folder):
    text = (folder / "audit.csv").read_text()
    (folder / "audit.csv").write_text(text.replace(",0.0004,", ",0.125,"))
    assert [one.row for one in read_findings(folder).suspects] == [1, 8]


def test_data_without_parts_is_one_part(folder):
    for name in ("audit", "classes"):
        text = (folder / f"{name}.csv").read_text()
        (folder / f"{name}.csv").write_text(text.replace(",train", ",").replace(",test", ",").replace("train,", ","))
    found = read_findings(folder)
    assert (
        found.sample[1].split == UNSPLIT_NAME and found.sample[1].carried["split"] == ""
    )  # as the data's own table has it
    assert found.members[UNSPLIT_NAME, "wren"] == [2, 0, 1] and found.merges()[0].split == UNSPLIT_NAME


def test_only_the_first_two_files_must_be_there(folder):
    for name in ("pairs.csv", "causes.csv", "classes.csv", "duplicates.csv", "neighbours.npz"):
        (folder / name).unlink()
    found = read_findings(folder)
    assert len(found.sample) == 12 and not found.pair and not found.causes and not found.near and not found.groups()
    (folder / "audit.csv").unlink()
    with pytest.raises(LikewiseError, match="audit.csv cannot be read"):
        read_findings(folder)


@pytest.mark.parametrize(
    ("file", "line", "told"),
    [
        ("audit.csv", "12,,wren,0.5,,,,,train", "line 14 of audit.csv must have a new row below 12, got 12"),
        ("audit.csv", "-3,,wren,0.5,,,,,train", "line 14 of audit.csv must have a new row below 12, got -3"),
        ("audit.csv", "2,,wren,0.5,,,,,train", "line 14 of audit.csv must have a new row below 12, got 2"),
        ("audit.csv", "2,,wren,low,,,,,train", "score must be a number, got 'low' in line 14 of audit.csv"),
        ("audit.csv", "2,,wren,nan,,,,,train", "score must be a number, got 'nan' in line 14"),
        ("pairs.csv", "0,99,confusion,1,1,1", "pairs.csv line 6 must have rows of audit.csv, got 99"),
        ("pairs.csv", "0,1,confusion,1,1,-2", "pairs.csv line 6 must have rows of audit.csv, got -2"),
        ("pairs.csv", "0,1,confusion,1,-1,1", "pairs.csv line 6 must have rows of audit.csv, got -1"),
        ("causes.csv", "1-2,confusion,harmful,1,-1,1,1", "causes.csv line 5 must have rows of audit.csv, got -1"),
        ("duplicates.csv", "0,x,1,,near,train-train,1", "other must be a number, got 'x' in line 4"),
    ],
)
def test_a_wrong_line_is_named(folder, file, line, told):
    with open(folder / file, "a") as out:
        out.write(line + "\n")
    with pytest.raises(LikewiseError, match=told):
        read_findings(folder)


@pytest.mark.parametrize(
    ("file", "text", "told"),
    [
        ("audit.json", "{", "audit.json is damaged"),
        ("audit.json", "[]", "audit.json is damaged"),
        ("audit.json", '{"title": "a", "root": "", "pictures": true}', "audit.json is damaged .*rows"),
        ("audit.csv", "row,path\n0,a\n", "audit.csv must have the column 'label'"),
        ("audit.csv", HEADS["audit"].replace(" ", ","), "audit.csv must have a sample or more"),
        ("audit.csv", HEADS["audit"].replace(" ", ",") + "\n0,,a,1,,,,,,,,,,,wide\n", "right must be .* got 'wide'"),
        ("neighbours.npz", "no archive", "neighbours.npz is damaged .*audit again"),
        ("neighbours.npz", "", "neighbours.npz is damaged .*audit again"),
        ("audit.json", "[" * 10**5, "audit.json is damaged"),
        ("audit.json", '{"title": "a", "root": "", "pictures": true, "rows": 1, "scores": 3}', "scores is 3"),
    ],
)
def test_a_broken_file_is_named(folder, file, text, told):
    (folder / file).write_text(text)
    with pytest.raises(LikewiseError, match=told):
        read_findings(folder)


def test_neighbours_are_a_line_of_rows_for_each(folder):
    np.savez(folder / "neighbours.npz", row=np.array([1, 3]), near=np.array([[70], [0]]))
    with pytest.raises(LikewiseError, match="must have rows of audit.csv, got 70"):
        read_findings(folder)
    for row, near in ((np.array([1]), np.array([[2], [0]])), (np.array([1.0]), np.array([[2]]))):
        np.savez(folder / "neighbours.npz", row=row, near=near)
        with pytest.raises(LikewiseError, match="one row of 'near' for each.*audit again"):
            read_findings(folder)


def test_a_folder_without_an_audit_says_what_to_do(tmp_path):
    with pytest.raises(LikewiseError, match="run `likewise audit` first"):
        read_findings(tmp_path)


def test_name_and_advice_of_a_question():
    one = LabelQuestion(3, "red|ish", "missing", 0.9, "flagged")
    assert one.item == "3:red|ish" and one.advice == "add"
    assert one._replace(kind="superfluous").advice == "remove" and one._replace(state="ok").advice == "keep"
