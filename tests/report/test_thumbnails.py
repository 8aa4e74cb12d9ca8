"""Small pictures: in their proportions, of the rows that were asked for; broken ones are counted and named."""

import dataclasses
import shutil

from likewise.data import load
from likewise.report.thumbnails import read_thumbnails


def test_pictures_are_shrunk_and_broken_ones_counted(pictures, tmp_path):
    items = load(str(shutil.copytree(pictures, tmp_path / "p")))
    found, wrong = read_thumbnails(items, [5, 0, 30], side=12, quiet=True)
    assert list(found) == [5, 0, 30] and wrong == "" and found[0].size == (12, 10)
    file = tmp_path / "p" / items.path[0]
    file.write_bytes(b"no picture")
    found, wrong = read_thumbnails(items, [5, 0], quiet=True)
    assert list(found) == [5] and wrong.startswith("1 of 2 images cannot be read") and file.name in wrong
    assert read_thumbnails(dataclasses.replace(items, path=None), [1], quiet=True) == ({}, "")
