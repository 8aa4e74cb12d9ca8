"""The report: one HTML page about runs and embedding files."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from pathlib import Path

from likewise._version import __version__
from likewise.core.errors import LikewiseError, print_text, printable
from likewise.core.files import check_output_path
from likewise.core.notebook import view
from likewise.core.settings import Report, check
from likewise.report import projection
from likewise.report.images import add_images
from likewise.report.page import write_page
from likewise.report.pools import key_of, make_pool, note_different_queries
from likewise.report.records import Facts
from likewise.report.run_analysis import analyse_run
from likewise.report.section import Studies, load_sections
from likewise.report.slow_maps import add_slow_map, slow_map
from likewise.report.targets import open_target, unique_names


@dataclass(frozen=True)
class Page:
    """An HTML page on disk, which a notebook shows as a link."""

    path: Path

    def __fspath__(self) -> str:
        return str(self.path)

    def __str__(self) -> str:
        return str(self.path)

    @view
    def _repr_html_(self) -> str:
        return f'<div>page: <a href="{escape(self.path.as_posix())}">{escape(str(self.path))}</a></div>'


def report(config: Report, say: Callable[[str], None] = print) -> Page:
    """Analyse the runs and embedding files in `config.runs`, write the page and return it.

    If a t-SNE or UMAP map is due, the page is written twice: first with the PCA map, then with both.
    """
    check(config)
    if not config.runs:
        raise LikewiseError("report: at least one run folder must be given, got none; `likewise report runs/mine`")
    if config.map in projection.REQUIRED_LIBRARIES:
        projection.require_library(config.map)  # fail before slow work
    page = page_path(config)
    facts = collect_facts(config, say)
    for name, note in ((run.name, note) for run in facts.runs for note in run.notes):
        say(printable(f"{name}: {note}", keep="\n"))
    file = write_page(facts, page, config.quiet)
    slow = [way for view in facts.runs if (way := slow_map(view, config))]
    if not slow:
        return Page(file)
    say(f"page: {file} (with the PCA map until {slow[0]} is computed)")
    runs = tuple(add_slow_map(target, view, config) for target, view in zip(config.runs, facts.runs, strict=True))
    return Page(write_page(dataclasses.replace(facts, runs=runs), file, config.quiet))


def page_path(config: Report) -> Path:
    """Return the path of the page: `config.out`, or report.html in the folder of a single run or in the current folder."""
    if config.out:
        return check_output_path(config.out, ".html", "report")
    only = Path(config.runs[0]).expanduser()
    return (only if len(config.runs) == 1 and only.is_dir() else Path()) / "report.html"


def collect_facts(config: Report, say: Callable[[str], None]) -> Facts:
    """Analyse the targets one after another, so that memory holds the embeddings of one, then all of them together."""
    studies = study_targets(config, say)
    found = {}
    for section in load_sections():
        value = section.of_page(studies) if section.of_page else None
        if value:
            found[section.name] = value
    pools = add_images(studies, found.get("compared", ()), say)
    made = f"likewise {__version__}: {shlex.join(['likewise', 'report', *config.runs])}"
    title = ", ".join(dict.fromkeys(pool.name for pool in pools)) or ", ".join(view.name for view in studies.views)
    return Facts(title, tuple(studies.views), tuple(pools), found, tuple(studies.notes), made)


def study_targets(config: Report, say: Callable[[str], None]) -> Studies:
    """Open and analyse every target. Embeddings are released after the analysis of their target."""
    targets, views, pools, data = [], [], {}, {}
    for target, name in zip(config.runs, unique_names(config.runs), strict=True):
        one = open_target(target, name, config, data, say)
        key = None if one.items is None else key_of(one)
        if key is not None and key not in pools:
            pools[key] = make_pool(one)
        number = -1 if key is None else list(pools).index(key)
        views.append(analyse_run(one, number, pools.get(key), config))
        targets.append(
            one if one.items is None else dataclasses.replace(one, items=dataclasses.replace(one.items, x=None))
        )
    return Studies(targets, views, list(pools.values()), config, list(note_different_queries(list(pools), views)))


def show_page(page: Page, config: Report) -> None:
    """Print the path of the page."""
    print_text(f"page: {page}")
