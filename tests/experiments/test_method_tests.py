"""A contest of methods: every number by hand, the same queries or an error, and no verdict that the seeds do not carry."""

import dataclasses
import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import stdtr

from likewise.experiments.method_tests import conclusion, contest
from likewise.numerics.intervals import paired_interval
from likewise.runs.per_query import PerQuery
from likewise.types import LikewiseError

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


def mean_of(seeds):
    return [sum(one.each["R@1"][q] for one in seeds) / len(seeds) for q in range(len(LABEL))]


def test_every_number_by_hand():
    methods = {"plain": made(0.0), "better": made(0.1, 3, 5), "same": made(0.001, 2, 9)}
    found = contest({"": methods}, "R@1", resamples=5000)
    kept = [q for q in range(len(LABEL)) if q != 7]
    assert (found.metric, found.queries, found.unscored, found.classes) == ("R@1", len(kept), 1, 12)
    assert [(v.a, v.b) for v in found.pairs] == list(itertools.combinations(methods, 2))
    means = {(m, s): np.nanmean(one.each["R@1"]) for m, seeds in methods.items() for s, one in enumerate(seeds)}
    design = np.array([[*(m == name for name in methods), *(s == k for k in range(3))] for m, s in means], float)
    value = np.array(list(means.values()))
    freedom = len(value) - (3 + 3 - 1)  # three methods and three seeds, less what both could say
    spread = ((value - design @ np.linalg.pinv(design) @ value) ** 2).sum() / freedom
    raw = []
    for v in found.pairs:
        many = min(
            len(methods[v.a]), len(methods[v.b])
        )  # "same" has no third seed, so the others' does not count beside it
        old, new = (mean_of(methods[name][:many]) for name in (v.a, v.b))
        gain = [new[q] - old[q] for q in range(len(LABEL))]
        assert v.difference == pytest.approx(sum(gain[q] for q in kept) / len(kept))
        ends = paired_interval(np.array(old), np.array(new), LABEL)
        assert (v.low, v.high) == pytest.approx((ends.low, ends.high), nan_ok=True)
        totals = [sum(gain[q] for q in kept if LABEL[q] == c) for c in sorted(set(LABEL))]
        every = [abs(sum(s * t for s, t in zip(signs, totals))) for signs in itertools.product((1, -1), repeat=12)]
        over_classes = sum(one >= abs(sum(totals)) - 1e-12 for one in every) / 4096
        shared = list(zip(methods[v.a], methods[v.b]))
        by_seed = [np.nanmean(b.each["R@1"]) - np.nanmean(a.each["R@1"]) for a, b in shared]
        assert v.seeds == len(by_seed)
        t = np.mean(by_seed) * (len(by_seed) / (2 * spread)) ** 0.5
        raw.append((over_classes, 2 * stdtr(freedom, -abs(t))))
    for name, p in zip(("p_classes", "p_seeds"), zip(*raw)):
        low, mid, high = sorted(p)
        steps = {low: min(1, 3 * low), mid: max(3 * low, 2 * mid), high: max(3 * low, 2 * mid, high)}
        assert [getattr(v, name) for v in found.pairs] == pytest.approx([min(1, steps[one]) for one in p])
    assert found.pairs[0].outcome == "better" and found.pairs[2].outcome in ("worse", "classes only")
    assert found.pairs[1].outcome == "no difference shown"


def test_ranks_are_of_class_means_over_seeds_and_columns():
    columns = {"none": {"a": made(0.0), "b": made(0.2)}, "half": {"b": made(-0.1), "a": made(0.0)}}
    found = contest(columns, "R@1")
    totals = []
    for c in sorted(set(LABEL)):
        members = [q for q in range(len(LABEL)) if LABEL[q] == c and q != 7]
        value = {m: sum(mean_of(columns[k][m])[q] for k in columns for q in members) / len(members) for m in "ab"}
        totals.append([1 + (value["b"] > value["a"]), 1 + (value["a"] > value["b"])])
    assert found.rank == {"b": sum(b for _, b in totals) / 12, "a": sum(a for a, _ in totals) / 12}
    assert list(found.rank) == ["b", "a"] and found.friedman < 0.01
    assert found.critical == pytest.approx(1.960 * (6 / 72) ** 0.5, abs=1e-3)
    assert [(v.column, v.a, v.difference > 0) for v in found.pairs] == [("none", "a", True), ("half", "b", True)]


def test_rounding_is_no_difference():
    third = np.full(len(LABEL), 1 / 3)
    found = contest({"": {"a": [answers(third)], "b": [answers(third + 1e-15)]}}, "R@1")
    assert found.rank == {"a": 1.5, "b": 1.5} and found.friedman == 1
    assert found.pairs[0].p_classes == 1 and found.pairs[0].outcome == "no difference shown"


def test_seeds_are_paired_by_their_place_and_who_has_none_is_left_out():
    a, b = made(0.0, 4), made(0.1, 4, 9)
    whole = contest({"": {"a": [a[1], a[3]], "b": [b[1], b[3]]}}, "R@1").pairs[0]
    gaps = contest({"": {"a": [None, a[1], a[2], a[3]], "b": [b[0], b[1], None, b[3]], "c": [None]}}, "R@1")
    assert (gaps.pairs[0].p_seeds, gaps.pairs[0].seeds) == (pytest.approx(whole.p_seeds), 2)
    assert list(gaps.rank) == ["b", "a"] and len(gaps.pairs) == 1
    partly = contest({"x": {"a": a, "b": b}, "y": {"a": a, "c": b}}, "R@1")
    assert list(partly.rank) == ["a"] and math.isnan(partly.critical) and len(partly.pairs) == 2


def test_a_seed_that_only_one_has_is_nobodys_advantage():
    """Two trainings of a went wrong, whose seeds b has not tried: by all that there is b would be far ahead, and is worse."""
    a, b = made(0.1, 3), made(0.0, 3, 5)
    lost = [answers(np.where(np.isnan(one.each["R@1"]), np.nan, 0.0)) for one in a[:2]]
    pair, *_ = contest({"": {"a": [*a, *lost], "b": [*b, None, None]}}, "R@1").pairs
    whole = contest({"": {"a": a, "b": b}}, "R@1").pairs[0]
    assert pair.p_seeds == pytest.approx(whole.p_seeds)
    assert replace(pair, p_seeds=whole.p_seeds) == whole and (pair.outcome, pair.seeds) == ("worse", 3)
    assert list(contest({"": {"a": [*a, *lost], "b": b}}, "R@1").rank) == ["a", "b"]
    none = contest({"": {"a": [*a, None], "b": [None, None, None, b[0]]}}, "R@1").pairs[0]  # then by what there is
    assert none.seeds == 0 and math.isnan(none.p_seeds) and none.difference == pytest.approx(-0.1, abs=0.02)


def test_pairs_in_several_blocks_are_what_they_are_in_one(monkeypatch):
    methods = {f"m{m}": made(m / 50, 2, m) for m in range(4)}
    whole = contest({"": methods}, "R@1")
    monkeypatch.setattr("likewise.experiments.method_tests.PAIRS_CHUNK", 4)
    assert contest({"": methods}, "R@1") == whole


def test_one_training_of_each_is_never_enough():
    found = contest({"": {"a": made(0.0, 1), "b": made(0.2, 1, 3)}}, "R@1").pairs[0]
    assert found.p_classes < 0.01 and math.isnan(found.p_seeds) and found.outcome == "classes only"
    assert not found.is_significant


def test_verdicts():
    assert conclusion(0.1, 0.01, 0.01) == "better" and conclusion(-0.1, 0.01, 0.01) == "worse"
    assert conclusion(0.1, 0.2, 0.01) == "seeds only" and conclusion(0.1, 0.05, math.nan) == "no difference shown"


def test_many_methods_can_still_be_told_apart():
    """Enough signs are drawn for the number of pairs: 20 methods are 190 pairs, and one is far ahead."""
    label = np.repeat(np.arange(30), 2)
    hard = np.random.default_rng(0).random((20, 60)) / 100
    methods = {f"m{m}": [answers(hard[m] + 0.5 * (m == 0), label)] for m in range(20)}
    found = contest({"": methods}, "R@1", resamples=1)
    assert all(v.p_classes < 0.05 for v in found.pairs if v.a == "m0") and next(iter(found.rank)) == "m0"


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
    with pytest.raises(
        LikewiseError, match="contest: A is the first method, B is b at x, seed 1: compare: .*same queries"
    ):
        contest({"x": {"a": a, "b": b}}, "R@1")


def test_what_cannot_be_compared_is_named():
    with pytest.raises(LikewiseError, match="contest: 'MAP@R' must have been measured for a, got R@1"):
        contest({"": {"a": made(0.0)}}, "MAP@R")
    with pytest.raises(LikewiseError, match="contest: there must be one evaluated training or more"):
        contest({"": {"a": [None]}}, "R@1")
    with pytest.raises(
        LikewiseError, match=f"contest: R@1 must be known for one query or more, got NaN for all {len(LABEL)}"
    ):
        contest({"": {"a": [answers(np.full(len(LABEL), np.nan))]}}, "R@1")
