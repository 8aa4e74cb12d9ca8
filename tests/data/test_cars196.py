import sys

import numpy as np
import pytest
from likewise.types import LikewiseError
from scipy.io import savemat

from likewise.data import cars196 as module
from likewise.data.cars196 import cars196

pytestmark = pytest.mark.filterwarnings("ignore:cars196. found")


def save_notes(file, rows, names):
    kinds = [("relative_im_path", object), ("bbox_x1", object), ("class", object), ("test", object)]
    notes = np.array([[(path, 1, label, 0) for path, label in rows]], dtype=kinds)
    savemat(file, {"annotations": notes, "class_names": np.array([names], dtype=object)})


@pytest.fixture
def original(tmp_path, draw):
    names = [f"Make {number}" for number in range(1, 197)]
    rows = [
        ("car_ims/000001.jpg", 1),
        ("car_ims/000002.jpg", 98),
        ("car_ims/000003.jpg", 99),
        ("car_ims/000004.jpg", 196),
    ]
    for path, _ in rows:
        draw(path)
    save_notes(tmp_path / "cars_annos.mat", rows, names)
    return tmp_path


def test_the_original_annotations(original):
    items = cars196(str(original))
    assert items.path[0] == "car_ims/000001.jpg"
    assert items.class_name == ("Make 1", "Make 98", "Make 99", "Make 196")
    assert items.y.tolist() == [0, 1, 2, 3]
    assert items.split.tolist() == ["train", "train", "test", "test"]


def test_missing_pictures_are_named(original):
    (original / "car_ims/000003.jpg").unlink()
    with pytest.raises(LikewiseError, match=r"cars_annos\.mat names 1 images that are missing .*car_ims/000003\.jpg"):
        cars196(str(original))


def test_scipy_is_asked_for(original, monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.io", None)
    with pytest.raises(LikewiseError, match=r"reading cars_annos\.mat needs scipy, which is not installed"):
        cars196(str(original))


def test_broken_annotations_are_explained(original):
    (original / "cars_annos.mat").write_bytes(b"nothing")
    with pytest.raises(LikewiseError, match=r"must hold annotations \(relative_im_path, class\)"):
        cars196(str(original))
    savemat(original / "cars_annos.mat", {"other": [1]})
    with pytest.raises(LikewiseError, match=r"must hold annotations \(relative_im_path, class\)"):
        cars196(str(original))
    save_notes(original / "cars_annos.mat", [("car_ims/000001.jpg", 3), ("car_ims/000002.jpg", 1)], ["one", "two"])
    with pytest.raises(LikewiseError, match="class_names has 2 names, but the labels go up to 3"):
        cars196(str(original))


def test_class_folders_are_split_by_make(tmp_path, draw):
    for name in (
        "AM General Hummer SUV 2000",
        "Eagle Talon Hatchback 1998",
        "FIAT 500 Abarth 2012",
        "smart fortwo 2012",
    ):
        draw(f"images/{name}/1.jpg")
    items = cars196(str(tmp_path))
    assert items.class_name[:2] == ("AM General Hummer SUV 2000", "Eagle Talon Hatchback 1998")
    assert items.split.tolist() == ["train", "train", "test", "test"]
    assert items.path[0] == "images/AM General Hummer SUV 2000/1.jpg"
    assert items.taxonomy["AM General Hummer SUV 2000"] == ("car", "SUV") and "smart fortwo 2012" not in items.taxonomy


def test_class_folders_by_number(tmp_path, draw):
    for name in ("2", "99", "98", "196"):
        draw(f"images/{name}/1.jpg")
    items = cars196(str(tmp_path))
    assert items.class_name == ("2", "98", "99", "196") and items.taxonomy is None
    split = {items.class_name[label]: part for label, part in zip(items.y, items.split.tolist(), strict=True)}
    assert split == {"2": "train", "98": "train", "99": "test", "196": "test"}


def test_folders_called_otherwise_do_not_pass_as_the_set(tmp_path, draw, monkeypatch):
    for name in ("zebra", "apple", "banana"):
        draw(f"images/{name}/1.jpg")
    monkeypatch.setattr(module, "PUBLISHED_SET", module.Original("cars196", "", images=3, classes=3))
    with pytest.raises(LikewiseError, match="the first half must be 8,054 images of 98 classes, got 2 of 2"):
        cars196(str(tmp_path))


def test_what_is_missing_is_named(tmp_path):
    with pytest.raises(
        LikewiseError, match=r"cars_annos\.mat is missing; looked for .* and images/<class>/ in .*Stanford"
    ):
        cars196(str(tmp_path))
    (tmp_path / "images").mkdir()
    with pytest.raises(LikewiseError, match="images must hold class folders with images, got none"):
        cars196(str(tmp_path))
