"""Norms over several processes: as one process with the whole batch, in every number."""

import copy

import pytest
import torch
from likewise.types import LikewiseError
from ranks_work import NORMS, norms, start_all
from timm.layers import BatchNormAct2d
from timm.layers.split_batchnorm import SplitBatchNorm2d
from torch import nn

from likewise.models.synced_norm import sync_norms


@pytest.fixture(scope="module")
def alone():
    """One process, the whole batch, and norms as they come."""
    torch.set_num_threads(1)  # as in every test
    return norms(lambda module: None)


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    return start_all(tmp_path_factory.mktemp("meet"), "norms")


@pytest.fixture(params=[pytest.param(2, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow)])
def together(request, answers):
    """What every process found, one after another."""
    return answers[request.param]


@pytest.mark.process
@pytest.mark.parametrize("name", [*NORMS, "network"])
def test_several_processes_norm_as_one_does(alone, together, name):
    for found in together:
        assert found[name].keys() == alone[name].keys()
        for key, value in alone[name].items():
            torch.testing.assert_close(
                found[name][key], value, rtol=1e-10, atol=1e-10, msg=lambda m, k=key: f"{k}: {m}"
            )


def test_alone_it_is_the_old_module_to_the_last_bit(alone):
    for name, found in norms(sync_norms).items():
        assert [key for key, value in found.items() if not torch.equal(value, alone[name][key])] == [], name


def test_statistics_of_short_numbers_are_float32(alone, together):
    for found in together:
        found = found["halves"]
        assert found["out"].dtype == found["slope"].dtype == torch.bfloat16 and found["mean"].dtype == torch.float32
        for key, tolerance in (("mean", 1e-6), ("var", 1e-6), ("out", 1e-2), ("slope", 5e-2)):
            torch.testing.assert_close(found[key].float(), alone["halves"][key].float(), rtol=tolerance, atol=tolerance)


def test_the_variance_of_large_numbers_is_accurate(together):
    for found in together:
        want = found["far"]["x"].double().var((0, 2, 3))
        torch.testing.assert_close(found["far"]["var"].double(), want, rtol=2e-4, atol=0)


def test_states_copies_and_activations_stay():
    net = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.Sequential(BatchNormAct2d(4), nn.GroupNorm(2, 4)))
    old = copy.deepcopy(net)
    sync_norms(net)
    sync_norms(net)  # once more changes nothing
    assert [type(m).__name__ for m in net.modules() if "Batch" in type(m).__name__] == [
        "SyncedBatchNorm2d",
        "SyncedBatchNormAct2d",
    ]
    assert net.state_dict().keys() == old.state_dict().keys() and isinstance(net[1], nn.BatchNorm2d)
    old.load_state_dict(net.state_dict())
    twin, x = copy.deepcopy(net), torch.randn(5, 3, 2, 2)
    assert torch.equal(net(x), old(x)) and torch.equal(twin(x), net(x))
    assert twin[1].num_batches_tracked == old[1].num_batches_tracked == 1 and net[1].num_batches_tracked == 2


def test_a_norm_it_does_not_know_is_refused():
    net = nn.Sequential(nn.BatchNorm2d(4), SplitBatchNorm2d(4))
    with pytest.raises(LikewiseError, match="got SplitBatchNorm2d at '1'; freeze the norms"):
        sync_norms(net)
