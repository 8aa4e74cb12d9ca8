"""The learning rate over time, by hand."""

import math

import pytest
import torch
from likewise.config import Train
from likewise.losses import CrossBatchMemory, Margin, MultiSimilarity, NormSoftmax, ProxyAnchor
from likewise.terms import S2SD
from likewise.types import LikewiseError

from likewise.learn.training.schedule import Schedule, clip, make_optimizer, reset_state
from likewise.models import Embedder, heads


def rates(config, steps, per_pass=10, scores=()):
    optimizer = torch.optim.SGD(
        [{"params": [torch.nn.Parameter(torch.zeros(1))], "name": "head", "base_lr": 2.0}], lr=2.0
    )
    schedule = Schedule(config, optimizer, steps, per_pass)
    scores, found = iter(scores), []
    for step in range(steps):
        schedule.before_step(step)
        found.append(optimizer.param_groups[0]["lr"])
        if scores and step % per_pass == per_pass - 1:
            schedule.validated(next(scores, 0.0))
    return found


def test_schedules_by_hand():
    assert rates(Train(data="x"), 5) == [2.0] * 5
    stepped = rates(Train(data="x", schedule="step", schedule_every="2e", schedule_factor=0.5), 50)
    assert [stepped[i] for i in (0, 19, 20, 39, 40)] == [2.0, 2.0, 1.0, 1.0, 0.5]
    cosine = rates(Train(data="x", schedule="cosine"), 100)
    assert all(math.isclose(cosine[s], 1 + math.cos(math.pi * s / 100)) for s in range(100))
    config = Train(data="x", schedule="plateau", schedule_patience=1, schedule_factor=0.1)
    plateau = rates(config, 60, scores=[0.5, 0.4, 0.4, 0.6, 0.5, 0.5])
    assert plateau[0] == plateau[29] == 2.0 and plateau[30] == pytest.approx(0.2) and plateau[59] == pytest.approx(0.2)


@pytest.mark.parametrize(("text", "every"), [("30s", "30s"), ("4", 4), ("0.5e", 3)])
def test_states_are_saved_by_steps_passes_or_seconds(items, make, text, every):
    assert make(items, checkpoint_every=text).plan.checkpoint_every == every


@pytest.mark.parametrize(("given", "steps", "every"), [(None, 21, 1), (None, 300, 6), (None, 5000, 20), (7, 21, 7)])
def test_a_short_training_logs_more_often(items, make, given, steps, every):
    assert make(items, log_every=given, steps=steps).plan.log_every == every


@pytest.fixture
def embedder():
    return Embedder("conv_small", 8, pretrained=False)


@pytest.mark.parametrize("name", ["adam", "adamw", "rmsprop", "sgd"])
def test_groups_have_their_own_settings(embedder, name):
    loss = ProxyAnchor(classes=3, dim=8)
    config = Train(data="x", optimizer=name, lr=1e-3, backbone_lr=1e-4, weight_decay=0.1, loss_eps=0.5, eps=1e-6)
    optimizer = make_optimizer(config, [embedder], [loss])
    groups = {g["name"]: g for g in optimizer.param_groups}
    assert groups["backbone"]["lr"] == 1e-4 and groups["head"]["lr"] == 1e-3
    assert groups["loss"]["lr"] == pytest.approx(0.1)  # 100 times, as its paper says
    assert groups["loss"]["weight_decay"] == 0 and groups["head"]["weight_decay"] == 0.1
    if name != "sgd":
        assert groups["loss"]["eps"] == 0.5 and groups["head"]["eps"] == 1e-6
    count = sum(len(g["params"]) for g in optimizer.param_groups)
    assert count == len(list(embedder.parameters())) + 1
    assert make_optimizer(Train(data="x", loss_lr=7.0), [embedder], [loss]).param_groups[2]["lr"] == 7.0


@pytest.mark.parametrize("nested", [False, True])
def test_copies_of_the_loss_inside_a_term_learn_as_the_loss_does(embedder, nested):
    def make_loss(dim):
        return CrossBatchMemory(dim=dim, loss=Margin(classes=3)) if nested else ProxyAnchor(classes=3, dim=dim)

    loss, term = make_loss(8), S2SD(make_loss, embedder, dims=(6, 7))
    optimizer = make_optimizer(Train(data="x", lr=1e-3, weight_decay=0.1, loss_eps=0.5), [embedder], [loss], [term])
    groups = {g["name"]: g for g in optimizer.param_groups}
    assert groups["loss"]["lr"] == pytest.approx(1e-3 * loss.lr_factor) and loss.lr_factor > 1
    assert groups["loss"]["weight_decay"] == 0 and groups["loss"]["eps"] == 0.5

    def same(group, parameters):
        return [id(p) for p in groups[group]["params"]] == [id(p) for p in parameters]

    assert same("loss", [*loss.parameters(), *term.losses.parameters()])
    assert same("terms", term.branches.parameters()) and groups["terms"]["lr"] == 1e-3


@pytest.mark.parametrize("name", ["adam", "sgd", "rmsprop"])
def test_what_was_moved_starts_anew(embedder, name):
    """Without the push it had, and with steps as long as it had: RMSprop would begin with one ten times as long."""
    loss = ProxyAnchor(5, 8)
    optimizer = make_optimizer(Train("x", optimizer=name, momentum=0.9, lr=1e-3), [embedder], [loss])

    def step():
        before = loss.proxies.detach().clone()
        loss.proxies.grad = torch.ones_like(loss.proxies)
        optimizer.step()
        return float((loss.proxies.detach() - before).abs().mean())

    for _ in range(200):
        usual = step()
    assert reset_state(optimizer, None) is None
    reset_state(optimizer, [loss.proxies])
    first = step()
    assert first < usual * 1.01 and (name == "adam" or first < usual / 5), "its momentum is gone"


def test_clipping(embedder):
    loss = NormSoftmax(classes=3, dim=8)
    for p in (*embedder.parameters(), *loss.parameters()):
        p.grad = torch.full_like(p, 5.0)
    clip(Train(data="x", clip_value=0.1), [embedder, loss])
    assert all(p.grad.abs().max() <= 0.1 for p in (*embedder.parameters(), *loss.parameters()))
    clip(Train(data="x", clip_norm=1e-3), [embedder, loss])
    total = sum(p.grad.square().sum() for p in (*embedder.parameters(), *loss.parameters())).sqrt()
    assert total <= 1.001e-3


@pytest.mark.parametrize("most", [0.05, 1e9])
def test_clipping_by_norm_is_that_of_torch_over_all_parts(embedder, most):
    loss = NormSoftmax(classes=5, dim=8)
    parameters = [p for part in (embedder, loss) for p in part.parameters()]
    for number, p in enumerate(parameters):
        p.grad = torch.randn(p.shape, generator=torch.Generator().manual_seed(number))
    wanted = [p.grad.clone() for p in parameters]
    norm = math.sqrt(sum(float(g.square().sum()) for g in wanted))
    wanted = [g * min(1, most / (norm + 1e-6)) for g in wanted]
    clip(Train(data="x", clip_norm=most), [embedder, loss])
    for p, g in zip(parameters, wanted, strict=True):
        torch.testing.assert_close(p.grad, g)


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["adam", "adamw", "sgd", "rmsprop"])
def test_on_a_gpu_a_step_is_that_of_the_cpu(name):
    """Adam and AdamW run as one fused kernel on both."""
    moved = []
    for device in ("cpu", "cuda"):
        torch.manual_seed(0)
        embedder = Embedder("features", 8, pretrained=False, features=6).to(device)
        loss = NormSoftmax(classes=5, dim=8).to(device)
        optimizer = make_optimizer(Train(data="x", optimizer=name, lr=0.1), [embedder], [loss], [])
        assert bool(optimizer.defaults.get("fused")) == (name in ("adam", "adamw"))
        for _ in range(3):
            for p in (*embedder.parameters(), *loss.parameters()):
                p.grad = p.detach().sin()
            optimizer.step()
        moved.append([p.detach().cpu() for p in (*embedder.parameters(), *loss.parameters())])
    for a, b in zip(*moved, strict=True):
        torch.testing.assert_close(a, b)


def test_where_nothing_learns_training_is_refused_and_scoring_is_not():
    still = Embedder("features", 6, heads.Identity, features=6)
    with pytest.raises(LikewiseError, match=r"parameters to train, but head Identity\(\)"):
        make_optimizer(Train("z.npz", head="Identity()"), [still], [MultiSimilarity()])
    make_optimizer(Train("z.npz", head="Identity()", steps=0), [still], [MultiSimilarity()])
