"""Print the import graph of `likewise`: modules, edges, cycles, the longest chain, fan-out, and the packages as a picture.

    python tools/import_graph.py                        # the counts
    python tools/import_graph.py --packages             # the packages that every package imports
    python tools/import_graph.py --dot                  # the package graph in Graphviz's language

An edge is any import inside `likewise`: at the top of a file, inside a function, under TYPE_CHECKING, relative or absolute,
of a module or of a name in a package. The longest chain counts those alone that are executed when a module is imported.
"""

from __future__ import annotations

import argparse
import ast
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Literal

HOME = Path(__file__).resolve().parent.parent / "src" / "likewise"
MAX_FAN_OUT = 15
MAX_CHAIN = 10
Graph = Mapping[str, set[str]]
Kind = Literal["top", "lazy", "type"]
KINDS: tuple[Kind, ...] = ("top", "lazy", "type")


def module_name(file: Path, home: Path = HOME) -> str:
    """Dotted name of a file without the leading `likewise`; the package's own file is "" or the package's name."""
    parts = list(file.relative_to(home).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(tree: ast.AST, kind: Kind = "top") -> Iterator[tuple[ast.Import | ast.ImportFrom, Kind]]:
    """Yield every import of a syntax tree and when it is executed: with the module, in a call ("lazy"), or never ("type")."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node, kind
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from imports_of(node, "lazy")
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            yield from imports_of(node, "type")
        else:
            yield from imports_of(node, kind)


def imported(file: Path, home: Path = HOME, kinds: Collection[Kind] = KINDS) -> Iterator[tuple[str, str]]:
    """Yield (module, name) of every import of `likewise` in a file; the name is "" for `import likewise.x`."""
    folder = file.relative_to(home).parent.parts
    for node, kind in imports_of(ast.parse(file.read_text("utf-8"))):
        if kind not in kinds:
            continue
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
            yield from ((name.partition(".")[2], "") for name in names if name.split(".")[0] == "likewise")
            continue
        if node.level:
            module = ".".join([*folder[: len(folder) - node.level + 1], *([node.module] if node.module else [])])
        elif node.module and node.module.split(".")[0] == "likewise":
            module = node.module.partition(".")[2]
        else:
            continue
        yield from ((module, alias.name) for alias in node.names)


def import_graph(home: Path = HOME, kinds: Collection[Kind] = KINDS) -> dict[str, set[str]]:
    """Return the modules that every module imports. `from package import name` is an edge to the module `name`, if it is one.

    Args:
        kinds: which imports count: "top" (executed with the module), "lazy" (in a call), "type" (never executed).
    """
    files = {module_name(file, home): file for file in sorted(home.rglob("*.py"))}
    graph: dict[str, set[str]] = {}
    for name, file in files.items():
        graph[name] = set()
        for module, member in imported(file, home, kinds):
            inner = f"{module}.{member}" if module else member
            target = inner if inner in files else module
            if target in files and target != name:
                graph[name].add(target)
    return graph


def package_of(module: str) -> str:
    """First part of a module's name: its package, or the root module itself."""
    return module.split(".")[0]


def package_graph(graph: Graph) -> dict[str, set[str]]:
    """Return the packages (and root modules) that every package imports."""
    found: dict[str, set[str]] = {package_of(module): set() for module in graph}
    for module, targets in graph.items():
        found[package_of(module)] |= {package_of(target) for target in targets} - {package_of(module)}
    return found


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


def longest_chain(graph: Graph) -> list[str]:
    """Return the longest path of imports, from importer to imported. Edges inside a cycle are left out."""
    together = {node: number for number, group in enumerate(cycles(graph)) for node in group}
    best: dict[str, list[str]] = {}

    def chain(node: str) -> list[str]:
        if node not in best:
            own = together.get(node)
            next_ones = [t for t in graph[node] if own is None or together.get(t) != own]
            best[node] = [node, *max((chain(t) for t in sorted(next_ones)), key=len, default=[])]
        return best[node]

    return max((chain(node) for node in graph), key=len)


def is_counted(module: str, graph: Graph) -> bool:
    """Whether the fan-out limit holds for a module: not for packages' own files and the command line, which list others."""
    is_package = any(other.startswith(f"{module}.") for other in graph) or module == ""
    return not is_package and module not in ("commands", "cli.commands")


def fan_out(graph: Graph) -> dict[str, int]:
    """Return the number of imports of every counted module, largest first."""
    sizes = {module: len(targets) for module, targets in graph.items() if is_counted(module, graph)}
    return dict(sorted(sizes.items(), key=lambda pair: (-pair[1], pair[0])))


def direct(graph: Graph) -> dict[str, set[str]]:
    """Return the edges of an acyclic graph that no longer path replaces (its transitive reduction)."""
    reach: dict[str, set[str]] = {}

    def below(node: str) -> set[str]:
        if node not in reach:
            reach[node] = set(graph[node]).union(*(below(t) for t in graph[node]))
        return reach[node]

    return {
        node: {t for t in targets if not any(t in below(o) for o in targets - {t})} for node, targets in graph.items()
    }


def report(graph: Graph, home: Path = HOME) -> str:
    """Return the counts as text."""
    packages, sizes = package_graph(graph), fan_out(graph)
    chain = longest_chain(import_graph(home, kinds=("top",)))
    wide = {module: size for module, size in sizes.items() if size > MAX_FAN_OUT}
    lines = [
        f"modules {len(graph)}, edges {sum(map(len, graph.values()))}",
        f"root modules {len(list(home.glob('*.py')))}",
        f"cycles between modules: {cycles(graph) or 'none'}",
        f"cycles between packages: {cycles(packages) or 'none'}",
        f"longest chain of imports at import time {len(chain)} (at most {MAX_CHAIN}): {' > '.join(name or 'likewise' for name in chain)}",
        f"fan-out above {MAX_FAN_OUT}: {wide or 'none'}; largest: {dict(list(sizes.items())[:5])}",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--packages", action="store_true", help="print the packages that every package imports")
    parser.add_argument("--dot", action="store_true", help="print the package graph for Graphviz")
    parser.add_argument("--home", type=Path, default=HOME, help="the package's folder")
    arguments = parser.parse_args()
    graph = import_graph(arguments.home)
    packages = package_graph(graph)
    if arguments.packages:
        for name, targets in sorted(packages.items()):
            print(f"{name or 'likewise'}: {' '.join(sorted(targets))}")
    elif arguments.dot:
        edges = [f'  "{a or "likewise"}" -> "{b}";' for a, targets in direct(packages).items() for b in sorted(targets)]
        print("\n".join(["digraph likewise {", *edges, "}"]))
    else:
        print(report(graph, arguments.home))


if __name__ == "__main__":
    main()
