"""Tables of papers as grids: one TOML file per table, with settings from recipes.

`likewise bench procsim-table5 --data cub200 --root DIR` trains the table. Files whose names begin with _ are no tables: they are
bases of tables, and `_quick.toml` has the changes of --quick to all tables.
"""

from __future__ import annotations

import tomllib
from importlib.resources import files
from pathlib import Path

from likewise.core.errors import LikewiseError, nearest_name
from likewise.core.settings.overrides import flat, must_know, names_of_settings

QUICK_FILE = "_quick"
"""The file with the changes of --quick."""

TOP_LEVEL_KEYS = ("base", "title", "note", "differs", "columns", "first", "then")
"""Keys of a grid file outside of its sections."""

SECTIONS = ("published", "settings", "axes", "quick", "ranges")
PUBLISHED_KEYS = ("paper", "table", "dataset", "metrics", "scores", "only")
"""Keys of the section [published]."""


def names() -> list[str]:
    """Return the names of all tables."""
    found = (f.name for f in files(__name__).iterdir() if f.name.endswith(".toml"))
    return sorted(name.removesuffix(".toml") for name in found if not name.startswith("_"))


def content(name: str | Path, above: tuple[str, ...] = ()) -> dict:
    """Return the content of a table or grid file merged with its base: all sections, settings by dotted names.

    `above`: the files that name this one as their base, to detect a cycle.
    """
    if str(name) in above:
        raise LikewiseError(
            f"grid: '{name}' is its own base ({' > '.join((*above, str(name)))}); remove the base from one of these files"
        )
    grid = parse(name)
    known = TOP_LEVEL_KEYS + SECTIONS
    for key in grid:
        if key not in known:
            near = "; write it below the line [settings]." if key in names_of_settings() else nearest_name(key, known)
            raise LikewiseError(f"grid: '{name}' has the unknown key '{key}'{near} Known keys: {', '.join(known)}")
    for key in SECTIONS:
        if not isinstance(grid.setdefault(key, {}), dict):
            raise LikewiseError(f"grid: {key} must be a table, got {grid[key]!r}; write [{key}] above its lines")
    for key in grid["published"]:
        must_know(key, PUBLISHED_KEYS, "[published] key")
    grid["settings"] = dict(flat(grid["settings"]))
    quick_axes = grid["quick"].pop("axes", {})
    grid["quick"] = dict(flat(grid["quick"])) | {"axes": quick_axes}
    if "base" not in grid:
        return grid
    base = str(grid.pop("base"))
    base_grid = content(Path(name).parent / base if base.endswith(".toml") else base, (*above, str(name)))
    grid["axes"] = {axis: points_of_axis(axis, values, base_grid["axes"]) for axis, values in grid["axes"].items()}
    grid["quick"]["axes"] = base_grid["quick"]["axes"] | grid["quick"]["axes"]
    if grid["published"].get("table", "") not in ("", base_grid["published"].get("table")):
        base_grid["published"].pop("only", None)  # the rows of another table
    return base_grid | grid | {key: base_grid[key] | grid[key] for key in SECTIONS}


def points_of_axis(axis: str, values: object, axes: dict[str, list]) -> object:
    """Return the points of an axis; {without = [...]} means the points of the base except these."""
    if not isinstance(values, dict) or set(values) != {"without"} or axis not in axes:
        return values
    called = {str(point["name"] if isinstance(point, dict) else point): point for point in axes[axis]}
    for name in values["without"]:
        must_know(str(name), called, f"{axis} called")
    return [point for name, point in called.items() if name not in map(str, values["without"])]


def parse(name: str | Path) -> dict:
    """Return the parsed TOML of a table by name, or of a file."""
    shipped = files(__name__) / f"{name}.toml"
    place = shipped if shipped.is_file() else Path(name).expanduser()
    try:
        return tomllib.loads(place.read_text("utf-8"))
    except OSError as error:
        if str(name).endswith(".toml"):
            raise LikewiseError(
                f"grid: '{name}' cannot be read ({error.strerror}); pass a readable .toml file"
            ) from None
        raise LikewiseError(
            f"grid: there is no table '{name}'{nearest_name(str(name), names())} "
            "`likewise list tables` lists them; or pass a .toml file"
        ) from None
    except (
        ValueError,
        RecursionError,
    ) as error:  # no text, no TOML, an integer with too many digits, or nested too deeply
        raise LikewiseError(f"grid: '{name}' is not TOML ({error}); correct the file") from None
