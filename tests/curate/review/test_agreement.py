"""Agreement of reviewers: kappa by hand, and disputes."""

import math

import numpy as np
import pytest

from likewise.curate.review.agreement import agreement, find_consensus
from likewise.curate.review.store import Decision


def decisions(kind, **by):
    return [
        Decision(n, "", who, kind, str(item), *[*choice.split(":"), ""][:2], "")
        for who, verdicts in by.items()
        for n, (item, choice) in enumerate(verdicts.items())
    ]


def test_settling_needs_all_who_are_sure():
    said = decisions("sample", ann={1: "relabel:a", 2: "keep", 3: "unsure"}, bob={1: "relabel:b", 2: "unsure"})
    said += decisions("pair", ann={"1-2": "agreeable"}, bob={"1-2": "disagreeable"})
    found = {item: one[:2] for item, one in find_consensus(said).items()}
    assert found == {"1": ("disputed", ""), "2": ("keep", ""), "1-2": ("disputed", "")}


def by_hand(ann, bob):
    both = [item for item in ann if item in bob]
    views = {*ann.values(), *bob.values()}
    p = sum(ann[i] == bob[i] for i in both) / len(both)
    q = sum(
        sum(ann[i] == v for i in both) / len(both) * (sum(bob[i] == v for i in both) / len(both)) for v in sorted(views)
    )
    return (p - q) / (1 - q)


def test_kappa_by_hand():
    ann = {1: "keep", 2: "keep", 3: "relabel:a", 4: "relabel:a", 5: "remove", 9: "keep"}
    bob = {1: "keep", 2: "remove", 3: "relabel:a", 4: "relabel:b", 5: "remove", 8: "keep"}
    [found] = agreement(decisions("sample", ann=ann, bob=bob))
    assert found[:4] == ("sample", "ann", "bob", 5) and found[4] == pytest.approx(by_hand(ann, bob), abs=1e-12)
    assert found[4] == pytest.approx((3 / 5 - 6 / 25) / (1 - 6 / 25))  # keep 2 * 1, remove 1 * 2, a 2 * 1, b 0 * 1
    [undefined] = agreement(decisions("pair", ann={"1-2": "agreeable"}, bob={"1-2": "agreeable"}))
    assert math.isnan(undefined[4])
    assert agreement(decisions("sample", ann={1: "keep"}, bob={2: "keep"})) == []


@pytest.mark.parity
def test_kappa_as_scikit_learn():
    from sklearn.metrics import cohen_kappa_score

    rng = np.random.default_rng(0)
    for _ in range(5):
        mine, theirs = rng.choice(["keep", "remove", "relabel:a", "relabel:b"], (2, 30))
        theirs = np.where(rng.random(30) < 0.5, mine, theirs)
        said = decisions("sample", ann=dict(enumerate(mine.tolist())), bob=dict(enumerate(theirs.tolist())))
        assert agreement(said)[0][4] == pytest.approx(cohen_kappa_score(mine, theirs), abs=1e-12)
