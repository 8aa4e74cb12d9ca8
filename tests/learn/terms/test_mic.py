"""MIC: clusters without classes, the objective by hand, later clusterings, and a training that resumes exactly."""

import math

import numpy as np
import pytest
import torch
from likewise.losses import Margin, MultiSimilarity
from likewise.terms import MIC
from likewise.types import Batch, LikewiseError, TrainingSetInfo
from torch.nn import functional as F

from likewise.learn.terms.mic import Decorrelation, reverse_gradient, without_class
from likewise.models import Embedder

LABELS = np.arange(24) % 4
POSE = np.arange(24) // 12
"""What images of different classes share: which half of the samples they belong to."""


def pictures():
    """Features with a large part of the class and a small part of the pose."""
    g = torch.Generator().manual_seed(0)
    x = 5 * F.one_hot(torch.as_tensor(LABELS), 6).float() + 0.01 * torch.randn(24, 6, generator=g)
    x[:, 5] += torch.as_tensor(POSE)
    return x


def made(make_loss=lambda dim, classes: MultiSimilarity(), **changes):
    torch.manual_seed(0)
    network = Embedder("features", 5, features=6)
    settings = {"clusters": 2, "every": 3, "random_share": 0.0, "rho": 2.0, "hidden": 8} | changes
    return MIC(make_loss, network, LABELS, 5, per_pass=2, **settings), network


def info(tmp_path):
    def feed(transform):
        for place in torch.arange(24).split(10):
            yield pictures()[place], place

    names = tuple("abcd")
    return TrainingSetInfo(LABELS, names, feed, tmp_path, torch.device("cpu"), quiet=True)


def batch(rows=range(24)):
    rows = torch.as_tensor(list(rows))
    return Batch(pictures()[rows], torch.as_tensor(LABELS)[rows], rows)


def test_first_clusters_ignore_the_class(tmp_path):
    """k-means of the features themselves would find classes; without their class means only the pose is left."""
    term, network = made()
    network.train()
    term.prepare(info(tmp_path))
    assert network.training
    same = term.cluster[:, None] == term.cluster
    assert torch.equal(same, torch.as_tensor(POSE[:, None] == POSE))


@pytest.mark.parametrize("deviation", [False, True])
def test_without_class_by_hand(deviation):
    f, y = pictures()[:, 3:], torch.as_tensor(LABELS)
    found = without_class(f, y, deviation).tolist()
    for i in range(24):
        for d in range(3):
            mates = [float(f[j, d]) for j in range(24) if LABELS[j] == LABELS[i]]
            mean = sum(mates) / len(mates)
            spread = (sum((m - mean) ** 2 for m in mates) / len(mates)) ** 0.5 if deviation else 1
            assert found[i][d] == pytest.approx((float(f[i, d]) - mean) / spread, rel=1e-3, abs=1e-5)


def test_a_feature_that_is_constant_in_its_class_is_zero():
    assert without_class(torch.ones(4, 2), torch.tensor([0, 0, 1, 1]), True).tolist() == [[0, 0]] * 4


def test_the_objective_adds_up(tmp_path):
    term, network = made(rho=3.0)
    term.prepare(info(tmp_path))
    out = network(batch().x)
    second = F.normalize(term.encoder(out.f), dim=1)
    expected = MultiSimilarity()(second, term.cluster) + 3 * term.decorrelation(second, out.z)
    torch.testing.assert_close(term(out, batch()), expected)


def test_the_copy_of_the_loss_has_a_class_for_every_cluster(tmp_path):
    term, network = made(lambda dim, classes: Margin(classes=classes), clusters=7)
    term.prepare(info(tmp_path))
    assert len(term.loss.boundaries) == 7 and term(network(batch().x), batch()).isfinite().all()


def test_random_clusters(tmp_path):
    """With random_share=0.5 of two clusters, a quarter of the images get the other one."""
    seen = []

    class Seeing(MultiSimilarity):
        def forward(self, z, y, ref=None):
            seen.append(y)
            return super().forward(z, y, ref)

    term, network = made(lambda dim, classes: Seeing(), random_share=0.5)
    term.prepare(info(tmp_path))
    out = network(batch().x)
    torch.manual_seed(0)
    for _ in range(200):
        term(out, batch())
    changed = (torch.stack(seen) != term.cluster).float().mean()
    assert float(changed) == pytest.approx(0.25, abs=0.03)  # 4,800 draws: deviation 0.006


def test_later_clusters_are_of_the_second_embedding(tmp_path):
    """Every third step; images that were not drawn keep their cluster."""
    term, network = made()
    term.prepare(info(tmp_path))
    before = term.cluster.clone()
    drawn = batch(range(4, 24))
    for step in (1, 2, 3):
        term(network(drawn.x), drawn)
        # As if the second embedding had learned the parity.
        term.pending = F.one_hot(drawn.y % 2, 5).float(), drawn.row
        term.after_step(step)
        if step < 3:
            assert torch.equal(term.cluster, before)
    assert torch.equal(term.cluster[:4], before[:4])
    same = term.cluster[4:, None] == term.cluster[4:]
    assert torch.equal(same, drawn.y[:, None] % 2 == drawn.y % 2)
    assert float(term.observe_state()["images_regrouped"]) == pytest.approx(0.5)


def test_errors():
    with pytest.raises(LikewiseError, match="at most the 24 training samples, got 25"):
        made(clusters=25)
    with pytest.raises(LikewiseError, match="MIC: every must be at least 1 step"):
        made(every=0)


def unit(vector):
    return [v / math.hypot(*vector) for v in vector]


def test_by_hand():
    torch.manual_seed(0)
    term, s, t = Decorrelation(3, 2, hidden=4).double(), *(torch.randn(5, w, dtype=torch.float64) for w in (3, 2))
    first, _, second = term.regressor
    for found, source, target in zip(term(s, t).tolist(), s.tolist(), t.tolist(), strict=True):
        layer = unit(source)
        for linear, bend in ((first, True), (second, False)):
            layer = [
                b + sum(w * x for w, x in zip(row, layer, strict=True))
                for row, b in zip(linear.weight.tolist(), linear.bias.tolist(), strict=True)
            ]
            layer = [max(0.0, v) for v in layer] if bend else layer
        expected = -sum((a * b) ** 2 for a, b in zip(unit(target), unit(layer), strict=True)) / 2
        assert found == pytest.approx(expected)


def test_gradients_of_embeddings_are_reversed_and_those_of_the_regressor_are_not():
    torch.manual_seed(0)
    term, s, t = Decorrelation(3, 2).double(), *(torch.randn(5, w, dtype=torch.float64) for w in (3, 2))
    with torch.no_grad():
        start = float(term(s, t).mean())
    s.requires_grad_()
    t.requires_grad_()
    term(s, t).mean().backward()
    with torch.no_grad():
        assert float(term(s - 0.1 * s.grad, t - 0.1 * t.grad).mean()) > start  # descent on them undoes the prediction
        for p in term.parameters():
            p -= 0.1 * p.grad
        assert float(term(s, t).mean()) < start


def test_training_makes_two_embeddings_unpredictable():
    """e_2 starts as a copy of e_1: their correlation falls, although the regressor goes on learning."""
    torch.manual_seed(0)
    x = torch.randn(64, 4)
    one, two = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
    two.load_state_dict(one.state_dict())
    term = Decorrelation(4, 4, hidden=32)
    optimizer = torch.optim.Adam([*two.parameters(), *term.parameters()], lr=0.01)

    def best_prediction():
        judge = Decorrelation(4, 4, hidden=32)
        learning = torch.optim.Adam(judge.parameters(), lr=0.01)
        for _ in range(150):
            loss = judge(two(x).detach(), one(x).detach()).mean()
            learning.zero_grad()
            loss.backward()
            learning.step()
        return -loss.item()

    before = best_prediction()
    for _ in range(300):
        optimizer.zero_grad()
        term(two(x), one(x).detach()).mean().backward()
        optimizer.step()
    assert best_prediction() < before


def test_reversed():
    x = torch.randn(3, requires_grad=True)
    assert torch.equal(reverse_gradient(x), x)
    reverse_gradient(x).sum().backward()
    assert x.grad.tolist() == [-1, -1, -1]
