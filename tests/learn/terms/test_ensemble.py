"""Who goes to which branch, a loss for each branch by hand, and a whole training."""

import numpy as np
import pytest
import torch
from bare_work import LOSSES
from learn.training.small_training import GLYPHS, assert_resumes_exactly
from likewise.config import Embed
from likewise.contracts import Loss
from likewise.losses import Contrastive, CrossBatchMemory, ProxyAnchor
from likewise.terms import Ensemble
from likewise.types import Batch, LikewiseError, Output
from PIL import Image
from torch.nn import functional as F

from likewise.core.settings.spec import build
from likewise.models import Embedder
from likewise.models.heads import Relational
from likewise.score.embed_data import embed

CLASSES = 4
BRANCHES = [0, 2, 0, 0, 2, 0, 2, 0, 2, 0, 0, 2]  # of twelve samples: the second of three gets none
ALONE = [0] * 11 + [2]
NAMED = ["ProxyAnchor", "Margin(miner=DistanceWeighted())", "Triplet(miner=SemiHard())", "CosFace"]


def network(dim=12, k=3):
    torch.manual_seed(0)
    return Embedder("features", dim, lambda features, dim: Relational(features, dim, k=k), features=7)


def maker(text):
    facts = {"classes": CLASSES, "largest_class": 3, "per_pass": 2, "seed": 0, "labels": np.arange(12) % CLASSES}
    return lambda dim: build(text, Loss, dim=dim, **facts)


@pytest.fixture
def batch():
    g = torch.Generator().manual_seed(1)
    return Batch(torch.randn(12, 7, generator=g), torch.arange(12) % CLASSES, torch.arange(12))


def sent(branches, scale=(1.0, 1.0, 1.0)):
    """Random nodes, and errors by which sample n goes to branch `branches[n]`."""
    g = torch.Generator().manual_seed(2)
    nodes = F.normalize(torch.randn(len(branches), 3, 4, generator=g), dim=2).requires_grad_()
    rec = torch.rand(len(branches), 3, generator=g) + 1
    rec = (rec * torch.tensor(scale)).scatter(1, torch.tensor(branches)[:, None], 0.5).requires_grad_()
    e = nodes.detach().flatten(1)
    return Output(F.normalize(e, dim=1), e, torch.zeros(len(branches), 7), nodes, rec)


def by_hand(term, out, batch):
    """The numbers of the samples, and the sum that their mean must be, with the loss called on a branch's samples."""
    rec, size, total = out.rec.tolist(), len(batch.y), 0.0
    branches = [min(range(len(row)), key=row.__getitem__) for row in rec]
    each = [term.reconstruction * sum(row) / len(row) for row in rec]
    for number, loss in enumerate(term.losses):
        rows = [n for n in range(size) if branches[n] == number]
        if not rows:
            continue
        found = loss(torch.stack([out.nodes[n, number] for n in rows]), torch.stack([batch.y[n] for n in rows]))
        total = total + found.mean()
        for n, value in zip(rows, found):
            each[n] = each[n] + size / len(rows) * value
    return torch.stack(each), total + term.reconstruction * sum(map(sum, rec)) / size / len(rec[0])


@pytest.mark.parametrize("text", NAMED)
@pytest.mark.parametrize("branches", [BRANCHES, ALONE, [1] * 12], ids=["one empty", "one alone", "one for all"])
def test_by_hand(batch, text, branches):
    term, out = Ensemble(maker(text), network(), reconstruction=0.3), sent(branches)
    torch.manual_seed(4)
    found = term(out, batch)
    torch.manual_seed(4)
    each, total = by_hand(term, out, batch)
    torch.testing.assert_close(found, each)
    torch.testing.assert_close(found.mean(), total)
    wanted = torch.autograd.grad(total, out.nodes)[0]
    slope = torch.autograd.grad(found.mean(), [out.nodes, out.rec])
    torch.testing.assert_close(slope[0], wanted)
    assert slope[0].any()
    for n, branch in enumerate(branches):
        others = [b for b in range(3) if b != branch]
        assert not slope[0][n, others].any(), "a sample trains its own branch alone"
    torch.testing.assert_close(slope[1], torch.full((12, 3), 0.3 / 36))  # which branch it is has no slope


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("branches", [BRANCHES, ALONE], ids=["one empty", "one alone"])
def test_every_loss_goes_with_it(batch, name, branches):
    torch.manual_seed(3)
    term, out = Ensemble(maker(name), network()), sent(branches)
    for step in (1, 2, 3):
        term(out, batch).mean().backward()
        term.after_step(step)
    slopes = [out.nodes.grad, *(p.grad for p in term.parameters() if p.grad is not None)]
    assert all(slope.isfinite().all() for slope in slopes) and out.nodes.grad.any()


def test_ties_go_to_the_first_and_a_node_without_direction_takes_nobody(batch):
    term, out = Ensemble(maker("ProxyAnchor"), network()), sent(BRANCHES)
    assert term.choose(out).tolist() == BRANCHES
    assert term.choose(out._replace(rec=torch.ones(12, 3))).tolist() == [0] * 12
    nodes = out.nodes.detach().clone()
    nodes[4:, 0] = 0
    assert term.choose(out._replace(nodes=nodes, rec=torch.tensor([0.0, 2.0, 1.0]).repeat(12, 1))).tolist() == [
        0, 0, 0, 0, *[2] * 8,
    ]  # fmt: skip


def test_every_branch_has_a_loss_of_its_own_that_hears_of_every_step(batch):
    term = Ensemble(lambda dim: CrossBatchMemory(dim=dim, loss=Contrastive(), size=16), network())
    term(sent(BRANCHES), batch)
    assert term.after_step(1) == []
    assert [int(loss.filled) for loss in term.losses] == [7, 0, 5] and [loss.dim for loss in term.losses] == [4] * 3
    proxies = Ensemble(maker("ProxyAnchor"), network())
    assert len({tuple(loss.proxies.flatten().tolist()) for loss in proxies.losses}) == 3, "proxies of their own"


def test_parameters_that_a_branch_moved_are_told(batch, monkeypatch):
    term = Ensemble(maker("ProxyAnchor"), network())
    answers = {id(term.losses[0]): None, id(term.losses[1]): [term.losses[1].proxies], id(term.losses[2]): []}
    monkeypatch.setattr(ProxyAnchor, "after_step", lambda self, step: answers[id(self)])
    (moved,) = term.after_step(1)
    assert moved is term.losses[1].proxies


def test_balanced_keeps_one_branch_from_taking_all(batch):
    """The first branch always remembers ten times better than the second, the second a hundred times than the third."""

    def errors(step):
        g = torch.Generator().manual_seed(step)
        return (torch.rand(12, 3, generator=g) + 0.5) * torch.tensor([0.1, 1.0, 100.0])

    plain, balanced = (Ensemble(maker("ProxyAnchor"), network(), balanced=b) for b in (False, True))
    usual, means = [errors(0)[:, b].mean().item() for b in range(3)], []
    for step in range(20):
        out = sent(BRANCHES)._replace(rec=errors(step))
        assert plain.choose(out).tolist() == [0] * 12
        relative = out.rec / torch.tensor(usual)
        assert balanced.choose(out).tolist() == [min(range(3), key=row.__getitem__) for row in relative.tolist()]
        for term in (plain, balanced):
            term(out, batch)
            term.after_step(step + 1)
        means.append(balanced.last_batch[0])
        now = out.rec.mean(0).tolist()
        usual = now if step == 0 else [0.9 * usual[b] + 0.1 * now[b] for b in range(3)]
    torch.testing.assert_close(balanced.usual, torch.tensor(usual))
    shares = torch.stack(means).mean(0)
    assert (shares > 0.2).all() and not plain.usual.any()
    before = balanced.last_batch
    balanced.eval()(out, batch)
    assert balanced.last_batch is before, "what evaluation sees is not remembered"


def test_the_log_shows_how_many_went_where(batch):
    term = Ensemble(maker("ProxyAnchor"), network())
    assert term.observe_state() == {}
    term(sent(BRANCHES), batch)
    shown = {name: float(share) for name, share in term.observe_state().items()}
    assert shown == pytest.approx({"branch_1": 7 / 12, "branch_2": 0.0, "branch_3": 5 / 12})


def test_of_the_network_the_trunk_and_one_branch_of_a_sample_learn(batch):
    net = network()
    term = Ensemble(maker("ProxyAnchor"), net)
    out = net(batch.x)
    term(out, batch).mean().backward()
    names = {name for name, p in net.head.named_parameters() if p.grad is not None and p.grad.any()}
    assert names == {"node.weight", "node.bias", "decoder.weight", "decoder.bias"}
    assert out.nodes.shape == (12, 3, 4) and out.rec.shape == (12, 3)


def test_bad_arguments():
    with pytest.raises(LikewiseError, match=r"Ensemble: .*got Linear; train with --head 'Relational\(\)'"):
        Ensemble(maker("ProxyAnchor"), Embedder("features", 12, features=7))
    for text, who in (("AdaptiveHierarchical(views=2)", "Adaptive"), ("Contrastive(miner=TSINT(classes=4))", "TSINT")):
        with pytest.raises(LikewiseError, match=f"Ensemble: {who}.* needs the whole batch.*use another loss"):
            Ensemble(maker(text), network())


def test_a_training_resumes_exactly_and_embeds_without_labels(tmp_path, stop_at):
    settings = GLYPHS | {
        "sampler": "SamplesPerClass(batch=8, per_class=2)", "loss": "ProxyAnchor(alpha=16)", "head": "Relational(k=2)",
        "terms": ("Ensemble(balanced=True)",), "loss_weight": 10.0,
    }  # fmt: skip
    _, run = assert_resumes_exactly(settings, tmp_path, stop_at)
    names = run.load_state()["tensors"].keys()
    assert {"term_0.losses.1.proxies", "term_0.usual", "embedder.head.mix.weight"} <= names
    for line in run.read_log():
        assert line["branch_1"] + line["branch_2"] == pytest.approx(1) and line["lr"]["loss"] == pytest.approx(1.0)
        assert "terms" not in line["lr"], "proxies of branches learn as those of the loss"
    (tmp_path / "new").mkdir()
    for number in range(3):
        Image.new("RGB", (16, 16), (80 * number, 40, 90)).save(tmp_path / "new" / f"{number}.png")
    e = embed(Embed(run=str(run.path), data=str(tmp_path / "new"), out="", quiet=True, device="cpu", workers=0))
    assert e.z.shape == (3, 8) and torch.allclose(e.z.norm(dim=1), torch.ones(3))
