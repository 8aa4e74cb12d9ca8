import numpy as np
import pytest
from likewise.types import Items, LikewiseError, Votes

from likewise.data.table import read_table, write_table
from likewise.data.votes import read_votes, votes_of, votes_of_cells


@pytest.fixture
def items():
    return Items(
        "pets", np.array([0, 1, 1]), ("cat", "dog"), path=("a/0.png", "b/1.png", "b/2.png"), skipped=((3, "c/3.png"),)
    )


def write(folder, text):
    file = folder / "votes.csv"
    file.write_text(text, "utf-8")
    return str(file)


def triples(votes):
    names = [*votes.worker_name, None]
    return [(row, names[w], label) for row, w, label in zip(*(column.tolist() for column in votes[:3]))]


def test_a_long_table(tmp_path, items):
    """Samples by path or file name; a vote about a broken image that was skipped is left out."""
    text = "sample,worker,label\na/0.png,ben,cat\n1.png,anna,dog\na/0.png,anna,dog\nc/3.png,anna,cat\n"
    votes = read_votes(write(tmp_path, text), items)
    assert votes.worker_name == ("anna", "ben")
    assert triples(votes) == [(0, "ben", 0), (1, "anna", 1), (0, "anna", 1)]
    assert triples(votes_of(items, write(tmp_path, text))) == triples(votes)


def test_a_long_table_by_row_and_without_workers(tmp_path, items):
    votes = read_votes(write(tmp_path, "row,label\n2,cat\n2,cat\n0,dog\n"), items)
    assert triples(votes) == [(2, None, 0), (2, None, 0), (0, None, 1)] and votes.worker_name == ()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("image,label\na,cat\n", "must have the columns sample, worker and label, got: image, label"),
        ("sample,worker,label\na/9.png,anna,cat\n", "must name a sample of 'pets', got 'a/9.png' in votes.csv line 2"),
        ("sample,worker,label\na/0.png,anna,cta\n", "got 'cta' in votes.csv line 2.*cat"),
        ("sample,worker,label\na/0.png,anna,cat\n0.png,anna,dog\n", "'anna' votes again in votes.csv line 3"),
        ("sample,worker\na/0.png,anna\n", "the column 'label' is missing"),
        ("sample,worker,label\nc/3.png,anna,cat\n", "there must be votes about 'pets', got none"),
    ],
)
def test_wrong_tables(tmp_path, items, text, reason):
    with pytest.raises(LikewiseError, match=reason):
        read_votes(write(tmp_path, text), items)


def test_a_column(tmp_path, items):
    votes = votes_of_cells(["anna:cat|ben:dog", "", "cat|dog | dog"], items)
    assert triples(votes) == [(0, "anna", 0), (0, "ben", 1), (2, None, 0), (2, None, 1), (2, None, 1)]
    with pytest.raises(LikewiseError, match="got 'mouse' in the votes of 'b/1.png'"):
        votes_of_cells(["", "anna:mouse", ""], items)
    with pytest.raises(LikewiseError, match="again in the votes of 'a/0.png'"):
        votes_of_cells(["anna:cat|anna:dog", "", ""], items)


def test_the_column_of_a_table_is_read_and_written(tmp_path):
    table = tmp_path / "pets.csv"
    table.write_text("path,label,votes\na.png,cat,anna:cat|ben:dog\nb.png,dog,\n", "utf-8")
    items = read_table(str(table))
    assert triples(votes_of(items)) == [(0, "anna", 0), (0, "ben", 1)]
    write_table(items, str(tmp_path / "again.csv"))
    assert read_table(str(tmp_path / "again.csv")).votes.tolist() == ["anna:cat|ben:dog", ""]
    table.write_text("path,label\na.png,cat\nb.png,dog\n", "utf-8")
    assert votes_of(read_table(str(table))) is None


def test_some_rows_and_samples_without_votes():
    votes = Votes(np.array([0, 2, 4]), np.array([0, 1, 0]), np.array([1, 0, 1]), ("anna", "ben"))
    some = votes.among(np.array([4, 1, 2]))
    assert triples(some) == [(2, "ben", 0), (0, "anna", 1)]
    assert triples(some.completed(np.array([7, 8, 9]))) == [(2, "ben", 0), (0, "anna", 1), (1, None, 8)]


def test_samples_with_several_labels_have_no_votes(tmp_path):
    items = Items("shop", np.array([0]), ("dress|red",), label_name=("dress", "red"), label_sets=((0, 1),))
    assert votes_of(items) is None
    with pytest.raises(LikewiseError, match="'shop' has several labels per sample"):
        votes_of(items, str(tmp_path / "votes.csv"))


def test_rows_count_samples_that_were_skipped(tmp_path):
    items = Items(
        name="few", y=np.array([0, 1, 1]), class_name=("cat", "dog"), path=("b.jpg", "c.jpg", "e.jpg"), root="",
        skipped=((0, "a.jpg"), (3, "d.jpg")),
    )  # fmt: skip
    file = write(tmp_path, "row,worker,label\n0,ann,cat\n1,ann,dog\n4,ann,cat\n")
    assert triples(read_votes(file, items)) == [(0, "ann", 1), (2, "ann", 0)]


def test_a_path_of_several_samples_is_refused(tmp_path):
    items = Items(
        name="boxes", y=np.array([0, 1, 1]), class_name=("cat", "dog"), path=("a.jpg", "a.jpg", "b.jpg"), root=""
    )
    with pytest.raises(LikewiseError, match=r"several have the path 'a.jpg'"):
        read_votes(write(tmp_path, "sample,label\na.jpg,cat\n"), items)
    assert len(read_votes(write(tmp_path, "sample,label\nb.jpg,cat\n"), items).row) == 1
