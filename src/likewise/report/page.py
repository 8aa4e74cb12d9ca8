"""The page about some runs: one HTML file with everything inside, which opens anywhere and asks for nothing else."""

from __future__ import annotations

from pathlib import Path

from markupsafe import Markup

from likewise.io.files import write_aside
from likewise.io.progress import bar
from likewise.render import html
from likewise.report.blocks import said
from likewise.report.payload import first_blocks, many_blocks, pictures
from likewise.report.records import Facts, Viewed
from likewise.report.section import load_sections
from likewise.report.sprites import Sheets, sheets

ROOM = 14_500_000
"""Characters that a page may have; what its data leaves of them is for pictures."""

SHARED = ("dom.js", "blocks.js", "tiles.js", "charts.js", "colours.js", "runs.js", "answers.js", "report.js")
"""Code that sections share; that of every section follows."""


def write_page(facts: Facts, file: Path, quiet: bool = False) -> Path:
    """Write the page to `file`; it is whole or not there."""
    with bar("page", 4, quiet=quiet) as progress:
        first, most = list(first_blocks(facts)), list(many_blocks(facts))
        progress.advance()
        whole = view(facts) | {"first": first, "many": most}
        template = html.environment().get_template("report.html")
        empty = template.render(whole, sheets=Sheets(1, 1, 1, [], []), block=said)
        progress.advance()
        drawn = sheets(pictures(facts), ROOM - len(empty.encode("utf-8")))
        progress.advance()
        text = template.render(whole, sheets=drawn, block=said)
        with write_aside(file) as aside:
            aside.write_text(text, "utf-8")
        progress.advance()
    return file


def view(facts: Facts) -> dict:
    """Return what the template shows: texts, the sections that there are, and the code of all sections."""
    return {
        "facts": facts,
        "sections": [section for section in load_sections() if section.is_shown(facts)],
        "headline": [first_scores(run) for run in facts.runs],
        "style": asset("report.css"),
        "code": Markup("\n").join(map(asset, scripts())),
    }


def scripts() -> tuple[str, ...]:
    """File names of the page's code, in the order of the page."""
    return (*SHARED, *(name for section in load_sections() for name in section.code))


def asset(name: str) -> Markup:
    return Markup((html.TEMPLATES / name).read_text("utf-8"))


def first_scores(run: Viewed) -> list[tuple[str, str]]:
    """The deciding metric and two others, their numbers without intervals."""
    order = sorted(run.scores, key=lambda name: name != run.decides)
    return [(name, run.scores[name].text.split(" (")[0]) for name in order[:3]]
