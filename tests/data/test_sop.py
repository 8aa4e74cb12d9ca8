import pytest
from likewise.types import LikewiseError

from likewise.data.sop import sop

pytestmark = pytest.mark.filterwarnings("ignore:sop. found")

HEADER_WORDS = "image_id class_id super_class_id path\n"
TRAIN = HEADER_WORDS + "1 1 1 bicycle_final/1_0.JPG\n2 1 1 bicycle_final/1_1.JPG\n3 2 9 coffee_maker_final/2_0.JPG\n"
TEST = HEADER_WORDS + "1 11319 1 bicycle_final/3_0.JPG\n2 11319 1 bicycle_final/3_1.JPG\n"


@pytest.fixture(params=["", "Stanford_Online_Products/"])
def original(request, tmp_path, draw, write):
    for line in (TRAIN + TEST).splitlines():
        if not line.startswith("image_id"):
            draw(request.param + line.split()[3])
    write(f"{request.param}Ebay_train.txt", TRAIN)
    write(f"{request.param}Ebay_test.txt", TEST)
    return tmp_path


def test_the_original_layout(original):
    items = sop(str(original))
    assert items.path[0] == "bicycle_final/1_0.JPG"
    assert items.class_name == ("1", "2", "11319")
    assert items.y.tolist() == [0, 0, 1, 2, 2]
    assert items.split.tolist() == ["train"] * 3 + ["test"] * 2
    assert items.taxonomy == {"1": ("bicycle",), "2": ("coffee_maker",), "11319": ("bicycle",)}
    assert items.class_words == {"1": "bicycle", "2": "coffee maker", "11319": "bicycle"}


def test_lists_in_info_files_and_pictures_in_images(tmp_path, draw, write):
    for line in (TRAIN + TEST).splitlines():
        if not line.startswith("image_id"):
            draw("images/" + line.split()[3])
    write("Info_Files/Ebay_train.txt", TRAIN)
    write("Info_Files/Ebay_test.txt", TEST)
    items = sop(str(tmp_path))
    assert items.path[0] == "images/bicycle_final/1_0.JPG"
    assert items.taxonomy["2"] == ("coffee_maker",)


def test_what_is_missing_is_named(tmp_path, write, draw):
    write("Ebay_train.txt", TRAIN)
    with pytest.raises(
        LikewiseError, match=r"Ebay_test\.txt is missing; looked for Ebay_test\.txt and Info_Files/Ebay_test"
    ):
        sop(str(tmp_path))
    write("Ebay_test.txt", TEST)
    draw("bicycle_final/1_0.JPG")
    with pytest.raises(
        LikewiseError, match=r"names 4 images that are missing .*: bicycle_final/1_1\.JPG, .* and 1 more"
    ):
        sop(str(tmp_path))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            "1 1 1 bicycle_final/1_0.JPG\n",
            r"the first line of Ebay_train\.txt must be 'image_id class_id super_class_id path'",
        ),
        (HEADER_WORDS, r"Ebay_train\.txt must list at least one image"),
        (HEADER_WORDS + "1 1 1\n", r"every line of Ebay_train\.txt must hold 4 words, got 3 in line 2"),
        (HEADER_WORDS + "1 one 1 a.JPG\n", r"class_id in Ebay_train\.txt must be a number"),
    ],
)
def test_broken_lists_are_explained(tmp_path, write, content, message):
    write("Ebay_train.txt", content)
    write("Ebay_test.txt", TEST)
    with pytest.raises(LikewiseError, match=message):
        sop(str(tmp_path))
