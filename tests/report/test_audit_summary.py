"""The terminal tells the most important of an audit, and every line of it fits the window."""

import csv
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from rich.cells import cell_len

from likewise.report.audit_summary import score_text, show_findings

HEADS = {
    "audit": "row path label score suggested confidence margin reason split posterior loss",
    "pairs": "query other type distance wrong mate",
    "causes": "error kind direction place row influence relative",
    "classes": "split label size moved share target entropy kind",
    "duplicates": "row other similarity bits kind parts same_label",
}


def write_table(folder, name, lines):
    with open(folder / f"{name}.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([HEADS[name].split(), *lines])


@pytest.fixture
def folder(tmp_path):
    """Rows 0-5 train (wren, robin), 6-11 test (tit, owl); 1 and 8 are suspect."""
    lines = []
    for row in range(12):
        part, names = ("train", ("wren", "robin")) if row < 6 else ("test", ("tit", "[bold]owl\x1b[2J"))
        suspect = row in (1, 8)
        instead = names[1 - row // 3 % 2] if suspect else ""
        score = {1: 0.0004, 8: 0.125}.get(row, 0.5 + row / 100)
        told = [instead, 0.75, 0.5, "far from its class"] if suspect else ["", "", "", ""]
        lines.append(
            [row, f"a/{row}.png", names[row // 3 % 2], score, *told, part, row / 20, row / 40 if row < 6 else ""]
        )
    write_table(tmp_path, "audit", lines)
    write_table(
        tmp_path,
        "pairs",
        [[6, 9, "confusion", 0.25, 9, 7], [8, 10, "confusion", 0.5, 10, 7], [8, 7, "mis-similar", 1, 10, 7]],
    )
    causes = [
        ["6-9", "confusion", "helpful", 1, 0, -1.5, -3],
        ["tit", "group", "harmful", 2, 4, 1, 2],
        ["tit", "group", "harmful", 1, 5, 2, 4],
    ]
    write_table(tmp_path, "causes", causes)
    classes = [
        ["train", "wren", 3, 1, 0.34, "robin", 0, "merge"],
        ["train", "robin", 3, 2, 0.67, "wren", 0.1, "merge"],
        ["test", "tit", 3, 0, 0, "", 0, "clean"],
    ]
    write_table(tmp_path, "classes", classes)
    write_table(
        tmp_path,
        "duplicates",
        [[0, 6, 0.99, 3, "same", "train-test", "False"], [1, 2, 0.9, "", "near", "train-train", 1]],
    )
    np.savez(
        tmp_path / "neighbours.npz", row=np.arange(12), near=np.where(np.arange(6) < 2, [[r] for r in range(12)], -1)
    )
    part = {
        "samples": 6,
        "classes": 2,
        "wrong": 1.6,
        "flagged": 1,
        "of_all": 0.25,
        "of_touched": 0.5,
        "any": 0.1,
        "similar": 0.2,
    }
    about = {
        "target": "runs/a", "kind": "run", "title": "birds: Triplet()", "root": "", "rows": 12, "pictures": True,
        "parts": {"train": part, "test": part}, "scores": {"score": "all", "posterior": "chance", "loss": "ranked"},
        "influence": "first order", "errors": {"queries": 6, "confusion": 2, "mis_similar": 1},
        "duplicates": {"train-test": 1, "train-train": 1}, "measured": None, "suggested": None, "notes": ["no [i]history"],
        "verify": None, "retrain": None,
    }  # fmt: skip
    (tmp_path / "audit.json").write_text(json.dumps(about))
    return tmp_path


def test_the_terminal_shows_what_matters_and_stays_quiet_if_asked(folder, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    show_findings(SimpleNamespace(folder=folder, quiet=True))
    assert capsys.readouterr().out == ""
    show_findings(SimpleNamespace(folder=folder, quiet=False))
    told = capsys.readouterr().out
    lines = [" ".join(line.split()) for line in told.splitlines()]
    assert "train 6 2 2 (26.7%) 1" in lines
    assert "Test errors: 2 of 6 queries (33.3%)" in lines
    assert "< 0.001 1 wren -> robin 0 of 2" in lines
    assert "0.125 8 tit -> [bold]owl [2J 0 of 2" in lines  # neither marked up nor moving the cursor
    assert "2 of 3 train robin -> wren" in lines
    assert "2 of 3 tit [bold]owl [2J 5 robin" in lines
    assert "Near duplicates across parts: 1 between train and test" in lines
    assert "Note: no [i]history" in lines
    assert "\x1b[2J" not in told
    assert f"next: likewise review {folder}" in lines and any("audit.html" in line for line in lines)


def test_long_names_give_way_and_numbers_do_not(folder, capsys, monkeypatch):
    text = (folder / "audit.csv").read_text()
    (folder / "audit.csv").write_text(text.replace("wren", "wren_" * 20).replace("robin", "鳥" * 50))
    monkeypatch.setenv("COLUMNS", "80")
    show_findings(SimpleNamespace(folder=folder, quiet=False))
    [line] = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  < 0.001")]
    assert cell_len(line) == 80 and line.endswith("  0 of 2") and "…  ->  鳥" in line


def test_an_audit_that_found_nothing_says_so(folder, capsys):
    text = (
        Path(folder / "audit.csv").read_text().replace("robin,0.75", ",0.75").replace("[bold]owl\x1b[2J,0.75", ",0.75")
    )
    (folder / "audit.csv").write_text(text)
    for name in ("causes.csv", "classes.csv"):
        (folder / name).unlink()
    show_findings(SimpleNamespace(folder=folder, quiet=False))
    told = capsys.readouterr().out
    assert "No label is suspect." in told and "worst" not in told and "perhaps one" not in told


def test_small_scores_are_not_written_as_zero():
    assert [score_text(value) for value in (0.0, 0.0004, 0.0016, 1.0)] == ["0.000", "< 0.001", "0.002", "1.000"]
