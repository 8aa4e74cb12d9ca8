"""Checks of a command's settings that take no time: names, paths and output files. They import neither torch nor timm.

The command itself makes the same checks and more, later. A name that this module does not know for sure is left to the command.
Names of components, metrics and data sets are read from the source files of their registries, whose import would need torch.
"""

from __future__ import annotations

import ast
import dataclasses
import os
import re
import typing
from functools import cache
from importlib.resources import files
from pathlib import Path

from likewise.core.errors import LikewiseError, nearest_name, similar_name
from likewise.core.files import check_creatable, check_output_path, names_folder
from likewise.core.public_modules import PUBLIC_MODULES
from likewise.core.settings import check
from likewise.core.settings.field_types import flag_name, marks, spec_fields, texts_of
from likewise.core.settings.spec import REGISTRIES, names_in

COMPONENT_REGISTRIES = {
    "losses": "losses",
    "miners": "miners",
    "samplers": "samplers",
    "relevance": "relevance",
    "confidence": "confidence",
    "terms": "terms",
    "noise": "noise",
    "protocols": "protocols",
    "heads": "models.heads",
    "loggers": "loggers",
}
"""Registry of components in `likewise list` -> its module in likewise."""

NAME_REGISTRIES = ("metrics", "data", "recipes", "tables", "backbones")
"""Registries of names that are not components."""

METRIC_FILES = ("metrics.spectrum", "metrics.clustering", "metrics.verification")
"""Modules with a dict `NAMES` of set metrics."""

SPEC_KINDS = {
    "loss": ("losses", "loss"),
    "relevance": ("relevance", "relevance"),
    "sampler": ("samplers", "batch sampler"),
    "protocol": ("protocols", "protocol"),
    "confidence": ("confidence", "confidence"),
    "terms": ("terms", "term"),
    "noise": ("noise", "noise model"),
    "model": ("noise", "noise model"),
    "head": ("models.heads", "head"),
    "loggers": ("loggers", "logger"),
}
"""Setting that holds specs -> the registry of its components, and what one of them is called."""

RUN_HINT = "give a folder that `likewise train` wrote"
TARGET_HINT = "give a run folder, or a file of embeddings"
INPUT_PATHS = {
    "evaluate": {"target": TARGET_HINT},
    "report": {"runs": TARGET_HINT},
    "search": {"target": "give a run folder, a file of embeddings, or an index folder", "model": RUN_HINT},
    "compare": dict.fromkeys(("run_a", "run_b"), "give a run folder, or the per_query.parquet in it"),
    "export": {"run": RUN_HINT},
    "hierarchy": {"run": RUN_HINT},
    "calibrate": {"run": RUN_HINT},
    "review": {"audit": "give the folder of an audit, which `likewise audit` writes"},
    "apply": {"table": "give the corrected.csv of a review, or the folder of its audit"},
}
"""Command -> settings that are paths which must exist -> what to do if they do not."""

INPUT_FILES = ("weights", "exclude", "labels", "gallery", "token_file", "adopt", "root")
"""Settings of any command that are paths which must exist."""

OUTPUT_SUFFIXES = {"embed": ".npz", "search": ".png", "compare": ".png", "calibrate": ".png", "report": ".html"}
"""Command -> suffix of the file that --out names."""

OUTPUT_FOLDERS = {
    "train": {"out": "runs"},
    "clean": {"out": "audit"},
    "audit": {"out": None},
}
"""Command -> settings that name folders which it creates -> the folder without the setting, in the current folder; None: none."""

METRIC_ALIASES = {
    "recall@k": "R@k",
    "precision@k": "P@k",
    "acc@k": "R@k",
    "hit@k": "R@k",
    "accuracy": "R@1",
    "ndcg": "NDCG@10",
}
"""Name of a metric in other tools, in lower case -> its name here."""

DEVICE_KINDS = ("cpu", "cuda", "mps", "xpu", "hpu", "mtia", "ipu", "xla", "hip", "meta")
"""Kinds of devices that are left to torch."""


def check_early(command: str, config: object) -> None:
    """Raise for the first setting of a command that cannot be right."""
    check(config)
    check_specs(command, config)
    check_metrics(command, config)
    check_device(command, getattr(config, "device", None))
    check_inputs(command, config)
    check_data(command, config)
    check_grid(command, config)
    for setting, default in OUTPUT_FOLDERS.get(command, {}).items():
        if folder := getattr(config, setting) or default:
            check_creatable(folder, command, flag_name(setting))
    out = getattr(config, "out", None) if command in OUTPUT_SUFFIXES else None
    if out and not (command == "embed" and names_folder(out)):  # a folder is for shards
        check_output_path(out, OUTPUT_SUFFIXES[command], command)


def check_specs(command: str, config: object) -> None:
    """Raise for a spec whose component is not in the registry of its setting."""
    for field in spec_fields(type(config)):
        registry, kind = SPEC_KINDS[field]
        known = component_names(registry) + component_names("adapters")
        for text in texts_of(config, (field,)):
            name, inner = names_in(text)
            flag = f"{command}: --{field}"
            if name is not None and name not in known:
                raise LikewiseError(unknown_component(flag, name, kind, registry, known))
            everything = [one for of in REGISTRIES for one in component_names(of)]
            for one in inner:
                if one not in everything:
                    raise LikewiseError(
                        f"{flag} must name known components, got '{one}' in '{text}'{nearest_name(one, everything)} "
                        "`likewise list` shows the registries"
                    )


def unknown_component(flag: str, name: str, kind: str, registry: str, known: tuple[str, ...]) -> str:
    """Return the error about a name that is not in the registry of its setting."""
    shown = f"`likewise list {registry.split('.')[-1]}` shows all"
    if name.casefold() == "robust" and kind == "confidence":
        return f"{flag} must name a confidence, got '{name}'; write --robust alone, or choose a confidence: {shown}"
    others = [other for field, (of, other) in SPEC_KINDS.items() if of != registry and name in component_names(of)]
    if others:
        return f"{flag} must name a {kind}, got '{name}', which is a {others[0]}; {shown}"
    return f"{flag} must name a {kind}, got '{name}'{nearest_name(name, known)} {shown}"


def check_metrics(command: str, config: object) -> None:
    """Raise for a metric that does not exist. Dotted names and names with a level or a comma are left to the command."""
    if command == "published":
        return
    known = metric_names()
    select: str | None = getattr(config, "select", None)
    names = [("--metrics", name) for name in getattr(config, "metrics", None) or ()]
    for flag, name in [*names, *([("--select", select)] if select else [])]:
        generic = re.sub(r"=[\d.e-]+$", "=x", re.sub(r"@[1-9]\d*", "@k", name))
        if generic in known or re.search(r"[.:,(=]", name) or re.fullmatch(r"map@\d+", name, re.IGNORECASE):
            continue
        alias = METRIC_ALIASES.get(generic.casefold())
        near = f"; did you mean '{alias}'?" if alias else nearest_name(generic, known)
        if k := re.search(r"@(\d+)", name):
            near = near.replace("@k", f"@{k[1].lstrip('0') or 1}")
        raise LikewiseError(
            f"{command}: {flag} must name known metrics, got '{name}'{near} `likewise list metrics` shows all"
        )


def check_device(command: str, device: str | None) -> None:
    """Raise for a word that is no device."""
    if device is not None and device.split(":")[0] not in DEVICE_KINDS:
        near = nearest_name(device, DEVICE_KINDS[:3])
        raise LikewiseError(f"{command}: --device must be cpu, cuda, cuda:1 or mps, got '{device}'{near}")


def check_inputs(command: str, config: object) -> None:
    """Raise for an input path that does not exist, with a similar name in its folder."""
    hints = INPUT_PATHS.get(command, {}) | dict.fromkeys(INPUT_FILES, "check the path")
    types = typing.get_type_hints(type(config), include_extras=True)
    for field in dataclasses.fields(config):  # pyright: ignore[reportArgumentType]
        if field.name not in hints:
            continue
        for text in texts_of(config, (field.name,)):
            if not os.path.exists(os.path.expanduser(text)):
                flag = "" if marks(types[field.name]) == [] else f" for {flag_name(field.name)}"
                raise LikewiseError(f"{command}: there is no '{text}'{flag}{near_path(text, hints[field.name])}")
    query = getattr(config, "query", None)
    if command == "search" and query and not query.isdigit() and not os.path.exists(os.path.expanduser(query)):
        raise LikewiseError(
            f"{command}: --query must be an image file or the number of a row, got '{query}', which does not exist"
            f"{near_path(query, 'check the path')}"
        )
    taxonomy = getattr(config, "taxonomy", None)
    if taxonomy and taxonomy.lower().endswith((".json", ".csv")) and not os.path.isfile(os.path.expanduser(taxonomy)):
        raise LikewiseError(
            f"{command}: there is no '{taxonomy}' for --taxonomy{near_path(taxonomy, 'check the path')}"
        )


def near_path(text: str, advice: str) -> str:
    """Return the end of an error about a missing path: "; did you mean 'runs/birds'?", if a name there is similar, and the
    advice."""
    path = Path(os.path.expanduser(text))
    try:
        names = [one.name for one in path.parent.iterdir()] if path.parent.is_dir() else []
    except OSError:
        names = []
    by_stem = {Path(name).stem: name for name in sorted(names, key=lambda name: Path(name).suffix == path.suffix)}
    near = similar_name(path.stem, by_stem)  # a.csv and b.csv have only the suffix in common
    start = text.removesuffix("/").removesuffix(path.name)
    return end_with("." if near is None else f"; did you mean '{start}{by_stem[near]}'?", advice)


def end_with(near: str, advice: str) -> str:
    """Return the end of an error: what `nearest_name` returned, and the advice."""
    return f"; {advice}" if len(near) == 1 else f"{near} {advice[0].upper()}{advice[1:]}"


def check_data(command: str, config: object) -> None:
    """Raise for DATA that is neither a name nor an existing path. Readers of the user and names of a hub are not checked."""
    advice = "give a run folder, a file of embeddings, or data: " if command == "audit" else "give "
    advice += "a folder with one sub-folder per class, a table (.csv, .parquet), features (.npz), or a name "
    advice += "of `likewise list data`"
    for data in texts_of(config, [name for name in ("data", "on", "targets") if hasattr(config, name)]):
        path = data.partition("?")[0]  # columns of a table may follow
        if data.startswith("hf:") or data.strip().endswith(")") or data in data_names():
            continue
        if not os.path.exists(os.path.expanduser(path)):
            near = "." if os.path.basename(path) != path or Path(path).suffix else nearest_name(data, data_names())
            end = end_with(near, advice) if len(near) > 1 else near_path(path, advice)
            raise LikewiseError(f"{command}: there is no {'target' if command == 'audit' else 'data'} '{data}'{end}")


def check_grid(command: str, config: object) -> None:
    """Raise for a table or a file of settings that does not exist."""
    name = {"bench": getattr(config, "grid", None), "tune": getattr(config, "config", None)}.get(command)
    name = name and name.removesuffix(":print")  # a table as printed
    if name is None or os.path.exists(os.path.expanduser(name)):
        return
    from likewise.papers.grid import table_names

    is_table = command == "bench" and not name.endswith(".toml")
    if is_table and name in table_names():
        return
    what = (
        "a table of `likewise list tables`, or a .toml file" if command == "bench" else "a .toml file, or a run folder"
    )
    end = end_with(nearest_name(name, table_names()), f"give {what}") if is_table else near_path(name, f"give {what}")
    raise LikewiseError(f"{command}: there is no '{name}'{end}")


@cache
def component_names(registry: str) -> tuple[str, ...]:
    """Return the class names that a registry such as "losses" or "models.heads" offers to specs."""
    tree = _source(registry)
    imported = [alias.asname or alias.name for node in tree if isinstance(node, ast.ImportFrom) for alias in node.names]
    listed = next((_texts(node.value) for node in tree if _assigns(node, "__all__")), [])  # pyright: ignore[reportAttributeAccessIssue]
    return tuple(listed or [name for name in imported if name[0].isupper()])


@cache
def data_names() -> tuple[str, ...]:
    """Return the names of data sets."""
    return _keys("data", "NAMES")


@cache
def metric_names() -> tuple[str, ...]:
    """Return the generic names of metrics, such as R@k and TAR@FAR=x."""
    return _keys("metrics", "PER_QUERY") + tuple(name for file in METRIC_FILES for name in _keys(file, "NAMES"))


def _source(module: str) -> list[ast.stmt]:
    """Return the statements of a module or package of likewise."""
    name, _, below = module.partition(".")
    path = f"{PUBLIC_MODULES.get(name, name)}.{below}".strip(".").replace(".", "/")
    place = files("likewise").joinpath(path)
    file = place.joinpath("__init__.py") if place.is_dir() else files("likewise").joinpath(f"{path}.py")
    return ast.parse(file.read_text("utf-8")).body


def _assigns(node: ast.stmt, name: str) -> bool:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return any(isinstance(target, ast.Name) and target.id == name for target in targets)


def _texts(node: ast.expr | None) -> list[str]:
    """Return the texts of a list or tuple of literals; nothing for another expression."""
    items = node.elts if isinstance(node, ast.List | ast.Tuple) else []
    return [str(item.value) for item in items if isinstance(item, ast.Constant)]


def _keys(module: str, name: str) -> tuple[str, ...]:
    """Return the keys of a dict with literal keys that a module assigns to a name."""
    value = next(node.value for node in _source(module) if _assigns(node, name))  # pyright: ignore[reportAttributeAccessIssue]
    assert isinstance(value, ast.Dict)
    return tuple(str(ast.literal_eval(key)) for key in value.keys if key is not None)
