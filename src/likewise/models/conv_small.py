"""A small convolutional network for small images, such as the glyphs data set."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn


class ConvSmall(nn.Module):
    """Four strided blocks and one residual block, for images of 28 to 64 pixels; 0.54 million parameters.

    Every strided block halves the sides in its first layer: on a CPU, maps of full size would dominate the time.
    """

    channels = 256
    size = 40
    mean = (0.5, 0.5, 0.5)
    std = (0.25, 0.25, 0.25)

    def __init__(self):
        super().__init__()
        self.block1 = block(3, 32, stride=2)
        self.block2 = block(32, 64, stride=2)
        self.block3 = block(64, 128, stride=2)
        self.residual = block(128, 128, stride=1)
        self.block4 = block(128, self.channels, stride=2)

    def forward(self, x: Float[Tensor, "B 3 H W"]) -> Float[Tensor, "B 256 h w"]:
        # Channels last is faster for such narrow layers, on CPUs and on accelerators.
        x = x.contiguous(memory_format=torch.channels_last)
        x = self.block3(self.block2(self.block1(x)))
        return self.block4(x + self.residual(x))


def block(wide: int, narrow: int, stride: int) -> nn.Sequential:
    conv = nn.Conv2d(wide, narrow, kernel_size=3, stride=stride, padding=1, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(narrow), nn.ReLU(inplace=True))
