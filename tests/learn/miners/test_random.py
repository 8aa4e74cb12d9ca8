from collections import Counter

from likewise.miners import Random


def test_one_triplet_for_every_anchor_that_has_any(crowd):
    drawn = crowd.draw(Random(), times=900)
    assert Counter(a for a, _, _ in drawn) == dict.fromkeys(range(8), 900)
    of_first = Counter((p, n) for a, p, n in drawn if a == 0)
    assert set(of_first) == {(p, n) for p in crowd.mates[0] for n in crowd.others[0]}
    assert all(abs(count - 900 / 12) < 5 * (900 / 12) ** 0.5 for count in of_first.values())


def test_uniform_over_all_triplets(crowd):
    """Anchors come up as often as they have triplets: class 1 (two members) has 1 x 7, the others 2 x 6 per anchor."""
    times = 900
    drawn = crowd.draw(Random(per_anchor=False), times=times)
    assert len(drawn) == 9 * times
    every = [(a, p, n) for a in range(8) for p in crowd.mates[a] for n in crowd.others[a]]
    count = Counter(drawn)
    assert set(count) == set(every)
    expected = 9 * times / len(every)
    assert all(abs(c - expected) < 5 * expected**0.5 for c in count.values())


def test_uniform_draws_see_all_rows_at_once():
    assert Random(per_anchor=False).whole and not Random().whole
