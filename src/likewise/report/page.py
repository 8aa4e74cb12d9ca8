"""Write the report page: one HTML file with all scripts, data and images inside."""

from __future__ import annotations

from pathlib import Path

from markupsafe import Markup

from likewise.core.files import write_text
from likewise.core.progress import bar
from likewise.core.render import html
from likewise.report.blocks import json_block
from likewise.report.payload import first_blocks, large_blocks, page_images
from likewise.report.records import Facts, RunView
from likewise.report.section import load_sections
from likewise.report.sprites import Sheets, make_sheets

MAX_PAGE_CHARACTERS = 14_500_000
"""Largest size of a page; images get the characters that the data leaves."""

SHARED_SCRIPTS = ("dom.js", "blocks.js", "tiles.js", "charts.js", "colours.js", "runs.js", "answers.js", "report.js")
"""Scripts that all sections use, in the order of the page; the scripts of the sections follow."""


def write_page(facts: Facts, file: Path, quiet: bool = False) -> Path:
    """Write the page to `file` atomically and return the path."""
    with bar("page", 4, quiet=quiet) as progress:
        first, large = list(first_blocks(facts)), list(large_blocks(facts))
        progress.advance()
        context = page_context(facts) | {"first": first, "large": large}
        template = html.environment().get_template("report.html")
        empty = template.render(context, sheets=Sheets(1, 1, 1, [], []), block=json_block)
        progress.advance()
        sheets = make_sheets(page_images(facts), MAX_PAGE_CHARACTERS - len(empty.encode("utf-8", "backslashreplace")))
        progress.advance()
        text = template.render(context, sheets=sheets, block=json_block)
        write_text(file, text)
        progress.advance()
    return file


def page_context(facts: Facts) -> dict:
    """Return the variables of the template: the facts, the sections that are shown, the style and all scripts."""
    shown = [section.worded(facts) for section in load_sections() if section.is_shown(facts)]
    folded = [section for section in shown if section.folded]
    return {
        "facts": facts,
        "sections": [section for section in shown if not section.folded] + folded,
        "headline": [headline_scores(run) for run in facts.runs],
        "summary": summary_of(facts),
        "folded": folded,
        "style": asset("report.css"),
        "code": Markup("\n").join(map(asset, scripts())),
    }


def scripts() -> tuple[str, ...]:
    """Return the file names of the scripts in the order of the page."""
    return (*SHARED_SCRIPTS, *(name for section in load_sections() for name in section.code))


def asset(name: str) -> Markup:
    """Return the text of a file among the templates, without escaping."""
    return Markup((html.TEMPLATES / name).read_text("utf-8"))


def summary_of(facts: Facts) -> list[str]:
    """Return what the page shows in a few sentences: the comparisons of runs, or the score of a run before and after training."""
    compared = [one.conclusion for one in facts.found.get("compared", ())]
    if compared:
        return compared
    found = []
    for run in facts.runs:
        if (score := run.scores.get(run.main_metric)) is None:
            continue
        name = f"{run.name}: " if len(facts.runs) > 1 else ""
        before = run.before.get(run.main_metric)
        found.append(
            f"{name}{run.main_metric} {score.text}" + (f"; before training {before.text}" if before else "") + "."
        )
    return found


def headline_scores(run: RunView) -> list[tuple[str, str]]:
    """Return name and value, without its interval, of the main metric and two others."""
    order = sorted(run.scores, key=lambda name: name != run.main_metric)
    return [(name, run.scores[name].text.split(" (")[0]) for name in order[:3]]
