"""A benchmark beside the published numbers: what its table holds, how a cell is written, and what can be concluded."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from string import ascii_lowercase
from typing import Any, NamedTuple

from likewise._notebook import table, view
from likewise.numerics.bootstrap import Interval, t_interval
from likewise.numerics.significance import Agreement, Contest, agreement

BEST_EPOCH = " (best test epoch)"
"""What follows the name of a metric whose epoch was chosen by looking at the test split."""

MIN_ROWS_PER_EXCEPTION = 4
"""A note that holds for all rows but a few of them, at most one in so many, names these instead of marking all others."""

MAX_LISTED_RANKS = 8
"""So many ranks are told in words; the picture and the page have all."""

DAGGER_SIGN, MINUS_SIGN = "†", "\N{MINUS SIGN}"
SPREAD_NAMES = {"std": "a standard deviation", "interval": "half a 95 % interval"}


@dataclass(frozen=True)
class Entry:
    """A cell: what the seeds that finished gave (shares in [0, 1]), and what the paper prints there.

    `row` are names along the sheet's heads, `column` those of the column axes, the metric last. `wanted`: seeds there are to
    be; 0: only the paper has this. `printed` has mean and spread in per cent, spread_is, about and metric, as a
    `published.Number` does. `differs`: trained with other settings than the paper's.
    """

    row: tuple[str, ...]
    column: tuple[str, ...]
    values: tuple[float, ...] = ()
    wanted: int = 0
    printed: Any = None
    differs: bool = False

    @property
    def scale(self) -> int:
        """Shares are shown in per cent, other numbers as they are."""
        from likewise.metrics import as_text

        return 100 if as_text(self.column[-1].removesuffix(BEST_EPOCH), 1.0).endswith("%") else 1

    @property
    def ours(self) -> Interval | None:
        """Mean and its 95 % t-interval over seeds, in the unit that is shown; NaN stays NaN."""
        if not self.values:
            return None
        if any(map(math.isnan, self.values)):
            return Interval(math.nan, math.nan, math.nan, len(self.values))
        return t_interval([self.scale * value for value in self.values])

    @property
    def difference(self) -> float | None:
        """Ours - printed, in points."""
        return None if self.ours is None or self.printed is None else self.ours.mean - self.printed.mean


@dataclass(frozen=True)
class Sheet:
    """A table: its cells, and what must be known to read it.

    `differs`: settings that are not the paper's, in words. `trainings`: what made each run, a dict a run. `failed`: how many
    trainings failed; a note gives the reason of each. A contest's methods are called `label(entry.row)`, its
    columns `label(entry.column[:-1])`.
    """

    name: str
    title: str
    heads: tuple[str, ...]
    entries: tuple[Entry, ...]
    notes: tuple[str, ...] = ()
    differs: tuple[str, ...] = ()
    contest: Contest | None = None
    trainings: tuple[dict, ...] = ()
    folder: Path = Path()
    failed: int = 0

    @view
    def _repr_html_(self) -> str:
        layout = lay_out(self)
        mark = {"best": " *", "alike": " ~", "": ""}

        def cell(of: CellText) -> str:
            return " ".join(filter(None, (of.ours + mark[of.rank], of.paper and f"({of.paper})")))

        lines = [[*row, *map(cell, layout.line(row))] for row in layout.rows + layout.apart]
        return table(headline(self), [*self.heads, *map(label, layout.columns)], lines, explain(self, "*", "~"))


class CellText(NamedTuple):
    """A cell as texts. `of`: how many runs, where that must be said; `marks`: letters of the notes on the printed number."""

    ours: str
    of: str
    printed: str
    marks: str
    difference: str
    rank: str  # best, alike (not told apart from the best) or nothing

    @property
    def paper(self) -> str:
        """The printed number, the notes on it and the difference."""
        marked = f"{self.printed}{self.marks and f' [{self.marks}]'}"
        return ", ".join(filter(None, (marked, self.difference)))


class Footnotes(NamedTuple):
    """Notes on printed numbers: each text with how it is told, and the letters that stand at rows, columns and cells."""

    told: dict[str, str]
    row: dict[tuple, str]
    column: dict[tuple, str]
    cell: dict[tuple, str]


class Point(NamedTuple):
    """A method: the printed value, and ours with its interval."""

    name: str
    printed: float
    ours: Interval


class Layout(NamedTuple):
    """The cells of a sheet in rows and columns. `apart`: the rows that only the paper has."""

    columns: list[tuple[str, ...]]
    rows: list[tuple[str, ...]]
    apart: list[tuple[str, ...]]
    cell: dict[tuple, Entry]
    shown: dict[tuple, CellText]
    notes: Footnotes

    def line(self, row: tuple[str, ...]) -> list[CellText]:
        return [self.shown.get((row, column), EMPTY_CELL) for column in self.columns]


EMPTY_CELL = CellText("", "", "", "", "", "")


def label(names: Sequence[str]) -> str:
    """Several names as one: of a row, or of a column without its metric."""
    return ", ".join(filter(None, names))


def headline(sheet: Sheet) -> str:
    """The title; where it is no reproduction it says so."""
    return f"{sheet.title} \N{EM DASH} not a reproduction: {'; '.join(sheet.differs)}" if sheet.differs else sheet.title


def lay_out(sheet: Sheet) -> Layout:
    """Rows and columns in the order in which they first come; columns of one setting stand together."""
    cell = {(e.row, e.column): e for e in sheet.entries}
    settings = list(dict.fromkeys(e.column[:-1] for e in sheet.entries))
    columns = sorted(dict.fromkeys(e.column for e in sheet.entries), key=lambda c: settings.index(c[:-1]))
    trained = {e.row for e in sheet.entries if e.wanted}
    every, rank, notes = list(dict.fromkeys(e.row for e in sheet.entries)), leaders(sheet, columns), footnotes(sheet)
    shown = {place: show(entry, rank.get(place, ""), notes.cell.get(place, "")) for place, entry in cell.items()}
    seeds = [(len(e.values), e.wanted) for e in sheet.entries if e.values]
    if len(seeds) > 1 and len(set(seeds)) == 1 and seeds[0][0] > 1:  # the same for all: said once, below
        shown = {place: one._replace(of="") for place, one in shown.items()}
    apart = [row for row in every if row not in trained]
    return Layout(columns, [row for row in every if row in trained], apart, cell, shown, notes)


def leaders(sheet: Sheet, columns: Sequence[tuple[str, ...]]) -> dict[tuple, str]:
    """(row, column) -> "best" for the highest of a column of shares, "alike" for those that the contest cannot tell from it.

    Only rows with the most seeds are in it: a few of them may be lucky ones.
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
            for v in (v for v in sheet.contest.pairs if v.column == label(column[:-1]) and names & {v.a, v.b}):
                tested |= {v.a, v.b}
                apart |= {v.a, v.b} if v.told_apart else set()
            alike = (row for row in means if row not in best and label(row) in tested - apart)
            found |= {(row, column): "alike" for row in alike}
    return found


def footnotes(sheet: Sheet) -> Footnotes:
    """Letters stand as far out as they can: at whole columns or rows before single cells. What holds for all has none."""
    printed = {(e.row, e.column): e.printed.about for e in sheet.entries if e.printed}
    rows, found, used = {row for row, _ in printed}, Footnotes({}, {}, {}, {}), 0
    for text in dict.fromkeys(text for about in printed.values() for text in about):
        held = [place for place, about in printed.items() if text in about]
        but = [row for row in dict.fromkeys(row for row, _ in printed) if row not in {row for row, _ in held}]
        if len(held) + sum(row in but for row, _ in printed) == len(printed) and MIN_ROWS_PER_EXCEPTION * len(but) <= len(rows):
            found.told[text] = f"All but {'; '.join(map(label, but))}: {text}" if but else text
            continue
        letter = ascii_lowercase[used % 26] * (1 + used // 26)
        found.told[text], used = f"[{letter}] {text}", used + 1
        marks, places = found.cell, held
        for axis, own in ((0, found.row), (1, found.column)):
            names = dict.fromkeys(place[axis] for place in held)
            if sum(place[axis] in names for place in printed) == len(held):
                marks, places = own, list(names)
        for place in places:
            marks[place] = ",".join(filter(None, (marks.get(place), letter)))
    return found


def show(entry: Entry, rank: str, marks: str) -> CellText:
    """A cell as texts. One run has no ±, a missing one is a dash."""
    ours, of, digits = "-" if entry.wanted else "", "", 1 if entry.scale == 100 else 4
    if found := entry.ours:
        reach = "" if math.isnan(found.high) else f" ± {found.high - found.mean:.{digits}f}"
        ours = f"{found.mean:.{digits}f}{reach}{DAGGER_SIGN if entry.differs else ''}"
        of = f"{found.n} of {entry.wanted}" if found.n < entry.wanted else "1 run" if found.n == 1 else ""
    if not entry.printed:
        return CellText(ours, of, "", "", "", rank)
    printed = as_printed(entry.printed.mean, entry.printed.spread)
    gap = round(found.mean, digits) - entry.printed.mean if found else math.nan  # of what is shown, so that it adds up
    difference = "" if math.isnan(gap) else f"{round(gap, digits) + 0.0:+.{digits}f}".replace("-", MINUS_SIGN)
    return CellText(ours, of, printed, marks, difference, rank)


def as_printed(mean: float, spread: float | None) -> str:
    """A printed number with the digits it has, and its spread with as many; one after the point at least."""
    both = [mean] if spread is None else [mean, spread]
    digits = max(1, *(len(f"{value:.4f}".rstrip("0").split(".")[1]) for value in both))
    return " ± ".join(f"{value:.{digits}f}" for value in both)


def against(sheet: Sheet, column: tuple[str, ...]) -> list[Point]:
    """The methods of a column that have both, a printed value and ours."""
    both = [e for e in sheet.entries if e.column == column and e.printed and e.ours and not math.isnan(e.ours.mean)]
    return [Point(label(e.row), e.printed.mean, e.ours) for e in both if e.ours]


def order_of(points: Sequence[Point]) -> Agreement:
    """Whether ours puts the methods in the printed order."""
    return agreement([p.ours.mean for p in points], [p.printed for p in points])


def explain(sheet: Sheet, best: str, alike: str) -> list[str]:
    """How to read the table, and what can be concluded from it; `best` and `alike` say how these are marked."""
    layout = lay_out(sheet)
    cells, trained = list(layout.shown.values()), [e for e in sheet.entries if e.values]
    seeds = {(len(e.values), e.wanted) for e in trained}
    of = "seeds" if len(seeds) != 1 else "{} of {} seeds" if len(set(*seeds)) == 2 else "{} seeds"
    of = of.format(*next(iter(seeds), ()))
    spread = f"mean ± half its 95 % t-interval over {of}" if any(n > 1 for n, _ in seeds) else "one seed each"
    said = [f"Ours: {spread}; shares in per cent."] if trained else []
    for count in sorted({cell.of for cell in cells if cell.of}):
        alone = ["one seed, which says nothing of the spread"] * count.startswith("1 ")
        said.append(f"({count}): {'; '.join(alone + ['the other seeds are still missing'] * (' of ' in count))}.")
    if any(cell.printed for cell in cells):
        kinds = {e.printed.spread_is for e in sheet.entries if e.printed and e.printed.spread is not None}
        told = " or ".join(SPREAD_NAMES.get(kind, "not said what") for kind in sorted(kinds))
        said.append(f"Beside it: the printed number{told and f' (its ± is {told})'}, and ours minus that, in points.")
    if any(DAGGER_SIGN in cell.ours for cell in cells):
        said.append(f"{DAGGER_SIGN} not trained with the paper's settings; the first line says what differs.")
    if any(cell.rank for cell in cells):
        some = any(cell.rank == "alike" for cell in cells)
        more = f" {alike}, where a column was tested: not told apart from it." if some else ""
        among = ", of rows with as many seeds" if len({n for n, _ in seeds}) > 1 else ""
        said.append(f"{best}: the best of a column{among}.{more}")
    said += conclude(sheet.contest) if sheet.contest else []
    said += [text] if (text := agree(sheet, layout.columns)) else []
    said += [*layout.notes.told.values(), *(note for note in sheet.notes if note not in layout.notes.told)]
    return [" ".join(text.split()) for text in said]  # an error may have lines of its own


def conclude(contest: Contest) -> list[str]:
    """What a contest shows, in sentences."""
    said, pairs = [], contest.pairs
    if pairs:
        told = sum(v.told_apart for v in pairs)
        said.append(
            f"{contest.metric}: {told} of {len(pairs)} pairs of methods are told apart, by {contest.classes} test classes "
            "(signs of their differences flipped) and by seeds (t-test, their spread pooled over methods), both p below 0.05 "
            "after Holm's correction for all pairs of a column."
        )
    if len(contest.rank) > 1:
        ranks = [f"{name} {rank:.2f}" for name, rank in contest.rank.items()]
        left = len(ranks) - MAX_LISTED_RANKS
        more = f" and {left} more" if left > 0 else ""
        said.append(
            f"Mean ranks over test classes, 1 is best: {', '.join(ranks[:MAX_LISTED_RANKS])}{more}. Friedman {as_p(contest.friedman)}; "
            f"ranks less than {contest.critical:.2f} apart are not told apart (Nemenyi)."
        )
    return said


def agree(sheet: Sheet, columns: Sequence[tuple[str, ...]]) -> str:
    """How far the order of the methods is the printed one, in every column; nothing where there are not two of both."""
    found = {label(column): order_of(against(sheet, column)) for column in columns}
    known = {name: one for name, one in found.items() if not math.isnan(one.tau)}
    said = [f"{name} {one.tau:.2f} ({as_p(one.p)}, {one.n} methods)" for name, one in known.items() if not one.note]
    few = "Too few methods have both, ours and a printed number, for their order to tell anything." if known else ""
    return f"Order of the methods beside the printed one, Kendall's tau: {'; '.join(said)}." if said else few


def as_p(p: float) -> str:
    """A p-value; small ones are not spelt out."""
    return "p unknown" if math.isnan(p) else "p < 0.001" if p < 0.001 else f"p = {p:.3f}"
