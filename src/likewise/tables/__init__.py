"""Tables of papers as grids: one TOML file each; settings come from recipes.

`likewise bench procsim-table5 --data cub200 --root DIR` trains one. Files whose names begin with _ are not tables: some start
from them, and `_quick.toml` is what --quick does to all of them.
"""

from __future__ import annotations

import tomllib
from importlib.resources import files
from pathlib import Path

from likewise.config.overrides import flat, must_know, set_of_train
from likewise.errors import LikewiseError, nearest_name

QUICK = "_quick"
WORDS = ("base", "title", "note", "columns", "then")
SECTIONS = ("published", "settings", "axes", "quick", "ranges")
PUBLISHED = ("paper", "table", "dataset", "metrics", "scores")


def names() -> list[str]:
    """Tables by name."""
    found = (f.name for f in files(__name__).iterdir() if f.name.endswith(".toml"))
    return sorted(name.removesuffix(".toml") for name in found if not name.startswith("_"))


def content(name: str | Path, above: tuple[str, ...] = ()) -> dict:
    """What a table or a file says, on top of its base where it has one: every section there, settings by dotted names."""
    if str(name) in above:
        raise LikewiseError(
            f"grid: '{name}' starts from itself ({' > '.join((*above, str(name)))}); leave one base out"
        )
    said = parse(name)
    known = WORDS + SECTIONS
    for key in said:
        if key not in known:
            near = "; write it below the line [settings]." if key in set_of_train() else nearest_name(key, known)
            raise LikewiseError(f"grid: '{name}' has '{key}'{near} It takes: {', '.join(known)}")
    for key in SECTIONS:
        if not isinstance(said.setdefault(key, {}), dict):
            raise LikewiseError(f"grid: {key} must be a table, got {said[key]!r}; write [{key}] above its lines")
    for key in said["published"]:
        must_know(key, PUBLISHED, "[published] key")
    said["settings"] = dict(flat(said["settings"]))
    cut = said["quick"].pop("axes", {})
    said["quick"] = dict(flat(said["quick"])) | {"axes": cut}
    if "base" not in said:
        return said
    base = str(said.pop("base"))
    whole = content(Path(name).parent / base if base.endswith(".toml") else base, (*above, str(name)))
    said["axes"] = {axis: left_of(axis, values, whole["axes"]) for axis, values in said["axes"].items()}
    said["quick"]["axes"] = whole["quick"]["axes"] | said["quick"]["axes"]
    return whole | said | {key: whole[key] | said[key] for key in SECTIONS}


def left_of(axis: str, values: object, axes: dict[str, list]) -> object:
    """The points of an axis; {without = [...]} stands for those of the base but these."""
    if not isinstance(values, dict) or set(values) != {"without"} or axis not in axes:
        return values
    called = {str(point["name"] if isinstance(point, dict) else point): point for point in axes[axis]}
    for name in values["without"]:
        must_know(str(name), called, f"{axis} called")
    return [point for name, point in called.items() if name not in map(str, values["without"])]


def parse(name: str | Path) -> dict:
    """A table by its name, or a file, as TOML reads it."""
    shipped = files(__name__) / f"{name}.toml"
    place = shipped if shipped.is_file() else Path(name).expanduser()
    try:
        return tomllib.loads(place.read_text("utf-8"))
    except OSError as error:
        if str(name).endswith(".toml"):
            raise LikewiseError(f"grid: '{name}' cannot be read ({error.strerror}); give a .toml file") from None
        raise LikewiseError(
            f"grid: there is no table '{name}'{nearest_name(str(name), names())} "
            "`likewise list tables` names them; or give a .toml file"
        ) from None
    except (ValueError, RecursionError) as error:  # no text, no TOML, a number of too many digits, nested too deeply
        raise LikewiseError(f"grid: '{name}' is not TOML ({error})") from None
