"""The shipped numbers are what the papers print, every caveat reaches its numbers, and asking is hard to get wrong."""

import csv
import dataclasses
import re
from collections import Counter, defaultdict
from itertools import combinations

import pytest
import torch
from likewise.errors import LikewiseError
from rich.console import Console

from likewise.cli import main as cli
from likewise.papers.published import KEY_FIELDS, caveats, find, fits, numbers, papers, write, wrong_classes
from likewise.papers.published.published_view import as_printed, labels, lay_out, printed_digits
from likewise.score.error_overlap import error_overlap

COUNTS = {
    "training-strategies": {"3": 22, "4": 144, "5": 144, "6": 132, "7": 82, "8": 149, "9": 160},
    "procsim": {"1": 80, "2": 9, "3": 77, "4": 90, "5": 54, "6": 9, "7": 126, "8": 66, "9": 48},
    "influence": {"1": 9},
    "relational": {"1": 102, "2": 102, "3": 42},
    "hierarchical": {"1": 24, "2": 20, "3": 20, "4": 16, "figure 2": 5},
}

PRINTED = [  # read off the papers by hand: where, mean, spread
    ({"paper": "training-strategies", "table": 4, "method": "R-Margin (beta=0.6)", "metric": "R@1"}, 64.93, 0.42),
    ({"paper": "training-strategies", "table": 5, "method": "ImageNet-pretrained (no DML training)", "metric": "F1"}, 8.90, None),
    ({"paper": "training-strategies", "table": 6, "method": "Triplet", "miner": "softhard", "metric": "mAP@1000"}, 40.64, 0.07),
    ({"paper": "training-strategies", "table": 7, "method": "Histogram", "sampler": "SPC-4", "metric": "NMI"}, 63.37, 0.12),
    ({"paper": "training-strategies", "table": 8, "method": "NPair", "sampler": "SPC-R", "metric": "mAP@C"}, 23.07, 0.13),
    ({"paper": "training-strategies", "table": 9, "method": "Histogram", "sampler": "SPC-R", "metric": "R@1"}, 59.06, 0.19),
    ({"paper": "training-strategies", "table": 3, "method": "MIC (ResNet50, 128-d)", "metric": "R@100"}, 95.6, None),
    ({"paper": "procsim", "table": 1, "method": "MS+PLG", "noise": "semantic", "share": 0.5}, 62.3, None),
    ({"paper": "procsim", "table": 2, "dataset": "sop", "share": 0.2}, 77.9, None),
    ({"paper": "procsim", "table": 4, "dataset": "cars196", "method": "Circle", "share": 0.5}, 15.2, None),
    ({"paper": "procsim", "table": 5, "dataset": "SOP", "method": "LSD", "noise": "semantic", "share": "0.2"}, 73.7, None),
    ({"paper": "procsim", "table": 7, "dataset": "CUB200", "method": "F-correction", "share": 0.5}, 48.8, None),
    ({"paper": "procsim", "table": 8, "dataset": "Cars196", "method": "S2SD+PLG", "metric": "NMI"}, 72.4, 0.3),
    ({"paper": "procsim", "table": 9, "dataset": "CUB200", "method": "MS (Swin backbone)", "share": 0.3}, 72.1, None),
    ({"paper": "influence", "dataset": "InShop", "method": "ProxyAnchor"}, 87.23, 0.58),
    ({"paper": "relational", "table": 1, "method": "DRML-PA", "metric": "sep128/MAP@R"}, 21.2, 0.2),
    ({"paper": "relational", "table": 2, "method": "Margin", "metric": "concat512/P@1"}, 82.1, 2.4),
    ({"paper": "relational", "table": 3, "method": "Softmax Baseline", "metric": "NMI"}, 71.8, None),
    ({"paper": "hierarchical", "table": 1, "method": "HPL-PA (|P1|=500)", "metric": "R@1"}, 92.46, None),
    ({"paper": "hierarchical", "table": "Figure 2", "method": "HPL-NCA (|P1|=10; T=20)"}, 85.5, None),
    ({"paper": "hierarchical", "dataset": "inaturalist", "method": "HPL-NCA-GT (|P1|=48)", "metric": "R@8"}, 81.12, None),
]  # fmt: skip


def by_row(of_all):
    """Metric -> value of every row of every table."""
    rows = defaultdict(dict)
    for n in of_all:
        rows[tuple(getattr(n, field) for field in KEY_FIELDS if field != "metric")][n.metric] = n.mean
    return rows


def test_every_number_of_every_table_is_there_once():
    found = Counter((n.paper, n.table) for n in numbers())
    assert found == {(paper, table): count for paper, tables in COUNTS.items() for table, count in tables.items()}
    assert sum(found.values()) == 1732
    assert {key: list(paper.tables) for key, paper in papers().items()} == {k: list(v) for k, v in COUNTS.items()}
    assert len({tuple(getattr(n, field) for field in KEY_FIELDS) for n in numbers()}) == 1732


@pytest.mark.parametrize(("where", "mean", "spread"), PRINTED)
def test_numbers_are_as_printed(where, mean, spread):
    (number,) = numbers(**where)
    assert (number.mean, number.spread) == (mean, spread)


def test_more_answers_never_find_less_but_for_the_known_misprint():
    bad = []
    for row, values in by_row(numbers()).items():
        recall = [
            values[name]
            for name in sorted((m for m in values if m.startswith("R@") and m[2:].isdigit()), key=lambda m: int(m[2:]))
        ]
        bad += [row] if recall != sorted(recall) else []
    assert bad == [
        ("procsim", "3", "Cars196", "uniform", 0.3, "LiftedStruct + adaptive hierarchical similarity", "", "")
    ]
    (number,) = numbers(paper="procsim", table=3, dataset="Cars196", method=bad[0][5], metric="R@4")
    assert number.mean == 82.0 and any("misprint" in text for text in number.about)


def test_precision_bounds_average_precision_but_for_the_swapped_headers():
    for row, values in by_row(numbers(paper="relational")).items():
        for kind in ("concat512/", "sep128/", ""):
            if kind + "RP" in values:
                assert (values[kind + "RP"] < values[kind + "MAP@R"]) == (row[1] == "3")
    for number in numbers(paper="relational", table=3):
        assert any("swapped" in text for text in number.about) == (number.metric in ("RP", "MAP@R"))
    assert all(values["mAP@1000"] > values["mAP@C"] for values in by_row(numbers()).values() if "mAP@1000" in values)


def test_the_harmonic_mean_is_that_of_all_seven_columns_by_hand():
    means = numbers(paper="procsim", table=1, noise="all")
    assert len(means) == 10
    for mean in means:
        columns = [n.mean for n in numbers(paper="procsim", table=1, method=mean.method, metric="R@1")]
        assert len(columns) == 7 and 7 / sum(1 / value for value in columns) == pytest.approx(mean.mean, abs=0.06)


def test_tables_of_one_paper_agree_where_they_should():
    for n in numbers(paper="procsim", table=4):
        (again,) = numbers(**{field: getattr(n, field) for field in KEY_FIELDS} | {"table": 7})
        assert again.mean == n.mean
    for n in numbers(paper="procsim", table=5, method="ProcSim", dataset="CUB200"):
        (base,) = numbers(paper="procsim", table=1, method="ProcSim (base)", noise=n.noise, share=n.share)
        assert base.mean == n.mean
    for method in ("Proxy-NCA", "HPL-NCA (|P1|=500)"):
        two, three = (numbers(paper="hierarchical", table=table, method=method) for table in (2, 3))
        assert [n.mean for n in two] == pytest.approx([n.mean for n in three], abs=0.051)


def test_a_spread_says_what_it_is():
    assert {(n.paper, n.spread_is) for n in numbers() if n.spread is not None} == {
        ("training-strategies", "std"), ("procsim", "std"), ("influence", "std"), ("relational", "interval"),
    }  # fmt: skip
    assert all(n.spread_is == "" for n in numbers() if n.spread is None)
    assert sum(n.spread is not None for n in numbers()) == 138 + 138 + 126 + 82 + 149 + 160 + 18 + 9 + 96 + 96


def test_every_selector_of_every_caveat_reaches_a_number():
    for key, paper in papers().items():
        of_it = [vars(n) for n in numbers(paper=key)]
        for where, text in paper.caveats:
            for one in where:
                assert set(one) <= set(KEY_FIELDS) and any(fits(n, one) for n in of_it), text
                for field, wanted in one.items():
                    for name in [wanted] if isinstance(wanted, str) else wanted:
                        assert any(n[field] == name.removeprefix("not ") for n in of_it), f"{field} {name}: {text}"
    assert fits({"table": "3"}, {"table": "not 4"}) and not fits({"table": "3"}, {"table": "not 3"})
    assert fits({"table": "3"}, {"table": ["2", "3"]}) and not fits({"table": "33"}, {"table": "3"}) and fits({}, {})


def test_caveats_reach_the_very_numbers():
    best = [n for n in numbers(paper="training-strategies") if any("best epoch" in text for text in n.about)]
    assert {n.table for n in best} == set("456789") and len(best) == 811 - 18
    quoted = [n for n in numbers(paper="procsim") if any("quoted from" in text for text in n.about)]
    assert {n.table for n in quoted} == set("3478") and "ProcSim" not in {n.method for n in quoted}
    assert len(quoted) == 66 + 81 + 117 + 57
    assert caveats("influence", 1) == list(numbers(paper="influence", method="SoftTriple")[0].about)
    assert [text for text in caveats("hierarchical", "1") if "garbled" in text]
    assert not [text for text in caveats("hierarchical", "2") if "garbled" in text]
    assert all(n.about for n in numbers())


def test_names_in_any_case_and_what_nobody_printed():
    assert (
        numbers(dataset="cub200", paper="ProcSim", table="9")
        == numbers(dataset="CUB200", paper="procsim", table=9)
        != []
    )
    assert numbers(paper="influence", dataset="SOP") == [] and numbers(share=0.35) == []
    assert {n.sampler for n in numbers(paper="procsim")} == {""}


@pytest.mark.parametrize(
    ("where", "said"),
    [
        (
            {"dataset": "CUB"},
            "there is no dataset 'CUB'; did you mean 'CUB200'? There are: SOP, CUB200, Cars196, InShop, ",
        ),
        (
            {"paper": "proxsim"},
            "there is no paper 'proxsim'; did you mean 'procsim'? There are: training-strategies, procsim, ",
        ),
        ({"paper": "influence", "table": "x"}, "there is no table 'x'. There are: 1"),
        (
            {"paper": "influence", "method": "ProxyNCA+"},
            "there is no method 'ProxyNCA+'; did you mean 'ProxyNCA++'? There are: Proxy",
        ),
        ({"loss": "MS"}, "a number has no field 'loss'. Select by: paper, table, "),
        ({"share": "half"}, "share must be a number such as 0.5, got 'half'"),
    ],
)
def test_unknown_names_are_answered_with_known_ones(where, said):
    with pytest.raises(LikewiseError, match=re.escape(f"published: {said}")):
        numbers(**where)


def test_a_person_may_ask_in_parts():
    found = find(noise="uniform 0.5", method="prism", dataset="sop", paper=None)
    assert {(n.table, n.mean) for n in found} == {("4", 72.9), ("5", 72.6), ("7", 72.9)}
    assert len(find(noise="semantic")) == 75
    with pytest.raises(LikewiseError, match="dataset SOP, paper influence. .* nothing"):
        find(dataset="SOP", paper="influence")
    with pytest.raises(LikewiseError, match="method drml. .* there is: ProxyNCA"):
        find(method="drml", paper="influence")


def test_numbers_are_written_with_all_they_have(tmp_path):
    found = numbers(paper="influence")
    write(found, tmp_path / "some.csv")
    with (tmp_path / "some.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert [line["mean"] for line in lines] == [str(n.mean) for n in found]
    assert {line["spread_is"] for line in lines} == {"std"} and all("5 seeds" in line["about"] for line in lines)


@pytest.mark.parametrize(
    ("dataset", "classes", "within", "between", "ever", "always"),
    [("cub200", 100, 0.677, 0.676, 21, 1), ("Cars196", 98, 0.613, 0.585, 28, 2), ("InShop", 3985, 0.973, 0.973, 12, 8)],
)
def test_the_most_wrong_classes_overlap_as_the_study_says(dataset, classes, within, between, ever, always):
    runs = wrong_classes(dataset)
    assert len(runs) == 15 and all(len(set(ten)) == 10 for ten in runs.values())
    pairs = {True: [], False: []}
    for (a, mine), (b, other) in combinations(runs.items(), 2):
        pairs[a[0] == b[0]].append(len(set(mine) & set(other)) / 10)
    assert sum(pairs[True]) / len(pairs[True]) == pytest.approx(within, abs=6e-4)
    assert sum(pairs[False]) / len(pairs[False]) == pytest.approx(between, abs=6e-4)
    named = Counter(label for ten in runs.values() for label in ten)
    assert (len(named), sum(count == 15 for count in named.values())) == (ever, always)
    found = error_overlap([torch.tensor(ten) for ten in runs.values()], [method for method, _ in runs], classes)
    assert (found.within, found.between) == (pytest.approx(within, abs=6e-4), pytest.approx(between, abs=6e-4))


def test_the_study_has_three_data_sets():
    with pytest.raises(LikewiseError, match="'CUB'; did you mean 'CUB200'. There are: CUB200, Cars"):
        wrong_classes("CUB")


@pytest.fixture
def on_screen(monkeypatch, capsys):
    """What a command says on a terminal, without its colours."""
    monkeypatch.setattr(Console, "is_terminal", True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")

    def said(*words: str) -> str:
        cli.main(["published", *words])
        return re.sub(r"\x1b\[[\d;]*m", "", capsys.readouterr().out)

    return said


def test_a_table_has_a_row_a_method_and_a_column_for_what_varies():
    laid = lay_out(numbers(paper="procsim", table=5), papers())
    assert laid.title == "procsim, table 5: uniform beside semantic noise (R@1)"
    kinds = [f"{kind} {share} %" for kind in ("uniform", "semantic") for share in (10, 20, 50)]
    assert laid.columns == ["dataset", "method", *kinds]
    assert laid.lines[:2] == [
        ["CUB200", "LSD", "63.0", "62.1", "57.2", "62.8", "61.9", "58.5"],
        ["CUB200", "MCL + PRISM", "58.1", "56.4", "54.7", "57.7", "57.9", "50.6"],
    ]
    assert [line[0] for line in laid.lines] == ["CUB200"] * 3 + ["Cars196"] * 3 + ["SOP"] * 3


def test_metrics_become_columns_and_gaps_stay_empty():
    laid = lay_out(numbers(paper="training-strategies", table=8, method="Triplet"), papers())
    assert laid.title == "training-strategies, table 8: batch samplers (clean, Cars196, random)"
    assert laid.columns == ["method", "sampler", "R@2", "NMI"]
    assert ["Triplet", "SPC-2", "79.74 ± 0.28", ""] in laid.lines and [
        "Triplet",
        "GC",
        "",
        "60.87 ± 0.36",
    ] in laid.lines


def test_labels_and_metrics_may_both_vary():
    laid = lay_out(numbers(paper="procsim", table=1), papers())
    assert laid.columns[0] == "method" and laid.columns[1] == "clean R@1" and laid.columns[-1] == "R@1 harmonic mean"
    assert laid.lines[0] == ["SuperLoss", "49.8", "49.7", "48.8", "48.3", "49.2", "48.8", "47.3", "48.8"]


def test_several_tables_share_one_where_few_things_vary():
    laid = lay_out(numbers(dataset="InShop", metric="R@1"), papers())
    assert laid.title == "published (clean, R@1, InShop)" and laid.columns == ["paper", "table", "method", "%"]
    assert ["influence", "1", "SoftTriple", "85.73 ± 0.28"] in laid.lines
    assert ["hierarchical", "1", "HPL-NCA (|P1|=500)", "88.70"] in laid.lines


def test_values_are_written_as_printed():
    number = numbers(paper="influence")[0]
    assert as_printed(dataclasses.replace(number, mean=69.0, spread=None), 2) == "69.00"
    assert printed_digits(numbers(paper="hierarchical", table=1)) == {("hierarchical", "1"): 2}
    assert (
        labels(number) == "clean" and labels(dataclasses.replace(number, noise="uniform", share=0.3)) == "uniform 30 %"
    )


def test_the_command_prints_tables_and_each_caveat_once(on_screen):
    said = on_screen("--paper", "procsim", "--table", "3", "--dataset", "cars196")
    assert said.startswith("procsim, table 3: beside adaptive hierarchical similarity (uniform 30 %, ")
    assert "│ 79.2 │ 87.1 │ 82.0 │ 95.0 │" in said
    notes = [line for line in said.splitlines() if line.startswith("- ")]
    assert len(notes) == len(set(notes)) == 5 and sum("misprint" in note for note in notes) == 1


def test_many_metrics_are_shown_a_table_at_a_time(on_screen):
    said = on_screen("--paper", "hierarchical")
    assert said.count("hierarchical, table ") == 4 and "hierarchical, figure 2:" in said


def test_nothing_asked_shows_what_there_is(on_screen):
    said = on_screen()
    assert said.startswith("1,732 numbers") and "│ figure 2 │ interval between clusterings" in said
    assert all(f"{key}: {paper.authors}" in said for key, paper in papers().items()) and "--paper" in said


def test_other_programs_get_lines_and_notes_aside(capsys):
    cli.main(["published", "--method", "softtriple", "--paper", "influence", "--metric", "r@1"])
    said = capsys.readouterr()
    lines = [line.split("\t") for line in said.out.splitlines()]
    assert lines[0] == ["influence", "1", "CUB200", "none", "0.0", "SoftTriple", "", "", "R@1", "67.94", "0.53"]
    assert len(lines) == 3 and said.err.count("note: ") == 2
    cli.main(["published"])
    lines = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert len(lines) == 25 and sum(int(line[-1]) for line in lines) == 1732


def test_numbers_go_to_a_file(tmp_path, capsys):
    cli.main(["published", "--csv", str(tmp_path / "all.csv")])
    assert capsys.readouterr().out.endswith(f"numbers: {tmp_path / 'all.csv'}\n")
    assert len((tmp_path / "all.csv").read_text().splitlines()) == 1733


def test_mistakes_are_explained(capsys, tmp_path):
    for words, said in [
        (["--dataset", "CUB"], "likewise: published: there is no dataset 'CUB'; did you mean 'CUB200'?"),
        (["--csv", str(tmp_path / "all.txt")], "likewise: published: --csv must end in .csv"),
        (
            ["--paper", "influence", "--noise", "uniform"],
            "likewise: published: no paper prints a number for noise uniform",
        ),
    ]:
        with pytest.raises(SystemExit) as end:
            cli.main(["published", *words])
        assert end.value.code == 2 and capsys.readouterr().err.startswith(said)
