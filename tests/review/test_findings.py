"""An audit's folder is read whole or not at all."""

import numpy as np
import pytest

from likewise.errors import LikewiseError
from likewise.review.findings import read_findings

AUDIT = """row,path,label,score,suggested,confidence,margin,reason,split,vote,group,left,top,right,bottom
0,a/0.png,wren,0.9,,,,,train,0.8,1,,,,
1,a/1.png,wren,0.1,robin,0.8,0.5,near robins,train,0.1,1,2,3,40.5,50
2,b/2.png,robin,0.7,,,,,train,0.9,,,,,
3,b/3.png,robin,0.05,wren,0.6,0.2,near wrens,test,0.2,,,,,
"""
PAIRS = "query,other,type,distance,wrong,mate\n1,2,confusion,0.25,2,0\n3,0,confusion,0.5,0,-1\n"
CAUSES = """error,kind,direction,place,row,influence,relative
1-2,confusion,harmful,1,3,0.2,2.5
1-2,confusion,harmful,2,0,0.1,1.25
1-2,confusion,helpful,1,2,-0.4,-5
robin,group,harmful,1,1,0.3,4
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "audit.csv").write_text(AUDIT)
    (tmp_path / "pairs.csv").write_text(PAIRS)
    (tmp_path / "causes.csv").write_text(CAUSES)
    np.savez(tmp_path / "neighbours.npz", row=np.array([1, 3]), near=np.array([[2, 3], [0, -1]]))
    return tmp_path


def test_findings_say_what_the_files_say(folder):
    found = read_findings(folder)
    assert list(found.sample) == [0, 1, 2, 3]
    one = found.sample[1]
    assert one[:9] == (1, "a/1.png", "wren", 0.1, "robin", 0.8, 0.5, "near robins", "train")
    corners = {"left": "2", "top": "3", "right": "40.5", "bottom": "50"}
    assert one.carried == {"split": "train", "group": "1", **corners} and one.box == [2, 3, 40.5, 50]
    assert found.sample[0].confidence is None and found.sample[0].box is None
    assert found.pair == {"1-2": (1, 2, "confusion", 0.25, 2, 0), "3-0": (3, 0, "confusion", 0.5, 0, -1)}
    assert found.causes == {("1-2", "harmful"): [(3, 2.5), (0, 1.25)], ("1-2", "helpful"): [(2, -5)]}
    assert found.near == {1: [2, 3], 3: [0]}
    assert found.members == {"wren": [0, 1], "robin": [2, 3]}  # least suspect first
    assert found.kind("1-2") == "pair" and found.kind("1") == "sample"


def test_only_the_samples_must_be_there(folder):
    whole = read_findings(folder)
    for name in ("pairs.csv", "causes.csv", "neighbours.npz"):
        (folder / name).unlink()
    alone = read_findings(folder)
    assert (alone.pair, alone.causes, alone.near) == ({}, {}, {}) and alone.fingerprint == whole.fingerprint


@pytest.mark.parametrize(
    ("file", "text", "told"),
    [
        ("audit.csv", AUDIT.replace("score", "points"), "must have the column 'score'"),
        ("audit.csv", AUDIT.replace("split", "part"), "must have the column 'split'"),
        ("audit.csv", AUDIT.replace("0.05", "low"), "score must be a number, got 'low' in line 5"),
        ("audit.csv", AUDIT.replace("0.05", "nan"), "score must be a number, got 'nan' in line 5"),
        ("audit.csv", AUDIT.replace("40.5", "wide"), "right must be a number, got 'wide' in line 3"),
        ("audit.csv", AUDIT.replace("\n3,", "\n-3,"), "row must be a row's number, got '-3' in line 5"),
        ("audit.csv", AUDIT.replace("\n3,", "\n2,"), "a row stands in audit.csv once, got 2 again in line 5"),
        ("audit.csv", AUDIT.splitlines()[0], "must hold samples, and it has none"),
        ("pairs.csv", PAIRS.replace("1,2,", "1,9,"), "pairs.csv line 2 must name rows of audit.csv, got 9"),
        ("pairs.csv", PAIRS.replace("2,0\n", "2,8\n"), "pairs.csv line 2 must name rows of audit.csv, got 8"),
        ("pairs.csv", PAIRS.replace("-1", "-2"), "mate must be a row's number, got '-2' in line 3"),
        ("causes.csv", CAUSES.replace("1,3,0.2", "1,7,0.2"), "causes.csv line 2 must name rows of audit.csv, got 7"),
        ("neighbours.npz", "no arrays", "neighbours.npz must hold the arrays 'row' and 'near'"),
    ],
)
def test_bad_files_are_refused(folder, file, text, told):
    (folder / file).write_text(text)
    with pytest.raises(LikewiseError, match=told):
        read_findings(folder)


def test_bad_neighbours_and_a_missing_audit_are_refused(folder, tmp_path_factory):
    np.savez(folder / "neighbours.npz", row=np.array([1, 3]), near=np.array([[7], [0]]))
    with pytest.raises(LikewiseError, match="must name rows of audit.csv, got 7"):
        read_findings(folder)
    np.savez(folder / "neighbours.npz", row=np.array([1]), near=np.array([[2], [0]]))
    with pytest.raises(LikewiseError, match="a line of 'near' a 'row', got \\(2, 1\\) and \\(1,\\)"):
        read_findings(folder)
    with pytest.raises(LikewiseError, match="a folder with audit.csv is wanted.*run `likewise audit`"):
        read_findings(tmp_path_factory.mktemp("empty"))


@pytest.mark.parametrize("item", ["7", "-1", "1-3", "../1", "¹", "9" * 5000, ""])
def test_what_is_no_item_is_refused(folder, item):
    with pytest.raises(LikewiseError, match="an item is a row or a pair of this audit"):
        read_findings(folder).kind(item)
