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


def test_a_batch_of_one_class_has_no_triplet():
    z = torch.nn.functional.normalize(torch.randn(4, 3), dim=1)
    t = SemiHard()(*compare(z, torch.zeros(4, dtype=torch.int64)), 3, 0.2)
    assert not t.valid.any()
