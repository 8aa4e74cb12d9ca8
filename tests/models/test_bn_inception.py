import pytest
import torch
from likewise.types import LikewiseError
from torch.nn import functional as F

from likewise.models import Embedder
from likewise.models.bn_inception import BNInception

# (in, out, kernel) of every layer of the released model, written out layer by layer.
LAYERS = {
    "conv1_7x7_s2": (3, 64, 7), "conv2_3x3_reduce": (64, 64, 1), "conv2_3x3": (64, 192, 3),
    "inception_3a_1x1": (192, 64, 1), "inception_3a_3x3_reduce": (192, 64, 1), "inception_3a_3x3": (64, 64, 3),
    "inception_3a_double_3x3_reduce": (192, 64, 1), "inception_3a_double_3x3_1": (64, 96, 3),
    "inception_3a_double_3x3_2": (96, 96, 3), "inception_3a_pool_proj": (192, 32, 1),
    "inception_3b_1x1": (256, 64, 1), "inception_3b_3x3_reduce": (256, 64, 1), "inception_3b_3x3": (64, 96, 3),
    "inception_3b_double_3x3_reduce": (256, 64, 1), "inception_3b_double_3x3_1": (64, 96, 3),
    "inception_3b_double_3x3_2": (96, 96, 3), "inception_3b_pool_proj": (256, 64, 1),
    "inception_3c_3x3_reduce": (320, 128, 1), "inception_3c_3x3": (128, 160, 3),
    "inception_3c_double_3x3_reduce": (320, 64, 1), "inception_3c_double_3x3_1": (64, 96, 3),
    "inception_3c_double_3x3_2": (96, 96, 3),
    "inception_4a_1x1": (576, 224, 1), "inception_4a_3x3_reduce": (576, 64, 1), "inception_4a_3x3": (64, 96, 3),
    "inception_4a_double_3x3_reduce": (576, 96, 1), "inception_4a_double_3x3_1": (96, 128, 3),
    "inception_4a_double_3x3_2": (128, 128, 3), "inception_4a_pool_proj": (576, 128, 1),
    "inception_4b_1x1": (576, 192, 1), "inception_4b_3x3_reduce": (576, 96, 1), "inception_4b_3x3": (96, 128, 3),
    "inception_4b_double_3x3_reduce": (576, 96, 1), "inception_4b_double_3x3_1": (96, 128, 3),
    "inception_4b_double_3x3_2": (128, 128, 3), "inception_4b_pool_proj": (576, 128, 1),
    "inception_4c_1x1": (576, 160, 1), "inception_4c_3x3_reduce": (576, 128, 1), "inception_4c_3x3": (128, 160, 3),
    "inception_4c_double_3x3_reduce": (576, 128, 1), "inception_4c_double_3x3_1": (128, 160, 3),
    "inception_4c_double_3x3_2": (160, 160, 3), "inception_4c_pool_proj": (576, 128, 1),
    "inception_4d_1x1": (608, 96, 1), "inception_4d_3x3_reduce": (608, 128, 1), "inception_4d_3x3": (128, 192, 3),
    "inception_4d_double_3x3_reduce": (608, 160, 1), "inception_4d_double_3x3_1": (160, 192, 3),
    "inception_4d_double_3x3_2": (192, 192, 3), "inception_4d_pool_proj": (608, 128, 1),
    "inception_4e_3x3_reduce": (608, 128, 1), "inception_4e_3x3": (128, 192, 3),
    "inception_4e_double_3x3_reduce": (608, 192, 1), "inception_4e_double_3x3_1": (192, 256, 3),
    "inception_4e_double_3x3_2": (256, 256, 3),
    "inception_5a_1x1": (1056, 352, 1), "inception_5a_3x3_reduce": (1056, 192, 1), "inception_5a_3x3": (192, 320, 3),
    "inception_5a_double_3x3_reduce": (1056, 160, 1), "inception_5a_double_3x3_1": (160, 224, 3),
    "inception_5a_double_3x3_2": (224, 224, 3), "inception_5a_pool_proj": (1056, 128, 1),
    "inception_5b_1x1": (1024, 352, 1), "inception_5b_3x3_reduce": (1024, 192, 1), "inception_5b_3x3": (192, 320, 3),
    "inception_5b_double_3x3_reduce": (1024, 192, 1), "inception_5b_double_3x3_1": (192, 224, 3),
    "inception_5b_double_3x3_2": (224, 224, 3), "inception_5b_pool_proj": (1024, 128, 1),
}  # fmt: skip


def released_layout() -> dict[str, torch.Tensor]:
    """A state dict with the names and shapes of the known weight files, random numbers inside."""
    g = torch.Generator().manual_seed(0)
    state = {}
    for name, (wide, narrow, kernel) in LAYERS.items():
        fan = wide * kernel * kernel
        state[f"{name}.weight"] = torch.randn(narrow, wide, kernel, kernel, generator=g) * (2 / fan) ** 0.5
        state[f"{name}.bias"] = torch.randn(narrow, generator=g) * 0.1
        for part in ("weight", "bias", "running_mean", "running_var"):
            values = torch.rand(narrow, generator=g) + (0.5 if part in ("weight", "running_var") else -0.5)
            state[f"{name}_bn.{part}"] = values
    state["last_linear.weight"] = torch.zeros(1000, 1024)
    state["last_linear.bias"] = torch.zeros(1000)
    return state


def by_hand(state: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    """The network as plain function calls on the tensors of the file."""

    def unit(name, x, stride=1):
        w, bn = (
            state[f"{name}.weight"],
            {p: state[f"{name}_bn.{p}"] for p in ("weight", "bias", "running_mean", "running_var")},
        )
        x = F.conv2d(x, w, state[f"{name}.bias"], stride=stride, padding=w.shape[-1] // 2)
        return F.relu(F.batch_norm(x, bn["running_mean"], bn["running_var"], bn["weight"], bn["bias"], eps=1e-5))

    x = F.max_pool2d(unit("conv1_7x7_s2", x, stride=2), 3, 2, ceil_mode=True)
    x = F.max_pool2d(unit("conv2_3x3", unit("conv2_3x3_reduce", x)), 3, 2, ceil_mode=True)
    for block in ("3a", "3b", "3c", "4a", "4b", "4c", "4d", "4e", "5a", "5b"):
        name, stride = f"inception_{block}", 2 if block in ("3c", "4e") else 1
        three = unit(f"{name}_3x3", unit(f"{name}_3x3_reduce", x), stride)
        double = unit(f"{name}_double_3x3_1", unit(f"{name}_double_3x3_reduce", x))
        parts = [three, unit(f"{name}_double_3x3_2", double, stride)]
        if stride == 2:
            x = torch.cat([*parts, F.max_pool2d(x, 3, 2, ceil_mode=True)], 1)
            continue
        pooled = F.max_pool2d(x, 3, 1, 1) if block == "5b" else F.avg_pool2d(x, 3, 1, 1, count_include_pad=True)
        x = torch.cat([unit(f"{name}_1x1", x), *parts, unit(f"{name}_pool_proj", pooled)], 1)
    return x


def test_parameter_count_and_map():
    net = BNInception().eval()
    backbone = sum(p.numel() for p in net.parameters())
    assert backbone == 10_270_240
    assert backbone + 1000 * 1024 + 1000 == 11_295_240
    with torch.no_grad():
        assert net(torch.zeros(1, 3, 224, 224)).shape == (1, 1024, 7, 7)


def test_both_released_layouts_load_and_give_the_network_by_hand(tmp_path):
    flat = released_layout()
    caffe = {name: t[None] if "_bn." in name else t for name, t in flat.items()}
    x = torch.randint(0, 256, (1, 3, 64, 64), dtype=torch.uint8)
    blue_first = x.float()[:, [2, 1, 0]] - torch.tensor([104.0, 117.0, 128.0]).view(1, 3, 1, 1)
    with torch.no_grad():
        want = by_hand(flat, blue_first).mean((2, 3))
        for state in (flat, caffe):
            torch.save(state, tmp_path / "bn_inception.pth")
            embedder = Embedder("bn_inception", 8, weights=tmp_path / "bn_inception.pth").eval()
            torch.testing.assert_close(embedder(x).f, want, rtol=1e-3, atol=1e-3 * want.abs().max().item())


def test_sizes_that_the_branches_round_apart_are_told():
    with pytest.raises(LikewiseError, match="multiples of 32"):
        BNInception()(torch.zeros(2, 3, 40, 40))
