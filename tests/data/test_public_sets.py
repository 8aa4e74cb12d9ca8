"""Readers of public data sets, on small copies of the original downloads."""

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
from likewise.protocols import QueryGallery
from likewise.types import Items, LikewiseError
from scipy.io import savemat

from likewise.data import public_sets
from likewise.data.public_sets import Original, cars196, cub200, imagenet, inaturalist, inshop, market1501, sop
from likewise.learn.losses.hierarchical import plan_by_tree

pytestmark = pytest.mark.filterwarnings("ignore:.*found .* images of .* but the published set has")

BIRDS = Original("birds", "The set comes from there", images=2, classes=1)

CUB200_FOLDERS = {
    1: "001.Black_footed_Albatross",
    100: "100.Brown_Pelican",
    101: "101.White_Pelican",
    200: "200.Common_Yellowthroat",
}
CUB200_IMAGES = [(1, "b.jpg"), (1, "a.jpg"), (200, "c.jpg"), (101, "d.jpg"), (100, "e.jpg")]

SOP_HEADER = "image_id class_id super_class_id path\n"
SOP_TRAIN = SOP_HEADER + "1 1 1 bicycle_final/1_0.JPG\n2 1 1 bicycle_final/1_1.JPG\n3 2 9 coffee_maker_final/2_0.JPG\n"
SOP_TEST = SOP_HEADER + "1 11319 1 bicycle_final/3_0.JPG\n2 11319 1 bicycle_final/3_1.JPG\n"
SOP_FILES = [line.split()[3] for line in (SOP_TRAIN + SOP_TEST).splitlines() if line[0] != "i"]

INSHOP_HEADER = "image_name item_id evaluation_status\n"
INSHOP_ROWS = [
    ("img/WOMEN/Dresses/id_00000002/02_1_front.jpg", "id_00000002", "train"),
    ("img/WOMEN/Dresses/id_00000002/02_2_side.jpg", "id_00000002", "train"),
    ("img/MEN/Denim/id_00000080/01_1_front.jpg", "id_00000080", "query"),
    ("img/MEN/Denim/id_00000080/01_2_side.jpg", "id_00000080", "gallery"),
]
INSHOP_LIST = f"4\n{INSHOP_HEADER}" + "".join(f"{path}   {item}  {status}\n" for path, item, status in INSHOP_ROWS)

MARKET1501_FILES = [
    "bounding_box_train/0002_c1s1_000451_03.jpg",
    "bounding_box_train/0007_c3_f0044158.jpg",  # as DukeMTMC-reID writes it
    "query/0001_c1s1_001051_00.jpg",
    "bounding_box_test/-1_c2s1_000401_02.jpg",
    "bounding_box_test/0000_c6s3_096517_06.jpg",
    "bounding_box_test/0001_c2s1_000301_00.jpg",
]

INAT_TRAIN = ["train_val2018/Aves/3026/b.jpg", "train_val2018/Plantae/10/a.jpg", "train_val2018/Aves/3026/a.jpg"]
INAT_TEST = ["train_val2018/Aves/999/c.jpg"]
INAT_RANKS = {
    3026: ("Chordata", "Aves", "Piciformes", "Picidae", "Picus"),
    999: ("Chordata", "Aves", "Strigiformes", "Strigidae", "Bubo"),
    10: ("Tracheophyta", "Magnoliopsida", "Fagales", "Fagaceae", "Quercus"),
}


def cub200_copy(draw, write):
    top = "CUB_200_2011/"
    for label, name in CUB200_IMAGES:
        draw(f"{top}images/{CUB200_FOLDERS[label]}/{name}")
    listed = list(enumerate(CUB200_IMAGES, 1))
    write(top + "images.txt", "".join(f"{n} {CUB200_FOLDERS[c]}/{f}\n" for n, (c, f) in listed))
    write(top + "image_class_labels.txt", "".join(f"{n} {c}\n" for n, (c, _) in listed))
    write(top + "classes.txt", "".join(f"{c} {name}\n" for c, name in CUB200_FOLDERS.items()))


def save_cars(folder, rows, names):
    kinds = [("relative_im_path", object), ("bbox_x1", object), ("class", object), ("test", object)]
    notes = np.array([[(path, 1, label, 0) for path, label in rows]], dtype=kinds)
    savemat(folder / "cars_annos.mat", {"annotations": notes, "class_names": np.array([names], dtype=object)})


def categories(*numbers):
    """Records of categories.json of the iNaturalist competition."""
    names = ("phylum", "class", "order", "family", "genus")
    return [{"id": n, "name": f"species {n}", "kingdom": "any", **dict(zip(names, INAT_RANKS[n]))} for n in numbers]


@pytest.fixture
def inat_lists(draw, write):
    """The published lists of iNaturalist and their images."""
    for name in INAT_TRAIN + INAT_TEST:
        draw(name)
    write("Inaturalist_train_set1.txt", "\n".join(INAT_TRAIN))
    write("Inaturalist_test_set1.txt", "\n".join(INAT_TEST) + "\n")


@pytest.fixture
def wrong(tmp_path, write, refused):
    """Read a set after every change of its files, and check the words of the error."""

    def check(reader, *cases):
        for files, words in cases:
            for name, content in files.items():
                write(name, content)
            refused((lambda: reader(str(tmp_path)), words))

    return check


def test_the_published_count_warns_once():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        BIRDS.check_count(Items("birds", np.zeros(2, int), ("a",)))
    with pytest.warns(UserWarning, match="found 3 images of 1 classes.* set has 2 of 1") as seen:
        BIRDS.check_count(Items("birds", np.zeros(3, int), ("a",)))
    assert len(seen) == 1


def test_lists_must_have_their_words(write, wrong):
    assert BIRDS.words(write("l.txt", "a 1\n\nb  2\n"), 2) == [["a", "1"], ["b", "2"]]
    wrong(
        lambda root: BIRDS.words(f"{root}/l.txt", 2),
        ({"l.txt": "a 1\n\nb c 2\n"}, r"l\.txt must hold 2 words, got 3 in line 3"),
        ({"l.txt": "\n"}, r"l\.txt must not be empty"),
    )


def test_missing_files_are_named(tmp_path, draw):
    with pytest.raises(LikewiseError, match="birds: root must be .*gone, which does not exist"):
        BIRDS.folder(str(tmp_path / "gone"))
    with pytest.raises(LikewiseError) as error:
        BIRDS.need(str(tmp_path), ["list.txt", "Eval/list.txt"])
    assert str(error.value) == (
        f"birds: list.txt is missing; looked for list.txt and Eval/list.txt in {tmp_path}. The set comes from there"
    )
    draw("1.png")
    BIRDS.check_listed(str(tmp_path), ["1.png"], "list.txt")
    with pytest.raises(LikewiseError, match=r"list\.txt names 4 images that are missing .*: 2, 3, 4 and 1 more"):
        BIRDS.check_listed(str(tmp_path), ["1.png", "2", "3", "4", "5"], "list.txt")


def test_an_incomplete_download_is_named(tmp_path, write, subtests):
    """The first missing file, and the origin of the set."""
    for reader, words in (
        (cub200, "cub200: images is missing; looked for images and CUB_200_2011/images .*Caltech"),
        (cars196, r"cars_annos\.mat is missing; looked for .* and images/<class>/ in .*Stanford"),
        (sop, r"Ebay_train\.txt is missing; looked for Ebay_train\.txt and Info_Files/Ebay_train.*Stanford"),
        (inshop, r"list_eval_partition\.txt is missing; looked for .* and Anno/list_eval.*DeepFas"),
        (market1501, r"bounding_box_train is missing.*Market-1501-v15\.09\.15\.zip"),
        (inaturalist, "train_val2018 is missing; looked for train_val2018 and train2018 .*Smooth-AP"),
        (imagenet, r"train is missing; looked for train and ILSVRC.*image-net\.org"),
    ):
        with subtests.test(reader.__name__), pytest.raises(LikewiseError, match=words):
            reader(str(tmp_path))
    for reader, folder in ((cars196, "images"), (cub200, "images"), (imagenet, "train"), (inaturalist, "train2018")):
        (tmp_path / folder).mkdir(exist_ok=True)
        with subtests.test(reader.__name__), pytest.raises(LikewiseError, match=f"{folder} must hold .*folders with"):
            reader(str(tmp_path))
    (tmp_path / "bounding_box_train").mkdir()
    with pytest.raises(LikewiseError, match="bounding_box_train must hold images, got none"):
        market1501(str(tmp_path))


@pytest.mark.parametrize("below", ["", "CUB_200_2011"])
def test_cub200_lists(tmp_path, draw, write, below):
    cub200_copy(draw, write)
    with pytest.warns(UserWarning, match="found 5 images of 4 classes.* 11,788 of 200"):
        items = cub200(str(tmp_path / below))
    assert items.name == "cub200"
    assert items.root == str(tmp_path / "CUB_200_2011")
    assert items.path[0] == "images/001.Black_footed_Albatross/b.jpg"
    assert items.class_name == ("Black_footed_Albatross", "Brown_Pelican", "White_Pelican", "Common_Yellowthroat")
    assert items.y.tolist() == [0, 0, 3, 2, 1]
    assert items.split.tolist() == ["train", "train", "test", "test", "train"]
    assert items.box is None
    assert set(items.taxonomy) == set(items.class_name) and items.taxonomy["Brown_Pelican"][-1] == "pelican"


def test_cub200_class_folders(tmp_path, draw, write):
    cub200_copy(draw, write)
    for file in (tmp_path / "CUB_200_2011").glob("*.txt"):
        file.unlink()
    write("CUB_200_2011/images/001.Black_footed_Albatross/._a.jpg", "left by a Mac")
    items = cub200(str(tmp_path))
    assert items.path[:2] == tuple(f"images/001.Black_footed_Albatross/{n}.jpg" for n in "ab")
    assert items.y.tolist() == [0, 0, 1, 2, 3]
    assert items.split.tolist() == ["train", "train", "train", "test", "test"]
    draw("CUB_200_2011/images/Albatross/1.jpg")
    with pytest.raises(LikewiseError, match=r"named like 001\.Black_footed_Albatross, got 'Albatross'"):
        cub200(str(tmp_path))


def test_cub200_lists_that_disagree(tmp_path, draw, write, wrong):
    cub200_copy(draw, write)
    (tmp_path / "CUB_200_2011/images/200.Common_Yellowthroat/c.jpg").unlink()
    labels = "CUB_200_2011/image_class_labels.txt"
    wrong(
        cub200,
        ({}, r"images\.txt names 1 images that are missing .*200\.Common_Yellowthroat/c\.jpg"),
        ({labels: "1 1\n2 1\n3 200\n4 101\n"}, "1 are in one of them only, such as 5"),
        ({labels: "1 1\n2 1\n3 200\n4 101\n5 150\n"}, r"classes\.txt must name every class, and class 150"),
        ({labels: "1 1\n2 1\n3 200\n4 101\n5 one\n"}, "class ids must be numbers"),
    )
    Path(tmp_path / labels).unlink()
    wrong(cub200, ({}, r"image_class_labels\.txt is missing; looked for .*Caltech"))


def test_cars196_annotations(tmp_path, draw):
    rows = [(f"car_ims/00000{n}.jpg", label) for n, label in enumerate((1, 98, 99, 196), 1)]
    for path, _ in rows:
        draw(path)
    save_cars(tmp_path, rows, [f"Make {number}" for number in range(1, 197)])
    items = cars196(str(tmp_path))
    assert items.path[0] == "car_ims/000001.jpg"
    assert items.class_name == ("Make 1", "Make 98", "Make 99", "Make 196")
    assert items.y.tolist() == [0, 1, 2, 3]
    assert items.split.tolist() == ["train", "train", "test", "test"]
    (tmp_path / "car_ims/000003.jpg").unlink()
    with pytest.raises(LikewiseError, match=r"names 1 images that are missing .*car_ims/000003\.jpg"):
        cars196(str(tmp_path))
    save_cars(tmp_path, [("car_ims/000001.jpg", 3), ("car_ims/000002.jpg", 1)], ["one", "two"])
    with pytest.raises(LikewiseError, match="class_names has 2 names, but the labels go up to 3"):
        cars196(str(tmp_path))
    savemat(tmp_path / "cars_annos.mat", {"other": [1]})
    with pytest.raises(LikewiseError, match="must hold annotations"):
        cars196(str(tmp_path))
    (tmp_path / "cars_annos.mat").write_bytes(b"nothing")
    with pytest.raises(LikewiseError, match="must hold annotations"):
        cars196(str(tmp_path))


def test_cars196_class_folders_are_split_by_make(tmp_path, draw):
    names = ("AM General Hummer SUV 2000", "Eagle Talon Hatchback 1998", "FIAT 500 Abarth 2012", "smart fortwo 2012")
    for name in names:
        draw(f"images/{name}/1.jpg")
    items = cars196(str(tmp_path))
    assert items.class_name[:2] == names[:2]
    assert items.split.tolist() == ["train", "train", "test", "test"]
    assert items.path[0] == "images/AM General Hummer SUV 2000/1.jpg"
    assert items.taxonomy[names[0]] == ("car", "SUV") and "smart fortwo 2012" not in items.taxonomy


def test_cars196_class_folders_by_number(tmp_path, draw):
    for name in ("2", "99", "98", "196"):
        draw(f"images/{name}/1.jpg")
    items = cars196(str(tmp_path))
    assert items.class_name == ("2", "98", "99", "196") and items.taxonomy is None
    split = {items.class_name[label]: part for label, part in zip(items.y, items.split.tolist(), strict=True)}
    assert split == {"2": "train", "98": "train", "99": "test", "196": "test"}


def test_cars196_folders_with_other_names_are_not_the_set(tmp_path, draw, monkeypatch):
    for name in ("zebra", "apple", "banana"):
        draw(f"images/{name}/1.jpg")
    monkeypatch.setattr(public_sets, "CARS196", Original("cars196", "", images=3, classes=3))
    with pytest.raises(LikewiseError, match="must be 8,054 images of 98 classes, got 2 of 2"):
        cars196(str(tmp_path))


@pytest.mark.parametrize(
    ("lists", "images"), [("", ""), ("Stanford_Online_Products/",) * 2, ("Info_Files/", "images/")]
)
def test_sop_layouts(tmp_path, draw, write, lists, images):
    for file in SOP_FILES:
        draw(images + file)
    write(f"{lists}Ebay_train.txt", SOP_TRAIN)
    write(f"{lists}Ebay_test.txt", SOP_TEST)
    items = sop(str(tmp_path))
    assert items.path == tuple(("images/" if images == "images/" else "") + file for file in SOP_FILES)
    assert items.class_name == ("1", "2", "11319")
    assert items.y.tolist() == [0, 0, 1, 2, 2]
    assert items.split.tolist() == ["train"] * 3 + ["test"] * 2
    assert items.taxonomy == {"1": ("bicycle",), "2": ("coffee_maker",), "11319": ("bicycle",)}
    assert items.class_words == {"1": "bicycle", "2": "coffee maker", "11319": "bicycle"}


def test_sop_wrong_lists(draw, wrong):
    draw(SOP_FILES[0])
    wrong(
        sop,
        ({"Ebay_train.txt": SOP_TRAIN}, r"Ebay_test\.txt is missing"),
        ({"Ebay_test.txt": SOP_TEST}, r"names 4 images that are missing .*: bicycle_final/1_1\.JPG, .* and 1 more"),
        ({"Ebay_train.txt": "1 1 1 bicycle_final/1_0.JPG\n"}, r"first line of Ebay_train\.txt must be 'image_id"),
        ({"Ebay_train.txt": SOP_HEADER}, r"Ebay_train\.txt must list at least one image"),
        ({"Ebay_train.txt": SOP_HEADER + "1 1 1\n"}, r"Ebay_train\.txt must hold 4 words, got 3 in line 2"),
        ({"Ebay_train.txt": SOP_HEADER + "1 one 1 a.JPG\n"}, r"class_id in Ebay_train\.txt must be a number"),
    )


@pytest.mark.parametrize("place", ["", "Eval/", "Anno/"])
@pytest.mark.parametrize("pictures", ["", "Img/"])
def test_inshop_layouts(tmp_path, draw, write, place, pictures):
    for path, _, _ in INSHOP_ROWS:
        draw(pictures + path)
    write(f"{place}list_eval_partition.txt", INSHOP_LIST)
    items = inshop(str(tmp_path))
    assert items.path == tuple(pictures + path for path, _, _ in INSHOP_ROWS)
    assert items.class_name == ("id_00000002", "id_00000080")
    assert items.y.tolist() == [0, 0, 1, 1]
    assert items.split.tolist() == ["train", "train", "test", "test"]
    assert items.query.tolist() == [False, False, True, False]
    assert items.gallery.tolist() == [False, False, False, True]


def test_inshop_wrong_lists(wrong):
    file = "list_eval_partition.txt"
    wrong(
        inshop,
        ({file: INSHOP_LIST}, r"names 4 images that are missing .*id_00000002/02_1_front\.jpg.* and 1 more"),
        ({file: "3\na b train\nc d train\n"}, f"first or second line of {file} must be 'image_name item_id"),
        ({file: "1\n" + INSHOP_HEADER}, "must not be empty"),
        ({file: "1\n" + INSHOP_HEADER + "a b\n"}, "must hold 3 words, got 2 in line 3"),
        ({file: "1\n" + INSHOP_HEADER + "a b dev\n"}, f"got 'dev' in {file} line 3"),
    )


def test_market1501_person_and_camera_are_in_the_file_names(tmp_path, draw, write):
    for path in MARKET1501_FILES:
        draw(path)
    write("bounding_box_test/Thumbs.db", "not an image")
    items = market1501(str(tmp_path))
    assert items.path == tuple(MARKET1501_FILES)
    assert items.class_name == ("junk", "distractor", "0001", "0002", "0007")
    assert [items.class_name[label] for label in items.y] == ["0002", "0007", "0001", "junk", "distractor", "0001"]
    assert items.camera.tolist() == ["c1", "c3", "c1", "c2", "c6", "c2"]
    assert items.junk.tolist() == [False, False, False, True, False, False]
    assert items.split.tolist() == ["train"] * 2 + ["test"] * 4
    assert items.query.tolist() == [False, False, True, False, False, False]
    assert items.gallery.tolist() == [False, False, False, True, True, True]
    assert QueryGallery().rows(items, "test").tolist() == [2, 4, 5]
    draw("query/cat.jpg")
    with pytest.raises(LikewiseError, match=r"must begin with person and camera.*got query/cat\.jpg"):
        market1501(str(tmp_path))


@pytest.mark.parametrize("place", ["", "Inat_dataset_splits/"])
def test_inaturalist_lists(tmp_path, draw, write, place):
    for name in INAT_TRAIN + INAT_TEST + ["train_val2018/Aves/5/unlisted.jpg"]:
        draw(name)
    write(f"{place}Inaturalist_train_set1.txt", "\n".join(INAT_TRAIN))
    write(f"{place}Inaturalist_test_set1.txt", "\n".join(INAT_TEST) + "\n")
    items = inaturalist(str(tmp_path))
    assert items.path == tuple(INAT_TRAIN + INAT_TEST)
    assert items.class_name == ("Aves/999", "Aves/3026", "Plantae/10")
    assert items.y.tolist() == [1, 2, 1, 0]
    assert items.split.tolist() == ["train", "train", "train", "test"]
    assert items.taxonomy["Plantae/10"] == ("Plantae",)


@pytest.mark.parametrize("top", ["train_val2018", "train2018"])
def test_inaturalist_class_folders(tmp_path, draw, top):
    train, test = ("Aves/10/a.jpg", "Aves/9/a.jpg", "Aves/9/b.jpg"), ("Fungi/2/a.jpg", "Plantae/1/a.jpg")
    for name in train + test:
        draw(f"{top}/{name}")
    items = inaturalist(str(tmp_path))
    assert items.class_name == ("Aves/9", "Aves/10", "Fungi/2", "Plantae/1")
    split = dict(zip(items.path, items.split.tolist(), strict=True))
    assert split == {f"{top}/{name}": part for part, names in (("train", train), ("test", test)) for name in names}


@pytest.mark.parametrize("name", ["categories.json", "val2018.json", "train2018.json"])
@pytest.mark.usefixtures("inat_lists")
def test_inaturalist_ranks_of_the_taxonomy(tmp_path, write, name):
    listed = categories(10, 999, 3026)
    write(name, json.dumps(listed if name == "categories.json" else {"images": [], "categories": listed}))
    items = inaturalist(str(tmp_path))
    numbers = {"Aves/999": 999, "Aves/3026": 3026, "Plantae/10": 10}
    assert items.class_words == {one: f"species {number}" for one, number in numbers.items()}
    tree = items.taxonomy
    assert tree == {one: (one.split("/")[0], *INAT_RANKS[number]) for one, number in numbers.items()}
    for depth in (1, 3):
        (plan,) = plan_by_tree(3, depth, sorted(tree), None, tree)
        assert plan.tolist() == [0, 0, 1]


@pytest.mark.usefixtures("inat_lists")
def test_inaturalist_passes_over_categories_without_ranks(tmp_path, write):
    """The first release of the competition hid names and ranks."""
    write("categories.json", json.dumps([{"id": n, "name": "hidden", "supercategory": "Aves"} for n in INAT_RANKS]))
    tree = inaturalist(str(tmp_path)).taxonomy
    assert tree == {"Aves/999": ("Aves",), "Aves/3026": ("Aves",), "Plantae/10": ("Plantae",)}
    with pytest.raises(LikewiseError, match="depth must be at most 1, .* got 3"):
        plan_by_tree(3, 3, sorted(tree), None, tree)
    write("val2018.json", json.dumps({"categories": categories(10, 999, 3026)}))
    assert inaturalist(str(tmp_path)).taxonomy["Plantae/10"] == ("Plantae", *INAT_RANKS[10])


def test_inaturalist_wrong_lists(wrong):
    train, test = "Inaturalist_train_set1.txt", "Inaturalist_test_set1.txt"
    wrong(
        inaturalist,
        ({train: "\n".join(INAT_TRAIN)}, r"Inaturalist_test_set1\.txt is missing; looked for Inat_dataset_splits/"),
        ({test: "\n".join(INAT_TEST)}, "names 4 images that are missing"),
        ({test: "c.jpg\n"}, r"Inaturalist_test_set1\.txt must list <kind>/<class>/<image>, got 'c\.jpg'"),
    )


@pytest.mark.usefixtures("inat_lists")
def test_inaturalist_wrong_categories(wrong):
    damaged = ("{", "{}", "3", '[{"phylum": 1, "class": 2, "order": 3, "family": 4, "genus": 5}]')
    wrong(
        inaturalist,
        ({"categories.json": json.dumps(categories(10, 999))}, "must have every class, but Aves/3026 is missing"),
        *(({"categories.json": text}, r"categories\.json must be JSON with a list") for text in damaged),
    )


@pytest.mark.parametrize("top", ["", "ILSVRC/Data/CLS-LOC/"])
def test_imagenet_trains_on_the_first_half_of_the_classes(tmp_path, draw, top):
    names = ("n01440764", "n01443537", "n01484850", "n03000684")
    for wnid in names:
        for number in (1, 2):
            file = draw(f"{top}train/{wnid}/{wnid}_{number}.png")
            file.rename(file.with_suffix(".JPEG"))
    draw(f"{top}val/n01440764/x.png")
    items = imagenet(str(tmp_path))
    assert items.root == str(tmp_path / top).rstrip("/")
    assert items.class_name == names
    assert items.path[0] == "train/n01440764/n01440764_1.JPEG"
    assert items.y.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert items.split.tolist() == ["train"] * 4 + ["test"] * 4
    draw(f"{top}train/tench/1.png")
    with pytest.raises(LikewiseError, match="named by WordNet id such as n01440764, got 'tench'"):
        imagenet(str(tmp_path))
