"""CSV with any column names and Parquet with vectors: 10,000 rows there and back, and tables of other programs."""

import csv

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from exchange_rows import assert_same_vectors, write_audit, write_vectors
from likewise.errors import LikewiseError

import likewise
from likewise.curate.exchange.transfer import of_audit
from likewise.data.features import read_embeddings


def read(file):
    with open(file, newline="", encoding="utf-8") as text:
        return list(csv.DictReader(text))


@pytest.mark.slow
def test_10000_rows_there_and_back(tmp_path):
    audit = write_audit(tmp_path)
    names = ("path=image file", "label=class, given", "row=id", "score==p")
    likewise.send(audit, "csv", tmp_path / "sent.csv", columns=names)
    assert list(read(tmp_path / "sent.csv")[0])[:2] == ["image file", "class, given"]
    got = likewise.receive(tmp_path / "sent.csv", "csv", tmp_path / "back.csv", columns=names)
    assert (got.rows, got.kind) == (10_000, "labels")
    sent = of_audit(audit, None)
    back = {int(line.pop("row")): line for line in read(tmp_path / "back.csv")}
    for line in sent.lines():
        cells = {name: "" if cell is None else str(cell) for name, cell in line.items() if name != "row"}
        assert back[line["row"]] == cells
    assert [float(back[row]["score"]) for row in sent.row.tolist()] == sent.columns["score"]


def test_a_table_of_another_program_keeps_its_columns(tmp_path):
    (tmp_path / "theirs.csv").write_text('image,class,weather\na.jpg,"wren, small",=1+1\nb.jpg,owl,\n')
    likewise.receive(tmp_path / "theirs.csv", "csv", tmp_path / "ours.csv", columns=("path=image", "label=class"))
    assert read(tmp_path / "ours.csv") == [
        {"path": "a.jpg", "label": "wren, small", "weather": "=1+1"},
        {"path": "b.jpg", "label": "owl", "weather": ""},
    ]


def test_changed_labels_are_decisions(tmp_path):
    audit = write_audit(tmp_path, n=20)
    likewise.send(audit, "csv", tmp_path / "sent.csv")
    lines = read(tmp_path / "sent.csv")
    next(line for line in lines if line["row"] == "3")["label"] = "wren"
    with open(tmp_path / "edited.csv", "w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, lines[0])
        table.writeheader()
        table.writerows(lines)
    got = likewise.receive(tmp_path / "edited.csv", "csv", audit, reviewer="Ann")
    assert (got.rows, got.kind, got.notes) == (1, "decisions", ())
    again = likewise.receive(tmp_path / "edited.csv", "csv", audit, reviewer="Ann")
    assert again.notes == ("1 of them were stored already",)


def test_bad_names_and_files(tmp_path, subtests):
    audit = write_audit(tmp_path, n=5)
    for columns, reason in {
        ("label",): "--columns must be OURS=THEIRS, each name once, got 'label'",
        ("label=a", "path=a"): "each name once, got 'path=a'",
        ("species=class",): "--columns must rename columns that are sent, got 'species'; there are: path, label",
        ("label=path",): "every column must have its own name, but two would be 'path'",
    }.items():
        with subtests.test(str(columns)), pytest.raises(LikewiseError, match=f"csv: .*{reason}"):
            likewise.send(audit, "csv", tmp_path / "sent.csv", columns=columns)
    assert not (tmp_path / "sent.csv").exists()
    (tmp_path / "x.csv").write_text("row,name\n0,a\n")
    for name, columns, reason in (
        ("none.csv", (), "the source must be a file"),
        ("x.csv", (), "x.csv must have a column label or labels, got: row, name"),
        ("x.csv", ("label=class",), "--columns must name columns of x.csv, got 'class'; it has: row, name"),
    ):
        with subtests.test(name), pytest.raises(LikewiseError, match=f"csv: .*{reason}"):
            likewise.receive(tmp_path / name, "csv", tmp_path / "back.csv", columns=columns)
    assert not (tmp_path / "back.csv").exists()


def test_10000_vectors_there_and_back_as_parquet(tmp_path):
    sent = write_vectors(tmp_path)
    assert likewise.send(sent, "parquet", tmp_path / "z.parquet").rows == 10_000
    got = likewise.receive(tmp_path / "z.parquet", "parquet", tmp_path / "back.npz")
    assert (got.rows, got.kind) == (10_000, "embeddings")
    assert_same_vectors(sent, tmp_path / "back.npz")
    read = read_embeddings(str(tmp_path / "z.parquet"))  # evaluate, audit and train read the file itself
    np.testing.assert_array_equal(read.x, np.load(sent)["x"])


def test_euclidean_vectors_of_any_length(tmp_path):
    np.savez(tmp_path / "raw.npz", x=np.float32([[3, 4], [0, 1], [6, 0]]), label=["a", "b", "a"])
    with pytest.raises(LikewiseError, match="unit length, but one is off by 5"):
        likewise.send(tmp_path / "raw.npz", "parquet", tmp_path / "z.parquet")
    assert not (tmp_path / "z.parquet").exists()
    likewise.send(tmp_path / "raw.npz", "parquet", tmp_path / "z.parquet", similarity="euclidean")
    likewise.receive(tmp_path / "z.parquet", "parquet", tmp_path / "back.npz")
    back = np.load(tmp_path / "back.npz")
    assert str(back["similarity"]) == "euclidean" and back["x"].tolist() == [[3, 4], [0, 1], [6, 0]]


def test_a_parquet_file_of_another_program(tmp_path):
    """Vectors under the name z, no rows and no similarity."""
    pq.write_table(pa.table({"z": [[1.0, 0.0], [0.0, 1.0]], "label": ["a", "b"]}), tmp_path / "t.parquet")
    likewise.receive(tmp_path / "t.parquet", "parquet", tmp_path / "back.npz")
    back = np.load(tmp_path / "back.npz")
    assert back["label"].tolist() == ["a", "b"] and "row" not in back and str(back["similarity"]) == "cosine"
    pq.write_table(pa.table({"label": ["a", "b"]}), tmp_path / "t.parquet")
    with pytest.raises(LikewiseError, match="vectors .* under the name x"):
        likewise.receive(tmp_path / "t.parquet", "parquet", tmp_path / "other.npz")
