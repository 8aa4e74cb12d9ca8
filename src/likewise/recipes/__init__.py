"""Recipes: named settings from papers, each value with where it comes from ("paper", "code" or "ours").

A recipe is a TOML file here. `[values]` holds for every data set, `[cub200]` and the like for one; a value is written
`key = [value, source]`, keys being fields of `Train`. Names joined by "+" are read in turn, and the later values win:
`apply("proxy-anchor+robust", "birds/")` is what `likewise train birds/ --recipe proxy-anchor --robust` trains.
"""

from __future__ import annotations

import dataclasses
import re
import tomllib
from dataclasses import dataclass
from importlib.resources import files

from likewise.configs import Train
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


def names() -> list[str]:
    return sorted(f.name.removesuffix(".toml") for f in files(__name__).iterdir() if f.name.endswith(".toml"))


def read(name: str, data: str | None = None) -> Recipe:
    """The recipe of this name, with the values for one data set where it has any. Several, joined by "+", become one."""
    every = [_read_one(part, data) for part in name.split("+")]
    about = {key: " + ".join(filter(None, (getattr(r, key) for r in every))) for key in ABOUT[:2]}
    return Recipe(
        name, **about, note=" ".join(filter(None, (r.note for r in every))),
        values={k: v for r in every for k, v in r.values.items()}, source={k: v for r in every for k, v in r.source.items()},
        data_sets=tuple(dict.fromkeys(d for r in every for d in r.data_sets)),
    )  # fmt: skip


def _read_one(name: str, data: str | None) -> Recipe:
    if name not in names():
        raise LikewiseError(
            f"recipe: there is no '{name}'{nearest_name(name, names())} There are: {', '.join(names())}"
        )
    content = tomllib.loads((files(__name__) / f"{name}.toml").read_text("utf-8"))
    about = {key: content.pop(key, "") for key in ABOUT}
    chosen = dict(content.pop("values"))
    chosen |= content.get((data or "").split("(")[0], {})
    if (data or "").lower().endswith((".npz", ".npy")):  # features: what concerns pictures does not apply
        chosen = {key: value for key, value in chosen.items() if key not in FOR_PICTURES}
    values = {key: tuple(v) if isinstance(v, list) else v for key, (v, _) in chosen.items()}
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
    return Train(**{"data": data, "recipe": name, **values, **settings})


def command(recipe: Recipe, data: str) -> str:
    """The command that the recipe stands for, in full."""
    default = {f.name: f.default for f in dataclasses.fields(Train)}
    words = [f"likewise train {quoted(data)}"]
    for key, value in recipe.values.items():
        if value == default.get(key):
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
