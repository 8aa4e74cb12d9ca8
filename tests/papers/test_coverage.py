"""Coverage of the papers: every entry is whole, its command parses, its files exist, and nothing printed or shipped is left."""

import re
import runpy
import shlex
import sys
from importlib.resources import files
from pathlib import Path
from types import SimpleNamespace

import pytest

from likewise.cli import main as cli
from likewise.papers.grid import cells, chosen, names_with_print, read_grid, table_names
from likewise.papers.grid_plan import by_source
from likewise.papers.published import papers
from likewise.papers.published.coverage import STATUS_NAMES, PaperListing, coverage, show_papers, status_counts, title

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import docs  # noqa: E402


def test_every_entry_is_whole(subtests):
    for one in coverage():
        with subtests.test(f"{one.paper} {one.where}: {one.what}"):
            assert one.paper in papers() and one.where and one.what and one.status in STATUS_NAMES
            assert (one.status == "cannot") == bool(one.why), "cannot needs a why, and only that"
            assert one.status != "deviates" or one.how, "deviates needs a how"
            assert one.status == "cannot" or one.command, "what can be had needs a command"
            assert "pending" not in (one.how, one.why)
            for text in (one.what, one.how, one.why):
                assert not text.endswith(".") and "  " not in text


def test_no_table_or_figure_is_listed_twice():
    printed = [(one.paper, one.where) for one in coverage() if one.is_printed]
    assert len(set(printed)) == len(printed)
    every = [(one.paper, one.where, one.what) for one in coverage()]
    assert len(set(every)) == len(every)


def test_every_command_parses(subtests):
    for one in (one for one in coverage() if one.command):
        with subtests.test(one.command):
            program, *words = shlex.split(one.command)
            if program == "python":
                script = ROOT / words[0]
                assert runpy.run_path(str(script))["parse"](words[1:])
                continue
            assert program == "likewise"
            config = cli.parse(words[0], words[1:])
            if words[0] == "bench":
                grid = read_grid(config.grid)
                assert chosen(cells(grid), config.only) or not grid.axes


def test_every_file_exists():
    for one in coverage():
        for name in one.files:
            assert (files("likewise") / name).is_file(), f"{one.paper} {one.where}: {name}"


def places():
    """(paper, table or figure) of every entry about a whole table or figure; "figures 3-4" are two."""
    for one in coverage():
        if one.is_printed:
            kind, numbers = one.where.split()
            first, _, last = numbers.partition("-")
            for number in range(int(first), int(last or first) + 1):
                yield one.paper, f"{kind.rstrip('s')} {number}"


def test_every_published_table_has_an_entry():
    there = set(places())
    for key, paper in papers().items():
        for name in paper.tables:
            place = name if name.startswith("figure") else f"table {name}"
            assert (key, place) in there


def test_every_shipped_grid_is_the_command_of_an_entry():
    run = {words[2] for one in coverage() if (words := shlex.split(one.command))[:2] == ["likewise", "bench"]}
    printed = {name for name in run if name.endswith(":print")}
    assert run - printed == set(table_names()) and printed <= {f"{name}:print" for name in names_with_print()}


def test_a_table_with_a_dagger_is_not_called_faithful(subtests):
    """A cell has one if its recipe has a value that is ours, or if its row has `differs`."""
    for one in (one for one in coverage() if one.is_printed and one.command.startswith("likewise bench ")):
        with subtests.test(one.command):
            grid = read_grid(shlex.split(one.command)[2])
            printed = [c for c in cells(grid) if "method" in c.published or not grid.published]
            assert one.status == "deviates" or not any(c.differs or by_source(c, "ours") for c in printed)


@pytest.mark.parametrize(
    ("paper", "figures", "count", "equations"),
    [
        ("influence", 12, 1, 0), ("training-strategies", (8, 13), (3, 9), 31), ("relational", 1, 3, 0),
        ("hierarchical", 3, 4, 0), ("procsim", 7, 9, 12),
    ],
)  # fmt: skip
def test_every_figure_table_and_equation_of_the_papers_has_an_entry(paper, figures, count, equations):
    """Their numbers, as the papers count them; the main text of the training strategies has the others."""
    there = {place for key, place in places() if key == paper}
    for kind, numbers in (("figure", figures), ("table", count)):
        first, last = numbers if isinstance(numbers, tuple) else (1, numbers)
        assert {place for place in there if place.startswith(kind)} == {f"{kind} {n}" for n in range(first, last + 1)}
    found = set()
    for one in coverage():
        for first, last in re.findall(r"eq\. (\d+)(?:-(\d+))?", one.where) if one.paper == paper else ():
            found |= set(range(int(first), int(last or first) + 1))
    assert found == set(range(1, equations + 1))


def test_the_page_is_fresh_and_its_counts_are_those_of_the_entries():
    page = (ROOT / "docs" / "coverage.md").read_text("utf-8")
    assert page == docs.coverage_page(), "run python tools/docs.py"
    *_, faithful, deviates, cannot, every, _ = re.search(r"^\| all .*$", page, re.M)[0].split("|")
    assert [int(n) for n in (faithful, deviates, cannot)] == list(status_counts().values())
    assert int(every) == len(coverage()) == len(re.findall(r"^\| [✓≈✕] \| ", page, re.M))


PAPER = SimpleNamespace(title="On Rings, supplement", authors="Baggins, Gamgee", venue="ME", year=3019)


def item(where, status, command="", remark=""):
    return SimpleNamespace(where=where, what=f"what {where} shows", status=status, command=command, remark=remark)


ITEMS = (
    item("table 1", "faithful", "likewise bench rings-table1"),
    item("table 2", "faithful", "likewise bench rings-table2", "one number cannot be read"),
    item("figure 3", "deviates", "likewise bench rings-figure3", "a longer [path] than printed " * 6),
    item("figures 4-5", "cannot", "", "the drawings are lost"),
)
FOUND = PaperListing({"rings": ITEMS}, {"rings": PAPER})


@pytest.mark.parametrize("width", [80, 120])
def test_every_item_is_printed_with_its_command_and_remark(width, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    show_papers(FOUND)
    lines = capsys.readouterr().out.splitlines()
    assert max(len(line.rstrip()) for line in lines) <= width and lines[0].startswith(
        "Baggins et al., On Rings, ME 3019"
    )
    said = " ".join(" ".join(lines).split())
    for one in ITEMS:
        assert f"{one.where} {one.what} {one.command}".strip() in said and one.remark.strip() in said
    assert "cannot: the drawings" in said and "deviates: a longer [path]" in said and ": one number" not in said


def test_the_notebook_has_a_table_for_each_paper():
    shown = FOUND._repr_html_()
    assert shown.count("<table") == 1 and "likewise bench rings-figure3" in shown and "the drawings are lost" in shown


def test_a_title_has_one_author_or_the_first():
    assert title(SimpleNamespace(title="T", authors="One", venue="V", year=1)) == "One, T, V 1"
