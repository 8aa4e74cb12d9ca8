"""Levels by hand, groups that follow their classes, what learns and what does not, and the data's own tree."""

import math

import pytest
import torch
from bare_work import LOSSES, check_spec
from likewise.contracts import Loss
from likewise.losses import ArcFace, Hierarchical, Margin, NormSoftmax, ProxyAnchor, SoftTriple
from likewise.types import LikewiseError
from torch.nn import functional as F

from likewise.core.settings.spec import build, spec
from likewise.learn.losses.hierarchical import class_vectors, copy_of_loss, level_weights, plan_by_tree, plan_sizes
from likewise.learn.training.schedule import reset_state

CLASSES, DIM = 12, 6
TREE = {f"c{n}": (f"family {n // 6}", f"genus {n // 3}") for n in range(CLASSES)}
NAMES = tuple(TREE)


def made(text="Hierarchical()", **facts):
    """One around ProxyAnchor, if the text does not say otherwise."""
    if text.startswith("Hierarchical(") and "(loss=" not in text:
        text = text.replace("Hierarchical(", "Hierarchical(loss=ProxyAnchor(), ")
    torch.manual_seed(0)
    return build(text, Loss, classes=CLASSES, dim=DIM, per_pass=1, **facts)


@pytest.fixture
def batch():
    torch.manual_seed(1)
    y = torch.arange(CLASSES).repeat(2)
    return F.normalize(torch.randn(len(y), DIM), dim=1), y


@pytest.fixture
def families():
    """Proxies in four tight bundles of three classes each."""
    torch.manual_seed(2)
    centre = F.normalize(torch.randn(4, DIM), dim=1)
    return centre.repeat_interleave(3, 0) + 0.05 * torch.randn(CLASSES, DIM)


def with_proxies(loss, proxies):
    with torch.no_grad():
        loss.loss.proxies.copy_(proxies)
    return loss


def unit(v):
    return [x / math.sqrt(sum(a * a for a in v)) for x in v]


def anchor_by_hand(z, y, proxies, alpha=32.0, margin=0.1):
    """Proxy Anchor of a batch, a pair at a time."""
    s = [[sum(a * b for a, b in zip(unit(p), row)) for row in z] for p in proxies]
    present = sorted(set(y))
    pull = sum(
        math.log(1 + sum(math.exp(-alpha * (s[c][i] - margin)) for i in range(len(y)) if y[i] == c)) for c in present
    )
    push = sum(
        math.log(1 + sum(math.exp(alpha * (s[c][i] + margin)) for i in range(len(y)) if y[i] != c))
        for c in range(len(proxies))
    )
    return pull / len(present) + push / len(proxies)


@pytest.mark.parametrize("kind", ["learnable", "frozen", "centroid"])
def test_by_hand(kind, batch, families):
    z, y = batch
    loss = with_proxies(made(f"Hierarchical(coarse=4, coarse_proxies='{kind}', weight=0.7)"), families)
    fine = anchor_by_hand(z.tolist(), y.tolist(), families.tolist())
    assert loss(z, y).mean().item() == pytest.approx(fine, rel=1e-5), "no groups before they are found"
    loss.after_step(1)
    group = loss.groups()[0].tolist()
    assert all((group[a] == group[b]) == (a // 3 == b // 3) for a in range(CLASSES) for b in range(CLASSES))
    members = [[c for c in range(CLASSES) if group[c] == g] for g in range(4)]
    rows = [unit(p) for p in families.tolist()]
    centres = [[sum(rows[c][d] for c in own) / len(own) for d in range(DIM)] for own in members]
    coarse = anchor_by_hand(z.tolist(), [group[c] for c in y.tolist()], centres)
    assert loss(z, y).mean().item() == pytest.approx(fine + 0.7 * coarse, rel=1e-5)


def test_every_level_groups_the_one_below(batch, families):
    z, y = batch
    loss = with_proxies(made("Hierarchical(coarse=(4, 2), weight=(1.0, 0.5))"), families)
    loss.after_step(1)
    fine, coarse = loss.groups()
    assert len(fine.unique()) == 4 and len(coarse.unique()) == 2
    assert all(len(coarse[fine == g].unique()) == 1 for g in range(4)), "classes of a group stay together"
    total = anchor_by_hand(z.tolist(), y.tolist(), families.tolist())
    for level, group, weight in ((1, fine, 1.0), (2, coarse, 0.5)):
        proxies = getattr(loss, f"coarse_{level}").tolist()
        total += weight * anchor_by_hand(z.tolist(), group[y].tolist(), proxies)
    assert loss(z, y).mean().item() == pytest.approx(total, rel=1e-5)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("Hierarchical(coarse=12)", r"and fewer than the level below, got \[12\] of 12 classes; change coarse$"),
        ("Hierarchical(coarse=1)", r"every level must have 2 groups or more"),
        ("Hierarchical(coarse=(4, 4))", r"got \[4, 4\] of 12 classes"),
        ("Hierarchical(coarse=())", "every level must have 2 groups or more"),
        ("Hierarchical(levels=3)", r"got \[2, 2, 2\] of 12 classes; use fewer levels"),
        ("Hierarchical(coarse=(6, 3), levels=3)", "levels must be the length of coarse"),
        ("Hierarchical(tree='cub200')", "choose"),
        ("Hierarchical(depth=1, coarse=3)", "choose"),
        ("Hierarchical(every=0)", "every must be at least 1 step"),
        ("Hierarchical(start='soon')", "start must be a number of steps"),
        ("Hierarchical(weight=(1.0, 2.0))", "one for each of the 1 levels"),
        ("Hierarchical(loss=MultiSimilarity())", r"loss must have class vectors .* got MultiSimilarity"),
        ("Hierarchical(loss=Margin())", "got Margin"),
        ("Hierarchical(loss=Hierarchical(loss=ProxyAnchor()))", "got Hierarchical"),
        ("Hierarchical(loss=ForwardCorrection(transition='t.npy'))", "transition must be"),
        ("Hierarchical(coarse_loss=Triplet())", "got Triplet"),
        ("Hierarchical(depth=(1, 2))", "the deepest first"),
        ("Hierarchical(depth=1)", "needs a class tree, but the data has none"),
    ],
)
def test_what_cannot_be(text, says):
    with pytest.raises(LikewiseError, match=says):
        made(text, class_names=NAMES)


def test_passes_need_their_length(batch):
    loss = Hierarchical(ProxyAnchor(CLASSES, DIM))
    loss(*batch)
    with pytest.raises(LikewiseError, match="with start in epochs, per_pass must be .* got start='1e'"):
        loss.after_step(1)
    Hierarchical(ProxyAnchor(CLASSES, DIM), start=5, every=2).after_step(1)
    assert Hierarchical(ProxyAnchor(CLASSES, DIM), every="0.5e").every == "0.5e"  # its length is told later


def test_groups_that_would_never_be_found_are_refused():
    with pytest.raises(LikewiseError, match="got start='1e' and 1 steps, 1 per epoch; train longer"):
        made(steps=1)
    assert made("Hierarchical(start=0)", steps=1).begun == 0 and made(steps=2).begun == 0
    assert made("Hierarchical(depth=1, start='9e')", steps=1, class_names=NAMES, taxonomy=TREE).begun == 1


def test_when_groups_are_found(monkeypatch):
    found = []
    loss = Hierarchical(ProxyAnchor(CLASSES, DIM), start="2e", every=4, per_pass=5)
    real = loss.regroup
    monkeypatch.setattr(loss, "regroup", lambda: found.append(step) or real())
    for step in range(1, 24):
        loss.after_step(step)
    assert found == [10, 14, 18, 22]
    found.clear()
    loss.start = 0
    for step in range(1, 10):
        loss.after_step(step)
    assert found == [1, 5, 9]


def test_groups_keep_their_numbers_and_follow_their_classes(families):
    loss = with_proxies(made("Hierarchical(coarse=4, every=1)"), families)
    loss.after_step(1)
    before = loss.groups()[0].clone()
    with_proxies(loss, families + 0.02 * torch.randn(CLASSES, DIM))
    loss.after_step(2)
    assert torch.equal(loss.groups()[0], before) and loss.observe_state()["classes_regrouped"] == 0
    strayed = families.clone()
    strayed[0] = families[11]  # a class moves to another bundle
    with_proxies(loss, strayed).after_step(3)
    after = loss.groups()[0]
    assert after[0] == before[11] and torch.equal(after[1:], before[1:])
    assert loss.observe_state()["classes_regrouped"].item() == pytest.approx(1 / CLASSES)


def test_a_group_without_classes_finds_one(families):
    loss = with_proxies(made("Hierarchical(coarse=4, every=1)"), families)
    loss.after_step(1)
    with torch.no_grad():
        loss.coarse_1[2] = -families.mean(0) * 100  # nobody is near
    loss.after_step(2)
    assert len(loss.groups()[0].unique()) == 4


def test_proxies_of_groups_are_as_long_as_those_of_classes(families):
    loss = with_proxies(made("Hierarchical(coarse=4)"), 3 * F.normalize(families, dim=1))
    loss.after_step(1)
    assert loss.coarse_1.norm(dim=1).tolist() == pytest.approx([3.0] * 4, rel=1e-5)


@pytest.mark.parametrize("inner", ["ProxyAnchor()", "SoftTriple()", "ProxyNCA()"])
def test_proxies_of_given_groups_are_as_long_too(inner):
    loss = made(f"Hierarchical(loss={inner}, depth=(2, 1))", class_names=NAMES, taxonomy=TREE)
    (vectors,) = loss.loss.parameters()
    for level in (1, 2):
        assert loss.proxies_of(level).norm(dim=1).mean().item() == pytest.approx(vectors.norm(dim=1).mean().item())


@pytest.mark.parametrize("kind", ["learnable", "frozen"])
def test_after_a_clustering_a_group_is_the_mean_of_its_classes(kind):
    loss = made(f"Hierarchical(coarse=5, every=1, coarse_proxies='{kind}')")
    for step in range(1, 8):
        with_proxies(loss, loss.loss.proxies + 0.3 * torch.randn(CLASSES, DIM))
        loss.after_step(step)
        rows, group = F.normalize(loss.loss.proxies.detach(), dim=1), loss.groups()[0]
        for number in group.unique():
            mean = rows[group == number].mean(0)
            assert F.cosine_similarity(mean, loss.coarse_1[number].detach(), dim=0) > 1 - 1e-5


def test_other_proxies_for_a_moment(batch, families):
    """As who differentiates by them needs; and an error on the way leaves nothing behind."""
    z, y = batch
    loss = with_proxies(made("Hierarchical(coarse=4)"), families)
    loss.after_step(1)
    other = {name: 2 * p.detach() for name, p in loss.named_parameters()}  # lengths do not matter
    torch.testing.assert_close(torch.func.functional_call(loss, other, (z, y)), loss(z, y))
    with pytest.raises(Exception, match="size|shape|mask"):
        loss.plan[0].with_proxies(torch.randn(3, DIM), z, y)
    assert loss.plan[0].loss.proxies is None


def test_what_learns(batch, families):
    z, y = batch

    def slopes(kind, coarse_only=False):
        loss = with_proxies(made(f"Hierarchical(coarse=4, coarse_proxies='{kind}')"), families)
        loss.after_step(1)
        value = loss(z, y) - loss.loss(z, y) if coarse_only else loss(z, y)
        value.mean().backward()
        return loss.loss.proxies.grad, getattr(loss, "coarse_1", None)

    fine, coarse = slopes("learnable", coarse_only=True)
    assert fine.abs().max() < 1e-5, "the level of groups does not touch the proxies of classes"
    assert isinstance(coarse, torch.nn.Parameter) and coarse.grad.abs().max() > 1e-3
    fine, coarse = slopes("frozen", coarse_only=True)
    assert fine.abs().max() < 1e-5 and not coarse.requires_grad
    fine, coarse = slopes("centroid", coarse_only=True)
    assert coarse is None and fine.abs().max() > 1e-4, "through their mean it does"
    assert [n for n, _ in made("Hierarchical(coarse_proxies='frozen')").named_parameters()] == ["loss.proxies"]


def test_the_optimiser_forgets_proxies_that_were_put_elsewhere(batch, families):
    z, y = batch
    loss = with_proxies(made("Hierarchical(coarse=4, every=3)"), families)
    optimizer = torch.optim.Adam(loss.parameters(), lr=0.1)
    for step in range(1, 4):
        loss(z, y).mean().backward()
        optimizer.step()
        moved = loss.after_step(step)
        assert moved == ([loss.coarse_1] if step == 1 else [])
        reset_state(optimizer, moved)
        assert (loss.coarse_1 in optimizer.state) == (step > 1) and loss.loss.proxies in optimizer.state
    assert loss.after_step(4) == [loss.coarse_1]


@pytest.mark.parametrize("kind", ["learnable", "frozen", "centroid"])
def test_groups_by_the_means_of_what_was_met(kind, families):
    """Proxies say nothing yet; embeddings do. Means by hand: of a class met twice, nine parts the old and one the new."""
    loss = made(f"Hierarchical(coarse=4, by='means', every=1, start=2, coarse_proxies='{kind}')")
    torch.manual_seed(3)
    rows, first = F.normalize(families, dim=1), torch.tensor([0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10])
    near = F.normalize(rows[first] + 0.02 * torch.randn(len(first), DIM), dim=1)
    loss(near, first)
    loss.after_step(1)
    again = F.normalize(rows[:1] + 0.02 * torch.randn(1, DIM), dim=1)
    loss(again, torch.tensor([0]))
    loss.after_step(2)
    sum_of_two = near[0] + near[1]
    torch.testing.assert_close(loss.means[0], 0.9 * sum_of_two / sum_of_two.norm() + 0.1 * again[0])
    torch.testing.assert_close(loss.means[1], near[2])
    assert not loss.means[11].any(), "not met yet"
    group = loss.groups()[0][:11].tolist()
    assert all((group[a] == group[b]) == (a // 3 == b // 3) for a in range(11) for b in range(11))
    before = loss.groups()[0].clone()
    loss(near, first)
    loss.after_step(3)
    assert torch.equal(loss.groups()[0][:11], before[:11])
    loss.eval()
    loss(again, torch.tensor([4]))
    assert loss.pending is None, "who only looks leaves no trace"


def test_divergence_is_left_to_the_loop(families):
    loss = with_proxies(made(), families * torch.nan)
    assert loss.after_step(1) == [] and loss.begun == 0


WITH_PROXIES = [n for n in LOSSES if "(" not in n and "proxies" in dict(made(n).named_parameters())]
WITH_PROXIES.remove("Softmax")  # its vectors have a bias


@pytest.mark.parametrize("text", WITH_PROXIES)
def test_around_every_loss_with_proxies(text, batch):
    z, y = batch
    loss = made(f"Hierarchical(loss={text}(), coarse=4)")
    assert loss.lr_factor == loss.loss.lr_factor and loss.input == "unit"
    loss.after_step(1)
    torch.testing.assert_close(loss.predict(z), loss.loss.predict(z))
    loss(z, y).mean().backward()
    assert all(p.grad.isfinite().all() and p.grad.any() for p in loss.parameters())


def test_several_centres_a_class_are_one_in_a_group(batch):
    z, y = batch
    loss = made("Hierarchical(loss=SoftTriple(per_class=3, tau=0.0), coarse=4)")
    loss.after_step(1)
    mean = F.normalize(loss.loss.centres, dim=1).view(3, CLASSES, DIM).mean(0)
    torch.testing.assert_close(loss.proxies_of(0), mean)
    single = SoftTriple(4, DIM, per_class=1, tau=0.0)
    with torch.no_grad():
        single.centres.copy_(loss.coarse_1)
    torch.testing.assert_close(loss(z, y) - loss.loss(z, y), single(z, loss.groups()[0][y]), rtol=1e-4, atol=1e-5)


def test_levels_may_have_other_settings(batch, families):
    z, y = batch
    loss = with_proxies(made("Hierarchical(coarse=4, coarse_loss=NormSoftmax(temperature=0.5))"), families)
    loss.after_step(1)
    other = NormSoftmax(4, DIM, temperature=0.5)
    with torch.no_grad():
        other.proxies.copy_(loss.coarse_1)
    torch.testing.assert_close(loss(z, y), loss.loss(z, y) + other(z, loss.groups()[0][y]))
    assert len(list(loss.parameters())) == 2 and "coarse_loss" not in "".join(loss.state_dict())


@pytest.mark.parametrize("kind", ["learnable", "frozen", "centroid"])
def test_the_data_s_own_tree(kind, batch, families):
    z, y = batch
    text = f"Hierarchical(depth=(2, 1), coarse_proxies='{kind}', every=1)"
    loss = with_proxies(made(text, class_names=NAMES, taxonomy=TREE), families)
    genus, family = loss.groups()
    assert genus.tolist() == [n // 3 for n in range(CLASSES)] and family.tolist() == [n // 6 for n in range(CLASSES)]
    before = {k: v.clone() for k, v in loss.state_dict().items()}
    moved = loss.after_step(1)
    if kind == "frozen":  # it has centres to find
        assert before["begun"] == 0 and loss.begun == 1
        centre = F.normalize(F.normalize(families, dim=1).view(4, 3, DIM).sum(1), dim=1)
        torch.testing.assert_close(F.normalize(loss.coarse_1, dim=1), centre)
    else:
        assert all(torch.equal(v, before[k]) for k, v in loss.state_dict().items()) and before["begun"] == 1
    assert not moved and torch.equal(loss.groups()[0], genus)
    assert (loss(z, y) - loss.loss(z, y)).abs().max() > 1e-3
    assert spec(loss).startswith("Hierarchical(loss=ProxyAnchor(classes=12") and "taxonomy" not in spec(loss)


def test_the_tree_must_know_the_classes_and_have_groups(tmp_path):
    with pytest.raises(LikewiseError, match="1 of 12 classes .*: c3; add them"):
        made("Hierarchical(depth=1)", class_names=NAMES, taxonomy={k: v for k, v in TREE.items() if k != "c3"})
    with pytest.raises(LikewiseError, match="got 1 at depth=1 .* for 12 below"):
        made("Hierarchical(depth=1)", class_names=NAMES, taxonomy=dict.fromkeys(TREE, ("all",)))
    with pytest.raises(LikewiseError, match="got 2 at depth=3 of the tree for 2 below"):  # nothing lies between
        made("Hierarchical(depth=(4, 3))", class_names=NAMES, taxonomy={k: (v[0], *"xyz") for k, v in TREE.items()})
    (tmp_path / "tree.csv").write_text("\n".join(f"c{n},side {n % 2}" for n in range(CLASSES)))
    loss = made(f"Hierarchical(depth=1, tree='{tmp_path / 'tree.csv'}')", class_names=NAMES, taxonomy=TREE)
    assert loss.groups()[0].tolist() == [n % 2 for n in range(CLASSES)]


def test_who_only_looks_needs_no_tree(batch):
    loss = made("Hierarchical(depth=(2, 1))")
    assert loss.input == "unit"
    with pytest.raises(LikewiseError, match="depth needs class_names and a taxonomy"):
        loss(*batch)


@pytest.mark.parametrize(
    "text",
    [
        "Hierarchical(loss=ProxyAnchor())",
        "Hierarchical(coarse_proxies='centroid', loss=NormSoftmax())",
        "Hierarchical(loss=SoftTriple(), coarse=(4, 2), by='means')",
        "Hierarchical(loss=ArcFace(), coarse_loss=CosFace(), weight=0.3)",
    ],
)
def test_with_groups_it_keeps_the_contract(text, bare):
    bare(check_spec, text, 1)


PLAN_TREE = {
    "a": ("x", "x1"),
    "b": ("x", "x2"),
    "c": ("y", "x1"),
    "d": ("y",),
    "e": ("y", "y2", "deep"),
    "f": ("x", "x1"),
}


def test_how_many_groups():
    assert plan_sizes(200, None, 1) == [(200, 20)] and plan_sizes(200, None, 2) == [(200, 20), (20, 2)]
    assert plan_sizes(200, (50, 7), 2) == [(200, 50), (50, 7)]
    assert [plan_sizes(classes, None, 1)[0][1] for classes in (98, 11, 5)] == [9, 2, 2]
    assert plan_sizes(11318, None, 3) == [(11318, 1131), (1131, 113), (113, 11)]
    assert plan_sizes(11318, 500, 2) == [(11318, 500), (500, 50)]
    with pytest.raises(LikewiseError, match="must be three classes or more to form groups, got 2"):
        plan_sizes(2, None, 1)


def test_groups_of_a_tree():
    """A name that stands in two places is two groups; a class with fewer ancestors stands with its last."""
    fine, coarse = plan_by_tree(6, (2, 1), tuple("abcdef"), None, PLAN_TREE)
    # x/x1, x/x2, y, y/x1, y/y2 in their order
    assert fine.tolist() == [0, 1, 3, 2, 4, 0] and coarse.tolist() == [0, 0, 1, 1, 1]
    assert plan_by_tree(6, 1, None, None, None) == [(6, 2)]
    with pytest.raises(LikewiseError, match="class_names must name each of the 7 classes, got 6 names"):
        plan_by_tree(7, 1, tuple("abcdef"), None, PLAN_TREE)
    with pytest.raises(LikewiseError, match=r"depth must be at most 3, .* got \(4, 1\)"):
        plan_by_tree(6, (4, 1), tuple("abcdef"), None, PLAN_TREE)


def test_weights():
    assert level_weights(0.3, 2) == [0.3, 0.3] and level_weights((1.0, 0.0), 2) == [1.0, 0.0]
    with pytest.raises(LikewiseError, match="or one for each of the 2 levels"):
        level_weights((1.0,), 2)


def test_a_loss_like_another():
    few = copy_of_loss(ArcFace(50, 8, scale=20, margin=0.2), classes=5)
    assert (few.classes, few.dim, few.scale, few.margin) == (5, 8, 20, 0.2) and class_vectors(few).shape == (5, 8)
    assert class_vectors(SoftTriple(5, 8, per_class=3)).shape == (15, 8)
    assert class_vectors(ProxyAnchor(5, 8)).requires_grad
    with pytest.raises(LikewiseError, match="got Margin"):
        class_vectors(Margin(classes=5))
