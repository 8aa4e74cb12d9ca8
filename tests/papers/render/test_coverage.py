"""The tables and figures of papers on the terminal and in a notebook."""

from types import SimpleNamespace

import pytest

from likewise.papers.published.coverage import PaperListing, show_papers, title

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
