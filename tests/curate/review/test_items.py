"""Which items the page asks for, and what it shows of one."""

import numpy as np
import pytest

from likewise.curate.audit.read import read_findings
from likewise.curate.review.items import (
    ItemFilter,
    Questioned,
    is_copy_pair,
    looks_like,
)

AUDIT = """row,path,label,score,suggested,confidence,margin,reason,split
10,,wren,0.9,,,,,train
11,,wren,0.1,robin,0.8,0.5,near robins,train
12,,robin,0.7,,,,,test
16,,robin,0.6,,,,,train
13,,robin,0.05,wren,0.6,0.2,near wrens,test
14,,tit,0.3,robin,,,,test
15,,tit,0.1,wren,,,,train
"""
PAIRS = """query,other,type,distance,wrong,mate
12,14,confusion,0.25,14,13
12,13,mis-similar,1.5,14,13
14,12,confusion,0.5,12,-1
"""
CAUSES = "error,kind,direction,place,row,influence,relative\n12-14,confusion,harmful,1,11,0.1,3\n"


@pytest.fixture
def findings(tmp_path):
    (tmp_path / "audit.json").write_text(
        '{"title": "birds", "root": "", "rows": 17, "pictures": false, "parts": {"train": {}, "test": {}}}'
    )
    (tmp_path / "audit.csv").write_text(AUDIT)
    (tmp_path / "pairs.csv").write_text(PAIRS)
    (tmp_path / "causes.csv").write_text(
        CAUSES + "".join(f"12-14,confusion,helpful,{k},10,-1,-{9 - k}\n" for k in range(1, 9))
    )
    np.savez(tmp_path / "neighbours.npz", row=np.array([11]), near=np.array([[15, 10, -1]]))
    return read_findings(tmp_path)


def test_a_sample_is_shown_with_its_classes_and_neighbours(findings):
    [panel] = Questioned(findings).content("11")["panels"]
    assert (panel["label"], panel["suggested"], panel["score"], panel["margin"]) == ("wren", "robin", 0.1, 0.5)
    assert panel["split"] == "train" and "carried" not in panel
    assert [one["row"] for one in panel["claimed"]] == [10]  # without itself
    assert [one["row"] for one in panel["instead"]] == [16]  # of its own part
    assert [(one["row"], one["label"]) for one in panel["near"]] == [(15, "tit"), (10, "wren")]


def test_a_class_of_another_split_is_shown_with_samples_of_that_split(findings):
    [panel] = Questioned(findings).content("13")["panels"]
    assert panel["suggested"] == "wren" and findings.sample[13].split == "test"
    assert [one["row"] for one in panel["instead"]] == [10, 11]
    assert findings.exemplars("test", "wren", 1) == [10] and findings.exemplars("test", "wren", 2, [10]) == [11]
    assert findings.exemplars("train", "robin", 2) == [16] and findings.exemplars("test", "owl", 2) == []


def test_a_pair_is_shown_as_a_triple_with_its_causes(findings):
    pair = Questioned(findings).content("12-14")
    assert [one["row"] for one in pair["panels"]] == [12, 14, 13]  # query, wrong neighbour, one of its own
    assert (pair["type"], pair["distance"]) == ("confusion", 0.25)
    assert pair["harmful"] == [{"row": 11, "label": "wren", "name": "row 11", "relative": 3}]
    assert [one["relative"] for one in pair["helpful"]] == [-8, -7, -6, -5, -4, -3]
    apart = Questioned(findings).content("12-13")
    assert [one["row"] for one in apart["panels"]] == [12, 14, 13] and apart["harmful"] == []
    assert [one["row"] for one in Questioned(findings).content("14-12")["panels"]] == [14, 12]  # alone in its class


COPIES = """row,path,label,score,state,suggested,confidence,margin,reason,split,same_as,off_topic
0,a/0.png,wren,0.9,conflict,,,,,,0,
1,a/1.png,robin,0.1,conflict,wren,0.9,0.8,,,0,
2,a/2.png,robin,0.2,flagged,wren,0.5,0.1,,,,
3,a/3.png,wren,0.8,ok,,,,,,,
4,a/4.png,wren,0.7,ok,,,,,,,
5,a/5.png,wren,0.6,off-topic,,,,,,,0.75
6,a/6.png,tit,,unknown,,,,,,,
"""


@pytest.fixture
def copies(tmp_path):
    (tmp_path / "audit.json").write_text('{"title": "birds", "root": "", "rows": 7, "pictures": false}')
    (tmp_path / "audit.csv").write_text(COPIES)
    (tmp_path / "pairs.csv").write_text(
        "query,other,type,distance,wrong,mate\n0,1,confusion,0,1,3\n2,3,confusion,0.1,3,-1\n"
    )
    np.savez(tmp_path / "neighbours.npz", row=np.array([4, 3]), near=np.array([[2, 1, 6], [0, 4, -1]]))
    return read_findings(tmp_path)


def test_copies_are_one_question_and_come_first_then_flags_then_images_of_no_class(copies):
    asked = Questioned(copies)
    assert asked.flagged == {"0": (0, 1), "2": (2,), "5": (5,)}
    assert list(asked.others) == ["4", "3", "6"]  # rising scores; what has no score comes last
    assert asked.matches("0", ItemFilter("sample", label="robin"))  # the label of its copy
    assert is_copy_pair(copies, "0-1") and not is_copy_pair(copies, "2-3")


def test_what_a_label_that_is_not_flagged_looks_like_is_said_by_its_neighbours(copies):
    assert looks_like(copies, copies.sample[4]) == "robin" and looks_like(copies, copies.sample[3]) == ""
    assert looks_like(copies, copies.sample[2]) == "wren" and looks_like(copies, copies.sample[5]) == ""


def test_a_tile_has_the_probability_of_the_change(copies):
    tile = Questioned(copies).tile
    found = tile("2", {})
    assert found["probability"] == pytest.approx(0.8 * 0.5) and found["flagged"] and found["choice"] == ""
    assert tile("5", {})["probability"] == 0.75
    beyond = tile("4", {})
    assert beyond["probability"] is None and not beyond["flagged"] and beyond["suggested"] == "robin"
    assert tile("0", {})["labels"] == ["wren", "robin"]
