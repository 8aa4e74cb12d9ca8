"""LoRA: nothing changes at the start, only its own parameters learn, and the merged network is the same function."""

import pytest
import timm
import torch
from likewise.types import LikewiseError
from torch import nn

from likewise.models.embedder import Embedder
from likewise.models.lora import LoRALinear, add_lora, lora_parameters, merged


def made(name, lora, seed=0):
    torch.manual_seed(seed)
    return Embedder(name, 8, pretrained=False, lora=lora)


@pytest.fixture
def x():
    return torch.rand(4, 3, 32, 32, generator=torch.Generator().manual_seed(1))


def train_a_step(embedder, x):
    optimizer = torch.optim.SGD([*embedder.backbone_parameters(), *embedder.head_parameters()], lr=0.1)
    for _ in range(2):  # B is zero in the first step, so that A has no gradient yet
        optimizer.zero_grad()
        embedder(x).e.square().sum().backward()
        optimizer.step()


def test_the_layer_by_hand():
    torch.manual_seed(0)
    net = nn.ModuleDict({"attn": nn.ModuleDict({"qkv": nn.Linear(5, 6)})})
    add_lora(net, 2, "toy")
    layer = net["attn"]["qkv"]
    x = torch.randn(3, 5)
    assert torch.equal(layer(x), nn.functional.linear(x, layer.weight, layer.bias))
    nn.init.normal_(layer.lora_b)
    change = torch.tensor([
        [sum(layer.lora_b[i, r] * layer.lora_a[r, j] for r in range(2)) for j in range(5)] for i in range(6)
    ])  # fmt: skip
    wanted = x @ (layer.weight + change).T + layer.bias
    torch.testing.assert_close(layer(x), wanted, rtol=1e-5, atol=1e-5)  # another order of the sums


@torch.no_grad()
def test_it_starts_as_the_network_without_it(toy_vit, x):
    plain, lora = made(toy_vit, None).eval(), made(toy_vit, 3).eval()
    lora.load_state_dict(plain.state_dict(), strict=False)  # the head was drawn after A
    assert torch.equal(plain(x).f, lora(x).f) and torch.equal(plain(x).z, lora(x).z)


def test_only_its_parameters_learn(toy_vit, x):
    embedder = made(toy_vit, 3)
    before = {name: t.clone() for name, t in embedder.state_dict().items()}
    train_a_step(embedder.train(), x)
    changed = {name for name, t in embedder.state_dict().items() if not torch.equal(t, before[name])}
    layers = [name for name, layer in embedder.named_modules() if isinstance(layer, LoRALinear)]
    assert len(layers) == 2 * len(embedder.backbone.net.blocks)
    assert changed == {f"{layer}.lora_{letter}" for layer in layers for letter in "ab"} | {
        "head.fc.weight", "head.fc.bias",
    }  # fmt: skip
    assert {p.shape[0] for p in lora_parameters(embedder)} == {3, 64, 192}


def test_merged_it_is_the_same_function(toy_vit, x):
    embedder = made(toy_vit, 3)
    train_a_step(embedder.train(), x)
    alone = merged(embedder.eval())
    assert alone.state_dict().keys() == made(toy_vit, None).state_dict().keys()
    with torch.no_grad():
        torch.testing.assert_close(alone(x).e, embedder(x).e, rtol=1e-4, atol=1e-5)  # float32 sums in another order
    assert not any(isinstance(layer, LoRALinear) for layer in alone.modules())
    assert any(isinstance(layer, LoRALinear) for layer in embedder.modules()), "the network itself was changed"
    assert merged(alone) is alone


def test_networks_that_cannot_have_it():
    with pytest.raises(LikewiseError, match="resnet18 has none; drop --lora"):
        Embedder("resnet18", 8, pretrained=False, lora=4)
    net = timm.create_model("test_vit", num_classes=0)
    with pytest.raises(LikewiseError, match="the rank must be from 1 to 64, the width of test_vit, got 65"):
        add_lora(net, 65, "test_vit")
    with pytest.raises(LikewiseError, match="rank must be from 1 to 64, the width of test_vit, got 0"):
        add_lora(net, 0, "test_vit")
    net.blocks[0].attn.q_bias = nn.Parameter(torch.zeros(64))
    with pytest.raises(LikewiseError, match="'blocks.0.attn' reads the weights of qkv"):
        add_lora(net, 2, "test_vit")
