"""A benchmark's table in every format: the same numbers, nothing cut, specials escaped, and a page that opens anywhere."""

import csv
import io
import math
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from browser import listen, until
from page_reader import Reader

from likewise.core.render.figures import Picture
from likewise.papers.benchmark_formats import (
    escape,
    html,
    latex,
    markdown,
    rows_for_csv,
    show_benchmark,
)
from likewise.papers.benchmark_table import BenchmarkTable, Entry, RowNote
from likewise.score.significance import MethodComparison, PairTest

NASTY = r"A_b & {c} 50 % #1 $x$ ~ ^ \ <script>alert(1)</script> | ρ"
DIFFERS = (RowNote("size 160, not 224"), RowNote("14 groups, not 48", ("Plain",)))


def printed(mean, spread=None, about=()):
    return SimpleNamespace(mean=mean, spread=spread, spread_is="std" if spread else "", about=about, metric="R@1")


def made(**about):
    """Two methods with three seeds, one with one, at two settings by two metrics; one that only the paper has."""
    entries = []
    for noise, less in (("none", 0.0), ("uniform 0.5", 0.1)):
        for metric, far in (("R@1", 0.0), ("NMI", 0.05)):
            at, off = (noise, metric), less + far
            low, high = (tuple(base - off + step for step in (-0.01, 0, 0.01)) for base in (0.6, 0.63))
            differs, all_of_it = bool(about.get("differs")), ("of NMI",) * (at == ("none", "NMI"))
            here = ("of one cell",) * (at == ("uniform 0.5", "R@1"))
            entries.append(Entry(("Plain",), at, low, 3, printed(59.9, 0.3, ("a misprint", *all_of_it)), differs))
            entries.append(Entry((NASTY,), at, high, 3, printed(62.75, None, all_of_it + here), differs))
            entries.append(Entry(("Single",), at, (0.7 - off,), 3, None, differs))
            entries.append(Entry(("[12] quoted",), at, (), 0, printed(61.2, None, ("quoted", *all_of_it))))
    pairs = tuple(
        PairTest(column, a, b, 0.03, 0.01, 0.05, math.nan if b == "Single" else 0.2, 3, "no difference shown")
        for column in ("none", "uniform 0.5")
        for a, b in (("Plain", NASTY), ("Plain", "Single"), (NASTY, "Single"))
    )
    contest = MethodComparison("R@1", 1234, 5, 100, pairs, {"Single": 0.7, NASTY: 0.6, "Plain": 0.5}, pairs[:3])
    runs = tuple(
        {
            "names": {"method": name, "seed": 0},
            "run": f"/x/bench/t/runs/{name} 1",
            "seconds": 12.3456789,
            "device": None,
        }
        for name in ("Plain", "Single")
    )
    usual = {"notes": ("as trained",), "contest": contest, "trainings": runs, "folder": Path("/x/bench/t")}
    return BenchmarkTable("procsim table_5", "Wrong labels (table 5)", ("method",), tuple(entries), **(usual | about))


def test_markdown_holds_everything_in_one_cell():
    lines = markdown(made()).splitlines()
    assert lines[0] == "# Wrong labels (table 5)"
    assert lines[2] == "| method | none, R@1 | none, NMI [c] | uniform 0.5, R@1 | uniform 0.5, NMI |"
    assert lines[4].startswith("| Plain [a] | *60.0 ± 2.5* (59.9 ± 0.3, +0.1) | 55.0 ± 2.5 (59.9 ± 0.3, −4.9) |")
    assert lines[5].startswith(rf"| {NASTY.replace('|', chr(92) + '|')} | **63.0 ± 2.5** (62.75, +0.2) |")
    assert "(62.75 [d], " in lines[5]
    assert lines[6].startswith("| Single | 70.0 (1 of 3) | 65.0 (1 of 3) |")  # too few to be the best
    assert lines[7].startswith("| *published only* |") and lines[8].startswith("| [12] quoted [b] | (61.2) |")
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in lines[2:9]} == {6}
    assert "- [a] a misprint" in lines and lines[-1] == "- as trained"


@pytest.mark.parametrize("write", [markdown, latex, lambda sheet: html(sheet).split("<body>")[1].split("</p>")[0]])
def test_what_is_no_reproduction_says_so_first(write):
    first = write(made(differs=DIFFERS)).strip()
    assert re.search("not a reproduction:(</b>)? size 160, not 224", "\n".join(first.splitlines()[:2]), re.I)
    assert "reproduction" not in write(made())


def test_the_terminal_cuts_no_number(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    show_benchmark(made(differs=DIFFERS))
    said = capsys.readouterr().out
    assert said.startswith("Wrong labels (table 5) — not a reproduction")
    assert said.count("60.0 ± 2.5†") == 1 and said.count("59.9 ± 0.3, ") == 4 and said.count("(1 of 3)") == 5
    assert (
        "NMI [c]" in said
        and "62.75 [d], " in said
        and "published only" in said
        and "61.2" in said
        and "[12] quoted [b]" in said
        and "as trained" in said
        and "…" not in said
    )
    capsys.readouterr()
    show_benchmark(BenchmarkTable("e", "Empty", ("method",), ()))
    assert capsys.readouterr().out.startswith("Empty")


def balanced(text):
    """LaTeX as far as can be seen without it: braces, environments and dollars close, and no special is bare."""
    depth = 0
    for sign in re.sub(r"\\[{}]", "", text):
        depth += (sign == "{") - (sign == "}")
        assert depth >= 0
    opened = []
    for word, name in re.findall(r"\\(begin|end)\{(\w+)\}", text):
        if word == "begin":
            opened.append(name)
        else:
            assert opened.pop() == name
    body = "\n".join(line for line in text.splitlines() if not line.startswith("%"))
    bare = re.sub(r"\\[\\&%$#_{}]|\\\w+|\$[^$]*\$", "", body)
    return depth == 0 and not opened and not re.search(r"[%#$_^~\\]", bare)


def test_latex_is_whole():
    text = latex(made(differs=DIFFERS))
    assert balanced(text)
    table = text.split(r"\toprule")[1].split(r"\bottomrule")[0]
    lines = [line for line in table.splitlines() if line.endswith(r"\\")]
    assert lines[0] == r"& \multicolumn{2}{c}{none} & \multicolumn{2}{c}{uniform 0.5} \\"
    assert r"\cmidrule(lr){2-3} \cmidrule(lr){4-5}" in table
    assert all(len(re.findall(r"(?<!\\)&", line)) == 4 for line in lines[1:] if "multicolumn" not in line)
    assert lines[2].startswith(
        r"Plain$^{a}$ & \underline{60.0 $\pm$ 2.5$^\dagger$} {\scriptsize(59.9 $\pm$ 0.3, +0.1)} &"
    )
    assert r"\textbf{63.0 $\pm$ 2.5$^\dagger$}" in lines[3] and lines[-1].startswith("{[}12] quoted$^{b}$ &")
    assert "& NMI$^{c}$ &" in lines[1] and "62.75$^{d}$" in lines[3]
    assert r"\label{tab:procsim-table-5}" in text


def test_latex_prints_what_was_written():
    assert escape("a_b & 5 % \\") == r"a\_b \& 5 \% \textbackslash{}"
    assert escape("ρ λ Γ ± <") == r"$\rho$ $\lambda$ $\Gamma$ $\pm$ $<$"
    assert balanced(escape(NASTY)) and not balanced("a_b") and not balanced("{") and not balanced(r"\begin{a}")


def test_the_csv_has_a_line_a_number_in_one_unit():
    columns, lines = rows_for_csv(made(differs=DIFFERS))
    assert len(lines) == 16 and all(len(line) == len(columns) for line in lines)
    text = io.StringIO()
    csv.writer(text).writerows([columns, *lines])
    first, _, single, quoted = list(csv.DictReader(io.StringIO(text.getvalue())))[:4]
    number = {
        k: float(first[k]) for k in ("mean", "std", "low", "high", "printed_mean", "printed_spread", "difference")
    }
    reach = 4.302653 / 3**0.5
    expected = {"mean": 60, "std": 1, "low": 60 - reach, "high": 60 + reach}
    assert number == pytest.approx(expected | {"printed_mean": 59.9, "printed_spread": 0.3, "difference": 0.1})
    words = ("method", "column", "metric", "n", "wanted", "spread_is", "differs")
    assert [first[k] for k in words] == [
        "Plain",
        "none",
        "R@1",
        "3",
        "3",
        "std",
        "size 160, not 224; 14 groups, not 48",
    ]
    assert [single[k] for k in ("std", "low", "printed_mean", "n")] == ["", "", "", "1"]
    assert [quoted[k] for k in ("mean", "n", "wanted", "printed_mean", "differs")] == ["", "0", "0", "61.2", ""]


def test_leading_figures_come_before_the_table_and_others_after_it():
    pictures = [Picture("Means", b"PNG", "means.png"), Picture("Sweep", b"SWEEP", "sweep.png", leads=True)]
    page, lines = html(made(), pictures), markdown(made(), pictures).splitlines()
    assert (
        page.index("data:image/png;base64,U1dFRVA=")
        < page.index('id="table"')
        < page.index("data:image/png;base64,UE5H")
    )
    assert lines[2] == "![Sweep](sweep.png)" and lines[4].startswith("| method |") and "means.png" not in "".join(lines)


@pytest.mark.parametrize("write", [markdown, latex, lambda sheet: html(sheet), None])
def test_every_form_states_what_differs_by_rows_and_why_a_row_is_not_trained(write, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    about = {
        "assumed": (RowNote("size 224"), RowNote("lr 0.01", ("Plain",))),
        "published_only": {"[12] quoted": "no text"},
    }
    sheet = made(differs=DIFFERS, **about)
    said = write(sheet) if write else show_benchmark(sheet) or capsys.readouterr().out
    said = said.replace(r"$^\dagger$", "†").replace("{[}", "[").replace("&#34;", '"')
    for line in (
        "† all rows: size 160, not 224.",
        "† Plain: 14 groups, not 48.",
        "Not stated in the paper, assumed: size 224.",
        "Not stated in the paper, assumed (Plain): lr 0.01.",
        "Published only: [12] quoted: no text.",
    ):
        assert line in said
    columns, lines = rows_for_csv(sheet)
    reasons = {line[columns.index("method")]: line[columns.index("not_trained")] for line in lines}
    assert reasons == {"Plain": "", NASTY: "", "Single": "", "[12] quoted": "no text"}


def test_the_page_is_one_file_and_names_stay_names():
    text = html(made(), [Picture("Means", b"PNG", "means.png")])
    page = Reader(text)
    said = " ".join("".join(page.texts).split())
    assert text.count("<script") == 1 and said.count(NASTY) >= 3
    assert not [a for _, a in page.tags if str(a.get("src", "data:")).split(":")[0] != "data"]
    assert [a["src"] for tag, a in page.tags if tag == "img"] == ["data:image/png;base64,UE5H"]
    assert [a["href"] for tag, a in page.tags if tag == "a"] == ["runs/Plain%201", "runs/Single%201"]
    assert "/x/bench" not in text  # a page that is handed on does not tell where it was made
    for part in (
        "60.0 ± 2.5",
        "Plaina",
        "NMIc",
        "62.75d",
        "59.9 ± 0.3 +0.1",
        "published only",
        "+3.00",
        "+1.00 to +5.00",
        "0.2000",
        "1,234 queries",
    ):
        assert part in said
    assert "method Plain, seed 0" in said and "12.3457" in said and "[a] a misprint" in said


def test_the_page_leaves_out_what_there_is_not():
    bare = Reader(html(made(contest=None, trainings=(), notes=())))
    assert [a["id"] for _, a in bare.tags if "id" in a] == ["chart", "table"]
    assert Reader(html(BenchmarkTable("e", "Empty", ("method",), ()))).texts


def test_the_message_comes_first_and_figures_take_the_colours_of_the_page():
    figure = Picture("Means", b"png", "means.png", svg='<svg><path fill="var(--ink)"/></svg>')
    text = html(replace(made(), title="Wrong labels (table 5) - quick"), [figure])
    assert text.index('id="chart"') < text.index('id="table"') < text.index('<path fill="var(--ink)"/>')
    assert "image/png" not in text and "<h1>Wrong labels</h1>" in text and "table 5 - quick" in text


@pytest.mark.browser
def test_in_a_browser_it_sorts_and_fits_a_phone_in_light_and_dark(browser, tmp_path):
    file = tmp_path / "table.html"
    file.write_text(html(made(differs=DIFFERS)), "utf-8")
    page = browser.new_page(viewport={"width": 390, "height": 800})
    asked, said = listen(page)
    page.goto(file.as_uri())
    names = lambda: [name[:5] for name in page.locator("#table tbody th").all_inner_texts()]  # noqa: E731
    head = page.locator("#table thead tr:last-child th").nth(1)
    assert names() == ["Plain", "A_b &", "Singl", "publi", "[12] "]
    head.get_by_role("button").click()
    assert names()[:3] == ["Singl", "A_b &", "Plain"] and head.get_attribute("aria-sort") == "descending"
    head.get_by_role("button").press("Enter")
    assert names() == ["Plain", "A_b &", "Singl", "publi", "[12] "]  # what is published only stays apart
    page.locator("#pairs summary").click()
    page.locator("#runs summary").click()
    assert page.evaluate("document.documentElement.scrollWidth") == 390  # tables scroll inside their boxes
    box = page.locator(".scroll").first
    assert box.evaluate("e => e.scrollWidth > e.clientWidth")
    assert page.locator(".hint").is_visible()
    box.evaluate("e => e.scrollLeft = 150")
    assert page.locator("#table tbody th").first.bounding_box()["x"] < 20  # names stay where they are
    page.set_viewport_size({"width": 1440, "height": 900})
    until(page, "!document.querySelector('.hint').checkVisibility()")  # all of the table is visible
    ground = lambda: page.evaluate("getComputedStyle(document.body).backgroundColor")  # noqa: E731
    light = ground()
    page.emulate_media(color_scheme="dark")
    assert ground() != light == "rgb(255, 255, 255)"
    assert [url for url in asked if not url.startswith("data:")] == [file.as_uri()] and said == []
    page.close()
