"""The objective by hand: weights, trust before and after the loss, partners, terms, several networks."""

import pytest
import torch
from likewise.confidence import CoTeaching, ProcSim
from likewise.contracts import Confidence, Loss, Term
from likewise.losses import CrossBatchMemory, MultiSimilarity, NormSoftmax, Softmax
from likewise.types import Batch, Output, Ref, SampleWeights
from torch.nn import functional as F

from likewise.learn.training.step import Objective, weighted_mean

B, D = 8, 5
WEIGHT = torch.tensor([1.0, 2.0, 0.5, 1.0, 0.0, 1.0, 3.0, 1.0], dtype=torch.float64)
W = torch.tensor([1.0, 0.3, 0.0, 0.7, 1.0, 0.0, 0.5, 0.2], dtype=torch.float64)


def view(seed=0):
    g = torch.Generator().manual_seed(seed)
    e = torch.randn(B, D, generator=g, dtype=torch.float64).requires_grad_()
    return Output(F.normalize(e, dim=1), e, torch.randn(B, 3, generator=g, dtype=torch.float64).requires_grad_())


def batch():
    return Batch(torch.zeros(B, 1), torch.arange(B) % 4, torch.arange(B) + 20)


class Plain(Loss):
    """Samples against their partners: the sum of similarities with those that are used. Keeps what it was asked."""

    def __init__(self, power=1):
        super().__init__()
        self.power, self.asked = power, []

    def forward(self, z, y, ref=None):
        self.asked.append(ref)
        ref = ref or Ref(z, y)
        used = torch.ones(len(ref.y), dtype=torch.bool) if ref.used is None else ref.used
        return ((z @ ref.z.T) * used).sum(1) ** self.power


class Says(Confidence):
    """Says what it was told to, and keeps what it was asked."""

    def __init__(self, trust, needs_loss=False):
        super().__init__()
        self.trust, self.needs_loss, self.asked = trust, needs_loss, []

    def forward(self, z, y, row, loss):
        self.asked.append((z, y, row, loss))
        return self.trust


class Width(Term):
    def __init__(self, weight=1.0, weighted=False):
        super().__init__()
        self.weight, self.weighted = weight, weighted

    def forward(self, out, batch):
        return out.f.square().sum(1) * (batch.row - 19)


def plain_by_hand(z, used=None):
    z, used = z.detach(), range(B) if used is None else used
    return [sum(float(z[i] @ z[j]) for j in used) for i in range(B)]


def width_by_hand(out):
    return [float((out.f[i].detach() ** 2).sum()) * (i + 1) for i in range(B)]


def test_alone_it_is_the_weighted_mean_of_the_loss_by_hand():
    out, loss = view(), Plain()
    value, trusts, _ = Objective([loss])([out], batch(), WEIGHT)
    each = plain_by_hand(out.z)
    assert trusts == [] and loss.asked == [None]
    assert value.item() == pytest.approx(sum(float(WEIGHT[i]) * each[i] for i in range(B)) / B)


@pytest.mark.parametrize("mean_over", [None, "batch", "kept"])
def test_a_sample_of_data_weight_0_adds_nothing_even_if_its_loss_is_not_a_number(mean_over):
    loss_values, weight = torch.ones(B), torch.ones(B)
    loss_values[2], weight[2] = torch.nan, 0
    trust = None if mean_over is None else SampleWeights(torch.ones(B), mean_over=mean_over)
    loss_values.requires_grad_()
    value = weighted_mean(loss_values, weight, trust)
    value.backward()
    assert value.item() == pytest.approx((B - 1) / B)
    assert loss_values.grad.tolist() == pytest.approx([0 if i == 2 else 1 / B for i in range(B)])
    loss_values = torch.ones(B)
    loss_values[2] = torch.nan
    assert weighted_mean(loss_values, torch.ones(B), trust).isnan()  # a sample that counts must not hide it


def test_a_loss_of_raw_embeddings_gets_those():
    out, raw, partner = view(), Plain(), torch.arange(B) < 5
    raw.input = "raw"
    value, _, _ = Objective([raw], Says(SampleWeights(W, partner)))([out], batch(), WEIGHT)
    each = plain_by_hand(out.e, range(5))
    assert value.item() == pytest.approx(sum(float(WEIGHT[i] * W[i]) * each[i] for i in range(B)) / B)


@pytest.mark.parametrize("needs_loss", [False, True])
def test_trust_before_and_after_the_loss_by_hand(needs_loss):
    """Over the batch, never divided by the sum of the weights; the loss is worked out once."""
    out, loss, doubt = view(), Plain(), Says(SampleWeights(W), needs_loss)
    value, trusts, _ = Objective([loss], doubt)([out], batch(), WEIGHT)
    each = plain_by_hand(out.z)
    assert value.item() == pytest.approx(sum(float(WEIGHT[i] * W[i]) * each[i] for i in range(B)) / B)
    assert trusts == [doubt.trust] and loss.asked == [None]
    z, y, row, seen = doubt.asked[0]
    assert torch.equal(z, out.z) and torch.equal(y, batch().y) and torch.equal(row, batch().row)
    assert not z.requires_grad
    if needs_loss:
        assert seen.tolist() == pytest.approx(each) and not seen.requires_grad  # unweighted
    else:
        assert seen is None


def test_a_mean_over_those_kept():
    out = view()
    value, _, _ = Objective([Plain()], Says(SampleWeights(W, mean_over="kept")))([out], batch(), WEIGHT)
    each = plain_by_hand(out.z)
    assert value.item() == pytest.approx(sum(float(WEIGHT[i] * W[i]) * each[i] for i in range(B)) / 6)
    nobody, _, _ = Objective([Plain()], Says(SampleWeights(W * 0, mean_over="kept")))([out], batch(), WEIGHT)
    assert nobody.item() == 0


@pytest.mark.parametrize("needs_loss", [False, True])
def test_nobody_is_compared_with_those_who_are_no_partners(needs_loss):
    """They have numbers of their own still; whether those count is the weights' business. By hand."""
    out, loss, partner = view(), Plain(), torch.tensor([True, True, False, True, False, True, True, False])
    value, _, _ = Objective([loss], Says(SampleWeights(W, partner), needs_loss))([out], batch(), WEIGHT)
    each = plain_by_hand(out.z, [0, 1, 3, 5, 6])
    assert value.item() == pytest.approx(sum(float(WEIGHT[i] * W[i]) * each[i] for i in range(B)) / B)
    ref = loss.asked[-1]
    assert torch.equal(ref.used, partner) and ref.own.tolist() == list(range(B)) and ref.z is out.z


def test_a_memory_forgets_those_who_are_no_partners():
    memory, partner = CrossBatchMemory(D, size=20).double(), torch.arange(B) % 2 == 0
    Objective([memory], Says(SampleWeights(W, partner)))([view()], batch(), WEIGHT)
    memory.after_step(1)
    assert memory.filled == 4 and memory.memory_y[:4].tolist() == batch().y[partner].tolist()


@pytest.mark.parametrize("mean_over", ["batch", "kept"])
@pytest.mark.parametrize("needs_loss", [False, True])
def test_what_is_not_believed_may_be_broken(mean_over, needs_loss):
    """A number that is NaN or infinite, with weight 0, adds nothing and spoils no gradient."""

    class Broken(Plain):
        def forward(self, z, y, ref=None):
            bad = torch.tensor([0, 0, torch.nan, 0, 0, torch.inf, 0, 0], dtype=z.dtype)
            return super().forward(z, y, ref) + bad

    found = []
    for loss in (Plain(), Broken()):
        out = view()
        value, _, _ = Objective([loss], Says(SampleWeights(W, mean_over=mean_over), needs_loss))([out], batch(), WEIGHT)
        found.append((value, *torch.autograd.grad(value, out.e)))
    assert torch.equal(found[0][0], found[1][0]) and torch.equal(found[0][1], found[1][1])
    assert torch.isfinite(found[1][1]).all() and found[1][1].abs().sum() > 0


def test_terms_are_added_and_trusted_only_if_they_say_so():
    out = view()
    terms = [Width(2.0), Width(0.5, weighted=True)]
    value, _, _ = Objective([Plain()], Says(SampleWeights(W, mean_over="kept")), terms, loss_weight=0.25)(
        [out], batch(), WEIGHT
    )
    each, width = plain_by_hand(out.z), width_by_hand(out)
    by_hand = 0.25 * sum(float(WEIGHT[i] * W[i]) * each[i] for i in range(B)) / 6
    by_hand += 2.0 * sum(width) / B  # neither the data's weights nor trust
    by_hand += 0.5 * sum(float(W[i]) * width[i] for i in range(B)) / 6
    assert value.item() == pytest.approx(by_hand)
    alone, _, _ = Objective([Plain()], None, terms)([out], batch(), WEIGHT)
    by_hand = sum(float(WEIGHT[i]) * each[i] for i in range(B)) / B + 2.5 * sum(width) / B
    assert alone.item() == pytest.approx(by_hand)


@pytest.mark.parametrize("needs_loss", [False, True])
def test_it_hands_out_the_losses_before_any_weight(needs_loss):
    """Those that were trained with: of each network its own, and without those who are no partners."""
    out, terms = view(), [Width(2.0)]
    _, _, (alone,) = Objective([Plain()], None, terms, loss_weight=0.25)([out], batch(), WEIGHT)
    assert alone.tolist() == pytest.approx(plain_by_hand(out.z)) and not alone.requires_grad
    doubt = Says(SampleWeights(W, torch.arange(B) < 5), needs_loss)
    _, _, (doubted,) = Objective([Plain()], doubt)([out], batch(), WEIGHT)
    assert doubted.tolist() == pytest.approx(plain_by_hand(out.z, range(5)))
    outs = [view(1), view(2)]
    _, _, both = Objective([Plain(), Plain(2)], CoTeaching(share=0.25, per_pass=1, ramp="0"))(outs, batch(), WEIGHT)
    assert both[0].tolist() == pytest.approx(plain_by_hand(outs[0].z))
    assert both[1].tolist() == pytest.approx([v * v for v in plain_by_hand(outs[1].z)])


def test_weights_carry_no_gradient():
    """That of the objective is that of the loss, times weights that stand still."""
    torch.manual_seed(0)
    out, doubt, loss = view(), ProcSim(classes=4, dim=D, lam=0.1).double(), MultiSimilarity()
    value, (trust,), _ = Objective([loss], doubt)([out], batch(), WEIGHT)
    assert trust.w.min() < 0.9
    by_hand = (WEIGHT * trust.w * loss(out.z, batch().y)).sum() / B
    slopes = [torch.autograd.grad(v, out.e, retain_graph=True)[0] for v in (value, by_hand)]
    assert torch.allclose(*slopes, rtol=1e-12)


def test_two_networks_teach_each_other_by_hand():
    """Each learns from the six samples of eight that the other finds easiest; the terms count for both."""
    outs, losses = [view(1), view(2)], [Plain(), Plain(2)]
    doubt = CoTeaching(share=0.25, per_pass=1, ramp="0")
    value, trusts, _ = Objective(losses, doubt, [Width(3.0)])(outs, batch(), WEIGHT)
    each = [plain_by_hand(outs[0].z), [v * v for v in plain_by_hand(outs[1].z)]]
    by_hand = 0.0
    for mine, other in ((0, 1), (1, 0)):
        easy = sorted(range(B), key=lambda i: each[other][i])[:6]
        assert trusts[mine].w.nonzero().flatten().tolist() == sorted(easy)
        by_hand += sum(float(WEIGHT[i]) * each[mine][i] for i in easy) / 6
        by_hand += 3.0 * sum(width_by_hand(outs[mine])) / B
    assert value.item() == pytest.approx(by_hand)
    assert all(len(loss.asked) == 1 for loss in losses)


def test_several_networks_without_an_exchange_are_judged_one_by_one():
    outs, doubt = [view(1), view(2)], Says(SampleWeights(W))
    value, trusts, _ = Objective([Plain(), Plain()], doubt)(outs, batch(), WEIGHT)
    parts = [Objective([Plain()], Says(SampleWeights(W)))([out], batch(), WEIGHT)[0] for out in outs]
    assert len(trusts) == 2 and value.item() == pytest.approx(float(sum(parts)))


def test_an_exchange_is_asked_whether_or_not_it_says_that_it_needs_the_loss():
    class Swaps(Says):
        def exchange(self, seen, y, row):
            return [SampleWeights(one.loss.abs()) for one in reversed(seen)]

    outs = [view(1), view(2)]
    _, trusts, _ = Objective([Plain(), Plain()], Swaps(None))(outs, batch(), WEIGHT)
    assert [t.w.tolist() for t in trusts] == [pytest.approx([abs(v) for v in plain_by_hand(o.z)]) for o in outs[::-1]]


def test_what_an_exchange_sees():
    """Unweighted losses, detached embeddings, and the classes that each loss would name."""

    class Listens(CoTeaching):
        def exchange(self, seen, y, row):
            self.seen = seen
            return super().exchange(seen, y, row)

    torch.manual_seed(0)
    doubt, losses = Listens(0.2, 1), [NormSoftmax(classes=4, dim=D).double(), NormSoftmax(classes=4, dim=D).double()]
    outs = [view(1), view(2)]
    Objective(losses, doubt)(outs, batch(), WEIGHT)
    for seen, out, loss in zip(doubt.seen, outs, losses, strict=True):
        assert torch.equal(seen.z, out.z) and not seen.z.requires_grad and not seen.loss.requires_grad
        assert torch.equal(seen.loss, loss(out.z, batch().y))
        near = F.normalize(loss.proxies.detach().float(), dim=1)
        nearest = [max(range(4), key=lambda c: float(out.z[i].float() @ near[c])) for i in range(B)]
        assert seen.prediction.tolist() == nearest


def test_a_classifier_of_raw_embeddings_predicts_from_those():
    """A confidence sees unit embeddings; the prediction is that of the embeddings that the loss was given."""

    class Sees(Says):
        def exchange(self, views, y, row):
            self.asked = views
            return [self.trust] * 2

    torch.manual_seed(0)
    outs, sees = [view(0), view(1)], Sees(SampleWeights(W), needs_loss=True)
    losses = [Softmax(classes=4, dim=D).double() for _ in outs]
    for loss in losses:
        loss.proxies.data[:, -1] *= 20  # biases that are large for unit embeddings
    Objective(losses, sees)(outs, batch(), WEIGHT)
    for loss, out, seen in zip(losses, outs, sees.asked):
        raw = (out.e @ loss.proxies[:, :-1].T + loss.proxies[:, -1]).argmax(1)
        assert torch.equal(seen.z, out.z) and torch.equal(seen.prediction, raw)
    assert any((loss.predict(out.z) != loss.predict(out.e)).any() for loss, out in zip(losses, outs))
