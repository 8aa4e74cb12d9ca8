"""Output formats of a benchmark table: terminal, Markdown, LaTeX, CSV and HTML."""

from __future__ import annotations

import base64
import math
import os
import re
import statistics
import unicodedata
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from urllib.parse import quote

from markupsafe import Markup
from rich.console import Console
from rich.table import Table
from rich.text import Text

from likewise.core.errors import print_text
from likewise.core.render.figures import Picture, themed_svg
from likewise.core.render.html import environment
from likewise.core.render.tables import Table as TextTable
from likewise.core.render.tables import show_table
from likewise.core.settings import Bench
from likewise.papers.benchmark_table import (
    DAGGER_SIGN,
    EMPTY_CELL,
    MINUS_SIGN,
    BenchmarkTable,
    CellText,
    Entry,
    Layout,
    explain,
    headline,
    label,
    lay_out,
    warning,
)
from likewise.papers.figures.method_means import draw_columns

PUBLISHED_ONLY = "published only"
"""Heading above the rows that only the paper has."""

MIN_NAME_LETTERS = 18
"""Smallest width of a column of names on the terminal; longer names are folded."""

LATEX_ESCAPES = {
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": "$<$", ">": "$>$", "|": "$|$",
    "±": r"$\pm$", DAGGER_SIGN: r"$^\dagger$", MINUS_SIGN: "$-$", "–": "--", "—": "---", "…": r"\dots{}", "×": r"$\times$",
    "≤": r"$\leq$", "≥": r"$\geq$", "→": r"$\to$", '"': "''", "`": r"\textasciigrave{}",
    "[": "{[}", "*": "{*}",  # special after the end of a line
}  # fmt: skip
"""Character -> its LaTeX code."""


def show_benchmark(sheet: BenchmarkTable) -> None:
    """Print the table, our value above the published one, and the explanations below. A wide table is not truncated."""
    layout, table, least = lay_out(sheet), Table(), 1
    rows = layout.rows + layout.apart
    for place, head in enumerate(sheet.heads):
        width = min(MIN_NAME_LETTERS, max(map(len, [head, *(names(layout, row)[place] for row in rows)])))
        table.add_column(Text(head), overflow="fold", min_width=width)
        least += width + 3
    for column in layout.columns:
        cells = [text for row in rows for text in _lines(layout.shown.get((row, column), EMPTY_CELL))]
        head = [*column[:-1], marked(column[-1], layout.notes.column.get(column))]
        width = max(map(len, [*head, *cells]))
        table.add_column(Text("\n".join(filter(None, head))), no_wrap=True, min_width=width, justify="right")
        least += width + 3
    for row in rows:
        if layout.apart and row == layout.apart[0]:
            table.add_section()
            table.add_row(Text(PUBLISHED_ONLY, style="italic"))
        style = "dim" if row in layout.apart else ""
        table.add_row(*map(Text, names(layout, row)), *map(_on_terminal, layout.line(row)), style=style)
    console = Console(width=max(Console().width, least), highlight=False)
    console.print(Text(headline(sheet), "bold yellow" if sheet.differs else "bold"))
    if sheet.entries:
        console.print(table)
    for text in explain(sheet, "Bold", "Underlined"):
        console.print(Text(text))


def show_bench(found: BenchmarkTable | TextTable, config: Bench) -> None:
    """Print what `likewise bench` returned: the planned trainings, or the benchmark and its files (nothing with --quiet)."""
    if isinstance(found, TextTable):
        show_table(found)
        return
    if config.quiet:
        return
    show_benchmark(found)
    if found.entries:
        print_text(f"table: {found.folder / 'table.html'} (and .md, .tex, .csv)\nruns:  {found.folder / 'results.csv'}")
    else:
        print_text(f"page: {found.folder / 'table.html'} (and .md)")
    for name in found.figures:
        print_text(f"figure: {found.folder / name} (its values: {name.removesuffix('.png')}.csv)")


def marked(text: str, letters: str | None) -> str:
    """Return a name followed by the letters of its footnotes in brackets."""
    return f"{text} [{letters}]" if letters else text


def names(layout: Layout, row: tuple[str, ...]) -> list[str]:
    """Return the names of a row; footnote letters follow the first name."""
    return [marked(row[0], layout.notes.row.get(row)), *row[1:]]


def _lines(cell: CellText) -> list[str]:
    return [f"{cell.ours}{cell.of and f' ({cell.of})'}", cell.paper]


def _on_terminal(cell: CellText) -> Text:
    ours, paper = _lines(cell)
    shown = Text(ours, {"best": "bold", "alike": "underline", "": ""}[cell.rank])
    return Text("\n").join([*([shown] if ours else []), *([Text(paper, "dim")] if paper else [])])


def markdown(sheet: BenchmarkTable, pictures: Sequence[Picture] = ()) -> str:
    """Return leading figures and the table in Markdown; a cell is "63.1 ± 0.5 (62.8, +0.3)"."""
    layout = lay_out(sheet)
    heads = [*sheet.heads, *(marked(label(column), layout.notes.column.get(column)) for column in layout.columns)]
    lines = [heads, ["---"] * len(sheet.heads) + ["---:"] * len(layout.columns)]
    for row in layout.rows + layout.apart:
        if layout.apart and row == layout.apart[0]:
            lines.append([f"*{PUBLISHED_ONLY}*", *[""] * (len(heads) - 1)])
        lines.append([*names(layout, row), *map(_in_markdown, layout.line(row))])
    table = "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)
    notes = "\n".join(f"- {text}" for text in explain(sheet, "Bold", "Italic"))
    figures = "".join(f"![{one.title}]({one.file})\n\n" for one in pictures if one.leads)
    table = f"{table}\n\n" if sheet.entries else ""
    return f"# {headline(sheet)}\n\n{figures}{table}{notes}\n"


def _in_markdown(cell: CellText) -> str:
    around = {"best": "**", "alike": "*", "": ""}[cell.rank]
    beside = "; ".join(filter(None, (cell.of, cell.paper)))
    return " ".join(filter(None, (cell.ours and f"{around}{cell.ours}{around}", beside and f"({beside})")))


def latex(sheet: BenchmarkTable) -> str:
    """Return the table in LaTeX with booktabs: the best of a column bold, values that do not differ significantly underlined."""
    layout = lay_out(sheet)
    width = len(sheet.heads) + len(layout.columns)
    notes = [f"{escape(text)}\\par" for text in explain(sheet, "Bold", "Underlined")]
    return "\n".join([
        f"% {' '.join(headline(sheet).split())}", r"% \usepackage{booktabs}", r"\begin{table}[t]", r"\centering\footnotesize",
        rf"\caption{{{escape(headline(sheet))}}}", rf"\label{{tab:{re.sub('[^A-Za-z0-9-]+', '-', sheet.name)}}}",
        rf"\begin{{tabular}}{{{'l' * len(sheet.heads)}{'r' * len(layout.columns)}}}", r"\toprule",
        *_latex_heads(sheet, layout), r"\midrule", *_latex_rows(layout, width), r"\bottomrule", r"\end{tabular}",
        r"\par\smallskip\begin{minipage}{\linewidth}\scriptsize\raggedright", *notes, r"\end{minipage}", r"\end{table}", "",
    ])  # fmt: skip


def _latex_heads(sheet: BenchmarkTable, layout: Layout) -> list[str]:
    """Return a header line for every column axis, with equal adjacent names merged, and a line for the metrics."""
    lines, first = [], len(sheet.heads)
    for level in range(len(layout.columns[0]) - 1 if layout.columns else 0):
        spans, rules, at = [], [], first + 1
        for upto, group in groupby(layout.columns, key=lambda column: column[: level + 1]):
            width = len(list(group))
            spans.append(rf"\multicolumn{{{width}}}{{c}}{{{escape(upto[-1])}}}")
            rules.append(rf"\cmidrule(lr){{{at}-{at + width - 1}}}")
            at += width
        lines += [" & ".join([*[""] * first, *spans]).strip() + r" \\", " ".join(rules)]
    metrics = [escape(column[-1]) + _raised(layout.notes.column.get(column)) for column in layout.columns]
    return [*lines, " & ".join([*map(escape, sheet.heads), *metrics]) + r" \\"]


def _raised(letters: str | None) -> str:
    return f"$^{{{letters}}}$" if letters else ""


def _latex_rows(layout: Layout, width: int) -> list[str]:
    lines = []
    for row in layout.rows + layout.apart:
        if layout.apart and row == layout.apart[0]:
            lines += [
                *([r"\midrule"] if layout.rows else []),
                rf"\multicolumn{{{width}}}{{l}}{{\emph{{{PUBLISHED_ONLY}}}}} \\",
            ]
        first = escape(row[0]) + _raised(layout.notes.row.get(row))
        lines.append(" & ".join([first, *map(escape, row[1:]), *map(_in_latex, layout.line(row))]) + r" \\")
    return lines


def _in_latex(cell: CellText) -> str:
    around = {"best": r"\textbf{%s}", "alike": r"\underline{%s}", "": "%s"}[cell.rank]
    paper = ", ".join(filter(None, (escape(cell.printed) + _raised(cell.marks), escape(cell.difference))))
    beside = "; ".join(filter(None, (cell.of, paper)))
    ours = cell.ours and around % escape(cell.ours)
    return " ".join(filter(None, (ours, beside and rf"{{\scriptsize({beside})}}")))


def escape(text: str) -> str:
    """Return a text with special characters escaped for LaTeX, and Greek letters as commands."""

    def one(sign: str) -> str:
        greek = re.fullmatch(r"GREEK (SMALL|CAPITAL) LETTER (\w+)", unicodedata.name(sign, ""))
        if greek and sign not in LATEX_ESCAPES:
            small, word = greek[1] == "SMALL", {"LAMDA": "LAMBDA"}.get(greek[2], greek[2])
            return f"$\\{word.lower() if small else word.capitalize()}$"
        return LATEX_ESCAPES.get(sign, sign)

    return "".join(map(one, text))


def rows_for_csv(sheet: BenchmarkTable) -> tuple[list[str], list[list]]:
    """Return the column names and one line per entry, in the unit that is shown; unknown values are empty."""
    columns = [
        *sheet.heads, "column", "metric", "mean", "std", "low", "high", "n", "wanted", "printed_mean", "printed_spread",
        "spread_is", "difference", "differs", "not_trained",
    ]  # fmt: skip
    lines = []
    for e in sheet.entries:
        found, paper = e.ours, e.printed
        std = e.scale * statistics.stdev(e.values) if len(e.values) > 1 else None
        numbers = [found.mean, std, found.low, found.high] if found else [None] * 4
        printed = [paper.mean, paper.spread, paper.spread_is] if paper else [None] * 3
        line = [*e.row, label(e.column[:-1]), e.column[-1], *numbers, len(e.values), e.wanted, *printed, e.difference]
        texts = [note.text for note in sheet.differs if not note.rows or label(e.row) in note.rows]
        line += [
            "; ".join(texts) or "yes" if e.differs else None,
            None if e.wanted else sheet.published_only.get(e.row[0]),
        ]
        lines.append(["" if v is None or (isinstance(v, float) and math.isnan(v)) else v for v in line])
    return columns, lines


def html(sheet: BenchmarkTable, pictures: Sequence[Picture] = ()) -> str:
    """Return one self-contained page: leading figures, the table, other figures, significance tests, notes and all runs."""
    layout, contest, chart = lay_out(sheet), sheet.contest, draw_columns(sheet)
    keys = list(dict.fromkeys(key for one in sheet.trainings for key in one))
    runs = [
        [(_fact(one.get(key)), "") if key != "run" else _run(sheet, one) for key in keys] for one in sheet.trainings
    ]
    levels = range(len(layout.columns[0]) - 1 if layout.columns else 0)
    spans = [
        [
            (upto[-1], len(list(group)))
            for upto, group in groupby(layout.columns, key=lambda column: column[: level + 1])
        ]
        for level in levels
    ]
    return environment().get_template("benchmark.html").render(
        sheet=sheet, headline=headline(sheet), warning=warning(sheet), layout=layout, spans=spans,
        bodies=[b for b in (layout.rows, layout.apart) if b],
        notes=explain(sheet, "Bold", "Underlined"), contest=contest, value=_value, run_keys=keys, runs=runs,
        leading=_embedded(pictures, True), following=_embedded(pictures, False), chart=chart and themed_svg(chart),
        **dict(zip(("name", "source"), split_title(sheet.title), strict=True)),
    )  # fmt: skip


def split_title(title: str) -> tuple[str, str]:
    """Return a title up to the source in brackets, and that source with the words after it, or ""."""
    found = re.fullmatch(r"(.+?)\s*\(([^()]+)\)(.*)", title)
    return (found[1], found[2] + found[3]) if found else (title, "")


def _embedded(pictures: Sequence[Picture], leads: bool) -> dict[str, str]:
    """Return title -> inline SVG, or the data URL of a PNG, of the figures above the table (`leads`) or below it."""
    return {
        p.title: Markup(p.svg) if p.svg else f"data:image/png;base64,{base64.b64encode(p.png).decode()}"
        for p in pictures
        if p.leads == leads
    }


def _value(entry: Entry | None) -> float | str:
    """Return the sort key of a cell: our value, otherwise the published one."""
    if entry is None or not (entry.ours or entry.printed):
        return ""
    mean = entry.ours.mean if entry.ours else entry.printed.mean
    return "" if math.isnan(mean) else mean


def _fact(value: object) -> str:
    """Return a value of the table of runs as text."""
    if isinstance(value, dict):
        return ", ".join(f"{key} {_fact(one)}" for key, one in value.items())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(map(_fact, value))
    return "" if value is None else f"{value:,.6g}" if isinstance(value, float) else str(value)


def _run(sheet: BenchmarkTable, training: dict) -> tuple[str, str]:
    """Return the name of a run, and the link to it from the folder of the page."""
    if not training.get("run"):
        return "", ""
    return Path(training["run"]).name, quote(Path(os.path.relpath(training["run"], sheet.folder)).as_posix())
