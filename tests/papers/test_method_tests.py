"""A contest of methods: every number by hand, the same queries or an error, and no verdict that the seeds do not carry."""

import dataclasses
import itertools
import math

import numpy as np
import pytest
from likewise.types import LikewiseError

from likewise.papers.method_tests import conclusion, contest
from likewise.runs.scores import PerQuery
from likewise.score.significance import compare_pairs

LABEL = np.repeat(np.arange(12) + 5, [3, 4, 5, 2, 6, 4, 4, 4, 4, 4, 4, 4])


def answers(value, label=LABEL, metric="R@1"):
    n = len(label)
    return PerQuery(
        np.arange(100, 100 + n), label, np.array([f"c{one}" for one in label]), np.full(n, 2), {metric: value},
        np.zeros((n, 1), int), np.zeros((n, 1)),
    )  # fmt: skip


def made(gain, seeds=3, start=0):
    """A method's seeds: the same hard queries for all, a gain of its own; query 7 has nothing to find."""
    hard = np.random.default_rng(9).random(len(LABEL)) / 2
    found = []
    for seed in range(start, start + seeds):
        value = hard + gain + 0.01 * np.random.default_rng(seed).normal(size=len(LABEL))
        value[7] = np.nan
        found.append(answers(value))
    return found


def totals(seeds):
    """Classes by seeds: the sums over the queries of every class, one query at a time."""
    kept = [q for q in range(len(LABEL)) if q != 7]
    return np.array(
        [[sum(one.each["R@1"][q] for q in kept if LABEL[q] == c) for one in seeds] for c in sorted(set(LABEL))]
    )


SIZE = np.array([sum(1 for q in range(len(LABEL)) if q != 7 and LABEL[q] == c) for c in sorted(set(LABEL))])


def test_every_number_by_hand():
    """`compare_pairs` is checked by hand in its own test; here what it gets, and what becomes of its answers."""
    methods = {"plain": made(0.0), "better": made(0.1, 3, 5), "same": made(0.001, 2, 9)}
    found = contest({"": methods}, "R@1")
    assert (found.metric, found.queries, found.unscored, found.classes) == ("R@1", len(LABEL) - 1, 1, 12)
    assert [(v.a, v.b) for v in found.pairs] == list(itertools.combinations(methods, 2))
    total = np.full((12, 3, 3), np.nan)
    for m, seeds in enumerate(methods.values()):
        total[:, : len(seeds), m] = totals(seeds)
    theirs = compare_pairs(total, SIZE)
    for k, v in enumerate(found.pairs):
        many = min(
            len(methods[v.a]), len(methods[v.b])
        )  # "same" has no third seed, so the others' does not count beside it
        gain = [totals(methods[name][:many]).sum() / (many * SIZE.sum()) for name in (v.a, v.b)]
        assert v.difference == pytest.approx(gain[1] - gain[0]) and v.seeds == many
        assert (v.low, v.high) == pytest.approx((theirs.low[k], theirs.high[k]))
    low, mid, high = sorted(theirs.p)
    steps = {low: min(1, 3 * low), mid: max(3 * low, 2 * mid), high: max(3 * low, 2 * mid, high)}
    assert [v.p for v in found.pairs] == pytest.approx([min(1, steps[one]) for one in theirs.p])
    assert [v.outcome for v in found.pairs] == ["better", "no difference shown", "worse"]
    assert found.overall == found.pairs  # one column
    shared = {name: totals(seeds[:2]).sum() / (2 * SIZE.sum()) for name, seeds in methods.items()}
    assert found.mean == pytest.approx(shared) and next(iter(found.mean)) == "better" and found.untested == ""


def test_means_are_over_columns():
    columns = {"none": {"a": made(0.0), "b": made(0.2, 3, 5)}, "half": {"b": made(-0.1, 3, 9), "a": made(0.0, 3, 12)}}
    found = contest(columns, "R@1")
    both = {m: np.mean([totals(own[m]) for own in columns.values()], 0) for m in "ab"}
    assert found.mean == pytest.approx({m: both[m].sum() / (3 * SIZE.sum()) for m in "ba"}) and list(found.mean) == [
        "b",
        "a",
    ]
    theirs = compare_pairs(np.stack([both["a"], both["b"]], 2), SIZE)
    (pair,) = found.overall
    assert (pair.a, pair.b, pair.p) == ("a", "b", pytest.approx(theirs.p[0])) and pair.outcome == "better"
    assert [(v.column, v.a, v.outcome) for v in found.pairs] == [("none", "a", "better"), ("half", "b", "better")]


def test_rounding_is_no_difference():
    third = [np.full(len(LABEL), 1 / 3 + s / 10) for s in range(2)]
    found = contest({"": {"a": [answers(v) for v in third], "b": [answers(v + 1e-15) for v in third]}}, "R@1")
    assert found.pairs[0].p == 1 and found.pairs[0].outcome == "no difference shown"


def test_seeds_are_paired_by_their_place_and_who_has_none_is_left_out():
    a, b = made(0.0, 4), made(0.1, 4, 9)
    whole = contest({"": {"a": [a[1], a[3]], "b": [b[1], b[3]]}}, "R@1").pairs[0]
    gaps = contest({"": {"a": [None, a[1], a[2], a[3]], "b": [b[0], b[1], None, b[3]], "c": [None]}}, "R@1")
    assert gaps.pairs == (whole,) and whole.seeds == 2 and list(gaps.mean) == ["b", "a"]
    partly = contest({"x": {"a": a, "b": b}, "y": {"a": a, "c": b}}, "R@1")
    assert list(partly.mean) == ["a"] and partly.overall == () and len(partly.pairs) == 2
    assert partly.untested == "fewer than two methods are in all columns"


def test_a_seed_that_only_one_has_is_nobodys_advantage():
    """Two trainings of a went wrong, whose seeds b has not tried: by all that there is b would be far ahead, and is worse."""
    a, b = made(0.1, 3), made(0.0, 3, 5)
    lost = [answers(np.where(np.isnan(one.each["R@1"]), np.nan, 0.0)) for one in a[:2]]
    found = contest({"": {"a": [*a, *lost], "b": [*b, None, None]}}, "R@1")
    whole = contest({"": {"a": a, "b": b}}, "R@1")
    assert found == whole and (found.pairs[0].outcome, found.pairs[0].seeds) == ("worse", 3)
    none = contest({"": {"a": [*a, None], "b": [None, None, None, b[0]]}}, "R@1")  # then by what there is
    assert none.pairs[0].seeds == 0 and none.pairs[0].difference == pytest.approx(-0.1, abs=0.02)
    assert none.pairs[0].outcome == "not tested" and list(none.mean) == ["a", "b"]


def test_one_training_of_each_is_never_enough():
    found = contest({"": {"a": made(0.0, 1), "b": made(0.2, 1, 3)}}, "R@1")
    pair = found.pairs[0]
    assert math.isnan(pair.p) and math.isnan(pair.low) and pair.outcome == "not tested" and not pair.is_significant
    assert found.untested == "two seeds or more in common are needed, and are missing between a, b"


def test_verdicts():
    assert conclusion(0.1, 0.01) == "better" and conclusion(-0.1, 0.049) == "worse"
    assert conclusion(0.1, 0.05) == "no difference shown" and conclusion(0.1, math.nan) == "not tested"


def test_many_methods_can_still_be_told_apart():
    """20 methods are 190 pairs, and one is far ahead."""
    label = np.repeat(np.arange(30), 2)
    noise = np.random.default_rng(0).random((20, 3, 60)) / 100
    methods = {f"m{m}": [answers(one + 0.5 * (m == 0), label) for one in noise[m]] for m in range(20)}
    found = contest({"": methods}, "R@1")
    assert all(v.outcome == "worse" for v in found.pairs if v.a == "m0") and next(iter(found.mean)) == "m0"


def test_queries_must_be_the_same_whatever_their_order():
    a, b = made(0.0), made(0.1, 3, 7)
    turned = [
        dataclasses.replace(
            one, each={"R@1": one.each["R@1"][::-1].copy()},
            **{f: getattr(one, f)[::-1].copy() for f in ("row", "label", "class_name", "relevant", "nearest", "similarity")},
        )
        for one in b
    ]  # fmt: skip
    assert contest({"": {"a": a, "b": turned}}, "R@1") == contest({"": {"a": a, "b": b}}, "R@1")
    b[1] = dataclasses.replace(b[1], row=b[1].row + 1)
    with pytest.raises(LikewiseError, match="B is b at x, seed 1: .*same queries"):
        contest({"x": {"a": a, "b": b}}, "R@1")


def test_what_cannot_be_compared_is_named():
    with pytest.raises(LikewiseError, match="'MAP@R' must have been measured for a, got R@1"):
        contest({"": {"a": made(0.0)}}, "MAP@R")
    with pytest.raises(LikewiseError, match="one evaluated training or more"):
        contest({"": {"a": [None]}}, "R@1")
    with pytest.raises(LikewiseError, match=f"got NaN for all {len(LABEL)}"):
        contest({"": {"a": [answers(np.full(len(LABEL), np.nan))]}}, "R@1")


def test_methods_are_scored_with_the_same_relevance():
    tree = {"relevant": "same class", "spec": "TreeDepth()"}
    as_before = contest({"": {"a": made(0.0), "b": made(0.1)}}, "R@1")
    graded = [dataclasses.replace(one, relevance=tree) for one in made(0.1)]
    assert str(contest({"": {"a": made(0.0), "b": graded}}, "R@1")) == str(as_before)  # the same rows are relevant
    other = [dataclasses.replace(one, relevance=tree | {"relevant": "relevance of 0.5 or more"}) for one in made(0.1)]
    with pytest.raises(LikewiseError, match="B is b, seed 0: .*same relevance"):
        contest({"": {"a": made(0.0), "b": other}}, "R@1")
    ndcg = [answers(np.ones(len(LABEL)), metric="NDCG@10") for _ in range(2)]
    of_tree = [dataclasses.replace(one, relevance=tree) for one in ndcg]
    with pytest.raises(LikewiseError, match=r"NDCG@10 depends on it"):
        contest({"": {"a": ndcg, "b": of_tree}}, "NDCG@10")
