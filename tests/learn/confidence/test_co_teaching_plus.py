"""Co-teaching+: the exchange goes on where the two networks name different classes."""

import pytest
import torch
from likewise.confidence import CoTeachingPlus
from likewise.contracts import Confidence
from likewise.losses import Contrastive, NormSoftmax
from likewise.types import LikewiseError, PeerView

from likewise.core.settings.spec import build


def exchange(part, losses, guesses):
    size = len(losses[0])
    seen = [PeerView(torch.zeros(size, 2), torch.tensor(v), torch.tensor(g)) for v, g in zip(losses, guesses)]
    return part.exchange(seen, torch.zeros(size, dtype=torch.int64), torch.arange(size))


def by_hand(losses, guesses, share, apart):
    """The weights of both, one sample at a time."""
    size = len(losses[0])
    among = [i for i in range(size) if not apart or guesses[0][i] != guesses[1][i]] or list(range(size))
    kept = max(1, (100 - round(100 * share)) * len(among) // 100)
    found = []
    for other in (losses[1], losses[0]):
        best = sorted(among, key=lambda i: other[i])[:kept]
        found.append([float(i in best) for i in range(size)])
    return found


def draw(seed, size=12, classes=3):
    g = torch.Generator().manual_seed(seed)
    return torch.rand(2, size, generator=g).tolist(), torch.randint(0, classes, (2, size), generator=g).tolist()


@pytest.mark.parametrize("share", [0.0, 0.25, 0.5])
@pytest.mark.parametrize("seed", range(4))
def test_by_hand_before_and_after_the_start(share, seed):
    part = CoTeachingPlus(share=share, per_pass=4, start="2e", ramp="0")
    losses, guesses = draw(seed)
    for step in (0, 7, 8, 30):
        part.after_step(step)
        found = exchange(part, losses, guesses)
        assert [t.w.tolist() for t in found] == by_hand(losses, guesses, share, apart=step >= 8)
        assert all(t.mean_over == "kept" for t in found)
    outside = torch.tensor(guesses[0]) == torch.tensor(guesses[1])
    assert outside.any() and not found[0].w[outside].any()
    judged = ~outside  # only they are held against the threshold
    assert torch.equal(found[0].w[judged] == 0, found[0].suspicion[judged] >= found[0].threshold)


def test_all_count_where_the_two_agree_on_everything():
    part = CoTeachingPlus(share=0.5, per_pass=1, start="0", ramp="0")
    first, second = exchange(part, [[3.0, 1.0, 2.0, 4.0], [1.0, 2.0, 3.0, 4.0]], [[0, 1, 2, 0]] * 2)
    assert first.w.tolist() == [1, 1, 0, 0] and second.w.tolist() == [0, 1, 1, 0]
    assert part.observe_state()["differing"] == 0


def test_one_sample_in_dispute_is_learned_from():
    part = CoTeachingPlus(share=0.5, per_pass=1, start="0", ramp="0")
    first, second = exchange(part, [[3.0, 1.0, 2.0]] * 2, [[0, 1, 2], [1, 1, 2]])
    assert first.w.tolist() == second.w.tolist() == [1, 0, 0]
    assert float(part.observe_state()["differing"]) == pytest.approx(1 / 3)


def test_guesses_of_a_loss_with_classes_do():
    part = build("CoTeachingPlus(share=0.2, start='0')", Confidence, per_pass=3)
    assert part.peers == 2 and part.needs_loss
    z = torch.nn.functional.normalize(torch.randn(6, 4, generator=torch.Generator().manual_seed(0)), dim=1)
    y = torch.arange(6) % 3
    pair = [NormSoftmax(classes=3, dim=4) for _ in range(2)]
    found = part.exchange([PeerView(z, one(z, y), one.predict(z)) for one in pair], y, y)
    assert all(t.w.sum() >= 1 for t in found)
    plain = Contrastive()
    with pytest.raises(LikewiseError, match=r"predict a class .*NormSoftmax\(\)"):
        part.exchange([PeerView(z, plain(z, y), plain.predict(z))] * 2, y, y)


def test_bad_use():
    part = CoTeachingPlus(share=0.2, per_pass=5)
    one = torch.zeros(3, dtype=torch.int64)
    with pytest.raises(LikewiseError, match="CoTeachingPlus: it must have two networks.*as --confidence"):
        part(torch.zeros(3, 2), one, one, torch.zeros(3))
    with pytest.raises(LikewiseError, match="CoTeachingPlus: it must have two networks.*got 1"):
        exchange(part, [[1.0]], [[0]])
    with pytest.raises(LikewiseError, match="CoTeachingPlus: start must be a number of steps.*got 'x'"):
        CoTeachingPlus(share=0.1, per_pass=5, start="x")
