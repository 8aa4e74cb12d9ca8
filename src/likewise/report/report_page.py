"""Write the report page: one HTML file with all scripts, data and images inside."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from markupsafe import Markup
from PIL import Image

from likewise.core.files import write_text
from likewise.core.progress import bar
from likewise.core.render import html
from likewise.report.blocks import Block, array_block, index_dtype, json_block
from likewise.report.section import Facts, Packing, Pool, RunView, Section, load_sections
from likewise.report.thumbnails import Sheets, make_sheets

MAX_PAGE_CHARACTERS = 14_500_000
"""Largest size of a page; images get the characters that the data leaves."""

SHARED_SCRIPTS = ("dom.js", "blocks.js", "tiles.js", "charts.js", "colours.js", "runs.js", "answers.js", "report.js")
"""Scripts that all sections use, in the order of the page; the scripts of the sections follow."""

MAX_CAPTION_LETTERS = 2_000_000
"""Largest total length of the captions of a pool; above it, only samples with an image keep their caption."""


def write_page(facts: Facts, file: Path, quiet: bool = False) -> Path:
    """Write the page to `file` atomically and return the path."""
    with bar("page", 4, quiet=quiet) as progress:
        blocks, images = pack_page(facts)
        progress.advance()
        context = page_context(facts) | {"blocks": blocks}
        template = html.environment().get_template("report.html")
        empty = template.render(context, sheets=Sheets(1, 1, 1, [], []), block=json_block)
        progress.advance()
        sheets = make_sheets(images, MAX_PAGE_CHARACTERS - len(empty.encode("utf-8", "backslashreplace")))
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


def pack_page(facts: Facts) -> tuple[list[Block], list[Image.Image]]:
    """Return the blocks of a page, and all images of the page, to which the blocks refer by their index.

    The page reads the block `facts` at once; the block `more` has the data of the other sections; large arrays follow.
    """
    first, more, images = [], [], []
    for run in facts.runs:
        about = {"name": run.name, "pool": run.pool, "main_metric": run.main_metric, "similarity": run.similarity}
        about |= {"suspects": run.suspects} if run.suspects else {}
        first.append(about)
        more.append({})
        for section in load_sections():
            if section.name in run.found:
                packed = pack(section, run.found[section.name], Packing(facts, run, images))
                (first if section.is_first else more)[-1][section.name] = packed
    slots = []
    for pool in facts.pools:
        slots.append({place: len(images) + i for i, place in enumerate(pool.images)})
        images += pool.images.values()
    whole = {
        section.name: pack(section, facts.found[section.name], Packing(facts))
        for section in load_sections()
        if section.name in facts.found
    }
    small = (
        json_block("facts", {"runs": first, "pools": [pool_names(pool) for pool in facts.pools]}),
        json_block("more", {"slots": slots, "runs": more, **whole}),
    )
    return [*small, *large_blocks(facts)], images


def pack(section: Section, value: object, packing: Packing) -> object:
    """Return the value of a section as its `pack` function converts it."""
    return value if section.pack is None else section.pack(value, packing)


def large_blocks(facts: Facts) -> Iterator[Block]:
    """Yield labels, rows and captions of the pools, then the blocks of sections."""
    for number, pool in enumerate(facts.pools):
        if any("map" in run.found for run in facts.runs if run.pool == number) or pool.images:
            yield array_block(f"label-{number}", pool.label.astype(index_dtype(len(pool.class_name))))
            if not np.array_equal(pool.row, np.arange(len(pool.row))):  # otherwise the row is the place
                yield array_block(f"row-{number}", pool.row.astype(np.int32))
            yield json_block(f"caption-{number}", captions(pool))
    for section in load_sections():
        if section.blocks is not None:
            yield from section.blocks(facts)


def pool_names(pool: Pool) -> dict:
    """Return the names of a pool, of its classes, of its groupings and of its labels, for the block `facts`."""
    groupings = [{"name": one.name, "names": one.names, "of": one.of_class} for one in pool.groupings]
    several = {} if pool.label_sets is None else {"labels": {"names": pool.label_name, "sets": pool.label_sets}}
    return {
        "name": pool.name,
        "split": pool.split,
        "n": len(pool.row),
        "classes": pool.class_name,
        "groupings": groupings,
        **several,
    }


def captions(pool: Pool) -> dict[int, str] | list[str]:
    """Return the caption of every place; only of places with an image if all captions are too long."""
    if pool.caption is None:
        return []
    if sum(map(len, pool.caption)) <= MAX_CAPTION_LETTERS:
        return list(pool.caption)
    return {place: pool.caption[place] for place in pool.images}
