"""Values against annotations: types, ranges, and the constructors of components."""

import inspect
import math
import pickle
import re
from typing import Annotated, Literal

import numpy as np
import pytest
import torch
from annotated_types import Interval, MinLen, MultipleOf
from likewise.contracts import Miner
from likewise.miners import SemiHard
from likewise.types import LikewiseError

from likewise.core.argument_checks import CheckedArguments, Count, Positive, Share, fits, violation, words


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


@pytest.mark.parametrize(
    ("hint", "good", "bad"),
    [
        (Positive, [1e-9, 3], {-1: "above 0, got -1", 0: "above 0, got 0", "a": "a number, got 'a'"}),
        (Annotated[float, Interval(ge=0, lt=1)], [0, 0.5], {1: "at least 0 and below 1, got 1"}),
        (Share, [0, 1], {1.5: "between 0 and 1, got 1.5", math.nan: "a finite number, got nan"}),
        (float, [-2, 10**400], {math.inf: "a finite number, got inf", None: "a number, got None"}),
        (Count | None, [1, None], {0: "at least 1 or None, got 0", 1.0: "a whole number or None, got 1.0"}),
        (Annotated[int, MultipleOf(8)], [8], {12: "a multiple of 8, got 12"}),
        (Literal["a", "b", "c"], ["b"], {"d": "'a', 'b' or 'c', got 'd'"}),
        (Count | tuple[Count, ...], [1, (2, 3)], {0: "at least 1, got 0", (2, 0): "x[1] must be at least 1, got 0"}),
        (Annotated[tuple[str, ...], MinLen(1)], [("a",)], {(): "x must have at least 1 value, got ()"}),
        (Annotated[str, "a note"], ["a"], {1: "text, got 1"}),
        (Miner | None, [SemiHard(), None], {"hard": "a Miner or None, got 'hard'"}),
        ("no annotation", [object()], {}),
    ],
)
def test_violation(hint, good, bad):
    assert [violation(value, hint, "x") for value in good] == [None] * len(good)
    for value, found in bad.items():
        assert violation(value, hint, "x") == (found if found.startswith("x") else f"x must be {found}")


class Part(CheckedArguments):
    def __init__(self, size: Count, rate: Positive = 1.0, note=None):
        self.given = size, rate, note


class Child(Part):
    def __init__(self, size, low: Share = 0.0, **others):
        super().__init__(size, **others)


def test_constructors_check_their_arguments():
    assert Part(1, note=2).given == (1, 1.0, 2)
    assert Part(np.int64(2), np.float32(0.5)).given == (2, 0.5, None) and Part(1, torch.tensor(0.5)).given[1] == 0.5
    for arguments, found in [
        ({"size": 0}, "Part: size must be at least 1, got 0"),
        ({"size": 1, "rate": torch.tensor(0.0)}, "Part: rate must be above 0, got 0.0"),
        ({"size": np.float32(2)}, "Part: size must be a whole number, got 2.0"),
    ]:
        with pytest.raises(LikewiseError, match=re.escape(found)):
            Part(**arguments)
    with pytest.raises(TypeError, match="size"):
        Part(rate=1.0)
    with pytest.raises(LikewiseError, match="Child: low must be between 0 and 1, got 2"):
        Child(1, low=2)
    with pytest.raises(LikewiseError, match="Child: rate must be above 0, got 0"):
        Child(1, rate=0)


def test_checked_classes_keep_their_signature_and_pickle():
    assert list(inspect.signature(Part).parameters) == ["size", "rate", "note"]
    assert pickle.loads(pickle.dumps(Part(3))).given == (3, 1.0, None)


def test_a_constructor_with_unknown_types_is_not_checked():
    class Local:
        pass

    class Own(CheckedArguments):
        def __init__(self, part: "Local", size: "Count" = 1):
            self.size = size

    assert Own(Local(), size=0).size == 0
