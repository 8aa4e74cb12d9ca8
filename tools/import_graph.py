"""Print the import graph of `likewise`: modules, edges, cycles, the longest chain, fan-out, and the packages as a figure.

    python tools/import_graph.py                        # the counts
    python tools/import_graph.py --packages             # the packages that every package imports
    python tools/import_graph.py --tree                 # the tree in docs/architecture.md
    python tools/import_graph.py --picture docs/packages.svg

An edge is any import inside `likewise`: at the top of a file, inside a function, under TYPE_CHECKING, relative or absolute,
of a module or of a name in a package. The longest chain counts those alone that are executed when a module is imported.
"""

from __future__ import annotations

import argparse
import ast
import textwrap
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

from svg import HUES, THIRD, Drawing

HOME = Path(__file__).resolve().parent.parent / "src" / "likewise"
MAX_FAN_OUT = 15
MAX_CHAIN = 10
Graph = Mapping[str, set[str]]
Kind = Literal["top", "lazy", "type"]
KINDS: tuple[Kind, ...] = ("top", "lazy", "type")
BANDS = {
    "components": (
        "losses", "miners", "samplers", "relevance", "confidence", "terms", "noise", "models", "metrics",
        "protocols", "loggers", "adapters",
    ),
    "foundations": ("numerics", "retrieval", "distributed", "pretrained", "io", "taxonomies", "published"),
    "core": ("types", "contracts", "supervision", "similarity", "batch_checks", "durations", "errors", "_notebook", "_version"),
}  # fmt: skip
"""Packages and root modules that almost all others import: the figure shows them without arrows."""
BY_FOLDER = {
    *BANDS["components"],
    "data",
    "published",
    "recipes",
    "tables",
    "taxonomies",
    "report/sections",
    "experiments/figures",
    "stages",
    "config",
}
"""Folders that the tree names without their files, so that a new component, section or command needs no line in it."""
BELOW = {name for names in BANDS.values() for name in names} | {"__main__"}


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
    return not is_package and module != "cli.commands"


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
        f"longest chain at import time {len(chain)} (at most {MAX_CHAIN}): {' > '.join(name or 'likewise' for name in chain)}",
        f"fan-out above {MAX_FAN_OUT}: {wide or 'none'}; largest: {dict(list(sizes.items())[:5])}",
    ]
    return "\n".join(lines)


def first_line(file: Path) -> str:
    """Return the first line of a module's docstring, without its full stop."""
    return (ast.get_docstring(ast.parse(file.read_text("utf-8"))) or "").split("\n")[0].rstrip(".")


def tree_lines(home: Path = HOME, depth: int = 1) -> Iterator[str]:
    """Yield the tree of the package: every folder with its purpose, the names of its files below it.

    Files of the root have a line each. Those of `BY_FOLDER` are left out.
    """
    if home == HOME:
        yield "likewise/"
        for file in sorted(home.glob("*.py")):
            yield f"  {file.name}".ljust(20) + first_line(file)
    for folder in sorted(file.parent for file in home.glob("*/__init__.py")):
        indent = "  " * depth
        yield f"{indent}{folder.name}/".ljust(20) + first_line(folder / "__init__.py")
        if folder.relative_to(HOME).as_posix() in BY_FOLDER:
            continue
        names = [file.name for file in sorted(folder.glob("*.py")) if file.name != "__init__.py"]
        yield from textwrap.wrap(" ".join(names), 118, initial_indent=indent + "  ", subsequent_indent=indent + "  ")
        yield from tree_lines(folder, depth + 1)


def levels(graph: Graph) -> dict[str, int]:
    """Return the length of the longest path of imports below every node of an acyclic graph."""
    found: dict[str, int] = {}

    def level(name: str) -> int:
        if name not in found:
            found[name] = 1 + max((level(other) for other in graph[name]), default=-1)
        return found[name]

    for name in graph:
        level(name)
    return found


def draw_packages(packages: Graph) -> Drawing:
    """Draw the package graph. Imports point down; an arrow is drawn for each import that no longer path replaces.

    The packages of `BANDS` are listed below the graph: almost all others import them.
    """
    upper = {name: targets - BELOW for name, targets in packages.items() if name not in BELOW}
    edges, level = direct(upper), levels(upper)
    rows: dict[int, list[str]] = {}
    for name in sorted(upper):
        rows.setdefault(level[name], []).append(name)
    wide, tall, pitch = 104, 26, 66
    drawing = Drawing(760, len(rows) * pitch + 34 * len(BANDS) + 14, "packages of likewise and their imports")
    place: dict[str, tuple[float, float]] = {}
    for row, names in sorted(rows.items()):
        names.sort(key=lambda n: sum(place[t][0] for t in edges[n]) / max(1, len(edges[n])))
        step = drawing.width / len(names)
        for number, name in enumerate(names):
            place[name] = (number + 0.5) * step, (len(rows) - 1 - row) * pitch + 10
    for name, targets in edges.items():
        for target in sorted(targets):
            (x, y), (to_x, to_y) = place[name], place[target]
            drawing.line([(x, y + tall), (to_x, to_y)], HUES[level[name] % len(HUES)], 1.4, opacity="0.7")
    for name, (x, y) in place.items():
        colour = HUES[level[name] % len(HUES)]
        drawing.box(x - wide / 2, y, wide, tall, colour, rx="6", opacity="0.2")
        drawing.box(x - wide / 2, y, wide, tall, "none", rx="6", stroke=colour, stroke_width="1.4")
        drawing.write(x, y + 17, name or "likewise", 12, "middle", font_weight="600")
    for number, (title, names) in enumerate(BANDS.items()):
        y = len(rows) * pitch + 34 * number + 4
        drawing.box(6, y, drawing.width - 12, 28, THIRD, rx="6", opacity="0.12")
        drawing.write(16, y + 18, title, 11.5, font_weight="600")
        drawing.write(112, y + 18, "  ".join(names), 10.5)
    return drawing


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--packages", action="store_true", help="print the packages that every package imports")
    parser.add_argument("--tree", action="store_true", help="print the tree of the package")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="draw the package graph as SVG")
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> None:
    asked = parse(words)
    graph = import_graph()
    packages = package_graph(graph)
    if asked.packages:
        for name, targets in sorted(packages.items()):
            print(f"| `{name or 'likewise'}` | {' '.join(f'`{target}`' for target in sorted(targets)) or '-'} |")
    if asked.tree:
        print("\n".join(tree_lines()))
    if asked.picture:
        asked.picture.write_text(draw_packages(packages).text, "utf-8")
    if not (asked.packages or asked.tree or asked.picture):
        print(report(graph))


if __name__ == "__main__":
    main()
