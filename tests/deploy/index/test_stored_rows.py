"""An index in a folder: it comes back as it was, survives a crash half-way, and says when it is damaged."""

import json
import os
import re
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from likewise.errors import LikewiseError
from make_index import make_index, make_rows, vectors

from likewise.deploy.index import stored_rows as kept
from likewise.deploy.index import vector_index
from likewise.deploy.index.stored_rows import pack, prepare_vectors
from likewise.deploy.index.vector_index import Index


def test_paths_and_boxes_come_back():
    box = np.array([[0, 1, 2, 3], [np.nan] * 4, [4, 5, 6, 7]], np.float32)
    table, text = pack(np.array([3, 5, 9]), np.array([0, 1, 0]), ["ä/1.png", "", "b.png"], box)
    rows = replace(make_rows(3), table=table, text=text)
    assert [rows.path(place) for place in range(3)] == ["ä/1.png", "", "b.png"]
    assert [rows.box(place) for place in range(3)] == [(0, 1, 2, 3), None, (4, 5, 6, 7)]
    assert [rows.label(place) for place in range(3)] == ["wren", "robin", "wren"]
    more, added = pack(np.array([10]), np.array([2]), ["c.png"], after=len(text))
    whole = replace(rows, table=np.concatenate([table, more]), text=np.concatenate([text, added]))
    assert whole.path(3) == "c.png" and whole.path(2) == "b.png"


def test_rows_are_found_by_number_unless_they_are_gone():
    rows = make_rows(6, first=20)
    rows.here[2] = False
    assert rows.places([25, 20]).tolist() == [5, 0] and len(rows) == 5
    for missing in (22, 19, 26, -1, 10**30):
        with pytest.raises(LikewiseError, match=rf"got {missing}, but .* 5 rows in 20 to 25"):
            rows.places([20, missing])
    for missing, near in [(22, "20, 21, 23"), (-1, "20, 21, 23"), (10**30, "23, 24, 25")]:
        with pytest.raises(LikewiseError, match=f"choose one of them, such as {near}$"):
            rows.places([missing])
    rows.here[2:] = False
    with pytest.raises(LikewiseError, match="such as 20, 21$"):
        rows.places([24])
    rows.here[:] = False
    with pytest.raises(LikewiseError, match="the target is empty"):
        rows.places([20])


def test_vectors_get_unit_length_for_cosines_and_those_that_have_it_are_untouched():
    rows = make_rows(4)
    assert np.array_equal(prepare_vectors(rows.vectors, "cosine"), rows.vectors)
    assert np.allclose(prepare_vectors(7 * rows.vectors, "cosine"), rows.vectors, atol=1e-6)
    assert np.array_equal(prepare_vectors(7 * rows.vectors, "euclidean"), 7 * rows.vectors)
    bad = rows.vectors.copy()
    bad[2, 1] = np.nan
    with pytest.raises(LikewiseError, match=r"must be finite, .*\(first: place 2\)"):
        prepare_vectors(bad, "cosine")
    bad[2] = 0
    assert np.array_equal(prepare_vectors(bad, "euclidean"), bad)
    with pytest.raises(LikewiseError, match=r"all zeros .* 1 of 4 are \(first: place 2\)"):
        prepare_vectors(bad, "cosine")


@pytest.mark.parametrize("scale", [1e30, 1e-30])
def test_lengths_may_lie_beyond_their_squares(scale):
    vectors = make_rows(4).vectors
    assert np.allclose(prepare_vectors((vectors * scale).astype(np.float32), "cosine"), vectors, atol=1e-6)


@pytest.fixture
def folder(tmp_path):
    index = make_index(40, first=7)
    index.save(tmp_path / "my shop ü")
    return tmp_path / "my shop ü"


def test_what_was_saved_comes_back(folder):
    index, first = Index.open(folder), make_index(40, first=7).rows
    assert np.array_equal(index.rows.vectors, first.vectors) and np.array_equal(
        index.rows.table["row"], 7 + np.arange(40)
    )
    assert index.rows.class_name == first.class_name and index.rows.path(39) == "bild 39 ü.png"
    assert kept.is_index(folder) and not kept.is_index(folder.parent)
    assert sorted(p.name for p in folder.parent.iterdir()) == [folder.name]  # nothing is left beside it


def test_changes_are_there_after_opening_again(folder):
    index = Index.open(folder)
    assert index.add(vectors(2, seed=5), ["gull", "wren"], ["n1.png", "n2.png"]).tolist() == [47, 48]
    index.remove([48, 8])
    assert index.add(vectors(1, seed=6), ["gull"], [""]).tolist() == [49]  # 48 is never given again
    again = Index.open(folder)
    assert len(again.rows) == 41 and not again.rows.here[[1, 41]].any() and again.rows.here.sum() == 41
    assert np.array_equal(again.rows.vectors[40:42], vectors(2, seed=5)) and again.rows.path(41) == "n2.png"
    assert again.rows.label(42) == "gull" and again.rows.path(42) == ""


def test_a_crash_while_adding_leaves_the_old_index(folder):
    for name in kept.DATA_FILES:
        with (folder / name).open("ab") as file:
            file.write(b"half of something new")
    index = Index.open(folder)
    assert len(index.rows) == 40
    assert index.add(vectors(1, seed=5), ["wren"], ["new.png"]).tolist() == [47]
    assert np.array_equal(Index.open(folder).rows.vectors[40:], vectors(1, seed=5))


@pytest.mark.parametrize("name", ["vectors.f32", "table.bin", "paths.txt"])
def test_damage_is_told(folder, name):
    whole = (folder / name).read_bytes()
    (folder / name).write_bytes(whole[:-3])
    with pytest.raises(LikewiseError, match=rf"{name} must have {len(whole)} bytes"):
        Index.open(folder)
    (folder / name).write_bytes(whole[:5] + bytes([whole[5] ^ 1]) + whole[6:])
    with pytest.raises(LikewiseError, match=f"checksum of {name} does not match"):
        Index.open(folder)
    (folder / name).unlink()
    with pytest.raises(LikewiseError, match="and has 0"):
        Index.open(folder)


def test_a_damaged_description_is_told(folder):
    about = json.loads((folder / "index.json").read_text())
    for text, says in [
        ("{", "damaged"),
        ("[]", "must be an object with the key format"),
        (json.dumps(about | {"format": 9}), "must have format 1 or 2, got 9"),
    ]:
        (folder / "index.json").write_text(text)
        with pytest.raises(LikewiseError, match=says):
            Index.open(folder)


def test_values_of_another_type_are_told(folder):
    about = json.loads((folder / "index.json").read_text())
    graph = {"kind": "hnsw", "file": "hnsw-2.faiss", "size": 1, "sum": 1, "upto": 40}
    odd = [None, True, -1, 1.5, float("nan"), 2**70, "x", [], {}, [None], [2**70], [-1], {"x": []}, [[]]]
    whole = about | {f"graph.{name}": value for name, value in graph.items()} | {"made_by.run": "", "made_by.which": ""}
    refused = 0
    for name in whole:
        outer, _, inner = name.partition(".")
        for value in odd:
            made = graph if outer == "graph" else about[outer]
            changed = about | {outer: made | {inner: value} if inner else value}
            if name == "graph" and value is None:
                continue
            (folder / "index.json").write_text(json.dumps(changed))
            try:
                Index.open(folder)
            except LikewiseError:  # any other error fails the test
                refused += 1
    assert refused > 0.9 * len(whole) * len(odd)  # a few odd values mean something: no removed rows, another version
    (folder / "index.json").write_text("[" * 10**5)
    with pytest.raises(LikewiseError, match="damaged"):
        Index.open(folder)


def test_a_graph_lies_in_the_folder(folder, tmp_path):
    about = json.loads((folder / "index.json").read_text())
    for name in (str(tmp_path / "hnsw-1.faiss"), "../hnsw-1.faiss", "a/hnsw-1.faiss", "index.json", "hnsw-1.faiss\n", "..",
                 "ivfpq-1.faiss"):  # fmt: skip
        graph = {"kind": "hnsw", "file": name, "size": 0, "sum": 0, "upto": 40}
        (folder / "index.json").write_text(json.dumps(about | {"graph": graph}))
        (tmp_path / "hnsw-1.faiss").touch()
        for kind in (None, "exact", "hnsw"):
            with pytest.raises(LikewiseError, match="index.json: graph (is|belongs)"):
                Index.open(folder, kind)
        assert (tmp_path / "hnsw-1.faiss").exists()


def test_the_lock_empties_no_file(folder, tmp_path):
    (tmp_path / "mine").write_text("kept")
    (folder / "lock").symlink_to(tmp_path / "mine")
    Index.open(folder).remove([8])
    assert (tmp_path / "mine").read_text() == "kept"


def test_two_who_change_one_index_are_told(folder):
    one, other = Index.open(folder), Index.open(folder)
    one.remove([9])
    with pytest.raises(LikewiseError, match="another command changed it; open it again"):
        other.add(vectors(1), ["wren"], [""])
    assert len(Index.open(folder).rows) == 39


def test_an_index_goes_only_where_nothing_is(folder, tmp_path):
    with pytest.raises(LikewiseError, match="new or empty folder, got .*my shop"):
        make_index().save(folder)
    (tmp_path / "file").touch()
    with pytest.raises(LikewiseError, match="--save must be a new or empty folder"):
        make_index().save(tmp_path / "file")
    with pytest.raises(LikewiseError, match="must be a writable folder"):
        make_index().save(tmp_path / "file" / "below")
    (tmp_path / "empty").mkdir()
    make_index().save(tmp_path / "empty")
    assert len(Index.open(tmp_path / "empty").rows) == 40


@pytest.mark.skipif(not hasattr(os, "O_NOFOLLOW"), reason="the system cannot refuse links")
@pytest.mark.parametrize("name", kept.DATA_FILES)
def test_rows_are_not_written_through_a_link(folder, tmp_path, name):
    """An index from elsewhere: without rows, its files have no checksum, and adding rows would cut the user's file."""
    index = Index.open(folder)
    index.remove(index.rows.table["row"].tolist())
    about = json.loads((folder / "index.json").read_text())
    sizes = dict.fromkeys(kept.DATA_FILES, 0)
    (folder / "index.json").write_text(json.dumps(about | {"rows": 0, "removed": [], "sizes": sizes, "sums": sizes}))
    (tmp_path / "own.txt").write_text("the user's own text")
    (folder / name).unlink()
    (folder / name).symlink_to(tmp_path / "own.txt")
    with pytest.raises(LikewiseError, match="previous content is unchanged"):
        Index.open(folder).add(vectors(1), ["gull"], ["a.png"])
    assert (tmp_path / "own.txt").read_text() == "the user's own text"


def test_rows_are_searched_without_reading_all_of_them():
    values, wanted = np.array([2, 3, 5, 7, 11]), np.arange(-1, 13)
    assert kept.find_sorted(values, wanted).tolist() == np.searchsorted(values, wanted).tolist()
    assert kept.find_sorted(values[:0], wanted).tolist() == [0] * len(wanted)
    assert kept.find_sorted(values, wanted[:0]).tolist() == []


def mapped_bytes(folder):
    """Return how many bytes of the files of a folder this process has read through its memory maps."""
    found, ours = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
            ours = str(folder) in line
        elif ours and line.startswith("Rss:"):
            found += int(line.split()[1]) * 1024
    return found


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="the memory maps are those of Linux")
def test_opening_for_a_page_reads_nothing_that_grows_with_the_rows(tmp_path, monkeypatch):
    count = 2**16  # records of 2.4 MB
    monkeypatch.setattr(vector_index, "in_background", lambda work: Future())
    Index(make_rows(count)).save(tmp_path / "big")
    index = Index.open_unchecked(tmp_path / "big")
    assert mapped_bytes(tmp_path / "big") == 0 and index._rows.here.all()
    assert index._rows.places([7, count - 1]).tolist() == [7, count - 1]
    assert index._rows.path(count - 1) == f"bild {count - 1} ü.png" and index._rows.label(7) == "robin"
    assert mapped_bytes(tmp_path / "big") > 0
    Index.open(tmp_path / "big").remove([5, 70])
    assert np.flatnonzero(~kept.read(tmp_path / "big", checked=False)[0].here).tolist() == [5, 70]


@pytest.mark.parametrize("name", ["vectors.f32", "table.bin", "paths.txt"])
def test_an_index_that_was_opened_unchecked_raises_after_damage(folder, name, monkeypatch):
    whole, good = (folder / name).read_bytes(), Index.open_unchecked(folder)
    assert len(good.rows) == 40 and good.wait_for_checks() is None and good.rows is good.rows
    (folder / name).write_bytes(whole[:5] + bytes([whole[5] ^ 1]) + whole[6:])
    with pytest.raises(LikewiseError, match=f"checksum of {name} does not match"):
        Index.open_unchecked(folder).find(vectors(1), 5)
    monkeypatch.setattr(kept, "MAX_CHECKSUM_BYTES", 0)  # all files are large: they are checked after the first answers
    large = Index.open_unchecked(folder)
    with pytest.raises(LikewiseError, match=f"checksum of {name} does not match"):
        large.wait_for_checks()
    with pytest.raises(LikewiseError, match=f"checksum of {name} does not match"):
        large.find(vectors(1), 5)


def test_folders_of_files_and_classes_that_have_rows():
    table, text = pack(np.arange(5), np.array([3, 1, 1, 0, 3]), ["a/b/1.png", "", "ü/2.png", "3.png", "a/b/c.png"])
    names, here = tuple("wxyz"), np.array([True, True, True, False, True])
    rows = replace(make_rows(5), table=table, text=text, class_name=names, here=here)
    assert sorted(rows.folders()) == [("", 1, 3), ("a/b", 2, 0), ("ü", 1, 2)]
    assert rows.used_classes.tolist() == [1, 3]
