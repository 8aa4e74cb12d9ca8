"""Pairs of rows that are no answers to each other."""

import numpy as np
import pytest
from likewise.types import LikewiseError
from score.by_hand import assert_scores, by_hand, score, some


@pytest.mark.parametrize("by", ["row_a,row_b", "path_a,path_b", "row,other"])
def test_excluded_pairs_are_no_answers(tmp_path, by):
    x, y = some()
    x[1::2] = x[::2] + 0.001  # every picture twice
    y[1::2] = y[::2]
    paths = np.asarray([f"{i}.jpg" for i in range(60)])
    np.savez(tmp_path / "z.npz", x=x, label=y, path=paths)
    lines = [f"{i},{i + 1}" if by.startswith("row") else f"{i + 1}.jpg,{i}.jpg" for i in range(0, 60, 2)]
    (tmp_path / "twins.csv").write_text(f"{by},similarity\n" + ",1\n".join(lines) + ",1\n")
    result = score(tmp_path / "z.npz", exclude=str(tmp_path / "twins.csv"))
    assert_scores(result, by_hand(x, y, group=np.arange(60) // 2)[0])
    assert score(tmp_path / "z.npz")["metrics"]["R@1"] == 1.0 > result["metrics"]["R@1"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a,b\n1,2\n", "row_a,row_b or path_a,path_b, got a, b"),
        ("row_a,row_b\n1,x\n", "whole numbers, counted from 0"),
        ("row_a,row_b\n1,60\n", "rows 0 to 59 of 'z', got 1 to 60"),
        ("path_a,path_b\nb.jpg,1.jpg\n", "'z' has no paths"),
    ],
)
def test_pairs_that_cannot_be_excluded(tmp_path, text, says):
    x, y = some()
    np.savez(tmp_path / "z.npz", x=x, label=y)
    (tmp_path / "twins.csv").write_text(text)
    with pytest.raises(LikewiseError, match=says):
        score(tmp_path / "z.npz", exclude=str(tmp_path / "twins.csv"))
