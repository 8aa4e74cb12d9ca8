"""Build the documentation as a site that works offline: python tools/docs.py [--out site] [--figures [COMPONENT ...]]

The component pages are generated from the docstrings first, and the coverage page from coverage.toml. `--figures` draws all
figures again, which takes half a minute; `--figures Circle` draws the figures of the named components only.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Collection, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "components"


def write_pages() -> None:
    from component_pages import pages
    from coverage_page import page
    from relevance_table import with_table

    for name, text in pages().items():
        (FOLDER / name).write_text(text, "utf-8")
    (ROOT / "docs" / "coverage.md").write_text(page(), "utf-8")
    relevance = ROOT / "docs" / "relevance.md"
    if relevance.exists():
        relevance.write_text(with_table(relevance.read_text("utf-8")), "utf-8")


def write_figures(only: Collection[str] = ()) -> None:
    """Draw the figures of the flow, the metrics and all components, or of the named components only."""
    from component_figures import DRAW, WITHOUT_FIGURE, draw_metrics
    from flow_picture import draw_flow

    from likewise.cli.listing import REGISTRIES
    from likewise.core.settings.spec import find

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
