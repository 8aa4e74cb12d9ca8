"""Exact copies: files, boxes, pixels and vectors."""

import numpy as np
import pytest
from likewise.types import Items
from PIL import Image

from likewise.data.copies import clusters_of, exact_copies, file_clusters, pixel_clusters


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
