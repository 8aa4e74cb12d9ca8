import pytest
from likewise.types import LikewiseError

from likewise.data.inshop import inshop

pytestmark = pytest.mark.filterwarnings("ignore:inshop. found")

HEADER_WORDS = "image_name item_id evaluation_status\n"
ROWS = [
    ("img/WOMEN/Dresses/id_00000002/02_1_front.jpg", "id_00000002", "train"),
    ("img/WOMEN/Dresses/id_00000002/02_2_side.jpg", "id_00000002", "train"),
    ("img/MEN/Denim/id_00000080/01_1_front.jpg", "id_00000080", "query"),
    ("img/MEN/Denim/id_00000080/01_2_side.jpg", "id_00000080", "gallery"),
]
LIST_FILE = f"{len(ROWS)}\n{HEADER_WORDS}" + "".join(f"{path}   {item}  {status}\n" for path, item, status in ROWS)


@pytest.mark.parametrize("place", ["", "Eval/", "Anno/"])
@pytest.mark.parametrize("pictures", ["", "Img/"])
def test_no_row_is_lost(tmp_path, draw, write, place, pictures):
    for path, _, _ in ROWS:
        draw(pictures + path)
    write(f"{place}list_eval_partition.txt", LIST_FILE)
    items = inshop(str(tmp_path))
    assert items.path == tuple(pictures + path for path, _, _ in ROWS)
    assert items.class_name == ("id_00000002", "id_00000080")
    assert items.y.tolist() == [0, 0, 1, 1]
    assert items.split.tolist() == ["train", "train", "test", "test"]
    assert items.query.tolist() == [False, False, True, False]
    assert items.gallery.tolist() == [False, False, False, True]


def test_what_is_missing_is_named(tmp_path, write, draw):
    with pytest.raises(
        LikewiseError, match=r"list_eval_partition\.txt is missing; looked for .* and Anno/list_eval.*DeepFas"
    ):
        inshop(str(tmp_path))
    write("list_eval_partition.txt", LIST_FILE)
    with pytest.raises(
        LikewiseError, match=r"names 4 images that are missing .*id_00000002/02_1_front\.jpg.* and 1 more"
    ):
        inshop(str(tmp_path))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            "3\na b train\nc d train\n",
            "the first or second line of list_eval_partition.txt must be 'image_name item_id",
        ),
        ("1\n" + HEADER_WORDS, "must not be empty"),
        ("1\n" + HEADER_WORDS + "a b\n", "must hold 3 words, got 2 in line 3"),
        (
            "1\n" + HEADER_WORDS + "a b dev\n",
            r"must be train, query or gallery, got 'dev' in list_eval_partition\.txt line 3",
        ),
    ],
)
def test_broken_lists_are_explained(tmp_path, write, content, message):
    write("list_eval_partition.txt", content)
    with pytest.raises(LikewiseError, match=message):
        inshop(str(tmp_path))
