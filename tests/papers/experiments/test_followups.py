"""What follows a table's trainings: the figures of every table, and those that its grid names."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from likewise.config import Bench, Train

from likewise.papers import figures, results_table
from likewise.papers.benchmark_table import BenchmarkTable, Entry
from likewise.papers.grid import Cell, read_grid
from likewise.papers.grid_plan import Job, PlannedRun
from likewise.papers.results_table import follow_up


def test_ours_is_drawn_against_the_paper_where_three_methods_have_both(tmp_path):
    grid = read_grid("influence-table1")
    entries = [
        Entry((name,), ("R@1",), (0.6, 0.61), 2, SimpleNamespace(mean=mean, spread=None, spread_is="", about=()))
        for name, mean in (("a", 60.0), ("b", 61.0), ("c", 59.0))
    ]
    for count, files in ((3, {"against.png"}), (2, set())):
        folder = tmp_path / str(count)
        folder.mkdir()
        sheet = BenchmarkTable("x", "x", ("method",), tuple(entries[:count]), folder=folder)
        pictures, said = follow_up(grid, sheet, [], Bench("x"))
        assert {file.name for file in folder.iterdir()} == files and said == []
        assert [one.png[:4] for one in pictures] == [b"\x89PNG"] * len(files)


def test_every_figure_has_its_function():
    assert all(callable(figures.figure_function(name)) for name in figures.FIGURE_KINDS)


@pytest.mark.parametrize(("finished", "only", "drawn"), [(2, (), True), (1, (), False), (2, ("1",), False)])
def test_a_figure_is_drawn_from_all_finished_trainings_and_leads_the_page(monkeypatch, tmp_path, finished, only, drawn):
    job = Job(Train("glyphs", out=str(tmp_path / "none")), "identity")
    done = type("Done", (Job,), {"state": "finished"})(job.config, "identity")
    runs = [PlannedRun(at + 1, Cell({}, {}), None, done if at < finished else job) for at in range(3)]
    sheet = BenchmarkTable("x", "x", ("method",), (), folder=tmp_path)
    grid = replace(read_grid("influence-table1"), then=("detection",))
    monkeypatch.setattr(
        results_table, "figure_function", lambda name: lambda *given: (b"PNG", [f"{len(given[2])} drawn"])
    )
    pictures, notes = follow_up(grid, sheet, runs, Bench("x", only=only))
    assert [(one.title, one.png, one.file, one.leads) for one in pictures] == [
        ("Wrong labels found", b"PNG", "detection.png", True)
    ] * drawn
    note = "Not drawn with --only: detection; run the command again without --only."
    assert notes == (["2 drawn"] if drawn else [note] if only else [])
