"""What to train: the run that settings belong to, what is refused before training, and a training's place in a grid."""

from dataclasses import replace

import pytest
from likewise.config import Train
from likewise.errors import LikewiseError

from likewise.papers.executors import attempt
from likewise.papers.grid import Cell
from likewise.papers.grid_plan import PlannedRun, Planner


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
        ({"loss": "Triplet(margin=-1.0)"}, "Triplet: margin must be 0 or more"),
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
