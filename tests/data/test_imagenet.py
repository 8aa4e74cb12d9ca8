import pytest
from likewise.types import LikewiseError

from likewise.data.imagenet import imagenet

pytestmark = pytest.mark.filterwarnings("ignore:imagenet. found")


@pytest.mark.parametrize("top", ["", "ILSVRC/Data/CLS-LOC/"])
def test_first_half_of_the_classes_trains(tmp_path, draw, write, top):
    for wnid in ("n01440764", "n01443537", "n01484850", "n03000684"):
        for number in (1, 2):
            file = draw(f"{top}train/{wnid}/{wnid}_{number}.png")
            file.rename(file.with_suffix(".JPEG"))
    draw(f"{top}val/n01440764/x.png")
    items = imagenet(str(tmp_path))
    assert items.root == str(tmp_path / top).rstrip("/")
    assert items.class_name == ("n01440764", "n01443537", "n01484850", "n03000684")
    assert items.path[0] == "train/n01440764/n01440764_1.JPEG"
    assert items.y.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert items.split.tolist() == ["train"] * 4 + ["test"] * 4


def test_what_is_missing_is_named(tmp_path, draw):
    with pytest.raises(LikewiseError, match=r"imagenet: train is missing; looked for train and ILSVRC.*image-net\.org"):
        imagenet(str(tmp_path))
    (tmp_path / "train").mkdir()
    with pytest.raises(LikewiseError, match="must hold class folders with images, got none"):
        imagenet(str(tmp_path))
    draw("train/tench/1.png")
    with pytest.raises(LikewiseError, match="named by WordNet id such as n01440764, got 'tench'"):
        imagenet(str(tmp_path))
