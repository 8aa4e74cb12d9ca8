import pytest
from likewise.types import LikewiseError

from likewise.data.cub200 import cub200

pytestmark = pytest.mark.filterwarnings("ignore:cub200. found")

FOLDERS = {
    1: "001.Black_footed_Albatross",
    100: "100.Brown_Pelican",
    101: "101.White_Pelican",
    200: "200.Common_Yellowthroat",
}


@pytest.fixture
def copy(tmp_path, draw, write):
    """A copy of the original download with one picture (two of class 1) of four classes."""
    listed = [(1, "b.jpg"), (1, "a.jpg"), (200, "c.jpg"), (101, "d.jpg"), (100, "e.jpg")]
    for label, name in listed:
        draw(f"CUB_200_2011/images/{FOLDERS[label]}/{name}")
    top = "CUB_200_2011/"
    write(top + "images.txt", "".join(f"{n} {FOLDERS[c]}/{f}\n" for n, (c, f) in enumerate(listed, 1)))
    write(top + "image_class_labels.txt", "".join(f"{n} {c}\n" for n, (c, _) in enumerate(listed, 1)))
    write(top + "classes.txt", "".join(f"{c} {name}\n" for c, name in FOLDERS.items()))
    return tmp_path


@pytest.mark.parametrize("below", ["", "CUB_200_2011"])
def test_the_original_lists(copy, below):
    items = cub200(str(copy / below))
    assert items.name == "cub200"
    assert items.root == str(copy / "CUB_200_2011")
    assert items.path[0] == "images/001.Black_footed_Albatross/b.jpg"
    assert items.class_name == ("Black_footed_Albatross", "Brown_Pelican", "White_Pelican", "Common_Yellowthroat")
    assert items.y.tolist() == [0, 0, 3, 2, 1]
    assert items.split.tolist() == ["train", "train", "test", "test", "train"]
    assert items.box is None
    assert set(items.taxonomy) == set(items.class_name) and items.taxonomy["Brown_Pelican"][-1] == "pelican"


def test_class_folders_without_lists(copy):
    for name in ("images.txt", "image_class_labels.txt", "classes.txt"):
        (copy / "CUB_200_2011" / name).unlink()
    (copy / "CUB_200_2011/images/001.Black_footed_Albatross/._a.jpg").write_bytes(b"left by a Mac")
    items = cub200(str(copy))
    assert items.path[:2] == tuple(f"images/001.Black_footed_Albatross/{n}.jpg" for n in "ab")
    assert items.y.tolist() == [0, 0, 1, 2, 3]
    assert items.split.tolist() == ["train", "train", "train", "test", "test"]


def test_a_part_of_the_set_warns(copy):
    with pytest.warns(UserWarning, match="found 5 images of 4 classes, but the published set has 11,788 of 200"):
        cub200(str(copy))


def test_what_is_missing_is_named(copy, tmp_path):
    top = copy / "CUB_200_2011"
    (top / "images/200.Common_Yellowthroat/c.jpg").unlink()
    with pytest.raises(
        LikewiseError, match=r"images\.txt names 1 images that are missing .*200\.Common_Yellowthroat/c\.jpg"
    ):
        cub200(str(copy))
    (top / "image_class_labels.txt").rename(top / "away.txt")
    with pytest.raises(LikewiseError, match=r"cub200: image_class_labels\.txt is missing; looked for .*Caltech"):
        cub200(str(copy))
    (tmp_path / "void").mkdir()
    with pytest.raises(LikewiseError, match="cub200: images is missing; looked for images and CUB_200_2011/images"):
        cub200(str(tmp_path / "void"))


def test_lists_that_disagree_are_an_error(copy, write):
    write("CUB_200_2011/image_class_labels.txt", "1 1\n2 1\n3 200\n4 101\n")
    with pytest.raises(LikewiseError, match="must list the same image ids, but 1 are in one of them only, such as 5"):
        cub200(str(copy))
    write("CUB_200_2011/image_class_labels.txt", "1 1\n2 1\n3 200\n4 101\n5 150\n")
    with pytest.raises(LikewiseError, match=r"classes\.txt must name every class, and class 150 is not in it"):
        cub200(str(copy))
    write("CUB_200_2011/image_class_labels.txt", "1 1\n2 1\n3 200\n4 101\n5 one\n")
    with pytest.raises(LikewiseError, match="class ids must be numbers"):
        cub200(str(copy))


def test_folders_without_a_number_are_an_error(tmp_path, draw):
    draw("images/Albatross/1.jpg")
    with pytest.raises(LikewiseError, match=r"named like 001\.Black_footed_Albatross, got 'Albatross'"):
        cub200(str(tmp_path))
