"""Build the documentation as a site that works offline: python tools/docs.py [--out site] [--figures [COMPONENT ...]]

The component pages are generated from the docstrings first, the coverage page from coverage.toml, and the table of losses in
docs/relevance.md from their contracts. `--figures` draws all
figures again, which takes half a minute; `--figures Circle` draws the figures of the named components only.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Collection, Sequence
from pathlib import Path

from component_pages import pages

from likewise.core.settings.spec import find
from likewise.papers.published import papers
from likewise.papers.published.coverage import STATUS_NAMES, STATUS_SIGNS, Covered, coverage, status_counts, title

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "components"


COVERAGE_NOTE = "<!-- Made from src/likewise/papers/published/coverage.toml by tools/docs.py; change that. -->"
COVERAGE_HEAD = """# Coverage of the papers

After this page you know, for every section, table, figure and equation of the five papers that `likewise` follows, which command
runs it, which files define it, and whether it is what the paper states. Of four papers only the supplement was available to us;
what only their main text states is known from public code.

- ✓ **faithful**: what the paper states; where print and public code differ, the remark names what runs.
- ≈ **deviates**: otherwise, and how. Tables mark numbers of other trainings with a † ([tables](tables.md)), and state in a note
  which epoch they are of.
- ✕ **cannot**: not possible, and why.

`likewise list tables` prints the tables and figures, `likewise bench --list` their names and which have a variant as printed
(`:print`). A `bench` needs `--root FOLDER` with the data, or `--quick` for a small
test. Misprints, and components that differ from their paper on purpose, are in
[losses](losses.md#differences-from-papers-and-public-code).
"""

BEGIN, END = "<!-- losses begin -->", "<!-- losses end -->"
"""Lines around the table in the page."""

TAKES = {"pairs": "pairs", "targets": "several labels or soft targets for proxies", "triplets": "judged triplets"}
"""Input of a relevance -> words of the table."""


def write_pages() -> None:
    for name, text in pages().items():
        (FOLDER / name).write_text(text, "utf-8")
    (ROOT / "docs" / "coverage.md").write_text(coverage_page(), "utf-8")
    relevance = ROOT / "docs" / "relevance.md"
    if relevance.exists():
        relevance.write_text(with_table(relevance.read_text("utf-8")), "utf-8")


def coverage_page() -> str:
    """Return docs/coverage.md: the counts, and one table per paper."""
    keys = dict.fromkeys(one.paper for one in coverage())
    heads = [f"{STATUS_SIGNS[name]} {name}" for name in STATUS_NAMES]
    lines = [
        COVERAGE_NOTE,
        "",
        COVERAGE_HEAD,
        f"| paper | {' | '.join(heads)} | all |",
        f"|---|{'---:|' * (len(heads) + 1)}",
    ]
    lines += [counts(f"[{key}](#{key})", status_counts(key)) for key in keys]
    lines += [counts("all", status_counts()), ""]
    for key in keys:
        lines += [
            f"## {key}",
            "",
            f"{title(papers()[key])}.",
            "",
            "| | where | what | command, files |",
            "|---|---|---|---|",
        ]
        lines += [line(one) for one in coverage() if one.paper == key] + [""]
    return "\n".join(lines)


def counts(name: str, found: dict[str, int]) -> str:
    """Return the counts of a paper as a line of a Markdown table."""
    return f"| {name} | {' | '.join(map(str, found.values()))} | {sum(found.values())} |"


def line(one: Covered) -> str:
    """Return an item as a line of a Markdown table."""
    remark = one.remark and f"<small>{one.remark}</small>"
    remark = remark if one.status == "faithful" else f"**{one.status}**: {one.remark}"
    files = ", ".join(f"[{Path(name).name}](../src/likewise/{name})" for name in one.files)
    cells = [STATUS_SIGNS[one.status], one.where, [one.what, remark], [one.command and f"`{one.command}`", files]]
    texts = ["<br>".join(filter(None, cell)) if isinstance(cell, list) else cell for cell in cells]
    return f"| {' | '.join(text.replace('|', chr(92) + '|') for text in texts)} |"


def relevance_table() -> str:
    """Return one row per loss: what it takes, and whether it uses the value or a threshold."""
    lines = ["| loss | takes | how |", "|---|---|---|"]
    for name, loss in find("losses").items():
        takes = ", ".join(TAKES[one] for one in loss.relevance_inputs) or "-"
        how = "the value" if loss.graded else "the threshold" if loss.relevance_inputs else "single labels only"
        lines.append(f"| [{name}](components/losses.md#{name.lower()}) | {takes} | {how} |")
    return "\n".join(lines)


def with_table(page: str) -> str:
    """Return docs/relevance.md with the table of losses between its two marks."""
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n\n{relevance_table()}\n\n{END}{after}"


def write_figures(only: Collection[str] = ()) -> None:
    """Draw the figures of the flow, the metrics and all components, or of the named components only."""
    from component_figures import DRAW, WITHOUT_FIGURE, draw_flow, draw_metrics

    from likewise.cli.listing import REGISTRIES

    for old in FOLDER.glob("*.svg") if not only else ():
        old.unlink()
    (ROOT / "docs" / "flow.svg").write_text(draw_flow().text, "utf-8")
    (FOLDER / "metrics.svg").write_text(draw_metrics().text, "utf-8")
    for registry, draw in DRAW.items():
        for name in find(REGISTRIES[registry]):
            if name not in WITHOUT_FIGURE and (not only or name in only):
                (FOLDER / f"{registry}-{name.lower()}.svg").write_text(draw(name).text, "utf-8")


def build(out: Path) -> None:
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    logging.basicConfig(format="docs: %(levelname)s %(message)s")
    config = load_config(str(ROOT / "mkdocs.yml"), strict=True, site_dir=str(out))
    config.plugins.on_startup(command="build", dirty=False)
    try:
        build(config)
    finally:
        config.plugins.on_shutdown()


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    flags = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    flags.add_argument("--out", type=Path, default=ROOT / "site", help="folder of the site")
    flags.add_argument(
        "--figures", nargs="*", metavar="COMPONENT", help="draw figures again: all, or of these components"
    )
    return flags.parse_args(words)


def main(words: Sequence[str] | None = None) -> None:
    options = parse(words)
    if options.figures is not None:
        write_figures(options.figures)
    write_pages()
    try:
        build(options.out)
    except ImportError as error:
        sys.exit(f'docs: mkdocs-material must be installed ({error}); pip install "likewise[docs]"')
    print(f"open {options.out / 'index.html'}")


if __name__ == "__main__":
    main()
