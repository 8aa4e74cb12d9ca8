"""The papers' numbers on the terminal: as printed, in tables one can read, with every caveat once; as lines elsewhere."""

import dataclasses
import re

import pytest
from rich.console import Console

from likewise.cli import main as cli
from likewise.papers.published import numbers, papers
from likewise.papers.published.published_view import as_printed, labels, lay_out, printed_digits


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
