"""Order of imports between rooms, no cycles, few entries; components are documented and tested by hand."""

import ast
import importlib
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
HOME = ROOT / "src" / "likewise"
sys.path.insert(0, str(ROOT / "tools"))

import import_graph  # noqa: E402

COMPONENTS = ("losses", "miners", "samplers", "relevance", "noise", "confidence", "terms", "protocols")
"""Public packages of components."""
MAX_ENTRIES = 16
PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")


@pytest.fixture(scope="module")
def graph() -> import_graph.Graph:
    return import_graph.import_graph()


def test_rooms_import_only_rooms_before_them(graph):
    assert import_graph.upward_imports(graph) == []
    rooms = {file.parent.name for file in HOME.glob("*/__init__.py")}
    assert rooms == set(import_graph.ROOMS)
    table = PAGE.split("\n## Rooms\n")[1].split("\n## ")[0]
    assert re.findall(r"^\| `(\w+)` \|", table, re.M) == list(import_graph.ROOMS)


def test_the_check_of_the_order_can_fail():
    graph = {"core.types": {"learn.loop"}, "learn.loop": {"core.types"}, "": {"cli.main"}, "cli.main": set()}
    assert import_graph.upward_imports(graph) == ["core.types imports learn.loop"]


def test_only_the_command_line_imports_the_papers(graph):
    importers = {
        module for module, targets in graph.items() if any(import_graph.room_of(t) == "papers" for t in targets)
    }
    assert {import_graph.room_of(module) for module in importers} <= {"", "papers", "cli"}


def test_modules_form_no_cycle(graph):
    assert import_graph.cycles(graph) == []
    assert import_graph.cycles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": set()}) == [["b", "c"]]


def test_the_package_has_few_entries():
    assert len(import_graph.entries()) <= MAX_ENTRIES


@pytest.mark.parametrize(
    ("line", "target"),
    [
        ("from likewise import errors", "errors"),
        ("from likewise.io import files", "io.files"),
        ("from likewise.io.files import read", "io.files"),
        ("from . import neighbour", "stages.neighbour"),
        ("from .neighbour import thing", "stages.neighbour"),
        ("from ..io.files import read", "io.files"),
        ("import likewise.io.files", "io.files"),
        ("def f():\n    from likewise import errors", "errors"),
        ("if TYPE_CHECKING:\n    from likewise.errors import E", "errors"),
    ],
)
def test_every_kind_of_import_is_seen(tmp_path, line, target):
    for name in ("__init__", "errors", "io/__init__", "io/files", "stages/__init__", "stages/neighbour"):
        file = tmp_path / f"{name}.py"
        file.parent.mkdir(exist_ok=True)
        file.touch()
    (tmp_path / "stages" / "mine.py").write_text(line)
    assert import_graph.import_graph(tmp_path)["stages.mine"] == {target}


def test_public_names_of_modules_are_the_modules_themselves():
    """`likewise.losses` and `likewise.learn.losses` are one module, however it is imported first."""
    import likewise
    from likewise.core.public_modules import PUBLIC_MODULES

    for name, place in PUBLIC_MODULES.items():
        assert importlib.import_module(f"likewise.{name}") is importlib.import_module(f"likewise.{place}")
        assert getattr(likewise, name) is importlib.import_module(f"likewise.{place}")
    below = importlib.import_module("likewise.losses.circle")
    assert below is importlib.import_module("likewise.learn.losses.circle")
    assert below.__spec__.name == "likewise.learn.losses.circle"
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("likewise.losses.no_such_loss")


def test_a_component_is_documented():
    wrong = []
    for package in COMPONENTS:
        for name in importlib.import_module(f"likewise.{package}").__all__:
            wrong += [f"{package}.{name}: {found}" for found in wrong_in_component(package, name)]
    assert wrong == []


def wrong_in_component(package: str, name: str) -> Iterator[str]:
    """Yield what is missing in the docstring of a component."""
    part = getattr(importlib.import_module(f"likewise.{package}"), name)
    source = Path(sys.modules[part.__module__].__file__).read_text("utf-8")
    doc = part.__doc__ or ""
    if not doc.strip():
        yield "it has no docstring"
    if package in ("losses", "miners", "noise") and not all(word in doc for word in ("Paper:", "Formula:", "Differs:")):
        yield "its docstring must have Paper:, Formula: and Differs:"
    made = next(n for n in ast.parse(source).body if isinstance(n, ast.ClassDef) and n.name == name)
    start = next((n for n in made.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"), None)
    for argument in start.args.args[1:] if start else []:
        if not re.search(rf"^ +{argument.arg}: ", doc, re.M):
            yield f"its docstring does not explain {argument.arg}"


PATTERNS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]["package-data"]["likewise"]


def test_every_file_of_the_package_is_installed_and_every_pattern_finds_one():
    found = {pattern: {file for file in HOME.glob(pattern) if file.is_file()} for pattern in PATTERNS}
    assert [pattern for pattern, files in found.items() if not files] == []
    files = (file for file in HOME.rglob("*") if file.is_file() and "__pycache__" not in file.parts)
    left_out = {file for file in files if file.suffix != ".py"} - set().union(*found.values())
    assert sorted(str(file.relative_to(HOME)) for file in left_out) == []


def test_every_folder_with_code_is_a_package():
    without = {file.parent for file in HOME.rglob("*.py") if not (file.parent / "__init__.py").exists()}
    assert sorted(str(folder.relative_to(HOME)) for folder in without) == []
