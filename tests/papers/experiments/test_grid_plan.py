"""The plan of a grid: which settings differ from the paper's, what is refused, and how trainings are named."""

import pytest
from likewise.config import Bench
from likewise.errors import LikewiseError

from likewise.papers.grid import adapted, read_grid
from likewise.papers.grid_plan import Planner, cell_name, data_of, lay_out, names, plan_grid


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
    with pytest.raises(LikewiseError, match="bench: loss .* are the same run; drop one of them"):
        plan_grid(Bench(str(file)), print)
