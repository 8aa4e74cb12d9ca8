"""Rows of an index: numbers, names, paths and boxes, and vectors as they are kept."""

from dataclasses import replace

import numpy as np
import pytest
from likewise.errors import LikewiseError
from make_index import make_rows

from likewise.deploy.index.stored_rows import pack, prepare_vectors


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
        with pytest.raises(LikewiseError, match=rf"got {missing}, but the target has 5 rows in 20 to 25"):
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
    with pytest.raises(LikewiseError, match=r"must be finite, got NaN or infinity in 1 rows \(first: place 2\)"):
        prepare_vectors(bad, "cosine")
    bad[2] = 0
    assert np.array_equal(prepare_vectors(bad, "euclidean"), bad)
    with pytest.raises(LikewiseError, match=r"not be all zeros to have a cosine, but 1 of 4 are \(first: place 2\)"):
        prepare_vectors(bad, "cosine")


@pytest.mark.parametrize("scale", [1e30, 1e-30])
def test_lengths_may_lie_beyond_their_squares(scale):
    vectors = make_rows(4).vectors
    assert np.allclose(prepare_vectors((vectors * scale).astype(np.float32), "cosine"), vectors, atol=1e-6)
