"""Pair losses have the value of pytorch-metric-learning, on all pairs or on the same triplets."""

import math

import pytest
import torch
from likewise.contracts import Loss
from pytorch_metric_learning import distances, losses, miners, reducers

from likewise.core.settings.spec import build

LONELY = torch.tensor([0, 0, 0, 1, 1, 2, 2, 2, 2, 3, 4, 5])
TWINS = torch.arange(6).repeat(2)
MEAN = reducers.MeanReducer()
RAW = {"distance": distances.LpDistance(normalize_embeddings=False), "reducer": MEAN}
RATIO = distances.SNRDistance(normalize_embeddings=False)

ALL_PAIRS = [
    ("Circle()", losses.CircleLoss()),
    ("FastAP()", losses.FastAPLoss()),
    ("SupCon()", losses.SupConLoss()),
    ("MultiSimilarity()", losses.MultiSimilarityLoss(alpha=2, beta=40, base=0.5)),
    ("Histogram(nodes=65)", losses.HistogramLoss(n_bins=64)),
    ("Histogram(nodes=11)", losses.HistogramLoss(n_bins=10)),
    ("LiftedStructure()", losses.LiftedStructureLoss(**RAW)),
    ("GeneralizedLifted(penalty=0.0)", losses.GeneralizedLiftedStructureLoss(**RAW)),
]
LONELY_TOO = ("Circle()", "FastAP()", "SupCon()")
"""Losses that the peer defines as we do where a class has one sample."""


@pytest.mark.parity
@pytest.mark.parametrize(("text", "peer"), ALL_PAIRS, ids=[text for text, _ in ALL_PAIRS])
def test_all_pairs(text, peer, golden):
    mine = build(text, Loss)
    z = golden.z if mine.input == "unit" else golden.raw
    for y in (golden.y, LONELY) if text in LONELY_TOO else (golden.y,):
        chosen = (miners.MultiSimilarityMiner(epsilon=0.1)(z, y),) if text == "MultiSimilarity()" else ()
        assert math.isclose(mine(z, y).mean(), peer(z, y, *chosen), rel_tol=1e-6, abs_tol=1e-6)


@pytest.mark.parity
def test_with_two_samples_of_a_class_sup_con_is_nt_xent(golden):
    other = losses.NTXentLoss(temperature=0.1)(golden.z, TWINS)
    assert math.isclose(build("SupCon()", Loss)(golden.z, TWINS).mean(), other, rel_tol=1e-6)


TRIPLETS = [
    ("Triplet()", losses.TripletMarginLoss(0.2, distance=distances.LpDistance(power=1), reducer=MEAN)),
    ("Triplet(squared=True)", losses.TripletMarginLoss(0.2, distance=distances.LpDistance(power=2), reducer=MEAN)),
    ("SNR(penalty=0.0)", losses.TripletMarginLoss(0.2, distance=RATIO, reducer=reducers.AvgNonZeroReducer())),
    ("SNR(penalty=0.0, count='all')", losses.TripletMarginLoss(0.2, distance=RATIO, reducer=MEAN)),
    # its smooth triplet loss without a margin is the same softmax
    (
        "TripletNCA()",
        losses.TripletMarginLoss(0, smooth_loss=True, distance=distances.CosineSimilarity(), reducer=MEAN),
    ),
    ("Contrastive()", losses.ContrastiveLoss(reducer=MEAN)),
]


@pytest.mark.parity
@pytest.mark.parametrize(("text", "peer"), TRIPLETS, ids=[text for text, _ in TRIPLETS])
def test_the_same_triplets(text, peer, golden):
    mine, (a, p, n) = build(text, Loss), torch.tensor(golden.miner.triplets).T
    mine.miner = golden.miner
    chosen = (a, p, a, n) if text == "Contrastive()" else (a, p, n)
    assert math.isclose(mine(golden.z, golden.y).mean(), peer(golden.z, golden.y, chosen), abs_tol=1e-6)
