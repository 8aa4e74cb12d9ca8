"""Records of other machines: which of them replace a training, and what the table makes of them."""

import pytest
import torch
from likewise.config import Train
from likewise.errors import LikewiseError

from likewise.papers.grid import Cell
from likewise.papers.grid_plan import Job, PlannedRun, adopt
from likewise.papers.results_table import provenance, score, write_results

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


@pytest.mark.parametrize("text", ["a,b\n1,2\n", "", None])
def test_a_file_that_is_no_table_of_results_is_an_error(tmp_path, text):
    file = tmp_path / "other.csv"
    if text is not None:
        file.write_text(text)
    with pytest.raises(LikewiseError, match=r"--adopt must be a results\.csv"):
        adopt([], [str(file)])


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("1,a,,nan,,finished,there/a,a,1\n", "R@1 of a finished training must be a finite number, got 'nan'"),
        ("1,a,,1e999,,finished,there/a,a,1\n", "must be a finite number, got '1e999'"),
        ("1,a,,half,,finished,there/a,a,1\n", "must be a finite number, got 'half'"),
        ("1,a,,0.5,,finished,there/a,a\n", "line 2 must have 9 cells, got 8; restore a copy"),
        ("1,a,,0.5,,finished,there/a,a,1,more\n", "line 2 must have 9 cells, got 10"),
        (
            "1,a,,0.5,,finished,x,a,1\n1,a,,0.9,,finished,x,a,1\n",
            "different results have the identity a; delete all but one",
        ),
    ],
)
def test_a_damaged_table_of_results_is_an_error(tmp_path, line, reason):
    file = tmp_path / "results.csv"
    file.write_text(HEAD + line)
    with pytest.raises(LikewiseError, match=reason):
        adopt([planned("a")], [str(file)])


def test_a_column_that_is_there_twice_is_an_error(tmp_path):
    file = tmp_path / "results.csv"
    file.write_text("identity,status,R@1,R@1\na,finished,0.2,0.9\n")
    with pytest.raises(LikewiseError, match="with the columns identity and status and none twice"):
        adopt([planned("a")], [str(file)])
