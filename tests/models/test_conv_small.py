import pytest
import torch

from likewise.models.backbones import ConvSmall


@pytest.mark.parametrize("size", [28, 40, 64])
def test_map_of_glyph_sized_pictures(size):
    side = -(-size // 16)
    assert ConvSmall()(torch.rand(2, 3, size, size)).shape == (2, 256, side, side)


def test_small_enough_and_every_parameter_learns():
    net = ConvSmall()
    assert 300_000 < sum(p.numel() for p in net.parameters()) < 700_000
    net(torch.rand(4, 3, 28, 28)).square().mean().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in net.parameters())


def test_the_residual_block_adds_to_its_input():
    net = ConvSmall().eval()
    x = torch.rand(2, 3, 28, 28)
    with torch.no_grad():
        net.residual[1].weight.zero_()
        net.residual[1].bias.zero_()
        torch.testing.assert_close(net(x), net.block4(net.block3(net.block2(net.block1(x)))))
