"""Miners by hand, by their definition over many draws, and against another library."""

import math
from collections import Counter

import pytest
import torch
from likewise.losses import Contrastive, Triplet
from likewise.miners import BatchHard, EasyPositive, HardPairs, Random, SemiHard, SoftHard, Switch
from likewise.similarity import compare, reference_masks


def test_batch_hard_by_hand(crowd):
    t = BatchHard()(crowd.sim, crowd.pairs, 3)
    assert t.valid.tolist() == [True] * 8 + [False]
    for a in range(8):
        assert t.p[a] == max(crowd.mates[a], key=lambda j: crowd.d[a][j])
        assert t.n[a] == min(crowd.others[a], key=lambda j: crowd.d[a][j])


@pytest.mark.parametrize("negative", ["semi-hard", "hard", "random"])
def test_easy_positive_by_hand(crowd, negative):
    seen = {a: set() for a in range(8)}
    for a, p, n in crowd.draw(EasyPositive(negative=negative), times=200):
        nearest = min(crowd.mates[a], key=lambda j: crowd.d[a][j])
        assert p == nearest
        seen[a].add(n)
    fell_back = 0
    for a, found in seen.items():
        limit = min(crowd.d[a][j] for j in crowd.mates[a])
        beyond = [n for n in crowd.others[a] if crowd.d[a][n] > limit]
        fell_back += not beyond
        if negative == "random":
            assert found == set(crowd.others[a])
        else:
            among = beyond if negative == "semi-hard" and beyond else crowd.others[a]
            assert found == {min(among, key=lambda j: crowd.d[a][j])}
    assert fell_back < 8


def test_an_easy_positive_with_nothing_beyond_takes_the_nearest_negative():
    sim = torch.tensor([[1.0, 0.1, 0.9, 0.8], [0.1, 1.0, 0.9, 0.8]])
    pairs = reference_masks(torch.tensor([0, 0]), torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1]))
    t = EasyPositive()(sim, pairs, 3)
    assert t.n.tolist() == [2, 2] and t.valid.all()


def test_hard_pairs_by_hand(crowd):
    found = HardPairs(eps=0.1)(crowd.sim, crowd.pairs, 3)
    for i, s in enumerate(crowd.sim.tolist()):
        nearest = max(s[j] for j in crowd.others[i])
        furthest = min([s[j] for j in crowd.mates[i]], default=math.inf)
        for j in range(9):
            assert bool(found.pos[i, j]) == (j in crowd.mates[i] and s[j] - 0.1 < nearest)
            assert bool(found.neg[i, j]) == (j in crowd.others[i] and s[j] + 0.1 > furthest)
    assert not found.neg[8].any()  # no positive, so nothing to be harder than


def test_random_draws_one_triplet_for_every_anchor_that_has_any(crowd):
    drawn = crowd.draw(Random(), times=900)
    assert Counter(a for a, _, _ in drawn) == dict.fromkeys(range(8), 900)
    of_first = Counter((p, n) for a, p, n in drawn if a == 0)
    assert set(of_first) == {(p, n) for p in crowd.mates[0] for n in crowd.others[0]}
    assert all(abs(count - 900 / 12) < 5 * (900 / 12) ** 0.5 for count in of_first.values())


def test_random_is_uniform_over_all_triplets(crowd):
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


def test_semi_hard_draws_obey_the_definition_and_cover_it(crowd):
    """Over many draws every allowed negative comes up, and no other."""
    seen: dict[tuple[int, int], set[int]] = {}
    for a, p, n in crowd.draw(SemiHard(), margin=0.3):
        assert p in crowd.mates[a]
        seen.setdefault((a, p), set()).add(n)
    assert len(seen) == 3 * 2 + 2 * 1 + 3 * 2  # every anchor met each of its class mates
    fell_back = 0
    for (a, p), negatives in seen.items():
        allowed = {n for n in crowd.others[a] if crowd.d[a][p] < crowd.d[a][n] < crowd.d[a][p] + 0.3}
        assert negatives == (allowed or set(crowd.others[a]))
        fell_back += not allowed
    assert 0 < fell_back < len(seen)  # both branches were met


def test_semi_hard_without_the_upper_bound():
    """Eq. 20 of Roth et al. 2020 as printed: squared distances have the same order."""
    angle = torch.tensor([0.0, 0.5, 0.3, 0.7, 2.0, 3.0])
    z, y = torch.stack([angle.cos(), angle.sin()], 1), torch.tensor([0, 0, 1, 2, 3, 4])
    torch.manual_seed(0)
    drawn = [SemiHard(upper=False)(*compare(z, y), 2, margin=0.2) for _ in range(60)]
    assert {int(t.p[0]) for t in drawn} == {1}
    assert {int(t.n[0]) for t in drawn} == {3, 4, 5}, "not sample 2, which is nearer than the positive"
    assert {int(t.n[1]) for t in drawn} == {4, 5}, "from the positive, samples 2 and 3 are nearer than the anchor"
    assert {int(SemiHard()(*compare(z, y), 2, margin=0.2).n[0]) for _ in range(20)} == {3}
    assert drawn[0].valid.tolist() == [True, True, False, False, False, False]


def test_soft_hard_draws_obey_the_definition_and_cover_it(crowd):
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


def test_soft_hard_draws_from_all_for_an_easy_anchor(crowd):
    """Class 0 far from everyone: nothing is hard, and every pair may come."""
    crowd.sim[:3, :3], crowd.sim[:3, 3:] = 0.9, -0.9
    drawn = [t for t in crowd.draw(SoftHard(), times=200) if t[0] == 0]
    assert {p for _, p, _ in drawn} == {1, 2} and {n for _, _, n in drawn} == set(range(3, 9))


def test_switch_turns_negatives_into_class_mates_without_a_pull(crowd):
    torch.manual_seed(0)
    swapped, mates = 0, set()
    for _ in range(500):
        t = Switch(share=0.3, miner=Random())(crowd.sim, crowd.pairs, 3)
        assert t.valid.tolist() == [True] * 8 + [False]
        for a in range(8):
            if t.pull[a]:
                assert crowd.y[t.n[a]] != crowd.y[a] and crowd.y[t.p[a]] == crowd.y[a]
            else:
                assert t.n[a].item() in crowd.mates[a]
                mates.add((a, t.n[a].item()))
        swapped += (~t.pull[:8]).sum().item()
    assert abs(swapped / 4000 - 0.3) < 5 * (0.3 * 0.7 / 4000) ** 0.5
    assert mates == {(a, p) for a in range(8) for p in crowd.mates[a]}


def test_switch_never_and_always(crowd):
    assert Switch(share=0.0)(crowd.sim, crowd.pairs, 3).pull.all()
    t = Switch(share=1.0)(crowd.sim, crowd.pairs, 3)
    assert not t.pull[:8].any() and not t.valid[8]


def test_the_loss_of_a_swapped_triplet_is_its_push_alone(crowd):
    """Contrastive: [margin - d(a, p')]+. Triplet, squared: [margin - d(a, p')^2]+. By hand, with one mate each."""
    rows = [3, 4]  # a class of two
    z, y = crowd.z[rows], crowd.y[rows]
    d = crowd.d[3][4]
    always = Switch(share=1.0)
    torch.testing.assert_close(Contrastive(margin=1.5, miner=always)(z, y), torch.full((2,), max(0, 1.5 - d)).double())
    triplet = Triplet(margin=2.0, squared=True, miner=always)(z, y)
    torch.testing.assert_close(triplet, torch.full((2,), max(0, 2.0 - d * d)).double())


def test_switch_spreads_a_batch_of_one_class():
    z = torch.nn.functional.normalize(torch.randn(4, 3, generator=torch.Generator().manual_seed(0)), dim=1)
    t = Switch(share=1.0)(*compare(z, torch.zeros(4, dtype=torch.int64)), 3)
    assert t.valid.all() and not t.pull.any()
