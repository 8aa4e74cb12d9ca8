"""Data from a user's reader by dotted name: `my_lab.readers.boats(year=2020)` calls that function, which returns `Items`."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
from collections.abc import Callable

import numpy as np

from likewise.core.errors import nearest_name
from likewise.core.types import ROW_COLUMNS, Items, LikewiseError
from likewise.core.vectors import blocks_of
from likewise.data.label_sets import set_names

SPLIT_NAMES = ("train", "val", "test", "")


def is_own(data: str) -> bool:
    """Whether DATA is a call of a dotted name, such as `my_lab.readers.boats()`. The parentheses distinguish it from a path."""
    return re.fullmatch(r"\s*[^\W\d]\w*(\.[^\W\d]\w*)+\s*\(.*\)\s*", data, re.DOTALL) is not None


def read_own(data: str, root: str | None, allow_imports: bool) -> Items:
    """Import the reader that `data` names, call it, check the returned items and return them.

    Args:
        root: passed to the reader's argument `root`; None: not passed.
        allow_imports: whether the reader may be imported, which runs its code.
    """
    from likewise.core.settings.spec import import_dotted

    name, arguments = parse_call(data)
    reader = import_dotted(name, "data", allow_imports)
    if not callable(reader):
        raise LikewiseError(
            f"data: '{name}' must be a function that returns Items, got {type(reader).__name__}; fix the name"
        )
    arguments = fit_arguments(name, reader, root, arguments)
    return check_items(reader(**arguments), name)


def parse_call(data: str) -> tuple[str, dict]:
    """Parse `glyphs(size=32)` or `lab.boats(year=2020)` into the name and its arguments. Only literals; nothing is evaluated."""
    try:
        call = ast.parse(data.strip(), mode="eval").body
        if not isinstance(call, ast.Call) or call.args or any(word.arg is None for word in call.keywords):
            raise ValueError("it is not a name with named arguments")
        return ast.unparse(call.func), {str(word.arg): ast.literal_eval(word.value) for word in call.keywords}
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError) as error:
        raise LikewiseError(
            f"data: {data!r} cannot be read ({error}); write it as glyphs(size=32, classes=40), with plain values"
        ) from None


def fit_arguments(name: str, reader: Callable, root: str | None, arguments: dict) -> dict:
    """Return the arguments of the call including `root`; raise if the reader lacks one of them or requires others."""
    takes = inspect.signature(reader).parameters
    if root is not None and "root" in arguments:
        raise LikewiseError(f"data: {name} has root twice, in DATA and as --root; omit one")
    arguments = arguments | ({} if root is None else {"root": root})
    free = any(p.kind is p.VAR_KEYWORD for p in takes.values())
    for word in arguments:
        if word not in takes and not free:
            raise LikewiseError(
                f"data: {name} has no argument {word!r}{nearest_name(word, takes)} It takes: {', '.join(takes) or 'none'}"
            )
    needed = [n for n, p in takes.items() if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    if missing := [n for n in needed if n not in arguments]:
        way = "pass --root" if missing[0] == "root" else f"write {name}({missing[0]}=...)"
        raise LikewiseError(f"data: {name} needs {', '.join(missing)}; {way}")
    return arguments


def check_items(items: object, owner: str) -> Items:
    """Return the items if they are valid: one entry per row, class numbers 0..C-1, images or features. Raises otherwise."""
    if not isinstance(items, Items):
        raise LikewiseError(
            f"data: {owner} must return likewise.types.Items, got a {type(items).__name__}; correct the reader"
        )
    for problem, is_valid in _checks(items):
        if not is_valid:
            raise LikewiseError(f"data: {owner} returned a table in which {problem}; correct the reader")
    return items


def _checks(items: Items):
    """Yield (problem as text, whether the items are free of it); a check may rely on the checks before it."""
    y, count = items.y, items.classes
    yield (
        "the name is empty or a path",
        bool(items.name) and not set(items.name) & set("/\\\0") and items.name[0] != ".",
    )
    yield (
        "y is not a vector of whole numbers",
        (isinstance(y, np.ndarray) and y.ndim == 1 and np.issubdtype(y.dtype, np.integer) and len(y) > 0),
    )
    yield f"y is not within 0 to {count - 1}, the {count} entries of class_name", y.min() >= 0 and y.max() < count
    yield "class_name holds a name twice", len(set(items.class_name)) == count
    yield from _set_checks(items)
    yield "rows have neither images (path) nor features (x)", items.path is not None or items.x is not None
    for name in ROW_COLUMNS:
        column = getattr(items, name)
        yield f"{name} does not have one entry for each of the {len(y)} rows", column is None or len(column) == len(y)
    yield (
        "split holds a word besides train, val, test and ''",
        items.split is None or set(items.split) <= set(SPLIT_NAMES),
    )
    if items.x is not None:
        fits = items.x.ndim == 2 and np.issubdtype(items.x.dtype, np.floating)
        yield "x is not a matrix of finite numbers", fits and all(bool(np.isfinite(block).all()) for _, block in blocks_of(items.x))
    if items.box is not None:
        yield "box does not have four numbers per row", items.box.shape == (len(y), 4)
    known = {f.name: getattr(items, f.name) for f in dataclasses.fields(items)}
    yield "camera holds other values than names", items.camera is None or items.camera.dtype.kind == "U"
    for name in ("query", "gallery", "junk"):
        yield f"{name} is not a mask (bool)", known[name] is None or known[name].dtype == bool


def _set_checks(items: Items):
    """Yield the checks of samples with several labels."""
    names, sets = items.label_name, items.label_sets
    yield "one of label_name and label_sets is missing", (names is None) == (sets is None)
    if names is None or sets is None:
        return
    yield f"label_sets does not have one entry for each of the {items.classes} classes", len(sets) == items.classes
    yield (
        "an entry of label_sets is empty or not ascending",
        all(len(one) > 0 and list(one) == sorted(set(one)) for one in sets),
    )
    yield (
        f"label_sets is not within 0 to {len(names) - 1}, the {len(names)} entries of label_name",
        all(one[0] >= 0 and one[-1] < len(names) for one in sets),
    )
    yield "label_name holds a name twice", len(set(names)) == len(names)
    yield "class_name does not join the names of label_sets by '|'", tuple(items.class_name) == set_names(sets, names)
