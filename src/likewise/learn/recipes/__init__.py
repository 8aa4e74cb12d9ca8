"""Recipes: named settings, most of them from papers, each value with its source ("paper", "code", "assumed" or "ours").

A recipe is a TOML file: ours are in this folder, those of papers in `papers/recipes`. `[values]` is for every data set, a
section such as `[cub200]` for one data set; a value is written `key = [value, source]`, where the key is a field of `Train`.
Recipes can be joined by "+"; later recipes override earlier ones: `apply("proxy-anchor+robust", "birds/")` is
`likewise train birds/ --recipe proxy-anchor --robust`.
Where the code of a paper differs from its print, the values follow the code, and `[print]` (and `[print.sop]` for one data set)
has the printed values, which ":print" after the name selects: "triplet:print", "triplet:print+robust". They do not replace
values of a data set that are "ours", such as those of the glyphs.
A plus joins recipes only if a name follows it. Any other plus belongs to the name before it, and is "-plus" in the file name:
"proxy-nca++" is proxy-nca-plus-plus.toml, and "proxy-nca+++robust" is this file and robust.toml.
"""

from __future__ import annotations

import dataclasses
import re
import tomllib
from dataclasses import dataclass
from functools import cache, reduce
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, get_type_hints

from likewise.core.argument_checks import misfit, words
from likewise.core.errors import LikewiseError, nearest_name
from likewise.core.settings import SETTINGS_OUTSIDE_IDENTITY, SPECS, Train, merged_settings

VALUE_SOURCES = ("paper", "code", "assumed", "ours")
"""Allowed sources of a value: the text of the paper states it; the authors' public code has it; no source states it; it differs
from what the paper states, or is made for other data than the paper's."""

IMAGE_SETTINGS = (
    "backbone",
    "pretrained",
    "weights",
    "size",
    "pool",
    "augment",
    "crop_scale",
    "freeze_bn",
    "freeze_backbone",
    "lora",
    "warmup",
    "views",
)
"""Settings that only apply to images, not to feature files."""

DESCRIPTION_KEYS = ("title", "paper", "note", "differs")
"""Keys of a recipe file that describe it; `differs` describes its values with the source "ours"."""

RECIPE_FOLDERS = ("learn/recipes", "papers/recipes")
"""Folders with recipe files, inside the package. A folder that is not installed has no recipes."""

PRINT_SUFFIX = "print"
"""Section of the values as printed, and the suffix of a name that selects it."""


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
    differs: str = ""


Sourced = tuple[object, str]
"""A value and its source."""

DEFAULT_SETTINGS = {f.name: f.default for f in dataclasses.fields(Train) if f.name != "data"}
"""Default of every field of `Train` except the data."""

NO_RECIPE = Recipe("defaults", "No recipe", "", "", {}, {}, ())


def recipe_files() -> dict[str, Traversable]:
    """Return name -> file of every recipe, in the order of the names."""
    folders = [files("likewise") / folder for folder in RECIPE_FOLDERS]
    found = [file for folder in folders if folder.is_dir() for file in folder.iterdir() if file.name.endswith(".toml")]
    return dict(sorted((file.name.removesuffix(".toml"), file) for file in found))


def names() -> list[str]:
    """Return the names of all recipes."""
    return list(recipe_files())


def names_with_print() -> list[str]:
    """Return the names of the recipes that have values as printed."""
    return [name for name, file in recipe_files().items() if PRINT_SUFFIX in _content(file)]


@cache
def with_print(name: str) -> str:
    """Return the name of a recipe, or of several, with ":print" after each that has values as printed."""
    files = {one: recipe_files().get(one.replace("+", "-plus")) for one in re.split(r"\+(?=\w)", name)}
    return "+".join(
        f"{one}:{PRINT_SUFFIX}" if file is not None and PRINT_SUFFIX in _content(file) else one
        for one, file in files.items()
    )


def read(name: str, data: str | None = None) -> Recipe:
    """Return the recipe of this name, with its values for a data set. Several names, joined by "+", give one recipe."""
    every = [_read_one(part, data) for part in re.split(r"\+(?=\w)", name)]
    about = {key: " + ".join(filter(None, (getattr(r, key) for r in every))) for key in DESCRIPTION_KEYS[:2]}
    return Recipe(
        name, **about, note=" ".join(filter(None, (r.note for r in every))),
        differs="; ".join(dict.fromkeys(r.differs for r in every if r.differs)),
        values=reduce(merged_settings, (r.values for r in every)), source={k: v for r in every for k, v in r.source.items()},
        data_sets=tuple(dict.fromkeys(d for r in every for d in r.data_sets)),
    )  # fmt: skip


def _content(file: Traversable) -> dict[str, Any]:
    return tomllib.loads(file.read_text("utf-8"))


def _read_one(name: str, data: str | None) -> Recipe:
    plain, colon, suffix = name.partition(":")
    known = recipe_files()
    file = known.get(plain.replace("+", "-plus"))
    if file is None:
        raise LikewiseError(f"recipe: there is no '{plain}'{nearest_name(plain, known)} There are: {', '.join(known)}")
    content = _content(file)
    about = {key: content.pop(key, "") for key in DESCRIPTION_KEYS}
    printed, data_set = content.pop(PRINT_SUFFIX, None), (data or "").split("(")[0]
    chosen = merged_settings(content.pop("values"), content.get(data_set, {}))
    if about["paper"]:  # papers evaluate the network as it is after the last step
        chosen = {"average": [0.0, "paper"]} | chosen
    if colon:
        printed = _check_print(name, suffix, printed)
        about |= {"title": f"{about['title']}, as printed", "note": f"{about['note']} {printed.pop('note')}"}
        by_data = {key: printed.pop(key) for key in list(printed) if isinstance(printed[key], dict)}
        ours = {key for key, (_, source) in content.get(data_set, {}).items() if source == "ours"}
        printed |= by_data.get(data_set, {})
        chosen |= {key: value for key, value in printed.items() if key not in ours}
    if data and holds_vectors(data):  # settings for images do not apply
        chosen = {key: value for key, value in chosen.items() if key not in IMAGE_SETTINGS}
    values: dict[str, object] = {key: tuple(v) if isinstance(v, list) else v for key, (v, _) in chosen.items()}
    return Recipe(name, **about, values=values, source={k: s for k, (_, s) in chosen.items()}, data_sets=tuple(content))


def holds_vectors(data: str) -> bool:
    """Whether data is a file of features or a folder of shards, by its name alone or by its index."""
    from likewise.data.shards import is_shards  # imports torch, which `likewise recipe` does not need

    return data.lower().endswith((".npz", ".npy")) or is_shards(data)


def _check_print(name: str, suffix: str, printed: dict[str, Any] | None) -> dict[str, Any]:
    """Return the section of the printed values; raise if the suffix is another one or the recipe has no such section."""
    if suffix != PRINT_SUFFIX:
        raise LikewiseError(
            f"recipe: the only suffix is ':{PRINT_SUFFIX}', the values as printed, got ':{suffix}' in '{name}'"
        )
    if printed is None:
        raise LikewiseError(
            f"recipe: '{name}' needs values as printed that differ from the recipe, but it has none; drop the suffix. "
            f"There are: {', '.join(f'{one}:{PRINT_SUFFIX}' for one in names_with_print())}"
        )
    return printed


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


def read_pair(a: str, b: str, data: str | None = None) -> tuple[Recipe, Recipe, str | None]:
    """Return two recipes to compare, and the data set for which they are read.

    If one of them is a run, recipes are read for the data of the run unless `data` is given, and all specs are written out with
    their defaults, as in a run.

    Args:
        a: name of a recipe, or folder of a run (./name if a recipe has the same name).
        b: the same, or "defaults".
        data: data set.
    """
    runs = {name: read_run(name) for name in (a, b) if _is_path(name)}
    data = data or next((run.data_sets[0] for run in runs.values()), None)
    one, other = (runs.get(name) or (NO_RECIPE if name == NO_RECIPE.name else read(name, data)) for name in (a, b))
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
    hints = get_type_hints(Train, include_extras=True)
    stored = {key: tuple(v) if isinstance(v, list) else v for key, v in config.items()}
    if (wrong := misfit(stored, hints)) is not None:
        raise LikewiseError(
            f"run: the setting {wrong} in '{folder}' must be {words(hints[wrong])}, got {stored[wrong]!r}; restore a copy of its "
            "config.json"
        )
    kept = {key: value for key, value in config.items() if key == "metrics" or key not in SETTINGS_OUTSIDE_IDENTITY}
    values: dict[str, object] = {k: tuple(v) if isinstance(v, list) else v for k, v in kept.items()}
    return Recipe(folder, "Run", "", "", values, dict.fromkeys(values, "run"), (config["data"],))


def written_out(recipe: Recipe) -> Recipe:
    """Return the recipe with all default settings, and specs with all arguments, as in a run folder."""
    from likewise.core.settings.spec import canonical

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
