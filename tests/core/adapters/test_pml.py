"""Losses of pytorch-metric-learning as ours: their number, their gradient, a share for every sample."""

import inspect

import pytest
import torch
from likewise.adapters import FromPML
from likewise.contracts import Loss
from likewise.losses import CrossBatchMemory
from likewise.types import LikewiseError, Ref
from torch.nn import functional as F

from likewise.core.settings.spec import build, canonical, spec
from likewise.testing import loss as checks

pml = pytest.importorskip("pytorch_metric_learning")
from pytorch_metric_learning import distances, losses, miners, reducers, regularizers  # noqa: E402

SIZES = {"num_classes": checks.CHECK_CLASSES, "embedding_size": checks.CHECK_DIM}
PLAIN = (
    "AngularLoss", "CircleLoss", "ContrastiveLoss", "FastAPLoss", "GeneralizedLiftedStructureLoss", "HistogramLoss",
    "IntraPairVarianceLoss", "LiftedStructureLoss", "MarginLoss", "MultiSimilarityLoss", "NCALoss", "NPairsLoss", "NTXentLoss",
    "PNPLoss", "SignalToNoiseRatioContrastiveLoss", "SupConLoss", "TripletMarginLoss", "TupletMarginLoss",
)  # fmt: skip
PROXIES = (
    "ArcFaceLoss", "CosFaceLoss", "NormalizedSoftmaxLoss", "ProxyAnchorLoss", "ProxyNCALoss", "SoftTripleLoss",
    "SphereFaceLoss", "SubCenterArcFaceLoss",
)  # fmt: skip
SAME_FOR_ALL = {"HistogramLoss", "PNPLoss", "ProxyAnchorLoss"}
ODD = {
    "HistogramLoss": "_gradient_where_samples_coincide", "NPairsLoss": "_order_does_not_matter",
    "TupletMarginLoss": "_gradient_where_samples_coincide",
}  # fmt: skip
"""What PML's own loss does not keep: it falls over twins, or takes the first two of each class."""

UNKNOWN = ("_spec_and_state", "_second_derivative", "_forward_mode_and_vmap", "_compiles", "_never_syncs")
"""Not for PML, which looks at values; specs have tests of their own."""


def make(name, **more):
    torch.manual_seed(5)
    return getattr(losses, name)(**(SIZES if name in PROXIES else {}), **more)


def both(ours, theirs, pick=None):
    """(number, gradient by z, gradients by parameters) of each on the same batch."""
    z, y = checks.batch()
    for loss in (ours, theirs):
        free = z.clone().requires_grad_()
        torch.manual_seed(7)
        value = loss(free, y) if pick is None or loss is ours else loss(free, y, pick(free, y))
        value.mean().backward()
        yield value.mean().detach(), free.grad, [p.grad for p in loss.parameters()]


def assert_same(ours, theirs, pick=None):
    (a, by_z, by_p), (b, their_z, their_p) = both(ours, theirs, pick)
    torch.testing.assert_close(a, b.reshape(()))
    torch.testing.assert_close(by_z, their_z)
    torch.testing.assert_close(by_p, their_p)


@pytest.mark.parity
@pytest.mark.parametrize("name", [*PLAIN, *PROXIES])
def test_number_and_gradients_are_those_of_pml(name):
    assert_same(FromPML(make(name)).double(), make(name).double())
    z, y = checks.batch()
    each = FromPML(make(name)).double()(z, y)
    assert each.shape == (12,) and bool(each.std() < 1e-6) == (name in SAME_FOR_ALL)


@pytest.mark.parity
@pytest.mark.parametrize(
    "reducer",
    [
        reducers.MeanReducer(), reducers.SumReducer(), reducers.AvgNonZeroReducer(), reducers.ThresholdReducer(low=0.1, high=1),
        reducers.PerAnchorReducer(), reducers.ClassWeightedReducer(torch.arange(1.0, 6)),
    ],
    ids=lambda r: type(r).__name__,
)  # fmt: skip
def test_whatever_the_reducer(reducer):
    assert_same(FromPML(losses.ContrastiveLoss(reducer=reducer)), losses.ContrastiveLoss(reducer=reducer))


@pytest.mark.parity
@pytest.mark.parametrize("miner", [miners.MultiSimilarityMiner(), miners.TripletMarginMiner(margin=0.5)])
@pytest.mark.parametrize("name", ["TripletMarginLoss", "MultiSimilarityLoss", "ArcFaceLoss", "ContrastiveLoss"])
def test_its_miner_too(name, miner):
    assert_same(FromPML(make(name), miner).double(), make(name).double(), miner)


@pytest.mark.parity
def test_regularised_weights_and_other_distances():
    how = {"weight_regularizer": regularizers.RegularFaceRegularizer()}
    assert_same(FromPML(make("ArcFaceLoss", **how)).double(), make("ArcFaceLoss", **how).double())
    far = {"distance": distances.LpDistance(normalize_embeddings=False, power=2)}
    ours = FromPML(losses.TripletMarginLoss(**far))
    assert ours.input == "raw" and FromPML(losses.TripletMarginLoss()).input == "unit"
    assert_same(ours, losses.TripletMarginLoss(**far))


def test_shares_of_triplets_by_hand():
    """Of the triplets that are wrong, each counts the same, at its anchor."""
    z, y = checks.batch()
    each, count = [0.0] * 12, 0
    for a in range(12):
        for p in range(12):
            for n in range(12):
                if a == p or y[a] != y[p] or y[n] == y[a]:
                    continue
                gap = float((z[a] - z[p]).norm() - (z[a] - z[n]).norm()) + 0.05
                each[a] += max(gap, 0)
                count += gap > 0
    torch.testing.assert_close(FromPML(losses.TripletMarginLoss())(z, y), torch.tensor(each).double() * 12 / count)


def test_shares_of_samples_by_hand():
    z, y = checks.batch()
    loss = make("NormalizedSoftmaxLoss").double()
    centres = F.normalize(loss.W.detach(), dim=0)
    by_hand = [float(F.cross_entropy((z[i] @ centres / loss.temperature)[None], y[i : i + 1])) for i in range(12)]
    torch.testing.assert_close(FromPML(loss)(z, y).detach(), torch.tensor(by_hand).double())


@pytest.mark.parametrize("name", [*PLAIN, *PROXIES])
def test_it_keeps_the_contract_of_losses(name):
    ran = 0
    for check in vars(checks).values():
        word = getattr(check, "__name__", "")
        if word.startswith("_") and check.__module__ == checks.__name__ and word not in (
            *UNKNOWN, ODD.get(name), "_value", "_fresh", "_check_gradient",
        ) and len(inspect.signature(check).parameters) == 1:  # fmt: skip
            check(lambda: FromPML(make(name)))
            ran += 1
    assert ran == 11 - (name in ODD)


@pytest.mark.parity
def test_partners_are_limited_and_remembered():
    z, y = checks.batch()
    used = torch.arange(12) != 4
    ours = FromPML(losses.ContrastiveLoss()).double()
    some = ours(z, y, Ref(z, y, torch.arange(12), used=used))
    a, p = torch.where((y[:, None] == y) & ~torch.eye(12, dtype=bool) & used)
    b, n = torch.where((y[:, None] != y) & used)
    expected = losses.ContrastiveLoss()(z, y, (a, p, b, n), ref_emb=z.clone(), ref_labels=y.clone())
    torch.testing.assert_close(some.mean(), expected)
    memory = CrossBatchMemory(loss=ours, dim=checks.CHECK_DIM, size=24)
    assert torch.isfinite(memory(z, y)).all() and torch.isfinite(memory(z, y)).all()
    proxies = FromPML(make("ArcFaceLoss")).double()
    assert torch.equal(proxies(z, y, Ref(z, y, torch.arange(12), used=used)), proxies(z, y))
    with pytest.raises(LikewiseError, match="needs the whole batch.*omit miner"):
        FromPML(losses.ContrastiveLoss(), miners.MultiSimilarityMiner())(z, y, Ref(z, y, used=used))


def test_specs_wrap_fill_in_and_come_back():
    facts = {"classes": 5, "dim": 8, "allow_imports": True}
    for text in (
        "pytorch_metric_learning.losses.MultiSimilarityLoss(alpha=3)",
        "pytorch_metric_learning.losses.SubCenterArcFaceLoss(sub_centers=2)",
        "pytorch_metric_learning.losses.ContrastiveLoss(distance=pytorch_metric_learning.distances.LpDistance(p=1))",
        "FromPML(loss=pytorch_metric_learning.losses.TripletMarginLoss(), miner=pytorch_metric_learning.miners.BatchHardMiner())",
    ):
        made = build(text, Loss, **facts)
        assert isinstance(made, FromPML) and spec(made) == text == spec(build(spec(made), Loss, **facts))
        assert canonical(text).startswith(text.split("(")[0])
    assert build("pytorch_metric_learning.losses.MultiSimilarityLoss(alpha=3)", Loss, **facts).loss.alpha == 3
    assert build("pytorch_metric_learning.losses.CosFaceLoss()", Loss, **facts).loss.W.shape == (8, 5)
    assert build("pytorch_metric_learning.losses.MarginLoss()", Loss, **facts).loss.beta.shape == (1,)
    inner = build("CrossBatchMemory(loss=pytorch_metric_learning.losses.ContrastiveLoss(), size=9)", Loss, **facts)
    assert isinstance(inner.loss, FromPML)
    assert "ContrastiveLoss()" in spec(inner)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("losses.MultiSimilarityLoss(alfa=3)", "has no argument 'alfa'; did you mean 'alpha'"),
        ("losses.ManifoldLoss()", "ManifoldLoss needs l"),
        ("miners.BatchHardMiner()", "describes a BatchHardMiner, but a Loss is needed here"),
        (
            "losses.CrossBatchMemory(loss=pytorch_metric_learning.losses.ContrastiveLoss())",
            "CrossBatchMemory, but a Loss",
        ),
        (
            "losses.SoftTripleLoss(distance=pytorch_metric_learning.distances.LpDistance())",
            "SoftTripleLoss cannot be built with these arguments",
        ),
    ],
)
def test_what_cannot_be_wrapped_is_said(text, words):
    with pytest.raises(LikewiseError, match=words):
        build(f"pytorch_metric_learning.{text}", Loss, allow_imports=True, classes=5, dim=8)


def test_other_mistakes_are_said():
    z, y = checks.batch()
    with pytest.raises(LikewiseError, match="pytorch_metric_learning.*got Linear"):
        FromPML(torch.nn.Linear(2, 2))
    with pytest.raises(LikewiseError, match="omit embedding_regularizer"):
        FromPML(losses.ContrastiveLoss(embedding_regularizer=regularizers.LpRegularizer()))
    with pytest.raises(LikewiseError, match="ContrastiveLoss must work.*not callable"):
        FromPML(losses.ContrastiveLoss(distance=3))(z, y)
    with pytest.raises(LikewiseError, match="VICRegLoss must work on one batch"):
        FromPML(losses.VICRegLoss())(z, y)
    with pytest.raises(LikewiseError, match="SmoothAPLoss must work.*the same number"):
        FromPML(losses.SmoothAPLoss())(z, y)
    with pytest.raises(LikewiseError, match="cannot be derived from it; pass the loss as text"):
        spec(FromPML(losses.ContrastiveLoss()))
    with pytest.raises(LikewiseError, match="labels must be 0 to 4"):
        FromPML(make("NormalizedSoftmaxLoss")).double()(z, y + 1)
