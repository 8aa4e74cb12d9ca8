"""A benchmark table beside the published numbers: entries, layout, texts of cells, footnotes and conclusions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from string import ascii_lowercase
from typing import Any, NamedTuple

from likewise.core.notebook import table, view
from likewise.score.intervals import Interval, t_interval
from likewise.score.significance import Agreement, MethodComparison, agreement

BEST_EPOCH = " (best test epoch)"
"""Suffix of a metric whose epoch was selected on the test split."""

DAGGER_SIGN, MINUS_SIGN = "†", "\N{MINUS SIGN}"
MIN_INTERVAL_SEEDS = 3
"""Fewest seeds with an interval: two are so few that their t-interval is mostly wider than the scale."""

SPREAD_NAMES = {"std": "a standard deviation", "interval": "half a 95 % interval"}
"""Kind of a published spread -> its description."""

ALL_ROWS = "all rows"
MIN_ROWS_PER_EXCEPTION = 4
"""A note names its exceptions, instead of all other rows, if at most one row in this many is an exception."""


@dataclass(frozen=True)
class Entry:
    """A cell: the values of the finished seeds (shares in [0, 1]), and the published number.

    `row` are the names under the heads of the table, `column` those of the column axes, the metric last. `wanted`: planned
    number of seeds; 0: only the paper has this cell. `printed` has mean and spread in per cent, spread_is, about and metric,
    like a `published.Number`. `differs`: trained with settings that differ from those of the paper.
    """

    row: tuple[str, ...]
    column: tuple[str, ...]
    values: tuple[float, ...] = ()
    wanted: int = 0
    printed: Any = None
    differs: bool = False

    @property
    def scale(self) -> int:
        """100 for shares, which are shown in per cent; 1 for other values."""
        from likewise.score.metrics import as_text

        return 100 if as_text(self.column[-1].removesuffix(BEST_EPOCH), 1.0).endswith("%") else 1

    @property
    def ours(self) -> Interval | None:
        """Mean and 95 % t-interval over seeds, in the unit that is shown; None without seeds; NaN if a seed is NaN.

        With fewer than `MIN_INTERVAL_SEEDS` seeds the ends are NaN, as for one seed.
        """
        if not self.values:
            return None
        if any(map(math.isnan, self.values)):
            return Interval(math.nan, math.nan, math.nan, len(self.values))
        found = t_interval([self.scale * value for value in self.values])
        return found if found.n >= MIN_INTERVAL_SEEDS else found._replace(low=math.nan, high=math.nan)

    @property
    def difference(self) -> float | None:
        """Our mean minus the published mean, in points; None if one is missing."""
        return None if self.ours is None or self.printed is None else self.ours.mean - self.printed.mean


@dataclass(frozen=True)
class BenchmarkTable:
    """A benchmark table: its entries, notes and significance tests.

    `differs`: differences from what the paper states, by rows. `assumed`: settings that no source states, by rows.
    `published_only`: printed method that is not trained -> the reason. `trainings`: the facts of each run, one dict per run.
    `failed`: number of failed trainings; a note gives the reason of each. The methods of the contest are named
    `label(entry.row)`, its columns `label(entry.column[:-1])`. `figures`: names of the files of its leading figures.
    """

    name: str
    title: str
    heads: tuple[str, ...]
    entries: tuple[Entry, ...]
    notes: tuple[str, ...] = ()
    differs: tuple[RowNote, ...] = ()
    contest: MethodComparison | None = None
    trainings: tuple[dict, ...] = ()
    folder: Path = Path()
    failed: int = 0
    assumed: tuple[RowNote, ...] = ()
    published_only: dict[str, str] = field(default_factory=dict)
    figures: tuple[str, ...] = ()

    @view
    def _repr_html_(self) -> str:
        layout = lay_out(self)
        mark = {"best": " *", "alike": " ~", "": ""}

        def cell(of: CellText) -> str:
            return " ".join(filter(None, (of.ours + mark[of.rank], of.paper and f"({of.paper})")))

        lines = [[*row, *map(cell, layout.line(row))] for row in layout.rows + layout.apart]
        return table(headline(self), [*self.heads, *map(label, layout.columns)], lines, explain(self, "*", "~"))


class CellText(NamedTuple):
    """The texts of a cell. `of`: number of seeds if cells differ in it; `marks`: footnote letters of the published number."""

    ours: str
    of: str
    printed: str
    marks: str
    difference: str
    rank: str  # "best", "alike" (not significantly different from the best) or ""

    @property
    def paper(self) -> str:
        """The published number, its footnote letters and the difference."""
        marked = f"{self.printed}{self.marks and f' [{self.marks}]'}"
        return ", ".join(filter(None, (marked, self.difference)))


class Footnotes(NamedTuple):
    """Footnotes on published numbers: note -> text below the table, and the letters at rows, columns and cells."""

    texts: dict[str, str]
    row: dict[tuple, str]
    column: dict[tuple, str]
    cell: dict[tuple, str]


class Point(NamedTuple):
    """A method with its published value, and our value with its interval."""

    name: str
    printed: float
    ours: Interval


class Layout(NamedTuple):
    """The entries of a table in rows and columns. `apart`: the rows that only the paper has."""

    columns: list[tuple[str, ...]]
    rows: list[tuple[str, ...]]
    apart: list[tuple[str, ...]]
    cell: dict[tuple, Entry]
    shown: dict[tuple, CellText]
    notes: Footnotes

    def line(self, row: tuple[str, ...]) -> list[CellText]:
        """Return the cells of a row."""
        return [self.shown.get((row, column), EMPTY_CELL) for column in self.columns]


EMPTY_CELL = CellText("", "", "", "", "", "")


class RowNote(NamedTuple):
    """A text, and the names of the rows that it is about; no names: all rows."""

    text: str
    rows: tuple[str, ...] = ()


def label(names: Sequence[str]) -> str:
    """Return the names of a row, or of a column without its metric, joined by commas."""
    return ", ".join(filter(None, names))


def headline(sheet: BenchmarkTable) -> str:
    """Return the title, and the warning if there is one."""
    return " \N{EM DASH} ".join(filter(None, (sheet.title, warning(sheet))))


def warning(sheet: BenchmarkTable) -> str:
    """Return how all rows differ from the paper, or else the number of rows that do; "" if none does."""
    rows = {label(e.row) for e in sheet.entries if e.wanted}
    printed = {label(e.row) for e in sheet.entries if e.wanted and e.printed} or rows
    everywhere = [note.text for note in sheet.differs if not note.rows or printed <= set(note.rows)]
    if everywhere:
        return f"not a reproduction: {'; '.join(everywhere)}"
    some = {row for note in sheet.differs for row in note.rows}
    return f"{len(some)} of {len(rows)} rows differ from the paper ({DAGGER_SIGN})" if some else ""


def remarks(sheet: BenchmarkTable, layout: Layout) -> list[str]:
    """Return the differences from the paper, the assumed settings and the reasons of missing rows, one line for the same rows."""
    vary = [place for place in range(len(sheet.heads)) if len({row[place] for row in layout.rows}) > 1] or [0]
    short = {label(row): label([row[place] for place in vary]) for row in layout.rows}
    lines = [f"{DAGGER_SIGN} {of_rows(note, short)}: {note.text}." for note in sheet.differs]
    for note in sheet.assumed:
        lines.append(f"Not stated in the paper, assumed{f' ({of_rows(note, short)})' * bool(note.rows)}: {note.text}.")
    apart = {row[0]: [sheet.published_only[row[0]]] for row in layout.apart if row[0] in sheet.published_only}
    return lines + [f"Published only: {'; '.join(note.rows or apart)}: {note.text}." for note in notes_by_rows(apart)]


def lay_out(sheet: BenchmarkTable) -> Layout:
    """Arrange the entries in rows and columns in order of appearance; columns of one setting are adjacent."""
    cell = {(e.row, e.column): e for e in sheet.entries}
    settings = list(dict.fromkeys(e.column[:-1] for e in sheet.entries))
    columns = sorted(dict.fromkeys(e.column for e in sheet.entries), key=lambda c: settings.index(c[:-1]))
    trained = {e.row for e in sheet.entries if e.wanted}
    every, rank, notes = list(dict.fromkeys(e.row for e in sheet.entries)), leaders(sheet, columns), footnotes(sheet)
    shown = {place: show(entry, rank.get(place, ""), notes.cell.get(place, "")) for place, entry in cell.items()}
    seeds = [(len(e.values), e.wanted) for e in sheet.entries if e.values]
    if len(seeds) > 1 and len(set(seeds)) == 1 and seeds[0][0] > 1:  # equal for all: `explain` states it once
        shown = {place: one._replace(of="") for place, one in shown.items()}
    apart = [row for row in every if row not in trained]
    return Layout(columns, [row for row in every if row in trained], apart, cell, shown, notes)


def leaders(sheet: BenchmarkTable, columns: Sequence[tuple[str, ...]]) -> dict[tuple, str]:
    """Return (row, column) -> "best" for the highest value, "alike" for values that do not differ significantly from it.

    Only columns of shares are ranked, and only rows with the most seeds: a mean over few seeds may be high by chance.
    """
    found = {}
    for column in columns:
        here = [e for e in sheet.entries if e.column == column and e.values and e.scale == 100]
        most = max((len(e.values) for e in here), default=0)
        means = {e.row: e.ours.mean for e in here if len(e.values) == most and e.ours and not math.isnan(e.ours.mean)}
        if len(means) < 2:
            continue
        top = max(means.values())
        best = [row for row in means if top - means[row] < 1e-9]
        found |= {(row, column): "best" for row in best}
        if sheet.contest and column[-1] == sheet.contest.metric:
            names, tested, apart = {label(row) for row in best}, set(), set()
            pairs = [v for v in sheet.contest.pairs if v.column == label(column[:-1]) and v.outcome != "not tested"]
            for v in (v for v in pairs if names & {v.a, v.b}):
                tested |= {v.a, v.b}
                apart |= {v.a, v.b} if v.is_significant else set()
            alike = (row for row in means if row not in best and label(row) in tested - apart)
            found |= {(row, column): "alike" for row in alike}
    return found


def footnotes(sheet: BenchmarkTable) -> Footnotes:
    """Return the footnotes. A letter marks a whole column or row if possible, otherwise cells; a note on all has no letter."""
    printed = {(e.row, e.column): e.printed.about for e in sheet.entries if e.printed}
    rows, found, used = {row for row, _ in printed}, Footnotes({}, {}, {}, {}), 0
    for text in dict.fromkeys(text for about in printed.values() for text in about):
        held = [place for place, about in printed.items() if text in about]
        but = [row for row in dict.fromkeys(row for row, _ in printed) if row not in {row for row, _ in held}]
        if len(held) + sum(row in but for row, _ in printed) == len(printed) and MIN_ROWS_PER_EXCEPTION * len(
            but
        ) <= len(rows):
            found.texts[text] = f"All but {'; '.join(map(label, but))}: {text}" if but else text
            continue
        letter = ascii_lowercase[used % 26] * (1 + used // 26)
        found.texts[text], used = f"[{letter}] {text}", used + 1
        marks, places = found.cell, held
        for axis, own in ((0, found.row), (1, found.column)):
            names = dict.fromkeys(place[axis] for place in held)
            if sum(place[axis] in names for place in printed) == len(held):
                marks, places = own, list(names)
        for place in places:
            marks[place] = ",".join(filter(None, (marks.get(place), letter)))
    return found


def show(entry: Entry, rank: str, marks: str) -> CellText:
    """Return the texts of a cell. A single run has no ±, few seeds have their range; a missing one is a dash."""
    ours, of, digits = "-" if entry.wanted else "", "", 1 if entry.scale == 100 else 4
    if found := entry.ours:
        reach = range_of(entry, digits) if math.isnan(found.high) else f" ± {found.high - found.mean:.{digits}f}"
        ours = f"{found.mean:.{digits}f}{reach}{DAGGER_SIGN if entry.differs else ''}"
        of = f"{found.n} of {entry.wanted}" if found.n < entry.wanted else "1 run" if found.n == 1 else ""
    if not entry.printed:
        return CellText(ours, of, "", "", "", rank)
    printed = as_printed(entry.printed.mean, entry.printed.spread)
    gap = round(found.mean, digits) - entry.printed.mean if found else math.nan  # of rounded values, as shown
    difference = "" if math.isnan(gap) else f"{round(gap, digits) + 0.0:+.{digits}f}".replace("-", MINUS_SIGN)
    return CellText(ours, of, printed, marks, difference, rank)


def range_of(entry: Entry, digits: int) -> str:
    """Return the lowest and the highest seed in brackets; "" for a single seed, or if a seed is NaN."""
    values = [entry.scale * value for value in entry.values]
    if len(values) < 2 or any(map(math.isnan, values)):
        return ""
    return f" [{min(values):.{digits}f} to {max(values):.{digits}f}]"


def as_printed(mean: float, spread: float | None) -> str:
    """Return a published mean and its spread with the same number of decimals, at least one."""
    both = [mean] if spread is None else [mean, spread]
    digits = max(1, *(len(f"{value:.4f}".rstrip("0").split(".")[1]) for value in both))
    return " ± ".join(f"{value:.{digits}f}" for value in both)


def against(sheet: BenchmarkTable, column: tuple[str, ...]) -> list[Point]:
    """Return the methods of a column that have both a published value and ours."""
    both = [e for e in sheet.entries if e.column == column and e.printed and e.ours and not math.isnan(e.ours.mean)]
    return [Point(label(e.row), e.printed.mean, e.ours) for e in both if e.ours]


def order_of(points: Sequence[Point]) -> Agreement:
    """Return the rank agreement between our values and the published ones."""
    return agreement([p.ours.mean for p in points], [p.printed for p in points])


def explain(sheet: BenchmarkTable, best: str, alike: str) -> list[str]:
    """Return sentences on how to read the table and on its conclusions.

    Args:
        best: name of the style of the best value, such as "Bold".
        alike: name of the style of values that do not differ significantly from the best.
    """
    layout = lay_out(sheet)
    cells, trained = list(layout.shown.values()), [e for e in sheet.entries if e.values]
    seeds = {(len(e.values), e.wanted) for e in trained}
    of = "seeds" if len(seeds) != 1 else "{} of {} seeds" if len(set(*seeds)) == 2 else "{} seeds"
    of = of.format(*next(iter(seeds), ()))
    most = max((n for n, _ in seeds), default=0)
    spread = {0: "one seed each", 1: "one seed each"}.get(
        most, f"mean over {of} [lowest to highest]; too few for an interval"
    )
    if most >= MIN_INTERVAL_SEEDS:
        spread = f"mean ± half its 95 % t-interval over {of}"
        spread += "; [lowest to highest] of two seeds, too few for an interval" * any(n == 2 for n, _ in seeds)
    lines = [f"Ours: {spread}; shares in per cent."] if trained else []
    for count in sorted({cell.of for cell in cells if cell.of}):
        alone = ["one seed, so the spread is unknown"] * count.startswith("1 ")
        lines.append(f"({count}): {'; '.join(alone + ['the other seeds are still missing'] * (' of ' in count))}.")
    if any(cell.printed for cell in cells):
        kinds = {e.printed.spread_is for e in sheet.entries if e.printed and e.printed.spread is not None}
        names = " or ".join(SPREAD_NAMES.get(kind, "of unknown kind") for kind in sorted(kinds))
        lines.append(
            f"Beside it: the published number{names and f' (its ± is {names})'}, and ours minus the published one, in points."
        )
    lines += remarks(sheet, layout)
    if any(cell.rank for cell in cells):
        some = any(cell.rank == "alike" for cell in cells)
        more = f" {alike}, in tested columns: not significantly different from the best." if some else ""
        among = ", among rows with the same number of seeds" if len({n for n, _ in seeds}) > 1 else ""
        lines.append(f"{best}: the best of a column{among}.{more}")
    lines += conclude(sheet.contest) if sheet.contest else []
    lines += [text] if (text := agree(sheet, layout.columns)) else []
    lines += [*layout.notes.texts.values(), *(note for note in sheet.notes if note not in layout.notes.texts)]
    return [" ".join(text.split()) for text in lines]  # an error may contain line breaks


def conclude(contest: MethodComparison) -> list[str]:
    """Return the results of the significance tests as sentences."""
    lines, pairs = [], [pair for pair in contest.pairs if pair.outcome != "not tested"]
    if pairs:
        different, left = sum(v.is_significant for v in pairs), len(contest.pairs) - len(pairs)
        more = f" {left} more were not tested, because two seeds in common are needed." if left else ""
        lines.append(
            f"{contest.metric}: {different} of {len(pairs)} pairs of methods differ significantly: p below 0.05 after Holm's "
            f"correction for all pairs of a column, in a t-test over both {contest.classes} test classes and seeds.{more}"
        )
    if contest.untested:
        lines.append(f"No figure of the methods' means: {contest.untested}.")
    elif len({pair.column for pair in contest.pairs}) > 1:
        told = sum(pair.is_significant for pair in contest.overall)
        lines.append(
            f"Means over all columns: {told} of {len(contest.overall)} pairs differ significantly; the best is "
            f"{next(iter(contest.mean))}."
        )
    return lines


def agree(sheet: BenchmarkTable, columns: Sequence[tuple[str, ...]]) -> str:
    """Return a sentence on the rank agreement with the published numbers in every column; "" for fewer than two methods."""
    found = {label(column): order_of(against(sheet, column)) for column in columns}
    known = {name: one for name, one in found.items() if not math.isnan(one.tau)}
    texts = [f"{name} {one.tau:.2f} ({as_p(one.p)}, {one.n} methods)" for name, one in known.items() if not one.note]
    few = "Too few methods have both our value and a published one to compare their order." if known else ""
    return f"Agreement with the published order of the methods, Kendall's tau: {'; '.join(texts)}." if texts else few


def as_p(p: float) -> str:
    """Return a p-value as text; values below 0.001 are not written out."""
    return "p unknown" if math.isnan(p) else "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def notes_by_rows(texts: Mapping[str, Iterable[str]]) -> tuple[RowNote, ...]:
    """Return row -> its texts as notes: texts of the same rows are one note, and the notes on all rows come first."""
    rows_of: dict[str, list[str]] = {}
    for row, own in texts.items():
        for text in dict.fromkeys(own):
            rows_of.setdefault(text, []).append(row)
    joined: dict[tuple[str, ...], list[str]] = {}
    for text, rows in rows_of.items():
        joined.setdefault(() if len(rows) == len(texts) else tuple(rows), []).append(text)
    notes = [RowNote("; ".join(own), rows) for rows, own in joined.items()]
    return tuple(sorted(notes, key=lambda note: bool(note.rows)))


def of_rows(note: RowNote, shown: Mapping[str, str]) -> str:
    """Return which rows a note is about as text: "all rows", "all rows but A", or their names.

    Args:
        shown: name of every row -> the name to write.
    """
    if not note.rows:
        return ALL_ROWS
    but = [text for row, text in shown.items() if row not in note.rows]
    names = but if len(shown) > len(but) * MIN_ROWS_PER_EXCEPTION else [shown.get(row, row) for row in note.rows]
    joined = ("; " if any("," in name for name in names) else ", ").join(names)
    return f"{ALL_ROWS} but {joined}" if names is but else joined
