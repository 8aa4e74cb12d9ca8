"""ProcSim: its proxies, its weights and what the paper says of them, by hand."""

import math

import pytest
import torch
from likewise.confidence import ProcSim, SuperLoss
from likewise.types import LikewiseError
from torch.nn import functional as F

from likewise.learn.confidence.thresholds import otsu

C, D = 6, 8


def batch(seed, size=12):
    g = torch.Generator().manual_seed(seed)
    return (
        F.normalize(torch.randn(size, D, generator=g), dim=1),
        torch.randint(C, (size,), generator=g),
        torch.arange(size),
    )


def make(**arguments):
    torch.manual_seed(0)
    return ProcSim(C, D, **arguments)


def proxy_loss(z, y, proxies, scale=1.0):
    """One sample, one class at a time."""
    each = []
    for i in range(len(y)):
        logits = []
        for p in proxies.tolist():
            norm = math.sqrt(sum(v * v for v in p))
            logits.append(2 * scale * sum(a * b / norm for a, b in zip(z[i].tolist(), p, strict=True)))
        each.append(math.log(sum(math.exp(v) for v in logits)) - logits[int(y[i])])
    return torch.tensor(each)


def sigma_by_hand(loss, tau, lam, beta0=0.0):
    """The s > 0 with log(1/s) / s = x, by halving: W(x) = w means w e^w = x, and s = e^-w."""
    x = max(beta0, (loss - tau) / lam) / 2
    low, high = -1.0, 200.0
    for _ in range(200):
        w = (low + high) / 2
        low, high = (low, w) if w * math.exp(w) > x else (w, high)
    return math.exp(-low)


@pytest.mark.parametrize(("lam", "scale", "beta0"), [(1.0, 1.0, 0.0), (0.1, 3.0, 0.0), (0.01, 1.0, -2 / math.e)])
def test_by_hand(lam, scale, beta0):
    part = make(lam=lam, scale=scale, beta0=beta0)
    z, y, row = batch(1)
    trust = part(z, y, row, None)
    expected = proxy_loss(z, y, part.proxies, scale)
    torch.testing.assert_close(trust.suspicion, expected)
    tau = float(otsu(expected))
    assert abs(float(trust.threshold) - tau) < 1e-5
    by_hand = torch.tensor([sigma_by_hand(v, tau, lam, beta0) for v in expected.tolist()])
    torch.testing.assert_close(trust.w, by_hand, rtol=1e-3, atol=1e-4)
    assert (trust.w < 1).any() and trust.partner is None and trust.mean_over == "batch"


@pytest.mark.parity
def test_the_proxy_loss_of_pytorch_metric_learning():
    from pytorch_metric_learning.losses import ProxyNCALoss

    theirs, part = ProxyNCALoss(C, D), make()
    theirs.proxies.data = part.proxies.clone()
    z, y, row = batch(2)
    torch.testing.assert_close(part(z, y, row, None).suspicion.mean(), theirs(z, y))


def test_the_proxies_learn_as_with_torchs_adam_after_the_weights_were_found():
    part = make(lr=0.01)
    proxies = torch.nn.Parameter(part.proxies.clone())
    adam = torch.optim.Adam([proxies], lr=0.01)
    for step in range(1, 6):
        z, y, row = batch(step)
        trust = part(z, y, row, None)
        loss = F.cross_entropy(2 * z @ F.normalize(proxies, dim=1).T, y, reduction="none")
        torch.testing.assert_close(trust.suspicion, loss.detach(), rtol=1e-4, atol=1e-5)
        adam.zero_grad()
        loss.mean().backward()
        adam.step()
        before = part.proxies.clone()
        part.after_step(step)
        assert not torch.equal(before, part.proxies)
        torch.testing.assert_close(part.proxies, proxies.detach(), rtol=1e-4, atol=1e-5)
    assert not list(part.parameters())


def test_margins_by_hand():
    """By how much another proxy's logit exceeds the own one; tau is half of Otsu's threshold or the lower third."""
    part = make(score_by="margin", tau_factor=0.5, scale=3, lam=0.1)
    z, y, row = batch(1)
    found = part(z, y, row, None)
    logits = [[6 * float(F.cosine_similarity(one, p, dim=0)) for p in part.proxies] for one in z]
    others = [max(v for c, v in enumerate(each) if c != own) for each, own in zip(logits, y.tolist(), strict=True)]
    expected = [max(0.0, v - each[own]) for v, each, own in zip(others, logits, y.tolist(), strict=True)]
    assert 0 < sum(v == 0 for v in expected) < len(expected)
    torch.testing.assert_close(found.suspicion, torch.tensor(expected), rtol=1e-4, atol=1e-5)
    tau = max(float(otsu(torch.tensor(expected))) / 2, sorted(expected)[(len(expected) - 1) // 3])
    assert abs(float(found.threshold) - tau) < 1e-5
    by_hand = torch.tensor([sigma_by_hand(v, tau, 0.1) for v in expected])
    torch.testing.assert_close(found.w, by_hand, rtol=1e-3, atol=1e-4)


def test_margins_flag_no_sample_if_all_are_nearest_to_their_own_proxy():
    part = make(score_by="margin", lam=1e-6)
    y = torch.arange(12) % C
    found = part(F.normalize(part.proxies, dim=1)[y], y, torch.arange(12), None)
    assert (found.w == 1).all() and not (found.suspicion >= found.threshold).any()
    broken = torch.cat([batch(1)[0], torch.full((1, D), torch.nan)])
    assert part(broken, torch.cat([batch(1)[1], y[:1]]), torch.arange(13), None).w[-1] == 0


def test_margins_flag_at_most_two_thirds_of_a_batch():
    """With proxies that know nothing, all samples are nearer to another proxy; a third of them keeps weight 1."""
    part = make(score_by="margin", tau_factor=0.1, lam=1e-6)
    z = F.normalize(torch.randn(61, D, generator=torch.Generator().manual_seed(0)), dim=1)
    y = torch.arange(61) % C
    logits = z @ F.normalize(part.proxies, dim=1).T
    y = torch.where(logits.argmax(1) == y, (y + 1) % C, y)
    found = part(z, y, torch.arange(61), None)
    assert (found.suspicion > 0).all()
    assert (found.w == 1).sum() == 21 and (found.w[found.w < 1] < 0.1).all()


def test_proxies_may_learn_by_the_weights():
    plain, weighed = make(lam=0.01), make(lam=0.01, weigh_proxies=True)
    z, y, row = batch(1)
    w = weighed(z, y, row, None).w
    proxies = weighed.proxies.clone().requires_grad_()
    (w * F.cross_entropy(2 * z @ F.normalize(proxies, dim=1).T, y, reduction="none")).mean().backward()
    weighed.after_step(1)
    torch.testing.assert_close(weighed.adam_mean, 0.1 * proxies.grad)
    plain(z, y, row, None)
    plain.after_step(1)
    assert not torch.allclose(plain.adam_mean, weighed.adam_mean)


LOSSES = torch.tensor([0.3, 0.1, 0.2, 2.4, 2.0, 0.25, 2.2, 0.15, 3.0])


def weights(losses=LOSSES, **arguments):
    n = len(losses)
    return make(score_by="loss", **arguments)(torch.zeros(n, D), torch.zeros(n).long(), torch.arange(n), losses)


@pytest.mark.parametrize("threshold", ["otsu", "mean", "mixture"])
def test_what_the_paper_asks_of_a_weight(threshold):
    found = weights(threshold=threshold, lam=0.5)
    shifted = weights(LOSSES + 64, threshold=threshold, lam=0.5)  # (i)
    torch.testing.assert_close(found.w, shifted.w, rtol=1e-4, atol=1e-5)
    by_loss = found.w[LOSSES.argsort()]
    assert (by_loss.diff() <= 0).all() and (by_loss[-4:].diff() < 0).all()  # (ii)
    assert (found.w > 0).all() and (found.w <= 1).all()  # (iii)
    assert torch.equal(found.w < 1, found.suspicion > found.threshold)
    hard = weights(threshold=threshold, lam=1e-9).w  # (iv)
    torch.testing.assert_close(hard, (found.suspicion <= found.threshold).float(), rtol=0, atol=1e-6)
    assert (weights(threshold=threshold, lam=math.inf).w == 1).all()  # (v)
    assert (weights(threshold=threshold, lam=1e9).w > 1 - 1e-6).all()


def test_equal_few_and_broken_losses():
    assert (weights(torch.full((5,), 0.3), lam=1e-6).w == 1).all()
    assert (weights(torch.tensor([0.1, 2.0, 9.0]), lam=1e-6).w == 1).all()
    broken = torch.tensor([torch.nan, 1.0, torch.inf, 2.0, -torch.inf])
    for beta0 in (0.0, -0.5):
        assert weights(broken, beta0=beta0).w.tolist() == [0, 1, 0, 1, 0]
        assert weights(torch.full((4,), torch.nan), threshold="mean", beta0=beta0).w.tolist() == [0] * 4
    among = torch.cat([LOSSES, broken[[0, 2]]])
    torch.testing.assert_close(weights(among).w, torch.cat([weights().w, torch.zeros(2)]))


def test_a_broken_sample_does_not_spoil_the_proxies():
    part, without = make(), make()
    z, y, row = batch(1)
    part(torch.cat([z, torch.full((1, D), torch.nan)]), torch.cat([y, y[:1]]), torch.arange(13), None)
    without(z, y, row, None)
    for one in (part, without):
        one.after_step(1)
    torch.testing.assert_close(part.state_dict(), without.state_dict())


def test_the_mean_of_all_batches_is_super_losss():
    ours, theirs = make(score_by="loss", threshold="mean", beta0=-2 / math.e, lam=0.3), SuperLoss(C, lam=0.3)
    for step in (1, 2, 3):
        loss = torch.rand(12, generator=torch.Generator().manual_seed(step)) * step
        assert torch.equal(ours(*batch(step), loss).w, theirs(*batch(step), loss).w)
        ours.after_step(step)
        theirs.after_step(step)


COMPILED = """
import torch
from likewise.confidence import ProcSim
parts = [ProcSim(6, 8, lam=0.1), ProcSim(6, 8, lam=0.1)]
parts[1].load_state_dict(parts[0].state_dict())
compiled = torch.compile(parts[0], fullgraph=True, backend="aot_eager")
for step in (1, 2):
    z, y, row = torch.nn.functional.normalize(torch.randn(12, 8), dim=1), torch.arange(12) % 6, torch.arange(12)
    torch.testing.assert_close(compiled(z, y, row, None).w, parts[1](z, y, row, None).w)
    for part in parts:
        part.after_step(step)
torch.testing.assert_close(parts[0].state_dict(), parts[1].state_dict())
"""


def test_compiled(bare):
    bare(exec, COMPILED, {})


def test_bad_arguments():
    for arguments, message in (
        ({"threshold": "mean", "ddof": 1}, "needs threshold='otsu', got 'mean'"),
        ({"score_by": "loss", "weigh_proxies": True}, "needs proxies, got score_by='loss'"),
    ):
        with pytest.raises(LikewiseError, match=message):
            make(**arguments)
    with pytest.raises(LikewiseError, match="needs the training loss, got None"):
        make(score_by="loss")(*batch(1), None)
