"""Print the import graph of `likewise`: rooms, modules, edges, cycles, and imports against the order of the rooms.

    python tools/import_graph.py           # the counts
    python tools/import_graph.py --rooms   # the rooms that every room imports
    python tools/import_graph.py --tree    # the tree in docs/architecture.md

An edge is any import inside `likewise`: at the top of a file, inside a function, under TYPE_CHECKING, relative or absolute,
of a module or of a name in a package.
"""

from __future__ import annotations

import argparse
import ast
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

HOME = Path(__file__).resolve().parent.parent / "src" / "likewise"
Graph = Mapping[str, set[str]]
ROOMS = (
    "core", "models", "data", "labels", "runs", "score", "learn", "curate", "deploy", "report", "papers", "testing", "cli",
)  # fmt: skip
"""The packages of likewise; each may import the packages before it."""
LISTED = {
    "losses",
    "miners",
    "samplers",
    "confidence",
    "terms",
    "noise",
    "protocols",
    "relevance",
    "recipes",
}
"""Folders that the tree names without their files, which are alike."""


def module_name(file: Path, home: Path = HOME) -> str:
    """Dotted name of a file without the leading `likewise`; the package's own file is "" or the package's name."""
    parts = list(file.relative_to(home).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(file: Path, home: Path = HOME) -> Iterator[tuple[str, str]]:
    """Yield (module, name) of every import of `likewise` in a file; the name is "" for `import likewise.x`."""
    folder = file.relative_to(home).parent.parts
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
            yield from ((name.partition(".")[2], "") for name in names if name.split(".")[0] == "likewise")
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                module = ".".join([*folder[: len(folder) - node.level + 1], *([node.module] if node.module else [])])
            elif node.module and node.module.split(".")[0] == "likewise":
                module = node.module.partition(".")[2]
            else:
                continue
            yield from ((module, alias.name) for alias in node.names)


def import_graph(home: Path = HOME) -> dict[str, set[str]]:
    """Return the modules that every module imports. `from package import name` is an edge to the module `name`, if it is one."""
    files = {module_name(file, home): file for file in sorted(home.rglob("*.py"))}
    graph: dict[str, set[str]] = {}
    for name, file in files.items():
        graph[name] = set()
        for module, member in imported(file, home):
            inner = f"{module}.{member}" if module else member
            target = inner if inner in files else module
            if target in files and target != name:
                graph[name].add(target)
    return graph


def room_of(module: str) -> str:
    """First part of a module's name: its room, or the root module itself."""
    return module.split(".")[0]


def room_graph(graph: Graph) -> dict[str, set[str]]:
    """Return the rooms that every room imports."""
    found: dict[str, set[str]] = {room: set() for room in ROOMS}
    for module, targets in graph.items():
        if (room := room_of(module)) in found:
            found[room] |= {room_of(target) for target in targets} & set(ROOMS) - {room}
    return found


def upward_imports(graph: Graph) -> list[str]:
    """Return the imports of a room that comes later. The root modules, which list all others, may import any."""
    place = {room: number for number, room in enumerate(ROOMS)}
    edges = ((module, target) for module, targets in graph.items() for target in targets)
    return sorted(
        f"{module} imports {target}"
        for module, target in edges
        if room_of(module) in place and place.get(room_of(target), 0) > place[room_of(module)]
    )


def cycles(graph: Graph) -> list[list[str]]:
    """Return the strongly connected components with more than one node (Tarjan's algorithm)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for target in sorted(graph[node]):
            if target not in index:
                visit(target)
                low[node] = min(low[node], low[target])
            elif target in stack:
                low[node] = min(low[node], index[target])
        if low[node] == index[node]:
            at = stack.index(node)
            group, stack[at:] = stack[at:], []
            if len(group) > 1:
                found.append(sorted(group))

    for node in graph:
        if node not in index:
            visit(node)
    return found


def entries(home: Path = HOME) -> set[str]:
    """Return the names at the top of the package; folders that an older checkout left empty do not count."""
    return {file.relative_to(home).parts[0] for file in home.rglob("*.py")}


def report(graph: Graph, home: Path = HOME) -> str:
    """Return the counts as text."""
    lines = sum(len(file.read_text("utf-8").splitlines()) for file in home.rglob("*.py"))
    return "\n".join([
        f"entries {len(entries(home))}",
        f"modules {len(graph)}, lines {lines}, imports {sum(map(len, graph.values()))}",
        f"cycles between modules: {cycles(graph) or 'none'}",
        f"imports of a later room: {upward_imports(graph) or 'none'}",
    ])  # fmt: skip


def first_line(file: Path) -> str:
    """Return the first line of a module's docstring, without its full stop."""
    return (ast.get_docstring(ast.parse(file.read_text("utf-8"))) or "").split("\n")[0].rstrip(".")


def tree_lines(folder: Path = HOME, depth: int = 1) -> Iterator[str]:
    """Yield the tree of the package: every folder with its purpose, the names of its files below it."""
    inner = [file.parent for file in sorted(folder.glob("*/__init__.py"))]
    if folder == HOME:
        yield "likewise/"
        inner.sort(key=lambda room: ROOMS.index(room.name))
    for room in inner:
        indent = "  " * depth
        yield f"{indent}{room.name}/".ljust(20) + first_line(room / "__init__.py")
        if room.name not in LISTED:
            names = " ".join(file.name for file in sorted(room.glob("*.py")) if file.name != "__init__.py")
            yield from textwrap.wrap(names, 118, initial_indent=indent + "  ", subsequent_indent=indent + "  ")
            yield from tree_lines(room, depth + 1)


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rooms", action="store_true", help="print the rooms that every room imports")
    parser.add_argument("--tree", action="store_true", help="print the tree of the package")
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> None:
    asked = parse(words)
    graph = import_graph()
    if asked.rooms:
        for room, targets in room_graph(graph).items():
            print(f"{room}: {' '.join(sorted(targets, key=ROOMS.index)) or '-'}")
    if asked.tree:
        print("\n".join(tree_lines()))
    if not (asked.rooms or asked.tree):
        print(report(graph))


if __name__ == "__main__":
    main()
