import torch
from likewise.losses import Contrastive, Triplet
from likewise.miners import Random, Switch
from likewise.similarity import compare


def test_some_negatives_become_class_mates_and_their_pull_vanishes(crowd):
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


def test_never_and_always(crowd):
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


def test_a_batch_of_one_class_is_still_spread():
    z = torch.nn.functional.normalize(torch.randn(4, 3, generator=torch.Generator().manual_seed(0)), dim=1)
    t = Switch(share=1.0)(*compare(z, torch.zeros(4, dtype=torch.int64)), 3)
    assert t.valid.all() and not t.pull.any()
