"""Vectors on disk: indexing them reads the same numbers as an array in memory."""

import pickle

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from likewise.core.vectors import Vectors, block_rows, blocks_of, in_memory
from likewise.data.vector_files import mapped_rows, parquet_vectors, read_header

RNG = np.random.default_rng(0)


@pytest.fixture(params=["float16", "int8", "parquet"])
def on_disk(request, tmp_path, monkeypatch):
    """Vectors (23, 3) in parts of 5 rows, and the same numbers as float32."""
    monkeypatch.setattr("likewise.data.vector_files.BLOCK_BYTES", {"float16": 30, "int8": 15}.get(request.param, 1))
    if request.param == "parquet":
        x = RNG.normal(size=(23, 3)).astype(np.float32)
        column = pa.FixedSizeListArray.from_arrays(pa.array(x.reshape(-1)), 3)
        pq.write_table(pa.table({"x": column}), tmp_path / "x.parquet", row_group_size=5)
        return parquet_vectors(str(tmp_path / "x.parquet"), "x"), x
    x, file = RNG.integers(-127, 128, (23, 3)).astype(request.param), str(tmp_path / "x.npy")
    np.save(file, x)
    if request.param == "float16":
        return Vectors(mapped_rows(file, read_header(file)), 3), x.astype(np.float32)
    scale, beside = RNG.random(23).astype(np.float32), str(tmp_path / "s.npy")
    np.save(beside, scale)
    parts = mapped_rows(file, read_header(file), (beside, read_header(beside).offset))
    return Vectors(parts, 3), x * scale[:, None]


def test_indexing_is_that_of_an_array(on_disk):
    x, want = on_disk
    assert [part.rows for part in x.parts] == [5, 5, 5, 5, 3]
    assert x.shape == (23, 3) and len(x) == 23 and x.ndim == 2 and x.dtype == np.float32
    keys = [
        0, 22, -1, np.int64(7), slice(None), slice(4, 6), slice(3, 3), slice(9, 2), slice(20, 99), slice(None, None, -2),
        [3, 22, 0, 3], np.array([], int), np.array([-1, 4, 5]), RNG.permutation(23), want[:, 0] > 0,
    ]  # fmt: skip
    for key in keys:
        found = x[key]
        assert found.dtype == np.float32 and found.flags.writeable
        np.testing.assert_array_equal(found, want[key])
    np.testing.assert_array_equal(np.asarray(x), want)
    np.testing.assert_array_equal(in_memory(x), want)
    assert np.array(x, np.float64).dtype == np.float64
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(x))[3:8], want[3:8])


@pytest.mark.parametrize("key", [23, -24, [0, 23], [-24], np.zeros(22, bool)])
def test_rows_that_do_not_exist(on_disk, key):
    with pytest.raises(IndexError):
        on_disk[0][key]


@pytest.mark.parametrize("rows", [1, 4, 5, 99])
def test_blocks_are_all_rows_in_order(on_disk, rows):
    x, want = on_disk
    blocks = list(x.blocks(rows))
    assert max(len(block) for _, block in blocks) <= rows
    assert [first for first, _ in blocks] == np.cumsum([0, *(len(block) for _, block in blocks[:-1])]).tolist()
    np.testing.assert_array_equal(np.concatenate([block for _, block in blocks]), want)


def test_blocks_of_an_array_and_its_copy():
    x = np.arange(6.0, dtype=np.float32).reshape(3, 2)
    assert [(first, block.shape) for first, block in blocks_of(x)] == [(0, (3, 2))]
    assert in_memory(x) is x
    x.flags.writeable = False
    assert in_memory(x).flags.writeable
    assert block_rows(128) == 2**24 // 512


def test_a_file_that_vanishes_while_it_is_read(tmp_path):
    np.save(tmp_path / "x.npy", np.ones((4, 2), np.float16))
    x = Vectors(mapped_rows(str(tmp_path / "x.npy"), read_header(tmp_path / "x.npy")), 2)
    (tmp_path / "x.npy").unlink()
    with pytest.raises(Exception, match=r"x\.npy must stay as it is while it is read"):
        x[0]
