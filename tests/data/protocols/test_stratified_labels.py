"""Iterative stratification: every label has its share in every split."""

import dataclasses

import numpy as np
import pytest
from likewise.protocols import SeenClasses, StratifiedLabels
from likewise.types import Items, LikewiseError

from likewise.data.protocols.stratified_labels import fill, stratify


def draw_sets(count: int = 600, labels: int = 30, seed: int = 0, **columns) -> Items:
    """Items with one to five labels each; frequent and rare labels."""
    rng = np.random.default_rng(seed)
    chance = 1 / np.arange(1, labels + 1)
    sets = [
        tuple(sorted(set(rng.choice(labels, rng.integers(1, 6), p=chance / chance.sum()).tolist())))
        for _ in range(count)
    ]
    distinct = sorted(set(sets))
    names = tuple(f"l{n:02d}" for n in range(labels))
    return Items(
        "toy",
        np.array([distinct.index(one) for one in sets]),
        tuple("|".join(names[label] for label in one) for one in distinct),
        x=rng.normal(size=(count, 2)).astype(np.float32),
        label_name=names,
        label_sets=tuple(distinct),
        **columns,
    )


def multi_hot(items: Items) -> np.ndarray:
    hot = np.zeros((len(items), len(items.label_name)), bool)
    for row, c in enumerate(items.y):
        hot[row, list(items.label_sets[c])] = True
    return hot


def imbalance(items: Items, rows: np.ndarray, share: float) -> float:
    """Mean over the labels of |share of the label's rows in these rows - share|: the labels distribution measure."""
    hot = multi_hot(items)
    return np.abs(hot[rows].sum(0) / hot.sum(0).clip(1) - share)[hot.any(0)].mean()


def by_hand(sets: list[tuple[int, ...]], share: list[int], order: list[int], tie: list[int]) -> list[int] | None:
    """The algorithm of the paper, one sample at a time; None where two splits are equal, so that the paper draws one."""
    labels, whole = sorted({label for one in sets for label in one}), sum(share)
    wanted = {label: [s * sum(label in one for one in sets) for s in share] for label in labels}
    room, part = [s * len(sets) for s in share], [-1] * len(sets)
    while -1 in part:
        left = {label: sum(label in one for one, p in zip(sets, part) if p < 0) for label in labels}
        now = min((label for label in labels if left[label]), key=lambda label: (left[label], tie[label]))
        for at in sorted(range(len(sets)), key=lambda at: order[at]):
            if part[at] >= 0 or now not in sets[at]:
                continue
            need = [(wanted[now][p], room[p]) for p in range(len(share))]
            if need.count(max(need)) > 1:
                return None
            part[at] = need.index(max(need))
            for label in sets[at]:
                wanted[label][part[at]] -= whole
            room[part[at]] -= whole
    return part


def test_it_is_the_algorithm_of_the_paper():
    rng, compared, share = np.random.default_rng(3), 0, [577, 104, 319]
    for seed in range(100):
        sets = [(label,) for label in range(5)]  # all labels exist
        sets += [
            tuple(sorted(set(rng.integers(0, 5, rng.integers(1, 4)).tolist()))) for _ in range(rng.integers(5, 40))
        ]
        draws = np.random.default_rng(seed)
        expected = by_hand(sets, share, draws.permutation(len(sets)).tolist(), draws.permutation(5).tolist())
        if expected is None:
            continue
        compared += 1
        unit = np.repeat(np.arange(len(sets)), [len(one) for one in sets])
        part = stratify(unit, np.concatenate(sets), np.array(share), np.random.default_rng(seed))
        assert part.tolist() == expected
    assert compared > 50


def test_a_fill_is_one_choice_after_another():
    rng = np.random.default_rng(0)
    for _ in range(50):
        wanted, room, count = rng.integers(-20, 60, 3), rng.permutation(60)[:3], int(rng.integers(1, 12))
        wanted = wanted * 3 + np.arange(3)  # no ties between two splits, so that nothing is random
        need, expected = wanted.copy(), []
        for _ in range(count):
            expected.append(int(np.argmax(need)))
            need[expected[-1]] -= 9
        assert fill(wanted, room, 9, count, rng).tolist() == expected
    assert fill(np.array([4, 4]), np.array([1, 8]), 10, 2, rng).tolist() == [1, 0]  # equal needs: the emptier split


def test_labels_are_balanced_far_better_than_by_chance():
    items, rng = draw_sets(), np.random.default_rng(1)
    protocol = StratifiedLabels(test=0.3, val=0.25)
    parts = {part: protocol.rows(items, part) for part in ("train", "val", "test")}
    assert np.array_equal(np.sort(np.concatenate(list(parts.values()))), np.arange(600))
    for part, share in (("train", 0.525), ("val", 0.175), ("test", 0.3)):
        rows = parts[part]
        assert abs(len(rows) / 600 - share) < 0.04  # the algorithm balances labels, not sizes
        chance = np.mean([imbalance(items, rng.permutation(600)[: len(rows)], share) for _ in range(20)])
        assert imbalance(items, rows, share) < 0.4 * chance
    assert multi_hot(items)[parts["train"]].any(0)[multi_hot(items).any(0)].all()  # every label trains


def test_splits_depend_on_the_seed_of_the_protocol_and_not_on_noise():
    items = draw_sets()
    rows = StratifiedLabels().rows(items, "test")
    assert np.array_equal(rows, StratifiedLabels().rows(items, "test"))
    assert not np.array_equal(rows, StratifiedLabels(seed=1).rows(items, "test"))
    noisy = dataclasses.replace(items, y=np.zeros_like(items.y), y_clean=items.y)
    assert np.array_equal(rows, StratifiedLabels().rows(noisy, "test"))


def test_groups_stay_together_and_junk_stays_out():
    group = np.where(np.arange(600) % 3 == 0, -1, np.arange(600) // 6)
    junk = np.arange(600) >= 590
    items = draw_sets(group=group, junk=junk)
    split = StratifiedLabels(val=0.2)._split(items)
    assert (split[590:] == "").all() and set(split[:590]) == {"train", "val", "test"}
    for one in range(98):
        assert len(set(split[(group == one) & ~junk])) == 1
    assert imbalance(items, np.flatnonzero(split == "test"), 0.3) < 0.1


def test_the_split_of_the_data_wins():
    split = np.array(["train", "test", "train", ""] * 150)
    items = draw_sets(split=split)
    assert np.array_equal(StratifiedLabels().rows(items, "test"), np.flatnonzero(split == "test"))
    held = StratifiedLabels(val=0.2)
    assert np.array_equal(held.rows(items, "test"), np.flatnonzero(split == "test"))
    val = held.rows(items, "val")
    assert (split[val] == "train").all() and abs(len(val) - 60) <= 5
    own = draw_sets(split=np.where(np.arange(600) < 10, "val", split))
    assert held.rows(own, "val").tolist() == list(range(10))
    with pytest.raises(LikewiseError, match="test must be omitted"):
        StratifiedLabels(test=0.2).rows(items, "test")


def test_with_single_labels_it_is_stratified_by_class():
    items = Items("toy", np.repeat(np.arange(4), 20), tuple("abcd"), x=np.zeros((80, 1), np.float32))
    rows = StratifiedLabels(test=0.25).rows(items, "test")
    assert np.bincount(items.y[rows]).tolist() == [5, 5, 5, 5]
    assert len(SeenClasses(test=0.25).rows(items, "test")) == len(rows)
