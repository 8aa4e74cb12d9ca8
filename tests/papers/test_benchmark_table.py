"""A sheet: how cells are written, which are the best, what is concluded, and that no number loses its footnote."""

import dataclasses
import math
from dataclasses import replace
from types import SimpleNamespace

import pytest

from likewise.papers.benchmark_table import (
    BenchmarkTable,
    Entry,
    RowNote,
    against,
    agree,
    as_p,
    as_printed,
    explain,
    footnotes,
    headline,
    label,
    lay_out,
    notes_by_rows,
    of_rows,
    order_of,
)
from likewise.score.significance import MethodComparison, PairTest


def printed(mean, spread=None, spread_is="", about=()):
    return SimpleNamespace(mean=mean, spread=spread, spread_is=spread_is, about=about, metric="R@1")


def sheet(*entries, **about):
    return BenchmarkTable("t5", "A table", ("method",), entries, **about)


def cell(values, wanted=3, paper=None, metric="R@1", differs=False):
    made = Entry(("a",), ("none", metric), values, wanted, paper, differs)
    return lay_out(sheet(made)).shown[made.row, made.column]


def versus(a, b, outcome, column="none"):
    return PairTest(column, a, b, 0.1, 0.0, 0.2, 0.01, 3, outcome)


def contest(*pairs, mean=None, overall=()):
    return MethodComparison("R@1", 90, 0, 10, pairs, mean or {}, overall)


def test_a_cell_is_mean_half_interval_printed_and_difference():
    found = cell((0.62, 0.63, 0.64), paper=printed(62.8, 0.2, "std"))
    reach = 4.302653 * 1 / 3**0.5  # t_{0.975, 2} of the printed tables, s is 1 point
    assert found.ours == f"63.0 ± {reach:.1f}" and found.of == ""
    assert (found.printed, found.difference, found.paper) == ("62.8 ± 0.2", "+0.2", "62.8 ± 0.2, +0.2")


@pytest.mark.parametrize(
    ("values", "wanted", "ours", "of"),
    [
        ((0.631,), 1, "63.1", "1 run"),
        ((0.631,), 3, "63.1", "1 of 3"),
        ((0.6, 0.6), 3, "60.0 [60.0 to 60.0]", "2 of 3"),
        ((0.6, 0.7), 2, "65.0 [60.0 to 70.0]", ""),
        ((0.6, 0.6, 0.6), 3, "60.0 ± 0.0", ""),
        ((), 3, "-", ""),
        ((), 0, "", ""),
        ((0.6, math.nan), 2, "nan", ""),
    ],
)
def test_what_is_missing_is_said(values, wanted, ours, of):
    found = cell(values, wanted, printed(60.0))
    assert (found.ours, found.of) == (ours, of)
    assert found.printed == "60.0" and bool(found.difference) == (values != () and not math.isnan(values[-1]))


def test_numbers_that_are_no_shares_keep_their_unit():
    found = cell((0.1234, 0.12341, 0.12343), 3, printed(0.11), metric="rho")
    assert found.ours.startswith("0.1234 ± 0.0000") and found.difference == "+0.0134"
    assert cell((0.5,), 1, metric="R@1 (best test epoch)").ours == "50.0"


def test_differences_add_up_as_they_are_shown():
    assert cell((0.7275,), 1, printed(72.9)).difference == "\N{MINUS SIGN}0.1"  # 72.8 is shown
    assert cell((0.59996,), 1, printed(60.0)).difference == "+0.0"


def test_printed_numbers_keep_their_digits():
    assert [as_printed(v, None) for v in (61, 61.25, 0.5)] == ["61.0", "61.25", "0.5"]
    assert as_printed(62.1, 0.27) == "62.10 ± 0.27" and as_printed(62.15, 0.2) == "62.15 ± 0.20"


def test_other_settings_are_marked_and_come_first():
    assert cell((0.5, 0.5), 2, printed(49.0), differs=True) == cell((0.5, 0.5), 2, printed(49.0))._replace(
        ours="50.0 [50.0 to 50.0]†"
    )
    made = sheet(Entry(("a",), ("R@1",), (0.5,), 1, None, True), differs=(RowNote("size 160, not 224"),))
    assert headline(made) == "A table — not a reproduction: size 160, not 224"
    assert "† all rows: size 160, not 224." in explain(made, "Bold", "Italic")
    assert headline(sheet()) == "A table"


def test_rows_and_columns_keep_their_order_and_settings_stand_together():
    entries = [Entry((m,), (n, k), (0.5,), 1) for m in "ba" for k in ("R@1", "NMI") for n in ("none", "half")]
    entries.insert(0, Entry(("quoted",), ("none", "R@1"), (), 0, printed(1.0)))
    layout = lay_out(sheet(*entries))
    assert layout.columns == [("none", "R@1"), ("none", "NMI"), ("half", "R@1"), ("half", "NMI")]
    assert layout.rows == [("b",), ("a",)] and layout.apart == [("quoted",)]
    assert [one.printed for one in layout.line(("quoted",))] == ["1.0", "", "", ""]


def ranked(pairs=(), metric="R@1"):
    values = {"a": 0.5, "b": 0.7, "c": 0.6, "d": math.nan}
    entries = [Entry((name,), ("none", metric), (value,), 1) for name, value in values.items()]
    layout = lay_out(sheet(*entries, Entry(("q",), ("none", metric), (), 0, printed(99.0)), contest=contest(*pairs)))
    return {row[0]: cell.rank for (row, _), cell in layout.shown.items()}


def test_the_best_and_those_not_told_apart_from_it():
    pairs = (
        versus("a", "b", "better"),
        versus("b", "c", "no difference shown"),
        versus("a", "c", "no difference shown"),
    )
    assert ranked(pairs) == {"a": "", "b": "best", "c": "alike", "d": "", "q": ""}
    assert ranked()["b"] == "best" and ranked()["c"] == ""
    assert ranked((versus("b", "c", "no difference shown", "other column"),))["c"] == ""
    assert ranked((versus("b", "c", "not tested"),))["c"] == ""
    assert ranked(pairs, "NMI")["c"] == ""  # tested was another metric
    assert set(ranked(pairs, "rho").values()) == {""}  # which only describes


def test_equals_are_both_the_best_and_one_alone_is_none():
    both = sheet(*(Entry((m,), ("R@1",), (0.5,), 1) for m in "ab"))
    assert [cell.rank for cell in lay_out(both).shown.values()] == ["best", "best"]
    assert cell((0.5,), 1).rank == ""


def test_few_seeds_are_not_the_best():
    """One lucky seed of c is above the means of three, and e has not all of its own yet: neither is marked."""
    values = {"a": (0.5,) * 3, "b": (0.6,) * 3, "c": (0.9,), "e": (0.7, 0.7)}
    made = sheet(*(Entry((name,), ("R@1",), own, 3) for name, own in values.items()))
    assert {row[0]: cell.rank for (row, _), cell in lay_out(made).shown.items()} == {
        "a": "",
        "b": "best",
        "c": "",
        "e": "",
    }
    assert "Bold: the best of a column, among rows with the same number of seeds." in explain(made, "Bold", "Italic")


def test_a_note_is_one_line():
    made = sheet(Entry(("a",), ("R@1",), (0.5,), 1), notes=("failed: a\n\n# CUDA error\n  elsewhere",))
    assert explain(made, "Bold", "Italic")[-1] == "failed: a # CUDA error elsewhere"


def test_letters_stand_as_far_out_as_they_can():
    about = {
        ("a", "x"): ("all", "of a"),
        ("a", "y"): ("all", "of a", "of y"),
        ("b", "x"): ("all", "one"),
        ("b", "y"): ("all", "of y"),
    }
    made = sheet(
        *(Entry((m,), (k,), (), 0, printed(1.0, about=own)) for (m, k), own in about.items()), notes=("one", "own")
    )
    found = footnotes(made)
    assert (found.row, found.column, found.cell) == ({("a",): "a"}, {("y",): "b"}, {(("b",), ("x",)): "c"})
    assert explain(made, "", "")[-5:] == ["all", "[a] of a", "[b] of y", "[c] one", "own"]
    assert lay_out(made).shown[("b",), ("x",)].paper == "1.0 [c]"


def test_what_holds_for_nearly_all_names_the_others():
    made = sheet(*(Entry((m,), (k,), (), 0, printed(1.0, about=("most",) * (m != "c"))) for m in "abcd" for k in "xy"))
    assert footnotes(made) == ({"most": "All but c: most"}, {}, {}, {})
    fewer = dataclasses.replace(made, entries=made.entries[:6])
    assert footnotes(fewer).row == {("a",): "a", ("b",): "a"}


def test_there_are_more_letters_than_in_the_alphabet():
    many = sheet(*(Entry((str(i),), ("R@1",), (), 0, printed(1.0, about=(f"n{i}",))) for i in range(28)))
    assert list(footnotes(many).row.values())[25:] == ["z", "aa", "bb"]


def test_a_count_that_is_the_same_for_all_cells_is_said_once():
    two = [Entry((name,), ("R@1",), (0.5, 0.6), 5) for name in "ab"]
    some = sheet(*two)
    assert {one.of for one in lay_out(some).shown.values()} == {""}
    assert explain(some, "Bold", "Italic")[0].startswith(
        "Ours: mean over 2 of 5 seeds [lowest to highest]; too few for an interval;"
    )
    other = sheet(*two, Entry(("c",), ("R@1",), (0.5, 0.6, 0.7), 5))
    assert {one.of for one in lay_out(other).shown.values()} == {"2 of 5", "3 of 5"}
    single = sheet(*(Entry((name,), ("R@1",), (0.5,), 1) for name in "ab"))  # never a bare number
    assert {one.of for one in lay_out(single).shown.values()} == {"1 run"}


def test_only_what_occurs_is_explained():
    assert explain(sheet(), "Bold", "Italic") == []
    whole = sheet(Entry(("a",), ("R@1",), (0.5, 0.6), 2))
    assert explain(whole, "Bold", "Italic") == [
        "Ours: mean over 2 seeds [lowest to highest]; too few for an interval; shares in per cent."
    ]
    both = sheet(Entry(("a",), ("R@1",), (0.5, 0.6), 3), Entry(("b",), ("R@1",), (0.5, 0.6, 0.7), 3))
    assert explain(both, "Bold", "Italic")[0] == (
        "Ours: mean ± half its 95 % t-interval over seeds; [lowest to highest] of two seeds, too few for an interval; shares in "
        "per cent."
    )
    said = " ".join(explain(sheet(Entry(("a",), ("R@1",), (0.5,), 2, printed(5.0, 0.1, "std"))), "Bold", "Italic"))
    assert "Ours: one seed each; " in said and "(1 of 2): one seed, so the spread is unknown; the other" in said
    assert "(1 run)" not in said and "(its ± is a standard deviation)" in said and "Bold" not in said


def test_a_contest_is_told_in_sentences():
    mean, pair = {"a": 0.7, "b": 0.6}, versus("a", "b", "worse", "")
    pairs = versus("a", "b", "worse"), versus("a", "b", "no difference shown", "half"), versus("a", "c", "not tested")
    said = explain(sheet(contest=contest(*pairs, mean=mean, overall=(pair,))), "", "")
    assert said == [
        "R@1: 1 of 2 pairs of methods differ significantly: p below 0.05 after Holm's correction for all pairs of a column, in a "
        "t-test over both 10 test classes and seeds. 1 more were not tested, because two seeds in common are needed.",
        "Means over all columns: 1 of 1 pairs differ significantly; the best is a.",
    ]
    assert (
        len(explain(sheet(contest=contest(pairs[0], mean=mean, overall=(pair,))), "", "")) == 1
    )  # one column: said once
    alone = replace(pair, seeds=1, outcome="not tested")
    assert explain(sheet(contest=contest(replace(alone, column="none"), mean=mean, overall=(alone,))), "", "") == [
        "No figure of the methods' means: two seeds or more in common are needed, and are missing between a, b."
    ]


def test_the_order_is_compared_with_the_printed_one():
    ours, paper = {"a": 0.5, "b": 0.6, "c": 0.7, "d": 0.8, "e": 0.9}, {"a": 40.0, "b": 60.0, "c": 50.0, "d": 70.0}
    entries = [
        Entry((m,), ("none", "R@1"), (v,), 1, printed(paper[m]) if m in paper else None) for m, v in ours.items()
    ]
    points = against(sheet(*entries), ("none", "R@1"))
    assert [(p.name, p.printed, p.ours.mean) for p in points[:2]] == [("a", 40.0, 50.0), ("b", 60.0, 60.0)]
    assert order_of(points).tau == pytest.approx(4 / 6) and len(points) == 4  # one of six pairs is turned round
    said = agree(sheet(*entries), [("none", "R@1")])
    assert said.endswith("Kendall's tau: none, R@1 0.67 (p = 0.333, 4 methods).")
    assert agree(sheet(*entries[:3]), [("none", "R@1")]).startswith("Too few methods have both")
    assert agree(sheet(entries[0]), [("none", "R@1")]) == ""


def test_small_words():
    assert [as_p(p) for p in (0.0, 0.0311, 1.0, math.nan)] == ["p < 0.001", "p = 0.031", "p = 1.000", "p unknown"]
    assert label(("ProcSim", "", "SPC-2")) == "ProcSim, SPC-2"


def test_texts_of_the_same_rows_are_one_note_and_all_rows_come_first():
    texts = {"a": ["x", "all", "y"], "b": ["all"], "c": ["y", "all", "x", "x"]}
    assert notes_by_rows(texts) == (RowNote("all"), RowNote("x; y", ("a", "c")))
    assert notes_by_rows({"a": [], "b": []}) == () and notes_by_rows({}) == ()


def test_few_exceptions_are_named_instead_of_many_rows():
    rows = {name: name for name in "abcdefgh"}
    assert of_rows(RowNote("t"), rows) == "all rows"
    assert of_rows(RowNote("t", tuple("abcdefg")), rows) == "all rows but h"
    assert of_rows(RowNote("t", tuple("abcd")), rows) == "a, b, c, d"
    assert of_rows(RowNote("t", ("a", "b")), rows | {"a": "A, mined"}) == "A, mined; b"
