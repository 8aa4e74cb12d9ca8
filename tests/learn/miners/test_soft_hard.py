from likewise.miners import SoftHard


def test_draws_obey_the_definition_and_cover_it(crowd):
    positives, negatives = {a: set() for a in range(8)}, {a: set() for a in range(8)}
    for a, p, n in crowd.draw(SoftHard(), times=600):
        positives[a].add(p)
        negatives[a].add(n)
    easy = 0
    for a in range(8):
        nearest = min(crowd.d[a][n] for n in crowd.others[a])
        furthest = max(crowd.d[a][p] for p in crowd.mates[a])
        hard_pos = {p for p in crowd.mates[a] if crowd.d[a][p] > nearest}
        hard_neg = {n for n in crowd.others[a] if crowd.d[a][n] < furthest}
        assert bool(hard_pos) == bool(hard_neg)
        easy += not hard_pos
        assert positives[a] == (hard_pos or set(crowd.mates[a]))
        assert negatives[a] == (hard_neg or set(crowd.others[a]))
    assert easy < 8


def test_an_easy_anchor_draws_from_all(crowd):
    """Class 0 far from everyone: nothing is hard, and every pair may come."""
    crowd.sim[:3, :3], crowd.sim[:3, 3:] = 0.9, -0.9
    drawn = [t for t in crowd.draw(SoftHard(), times=200) if t[0] == 0]
    assert {p for _, p, _ in drawn} == {1, 2} and {n for _, _, n in drawn} == set(range(3, 9))
