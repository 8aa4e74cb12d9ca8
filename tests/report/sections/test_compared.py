"""Comparison of two runs, and the overlap of their errors."""

import dataclasses

import numpy as np
import pytest
from likewise.config import Compare, Report, Train

from likewise.learn.training.fit import train
from likewise.report.report_target import open_target
from likewise.report.run_analysis import analyse_run
from likewise.report.sections.compared import compare_runs, most_changed, with_names
from likewise.report.sections.overlap import find_overlap
from likewise.report.write_report import make_pool
from likewise.runs.scores import read_per_query
from likewise.score.compare import compare


@pytest.fixture(scope="module")
def two(features, finished, tmp_path_factory):
    """The finished run, and one that hardly trained."""
    other = train(Train(
        data=features, out=str(tmp_path_factory.mktemp("two") / "short"), dim=8, steps=2, quiet=True, device="cpu",
        sampler="SamplesPerClass(batch=24, per_class=4)", protocol="UnseenClasses(val=0.3)", seed=5,
    ))  # fmt: skip
    config = Report(quiet=True, device="cpu", workers=0, map="none")
    opened = [open_target(str(run.path), run.path.name, config, {}, print) for run in (other, finished)]
    pool = make_pool(opened[0])
    return opened, [analyse_run(one, 0, pool, config) for one in opened], pool


def test_the_verdict_is_that_of_compare_and_queries_are_those_that_changed_most(two):
    opened, viewed, pool = two
    found = compare_runs(0, 1, opened, viewed, pool, 6)
    paths = [str(one.run.path) for one in opened]
    said = compare(Compare(*paths))["metrics"]["MAP@R"]["conclusion"]
    assert found.conclusion == with_names(said, "short", "finished") and "finished" in found.conclusion
    a, b = (read_per_query(one.run.path / "per_query.parquet", "test") for one in opened)
    change = b.each["MAP@R"] - a.each["MAP@R"]
    assert len(found.queries) == 6 and found.metric == "MAP@R"
    for old, new in found.queries:
        q = a.row.tolist().index(pool.row[old.place])
        assert old.place == new.place and np.isclose(new.value - old.value, change[q])
        assert [pool.row[x.place] for x in new.neighbours] == b.nearest[q, :8].tolist()
    sizes = [abs(new.value - old.value) for old, new in found.queries]
    assert sizes == sorted(sizes, reverse=True) and np.isclose(sizes[0], np.abs(change).max())


def test_the_metric_is_one_that_both_have(two):
    opened, viewed, pool = two
    queries = opened[1].queries
    other = dataclasses.replace(opened[1], queries=dataclasses.replace(queries, each={"R@1": queries.each["R@1"]}))
    found = compare_runs(0, 1, [opened[0], other], viewed, pool, 6)
    assert viewed[0].main_metric == "MAP@R" and found.metric == "R@1" and "R@1" in found.conclusion


def test_sentences_about_a_and_b_become_sentences_about_runs():
    assert with_names("B is better by 2 points", "x", "y") == "y is better by 2 points"
    assert with_names("no difference can be told: B - A is 0", "x", "y") == "no difference can be told: y - x is 0"
    assert with_names("A and B are the same run: so", "x", "B is") == "x and B is are the same run: so"


def test_changes_are_half_gains_and_half_losses_the_largest_first():
    old = np.array([0.5, 0.5, 0.5, 0.5, 0.5, 0.5, np.nan])
    new = np.array([0.9, 0.8, 0.7, 0.4, 0.1, 0.5, 0.5])
    assert most_changed(old, new, 2).tolist() == [0, 4]
    assert most_changed(old, new, 4).tolist() == [0, 4, 1, 3]
    assert most_changed(old, new, 9).tolist() == [0, 4, 1, 2, 3]
    assert most_changed(old, old + 0.1, 3).tolist() == [0, 1, 2]  # no losses: all of them gains
    assert len(most_changed(old, old, 3)) == 0


def test_shared_errors_name_the_runs_or_say_why_not(finished, run):
    config = Report(quiet=True, device="cpu", workers=0)
    opened = [
        open_target(str(one.path), name, config, {}, print) for one, name in ((run, "short"), (finished, "finished"))
    ]
    found, why = find_overlap(opened)
    assert why == "" and found.runs == ("short", "finished") and set(found.by) == {"count", "rate"} and found.k == 10
    found, why = find_overlap([opened[0], dataclasses.replace(opened[0])])
    assert found is None and "given once" in why
