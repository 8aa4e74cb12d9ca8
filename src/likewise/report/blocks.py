"""Blocks of data in a page, which its code reads: JSON for what is said, base64 for what is many."""

from __future__ import annotations

import base64
import json
import math
from dataclasses import is_dataclass
from typing import NamedTuple

import numpy as np


class Block(NamedTuple):
    """A piece of data in the page. `kind` is its media type, `text` is safe inside a script element."""

    name: str
    kind: str
    text: str


def said(name: str, value: object) -> Block:
    """JSON which cannot end the element it stands in. Numbers that are none become null."""
    text = json.dumps(plain(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Block(name, "application/json", text.replace("<", "\\u003c").replace("\u2028", " ").replace("\u2029", " "))


def many(name: str, value: np.ndarray) -> Block:
    """The bytes of an array, lowest first."""
    return Block(name, "text/plain", base64.b64encode(value.astype(value.dtype.newbyteorder("<")).tobytes()).decode())


def plain(value: object) -> object:
    """What JSON can hold: dataclasses are dicts, arrays and tuples lists, NaN and infinities None; four digits are enough."""
    if is_dataclass(value):
        value = vars(value)
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, float):
        return float(f"{value:.5g}") if math.isfinite(value) else None
    return value.encode("utf-8", "replace").decode("utf-8") if isinstance(value, str) else value


def index_kind(many: int) -> type:
    """The type that numbers `many` things, with its largest number left over for none of them."""
    return np.uint32 if many > 65535 else np.uint16


def reach(value: np.ndarray) -> tuple[float, float]:
    """The smallest and the largest finite number."""
    some = value[np.isfinite(value)]
    low, high = (float(some.min()), float(some.max())) if some.size else (0.0, 1.0)
    return low, high if high > low else low + 1.0
