import pytest

from likewise.data.inaturalist import inaturalist
from likewise.types import LikewiseError

pytestmark = pytest.mark.filterwarnings("ignore:inaturalist. found")

TRAIN = ["train_val2018/Aves/3026/b.jpg", "train_val2018/Plantae/10/a.jpg", "train_val2018/Aves/3026/a.jpg"]
TEST = ["train_val2018/Aves/999/c.jpg"]


@pytest.mark.parametrize("place", ["", "Inat_dataset_splits/"])
def test_the_published_lists(tmp_path, draw, write, place):
    for name in TRAIN + TEST + ["train_val2018/Aves/5/unlisted.jpg"]:
        draw(name)
    write(f"{place}Inaturalist_train_set1.txt", "\n".join(TRAIN))
    write(f"{place}Inaturalist_test_set1.txt", "\n".join(TEST) + "\n")
    items = inaturalist(str(tmp_path))
    assert items.path == tuple(TRAIN + TEST)
    assert items.class_name == ("Aves/999", "Aves/3026", "Plantae/10")
    assert items.y.tolist() == [1, 2, 1, 0]
    assert items.split.tolist() == ["train", "train", "train", "test"]
    assert items.taxonomy["Plantae/10"] == ("Plantae",)


@pytest.mark.parametrize("top", ["train_val2018", "train2018"])
def test_class_folders_without_lists(tmp_path, draw, top):
    for name in ("Aves/10/a.jpg", "Aves/9/a.jpg", "Aves/9/b.jpg", "Fungi/2/a.jpg", "Plantae/1/a.jpg"):
        draw(f"{top}/{name}")
    items = inaturalist(str(tmp_path))
    assert items.class_name == ("Aves/9", "Aves/10", "Fungi/2", "Plantae/1")
    split = dict(zip(items.path, items.split.tolist(), strict=True))
    assert split == {
        f"{top}/Aves/10/a.jpg": "train",
        f"{top}/Aves/9/a.jpg": "train",
        f"{top}/Aves/9/b.jpg": "train",
        f"{top}/Fungi/2/a.jpg": "test",
        f"{top}/Plantae/1/a.jpg": "test",
    }


def test_what_is_missing_is_named(tmp_path, write, draw):
    with pytest.raises(
        LikewiseError, match="train_val2018 is missing; looked for train_val2018 and train2018 .*Smooth-AP"
    ):
        inaturalist(str(tmp_path))
    (tmp_path / "train2018").mkdir()
    with pytest.raises(LikewiseError, match="train2018 must hold <kind>/<class>/ folders with images"):
        inaturalist(str(tmp_path))
    write("Inaturalist_train_set1.txt", "\n".join(TRAIN))
    with pytest.raises(LikewiseError, match=r"Inaturalist_test_set1\.txt is missing; looked for Inat_dataset_splits/"):
        inaturalist(str(tmp_path))
    write("Inaturalist_test_set1.txt", "\n".join(TEST))
    with pytest.raises(LikewiseError, match="names 4 images that are missing"):
        inaturalist(str(tmp_path))
    write("Inaturalist_test_set1.txt", "c.jpg\n")
    with pytest.raises(
        LikewiseError, match=r"Inaturalist_test_set1\.txt must list <kind>/<class>/<image>, got 'c\.jpg'"
    ):
        inaturalist(str(tmp_path))
