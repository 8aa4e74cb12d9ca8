"""The file that `bench` and `tune` read: settings of a training, axes to vary them along, ranges to search.

    base = "procsim-table5"                 start from another: what is given here replaces its settings, axes, ... by name;
                                            axes.method.without = ["LSD"] only leaves points out;
                                            "procsim-table5:print" is the table as printed
    title = "what this is about"            optional, like all the rest
    note = "a remark below the table"
    differs = "one epoch, not 40"           how all trainings differ from what the paper states; their numbers get a dagger
    columns = ["noise"]                     axes that the table shows side by side
    first = ["ProcSim"]                     points that are trained before others, for the case that the time does not suffice
    then = ["overlap"]                      figures drawn from the trainings, by their names in `papers.figures`; a file
                                            without [settings] and [axes] has figures that need no training
    [published]                             where a paper printed the numbers
    paper = "procsim"
    table = "5"
    dataset = "CUB200"                      if the name of the data differs
    metrics = {"R@1" = "P@1"}               our name of a metric -> the printed one
    scores = {separated = "sep128/"}        scores of class folds -> how the printed name begins
    only = {"HTL*" = "no public text"}      printed rows that are not trained -> the reason, which the table states
    [settings]                              fields of Train, and arguments of specs if the component has them: loss.beta = 1.2
    data = "glyphs"
    [axes]                                  every combination is one training
    loss = ["MultiSimilarity()", "Triplet(margin=0.2)"]
    seed = [0, 1, 2]                        the axis over which means are taken
    [[axes.method]]                         several settings that vary together, under a name
    name = "PRISM"
    recipe = "prism"
    confidence.share = "{share}"            what the point of another axis lets it be
    published = {method = "MCL + PRISM"}    which printed row (or column) it is: method, miner, sampler, noise, share; a
                                            text alone is the one that the axis is called after
    differs = "14 groups, not 48"           how this row (or column) differs from what the paper states
    print = {loss.margin = 0.2}             settings of this point as printed, if its recipe does not have them
    [[axes.noise]]
    name = "uniform 10 %"
    noise = "Uniform(share=0.1)"
    let = {share = 0.1}
    published = {noise = "uniform", share = 0.1}
    [quick]                                 for --quick, in addition to _quick.toml: settings that override all but --set, and
    axes = {seed = 2, noise = ["clean"]}    points to keep: a number of first points, names, or {without = [...]}
    [print]                                 for NAME:print, in addition to the recipes with :print: settings that override
    note = "as printed"                     [settings], and a note in place of that of the table
    [ranges]                                what `tune` searches
    lr = "1e-5..1e-2 log"

"none" means None if a setting may be None. A point of an axis overrides --set, --set overrides [settings], and all override a
recipe. Arguments of specs (loss.beta) are set last. Tables of papers are such files too, in `tables/`, with short names.
"""

from __future__ import annotations

import itertools
import json
import tomllib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from likewise.core.errors import LikewiseError, nearest_name
from likewise.core.settings import Train, check, merged_settings
from likewise.core.settings.overrides import (
    fill,
    flat,
    has_argument,
    must_know,
    names_of_settings,
    plain,
    read_change,
    with_argument,
)
from likewise.learn.recipes import PRINT_SUFFIX, apply, with_print
from likewise.papers.figures import FIGURE_KINDS
from likewise.papers.published import numbers

SEED_AXIS = "seed"
"""Name of the axis over which the table takes means."""

Place = tuple[tuple[str, ...], tuple[str, ...]]
"""Names of a row, and of a column without its metric."""

PUBLISHED_KEYS = ("method", "miner", "sampler", "noise", "share")
"""Keys by which a published number is selected."""

QUICK_FILE = "_quick"
"""The file with the changes of --quick."""

TOP_LEVEL_KEYS = ("base", "title", "note", "differs", "columns", "first", "then")
"""Keys of a grid file outside of its sections."""

NOT_SETTINGS = ("name", "published", "let", "differs", PRINT_SUFFIX)
"""Keys of a point of an axis that are no settings."""

SECTIONS = ("published", "settings", "axes", "quick", PRINT_SUFFIX, "ranges")
PUBLISHED_SECTION_KEYS = ("paper", "table", "dataset", "metrics", "scores", "only")
"""Keys of the section [published]."""


@dataclass(frozen=True)
class Point:
    """One point of an axis: its name and settings, keys of published numbers, and values for "{name}" in other axes (`let`).

    `differs`: how its trainings differ from what the paper states; "" if they do not.
    """

    name: str
    settings: dict[str, object]
    published: dict[str, str] = field(default_factory=dict)
    let: dict[str, str] = field(default_factory=dict)
    differs: str = ""


@dataclass(frozen=True)
class Cell:
    """One cell of a grid: its name on each axis, its settings, the keys of its published numbers, and texts on differences."""

    names: dict[str, str]
    settings: dict[str, object]
    published: dict[str, str] = field(default_factory=dict)
    differs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Grid:
    """The content of a grid file. `published`: paper, table and perhaps data set; `quick`: the table [quick].

    `published_only`: printed method that is not trained -> the reason. `differs`: how all its trainings differ from the paper.
    `first`: names of points that are trained before others. `is_print`: whether it is a table as printed (NAME:print).
    """

    title: str
    settings: dict[str, object]
    axes: dict[str, list[Point]]
    ranges: dict[str, str]
    name: str = ""
    note: str = ""
    columns: tuple[str, ...] = ()
    then: tuple[str, ...] = ()
    published: dict[str, str] = field(default_factory=dict)
    published_metrics: dict[str, str] = field(default_factory=dict)
    published_scores: dict[str, str] = field(default_factory=dict)
    quick: dict[str, Any] = field(default_factory=dict)
    published_only: dict[str, str] = field(default_factory=dict)
    differs: str = ""
    first: tuple[str, ...] = ()
    is_print: bool = False

    @property
    def is_figure_only(self) -> bool:
        """Whether the grid trains nothing: it has no settings and no axes, and its figures are drawn at once."""
        return bool(self.then) and not self.settings and not self.axes

    @property
    def is_figure(self) -> bool:
        """Whether a figure leads its page; its table has the printed numbers of its own cells, not all of the printed table."""
        return any(FIGURE_KINDS[name].leads for name in self.then)


def rows_of(grid: Grid) -> list[str]:
    """Return the axes that are rows of the table; ["setting"] if there is none."""
    return [axis for axis in grid.axes if axis != SEED_AXIS and axis not in grid.columns] or ["setting"]


def place_of(grid: Grid, names: dict[str, str]) -> Place:
    """Return the row and the column of a training in the table."""
    row = tuple(names.get(axis, "all the same") for axis in rows_of(grid))
    return row, tuple(names[axis] for axis in grid.axes if axis in grid.columns)


def cell_name(cell: Cell) -> str:
    """Return the axes and names of a cell as text."""
    return ", ".join(f"{axis} {name}" for axis, name in cell.names.items()) or "the one cell"


def table_names() -> list[str]:
    """Return the names of the tables of papers that `read_grid` accepts.

    Files in `tables/` whose names begin with _ are no tables: they are bases of tables, and _quick has the changes of --quick.
    """
    found = (file.name for file in (files("likewise.papers") / "tables").iterdir() if file.name.endswith(".toml"))
    return sorted(name.removesuffix(".toml") for name in found if not name.startswith("_"))


def names_with_print() -> list[str]:
    """Return the names of the tables of papers that have a variant as printed, NAME:print."""
    return [name for name in table_names() if as_printed(merged_content(name)) is not None]


def table_titles() -> dict[str, str]:
    """Return name -> title of every table of papers; the title of a table that has a variant as printed names it."""
    also = {name: f"; also {name}:{PRINT_SUFFIX}" for name in names_with_print()}
    return {name: read_grid(name).title + also.get(name, "") for name in table_names()}


def merged_content(name: str | Path, above: tuple[str, ...] = ()) -> dict:
    """Return the content of a table or grid file merged with its base: all sections, settings by dotted names.

    `above`: the files that name this one as their base, to detect a cycle.
    """
    plain_name = str(name).removesuffix(f":{PRINT_SUFFIX}")
    if plain_name != str(name):
        printed = as_printed(merged_content(plain_name, above))
        if printed is None:
            raise LikewiseError(
                f"grid: '{name}' needs values as printed that differ from '{plain_name}', but it has none; drop "
                f"':{PRINT_SUFFIX}'. There are: {', '.join(f'{one}:{PRINT_SUFFIX}' for one in names_with_print())}"
            )
        return printed
    if str(name) in above:
        raise LikewiseError(
            f"grid: '{name}' is its own base ({' > '.join((*above, str(name)))}); remove the base from one of these files"
        )
    grid = read_toml(name)
    known = TOP_LEVEL_KEYS + SECTIONS
    for key in grid:
        if key not in known:
            near = "; write it below the line [settings]." if key in names_of_settings() else nearest_name(key, known)
            raise LikewiseError(f"grid: '{name}' has the unknown key '{key}'{near} Known keys: {', '.join(known)}")
    for key in SECTIONS:
        if not isinstance(grid.setdefault(key, {}), dict):
            raise LikewiseError(f"grid: {key} must be a table, got {grid[key]!r}; write [{key}] above its lines")
    for key in grid["published"]:
        must_know(key, PUBLISHED_SECTION_KEYS, "[published] key")
    grid["settings"] = dict(flat(grid["settings"]))
    quick_axes = grid["quick"].pop("axes", {})
    grid["quick"] = dict(flat(grid["quick"])) | {"axes": quick_axes}
    grid[PRINT_SUFFIX] = dict(flat(grid[PRINT_SUFFIX]))
    if "base" not in grid:
        return grid
    base = str(grid.pop("base"))
    is_file = base.removesuffix(f":{PRINT_SUFFIX}").endswith(".toml")
    base_grid = merged_content(Path(name).parent / base if is_file else base, (*above, str(name)))
    grid["axes"] = {axis: points_of_axis(axis, values, base_grid["axes"]) for axis, values in grid["axes"].items()}
    grid["quick"]["axes"] = base_grid["quick"]["axes"] | grid["quick"]["axes"]
    if grid["published"].get("table", "") not in ("", base_grid["published"].get("table")):
        base_grid["published"].pop("only", None)  # the rows of another table
    return base_grid | grid | {key: base_grid[key] | grid[key] for key in SECTIONS}


def as_printed(content: dict) -> dict | None:
    """Return the merged content of a grid as printed; None if it has nothing that differs in print.

    Recipes with printed values get ":print"; then the settings in `print` of a point, and in [print], override others.
    """

    def printed(settings: dict) -> dict:
        """Return settings by dotted names, with the printed values of the recipe, and with those in `print`."""
        rest = {key: value for key, value in settings.items() if key != PRINT_SUFFIX}
        recipe = {"recipe": with_print(rest["recipe"])} if isinstance(rest.get("recipe"), str) else {}
        return rest | recipe | dict(flat(settings.get(PRINT_SUFFIX, {})))

    section = {key: value for key, value in content[PRINT_SUFFIX].items() if key != "note"}
    axes = {
        axis: [printed(v) if isinstance(v, dict) else printed({axis: v})[axis] for v in values]
        for axis, values in content["axes"].items()
        if isinstance(values, list)
    }
    settings = printed(content["settings"]) | section
    found = {**content, "settings": settings, "axes": content["axes"] | axes, PRINT_SUFFIX: {}, "is_print": True}
    found |= {"note": content[PRINT_SUFFIX].get("note", content.get("note", ""))}
    found |= {"title": f"{content['title']}, as printed"} if content.get("title") else {}
    unchanged = all(found[key] == content[key] for key in ("settings", "axes"))
    return None if unchanged else found


def points_of_axis(axis: str, values: object, axes: dict[str, list]) -> object:
    """Return the points of an axis; {without = [...]} means the points of the base except these."""
    if not isinstance(values, dict) or set(values) != {"without"} or axis not in axes:
        return values
    called = {str(point["name"] if isinstance(point, dict) else point): point for point in axes[axis]}
    for name in values["without"]:
        must_know(str(name), called, f"{axis} called")
    return [point for name, point in called.items() if name not in map(str, values["without"])]


def read_toml(name: str | Path) -> dict:
    """Return the parsed TOML of a table by name, or of a file."""
    shipped = files("likewise.papers") / "tables" / f"{name}.toml"
    place = shipped if shipped.is_file() else Path(name).expanduser()
    try:
        return tomllib.loads(place.read_text("utf-8"))
    except OSError as error:
        if str(name).endswith(".toml"):
            raise LikewiseError(
                f"grid: '{name}' cannot be read ({error.strerror}); pass a readable .toml file"
            ) from None
        raise LikewiseError(
            f"grid: there is no table '{name}'{nearest_name(str(name), table_names())} "
            "`likewise list tables` lists them; or pass a .toml file"
        ) from None
    except (
        ValueError,
        RecursionError,
    ) as error:  # no text, no TOML, an integer with too many digits, or nested too deeply
        raise LikewiseError(f"grid: '{name}' is not TOML ({error}); correct the file") from None


def read_grid(name: str | Path) -> Grid:
    """Return the grid of a table name or a file. Combinations of settings are checked later, by `as_train`."""
    content = merged_content(name)
    settings = {key: plain(key, value) for key, value in content["settings"].items()}
    axes = {key: points(key, values) for key, values in content["axes"].items()}
    owner: dict[str, str] = {}
    for axis, along in axes.items():
        for setting in {key for point in along for key in point.settings}:
            if owner.setdefault(setting, axis) != axis:
                raise LikewiseError(
                    f"grid: the axes '{owner[setting]}' and '{axis}' both give '{setting}'; join them into one"
                )
    ranges: dict[str, Any] = dict(flat(content["ranges"]))
    odd = next((key for key, value in ranges.items() if not isinstance(value, str)), None)
    if odd is not None:
        raise LikewiseError(f'grid: range {odd} must be text such as "0..1" or "64|128", got {ranges[odd]!r}')
    quick = quick_of(content)
    printed = {key: dict(content["published"].get(key, {})) for key in ("metrics", "scores")}
    grid = Grid(
        str(content.get("title", "")), settings, axes, ranges, _stem(name), str(content.get("note", "")),
        _words(content, "columns", axes), _words(content, "then", FIGURE_KINDS),
        {key: str(content["published"][key]) for key in ("paper", "table", "dataset") if key in content["published"]},
        printed["metrics"], printed["scores"], quick,
        {key: str(value) for key, value in content["published"].get("only", {}).items()}, str(content.get("differs", "")),
        _words(content, "first", {point.name for along in axes.values() for point in along}), "is_print" in content,
    )  # fmt: skip
    cut_axes(grid, quick.get("axes", {}))  # raises for unknown names
    return grid


def _stem(name: str | Path) -> str:
    """Return the name of a grid, for its folder: "procsim-table5", "mine" of mine.toml, "procsim-table5-print" of ...:print."""
    plain_name = str(name).removesuffix(f":{PRINT_SUFFIX}")
    return Path(plain_name).stem + f"-{PRINT_SUFFIX}" * (plain_name != str(name))


def shipped(grid: Grid) -> Grid | None:
    """Return the grid with the settings of the paper, on the same data if the paper has numbers for it; None without a paper."""
    every = [read_grid(name) for name in table_names()] if grid.published else []
    same = [t for t in every if all(t.published.get(key) == grid.published.get(key) for key in ("paper", "table"))]
    if not same:
        return None
    table = min(same, key=lambda one: bool(one.then))  # a figure may have some rows of a table
    table = read_grid(f"{table.name}:{PRINT_SUFFIX}") if grid.is_print else table
    data = grid.published.get("dataset", str(grid.settings.get("data"))).casefold()
    printed = {n.dataset.casefold() for n in numbers(**table.published)}
    return adapted(table, data) if data in printed else table


def _words(content: dict, key: str, known: Collection[str]) -> tuple[str, ...]:
    """Return a list of names in the file; raises for a name that is not in `known`."""
    words = content.get(key, [])
    if not isinstance(words, list):
        raise LikewiseError(f"grid: {key} must be a list, got {words!r}; write {key} = [...]")
    for word in words:
        must_know(word, known, f"{key} entry")
    return tuple(words)


def points(axis: str, values: object) -> list[Point]:
    """Return the points of an axis: values of one setting, or named tables of several settings."""
    if not isinstance(values, list) or not values:
        raise LikewiseError(f"grid: axis '{axis}' must be a list of values or of tables, got {values!r}")
    found = []
    for value in values:
        if not isinstance(value, dict):
            found.append(Point(str(value), {axis: plain(axis, value)}))
            continue
        if not isinstance(value.get("name"), str):
            raise LikewiseError(f"grid: every table of axis '{axis}' needs a name, got {value}; add name = \"...\"")
        printed = value.get("published", {})
        printed = {axis: printed} if isinstance(printed, str) else printed
        published, let = ({k: str(v) for k, v in table.items()} for table in (printed, value.get("let", {})))
        for key in published:
            must_know(key, PUBLISHED_KEYS, f"published key of axis '{axis}'")
        rest = flat({k: v for k, v in value.items() if k not in NOT_SETTINGS})
        settings = {k: plain(k, v) for k, v in rest}
        found.append(Point(value["name"], settings, published, let, str(value.get("differs", ""))))
    names = [point.name for point in found]
    twice = next((n for n in names if names.count(n) > 1), None)
    if twice is not None:
        raise LikewiseError(f"grid: axis '{axis}' has '{twice}' twice; drop one of them")
    return found


def cells(grid: Grid) -> list[Cell]:
    """Return all combinations of the axes; the last axis varies fastest."""
    found = []
    for along in itertools.product(*grid.axes.values()):
        settings, let, published = dict(grid.settings), {}, {}
        for point in along:
            settings, let, published = (
                merged_settings(settings, point.settings),
                let | point.let,
                published | point.published,
            )
        settings = {key: fill(key, value, let) for key, value in settings.items()}
        named = dict(zip(grid.axes, along))
        differs = [
            f"{p.name}: {p.differs}" if axis in grid.columns else p.differs for axis, p in named.items() if p.differs
        ]
        names = {axis: point.name for axis, point in named.items()}
        found.append(Cell(names, settings, published, tuple(filter(None, (grid.differs, *differs)))))
    return found


def as_train(settings: dict[str, Any], **ours) -> Train:
    """Return the checked settings of a training. Order: recipe, `settings`, `ours`, then arguments of specs (loss.beta).

    An argument that its component does not have is ignored.
    """
    inside = {key: value for key, value in settings.items() if "." in key}
    rest = {key: value for key, value in settings.items() if key not in ("data", "recipe", *inside)} | ours
    data = settings.get("data")
    if not isinstance(data, str):
        raise LikewiseError(f'grid: data must be text, got {data!r}; write data = "..." under [settings]')
    config = apply(settings.get("recipe"), data, **rest)
    check(config)
    for name, value in inside.items():
        config = with_argument(config, name, value) if has_argument(config, name) else config
    return config


def adapted(
    grid: Grid, data: str | None = None, root: str | None = None, changes: Sequence[str] = (), quick: bool = False
) -> Grid:
    """Return the grid with other data, other settings, or reduced to a quick test.

    Args:
        changes: "setting=value", "loss.miner.eps=0.2", or a .toml file with [settings]. A file may serve several tables, so only
            a "setting=value" raises if no cell has the argument. [published] of a file may name the data set.
        quick: apply [quick] and _quick.toml; they override data, root and files, but not "setting=value".
    """
    files = [read_grid(word) for word in changes if _is_file(word)]
    words = dict(read_change(word) for word in changes if not _is_file(word))
    given = {key: value for file in files for key, value in file.settings.items()} | words
    given |= {"data": data, "root": root} if data else {"root": root} if root else {}
    printed = grid.published and {key: value for one in (grid, *files) for key, value in one.published.items()}
    own, data = str(grid.settings.get("data")), str(given.get("data", grid.settings.get("data")))
    if printed and data.casefold() in {n.dataset.casefold() for n in numbers()}:
        printed.pop("dataset", None)  # the name of the data identifies it
    grid = replace(grid, settings=merged_settings(grid.settings, given), published=printed)
    if data != own:
        called = Path(data.split("(")[0]).stem
        grid = replace(grid, name=f"{grid.name}-{called}", title=f"{grid.title or grid.name}, on {called}")
    if quick:
        grid = quicken(grid)
        grid = replace(grid, settings=merged_settings(grid.settings, words))
    inside = [name for name in words if "." in name]
    every = [as_train(cell.settings) for cell in cells(grid)] if inside else []
    for name in inside:
        if not any(has_argument(config, name) for config in every):
            raise LikewiseError(f"grid: {name}: no training of the table has this argument; drop it")
    return grid


def _is_file(word: str) -> bool:
    return word.endswith(".toml") and "=" not in word


def quick_of(content: dict) -> dict[str, Any]:
    """Return the table [quick], with values of the types of Train."""
    axes = {"axes": content["quick"]["axes"]} if content["quick"]["axes"] else {}
    return {key: plain(key, value) for key, value in content["quick"].items() if key != "axes"} | axes


def quicken(grid: Grid) -> Grid:
    """Return the grid with [quick] applied: its settings override those of all points, and axes keep only its points."""
    usual = quick_of(merged_content(QUICK_FILE))
    overrides = {key: value for key, value in (usual | grid.quick).items() if key != "axes"}
    kept = {a: wanted for a, wanted in (usual["axes"] | grid.quick.get("axes", {})).items() if a in grid.axes}
    axes = {
        axis: [replace(point, settings=_without_overridden(point.settings, overrides), differs="") for point in along]
        for axis, along in cut_axes(grid, kept).items()
    }
    title = f"{grid.title or grid.name} \N{EM DASH} quick: small glyphs, not the paper's data"
    return replace(
        grid, settings=merged_settings(_without_overridden(grid.settings, overrides), overrides), axes=axes, published={},
        published_only={}, differs="", note="", name=f"{grid.name}-quick", title=title,
    )  # fmt: skip


def _without_overridden(settings: dict[str, object], overrides: dict[str, object]) -> dict[str, object]:
    """Return `settings` without keys in `overrides`, and without arguments whose spec is in `overrides`.

    `epochs = 0` stays: it is the row of a network before training.
    """
    return {
        key: value
        for key, value in settings.items()
        if (key not in overrides and key.split(".")[0] not in overrides) or (key, value) == ("epochs", 0)
    }


def cut_axes(grid: Grid, kept: dict[str, Any]) -> dict[str, list[Point]]:
    """Return the axes with the points to keep: a number of first points, a list of names, or {"without": names}."""
    axes = dict(grid.axes)
    for axis, wanted in kept.items():
        must_know(axis, grid.axes, "axis")
        names = [point.name for point in axes[axis]]
        if isinstance(wanted, int):
            left = names[:wanted]
        else:
            listed = [str(name) for name in (wanted["without"] if isinstance(wanted, dict) else wanted)]
            for name in listed:
                must_know(name, names, f"{axis} called")
            left = [name for name in names if (name in listed) != isinstance(wanted, dict)]
        axes[axis] = [point for point in axes[axis] if point.name in left]
    return axes


def chosen(cells: Sequence[Cell], only: Sequence[str]) -> list[int]:
    """Return the indices of the selected cells: "axis=name" (or within an axis, and between axes), or numbers from 1."""
    wanted: dict[str, set[str]] = {}
    numbers: set[int] = set()
    axes = {axis: {cell.names[axis]: None for cell in cells} for axis in (cells[0].names if cells else ())}
    for word in only:
        axis, equals, name = (text.strip() for text in word.partition("="))
        if equals:
            must_know(axis, axes, "axis")
            must_know(name, axes[axis], f"{axis} called")
            wanted.setdefault(axis, set()).add(name)
        elif word.strip().isdecimal() and 1 <= int(word) <= len(cells):
            numbers.add(int(word) - 1)
        else:
            raise LikewiseError(f"grid: a cell must be axis=name or a number from 1 to {len(cells)}, got '{word}'")
    return [
        place
        for place, cell in enumerate(cells)
        if place in numbers
        or ((wanted or not only) and all(cell.names[axis] in names for axis, names in wanted.items()))
    ]


def toml(grid: Grid) -> str:
    """Return a grid of plain axes as TOML text, which `read_grid` can read."""
    lines = [f"title = {_toml(grid.title)}"] if grid.title else []
    axes = {axis: [point.settings[axis] for point in along] for axis, along in grid.axes.items()}
    for name, table in (("settings", grid.settings), ("axes", axes), ("ranges", grid.ranges)):
        if table:
            lines += ["", f"[{name}]", *(f"{_toml(k) if '.' in k else k} = {_toml(v)}" for k, v in table.items())]
    return "\n".join(lines).lstrip("\n") + "\n"


def _toml(value: object) -> str:
    if value is None:
        return '"none"'
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value, ensure_ascii=False)  # JSON and TOML write strings, numbers and booleans alike
