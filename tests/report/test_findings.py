"""What an audit's folder holds is read as it was written, and the terminal tells the most important of it."""

import csv
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from likewise.errors import LikewiseError
from likewise.report.findings import merge_candidates, read_findings, score_text, show_findings

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
        "target": "runs/a", "kind": "run", "title": "birds: Triplet()", "root": "", "pictures": True,
        "parts": {"train": part, "test": part}, "scores": {"score": "all", "posterior": "chance", "loss": "ranked"},
        "influence": "first order", "errors": {"queries": 6, "confusion": 2, "mis_similar": 1},
        "duplicates": {"train-test": 1, "train-train": 1}, "measured": None, "suggested": None, "notes": ["no [i]history"],
        "verify": None, "retrain": None,
    }  # fmt: skip
    (tmp_path / "audit.json").write_text(json.dumps(about))
    return tmp_path


def test_tables_are_read_with_their_kinds_and_in_order(folder):
    found = read_findings(folder)
    assert [one.row for one in found.suspects] == [1, 8]
    assert (
        found.sample[1].suggested == "robin" and found.sample[1].confidence == 0.75 and found.sample[0].margin is None
    )
    assert found.single == {1: {"posterior": 0.05, "loss": 0.025}, 8: {"posterior": 0.4, "loss": None}}
    assert found.members["train", "wren"] == [2, 0, 1]  # the best score first
    assert found.near == {1: [1, 1], 8: [8, 8]}  # of suspects alone, without the -1
    assert [c.row for c in found.causes["group", "tit"]["harmful"]] == [5, 4]  # by place
    first, second = found.duplicates
    assert (first.bits, first.same_label, first.across) == (3, False, True)
    assert (second.bits, second.same_label, second.across) == (None, True, False)
    assert found.across == {"train-test": 1}
    assert [one.label for one in merge_candidates(found)] == ["robin", "wren"]


def test_a_group_counts_the_errors_of_its_class(folder):
    (group,) = read_findings(folder).groups()
    assert group[:4] == ("tit", "test", 2, 3)  # the mis-similar pair is the same query's, and not counted again
    assert group.confused == [("[bold]owl\x1b[2J", 2)]


def test_only_the_first_two_files_must_be_there(folder):
    for name in ("pairs.csv", "causes.csv", "classes.csv", "duplicates.csv", "neighbours.npz"):
        (folder / name).unlink()
    found = read_findings(folder)
    assert len(found.sample) == 12 and not found.pairs and not found.causes and not found.near and not found.groups()
    (folder / "audit.csv").unlink()
    with pytest.raises(LikewiseError, match="audit.csv cannot be read"):
        read_findings(folder)


@pytest.mark.parametrize(
    ("file", "text", "told"),
    [
        ("audit.json", "{", "audit.json cannot be read"),
        ("audit.csv", "row,path\n0,a\n", "audit.csv must have the column 'label'"),
        ("pairs.csv", "{}\n0,99,confusion,1,1,1\n", "pairs.csv must name rows of audit.csv, got 99"),
        ("causes.csv", "{}\n1-2,confusion,harmful,1,-1,1,1\n", "causes.csv must name rows of audit.csv, got -1"),
        ("duplicates.csv", "{}\n0,x,1,,near,train-train,1\n", "duplicates.csv cannot be read .*'x'"),
        ("neighbours.npz", "no archive", "neighbours.npz must hold 'row' and 'near'"),
    ],
)  # fmt: skip
def test_a_broken_file_is_named(folder, file, text, told):
    (folder / file).write_text(text.replace("{}", HEADS.get(file[:-4], "").replace(" ", ",")))
    with pytest.raises(LikewiseError, match=told):
        read_findings(folder)


def test_a_folder_without_an_audit_says_what_to_do(tmp_path):
    with pytest.raises(LikewiseError, match="run `likewise audit` first"):
        read_findings(tmp_path)


def test_the_terminal_shows_what_matters_and_stays_quiet_if_asked(folder, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    show_findings(SimpleNamespace(folder=folder, about={}, quiet=True))
    assert capsys.readouterr().out == ""
    show_findings(SimpleNamespace(folder=folder, about={}, quiet=False))
    told = capsys.readouterr().out
    lines = [" ".join(line.replace("│", " ").split()) for line in told.splitlines()]
    assert "train 6 2 2 (26.7%) 1" in lines
    assert "Test errors: 2 of 6 queries (33.3%)" in lines
    assert "1 1.png wren robin < 0.001 far from its class" in lines
    assert "8 8.png tit [bold]owl [2J 0.125 far from its class" in lines  # neither marked up nor moving the cursor
    assert "robin -> wren: 2 of 3 samples in train" in lines
    assert "tit 2 of 3 [bold]owl [2J robin, 5.png (row 5)" in lines
    assert "Near duplicates across parts: 1 between train and test" in lines
    assert "Note: no [i]history" in lines
    assert "\x1b[2J" not in told
    assert f"next: likewise review {folder}" in lines and any("audit.html" in line for line in lines)


def test_an_audit_that_found_nothing_says_so(folder, capsys):
    text = (
        Path(folder / "audit.csv").read_text().replace("robin,0.75", ",0.75").replace("[bold]owl\x1b[2J,0.75", ",0.75")
    )
    (folder / "audit.csv").write_text(text)
    for name in ("causes.csv", "classes.csv"):
        (folder / name).unlink()
    show_findings(SimpleNamespace(folder=folder, about={}, quiet=False))
    told = capsys.readouterr().out
    assert "No label is suspect." in told and "worst" not in told and "perhaps one" not in told


def test_small_scores_are_not_written_as_zero():
    assert [score_text(value) for value in (0.0, 0.0004, 0.0016, 1.0)] == ["0.000", "< 0.001", "0.002", "1.000"]
