"""Recipes: named settings from papers, each value with where it comes from ("paper", "code" or "ours").

A recipe is a TOML file here. `[values]` holds for every data set, `[cub200]` and the like for one; a value is written
`key = [value, source]`, keys being fields of `Train`. Names joined by "+" are read in turn, and the later values win:
`apply("proxy-anchor+robust", "birds/")` is what `likewise train birds/ --recipe proxy-anchor --robust` trains.
A plus joins only where a name follows it. Any other belongs to the name before it, "-plus" in the file's: "proxy-nca++" is
proxy-nca-plus-plus.toml, and "proxy-nca+++robust" that and robust.toml.
"""

from __future__ import annotations

import dataclasses
import re
import tomllib
from dataclasses import dataclass
from functools import reduce
from importlib.resources import files
from pathlib import Path
from typing import Any

from likewise.config import KEPT_OUT, SPECS, Train, merged_settings
from likewise.errors import LikewiseError, nearest_name

SOURCES = ("paper", "code", "ours")
FOR_PICTURES = (
    "backbone",
    "pretrained",
    "weights",
    "size",
    "pool",
    "augment",
    "crop_scale",
    "freeze_bn",
    "warmup",
    "views",
)
ABOUT = ("title", "paper", "note")


@dataclass(frozen=True)
class Recipe:
    """A named setting. `values` are fields of `Train`; `source` says where each comes from."""

    name: str
    title: str
    paper: str
    note: str
    values: dict[str, object]
    source: dict[str, str]
    data_sets: tuple[str, ...]


Sourced = tuple[object, str]
"""A value and its source."""

DEFAULT = {f.name: f.default for f in dataclasses.fields(Train) if f.name != "data"}
DEFAULTS = Recipe("defaults", "No recipe", "", "", {}, {}, ())


def names() -> list[str]:
    return sorted(f.name.removesuffix(".toml") for f in files(__name__).iterdir() if f.name.endswith(".toml"))


def read(name: str, data: str | None = None) -> Recipe:
    """The recipe of this name, with the values for one data set where it has any. Several, joined by "+", become one."""
    every = [_read_one(part, data) for part in re.split(r"\+(?=\w)", name)]
    about = {key: " + ".join(filter(None, (getattr(r, key) for r in every))) for key in ABOUT[:2]}
    return Recipe(
        name, **about, note=" ".join(filter(None, (r.note for r in every))),
        values=reduce(merged_settings, (r.values for r in every)), source={k: v for r in every for k, v in r.source.items()},
        data_sets=tuple(dict.fromkeys(d for r in every for d in r.data_sets)),
    )  # fmt: skip


def _read_one(name: str, data: str | None) -> Recipe:
    file = name.replace("+", "-plus")
    if file not in names():
        raise LikewiseError(
            f"recipe: there is no '{name}'{nearest_name(name, names())} There are: {', '.join(names())}"
        )
    content = tomllib.loads((files(__name__) / f"{file}.toml").read_text("utf-8"))
    about = {key: content.pop(key, "") for key in ABOUT}
    chosen = dict(content.pop("values"))
    chosen = merged_settings(chosen, content.get((data or "").split("(")[0], {}))
    if (data or "").lower().endswith((".npz", ".npy")):  # features: what concerns pictures does not apply
        chosen = {key: value for key, value in chosen.items() if key not in FOR_PICTURES}
    values: dict[str, object] = {key: tuple(v) if isinstance(v, list) else v for key, (v, _) in chosen.items()}
    return Recipe(name, **about, values=values, source={k: s for k, (_, s) in chosen.items()}, data_sets=tuple(content))


def apply(name: str | None, data: str, **settings) -> Train:
    """Settings that start from a recipe, or several ("triplet+robust"); what is given beside it wins."""
    values = read(name, data).values if name else {}
    known = [f.name for f in dataclasses.fields(Train)]
    for setting in settings:
        if setting not in known:
            raise LikewiseError(
                f"train has no setting '{setting}'{nearest_name(setting, known)} It takes: {', '.join(known)}"
            )
    merged = merged_settings(values, settings)
    return Train(**{"data": data, "recipe": name, **merged})


def read_pair(a: str, b: str | None, data: str | None = None) -> tuple[Recipe, Recipe, str | None]:
    """Two sides to compare, and the data set they are read for. A side is a recipe by name, a run by its folder (one called
    like a recipe as ./name), or None: the defaults.

    With a run, recipes are read for its data where no other is named, and their specs written out as a run's are."""
    runs = {name: read_run(name) for name in (a, b) if name and _is_path(name)}
    data = data or next((run.data_sets[0] for run in runs.values()), None)
    one, other = (runs.get(name or "") or (read(name, data) if name else DEFAULTS) for name in (a, b))
    return (written_out(one), written_out(other), data) if runs else (one, other, data)


def _is_path(name: str) -> bool:
    path = Path(name).expanduser()
    return name not in names() and (len(path.parts) > 1 or path.is_dir())


def read_run(folder: str) -> Recipe:
    """The settings of a training that change what is learned or measured, as if they were a recipe."""
    from likewise.runs.folder import Run

    about = Run(folder).about
    config = about["config"] if isinstance(about["config"], dict) else {}
    if "data" not in config:
        raise LikewiseError(f"run: the settings in '{folder}' name no data; it is damaged or not ours")
    kept = {key: value for key, value in config.items() if key == "metrics" or key not in KEPT_OUT}
    values: dict[str, object] = {k: tuple(v) if isinstance(v, list) else v for k, v in kept.items()}
    return Recipe(folder, "Run", "", "", values, dict.fromkeys(values, "run"), (config["data"],))


def written_out(recipe: Recipe) -> Recipe:
    """The same with every argument of its specs, defaults included, as a run keeps them."""
    from likewise.config.spec import canonical

    values = DEFAULT | recipe.values
    for key in SPECS:
        texts: Any = values[key]
        values[key] = tuple(map(canonical, texts)) if isinstance(texts, tuple) else texts and canonical(texts)
    return dataclasses.replace(recipe, values=values)


def difference(a: Recipe, b: Recipe = DEFAULTS) -> dict[str, tuple[Sourced, Sourced]]:
    """The settings that differ: name -> (value, source) of each. Where a recipe says nothing, the default counts."""
    sides = [
        {key: (recipe.values.get(key, default), recipe.source.get(key, "default")) for key, default in DEFAULT.items()}
        for recipe in (a, b)
    ]
    return {key: (sides[0][key], sides[1][key]) for key in DEFAULT if sides[0][key][0] != sides[1][key][0]}


def command(recipe: Recipe, data: str) -> str:
    """The command that the recipe stands for, in full."""
    words = [f"likewise train {quoted(data)}"]
    for key, value in recipe.values.items():
        if value == DEFAULT.get(key):
            continue
        flag = key.replace("_", "-")
        if isinstance(value, bool) and key != "pretrained":
            words.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            words.append(" ".join([f"--{flag}", *map(quoted, value if isinstance(value, tuple) else [value])]))
    return " \\\n    ".join(words)


def quoted(value: object) -> str:
    """A word as a shell takes it."""
    text = str(value)
    return text if re.fullmatch(r"[\w./+-]+", text) else f'"{text}"'
