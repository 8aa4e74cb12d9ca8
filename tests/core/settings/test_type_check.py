from typing import Annotated, Literal

import pytest
from likewise.contracts import Miner
from likewise.miners import SemiHard

from likewise.core.settings.type_check import fits, words


@pytest.mark.parametrize(
    ("hint", "good", "bad"),
    [
        (int, [0, -3], [1.0, True, "1", None]),
        (float, [0.5, 2], [True, "x", None]),
        (bool, [True], [1, "yes"]),
        (str, [""], [1, None]),
        (str | None, ["x", None], [1]),
        (Literal["a", "b"] | None, ["a", None], ["c", 0]),
        (tuple[float, float], [(1, 2.0)], [(1,), [1, 2], ("a", 2)]),
        (tuple[str, ...], [(), ("a", "b")], ["a", (1,)]),
        (Annotated[int, "x"], [1], ["1"]),
        (list[str], [[], ["a", "b"]], [("a",), ["a", 1], "ab"]),
        ([float, float], [[1, 2.0]], [[1], [1, 2, 3], ["a", 2], None]),
        (dict[str, int], [{}, {"a": 1}], [{"a": "1"}, {1: 1}, []]),
        ({"a": int, "b": list[str]}, [{}, {"a": 1, "c": None}], [{"a": None}, {"b": "x"}, [], None]),
        ({str: [int]}, [{}, {"a": [1]}], [{"a": [1, 2]}, {"a": 1}, []]),
        (({"a": int}, None), [{"a": 1}, None], [{"a": "1"}, []]),
        (Miner | None, [SemiHard(), None], [3, "SemiHard()"]),
    ],
)
def test_fits(hint, good, bad):
    assert all(fits(value, hint) for value in good)
    assert not any(fits(value, hint) for value in bad)


def test_words():
    assert words(Literal["a", "b"] | None) == "'a' or 'b' or None"
    assert words(Annotated[float, "x"]) == "a number" and words(Miner) == "a Miner"
