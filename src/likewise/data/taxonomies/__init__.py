"""Taxonomies (class trees): the ancestors of every class, from a shipped file, your own file, or WordNet; their levels."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import numpy as np
from jaxtyping import Int

from likewise.core.errors import LikewiseError, nearest_name

__all__ = ["NAMES", "ClassTree", "ancestors", "class_tree", "known", "require_tree", "taxonomy"]

NAMES: dict[str, str] = {
    "cub200": "the 200 birds of CUB-200-2011 in WordNet 3.0; names missing there are placed below their family",
    "cars196-type": "the 196 models of Stanford Cars by body type; vans and pickups, no cars in WordNet, are two of the types",
    "cars196-deep": "the 196 models of Stanford Cars by body type, as above, make and model",
}
"""Shipped trees. The data sets glyphs, sop and inaturalist have their own trees, which their readers return."""

TREE_FORMS = f"a shipped tree ({', '.join(NAMES)}), a .json or .csv file, or wordnet:ROOT such as wordnet:bird"
"""The allowed ways to name a tree, for errors."""


def taxonomy(name: str, classes: Iterable[str] = ()) -> dict[str, tuple[str, ...]]:
    """Return class name -> its ancestors, coarsest first.

    Args:
        name: a name from `NAMES`; a .json file, {"class": ["coarsest", ..., "finest"]}; a .csv file with a class and its
            ancestors in every line, coarsest first; or `wordnet:ROOT`, which looks up the classes below that word.
        classes: names of the classes; only WordNet needs them.
    """
    if name in NAMES:
        data, _, depth = name.partition("-")
        tree = json.loads(files(__name__).joinpath(f"{data}.json").read_text("utf-8"))
        return {one: tuple(above[:2] if depth == "type" else above) for one, above in tree.items()}
    if name.startswith("wordnet:"):
        from likewise.data.taxonomies.wordnet import build

        return build(classes, name.removeprefix("wordnet:"))
    path = Path(name).expanduser()
    if path.suffix.lower() not in (".json", ".csv") or not path.is_file():
        raise LikewiseError(
            f"taxonomy: there is no tree '{name}'{nearest_name(name, NAMES) if path.suffix == '' else ';'} give {TREE_FORMS}"
        )
    return read_json(path) if path.suffix.lower() == ".json" else read_csv(path)


def require_tree(owner: str, tree: str | None, own: dict[str, tuple[str, ...]] | None) -> None:
    """Raise, in the name of `owner`, if neither a tree is named nor the data has one (`own`)."""
    if tree is None and own is None:
        raise LikewiseError(
            f"{owner}: it needs a class tree, but the data has none; name one: tree='cub200', a .json or .csv file with the "
            "ancestors of every class, or tree='wordnet:bird'"
        )


def ancestors(
    owner: str, names: Sequence[str], tree: str | None, own: dict[str, tuple[str, ...]] | None
) -> list[tuple[str, ...]]:
    """Return the ancestors of each of these classes, coarsest first. Raise, in the name of `owner`, if a class is missing.

    Args:
        names: names of the classes.
        tree: as the name in `taxonomy`; None: use `own`.
        own: the tree of the data, if it has one.
    """
    require_tree(owner, tree, own)
    found = own if tree is None else taxonomy(tree, names)
    assert found is not None
    missing = [name for name in names if name not in found]
    if missing:
        raise LikewiseError(
            f"{owner}: {len(missing)} of {len(names)} classes are not in the tree: {', '.join(missing[:5])}"
            f"{', ...' if len(missing) > 5 else ''}; add them, or name another tree"
        )
    return [tuple(found[name]) for name in names]


def known(name: str, classes: Iterable[str]) -> dict[str, tuple[str, ...]] | None:
    """Return the entries of a shipped tree for these classes; None if it has none of them."""
    tree = taxonomy(name)
    return {one: tree[one] for one in classes if one in tree} or None


def read_json(path: Path) -> dict[str, tuple[str, ...]]:
    try:
        tree = json.loads(path.read_text("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise LikewiseError(f"taxonomy: {path.name} is not JSON ({error}); correct the file") from None
    if not isinstance(tree, dict) or not tree:
        raise LikewiseError(
            f'taxonomy: {path.name} must hold {{"class": ["coarsest", ..., "finest"]}}, got another structure; correct the file'
        )
    for one, above in tree.items():
        if not isinstance(above, list) or not all(isinstance(word, str) and word for word in above):
            raise LikewiseError(
                f"taxonomy: the ancestors of '{one}' in {path.name} must be a list of names, coarsest first, got {above!r}"
            )
    return {one: tuple(above) for one, above in tree.items()}


def read_csv(path: Path) -> dict[str, tuple[str, ...]]:
    """Read a CSV file with one class per line: the class, then its ancestors. Empty cells and the header are skipped."""
    tree: dict[str, tuple[str, ...]] = {}
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            for number, row in enumerate(csv.reader(file, strict=True), 1):
                words = [cell.strip() for cell in row if cell.strip()]
                if not words or (number == 1 and words[0] == "class_name"):
                    continue
                if words[0] in tree:
                    raise LikewiseError(
                        f"taxonomy: a class must be in {path.name} once, but '{words[0]}' is repeated in line {number}; "
                        "remove one line"
                    )
                tree[words[0]] = tuple(words[1:])
    except (csv.Error, UnicodeDecodeError) as error:
        raise LikewiseError(f"taxonomy: {path.name} is not CSV in UTF-8 ({error}); save it as CSV in UTF-8") from None
    if not tree:
        raise LikewiseError(
            f"taxonomy: {path.name} must hold a class and its ancestors in every line, but it is empty; add the classes"
        )
    if not any(tree.values()) and all(";" in name for name in tree):
        raise LikewiseError(
            f"taxonomy: cells in {path.name} must be separated by commas, got semicolons; save it with commas"
        )
    return tree


@dataclass(frozen=True, eq=False)
class ClassTree:
    """A class tree with C classes. Level 1 is the coarsest; the paths of classes may differ in length.

    Classes are leaves, one below their last ancestor. The root is the lowest node above all classes: a group that all classes
    share lies above it. The height of a node is the number of steps to the lowest class below it.
    """

    group: Int[np.ndarray, "L C"]  # group of every class on every level; -1 = its path ends above this level
    root: int  # number of coarsest levels that all classes share
    depth: Int[np.ndarray, "C"]  # steps from the root to the class
    height: Int[np.ndarray, "C S"]  # of the ancestor of a class 0, 1, ... steps below the root; 0 from the class on

    @property
    def levels(self) -> int:
        """Number of levels, without the classes themselves."""
        return len(self.group)


def class_tree(paths: Sequence[Sequence[str]]) -> ClassTree:
    """Return the tree of classes from the ancestors of each class, coarsest first.

    Nodes with the same name below different ancestors are different nodes.
    """
    length = np.array([len(path) for path in paths])
    group = np.full((length.max(initial=0), len(paths)), -1)
    for level in range(len(group)):
        number: dict[tuple[str, ...], int] = {}
        for c, path in enumerate(paths):
            if len(path) > level:
                group[level, c] = number.setdefault(tuple(path[: level + 1]), len(number))
    root = int(np.cumprod((group == 0).all(1)).sum())
    depth = length + 1 - root
    height = np.zeros((len(paths), depth.max(initial=0) + 1), np.int64)
    height[:, 0] = depth.max(initial=0)
    for level in range(root, len(group)):
        here = np.flatnonzero(group[level] >= 0)
        lowest = np.zeros(group[level].max() + 1, np.int64)
        np.maximum.at(lowest, group[level, here], depth[here])
        height[here, level + 1 - root] = lowest[group[level, here]] - (level + 1 - root)
    return ClassTree(group, root, depth, height)
