"""The house rules, read off the syntax tree and compared with docs/architecture.md: packages, sizes, names, docstrings, tests."""

import ast
import importlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
HOME = ROOT / "src" / "likewise"
FILES = sorted(HOME.rglob("*.py"))
sys.path.insert(0, str(ROOT / "tools"))

import import_graph  # noqa: E402

COMPONENTS = ("losses", "miners", "samplers", "relevance", "noise", "confidence", "terms", "protocols")
"""Packages with one public class per file."""
MAX_ROOT_MODULES = 12
MAX_STAGE_LINES = 80
MAX_FILE_LINES = 600
MAX_FUNCTION_LINES = 62
PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")


@pytest.fixture(scope="module")
def graph() -> import_graph.Graph:
    return import_graph.import_graph()


def section(title: str) -> str:
    """Text of the page below a heading, up to the next one."""
    return PAGE.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


def documented_tree() -> set[str]:
    """Paths of the tree in the docs: `name/` opens a folder with its purpose behind it; names of files lie in the last folder."""
    found: set[str] = set()
    above: list[str] = []
    for line in section("The tree").split("```")[1].splitlines()[2:]:
        depth, names = (len(line) - len(line.lstrip())) // 2 - 1, line.split()
        if names[0].endswith("/"):
            above[depth:] = [names[0]]
            found.add("".join(above))
        else:
            found |= {
                "".join(above[:depth]) + name for name in names if name.endswith(".py") and (depth or name == names[0])
            }
    return found


def real_tree() -> set[str]:
    """Paths of the package: folders, and files of those packages that are documented file by file."""
    found = set()
    for file in FILES:
        place = file.relative_to(HOME)
        folders = [folder.as_posix() for folder in place.parents if folder.parts]
        found |= {f"{folder}/" for folder in folders}
        if import_graph.BY_FOLDER.isdisjoint(folders) and (not folders or place.name != "__init__.py"):
            found.add(place.as_posix())
    return found


def test_the_documented_tree_is_the_real_one():
    documented, real = documented_tree(), real_tree()
    assert (documented - real, real - documented) == (set(), set())


def allowed_edges() -> dict[str, set[str]]:
    """The table of packages: what each may import."""
    rows = re.findall(r"^\| `(\w+)` \|(.*?)\|", section("Imports between packages"), re.M)
    return {name: set(re.findall(r"`(\w+)`", cell)) for name, cell in rows}


def wrong_edges(packages: import_graph.Graph, allowed: import_graph.Graph) -> list[str]:
    """Imports that the table does not allow, and rows and edges of the table that do not exist."""
    wrong = [f"{name} has no row" for name in packages.keys() - allowed.keys()]
    wrong += [f"row of {name}, which does not exist" for name in allowed.keys() - packages.keys()]
    for name in packages.keys() & allowed.keys():
        wrong += [f"{name} imports {other}" for other in packages[name] - allowed[name]]
        wrong += [f"{name} does not import {other}" for other in allowed[name] - packages[name]]
    return sorted(wrong)


def test_packages_import_what_the_table_allows(graph):
    packages = {name or "likewise": targets for name, targets in import_graph.package_graph(graph).items()}
    assert wrong_edges(packages, allowed_edges()) == []
    assert import_graph.cycles(packages) == []


def test_the_check_of_packages_can_fail():
    allowed = {"losses": {"types"}, "types": set()}
    assert wrong_edges({"losses": {"types"}, "types": set()}, allowed) == []
    assert wrong_edges({"losses": {"types", "runs"}, "types": set()}, allowed) == ["losses imports runs"]
    assert wrong_edges({"losses": set(), "types": set()}, allowed) == ["losses does not import types"]
    assert wrong_edges({"losses": {"types"}, "types": set(), "web": set()}, allowed) == ["web has no row"]


@pytest.mark.parametrize(
    ("line", "target"),
    [
        ("from likewise import errors", "errors"),
        ("from likewise.core import files", "io.files"),
        ("from likewise.core.files import read", "io.files"),
        ("from . import neighbour", "stages.neighbour"),
        ("from .neighbour import thing", "stages.neighbour"),
        ("from ..io.files import read", "io.files"),
        ("import likewise.core.files", "io.files"),
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


def test_cycles_and_chains_by_hand():
    graph = {"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": set()}
    assert import_graph.cycles(graph) == [["b", "c"]]
    assert import_graph.longest_chain({"a": {"b", "d"}, "b": {"c"}, "c": {"d"}, "d": set()}) == ["a", "b", "c", "d"]
    assert import_graph.direct({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == {"a": {"b"}, "b": {"c"}, "c": set()}


def test_modules_form_no_cycle_and_import_few_others(graph):
    assert import_graph.cycles(graph) == []
    wide = {name: size for name, size in import_graph.fan_out(graph).items() if size > import_graph.MAX_FAN_OUT}
    assert wide == {}


def test_import_chains_are_short():
    chain = import_graph.longest_chain(import_graph.import_graph(kinds=("top",)))
    assert len(chain) <= import_graph.MAX_CHAIN, " > ".join(chain)


def test_the_root_and_the_stages_are_small(graph):
    assert len(list(HOME.glob("*.py"))) <= MAX_ROOT_MODULES
    long = {f.name for f in (HOME / "stages").glob("*.py") if len(f.read_text("utf-8").splitlines()) > MAX_STAGE_LINES}
    assert long == set()
    importers = {module for module, targets in graph.items() if any(t.startswith("stages.") for t in targets)}
    assert importers <= {"", "cli.commands", "cli.main"}


def test_sizes_and_names():
    wrong = [f"{file.relative_to(HOME)}: {found}" for file in FILES for found in wrong_sizes_and_names(file)]
    assert wrong == []


def wrong_sizes_and_names(file: Path) -> Iterator[str]:
    text = file.read_text("utf-8")
    if len(text.splitlines()) > MAX_FILE_LINES:
        yield f"more than {MAX_FILE_LINES} lines: ask whether two things live in one file"
    if file.stem in {"utils", "helpers", "common", "misc", "base"}:
        yield "the name explains nothing"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            length = node.end_lineno - node.lineno + 1
            doc = ast.get_docstring(node)
            length -= len(doc.splitlines()) if doc else 0
            if length > MAX_FUNCTION_LINES:
                yield f"{node.name} has {length} lines"
            if re.match(r"(get|calc|do)_", node.name):
                yield f"{node.name} is not named as a verb of its own"


def test_no_name_is_undefined():
    """Checked here, since shapes in annotations look like undefined names to linters and type checkers."""
    pytest.importorskip("ruff")
    words = [
        sys.executable,
        "-m",
        "ruff",
        "check",
        "--select",
        "F821",
        "--output-format",
        "json",
        "src",
        "tests",
        "tools",
    ]
    wrong = []
    for found in json.loads(subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False).stdout):
        row, column = found["location"]["row"] - 1, found["location"]["column"] - 1
        line = Path(found["filename"]).read_text("utf-8").splitlines()[row]
        if line[:column].count('"') % 2 == 0:  # not inside of a string, as the axes of a shape are
            wrong.append(f"{found['filename']}:{row + 1}: {found['message']}")
    assert wrong == []


def stored(function: ast.FunctionDef) -> set[str]:
    """Names x of all `self.x = ...` in a function."""
    return {
        node.attr
        for node in ast.walk(function)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    }


def late_attributes(text: str) -> Iterator[str]:
    """Attributes of classes that a method other than the constructor creates."""
    for made in ast.walk(ast.parse(text)):
        if not isinstance(made, ast.ClassDef):
            continue
        functions = [node for node in made.body if isinstance(node, ast.FunctionDef)]
        start = [function for function in functions if function.name in ("__init__", "__post_init__", "__new__")]
        born = {function.name for function in functions}.union(*map(stored, start))
        for node in made.body:
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            born |= {target.id for target in targets if isinstance(target, ast.Name)}
        born |= set(re.findall(r"register_buffer\(\s*\"(\w+)\"", "\n".join(map(ast.unparse, start)).replace("'", '"')))
        late = set().union(*map(stored, functions)) - born
        if late:
            yield f"{made.name}: {', '.join(sorted(late))}"


def test_every_attribute_is_born_in_the_constructor():
    wrong = [
        f"{file.relative_to(HOME)}: {found}" for file in FILES for found in late_attributes(file.read_text("utf-8"))
    ]
    assert wrong == []
    assert list(late_attributes("class A:\n    def f(self):\n        self.x = 1")) == ["A: x"]
    assert not list(late_attributes("class A:\n    x: int\n    def f(self):\n        self.x = 1"))


def test_a_component_is_documented_stores_its_arguments_and_has_its_own_file_and_test():
    wrong = []
    for package in COMPONENTS:
        for name in importlib.import_module(f"likewise.{package}").__all__:
            wrong += [f"{package}.{name}: {found}" for found in wrong_in_component(package, name)]
    assert wrong == []


def wrong_in_component(package: str, name: str) -> Iterator[str]:
    part = getattr(importlib.import_module(f"likewise.{package}"), name)
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
    file, test = HOME / package / f"{snake}.py", ROOT / "tests" / package / f"test_{snake}.py"
    if not file.exists() or not test.exists():
        yield f"class {name} lives in {file} and is tested in {test}"
        return
    doc = part.__doc__ or ""
    if not doc.strip():
        yield "it has no docstring"
    if package in ("losses", "miners", "noise") and not all(word in doc for word in ("Paper:", "Formula:", "Differs:")):
        yield "its docstring must say Paper:, Formula: and Differs:"
    if package == "losses" and not re.search(r"by_hand|golden", test.read_text()):
        yield "a loss is checked by hand"
    source = file.read_text()
    made = next(n for n in ast.parse(source).body if isinstance(n, ast.ClassDef) and n.name == name)
    start = next((n for n in made.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"), None)
    for argument in start.args.args[1:] if start else []:
        if f"self.{argument.arg} = {argument.arg}" not in source:
            yield f"it must store {argument.arg} under its own name"
        if not re.search(rf"^ +{argument.arg}: ", doc, re.M):
            yield f"its docstring does not explain {argument.arg}"


UNTESTED_BY_NAME = {
    "__init__.py",
    "__main__.py",
    "_version.py",
    "errors.py",
    "types.py",
    "contracts.py",
    "report/records.py",
}
"""Modules that other tests exercise: test_contracts, test_errors, and whoever uses the records."""


def test_every_module_has_a_test_of_its_name():
    missing = []
    for file in FILES:
        place = file.relative_to(HOME)
        if (
            place.name == "__init__.py"
            or place.as_posix() in UNTESTED_BY_NAME
            or place.parts[0] in ("testing", "config")
        ):
            continue  # tests/core/settings/test_config.py and tests/test_contracts.py exercise these packages
        if not (ROOT / "tests" / place.parent / f"test_{place.stem.lstrip('_')}.py").exists():
            missing.append(str(place))
    assert missing == []


@pytest.mark.slow
def test_the_tool_prints_counts_packages_and_tree_and_the_picture_is_fresh(graph, tmp_path, capsys):
    import_graph.main([])
    assert f"modules {len(graph)}" in capsys.readouterr().out
    import_graph.main(["--packages", "--tree", "--picture", str(tmp_path / "packages.svg")])
    printed = capsys.readouterr().out
    assert "| `errors` | - |" in printed and "\n  io/" in printed
    fresh = (tmp_path / "packages.svg").read_text("utf-8")
    assert fresh == (ROOT / "docs" / "packages.svg").read_text("utf-8"), (
        "run python tools/import_graph.py --picture docs/packages.svg"
    )
