"""Names of components, metrics and data sets, read from the source files of their registries: importing these needs torch."""

from __future__ import annotations

import ast
from functools import cache
from importlib.resources import files

from likewise.core.public_modules import PUBLIC_MODULES

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
