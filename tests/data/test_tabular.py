import numpy as np
import pytest
from likewise.types import LikewiseError

from likewise.data.tabular import read_csv, read_parquet


def test_lines_are_counted_as_an_editor_does(write):
    file = write("t.csv", 'path,label\r\n\r\n"a\nb.png",1\r\nc.png,2\r\n')
    sheet = read_csv(file)
    assert sheet.column["path"] == ["a\nb.png", "c.png"]
    assert sheet.line == [3, 5]
    assert sheet.at(1) == "t.csv line 5"


def test_a_byte_order_mark_is_accepted(write):
    assert list(read_csv(write("t.csv", b"\xef\xbb\xbfpath,label\na,1\n")).column) == ["path", "label"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"path,label\na,1\nb,\xe9t\xe9\n", r"t\.csv must be UTF-8, but line 3 holds the byte 0xe9"),
        (b"", r"must hold a header and rows, but it is empty"),
        (b"\n \n", r"must hold a header and rows, but it is empty"),
        (b"path,label\n", r"must hold at least one row, but it has only a header"),
        (b"path,label\na,1\nb\n", r"line 3 must have 2 cells like the header, got 1"),
        (b"path,label\na,b,1\n", r"line 2 must have 2 cells like the header, got 3.*quotes"),
        (b"path;label\na;1\n", r"must be separated by commas, got 'path;label'"),
        (b"path,label,label\na,1,2\n", r"has the column 'label' more than once"),
        (b'path,label\na,1\n"b,2\n', r"line 3 is not CSV"),
    ],
)
def test_bad_files_are_explained(write, content, message):
    with pytest.raises(LikewiseError, match=message):
        read_csv(write("t.csv", content))


def test_a_missing_file_is_explained(tmp_path):
    with pytest.raises(LikewiseError, match=r"gone\.csv cannot be read \(No such file"):
        read_csv(str(tmp_path / "gone.csv"))


def test_a_missing_column_names_the_columns_there_are(write):
    sheet = read_csv(write("birds.csv", "path,lable\na,1\n"))
    with pytest.raises(LikewiseError) as error:
        sheet.need("label")
    assert str(error.value) == (
        "table: the column 'label' is missing from birds.csv; it has: path, lable; "
        "did you mean 'lable'? Rename it to 'label'"
    )
    with pytest.raises(LikewiseError, match=r"did you mean 'PATH'\?"):
        read_csv(write("t.csv", "PATH,label\na,1\n")).need("path")


def test_bad_parquet_is_explained(write, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    with pytest.raises(LikewiseError, match=r"t\.parquet is not a readable Parquet file"):
        read_parquet(write("t.parquet", "path,label\n"))
    pq.write_table(pa.table({"path": pa.array([], pa.string())}), tmp_path / "empty.parquet")
    with pytest.raises(LikewiseError, match=r"empty\.parquet must hold at least one row"):
        read_parquet(str(tmp_path / "empty.parquet"))


def test_text_that_is_not_utf8_in_parquet_is_explained(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    ends = pa.py_buffer(np.array([0, 1, 2], np.int32).tobytes())
    words = pa.StringArray.from_buffers(2, ends, pa.py_buffer(b"\xff\xfe"))
    pq.write_table(pa.table({"path": words, "label": [0, 1]}), tmp_path / "t.parquet")
    with pytest.raises(LikewiseError, match=r"t\.parquet .*; write it again"):
        read_parquet(str(tmp_path / "t.parquet"))


def test_names_of_images_may_hold_any_bytes_and_other_cells_may_not(write):
    text = b"path,label,n\np/caf\xe9/\xff.png,caf\xe9,1\np/b/1.png,caf\xe9,2\n"
    sheet = read_csv(write("t.csv", text))
    assert sheet.column["path"] == ["p/caf\udce9/\udcff.png", "p/b/1.png"]
    assert sheet.column["label"] == ["caf\udce9", "caf\udce9"]  # the folder of an image
    for other, byte in (
        (text.replace(b",2", b",\x80"), "80"),
        (text.replace(b"b/1.png,caf\xe9", b"b/1.png,caf\xe8"), "e8"),
    ):
        with pytest.raises(LikewiseError, match=rf"line 3 holds the byte 0x{byte}"):
            read_csv(write("t.csv", other))


def test_binary_columns_of_parquet_are_text_in_any_bytes(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {
        "a": pa.array([b"\xff", None]),
        "b": pa.array([b"x", b"y"], pa.large_binary()),
        "c": pa.array([b"ab", b"c\x80"], pa.binary(2)),
    }
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    assert read_parquet(str(tmp_path / "t.parquet")).column == {
        "a": ["\udcff", None],
        "b": ["x", "y"],
        "c": ["ab", "c\udc80"],
    }
