"""BN-Inception, the backbone of many metric-learning papers."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from likewise.core.errors import LikewiseError

# Widths of each block: 1x1, (3x3 reduce, 3x3), (double 3x3 reduce, double 3x3), pool projection.
# A block without 1x1 and projection halves the sides of the map.
BLOCK_WIDTHS = {
    "3a": (64, (64, 64), (64, 96), 32),
    "3b": (64, (64, 96), (64, 96), 64),
    "3c": (0, (128, 160), (64, 96), 0),
    "4a": (224, (64, 96), (96, 128), 128),
    "4b": (192, (96, 128), (96, 128), 128),
    "4c": (160, (128, 160), (128, 160), 128),
    "4d": (96, (128, 192), (160, 192), 128),
    "4e": (0, (128, 192), (192, 256), 0),
    "5a": (352, (192, 320), (160, 224), 128),
    "5b": (352, (192, 320), (192, 224), 128),
}


class BNInception(nn.Module):
    """Inception v2 with batch normalisation, without its classifier: images -> a map of 1024 channels.

    Paper: Ioffe, Szegedy, Batch Normalization: Accelerating Deep Network Training by Reducing Internal Covariate Shift,
    ICML 2015.
    Differs: widths, biases and pooling of the released Caffe model, not of the paper's table; parameters have the layer names
    of that model, so that its converted weights load without renaming. The momentum of running statistics is 0.1, which
    corresponds to 0.9 in Caffe.
    Needs: BGR images in 0..255 minus (104, 117, 128).
    """

    channels = 1024
    size = 224
    bgr = True
    mean = (104 / 255, 117 / 255, 128 / 255)  # blue, green, red
    std = (1 / 255, 1 / 255, 1 / 255)
    url = "http://data.lip6.fr/cadene/pretrainedmodels/bn_inception-52deb4733.pth"

    def __init__(self):
        super().__init__()
        self.add_unit("conv1_7x7_s2", 3, 64, kernel=7, stride=2)
        self.add_unit("conv2_3x3_reduce", 64, 64, kernel=1)
        self.add_unit("conv2_3x3", 64, 192, kernel=3)
        width = 192
        for name, widths in BLOCK_WIDTHS.items():
            width = self.add_block(f"inception_{name}", width, *widths)

    def add_unit(self, name: str, wide: int, narrow: int, kernel: int, stride: int = 1) -> None:
        self.add_module(name, nn.Conv2d(wide, narrow, kernel, stride=stride, padding=kernel // 2))
        self.add_module(f"{name}_bn", nn.BatchNorm2d(narrow, eps=1e-5))

    def add_block(
        self, name: str, width: int, one: int, three: tuple[int, int], double: tuple[int, int], pool: int
    ) -> int:
        """Add the layers of a block with `width` input channels, and return its number of output channels."""
        stride = 1 if one else 2
        if one:
            self.add_unit(f"{name}_1x1", width, one, kernel=1)
        self.add_unit(f"{name}_3x3_reduce", width, three[0], kernel=1)
        self.add_unit(f"{name}_3x3", *three, kernel=3, stride=stride)
        self.add_unit(f"{name}_double_3x3_reduce", width, double[0], kernel=1)
        self.add_unit(f"{name}_double_3x3_1", *double, kernel=3)
        self.add_unit(f"{name}_double_3x3_2", double[1], double[1], kernel=3, stride=stride)
        if pool:
            self.add_unit(f"{name}_pool_proj", width, pool, kernel=1)
        return one + three[1] + double[1] + (pool or width)

    def unit(self, name: str, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B c h w"]:
        return F.relu(getattr(self, f"{name}_bn")(getattr(self, name)(x)))

    def block(self, name: str, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B c h w"]:
        halves = not hasattr(self, f"{name}_1x1")
        three = self.unit(f"{name}_3x3", self.unit(f"{name}_3x3_reduce", x))
        double = self.unit(f"{name}_double_3x3_1", self.unit(f"{name}_double_3x3_reduce", x))
        double = self.unit(f"{name}_double_3x3_2", double)
        if halves:
            pooled = halve(x)
            if pooled.shape[2:] != three.shape[2:]:  # pooling and strided layers round odd sizes differently
                raise LikewiseError(
                    f"bn_inception: the map before {name} must have even sides, got {tuple(x.shape[2:])};"
                    " use images whose sides are multiples of 32, such as 224"
                )
            return torch.cat([three, double, pooled], 1)
        # The last block has maximum pooling, the others average pooling.
        pool = F.max_pool2d if name == "inception_5b" else F.avg_pool2d
        proj = self.unit(f"{name}_pool_proj", pool(x, 3, stride=1, padding=1))
        return torch.cat([self.unit(f"{name}_1x1", x), three, double, proj], 1)

    def forward(self, x: Float[Tensor, "B 3 H W"]) -> Float[Tensor, "B 1024 h w"]:
        x = halve(self.unit("conv1_7x7_s2", x))
        x = halve(self.unit("conv2_3x3", self.unit("conv2_3x3_reduce", x)))
        for name in BLOCK_WIDTHS:
            x = self.block(f"inception_{name}", x)
        return x


def halve(x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B C h w"]:
    return F.max_pool2d(x, 3, stride=2, ceil_mode=True)  # Caffe rounds the size up


def flatten_caffe(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the state with BatchNorm tensors of shape (C,); files converted from Caffe store them as (1, C)."""
    return {name: t.squeeze(0) if "_bn." in name and t.ndim == 2 and len(t) == 1 else t for name, t in state.items()}
