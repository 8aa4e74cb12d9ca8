import numpy as np

from likewise.samplers._deck import deal, some


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
