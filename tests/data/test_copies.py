"""Exact copies: files, boxes, pixels and vectors."""

import numpy as np
import pytest
from likewise.types import Items, LikewiseError
from PIL import Image

from likewise.data.copies import (
    BLOCK_BYTES,
    clusters_of,
    content_keys,
    exact_copies,
    file_clusters,
    is_known,
    pixel_clusters,
)


def items(folder, paths, box=None):
    return Items("toy", np.zeros(len(paths), np.int64), ("a",), path=tuple(paths), root=str(folder), box=box)


def picture(seed):
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (20, 30, 3), dtype=np.uint8))


@pytest.fixture
def folder(tmp_path):
    for seed in (0, 1):
        picture(seed).save(tmp_path / f"{seed}.png")
    (tmp_path / "0 again.png").write_bytes((tmp_path / "0.png").read_bytes())
    picture(0).save(tmp_path / "0.bmp")
    return tmp_path


def test_files_with_the_same_bytes(folder):
    data = items(folder, ["0.png", "1.png", "0 again.png", "0.png", "0.bmp", "gone.png", "gone.png"])
    rows = np.arange(7)
    assert exact_copies(data, rows).tolist() == [0, 1, 0, 0, 2, 3, 4]
    assert exact_copies(data, rows, pixels=True).tolist() == [0, 1, 0, 0, 0, 2, 3]
    assert exact_copies(data, np.array([2, 1, 0])).tolist() == [0, 1, 0]


def test_boxes(folder):
    nan = np.nan
    box = np.array([[nan] * 4, [0, 0, 30, 20], [0, 0, 29, 20], [2, 2, 9, 9], [2.2, 2.9, 8.1, 8.5], [2, 2, 9, 10]])
    data = items(folder, ["0.png", "0.png", "0 again.png", "0.png", "0 again.png", "0.png"], box)
    for pixels in (False, True):
        assert exact_copies(data, np.arange(6), pixels).tolist() == [0, 0, 1, 2, 2, 3]
    assert file_clusters(data, np.arange(6)).tolist() == [0] * 6


def test_plain_ground_in_two_boxes_of_one_file():
    digest, file, box = [b"x", b"x", b"x", b"y", b"y", b""], np.array([0, 0, 0, 0, 1, 2]), [1, 2, 1, 3, 4, 5]
    assert pixel_clusters(digest, file, box).tolist() == [0, 1, 0, 2, 2, 3]


def test_vectors_and_nothing_to_compare():
    y = np.zeros(4, np.int64)
    x = np.array([[0.0, 1], [1, 0], [-0.0, 1], [1, 1e-9]], np.float32)
    assert exact_copies(Items("toy", y, ("a",), x=x), np.arange(4)).tolist() == [0, 1, 0, 2]
    assert exact_copies(Items("toy", y, ("a",)), np.arange(4)).tolist() == [0, 1, 2, 3]
    assert clusters_of([]).tolist() == []


def files(folder, contents, **columns):
    folder.mkdir()
    for place, content in enumerate(contents):
        (folder / f"{place}.jpg").write_bytes(content)
    names = tuple(f"{place}.jpg" for place in range(len(contents)))
    return Items("toy", np.zeros(len(names), int), ("a",), path=names, root=str(folder), **columns)


def keys(items):
    return [key.tobytes() for key in content_keys(items, np.arange(len(items)))]


def test_equal_files_have_equal_keys_in_any_data_set(tmp_path):
    big = bytes(5 * BLOCK_BYTES)
    middle = bytearray(big)
    middle[len(big) // 2] = 1
    contents = [b"", b"one", b"two", big, big + b"!", b"!" + big, bytes(middle), b"one"]
    first, second = files(tmp_path / "a", contents), files(tmp_path / "b", contents[::-1])
    found = keys(first)
    assert found == keys(second)[::-1]
    assert found[1] == found[7] and len(set(found)) == 7
    known = is_known(content_keys(first, np.arange(8)), content_keys(second, np.array([0, 3])))
    assert known.tolist() == [False, True, False, False, True, False, False, True]  # "one" and `big + b"!"`


def test_boxes_of_one_file_differ_unless_they_show_the_same_pixels(tmp_path):
    Image.new("RGB", (8, 6), "red").save(tmp_path / "x.png")
    box = np.array([[np.nan] * 4, [0, 0, 8, 6], [0, 0, 4, 6], [4, 0, 8, 6]])
    items = Items("toy", np.zeros(4, int), ("a",), path=("x.png",) * 4, root=str(tmp_path), box=box)
    found = keys(items)
    assert found[0] == found[1] and len(set(found)) == 3


def test_features_are_keyed_by_their_values():
    x = np.array([[1.0, 0.0], [1.0, -0.0], [0.0, 1.0]], np.float32)
    found = keys(Items("toy", np.zeros(3, int), ("a",), x=x))
    assert found[0] == found[1] != found[2]


def test_a_missing_file_is_named(tmp_path):
    items = files(tmp_path / "a", [b"one"])
    (tmp_path / "a" / "0.jpg").unlink()
    with pytest.raises(LikewiseError, match=r"content_keys: .*0.jpg cannot be read"):
        keys(items)
    with pytest.raises(LikewiseError, match="'toy' must have images or features"):
        keys(Items("toy", np.zeros(1, int), ("a",)))
