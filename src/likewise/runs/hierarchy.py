"""hierarchy.json and hierarchy.csv: the learned hierarchy of the training classes of a run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from likewise.core.argument_checks import fits
from likewise.core.errors import LikewiseError
from likewise.core.files import read_json, write_csv, write_json
from likewise.runs.scores import REWRITE_HINT

HIERARCHY_FILE = "hierarchy.json"


def write_hierarchy(folder: Path, about: dict, classes: Mapping[str, list[str]]) -> None:
    """Write hierarchy.json and hierarchy.csv into a run folder.

    Args:
        about: other entries of hierarchy.json.
        classes: name of a class -> its clusters, coarsest first; the same number for every class.
    """
    write_json(folder / HIERARCHY_FILE, about | {"classes": classes})
    levels = len(next(iter(classes.values())))
    head = ["class_name", *(f"level_{n}" for n in range(levels, 0, -1))]
    write_csv(folder / "hierarchy.csv", head, ([name, *above] for name, above in classes.items()))


def read_hierarchy(folder: Path) -> dict[str, list[str]] | None:
    """Return the clusters of every class in a run folder; None if `likewise hierarchy` was not run."""
    if not (folder / HIERARCHY_FILE).exists():
        return None
    classes = read_json(folder / HIERARCHY_FILE, "run", hint=REWRITE_HINT).get("classes")
    if not fits(classes, dict[str, list[str]]) or len({len(above) for above in classes.values()}) != 1:
        raise LikewiseError(
            f"run: {folder / HIERARCHY_FILE} is damaged (classes must have the same number of clusters each); {REWRITE_HINT}"
        )
    return classes
