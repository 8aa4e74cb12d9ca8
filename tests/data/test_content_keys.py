"""Keys follow the content of samples, not their names, labels or data sets."""

import numpy as np
import pytest
from likewise.types import Items, LikewiseError
from PIL import Image

from likewise.data.copies import BLOCK_BYTES, content_keys, is_known


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
