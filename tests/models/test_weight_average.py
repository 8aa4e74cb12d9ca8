"""The average of the weights of a network: the formula by hand, what is averaged, and that the context restores the weights."""

import copy

import pytest
import torch

from likewise.models.embedder import Embedder
from likewise.models.weight_average import WeightAverage


def small(**settings) -> Embedder:
    torch.manual_seed(0)
    return Embedder("conv_small", 4, pretrained=False, size=16, **settings)


def test_weights_of_the_average_by_hand():
    """With share 0.5, w_t = min(1, 2 / t): after values 1, 2, 3, 4 the averages are 1, 2, 2 + 2/3, 2 + 2/3 + (4 - 8/3) / 2."""
    network = small()
    average = WeightAverage(network, 0.5)
    seen = []
    for value in (1.0, 2.0, 3.0, 4.0):
        with torch.no_grad():
            for p in network.parameters():
                p.fill_(value)
        average.update()
        seen.append(float(average.values[0].flatten()[0]))
    assert seen == pytest.approx([1, 2, 8 / 3, 10 / 3], rel=1e-6)


def test_a_long_average_has_the_stated_mean_age():
    """For x_t = t, the mean age of the averaged values is share / (1 + share) of t, up to a few steps."""
    network = small()
    average, steps = WeightAverage(network, 0.2), 2000
    for t in range(1, steps + 1):
        with torch.no_grad():
            network.head.fc.weight.fill_(t)
        average.update()
    place = next(i for i, t in enumerate(average.current) if t.data_ptr() == network.head.fc.weight.data_ptr())
    assert float(average.values[place][0, 0]) == pytest.approx(steps * (1 - 0.2 / 1.2), rel=2e-3)


def test_the_context_gives_the_average_and_restores_the_weights():
    network = small()
    average = WeightAverage(network, 0.2)
    for _ in range(8):
        with torch.no_grad():
            for p in network.parameters():
                p.add_(torch.randn_like(p))
        average.update()
    before = copy.deepcopy(network.state_dict())
    with pytest.raises(RuntimeError, match="inside"), average.applied():
        assert not torch.equal(network.head.fc.weight, before["head.fc.weight"])
        assert torch.equal(network.head.fc.weight.detach(), next(v for v in average.values if v.shape == (4, 256)))
        raise RuntimeError("inside")
    assert all(torch.equal(before[name], value) for name, value in network.state_dict().items())


def test_before_the_first_step_the_network_keeps_its_weights():
    network = small()
    average = WeightAverage(network, 0.2)
    with torch.no_grad():
        network.head.fc.weight.fill_(3)  # such as a head that is fitted before training
    with average.applied():
        assert (network.head.fc.weight == 3).all()


def test_statistics_of_norms_are_averaged_and_counters_are_not():
    network = small()
    average = WeightAverage(network, 0.2)
    kept = {t.data_ptr() for t in average.current}
    norms = [m for m in network.modules() if isinstance(m, torch.nn.BatchNorm2d)]
    assert norms and all(
        m.running_mean.data_ptr() in kept and m.num_batches_tracked.data_ptr() not in kept for m in norms
    )


def test_a_frozen_backbone_is_not_copied():
    network = small(freeze_backbone=True)
    kept = {t.data_ptr() for t in WeightAverage(network, 0.2).current}
    assert all(p.data_ptr() not in kept for p in network.backbone.parameters())
    assert all(p.data_ptr() in kept for p in network.head.parameters())


def test_state_survives_saving():
    network = small()
    average, other = WeightAverage(network, 0.2), WeightAverage(small(), 0.2)
    for _ in range(7):
        with torch.no_grad():
            network.head.fc.weight.add_(1)
        average.update()
    other.load_state_dict(copy.deepcopy(average.state_dict()))
    assert other.steps == 7 and all(map(torch.equal, other.values, average.values))
