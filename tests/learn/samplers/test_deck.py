import numpy as np

from likewise.learn.samplers._deck import deal, some


def test_everyone_is_dealt_once_before_anyone_again():
    rng, pack, everyone = np.random.default_rng(0), [], np.arange(7)
    dealt = [v for _ in range(14) for v in deal(pack, everyone, 3, rng)]
    for start in range(0, 42, 7):
        assert sorted(dealt[start : start + 7]) == list(range(7))


def test_some_rows_are_different_and_all_if_there_are_few():
    rng, rows = np.random.default_rng(0), np.arange(100, 400)
    assert sorted(some(rows[:5], 9, rng)) == rows[:5].tolist()
    assert len(set(some(rows[:20], 9, rng))) == 9
    drawn = some(rows, 30, rng)
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
    assert [deal(a, everyone, n, one) for n in counts] == [by_hand(b, everyone, n, other) for n in counts]
    assert one.random() == other.random()
    pack = []
    deal(pack, np.arange(50), 1, one)
    kept = pack[:40]
    deal(pack, np.arange(50), 5, one)
    assert pack[:40] == kept
