import json

import pytest
from likewise.types import LikewiseError

from likewise.data.inaturalist import inaturalist
from likewise.learn.losses.hierarchical import plan_by_tree

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


RANKS = {
    3026: ("Chordata", "Aves", "Piciformes", "Picidae", "Picus"),
    999: ("Chordata", "Aves", "Strigiformes", "Strigidae", "Bubo"),
    10: ("Tracheophyta", "Magnoliopsida", "Fagales", "Fagaceae", "Quercus"),
}


def categories(*numbers):
    """Records of categories.json of the competition."""
    names = ("phylum", "class", "order", "family", "genus")
    return [{"id": n, "name": f"species {n}", "kingdom": "any", **dict(zip(names, RANKS[n]))} for n in numbers]


@pytest.fixture
def published(draw, write):
    """The published lists and their images."""
    for name in TRAIN + TEST:
        draw(name)
    write("Inaturalist_train_set1.txt", "\n".join(TRAIN))
    write("Inaturalist_test_set1.txt", "\n".join(TEST))


@pytest.mark.parametrize("name", ["categories.json", "val2018.json", "train2018.json"])
@pytest.mark.usefixtures("published")
def test_ranks_of_the_taxonomy(tmp_path, write, name):
    listed = categories(10, 999, 3026)
    write(name, json.dumps(listed if name == "categories.json" else {"images": [], "categories": listed}))
    items = inaturalist(str(tmp_path))
    assert items.class_words == {
        "Aves/999": "species 999", "Aves/3026": "species 3026", "Plantae/10": "species 10",
    }  # fmt: skip
    tree = items.taxonomy
    assert tree == {
        "Aves/999": ("Aves", *RANKS[999]), "Aves/3026": ("Aves", *RANKS[3026]), "Plantae/10": ("Plantae", *RANKS[10]),
    }  # fmt: skip
    names = sorted(tree)
    for depth, groups in ((1, [0, 0, 1]), (3, [0, 0, 1])):
        (plan,) = plan_by_tree(3, depth, names, None, tree)
        assert plan.tolist() == groups


@pytest.mark.usefixtures("published")
def test_a_list_of_categories_without_ranks_is_passed_over(tmp_path, write):
    """The first release of the competition hid names and ranks."""
    write("categories.json", json.dumps([{"id": n, "name": "hidden", "supercategory": "Aves"} for n in RANKS]))
    tree = inaturalist(str(tmp_path)).taxonomy
    assert tree == {"Aves/999": ("Aves",), "Aves/3026": ("Aves",), "Plantae/10": ("Plantae",)}
    with pytest.raises(
        LikewiseError, match="depth must be at most 1, the levels of this tree above the classes, got 3"
    ):
        plan_by_tree(3, 3, sorted(tree), None, tree)
    write("val2018.json", json.dumps({"categories": categories(10, 999, 3026)}))
    assert inaturalist(str(tmp_path)).taxonomy["Plantae/10"] == ("Plantae", *RANKS[10])


@pytest.mark.usefixtures("published")
def test_a_wrong_list_of_categories_is_named(tmp_path, write):
    write("categories.json", json.dumps(categories(10, 999)))
    with pytest.raises(LikewiseError, match="list of categories must have every class, but Aves/3026 is missing"):
        inaturalist(str(tmp_path))
    for wrong in ("{", "{}", "3", '[{"phylum": 1, "class": 2, "order": 3, "family": 4, "genus": 5}]'):
        write("categories.json", wrong)
        with pytest.raises(
            LikewiseError, match=r"inaturalist: categories\.json must be JSON with a list of categories"
        ):
            inaturalist(str(tmp_path))
