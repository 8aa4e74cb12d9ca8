"""The plan of a grid: which settings differ from the paper's, what is refused, and how trainings are named."""

from dataclasses import replace

import pytest
import torch
from likewise.config import Bench, Train
from likewise.errors import LikewiseError

from likewise.papers.benchmark_table import RowNote
from likewise.papers.executors import attempt
from likewise.papers.grid import Cell, adapted, as_train, cells, read_grid
from likewise.papers.grid_plan import (
    Difference,
    Job,
    PlannedRun,
    Planner,
    adopt,
    assumed,
    by_source,
    cell_name,
    counterpart,
    data_of,
    differences,
    lay_out,
    names,
    notes_on_differences,
    plan_grid,
)
from likewise.papers.results_table import provenance, score, write_results


def test_a_papers_own_settings_on_its_own_data_are_a_reproduction(tmp_path, pictures):
    """Planned only: a file that says which data set it is, and takes all else from the table."""
    file = tmp_path / "mine.toml"
    file.write_text(
        f'base = "influence-table1"\n[published]\ndataset = "Cars196"\n[settings]\ndata = "{pictures}"\n'
        '[axes]\nseed = [5]\nmethod.without = ["SoftTriple", "ProxyNCA++"]\n',
        "utf-8",
    )
    (training,) = lay_out(adapted(read_grid(file)), Bench(str(file)), Planner(tmp_path / "runs", print))
    assert training.differs == (("data", "my pictures ü", "cars196"),)
    changed = adapted(read_grid(file), changes=["dim=32", "loss.alpha=16"])
    (training,) = lay_out(changed, Bench(str(file)), Planner(tmp_path / "runs", print))
    assert [one.setting for one in training.differs] == ["data", "loss", "dim"]
    quick = adapted(read_grid(file), quick=True)
    (training,) = lay_out(quick, Bench(str(file), quick=True), Planner(tmp_path / "runs", print))
    assert training.differs == ()


@pytest.fixture
def config(features, tmp_path):
    """Settings of bench for a grid of two dims with two folds each."""
    file = tmp_path / "two.toml"
    file.write_text(
        f'[settings]\ndata = "{features}"\nsampler = "SamplesPerClass(batch=16, per_class=4)"\n'
        'protocol = "ClassFolds(folds=2)"\n[axes]\ndim = [4, 8]\n', "utf-8",
    )  # fmt: skip
    return Bench(str(file), out=str(tmp_path / "out"), only=("dim=8",))


def test_every_fold_of_every_cell_is_planned_and_some_are_chosen(config):
    plan = plan_grid(config, print)
    assert [(run.number, run.fold, run.job.config.dim) for run in plan.runs] == [
        (1, 0, 4),
        (1, 1, 4),
        (2, 0, 8),
        (2, 1, 8),
    ]
    assert plan.chosen == {1} and str(plan.folder) == config.out
    last = plan.runs[-1]
    assert names(last, ["cell", "dim", "fold"]) == ["8", "1"] and cell_name(last.cell) == "dim 8"
    assert data_of(plan.grid, last) == last.job.config.data.casefold()
    assert last.job.run.path.parent == plan.folder / "runs" and last.status == "new"


def test_two_cells_that_are_one_run_are_refused(config, tmp_path):
    file = tmp_path / "two.toml"
    text = file.read_text("utf-8").replace("dim = [4, 8]", 'loss = ["Triplet()", "Triplet( )"]')
    file.write_text(text, "utf-8")
    with pytest.raises(LikewiseError, match="loss .* are the same run; drop one"):
        plan_grid(Bench(str(file)), print)


@pytest.fixture
def planner(tmp_path):
    return Planner(tmp_path / "my runs ü", print)


def test_a_job_is_the_run_of_its_settings(planner, settings):
    first, again = planner.job(Train(**settings)), planner.job(Train(**settings | {"loss": "MultiSimilarity(alpha=2)"}))
    other = planner.job(Train(**settings | {"seed": 1}))
    assert first == again
    assert other.identity != first.identity
    assert first.run.path.parent == planner.folder
    assert first.run.path.name == f"toy-MultiSimilarity-{first.identity[:8]}"
    assert first.config.out == str(first.run.path)
    assert first.state == "new"
    assert attempt(replace(first.config, evaluate=False)) == (None, False, False)
    assert first.run.about["identity"] == first.identity
    assert first.state == "unfinished"  # trained, but not yet evaluated as asked
    assert replace(first, config=replace(first.config, evaluate=False)).state == "finished"
    assert attempt(first.config) == (None, False, False)
    assert first.state == "finished"
    assert replace(first, config=replace(first.config, metrics=("R@2",))).state == "unfinished"


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"loss": "Triplet(margn=1)"}, "did you mean 'margin'"),
        ({"loss": "Triplet(margin=-1.0)"}, "Triplet: margin must be at least 0"),
        ({"noise": "Uniform(shares=0.1)"}, "did you mean 'share'"),
        ({"warmup": "soon"}, "warmup must be a number of steps"),
        ({"metrics": ("R@1000",)}, "the metrics need 1000 results"),
        ({"protocol": "UnseenClass()"}, "did you mean 'UnseenClasses'"),
    ],
)
def test_what_cannot_work_is_refused_before_training(planner, settings, wrong, words):
    with pytest.raises(LikewiseError) as error:
        planner.job(Train(**settings | wrong))
    assert words in str(error.value)
    assert not planner.folder.exists()


def test_a_planned_run_has_failed_where_it_has_an_error(planner, settings):
    planned = PlannedRun(1, Cell({}, {}), None, planner.job(Train(**settings)))
    assert (planned.status, planned.finished) == ("new", False)
    attempt(planned.job.config)
    assert (planned.status, planned.finished) == ("finished", True)
    failed = replace(planned, error="why")
    assert (failed.status, failed.finished) == ("failed: why", False)


DATA = "cars196"


def cell(published=None, differs=(), **settings):
    return Cell({"method": "x"}, {"data": DATA, **settings}, published or {"method": "HPL"}, differs)


def texts(one, paper=None):
    there = as_train(paper.settings) if paper else None
    return [found.text for found in differences(one, as_train(one.settings), paper, there)]


def test_a_value_that_is_ours_differs_unless_the_table_gives_it():
    """The loss of hpl-nca is ours; its learning rate of proxies is assumed; its optimizer is the paper's."""
    (text,) = texts(cell(recipe="hpl-nca"))
    assert text.startswith("loss: Proxy-NCA with scale 3")
    assert texts(cell(recipe="hpl-nca", loss="Triplet()")) == []
    assert len(texts(cell(recipe="hpl-nca", **{"loss.every": 40}))) == 1  # an argument does not make it the paper's
    assert "loss_lr 0.01" in assumed(cell(recipe="hpl-nca"))
    assert not any(one.startswith(("optimizer", "loss ")) for one in assumed(cell(recipe="hpl-nca")))
    assert not any(one.startswith("loss_lr") for one in assumed(cell(recipe="hpl-nca", loss_lr=0.1)))
    assert assumed(cell(loss="Triplet()")) == () and texts(cell(loss="Triplet()")) == []


def test_a_value_of_a_recipe_that_another_setting_replaces_is_not_named():
    assert "steps" in by_source(cell(recipe="reality-check"), "code")
    assert "steps" not in by_source(cell(recipe="reality-check", epochs=3), "code")


def test_changes_by_the_user_are_named_once_with_both_values():
    paper, mine = cell(recipe="hpl-nca"), cell(recipe="hpl-nca", loss="Triplet(margin=0.4)", dim=64)
    found = texts(mine, paper)
    assert found[0].startswith("loss Triplet(margin=0.4), not Hierarchical(") and found[1] == "dim 64, not 512"
    assert len(found) == 2


def test_two_ways_to_write_a_spec_are_no_difference():
    paper = cell(loss="Margin(beta=0.6, miner=Switch(share=0.4, miner=DistanceWeighted()))")
    assert texts(cell(loss="Margin(beta=0.6, miner=Switch())", **{"loss.miner.share": 0.4}), paper) == []
    assert len(texts(cell(loss="Margin(beta=0.6, miner=Switch())", **{"loss.miner.share": 0.3}), paper)) == 1
    mine = replace(paper, settings=paper.settings | {"data": "x/my birds (new)"})  # a path is no spec
    assert texts(mine, paper) == ["data my birds (new), not cars196"]


def test_the_texts_of_the_table_and_of_its_counterpart_are_named_once():
    paper = cell(differs=("14 groups, not 48",), loss="Triplet()")
    assert texts(cell(differs=("14 groups, not 48", "one fold"), loss="Triplet()"), paper) == [
        "14 groups, not 48",
        "one fold",
    ]


def test_the_counterpart_is_found_by_keys():
    paper = [cell({"method": "A", "share": "0.1"}), cell({"method": "A", "share": "0.2"})]
    assert counterpart(cell({"method": "A", "share": "0.2"}), paper) is paper[1]
    assert counterpart(cell({"share": "0.2"}), paper) is None and counterpart(cell({"method": "B"}), paper) is None


def test_a_setting_of_all_rows_is_one_text_with_two_of_its_values():
    rows = {f"r{n}": [Difference("dim", "8", "512"), Difference("epochs", f"{n}", "60")] for n in (1, 2, 3)}
    rows["r1"].append(Difference("", "14 groups, not 48"))
    assert notes_on_differences(rows) == (
        RowNote("dim 8, not 512; epochs 1 or 2 or others, not 60"),
        RowNote("14 groups, not 48", ("r1",)),
    )
    assert notes_on_differences(rows | {"own": []})[0].rows == ("r1", "r2", "r3")


@pytest.mark.parametrize("columns", ["", 'columns = ["noise"]\n'])
def test_keys_of_a_grid_reach_its_cells(tmp_path, columns):
    file = tmp_path / "mine.toml"
    file.write_text(
        f'base = "procsim-table5"\ndiffers = "one epoch"\n{columns}[settings]\ndata = "glyphs"\n[axes]\nseed = [0]\n'
        'noise = [{name = "half", noise = "Uniform(share=0.5)", differs = "drawn again"}]\n'
        'method = [{name = "ours", loss = "Triplet()", differs = "no mining"}, {name = "plain", loss = "Triplet(margin=1)"}]\n'
        '[published]\nonly = {LSD = "no text"}\n',
        "utf-8",
    )
    grid = read_grid(file)
    assert grid.published_only == {"LSD": "no text"}
    column = "half: drawn again"  # procsim-table5 has the noise in columns, also where the file does not repeat it
    assert [set(one.differs) for one in cells(grid)] == [{"one epoch", column, "no mining"}, {"one epoch", column}]


HEAD = "cell,method,fold,R@1,R@1 (best test epoch),status,run,identity,train_seconds\n"


def planned(identity, fold=None, tmp="nowhere"):
    config = Train(data="x", metrics=("R@1",), out=f"{tmp}/{identity}")
    return PlannedRun(1, Cell({"method": identity}, {}), fold, Job(config, identity))


def test_finished_trainings_of_the_same_identity_are_adopted(tmp_path):
    file = tmp_path / "results.csv"
    file.write_text(
        HEAD + "1,a,,0.5,0.6,finished,there/a,a,12.5\n2,b,,,,unfinished,there/b,b,\n3,z,,0.1,,finished,,z,\n"
    )
    plan, notes = adopt([planned(name) for name in "abc"], [str(file)])
    assert [t.state for t in plan] == ["adopted", "new", "new"]
    assert [t.finished for t in plan] == [True, False, False]
    assert notes == [f"1 of the 2 finished trainings in {file} are cells of this table: adopted"]
    assert score([plan[0]], torch.device("cpu")) == {"": {"R@1": 0.5, "R@1 (best test epoch)": 0.6}}
    assert provenance(plan[0])["run"] == "there/a" and provenance(plan[0])["adopted"] == str(file)


def test_adopted_records_can_be_adopted_again(tmp_path):
    first, second = tmp_path / "first.csv", tmp_path / "second.csv"
    first.write_text(HEAD + "1,a,,0.5,0.6,finished,there/a,a,12.5\n")
    plan, _ = adopt([planned("a")], [str(first)])
    write_results(second, plan, ["method"])
    again, _ = adopt([planned("a")], [str(second)])
    assert again[0].scores["metrics"]["R@1"] == 0.5 and again[0].scores["best_test_epoch"] == {"R@1": 0.6}


def test_records_without_the_metric_and_folds_are_not_adopted(tmp_path):
    file = tmp_path / "results.csv"
    file.write_text("identity,status,MAP@R\na,finished,0.2\n")
    assert adopt([planned("a")], [str(file)])[0][0].state == "new"
    file.write_text("identity,status,R@1\na,finished,0.2\n")
    assert adopt([planned("a", fold=0)], [str(file)])[0][0].state == "new"


NO_TABLE, LINE = r"--adopt must be a results\.csv", HEAD + "1,a,,{},,finished,there/a,a,1\n"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a,b\n1,2\n", NO_TABLE),
        ("", NO_TABLE),
        (None, NO_TABLE),
        ("identity,status,R@1,R@1\na,finished,0.2,0.9\n", f"{NO_TABLE}.* none twice"),
        (LINE.format("nan"), "R@1 of a finished training must be a finite number, got 'nan'"),
        (LINE.format("1e999"), "must be a finite number, got '1e999'"),
        (LINE.format("half"), "must be a finite number, got 'half'"),
        (HEAD + "1,a,,0.5,,finished,there/a,a\n", "line 2 must have 9 cells, got 8; restore a copy"),
        (HEAD + "1,a,,0.5,,finished,there/a,a,1,more\n", "line 2 must have 9 cells, got 10"),
        (HEAD + "1,a,,0.5,,finished,x,a,1\n1,a,,0.9,,finished,x,a,1\n", "the identity a; delete all but one"),
    ],
)
def test_a_file_that_is_no_table_of_results_or_a_damaged_one_is_an_error(tmp_path, text, reason):
    file = tmp_path / "results.csv"
    if text is not None:
        file.write_text(text)
    with pytest.raises(LikewiseError, match=reason):
        adopt([planned("a")], [str(file)])
