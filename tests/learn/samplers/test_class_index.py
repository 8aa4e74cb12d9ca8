from collections import Counter

import numpy as np
import pytest
from likewise.types import LikewiseError

from likewise.learn.samplers._class_index import (
    ClassIndex,
    candidate_batches,
    check_batch,
    check_pool,
    deal_from,
    some_of,
    usable_classes,
)

LABELS = np.array([7, 3, 7, 9, 3, 7, 3, 3, 1])  # 1 x1, 3 x4, 7 x3, 9 x1


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def test_rows_stand_by_class():
    members = ClassIndex(LABELS)
    assert [r.tolist() for r in members.rows] == [[8], [1, 4, 6, 7], [0, 2, 5], [3]]
    assert members.of_row.tolist() == [2, 1, 2, 3, 1, 2, 1, 1, 0]
    few = ClassIndex(LABELS, least=2)
    assert few.size.tolist() == [4, 3] and sorted(few.every) == [0, 1, 2, 4, 5, 6, 7]
    assert few.of_row.tolist() == [1, 0, 1, -1, 0, 1, 0, 0, -1]


def test_draws_are_uniform_inside_the_class(rng):
    drawn = ClassIndex(LABELS).draw(np.repeat([[1], [2]], 6000, axis=1), rng)
    assert drawn.shape == (2, 6000)
    for line, rows in zip(drawn, ([1, 4, 6, 7], [0, 2, 5])):
        count = Counter(line.tolist())
        assert set(count) == set(rows)
        assert max(abs(c - 6000 / len(rows)) for c in count.values()) < 200


def test_slots_of_one_class_share_no_row_while_it_has_others(rng):
    members = ClassIndex(LABELS)
    for _ in range(20):
        filled = members.fill(np.array([1, 2, 1, 0]), 2, rng)
        assert set(filled[[0, 2]].flat) == {1, 4, 6, 7}
        assert set(filled[1]) < {0, 2, 5} and len(set(filled[1])) == 2
        assert filled[3].tolist() == [8, 8]


def test_a_class_comes_again_when_all_have_come_and_it_has_rows_left(rng):
    labels = np.repeat(np.arange(4), [2, 3, 4, 9])
    members = ClassIndex(labels)
    for _ in range(20):
        dealt = members.deal(8, 2, rng)
        assert (labels[dealt[:, :1]] == labels[dealt]).all() and len(set(dealt.flat)) == 16
        assert sorted(labels[dealt[:4, 0]]) == [0, 1, 2, 3]
        assert sorted(labels[dealt[4:, 0]]) == [2, 3, 3, 3]
    assert len(members.deal(30, 2, rng)) == 30  # more than there are: from the start again


def test_a_pool_holds_no_row_twice_and_all_when_it_can(rng):
    members = ClassIndex(np.repeat(np.arange(5), [2, 9, 9, 9, 9]))
    assert sorted(members.pool(99, 2, rng)) == list(range(38))
    pool = members.pool(20, 2, rng)
    assert len(pool) == len(set(pool)) == 20
    assert len(members.pool(20, 4, rng)) == 18  # a class of two cannot give four


def test_candidates_are_batches_from_the_pool(rng):
    labels = np.repeat(np.arange(6), 4)
    tries = candidate_batches(labels, 7, 8, 2, rng)
    assert tries.shape == (7, 8) and len({tuple(t) for t in tries}) == 7
    for t in tries:
        assert set(Counter(labels[t].tolist()).values()) == {2} and len(set(t)) == 8


def test_bad_arguments():
    with pytest.raises(LikewiseError, match=r"2 of 4 classes .*\(first: one\).*lonely='skip' in X"):
        usable_classes("X", LABELS, "per_class=2", "error", ("zero", "one", "two", "three"))
    with pytest.raises(LikewiseError, match="every class has one; use Shuffled"):
        usable_classes("X", np.arange(5), "per_class=2", "skip", None)
    assert len(usable_classes("X", np.arange(5), None, "error", None).every) == 5
    with pytest.raises(LikewiseError, match="multiple of per_class, got batch=3, per_class=2"):
        check_batch("X", 3, 2)
    with pytest.raises(LikewiseError, match="got pool=4, batch=6; raise pool"):
        check_pool("X", 4, 6, ClassIndex(LABELS))
    with pytest.raises(LikewiseError, match="batch=10 with 9; lower batch"):
        check_pool("X", 512, 10, ClassIndex(LABELS))


def test_everyone_is_dealt_once_before_anyone_again():
    rng, pack, everyone = np.random.default_rng(0), [], np.arange(7)
    dealt = [v for _ in range(14) for v in deal_from(pack, everyone, 3, rng)]
    for start in range(0, 42, 7):
        assert sorted(dealt[start : start + 7]) == list(range(7))


def test_some_rows_are_different_and_all_if_there_are_few():
    rng, rows = np.random.default_rng(0), np.arange(100, 400)
    assert sorted(some_of(rows[:5], 9, rng)) == rows[:5].tolist()
    assert len(set(some_of(rows[:20], 9, rng))) == 9
    drawn = some_of(rows, 30, rng)
    assert 20 < len(drawn) == len(set(drawn)) <= 30 and set(drawn) <= set(rows.tolist())


def test_a_draw_moves_no_other_entry_and_the_order_is_that_of_a_list_that_loses_its_first():
    def by_hand(pack, everyone, count, rng):
        while len(pack) < count:
            left, fresh = set(pack), rng.permutation(everyone).tolist()
            pack += [v for v in fresh if v not in left] + [v for v in fresh if v in left]
        taken, pack[:] = pack[:count], pack[count:]
        return taken

    (one, a), (other, b) = ((np.random.default_rng(3), []) for _ in range(2))
    everyone, counts = np.arange(11), [1, 4, 3, 2, 7, 1, 25, 3, 3]
    assert [deal_from(a, everyone, n, one) for n in counts] == [by_hand(b, everyone, n, other) for n in counts]
    assert one.random() == other.random()
    pack = []
    deal_from(pack, np.arange(50), 1, one)
    kept = pack[:40]
    deal_from(pack, np.arange(50), 5, one)
    assert pack[:40] == kept
