"""Class trees: the ancestors of every class. Shipped ones, those in a file, and those of WordNet."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Sequence
from importlib.resources import files
from pathlib import Path

from likewise.errors import LikewiseError, nearest_name

__all__ = ["NAMES", "ancestors", "known", "must_have", "taxonomy"]

NAMES: dict[str, str] = {
    "cub200": "the 200 birds of CUB-200-2011 in WordNet 3.0; a name missing there stands below its family",
    "cars196-type": "the 196 models of Stanford Cars by body type",
    "cars196-deep": "the same by body type, make and model",
}
"""What is shipped. Glyphs, sop and inaturalist bring trees of their own, as their loaders read them off the data."""

FORMS = f"a shipped tree ({', '.join(NAMES)}), a .json or .csv file, or wordnet:ROOT such as wordnet:bird"


def taxonomy(name: str, classes: Iterable[str] = ()) -> dict[str, tuple[str, ...]]:
    """Class name -> its ancestors, coarsest first.

    Args:
        name: a name from `NAMES`; a .json file, {"class": ["coarsest", ..., "finest"]}; a .csv file with a class and its
            ancestors in every line, coarsest first; or `wordnet:ROOT`, which looks the classes up below that word.
        classes: their names, for WordNet alone.
    """
    if name in NAMES:
        data, _, depth = name.partition("-")
        tree = json.loads(files(__name__).joinpath(f"{data}.json").read_text("utf-8"))
        return {one: tuple(above[:2] if depth == "type" else above) for one, above in tree.items()}
    if name.startswith("wordnet:"):
        from likewise.taxonomies.wordnet import build

        return build(classes, name.removeprefix("wordnet:"))
    path = Path(name).expanduser()
    if path.suffix.lower() not in (".json", ".csv") or not path.is_file():
        raise LikewiseError(
            f"taxonomy: there is no tree '{name}'{nearest_name(name, NAMES) if path.suffix == '' else ';'} give {FORMS}"
        )
    return read_json(path) if path.suffix.lower() == ".json" else read_csv(path)


def must_have(owner: str, tree: str | None, own: dict[str, tuple[str, ...]] | None) -> None:
    """Raise, for `owner`, where there is no tree at all."""
    if tree is None and own is None:
        raise LikewiseError(
            f"{owner}: the data brings no class tree; name one: tree='cub200', a .json or .csv file with the ancestors of every "
            "class, or tree='wordnet:bird'"
        )


def ancestors(
    owner: str, names: Sequence[str], tree: str | None, own: dict[str, tuple[str, ...]] | None
) -> list[tuple[str, ...]]:
    """The path from the root down to each of these classes, itself left out; raise, for `owner`, where one is not known.

    Args:
        tree: as in `taxonomy`; None: the data's `own`.
    """
    must_have(owner, tree, own)
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
    """A shipped tree's part about these classes; None: it knows none of them."""
    tree = taxonomy(name)
    return {one: tree[one] for one in classes if one in tree} or None


def read_json(path: Path) -> dict[str, tuple[str, ...]]:
    try:
        tree = json.loads(path.read_text("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise LikewiseError(f"taxonomy: {path.name} is not JSON ({error}); correct it") from None
    if not isinstance(tree, dict) or not tree:
        raise LikewiseError(
            f'taxonomy: {path.name} must hold {{"class": ["coarsest", ..., "finest"]}}, got something else'
        )
    for one, above in tree.items():
        if not isinstance(above, list) or not all(isinstance(word, str) and word for word in above):
            raise LikewiseError(
                f"taxonomy: the ancestors of '{one}' in {path.name} must be a list of names, coarsest first, got {above!r}"
            )
    return {one: tuple(above) for one, above in tree.items()}


def read_csv(path: Path) -> dict[str, tuple[str, ...]]:
    """A line a class, its cells the class and then its ancestors; empty cells count for nothing. `class_name` is a head."""
    tree: dict[str, tuple[str, ...]] = {}
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            for number, row in enumerate(csv.reader(file, strict=True), 1):
                words = [cell.strip() for cell in row if cell.strip()]
                if not words or (number == 1 and words[0] == "class_name"):
                    continue
                if words[0] in tree:
                    raise LikewiseError(
                        f"taxonomy: a class must stand in {path.name} once, but '{words[0]}' comes again in line {number}; "
                        "remove one"
                    )
                tree[words[0]] = tuple(words[1:])
    except (csv.Error, UnicodeDecodeError) as error:
        raise LikewiseError(f"taxonomy: {path.name} is not CSV in UTF-8 ({error}); save it anew") from None
    if not tree:
        raise LikewiseError(f"taxonomy: {path.name} must hold a class and its ancestors in every line, and it is empty")
    if not any(tree.values()) and all(";" in name for name in tree):
        raise LikewiseError(f"taxonomy: cells in {path.name} must be parted by commas, got semicolons; save it anew")
    return tree
