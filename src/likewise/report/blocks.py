"""Blocks of data inside the page, which its scripts read: JSON, and base64 for arrays."""

from __future__ import annotations

import base64
import json
import math
from dataclasses import is_dataclass
from typing import NamedTuple

import numpy as np


class Block(NamedTuple):
    """One script element with data: its id, its media type, and its text, which is safe inside a script element."""

    name: str
    kind: str
    text: str


def json_block(name: str, value: object) -> Block:
    """Return a value as a block of JSON that cannot close its script element. NaN and infinities become null."""
    text = json.dumps(to_json(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Block(name, "application/json", text.replace("<", "\\u003c").replace("\u2028", " ").replace("\u2029", " "))


def array_block(name: str, value: np.ndarray) -> Block:
    """Return the bytes of an array as a block, in little-endian order."""
    return Block(name, "text/plain", base64.b64encode(value.astype(value.dtype.newbyteorder("<")).tobytes()).decode())


def to_json(value: object) -> object:
    """Return a value that JSON can hold: dataclasses become dicts, arrays and tuples lists, NaN and infinities None.

    Floats keep five significant digits.
    """
    if is_dataclass(value):
        value = vars(value)
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, dict):
        return {str(key): to_json(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(one) for one in value]
    if isinstance(value, float):
        return float(f"{value:.5g}") if math.isfinite(value) else None
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value


def index_dtype(count: int) -> type:
    """Return the smallest unsigned dtype that can index `count` items; its maximum means "none"."""
    return np.uint32 if count > 65535 else np.uint16


def finite_range(value: np.ndarray) -> tuple[float, float]:
    """Return the smallest and the largest finite value; 0 and 1 if there is none. The range is never empty."""
    some = value[np.isfinite(value)]
    low, high = (float(some.min()), float(some.max())) if some.size else (0.0, 1.0)
    return low, high if high > low else low + 1.0
