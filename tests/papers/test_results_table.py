"""tabulate: every trained number in its cell, every printed one beside its own or in a row of its own, never beside another."""

import csv
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from likewise.config import Bench, Train
from likewise.errors import LikewiseError

from likewise.papers import figures, results_table
from likewise.papers import results_table as module
from likewise.papers.benchmark_table import BenchmarkTable, Entry, RowNote, explain, lay_out
from likewise.papers.executors import attempt
from likewise.papers.grid import Cell, adapted, cells, read_grid
from likewise.papers.grid_plan import Difference, Job, PlannedRun, plan_grid
from likewise.papers.published import numbers
from likewise.papers.results_table import again, follow_up, missing, provenance, tabulate, write_table
from likewise.runs.folder import Run
from likewise.runs.scores import PerQuery
from likewise.score import folds

CPU = torch.device("cpu")


def stand_in(cell, folder, value=None, fold=None, metrics=("R@1",), differs=(), assumed=()):
    """A training as bench lays it out; it is finished where it has a value, the same for all metrics."""
    run = SimpleNamespace(path=folder / "nowhere", scores={"metrics": dict.fromkeys(metrics, value)})
    config = Train(data=cell.settings["data"], metrics=metrics)
    job = SimpleNamespace(config=config, run=run, identity="id", state="new")
    return SimpleNamespace(
        number=1, cell=cell, fold=fold, job=job, differs=differs, assumed=assumed, error=None, finished=value is not None,
        record=None, scores=run.scores,
    )  # fmt: skip


def found(sheet):
    return {(e.row, e.column): e for e in sheet.entries}


def test_the_harmonic_mean_over_columns_by_hand(tmp_path):
    grid = read_grid("procsim-table1")
    rng, plan, values = np.random.default_rng(0), [], {}
    for cell in cells(grid):
        if cell.names["method"] in ("MS", "ProcSim"):
            value = float(rng.uniform(0.3, 0.9))
            values.setdefault(cell.names["method"], {}).setdefault(cell.names["seed"], []).append(value)
            late = cell.names == {"method": "ProcSim", "noise": "uniform 0.5", "seed": "2"}
            plan.append(stand_in(cell, tmp_path, None if late else value))
    sheet = tabulate(grid, plan, tmp_path, CPU)
    column = ("all", "R@1 harmonic mean")
    both = {method: found(sheet)[(method,), column] for method in ("MS", "ProcSim")}
    by_hand = [7 / sum(1 / v for v in values["MS"][seed]) for seed in ("0", "1", "2")]
    assert both["MS"].values == pytest.approx(tuple(by_hand)) and both["MS"].printed.mean == 58.6
    assert both["MS"].ours.mean == pytest.approx(100 * sum(by_hand) / 3)
    assert (both["ProcSim"].values, both["ProcSim"].printed.mean) == ((), 68.6)  # a column has two of its three seeds
    assert lay_out(sheet).shown[("ProcSim",), column].ours == "-"
    assert found(sheet)[("SuperLoss",), column].wanted == 0  # only printed
    assert not both["MS"].differs
    plan[0].differs = (Difference("dim", "8", "512"),)
    plan[1].assumed = ("dim 512",)
    sheet = tabulate(grid, plan, tmp_path, CPU)
    assert found(sheet)[("MS",), column].differs
    assert (sheet.differs, sheet.assumed) == ((RowNote("dim 8, not 512", ("MS",)),), (RowNote("dim 512", ("MS",)),))


@pytest.mark.parametrize(
    ("name", "data"),
    [("procsim-table5", "cub200"), ("training-strategies-table7", "cub200"), ("influence-table1", "inshop")],
)
def test_every_printed_number_of_the_data_stands_once_whatever_is_trained(name, data, tmp_path):
    grid = adapted(read_grid(name), data)
    there = {id(n): n for n in numbers(**grid.published) if n.dataset.casefold() == data}
    every = cells(grid)
    metrics = tuple(every[0].settings["metrics"])
    for some in (every, every[: len(every) // 2]):
        sheet = tabulate(grid, [stand_in(cell, tmp_path, 0.5, metrics=metrics) for cell in some], tmp_path, CPU)
        assert sorted(id(e.printed) for e in sheet.entries if e.printed) == sorted(there)
        assert len(found(sheet)) == len(sheet.entries)  # no two in one place
        called = {point.name: point.published["method"] for point in grid.axes["method"]}
        both = [e for e in sheet.entries if e.wanted and e.printed]
        assert len(both) >= 2 and all(called[e.row[0]] == e.printed.method for e in both)
        assert [e.difference for e in both] == pytest.approx([50 - e.printed.mean for e in both])


def test_fold_scores_stand_in_the_columns_of_their_kind_printed_rows_too(tmp_path, monkeypatch):
    both = {"separated": {"metrics": {"R@1": 0.5}}, "concatenated": {"metrics": {"R@1": 0.6}}}
    monkeypatch.setattr(folds, "score_folds", lambda runs, metrics, **way: both)
    grid = read_grid("relational-table1")
    mine, late = (next(c for c in cells(grid) if c.names["method"] == p.name) for p in grid.axes["method"][:2])
    plan = [stand_in(c, tmp_path, v, fold) for c, v in ((mine, 0.5), (late, None)) for fold in range(4)]
    sheet = tabulate(grid, plan, tmp_path, CPU)
    for kind, begins, value in (("separated", "sep128/", 0.5), ("concatenated", "concat512/", 0.6)):
        (printed,) = numbers(**grid.published, dataset="CUB200", method=mine.published["method"], metric=f"{begins}P@1")
        entry = found(sheet)[(mine.names["method"],), (kind, "R@1")]
        assert (entry.values, entry.printed) == ((value,), printed)
        assert found(sheet)[(late.names["method"],), (kind, "R@1")].values == ()
        (printed,) = numbers(**grid.published, dataset="CUB200", method="SNR", metric=f"{begins}P@1")
        assert found(sheet)[("SNR",), (kind, "R@1")].printed == printed
    assert {e.column[0] for e in sheet.entries} == {"separated", "concatenated"}


def test_numbers_that_may_be_of_several_cells_are_not_shown_and_ours_stays(tmp_path):
    grid = replace(read_grid("procsim-table5"), columns=(), axes={})
    cell = Cell({"method": "mine", "seed": "0"}, {"data": "cub200"}, {"method": "ProcSim"})
    grid = replace(grid, axes={axis: [] for axis in cell.names})
    sheet = tabulate(grid, [stand_in(cell, tmp_path, 0.5)], tmp_path, CPU)
    (entry,) = sheet.entries
    assert (entry.row, entry.values, entry.printed) == (("mine",), (0.5,), None)
    assert any(note.startswith("18 printed numbers are not shown: their cells") for note in sheet.notes)


def test_a_method_that_says_nothing_gets_no_number_though_its_noise_does(tmp_path):
    grid = read_grid("procsim-table5")
    cell = next(c for c in cells(grid) if c.names["method"] == "ProcSim")
    noise = {key: value for key, value in cell.published.items() if key != "method"}
    own = Cell(cell.names | {"method": "mine"}, cell.settings, noise)
    grid = replace(grid, published=grid.published | {"method": "LSD"})  # one number for every noise
    sheet = tabulate(grid, [stand_in(own, tmp_path, 0.5)], tmp_path, CPU)
    assert found(sheet)[("mine",), (cell.names["noise"], "R@1")].printed is None


def test_columns_that_the_grid_leaves_out_stay_out(tmp_path):
    grid = read_grid("procsim-table5")
    noise = [point for point in grid.axes["noise"] if point.name == "uniform 0.5"]
    grid = replace(grid, axes=grid.axes | {"noise": noise, "method": grid.axes["method"][1:]})
    sheet = tabulate(grid, [stand_in(cell, tmp_path, 0.5) for cell in cells(grid)], tmp_path, CPU)
    assert {e.column for e in sheet.entries} == {("uniform 0.5", "R@1")}
    assert {e.row for e in sheet.entries} == {("LSD",), ("PRISM",), ("ProcSim",)}  # the first is only printed


def test_on_other_data_nothing_printed_is_shown_unless_the_file_says_which_it_is(tmp_path):
    grid = adapted(read_grid("influence-table1"), "my-birds.csv")
    plan = [stand_in(cell, tmp_path, 0.5) for cell in cells(grid)]
    assert {e.printed for e in tabulate(grid, plan, tmp_path, CPU).entries} == {None}
    grid = replace(grid, published=grid.published | {"dataset": "Cars196"})
    shown = {e.row: e.printed.mean for e in tabulate(grid, plan, tmp_path, CPU).entries}
    assert shown == {("ProxyNCA++",): 86.59, ("ProxyAnchor",): 88.76, ("SoftTriple",): 86.47}


def answers(classes, seed):
    y = np.repeat(np.arange(classes), 4)
    value = np.random.default_rng(seed).integers(0, 2, len(y)).astype(np.float64)
    return PerQuery(
        np.arange(len(y)), y, y.astype(str), np.full(len(y), 3), {"R@1": value}, np.zeros((len(y), 1), int),
        np.zeros((len(y), 1)),
    )  # fmt: skip


@pytest.mark.parametrize(("classes", "said"), [((6, 6), ""), ((6, 7), "methods are not tested against one another: ")])
def test_methods_are_tested_where_they_answered_the_same_queries(tmp_path, monkeypatch, classes, said):
    grid = read_grid("influence-table1")
    plan = []
    for cell in cells(grid):
        place = ["ProxyNCA++", "ProxyAnchor", "SoftTriple"].index(cell.names["method"])
        plan.append(stand_in(cell, tmp_path, 0.5 if place < 2 else None))
        folder = tmp_path / f"{place} {cell.names['seed']}"
        folder.mkdir()
        (folder / "per_query.parquet").touch()
        plan[-1].job.run.path = folder
    read = {f"{place} {seed}": answers(classes[place], 10 * place + seed) for place in (0, 1) for seed in range(5)}
    monkeypatch.setattr(module, "read_per_query", lambda file, owner, metrics: read[file.parent.name])
    sheet = tabulate(grid, plan, tmp_path, CPU)
    if said:
        assert sheet.contest is None and any(note.startswith(said) for note in sheet.notes)
    else:
        (pair,) = sheet.contest.pairs
        assert (pair.a, pair.b, pair.seeds, sheet.contest.metric) == ("ProxyNCA++", "ProxyAnchor", 5, "R@1")
        means = [np.mean([read[f"{place} {s}"].each["R@1"].mean() for s in range(5)]) for place in (0, 1)]
        assert pair.difference == pytest.approx(means[1] - means[0])
        (tmp_path / "0 0" / "per_query.parquet").unlink()
        notes = tabulate(grid, plan, tmp_path, CPU).notes
        assert any(note.startswith("not tested, because per_query.parquet is missing: 1 trainings") for note in notes)


def test_what_is_missing_is_named_up_to_a_dozen(tmp_path):
    grid = read_grid("influence-table1")
    plan = [stand_in(c, tmp_path, 0.5 if c.names["seed"] == "0" else None) for c in cells(grid)]
    assert missing(plan) == "Missing: 12 of 15 trainings: " + "; ".join(
        f"{m}, {s}" for m in ("ProxyNCA++", "ProxyAnchor", "SoftTriple") for s in range(1, 5)
    )
    plan[0].finished = False
    assert missing(plan).startswith("Missing: 13 of 15 trainings: ProxyNCA++, 0; ")
    assert missing(plan).endswith("; SoftTriple, 3; ... (see --list)")
    assert missing([plan[5]]) == ""


def test_what_made_a_run(finished, tmp_path):
    training = SimpleNamespace(job=SimpleNamespace(run=finished, identity=finished.about["identity"]), record=None)
    made = provenance(training)
    assert (made["run"], made["identity"], made["data"]) == (
        str(finished.path), finished.about["identity"], finished.about["data"],
    )  # fmt: skip
    assert torch.__version__.startswith(made["torch"]) and made["sessions"] == 1 and made["train_seconds"] > 0
    for run in (Run(tmp_path / "new"), finished):  # none is there, or another one
        planned = SimpleNamespace(job=SimpleNamespace(run=run, identity="planned"), record=None)
        assert provenance(planned) == {"run": "", "identity": "planned"}


def test_a_paper_that_nobody_knows_is_an_error(tmp_path):
    grid = replace(read_grid("influence-table1"), published={"paper": "influense", "table": "1"})
    with pytest.raises(LikewiseError, match="'influense'; did you mean 'influence'"):
        tabulate(grid, [stand_in(cells(grid)[0], tmp_path)], tmp_path, CPU)


def test_the_reasons_of_rows_that_are_only_published_reach_the_table(tmp_path):
    grid = replace(read_grid("influence-table1"), published_only={"SoftTriple": "no code"})
    plan = [stand_in(c, tmp_path, 0.5) for c in cells(grid) if c.names["method"] != "SoftTriple"]
    sheet = tabulate(grid, plan, tmp_path, CPU)
    assert "Published only: SoftTriple: no code." in explain(sheet, "Bold", "Italic")


GRID = """
[settings]
data = "{data}"
sampler = "SamplesPerClass(batch=16, per_class=4)"
dim = 4
steps = 2
metrics = ["R@1"]
[axes]
seed = [0, 1, 2]
"""


@pytest.fixture
def config(features, tmp_path):
    file = tmp_path / "three seeds.toml"
    file.write_text(GRID.format(data=features), "utf-8")
    return Bench(str(file), out=str(tmp_path / "out"), device="cpu", quiet=True)


def test_finished_failed_and_missing_trainings_are_told_apart(config):
    plan = plan_grid(config, print)
    first, second, third = plan.runs
    attempt(first.job.config)
    plan = replace(plan, runs=[first, replace(second, error="train: no"), third])
    sheet = write_table(plan, config, torch.device("cpu"))
    with (plan.folder / "results.csv").open(newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    assert [line["status"] for line in lines] == ["finished", "failed: train: no", "new"]
    assert float(lines[0]["R@1"]) == first.job.run.scores["metrics"]["R@1"] and lines[1]["R@1"] == lines[2]["R@1"] == ""
    assert sheet.failed == 1
    assert f"failed: seed 1: train: no. Again: {again(config, second)}" in sheet.notes
    assert again(config, second).endswith("--only 2")
    assert {file.name for file in plan.folder.iterdir()} >= {"table.md", "table.tex", "table.html", "table.csv"}


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
    monkeypatch.setattr(results_table, "write_drawing", lambda name, table: (b"PNG", [f"{len(table.done)} drawn"]))
    pictures, notes = follow_up(grid, sheet, runs, Bench("x", only=only))
    assert [(one.title, one.png, one.file, one.leads) for one in pictures] == [
        ("Wrong labels found", b"PNG", "detection.png", True)
    ] * drawn
    note = "Not drawn with --only: detection; run the command again without --only."
    assert notes == (["2 drawn"] if drawn else [note] if only else [])
