"""Broken images: one rule for every command, before any work begins."""

import dataclasses
import os
from pathlib import Path

import numpy as np
import pytest
from likewise.types import LikewiseError
from messy_folder import make_messy_folder
from PIL import Image

from likewise.data import broken_images
from likewise.data.broken_images import find_broken, list_file, skip_again, skip_broken
from likewise.data.class_folders import read_folder
from likewise.data.fingerprint import fingerprint
from likewise.data.images import BadImage, UnreadableFile, check_files
from likewise.data.placement import fill_cache


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def messy(tmp_path):
    return make_messy_folder(tmp_path / "data")


def many(folder: Path, count: int, broken: int, classes: int = 2):
    """Return a folder of `count` images in some classes, the first `broken` images of class 0 broken."""
    for number in range(count):
        file = folder / str(number % classes) / f"{number // classes:03d}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        if number % classes == 0 and number // classes < broken:
            file.write_bytes(b"no image")
        else:
            Image.new("RGB", (2, 2)).save(file)
    return read_folder(str(folder))


@pytest.mark.parametrize("workers", [-1, 1, 3])
def test_every_broken_image_is_found_and_every_other_one_stays(messy, workers):
    items, said = read_folder(str(messy.root)), []
    assert [one.path for one in find_broken(items, workers=workers)] == messy.broken
    left = skip_broken(items, workers=workers, quiet=True, say=said.append)
    assert list(left.path) == messy.good
    assert [path for _, path in left.skipped] == messy.broken
    assert [items.path[row] for row, _ in left.skipped] == messy.broken
    assert [left.class_name[label] for label in left.y] == [path.split("/")[0] for path in messy.good]
    (line,) = said
    assert line.startswith("skipped 3 of 53 images that cannot be decoded:\n")
    assert "aster/broken.jpg: this is not an image in a known format" in line
    assert "zero bytes.png: the file is empty (0 bytes)\n" in line
    assert line.endswith(f"the whole list: {list_file(items)}")
    text = list_file(items).read_text()
    assert text.startswith("row,path,reason\n") and all(path in text for path in messy.broken)


def test_boxes_outside_of_their_image_count_as_broken(items):
    wide = dataclasses.replace(items, box=np.array([[np.nan] * 4] * 5 + [[0, 0, 300, 30]]))
    assert [one.row for one in find_broken(wide)] == [5]


def test_the_list_is_part_of_the_fingerprint(messy, tmp_path):
    items = read_folder(str(messy.root))
    left = skip_broken(items, quiet=True, say=list)
    assert fingerprint(left) != fingerprint(dataclasses.replace(left, skipped=()))
    assert fingerprint(left) != fingerprint(dataclasses.replace(left, skipped=left.skipped[:2]))
    before = fingerprint(left)
    os.rename(messy.root, tmp_path / "moved")
    moved = skip_broken(read_folder(str(tmp_path / "moved")), quiet=True, say=list)
    assert fingerprint(moved) == before


def test_a_run_skips_the_same_images_without_decoding(messy, monkeypatch):
    items = read_folder(str(messy.root))
    left = skip_broken(items, quiet=True, say=list)
    monkeypatch.setattr(broken_images, "image_of", lambda *_: pytest.fail("an image was decoded"))
    assert fingerprint(skip_again(items, [list(one) for one in left.skipped])) == fingerprint(left)
    assert skip_again(items, []) is items
    assert skip_again(items, [[1, "elsewhere.jpg"], [10**6, messy.broken[0]]]) is items


def test_a_strict_check_stops_at_the_first_and_stores_no_partial_list(messy):
    items = read_folder(str(messy.root))
    for _ in range(2):
        with pytest.raises(BadImage, match=r"zero bytes.png: .*strict"):
            skip_broken(items, strict=True, quiet=True)
    assert not list_file(items).exists()
    assert len(skip_broken(items, quiet=True, say=list).skipped) == 3
    with pytest.raises(BadImage, match=r"zero bytes.png"):
        skip_broken(items, strict=True, quiet=True)


@pytest.mark.parametrize(("count", "broken", "stops"), [(20, 4, False), (20, 5, True), (500, 5, False), (500, 6, True)])
def test_five_or_more_above_one_percent_stop(tmp_path, count, broken, stops):
    items = many(tmp_path / "data", count, broken)
    if not stops:
        assert len(skip_broken(items, quiet=True, say=list)) == count - broken
        return
    words = rf"at most 1% of the images may be broken \(or 4 of them\), but {broken} of {count} cannot be decoded; replace or"
    with pytest.raises(LikewiseError, match=words) as caught:
        skip_broken(items, quiet=True)
    assert "0/000.png: this is not an image" in str(caught.value) and str(list_file(items)) in str(caught.value)
    assert ("and 1 more" in str(caught.value)) == (broken == 6)


def test_a_class_that_loses_all_of_its_images_stops(tmp_path):
    items = many(tmp_path / "data", 6, 2, classes=3)
    with pytest.raises(LikewiseError, match=r"1 of 3 classes .*\('0'\)"):
        skip_broken(items, quiet=True)


def test_missing_and_unreadable_files_are_always_errors(tmp_path, monkeypatch):
    items = many(tmp_path / "data", 6, 0)
    real = broken_images.image_of

    def denied(data, row):
        if row == 2:
            raise UnreadableFile("2.png: the file cannot be read (Permission denied); check its permissions")
        return real(data, row)

    with monkeypatch.context() as patch:
        patch.setattr(broken_images, "image_of", denied)
        with pytest.raises(UnreadableFile, match="Permission denied"):
            skip_broken(items, quiet=True)
    assert not list_file(items).exists()
    os.remove(tmp_path / "data" / items.path[0])
    for check in (check_files, lambda data: skip_broken(data, quiet=True), lambda data: skip_again(data, [])):
        with pytest.raises(LikewiseError, match=r"1 cannot be used: .*\(missing\)"):
            check(items)


def test_images_are_checked_once_until_a_file_changes(messy, monkeypatch):
    items, calls = read_folder(str(messy.root)), []
    real = broken_images.find_broken
    monkeypatch.setattr(broken_images, "find_broken", lambda *a, **k: calls.append(1) or real(*a, **k))
    for _ in range(3):
        assert len(skip_broken(items, quiet=True, say=list)) == 50
    assert len(calls) == 1
    (messy.root / messy.good[3]).write_bytes(b"broken now")
    assert len(skip_broken(items, quiet=True, say=list)) == 49
    list_file(items).write_text("row,path,reason\n900,x,y\n")
    assert len(skip_broken(items, quiet=True, say=list)) == 49
    assert len(calls) == 3


def test_without_a_cache_folder_it_works_too(messy, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    said = []
    assert len(skip_broken(read_folder(str(messy.root)), quiet=True, say=said.append)) == 50
    assert "the whole list" not in said[0]


def test_a_training_decodes_clean_data_once(tmp_path, monkeypatch):
    items, calls = many(tmp_path / "data", 6, 0), []
    monkeypatch.setattr(broken_images, "find_broken", lambda *a, **k: calls.append(1) or [])
    decode = lambda data: fill_cache(data, "disk", None, quiet=True)  # noqa: E731
    assert skip_broken(items, decode=decode, quiet=True) is items and not calls
    assert skip_broken(items, quiet=True) is items and not calls
    assert not fill_cache(items, "files", None)


def test_the_cache_of_a_training_with_broken_images(messy):
    items = read_folder(str(messy.root))
    left = skip_broken(items, decode=lambda data: fill_cache(data, "disk", None, quiet=True), quiet=True, say=list)
    assert len(left) == 50 and fill_cache(left, "disk", None, quiet=True)


def test_a_set_of_labels_may_lose_its_images_but_a_label_may_not(tmp_path):
    """Image 0 is broken: alone in its set a|b, whose labels others have; without these, its labels are lost."""
    data = dataclasses.replace(
        many(tmp_path, 6, 1),
        y=np.array([1, 0, 2, 0, 2, 0]),
        class_name=("a", "a|b", "b"),
        label_name=("a", "b"),
        label_sets=((0,), (0, 1), (1,)),
    )
    left = skip_broken(data, say=lambda line: None)
    assert len(left) == 5 and left.class_name == ("a", "b") and left.label_sets is None
    rare = dataclasses.replace(data, y=np.array([1, 0, 0, 0, 0, 0]))
    with pytest.raises(LikewiseError, match=r"1 of 2 labels .*\('b'\)"):
        skip_broken(rare, say=lambda line: None)


def test_links_that_lead_nowhere_are_listed_and_strict_refuses_them(tmp_path):
    items, said = many(tmp_path / "data", 20, 0), []
    for number in range(7):
        os.symlink("nowhere", tmp_path / "data" / "1" / f"{number}\n.png")
    items = read_folder(str(tmp_path / "data"))
    assert skip_broken(items, say=said.append) is items and len(items) == 20
    lines = said[0].splitlines()
    assert lines[0] == "left out 7 links or folders that cannot be used:"
    assert lines[1] == "  1/0\\n.png: the link leads nowhere" and lines[-1] == "  and 2 more" and len(lines) == 7
    with pytest.raises(BadImage, match=r"0\n\.png: the link leads nowhere; remove it"):
        skip_broken(items, strict=True)


def test_a_missing_file_whose_name_is_not_utf8_may_be_a_wrong_encoding(tmp_path):
    items = many(tmp_path / "data", 4, 0)
    items = dataclasses.replace(items, path=("0/caf\udce9.png", *items.path[1:]))
    with pytest.raises(LikewiseError, match="a name is not UTF-8"):
        check_files(items)
