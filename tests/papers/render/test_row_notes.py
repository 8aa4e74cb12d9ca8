"""Notes on rows: texts of the same rows together, all rows first, and exceptions named where they are few."""

from likewise.papers.benchmark_table import RowNote, notes_by_rows, of_rows


def test_texts_of_the_same_rows_are_one_note_and_all_rows_come_first():
    texts = {"a": ["x", "all", "y"], "b": ["all"], "c": ["y", "all", "x", "x"]}
    assert notes_by_rows(texts) == (RowNote("all"), RowNote("x; y", ("a", "c")))
    assert notes_by_rows({"a": [], "b": []}) == () and notes_by_rows({}) == ()


def test_few_exceptions_are_named_instead_of_many_rows():
    rows = {name: name for name in "abcdefgh"}
    assert of_rows(RowNote("t"), rows) == "all rows"
    assert of_rows(RowNote("t", tuple("abcdefg")), rows) == "all rows but h"
    assert of_rows(RowNote("t", tuple("abcd")), rows) == "a, b, c, d"
    assert of_rows(RowNote("t", ("a", "b")), rows | {"a": "A, mined"}) == "A, mined; b"
