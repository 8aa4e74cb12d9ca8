"""The file that `bench` and `tune` read: settings of a training, axes to vary them along, ranges to search.

    title = "what this is about"            optional
    [settings]                              fields of Train
    data = "glyphs"
    [axes]                                  every combination is one training
    loss = ["MultiSimilarity()", "Triplet(margin=0.2)"]
    seed = [0, 1, 2]                        the axis over which means are taken
    [[axes.method]]                         several settings that vary together, under a name
    name = "ours"
    lr = 1e-3
    [ranges]                                what `tune` searches
    lr = "1e-5..1e-2 log"

"none" means None where a setting may be None. An axis wins over [settings], and both win over a recipe.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import tomllib
import typing
from dataclasses import dataclass
from pathlib import Path

from likewise.configs import Train, check
from likewise.errors import LikewiseError, nearest_name
from likewise.recipes import apply

TABLES = ("title", "settings", "axes", "ranges")
OURS = ("out", "again", "evaluate", "allow_imports", "quiet")
"""Settings of Train that are not the file's to give: the command decides them."""


@dataclass(frozen=True)
class Cell:
    """One point of a grid: how each axis calls it, and the settings it stands for."""

    names: dict[str, str]
    settings: dict[str, object]


@dataclass(frozen=True)
class Grid:
    """What a file says. `axes`: axis -> (name, settings) of every point on it; `ranges`: name -> range, as text."""

    title: str
    settings: dict[str, object]
    axes: dict[str, list[tuple[str, dict[str, object]]]]
    ranges: dict[str, str]


def read_grid(file: str | Path) -> Grid:
    """Read and check a file; which settings are good together is checked by `as_train`."""
    path = Path(file).expanduser()
    try:
        content = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise LikewiseError(f"grid: '{file}' cannot be read ({error.strerror}); give a .toml file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise LikewiseError(f"grid: '{file}' is not TOML ({error})") from None
    for key in content:
        if key not in TABLES:
            near = "; write it below the line [settings]." if key in set_of_train() else nearest_name(key, TABLES)
            raise LikewiseError(f"grid: '{file}' has '{key}'{near} It takes: {', '.join(TABLES)}")
    for key in TABLES[1:]:
        if not isinstance(content.get(key, {}), dict):
            raise LikewiseError(f"grid: {key} must be a table, got {content[key]!r}; write [{key}] above its lines")
    settings = {key: plain(key, value) for key, value in content.get("settings", {}).items()}
    axes = {key: points(key, values) for key, values in content.get("axes", {}).items()}
    owner: dict[str, str] = {}
    for axis, along in axes.items():
        for setting in {key for _, point in along for key in point}:
            if owner.setdefault(setting, axis) != axis:
                raise LikewiseError(
                    f"grid: the axes '{owner[setting]}' and '{axis}' both give '{setting}'; join them into one"
                )
    return Grid(str(content.get("title", "")), settings, axes, dict(flat(content.get("ranges", {}))))


def points(axis: str, values: object) -> list[tuple[str, dict[str, object]]]:
    """The points of an axis: values of one setting, or named tables of several."""
    if not isinstance(values, list) or not values:
        raise LikewiseError(f"grid: axis '{axis}' must be a list of values or of tables, got {values!r}")
    found = []
    for value in values:
        if not isinstance(value, dict):
            found.append((str(value), {axis: plain(axis, value)}))
        elif not isinstance(value.get("name"), str):
            raise LikewiseError(f"grid: every table of axis '{axis}' needs a name, got {value}; add name = \"...\"")
        else:
            found.append((value["name"], {k: plain(k, v) for k, v in value.items() if k != "name"}))
    names = [name for name, _ in found]
    twice = next((n for n in names if names.count(n) > 1), None)
    if twice is not None:
        raise LikewiseError(f"grid: axis '{axis}' has '{twice}' twice; leave one out")
    return found


def plain(key: str, value: object) -> object:
    """A value as Train has it: "none" is None where a setting may be None, counts are text, lists tuples."""
    hints = typing.get_type_hints(Train)
    if key in OURS:
        raise LikewiseError(f"grid: '{key}' is not for a file to say; leave it out, the command decides it")
    if key not in hints:
        raise LikewiseError(
            f"grid: there is no setting '{key}'{nearest_name(key, hints)} It takes: {', '.join(set_of_train())}"
        )
    inside = typing.get_args(hints[key])
    words = [w for part in inside if typing.get_origin(part) is typing.Literal for w in typing.get_args(part)]
    if value == "none" and type(None) in inside and "none" not in words:
        return None
    if hints[key] is str and isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return tuple(value) if isinstance(value, list) else value


def set_of_train() -> list[str]:
    """The settings a file may give."""
    return [f.name for f in dataclasses.fields(Train) if f.name not in OURS]


def flat(table: dict, prefix: str = "") -> typing.Iterator[tuple[str, str]]:
    """`loss.margin = "0..1"` is a table in a table for TOML, and one name for us."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{key}.")
        elif isinstance(value, str):
            yield prefix + key, value
        else:
            raise LikewiseError(f'grid: range {prefix}{key} must be text such as "0..1" or "64|128", got {value!r}')


def cells(grid: Grid) -> list[Cell]:
    """Every combination of the axes, the last axis fastest."""
    found = []
    for chosen in itertools.product(*grid.axes.values()):
        settings = dict(grid.settings)
        for _, point in chosen:
            settings |= point
        found.append(Cell({axis: name for axis, (name, _) in zip(grid.axes, chosen)}, settings))
    return found


def as_train(settings: dict[str, object], **ours) -> Train:
    """The training that these settings describe, every value checked. A recipe among them comes first, `ours` last."""
    rest = {key: value for key, value in settings.items() if key not in ("data", "recipe")} | ours
    data = settings.get("data")
    if not isinstance(data, str):
        raise LikewiseError(f'grid: data must be text, got {data!r}; write data = "..." under [settings]')
    config = apply(settings.get("recipe"), data, **rest)
    check(config)
    return config


def settings_of(config: Train) -> dict[str, object]:
    """The settings that make this training again: those that are not Train's defaults."""
    default = {f.name: f.default for f in dataclasses.fields(Train)}
    left_out = (*OURS, "recipe", "device", "workers")  # a recipe's values are among the settings; machines differ
    return {k: v for k, v in vars(config).items() if k not in left_out and v != default[k]}


def toml(grid: Grid) -> str:
    """A grid of plain axes as the text that `read_grid` reads."""
    lines = [f"title = {_toml(grid.title)}"] if grid.title else []
    axes = {axis: [point[axis] for _, point in along] for axis, along in grid.axes.items()}
    for name, table in (("settings", grid.settings), ("axes", axes), ("ranges", grid.ranges)):
        if table:
            lines += ["", f"[{name}]", *(f"{_toml(k) if '.' in k else k} = {_toml(v)}" for k, v in table.items())]
    return "\n".join(lines).lstrip("\n") + "\n"


def _toml(value: object) -> str:
    if value is None:
        return '"none"'
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value, ensure_ascii=False)  # strings, numbers and truth are written alike in both
