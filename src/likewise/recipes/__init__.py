"""Recipes: named settings, most of them from papers, each value with its source ("paper", "code" or "ours").

A recipe is a TOML file in this folder. `[values]` is for every data set, a section such as `[cub200]` for one data set; a value
is written `key = [value, source]`, where the key is a field of `Train`. Recipes can be joined by "+"; later recipes override
earlier ones: `apply("proxy-anchor+robust", "birds/")` is `likewise train birds/ --recipe proxy-anchor --robust`.
A plus joins recipes only if a name follows it. Any other plus belongs to the name before it, and is "-plus" in the file name:
"proxy-nca++" is proxy-nca-plus-plus.toml, and "proxy-nca+++robust" is this file and robust.toml.
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

from likewise.config import SETTINGS_OUTSIDE_IDENTITY, SPECS, Train, merged_settings
from likewise.errors import LikewiseError, nearest_name

VALUE_SOURCES = ("paper", "code", "ours")
"""Allowed sources of a value."""

IMAGE_SETTINGS = (
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
"""Settings that only apply to images, not to feature files."""

DESCRIPTION_KEYS = ("title", "paper", "note")
"""Keys of a recipe file that describe it."""


@dataclass(frozen=True)
class Recipe:
    """Named settings. `values` are fields of `Train`; `source` has the source of each value."""

    name: str
    title: str
    paper: str
    note: str
    values: dict[str, object]
    source: dict[str, str]
    data_sets: tuple[str, ...]


Sourced = tuple[object, str]
"""A value and its source."""

DEFAULT_SETTINGS = {f.name: f.default for f in dataclasses.fields(Train) if f.name != "data"}
"""Default of every field of `Train` except the data."""

NO_RECIPE = Recipe("defaults", "No recipe", "", "", {}, {}, ())


def names() -> list[str]:
    """Return the names of all recipes."""
    return sorted(f.name.removesuffix(".toml") for f in files(__name__).iterdir() if f.name.endswith(".toml"))


def read(name: str, data: str | None = None) -> Recipe:
    """Return the recipe of this name, with its values for a data set. Several names, joined by "+", give one recipe."""
    every = [_read_one(part, data) for part in re.split(r"\+(?=\w)", name)]
    about = {key: " + ".join(filter(None, (getattr(r, key) for r in every))) for key in DESCRIPTION_KEYS[:2]}
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
    about = {key: content.pop(key, "") for key in DESCRIPTION_KEYS}
    chosen = dict(content.pop("values"))
    chosen = merged_settings(chosen, content.get((data or "").split("(")[0], {}))
    if (data or "").lower().endswith((".npz", ".npy")):  # features: settings for images do not apply
        chosen = {key: value for key, value in chosen.items() if key not in IMAGE_SETTINGS}
    values: dict[str, object] = {key: tuple(v) if isinstance(v, list) else v for key, (v, _) in chosen.items()}
    return Recipe(name, **about, values=values, source={k: s for k, (_, s) in chosen.items()}, data_sets=tuple(content))


def apply(name: str | None, data: str, **settings) -> Train:
    """Return settings from a recipe, or several ("triplet+robust"); `settings` override the values of the recipe."""
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
    """Return two recipes to compare, and the data set for which they are read.

    If one of them is a run, recipes are read for the data of the run unless `data` is given, and all specs are written out with
    their defaults, as in a run.

    Args:
        a: name of a recipe, or folder of a run (./name if a recipe has the same name).
        b: the same; None: the defaults.
        data: data set.
    """
    runs = {name: read_run(name) for name in (a, b) if name and _is_path(name)}
    data = data or next((run.data_sets[0] for run in runs.values()), None)
    one, other = (runs.get(name or "") or (read(name, data) if name else NO_RECIPE) for name in (a, b))
    return (written_out(one), written_out(other), data) if runs else (one, other, data)


def _is_path(name: str) -> bool:
    path = Path(name).expanduser()
    return name not in names() and (len(path.parts) > 1 or path.is_dir())


def read_run(folder: str) -> Recipe:
    """Return the settings of a run that change what is learned or measured, as a recipe."""
    from likewise.runs.folder import Run

    about = Run(folder).about
    config = about["config"] if isinstance(about["config"], dict) else {}
    if "data" not in config:
        raise LikewiseError(
            f"run: the settings in '{folder}' name no data; the folder is damaged or was not written by likewise"
        )
    kept = {key: value for key, value in config.items() if key == "metrics" or key not in SETTINGS_OUTSIDE_IDENTITY}
    values: dict[str, object] = {k: tuple(v) if isinstance(v, list) else v for k, v in kept.items()}
    return Recipe(folder, "Run", "", "", values, dict.fromkeys(values, "run"), (config["data"],))


def written_out(recipe: Recipe) -> Recipe:
    """Return the recipe with all default settings, and specs with all arguments, as in a run folder."""
    from likewise.config.spec import canonical

    values = DEFAULT_SETTINGS | recipe.values
    for key in SPECS:
        texts: Any = values[key]
        values[key] = tuple(map(canonical, texts)) if isinstance(texts, tuple) else texts and canonical(texts)
    return dataclasses.replace(recipe, values=values)


def difference(a: Recipe, b: Recipe = NO_RECIPE) -> dict[str, tuple[Sourced, Sourced]]:
    """Return the settings that differ: name -> (value, source) of a and of b. A missing setting has its default value."""
    sides = [
        {
            key: (recipe.values.get(key, default), recipe.source.get(key, "default"))
            for key, default in DEFAULT_SETTINGS.items()
        }
        for recipe in (a, b)
    ]
    return {key: (sides[0][key], sides[1][key]) for key in DEFAULT_SETTINGS if sides[0][key][0] != sides[1][key][0]}


def command(recipe: Recipe, data: str) -> str:
    """Return the `likewise train` command with all settings of the recipe."""
    words = [f"likewise train {quoted(data)}"]
    for key, value in recipe.values.items():
        if value == DEFAULT_SETTINGS.get(key):
            continue
        flag = key.replace("_", "-")
        if isinstance(value, bool) and key != "pretrained":
            words.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            words.append(" ".join([f"--{flag}", *map(quoted, value if isinstance(value, tuple) else [value])]))
    return " \\\n    ".join(words)


def quoted(value: object) -> str:
    """Return a value as text, in quotes if a shell needs them."""
    text = str(value)
    return text if re.fullmatch(r"[\w./+-]+", text) else f'"{text}"'
