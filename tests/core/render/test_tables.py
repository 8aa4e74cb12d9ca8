"""A table of texts on the terminal: cells are whole, names are printed as they are, notes stand below."""

from likewise.core.render.tables import Table, show_table


def test_values_are_never_broken_and_names_are_printed_as_they_are(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    value = "61.7 ± 0.4 (5 runs)"
    lines = [["[bold]LabelPosterior(least=0.5, repair=True, rounds=2)", value, value]]
    show_table(Table("[a] grid", ["confidence", "R@1", "RP"], lines, ["one failed"]))
    said = capsys.readouterr().out
    assert said.startswith("[a] grid ") and said.endswith("\none failed\n")
    assert sum(line.count(value) for line in said.splitlines()) == 2 and "[bold]" in said
    assert max(map(len, said.splitlines())) > 40  # rather too wide than cut
