"""report: runs and embeddings -> one HTML page about them, which opens anywhere."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Callable
from pathlib import Path

from likewise._version import __version__
from likewise.config import Report, check
from likewise.errors import LikewiseError, printable
from likewise.io.files import check_out
from likewise.report import projection
from likewise.report.page import write_page
from likewise.report.pictures import add_pictures
from likewise.report.pools import asked_apart, key_of, make_pool
from likewise.report.records import Facts
from likewise.report.run_analysis import view
from likewise.report.section import Studies, load_sections
from likewise.report.slow_maps import add_slow_map, slow_map
from likewise.report.targets import open_target, tell_apart


def report(config: Report, say: Callable[[str], None] = print) -> Path:
    """Find out everything about what is named, and write the page."""
    check(config)
    if not config.runs:
        raise LikewiseError("report: at least one run folder must be named, got none; `likewise report runs/mine`")
    if config.map in projection.NEEDS:
        projection.must_have(config.map)  # before anything that takes long
    facts = find_facts(config, say)
    for name, note in ((seen.name, note) for seen in facts.runs for note in seen.notes):
        say(printable(f"{name}: {note}", keep="\n"))
    file = write_page(facts, place_of(config), config.quiet)
    slow = [way for seen in facts.runs if (way := slow_map(seen, config))]
    if not slow:
        return file
    say(f"page: {file} (its map by PCA until {slow[0]} is drawn)")
    runs = tuple(add_slow_map(target, seen, config) for target, seen in zip(config.runs, facts.runs, strict=True))
    return write_page(dataclasses.replace(facts, runs=runs), file, config.quiet)


def place_of(config: Report) -> Path:
    """Where the page goes: where it is wanted, into the folder of a single run, or here."""
    if config.out:
        return check_out(config.out, ".html", "report")
    only = Path(config.runs[0]).expanduser()
    return (only if len(config.runs) == 1 and only.is_dir() else Path()) / "report.html"


def find_facts(config: Report, say: Callable[[str], None]) -> Facts:
    """Study one target after another, so that the embeddings of one alone are in memory, then all of them together."""
    studies = study_all(config, say)
    found = {}
    for section in load_sections():
        value = section.of_page(studies) if section.of_page else None
        if value:
            found[section.name] = value
    pools = add_pictures(studies, found.get("compared", ()), say)
    made = f"likewise {__version__}: {shlex.join(['likewise', 'report', *config.runs])}"
    title = ", ".join(dict.fromkeys(pool.name for pool in pools)) or ", ".join(seen.name for seen in studies.viewed)
    return Facts(title, tuple(studies.viewed), tuple(pools), found, tuple(studies.notes), made)


def study_all(config: Report, say: Callable[[str], None]) -> Studies:
    """Open every target and find what its sections show; its embeddings are not kept."""
    opened, viewed, pools, data = [], [], {}, {}
    for target, name in zip(config.runs, tell_apart(config.runs), strict=True):
        one = open_target(target, name, config, data, say)
        key = None if one.items is None else key_of(one)
        if key is not None and key not in pools:
            pools[key] = make_pool(one)
        number = -1 if key is None else list(pools).index(key)
        viewed.append(view(one, number, pools.get(key), config))
        opened.append(
            one if one.items is None else dataclasses.replace(one, items=dataclasses.replace(one.items, x=None))
        )
    return Studies(opened, viewed, list(pools.values()), config, list(asked_apart(list(pools), viewed)))
