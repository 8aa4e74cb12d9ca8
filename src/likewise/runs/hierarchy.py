"""hierarchy.json and hierarchy.csv: the clusters of a run's training classes, level by level."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from likewise.io.files import read_json, write_csv, write_json
from likewise.runs.scores import ANEW

HIERARCHY = "hierarchy.json"


def write_hierarchy(folder: Path, about: dict, classes: Mapping[str, list[str]]) -> None:
    """Write both files.

    Args:
        about: what hierarchy.json says besides.
        classes: name of a class -> its clusters, the coarsest first; every class has as many.
    """
    write_json(folder / HIERARCHY, about | {"classes": classes})
    levels = len(next(iter(classes.values())))
    head = ["class_name", *(f"level_{n}" for n in range(levels, 0, -1))]
    write_csv(folder / "hierarchy.csv", head, ([name, *above] for name, above in classes.items()))


def read_hierarchy(folder: Path) -> dict[str, list[str]] | None:
    """Return the clusters of every class in a run folder; None where they were not looked for."""
    if not (folder / HIERARCHY).exists():
        return None
    return read_json(folder / HIERARCHY, "run", hint=ANEW).get("classes")
