"""Activations worked out twice: the same gradients and running statistics, from less memory."""

import copy
from functools import partial

import pytest
import torch
from likewise.types import LikewiseError
from torch import nn
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

from likewise.models import Embedder
from likewise.models.embedder import pause_running_statistics, restore_momentum


def one_step(embedder, x):
    """The bytes that autograd keeps for the backward pass, which then runs."""
    kept = {}

    def keep(tensor):
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        out = embedder(x)
    (out.e**2).sum().backward()
    own = {p.untyped_storage().data_ptr() for p in embedder.parameters()}
    return sum(size for place, size in kept.items() if place not in own)


@pytest.mark.slow
@pytest.mark.parametrize("freeze", [False, True])
@pytest.mark.parametrize(("name", "share"), [("resnet18", 0.6), ("tf_efficientnet_lite0", 0.3)])
def test_same_gradients_and_statistics_from_less_memory(name, share, freeze):
    torch.manual_seed(0)
    plain = Embedder(name, 4, pretrained=False, freeze_bn=freeze).double()
    frugal = copy.deepcopy(plain)
    frugal.recompute()
    frugal.recompute()  # once more changes nothing
    x = torch.rand(4, 3, 32, 32, dtype=torch.float64)
    before, after = one_step(plain, x), one_step(frugal, x)
    assert after < share * before  # of a small ResNet, most is kept before the first of its stages
    for (key, want), found in zip(plain.named_parameters(), frugal.parameters(), strict=True):
        torch.testing.assert_close(found.grad, want.grad, rtol=1e-12, atol=1e-12, msg=key)
    for (key, want), found in zip(plain.named_buffers(), frugal.buffers(), strict=True):
        assert torch.equal(found, want), key
    assert frugal.state_dict().keys() == plain.state_dict().keys()
    moved = {int(buffer) for key, buffer in frugal.named_buffers() if key.endswith("num_batches_tracked")}
    assert moved == ({0} if freeze else {1})
    assert torch.equal(frugal.eval()(x).z, plain.eval()(x).z)


@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("momentum", [0.3, None])
def test_statistics_move_once_however_it_is_recomputed(reentrant, early, momentum):
    """Early: recomputing stops inside of the norm, once its last tensor is there."""
    torch.manual_seed(0)
    norm = nn.BatchNorm1d(3, momentum=momentum)
    plain = copy.deepcopy(norm)
    norm.register_forward_pre_hook(pause_running_statistics)
    norm.register_forward_hook(partial(restore_momentum, momentum), always_call=True)
    for _ in range(3):
        x = torch.randn(6, 3, requires_grad=True)
        with set_checkpoint_early_stop(early):
            (checkpoint(norm, x, use_reentrant=reentrant) ** 3).sum().backward()
        found, x.grad = x.grad, None
        (plain(x) ** 3).sum().backward()
        assert torch.equal(found, x.grad) and norm.momentum == momentum
        for mine, want in zip(norm.buffers(), plain.buffers(), strict=True):
            assert torch.equal(mine, want)
    assert norm.num_batches_tracked == 3


@pytest.mark.parametrize("name", ["conv_small", "pit_ti_224", "features"])
def test_a_network_that_cannot_is_refused(name):
    embedder = Embedder(name, 4, pretrained=False, features=5 if name == "features" else None)
    with pytest.raises(LikewiseError, match=f"'{name}' has none; split the batch"):
        embedder.recompute()
