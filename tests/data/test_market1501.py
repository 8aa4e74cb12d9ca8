import pytest
from likewise.protocols import QueryGallery
from likewise.types import LikewiseError

from likewise.data.market1501 import market1501

pytestmark = pytest.mark.filterwarnings("ignore:market1501. found")

FILES = [
    "bounding_box_train/0002_c1s1_000451_03.jpg",
    "bounding_box_train/0007_c3_f0044158.jpg",  # as DukeMTMC-reID writes it
    "query/0001_c1s1_001051_00.jpg",
    "bounding_box_test/-1_c2s1_000401_02.jpg",
    "bounding_box_test/0000_c6s3_096517_06.jpg",
    "bounding_box_test/0001_c2s1_000301_00.jpg",
]


def test_person_and_camera_are_in_the_file_names(tmp_path, draw, write):
    for path in FILES:
        draw(path)
    write("bounding_box_test/Thumbs.db", "not an image")
    items = market1501(str(tmp_path))
    assert items.path == tuple(FILES)
    assert items.class_name == ("junk", "distractor", "0001", "0002", "0007")
    assert [items.class_name[label] for label in items.y] == ["0002", "0007", "0001", "junk", "distractor", "0001"]
    assert items.camera.tolist() == ["c1", "c3", "c1", "c2", "c6", "c2"]
    assert items.junk.tolist() == [False, False, False, True, False, False]
    assert items.split.tolist() == ["train"] * 2 + ["test"] * 4
    assert items.query.tolist() == [False, False, True, False, False, False]
    assert items.gallery.tolist() == [False, False, False, True, True, True]
    assert QueryGallery().rows(items, "test").tolist() == [2, 4, 5]


def test_what_is_wrong_is_named(tmp_path, draw):
    draw(FILES[0])
    with pytest.raises(LikewiseError, match=r"query is missing.*Market-1501-v15\.09\.15\.zip"):
        market1501(str(tmp_path))
    (tmp_path / "query").mkdir()
    with pytest.raises(LikewiseError, match="query must hold images, got none"):
        market1501(str(tmp_path))
    draw("query/cat.jpg")
    with pytest.raises(LikewiseError, match=r"must begin with person and camera, as 0002_c1s1.*got query/cat\.jpg"):
        market1501(str(tmp_path))
