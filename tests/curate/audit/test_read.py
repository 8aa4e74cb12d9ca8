"""An audit's folder is read as it was written, whole or not at all."""

import json

import numpy as np
import pytest
from audit_folder import HEADS, write_audit
from likewise.errors import LikewiseError

from likewise.curate.audit.read import (
    UNSPLIT_NAME,
    LabelQuestion,
    VoteLine,
    data_name,
    read_consensus,
    read_findings,
    read_votes,
    read_workers,
)
from likewise.curate.audit.states import rare_states, suggested_decision


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
    for row, near in (([1], [[2], [0]]), ([1.0], [[2]])):
        np.savez(folder / "neighbours.npz", row=np.array(row), near=np.array(near))
        with pytest.raises(LikewiseError, match="neighbours.npz .*audit again"):
            read_findings(folder)


def test_a_folder_without_an_audit_says_what_to_do(tmp_path):
    with pytest.raises(LikewiseError, match="run `likewise audit` first"):
        read_findings(tmp_path)


def test_name_and_advice_of_a_question():
    one = LabelQuestion(3, "red|ish", "missing", 0.9, "flagged")
    assert one.item == "3:red|ish" and one.advice == "add"
    assert one._replace(kind="superfluous").advice == "remove" and one._replace(state="ok").advice == "keep"


def test_lines(tmp_path):
    (tmp_path / "annotators.csv").write_text("h,,,,,,,,\nanna,7,0.9,0.8,0.95,,cat,dog,2\nben,5,0.5,0.2,0.8,0.4,,,0\n")
    anna, ben = read_workers(tmp_path)
    assert anna.disagreement is None and anna.confusion == "cat as dog, 2 times" and ben.confusion == ""
    (tmp_path / "consensus.csv").write_text("h,,,,,,,,,\n3,a.png,cat,dog,0.1,other label,0.05,3,2,dog x 2|cat x 1\n")
    [one] = read_consensus(tmp_path)
    assert one.row == 3 and one.consensus == "dog" and one.for_consensus == 2
    (tmp_path / "annotator_votes.csv").write_text('row,worker,label\n3,anna,"dog|cat"\n3,,dog\n')
    assert read_votes(tmp_path) == [VoteLine(3, "anna", "dog|cat"), VoteLine(3, "", "dog")]


def test_missing_and_damaged_files(tmp_path):
    assert read_workers(tmp_path) == read_votes(tmp_path) == [] and read_consensus(tmp_path) == []
    (tmp_path / "annotators.csv").write_text("a,b\n1,2\n")
    with pytest.raises(LikewiseError, match="must have 9 columns"):
        read_workers(tmp_path)


@pytest.mark.parametrize(
    ("root", "paths", "name"),
    [
        ("/home/ann/photos", ["wren/0.png", "tit/1.png"], "photos"),
        ("/home/ann", ["/home/ann/photos/wren/0.png", "/home/ann/photos/tit/1.png"], "photos"),
        ("/data/cub", ["images/wren/0.png", "images/tit/1.png"], "cub"),  # "images" says nothing
        ("/data/photos", ["0.png", "1.png"], "photos"),
        ("", ["wren/0.png", "tit/1.png"], "z.npz"),  # unknown place
        ("/", ["/a/0.png", "/b/1.png"], "z.npz"),
    ],
)
def test_the_folder_with_all_images(tmp_path, root, paths, name):
    lines = [f"{n},{path},wren,0.9,,,,," for n, path in enumerate(paths)]
    head = "row,path,label,score,suggested,confidence,margin,reason,split"
    (tmp_path / "audit.csv").write_text("\n".join([head, *lines]))
    for pictures, wanted in ((True, name), (False, "z.npz")):
        about = {"root": root, "title": "z.npz", "rows": 2, "pictures": pictures}
        (tmp_path / "audit.json").write_text(json.dumps(about))
        assert data_name(read_findings(tmp_path)) == wanted


@pytest.mark.parametrize(
    ("state", "score", "confidence", "decision"),
    [
        ("ok", 0.7, None, "keep"),
        ("unknown", None, None, "keep"),
        ("off-topic", 0.9, None, "remove"),
        ("off-topic", None, 1.0, "remove"),  # never relabelled
        ("flagged", 0.1, 0.6, "relabel"),  # 0.9 * 0.6 = 0.54
        ("flagged", 0.4, 0.8, "remove"),  # 0.6 * 0.8 = 0.48
        ("flagged", 0.49, 0.9, "remove"),  # the given label is likelier than the suggested one
        ("flagged", 0.0, 0.5, "relabel"),
        ("conflict", 0.8, 1.0, "keep"),
        ("conflict", 0.2, 0.9, "relabel"),
        ("conflict", 0.5, 1.0, "remove"),  # two labels, equally likely
        ("conflict", 0.4, 0.6, "remove"),
    ],
)
def test_decisions(state, score, confidence, decision):
    assert suggested_decision(state, score, confidence) == decision


def test_states_that_some_sample_has():
    parts = {"train": {"states": {"ok": 3, "unknown": 1, "conflict": 0}}, "test": {}}
    assert rare_states({"parts": parts}) == ["unknown"]
