import warnings

import numpy as np
import pytest
from likewise.types import Items, LikewiseError

from likewise.data.downloads import Original

SET = Original("birds", "The set comes from there", images=2, classes=1)


def test_what_was_looked_for_is_named(tmp_path):
    with pytest.raises(
        LikewiseError,
        match=r"birds: root must be the folder of the unpacked download, got .*gone, which does not exist",
    ):
        SET.folder(str(tmp_path / "gone"))
    with pytest.raises(LikewiseError) as error:
        SET.need(str(tmp_path), ["list.txt", "Eval/list.txt"])
    assert str(error.value) == (
        f"birds: list.txt is missing; looked for list.txt and Eval/list.txt in {tmp_path}. The set comes from there"
    )


def test_missing_pictures_are_counted(tmp_path, draw):
    draw("1.png")
    SET.check_listed(str(tmp_path), ["1.png"], "list.txt")
    with pytest.raises(
        LikewiseError, match=r"list\.txt names 4 images that are missing .*: 2, 3, 4 and 1 more; unpack"
    ):
        SET.check_listed(str(tmp_path), ["1.png", "2", "3", "4", "5"], "list.txt")


def test_the_published_count_warns_once():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        SET.check_count(Items("birds", np.zeros(2, int), ("a",)))
    with pytest.warns(
        UserWarning, match=r"birds: found 3 images of 1 classes, but the published set has 2 of 1"
    ) as seen:
        SET.check_count(Items("birds", np.zeros(3, int), ("a",)))
    assert len(seen) == 1


def test_lists_must_have_their_words(write):
    assert SET.words(write("l.txt", "a 1\n\nb  2\n"), 2) == [["a", "1"], ["b", "2"]]
    with pytest.raises(LikewiseError, match=r"every line of l\.txt must hold 2 words, got 3 in line 3"):
        SET.words(write("l.txt", "a 1\n\nb c 2\n"), 2)
    with pytest.raises(LikewiseError, match=r"l\.txt must not be empty"):
        SET.words(write("l.txt", "\n"), 2)
