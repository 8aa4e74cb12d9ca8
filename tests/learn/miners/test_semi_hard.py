import torch
from likewise.miners import SemiHard
from likewise.similarity import compare


def test_draws_are_semi_hard_and_cover_all_that_are():
    """Every draw obeys the definition; over many draws every allowed negative comes up, and no other."""
    g = torch.Generator().manual_seed(1)
    y = torch.tensor([0, 0, 0, 1, 1, 2, 2, 2, 3])
    z = torch.nn.functional.normalize(torch.randn(9, 3, generator=g), dim=1)
    sim, pairs = compare(z, y)
    d = torch.cdist(z.double(), z.double())
    seen: dict[tuple[int, int], set[int]] = {}
    torch.manual_seed(0)
    for _ in range(400):
        t = SemiHard()(sim, pairs, 3, margin=0.3)
        assert t.valid.tolist() == [True] * 8 + [False] and t.pull.all()
        for a, p, n in zip(t.a[:8].tolist(), t.p[:8].tolist(), t.n[:8].tolist()):
            assert y[a] == y[p] and a != p and y[a] != y[n]
            seen.setdefault((a, p), set()).add(n)
    assert len(seen) == 3 * 2 + 2 * 1 + 3 * 2  # every anchor met each of its class mates
    fell_back = 0
    for (a, p), negatives in seen.items():
        allowed = {n for n in range(9) if y[n] != y[a] and d[a, p] < d[a, n] < d[a, p] + 0.3}
        every = {n for n in range(9) if y[n] != y[a]}
        assert negatives == (allowed or every)
        fell_back += not allowed
    assert 0 < fell_back < len(seen)  # both branches were met


def test_without_the_upper_bound_every_negative_beyond_the_positive_is_drawn():
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


def test_a_batch_of_one_class_has_no_triplet():
    z = torch.nn.functional.normalize(torch.randn(4, 3), dim=1)
    t = SemiHard()(*compare(z, torch.zeros(4, dtype=torch.int64)), 3, 0.2)
    assert not t.valid.any()
