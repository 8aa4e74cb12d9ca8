"""The house rules, read off the syntax tree: layers, sizes, names, docstrings, mirrored tests."""

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
HOME = ROOT / "src" / "likewise"
FILES = sorted(HOME.rglob("*.py"))

LAYER = {
    "errors": 0, "kinds": 0, "types": 0, "contracts": 0, "similarity": 0, "inputs": 0, "rows": 0, "exact": 0, "propose": 0,
    "search": 0, "cluster": 0, "intervals": 0, "progress": 0, "configs": 0, "lambert_w": 0, "fifo": 0, "durations": 0,
    "hyperbolic": 0, "encoders": 0, "weights": 0, "taxonomies": 0, "findings": 0, "label_noise": 0, "discriminant": 0,
    "files": 0, "pictures": 0, "ranks": 0, "sharded": 0, "significance": 0, "energy": 0, "environment": 0, "server": 0,
    "notebook": 0, "processes": 0,
    "losses": 1, "miners": 1, "samplers": 1, "noise": 1, "confidence": 1, "terms": 1, "models": 1,
    "data": 1, "metrics": 1, "protocols": 1, "report": 1, "audit": 1, "review": 1, "published": 1,
    "finder": 1, "loggers": 1, "adapters": 1,
    "embedding": 2, "scoring": 2, "distribute": 2, "objective": 2, "diagnose": 2, "spec": 2,
    "grid": 2, "settings": 2, "tables": 2, "run": 2, "optimise": 2, "grad_cache": 2, "capture": 2, "testing": 2, "recipes": 2,
    "stages": 2,
    "cli": 3, "commands": 3, "__init__": 3, "__main__": 3,
}  # fmt: skip
NEIGHBOURS = {("losses", "miners"), ("report", "metrics")}
"""The doors between shelves: a loss's default miner is part of its paper, and a metric knows how its value is written."""

PARTS = ("losses", "miners", "samplers", "noise", "confidence", "terms", "protocols")


def name_of(file: Path) -> str:
    """First part of the module's name below likewise."""
    return file.relative_to(HOME).with_suffix("").parts[0]


def imports(file: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("likewise."):
            found.add(node.module.split(".")[1])
        elif isinstance(node, ast.Import):
            found |= {a.name.split(".")[1] for a in node.names if a.name.startswith("likewise.")}
    return found


def wrong_imports(who: str, whom: set[str]) -> list[str]:
    bad = []
    for other in whom - {who}:
        same_shelf_level = LAYER[who] == LAYER[other] == 1 and (who, other) not in NEIGHBOURS
        if LAYER[other] > LAYER[who] or same_shelf_level:
            bad.append(f"{who} imports {other}")
    return bad


def test_imports_point_down_and_shelves_stay_apart():
    wrong = {str(file.relative_to(HOME)): wrong_imports(name_of(file), imports(file)) for file in FILES}
    assert {file: found for file, found in wrong.items() if found} == {}


def test_the_layer_check_can_fail():
    assert (
        wrong_imports("losses", {"spec"}) and wrong_imports("metrics", {"noise"}) and wrong_imports("types", {"losses"})
    )
    assert not wrong_imports("losses", {"miners", "types"})
    assert not wrong_imports("stages", {"spec", "losses", "run"})


def test_sizes_and_names():
    wrong = [f"{file.relative_to(HOME)}: {found}" for file in FILES for found in wrong_sizes_and_names(file)]
    assert wrong == []


def wrong_sizes_and_names(file: Path) -> Iterator[str]:
    text = file.read_text("utf-8")
    if len(text.splitlines()) > 400:
        yield "more than 400 lines: ask whether two things live in one file"
    if file.stem in {"utils", "helpers", "common", "misc", "base"}:
        yield "the name explains nothing"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            length = node.end_lineno - node.lineno + 1
            doc = ast.get_docstring(node)
            length -= len(doc.splitlines()) if doc else 0
            if length > 62:
                yield f"{node.name} has {length} lines"
            if re.match(r"(get|calc|compute|do)_", node.name):
                yield f"{node.name} is not named as a verb of its own"


def test_a_part_is_documented_stores_its_arguments_and_has_its_own_file_and_test():
    wrong = []
    for shelf in PARTS:
        for name in importlib.import_module(f"likewise.{shelf}").__all__:
            wrong += [f"{shelf}.{name}: {found}" for found in wrong_in_part(shelf, name)]
    assert wrong == []


def wrong_in_part(shelf: str, name: str) -> Iterator[str]:
    part = getattr(importlib.import_module(f"likewise.{shelf}"), name)
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
    file, test = HOME / shelf / f"{snake}.py", ROOT / "tests" / shelf / f"test_{snake}.py"
    if not file.exists() or not test.exists():
        yield f"class {name} lives in {file} and is tested in {test}"
        return
    doc = part.__doc__ or ""
    if not doc.strip():
        yield "it has no docstring"
    if shelf in ("losses", "miners", "noise") and not all(word in doc for word in ("Paper:", "Formula:", "Differs:")):
        yield "its docstring must say Paper:, Formula: and Differs:"
    if shelf == "losses" and not re.search(r"by_hand|golden", test.read_text()):
        yield "a loss is checked by hand"
    source = file.read_text()
    made = next(n for n in ast.parse(source).body if isinstance(n, ast.ClassDef) and n.name == name)
    start = next((n for n in made.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"), None)
    for argument in start.args.args[1:] if start else []:
        if f"self.{argument.arg} = {argument.arg}" not in source:
            yield f"it must store {argument.arg} under its own name"
        if not re.search(rf"^ +{argument.arg}: ", doc, re.M):
            yield f"its docstring does not explain {argument.arg}"


def test_every_module_has_a_test_of_its_name():
    missing = []
    for file in FILES:
        place = file.relative_to(HOME)
        if file.stem in ("__init__", "__main__", "errors", "types", "contracts", "facts") or place.parts[0] in (
            "testing",
            "configs",
        ):
            continue  # test_contracts and test_configs exercise these
        if not (ROOT / "tests" / place.parent / f"test_{file.name}").exists():
            missing.append(str(place))
    assert missing == []


def test_the_map_in_the_docs_is_true():
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    for file in FILES:
        if file.stem not in ("__init__", "__main__"):
            assert file.stem in text, f"docs/architecture.md does not name {file.relative_to(HOME)}"
    for name, layer in LAYER.items():
        if name not in ("__init__", "__main__"):
            assert re.search(rf"^{name}(\.py|/)\s+{layer}\b", text, re.M), (
                f"docs/architecture.md: {name} is not shown in layer {layer}"
            )
