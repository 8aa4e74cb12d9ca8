"""Samples as columns: the fast reader and the reader by line agree, and an object is the line that it was made from."""

import csv
import json

import numpy as np
import pytest
from audit_folder import write_audit
from likewise.errors import LikewiseError

from likewise.core.files import open_csv
from likewise.curate.audit import csv_columns
from likewise.curate.audit.read import read_findings
from likewise.curate.audit.samples import Near, Paths, Texts

NAMES = ("wren", "a,b", 'q"x"', "line\nbreak", "naïve 日本", "\udcff", "=1+1")
WORDS = "row path label score state suggested confidence margin reason split same_as off_topic left votes"
HEAD = WORDS.split(" ")


@pytest.fixture
def folder(tmp_path):
    """An audit of 400 samples of all states, with odd names, in a random order of rows."""
    random = np.random.default_rng(0)
    lines = []
    for row in random.permutation(400).tolist():
        state = ("ok", "ok", "flagged", "conflict", "off-topic", "unknown")[row % 6]
        own, other = NAMES[row % 7], NAMES[(row + 1) % 7]
        suspect, same = state in ("flagged", "conflict"), row - row % 12 if state == "conflict" else ""
        score = "" if state == "unknown" else f"{random.integers(1, 9) / 16}"
        cells = [
            row,
            f"{own}/{row}.png",
            own,
            score,
            state,
            other if suspect else "",
            "0.75" if suspect else "",
            "",
            "why",
        ]
        lines.append(
            [*cells, ("train", "")[row % 2], same, "0.5" if row % 5 else "", "1.5" if row % 9 else "", f"{row / 400}"]
        )
    with open_csv(tmp_path / "audit.csv", "w") as out:
        csv.writer(out, lineterminator="\n").writerows([HEAD, *lines])
    about = {"title": "t", "root": "", "rows": 400, "pictures": True, "scores": {"score": "", "votes": ""}}
    (tmp_path / "audit.json").write_text(json.dumps(about))
    np.savez(tmp_path / "neighbours.npz", row=np.arange(400), near=(np.arange(400)[:, None] + [1, 2]) % 400)
    return tmp_path


def read_both(folder, monkeypatch):
    """Return the findings by columns, and line by line."""
    found = []
    for least in (0, 2**60):
        monkeypatch.setattr(csv_columns, "min_columns_bytes", lambda least=least: least)
        found.append(read_findings(folder))
    return found


@pytest.mark.parametrize("made", [True, False])
def test_columns_and_lines_agree(folder, tmp_path_factory, monkeypatch, made):
    fast, slow = read_both(folder if made else write_audit(tmp_path_factory.mktemp("small")), monkeypatch)
    assert list(fast.sample.values()) == list(slow.sample.values()) and list(fast.sample) == list(slow.sample)
    assert all(fast.sample[one.row] == one for one in slow.sample.values())
    for name in ("suspects", "off_topic"):
        assert list(getattr(fast, name)) == list(getattr(slow, name)) and len(getattr(fast, name)) == len(
            getattr(slow, name)
        )
    assert list(fast.members.items()) == list(slow.members.items()) and dict(fast.single) == dict(slow.single)
    for name in ("pair", "causes", "classes", "duplicates", "same_images"):
        assert getattr(fast, name) == getattr(slow, name)


def test_the_columns_were_used(folder, monkeypatch):
    monkeypatch.setattr(csv_columns, "min_columns_bytes", lambda: 0)
    monkeypatch.setattr("likewise.curate.audit.read.read_samples_by_line", None)
    assert len(read_findings(folder).sample) == 400


def test_orders_by_hand(folder):
    found = read_findings(folder)
    lines = list(found.sample.values())
    conflicts = [one for one in lines if one.state == "conflict"]
    least = {}
    for one in conflicts:
        least[one.same_as] = min(least.get(one.same_as, 1), one.score)
    wanted = sorted(conflicts, key=lambda one: (least[one.same_as], one.same_as, one.score, one.row))
    wanted += sorted((one for one in lines if one.state == "flagged"), key=lambda one: (one.score, one.row))
    assert list(found.suspects) == wanted
    own = [one for one in lines if (one.split, one.label) == ("train", "a,b")]
    own.sort(key=lambda one: (one.state != "ok", -(one.score or 0), one.row))
    assert found.members["train", "a,b"] == [one.row for one in own]
    assert found.suspects.in_state("flagged")[0].state == "flagged" and len(found.suspects[2:5]) == 3


@pytest.mark.parametrize(("cell", "told"), [("low", "score must be a number, got 'low'"), ("nan", "got 'nan'")])
def test_a_wrong_line_of_a_large_file_is_named(folder, monkeypatch, cell, told):
    monkeypatch.setattr(csv_columns, "min_columns_bytes", lambda: 0)
    with open(folder / "audit.csv", "a") as out:
        out.write(f"399,,wren,{cell},ok,,,,,train,,,,\n")
    with pytest.raises(LikewiseError, match=told):
        read_findings(folder)


def test_numbers_of_a_column_with_empty_cells():
    import pyarrow as pa

    column = pa.array([4, None, 6, 7, None, 9, 10, 11, None, 13], pa.int64())
    assert csv_columns.numbers(column, np.dtype(np.int64), -1).tolist() == [4, -1, 6, 7, -1, 9, 10, 11, -1, 13]
    assert csv_columns.numbers(column.slice(3, 6), np.dtype(np.int64), -1).tolist() == [7, -1, 9, 10, 11, -1]
    assert csv_columns.numbers(column.slice(5, 3), np.dtype(np.int64), -1).tolist() == [9, 10, 11]
    found = csv_columns.numbers(pa.array([0.5, None], pa.float64()), np.dtype(np.float64), np.nan)
    assert found[0] == 0.5 and np.isnan(found[1]) and len(found) == 2
    assert csv_columns.numbers(pa.array([], pa.int64()), np.dtype(np.int64), -1).tolist() == []


def test_rows_and_places(folder):
    sample = read_findings(folder).sample
    assert 399 in sample and 400 not in sample and -1 not in sample and 10**30 not in sample
    assert sample.places(np.array([7, 500])).tolist() == [sample.place(7), -1] and int(sample.row[sample.place(7)]) == 7
    assert sample.first_unknown(np.array([3, 0])) is None and sample.first_unknown(np.array([3, 400, 900])) == 400
    with pytest.raises(KeyError):
        sample[400]


def test_texts_paths_and_neighbours():
    texts = Texts.of(["a", "b", "a"])
    assert (
        texts.find("a").tolist() == [True, False, True]
        and not texts.find("c").any()
        and texts.cells([1, 0]) == ["b", "a"]
    )
    paths = Paths.of(["a/b/1.png", "", "\udcff/2.png", "3.png"])
    assert paths.cells(np.arange(4)) == ["a/b/1.png", "", "\udcff/2.png", "3.png"] and paths.cell(2) == "\udcff/2.png"
    assert paths.folders() == {"a/b", "\udcff", ""}
    near = Near(np.array([5, 2, 9]), np.array([[2, -1], [9, 5], [5, 2]]))
    assert near[5] == [2] and near[2] == [9, 5] and 3 not in near and list(near) == [2, 5, 9]
    assert near.rows_beside(np.array([2])).tolist() == [5, 9] and near.rows_beside(np.array([], int)).tolist() == []
