"""The terminal tells the most important of an audit, and every line of it fits the window."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from audit_folder import write_audit
from rich.cells import cell_len

from likewise.curate.audit.read import read_findings
from likewise.curate.audit.summary import score_text, show_findings
from likewise.curate.review.items import Questioned


@pytest.fixture
def folder(tmp_path):
    return write_audit(tmp_path, owl="[bold]owl\x1b[2J")


def test_the_terminal_shows_what_matters(folder, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    show_findings(SimpleNamespace(folder=folder))
    told = capsys.readouterr().out
    lines = [" ".join(line.split()) for line in told.splitlines()]
    assert "train 6 2 2 (26.7%) 1" in lines
    assert "Test errors: 2 of 6 queries (33.3%)" in lines
    assert "< 0.001 1 wren -> robin 0 of 2 a/1.png" in lines
    assert "0.125 8 tit -> [bold]owl [2J 0 of 2 a/8.png" in lines  # neither marked up nor moving the cursor
    assert "0.990 train robin = wren" in lines
    assert "Unknown whether another class is the same: 1 of 3 classes" in lines
    assert "2 of 3 tit [bold]owl [2J 5 robin a/5.png" in lines
    assert "Near duplicates across splits: 1 between train and test" in lines
    assert "train-test 0 a/0.png 6 a/6.png" in lines
    assert "Note: no [i]history" in lines
    assert "\x1b[2J" not in told
    assert any("audit.html" in line for line in lines)


@pytest.mark.parametrize(
    ("long", "parts"),
    [
        (
            {"wren": "wren_" * 20, "robin": "鳥" * 50},
            ("…  ->  鳥", "  0 of 2  a/1.png"),
        ),  # names give way, numbers do not
        ({"a/1.png": "deep/" * 30 + "wren 1.png"}, ("  0 of 2  deep/", "/wren 1.png")),  # a path is not cut
    ],
)
def test_names_are_cut_and_paths_are_not(folder, capsys, monkeypatch, long, parts):
    text = (folder / "audit.csv").read_text()
    for short, name in long.items():
        text = text.replace(short, name)
    (folder / "audit.csv").write_text(text)
    monkeypatch.setenv("COLUMNS", "80")
    show_findings(SimpleNamespace(folder=folder))
    [line] = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  < 0.001")]
    assert (cell_len(line) == 80 or "deep" in line) and parts[0] in line and line.endswith(parts[1])


def test_copies_with_different_labels_come_first(folder, capsys):
    lines = (folder / "audit.csv").read_text().splitlines()
    head, first, *rest = (line.split(",") for line in lines)
    cells = [[*head, "state", "same_as"], [*first, "conflict", "0"]]
    cells += [[*line, *(("conflict", "0") if line[0] == "3" else ("", ""))] for line in rest]
    (folder / "audit.csv").write_text("\n".join(map(",".join, cells)))
    show_findings(SimpleNamespace(folder=folder))
    told = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert told[0] == "Copies with different labels: 1 image in 2 files; at most one label is right"
    assert told[1:4] == ["score row label file", "0.500 0 wren a/0.png", "0.530 3 robin a/3.png"]


def test_files_can_be_pasted_and_the_total_is_that_of_the_review(folder, capsys, monkeypatch):
    monkeypatch.chdir(folder)
    text = (folder / "audit.json").read_text()
    (folder / "audit.json").write_text(text.replace('"root": ""', f'"root": "{folder}/my photos"'))
    show_findings(SimpleNamespace(folder=folder))
    told = capsys.readouterr().out
    assert "  'my photos/a/1.png'\n" in told and "The files are in" not in told
    findings = read_findings(folder)
    count = len(Questioned(findings).flagged)
    assert (
        findings.to_review() == (count, f"{count} flagged labels")
        and f"To review: {count} ({count} flagged labels)." in told
    )


def test_an_audit_that_found_nothing_says_so(folder, capsys):
    text = (
        Path(folder / "audit.csv").read_text().replace("robin,0.75", ",0.75").replace("[bold]owl\x1b[2J,0.75", ",0.75")
    )
    (folder / "audit.csv").write_text(text)
    for name in ("causes.csv", "classes.csv"):
        (folder / name).unlink()
    show_findings(SimpleNamespace(folder=folder))
    told = capsys.readouterr().out
    assert "No label is flagged." in told and "worst" not in told and "perhaps one" not in told


def test_small_scores_are_not_written_as_zero():
    assert [score_text(value) for value in (0.0, 0.0004, 0.0016, 1.0)] == ["0.000", "< 0.001", "0.002", "1.000"]
