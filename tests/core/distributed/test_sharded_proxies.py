"""Processes that share the proxies of a loss out among them see the loss of one process with all of them."""

import doctest
import math
import re

import pytest
import torch
from likewise.contracts import Loss
from likewise.types import LikewiseError
from pytorch_metric_learning.losses import CosFaceLoss, NormalizedSoftmaxLoss
from sharded_work import CLASSES, DIM, OPTIMIZERS, SPECS, batch, everything, made, start_all

from likewise import losses
from likewise.core.distributed import sharded_proxies as sharded
from likewise.core.distributed.sharded_proxies import (
    full_optimizer_state,
    gradient_norm,
    own,
    own_optimizer_state,
    shard,
    whole,
)
from likewise.core.settings.spec import build

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """By how many processes: what each of them found. Two, and one, go on from what three stored."""
    folder = tmp_path_factory.mktemp("meet")
    found = {"alone": [everything(folder)]} | start_all(folder)
    assert all((folder / f"{name}.pt").exists() for name in OPTIMIZERS)
    return found | {"later alone": [everything(folder)]}


@pytest.mark.parametrize("many", [2, 3])
@pytest.mark.parametrize("text", SPECS)
def test_numbers_gradients_and_guesses_are_those_of_one_process(runs, text, many):
    alone = runs["alone"][0]["look"][text]
    for name in ("z", "proxies"):
        assert alone[name].abs().max() > 1e-6
    held = []
    for found in (process["look"][text] for process in runs[many]):
        for name in ("each", "z", "proxies"):
            torch.testing.assert_close(found[name], alone[name], rtol=1e-10, atol=1e-10)
        assert torch.equal(found["guess"], alone["guess"])
        assert 0 <= found["guess of NaN"] < CLASSES
        assert found["kept"] == 1, "one matrix of logits is kept for the way back"
        held.append(int(found["held"]))
    assert held == {2: [3, 4], 3: [2, 2, 3]}[many]


@pytest.mark.parametrize("many", [2, 3])
def test_a_tiny_case_by_hand(runs, many):
    """z = (0.6, 0.8) of class 1, and unit proxies (1, 0), (0, 1), (-1, 0): cosines 0.6, 0.8, -0.6."""
    softmax = math.log(math.exp(0.6) + math.exp(0.8) + math.exp(-0.6)) - 0.8
    nca = 2 * (1 - 0.8) + math.log(math.exp(-2 * (1 - 0.6)) + math.exp(-2 * (1 + 0.6)))
    turned = 2 * math.cos(math.acos(0.8) + 0.5)
    arc = math.log(math.exp(1.2) + math.exp(turned) + math.exp(-1.2)) - turned
    for found in runs[many]:
        expected = torch.tensor([softmax, nca, arc], dtype=torch.float64)
        torch.testing.assert_close(found["by hand"], expected, rtol=0, atol=1e-12)


@pytest.mark.parity
@pytest.mark.parametrize(("text", "peer"), [("NormSoftmax()", NormalizedSoftmaxLoss), ("CosFace()", CosFaceLoss)])
def test_agrees_with_pytorch_metric_learning(runs, text, peer):
    other = peer(CLASSES, DIM).double()  # with the same defaults
    other.W.data = made(text).proxies.detach().T.clone()
    z, y = batch()
    for found in runs[3]:
        value = found["look"][text]["each"].mean().item()
        assert math.isclose(value, other(z, y).item(), rel_tol=1e-6)


@pytest.mark.parametrize("who", [2, 3, "later alone"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_learns_as_one_process_does_and_goes_on_with_any_number(runs, name, who):
    """Three processes take five steps; two processes, and one, take the last two of them from what the three stored."""
    for found in runs[who]:
        for key, value in runs["alone"][0]["learned"][name].items():
            torch.testing.assert_close(found["learned"][name][key], value, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("many", [2, 3])
def test_what_cannot_be_shared_out_is_refused_by_every_process(runs, many):
    for found in runs[many]:
        few, around = found["refusals"].values()
        assert f"there must be at least one class per process, got classes=1 of NormSoftmax for {many} processes" in few
        assert "must support sharded proxies, got Hierarchical" in around


@pytest.mark.parametrize("text", ["Hierarchical(loss=CosFace(), coarse=2)", "ForwardCorrection()", "MultiSimilarity()"])
def test_the_refusal_names_those_that_can_and_comes_alone_too(text):
    with pytest.raises(LikewiseError, match=rf"^shard: .* got {text.partition('(')[0]}, .*; use ") as error:
        shard(build(text, Loss, classes=CLASSES, dim=DIM, per_pass=1))
    can = {name for name in losses.__all__ if getattr(losses, name).can_shard}
    assert set(re.findall(r"\w+", str(error.value).partition("; use ")[2])) & set(losses.__all__) <= can
    assert can == {text.partition("(")[0] for text in SPECS}


def test_alone_nothing_changes():
    loss = build("ArcFace()", Loss, classes=CLASSES, dim=DIM)
    before = loss.proxies.detach().clone()
    shard(loss)
    optimizer = OPTIMIZERS["Adam"](loss.parameters())
    z, y = batch()
    loss(z.float(), y).mean().backward()
    torch.testing.assert_close(gradient_norm([loss]), torch.linalg.vector_norm(loss.proxies.grad))
    assert torch.equal(loss.proxies, before)
    optimizer.step()
    state, memory = whole(loss), full_optimizer_state(optimizer, [loss])
    assert state.keys() == loss.state_dict().keys() and own(loss, state)["proxies"] is state["proxies"]
    assert (
        memory == optimizer.state_dict()
        and own_optimizer_state(optimizer, memory, [loss])["state"][0] is memory["state"][0]
    )


def test_a_share_without_the_other_processes_is_refused():
    loss = build("CosFace()", Loss, classes=CLASSES, dim=DIM).double()
    loss.proxies.data = loss.proxies.data[:3]
    with pytest.raises(LikewiseError, match="its share of 7 proxies, got 3; call shard"):
        loss(*batch())


def test_the_example_works():
    assert doctest.testmod(sharded).failed == 0 and doctest.testmod(sharded).attempted > 5
