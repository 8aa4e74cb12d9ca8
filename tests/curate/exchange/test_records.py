"""Records: cells of other tools become typed columns, or an error."""

from dataclasses import replace

import numpy as np
import pytest
from likewise.errors import LikewiseError

from likewise.curate.exchange.row_records import (
    NOT_UTF8,
    check_utf8,
    from_cells,
    image_root,
    write_labels,
    write_vectors,
    xml_problem,
)
from likewise.data.features import read_embeddings


def test_cells_become_text_and_numbers():
    made = from_cells({"row": [2, "0"], "label": [7.0, None], "score": ["0.5", ""], "weather": [True, "x"]}, "tool")
    assert made.row.tolist() == [2, 0] and len(made) == 2
    assert made.columns == {"label": ["7", ""], "score": [0.5, None], "weather": ["True", "x"]}
    assert made.take([1]).columns["weather"] == ["x"]
    assert list(made.lines())[1] == {"row": 0, "label": "", "score": None, "weather": "x"}


@pytest.mark.parametrize(
    ("cells", "x", "reason"),
    [
        ({}, None, "the source must hold at least one row, got none"),
        ({"score": ["high"]}, None, "score must be a number or empty, got 'high'"),
        ({"score": ["inf"]}, None, "score must be a number or empty, got 'inf'"),
        ({"row": [0, 1]}, [[1, 2], [1, 2, 3]], "all vectors must have the same dimension, got several"),
        ({"row": [0, 1]}, [[1, 2]], "one vector for each of 2 rows"),
        ({"row": [0]}, [[1, np.nan]], "vectors must be finite"),
        ({"row": [0]}, [None], "one vector for each of 1 rows"),
    ],
)
def test_bad_cells(cells, x, reason):
    with pytest.raises(LikewiseError, match=f"tool: .*{reason}"):
        from_cells(cells, "tool", x)


def test_vectors_are_written_for_our_own_reader(tmp_path):
    cells = {"row": [9, 3], "label": ["b", "a"], "split": ["test", ""], "score": [None, 0.25], "choice": ["", "keep"]}
    write_vectors(from_cells(cells, "tool", [[1, 0], [0, 1]], "euclidean"), tmp_path / "z.npz")
    items = read_embeddings(str(tmp_path / "z.npz"))
    assert items.x.tolist() == [[1, 0], [0, 1]] and items.x.dtype == np.float32
    assert [items.class_name[y] for y in items.y] == ["b", "a"] and items.split.tolist() == ["test", ""]
    stored = np.load(tmp_path / "z.npz")
    assert stored["row"].tolist() == [9, 3] and str(stored["similarity"]) == "euclidean" and "choice" not in stored


def test_columns_with_the_names_of_arrays(tmp_path):
    """`file` is an argument of numpy.savez; `x` would replace the vectors."""
    cells = {"row": [1], "label": ["a"], "file": ["f"], "allow_pickle": ["g"], "a/b": ["h"], "": ["i"]}
    write_vectors(from_cells(cells, "tool", [[1, 0]]), tmp_path / "z.npz")
    stored = np.load(tmp_path / "z.npz")
    assert {name: stored[name].tolist() for name in cells} == {name: list(cell) for name, cell in cells.items()}
    assert read_embeddings(str(tmp_path / "z.npz")).x.tolist() == [[1, 0]]
    for name in ("x", "z", "similarity", "a\0b", "\udcff"):
        with pytest.raises(LikewiseError, match="must not be called .*; rename it"):
            write_vectors(from_cells({"row": [1], name: ["a"]}, "tool", [[1, 0]]), tmp_path / "bad.npz")
    assert not (tmp_path / "bad.npz").exists()


def test_rows_that_only_count_are_not_written(tmp_path):
    made = from_cells({"path": ["a.jpg"], "label": ["a"]}, "tool", [[1, 0]])
    assert made.row.tolist() == [0]
    write_vectors(made, tmp_path / "z.npz")
    assert "row" not in np.load(tmp_path / "z.npz") and made.take([0]).is_numbered
    write_labels(made, tmp_path / "t.csv", "tool")
    assert (tmp_path / "t.csv").read_text() == "path,label\na.jpg,a\n"


def test_texts_that_a_format_cannot_hold():
    assert [xml_problem(text) for text in ("鳥 🐦\t\n", "a\x01", "a\r", "\ufffe", "a\udcff")] == [
        "", "control characters", "control characters", "control characters", NOT_UTF8,
    ]  # fmt: skip
    check_utf8(from_cells({"path": ["鳥.jpg"], "score": [None]}, "tool"), "tool")
    for cells in ({"path": ["a.jpg", "\udcff.jpg"]}, {"path": ["a", "b"], "labels": [["a"], ["b", "\udcff"]]}):
        with pytest.raises(LikewiseError, match="UTF-8, but .* of row 1 "):
            check_utf8(from_cells(cells, "tool"), "tool")


def test_the_folder_of_the_images():
    made = from_cells({"path": ["/a/b/1.jpg", "/a/c/2.jpg"]}, "tool")
    assert image_root(made) == "/a"
    assert image_root(replace(made, root="/a/b")) == "/a"
    assert image_root(replace(made, root="/a")) == "/a" and image_root(replace(made, root="/")) == "/"
    beside = from_cells({"path": ["/data/x/1.jpg", "/data/xy/2.jpg"]}, "tool")
    assert image_root(replace(beside, root="/data/x")) == "/data"
    with pytest.raises(LikewiseError, match="got absolute and relative paths"):
        image_root(from_cells({"path": ["/a/1.jpg", "2.jpg"]}, "tool"))
