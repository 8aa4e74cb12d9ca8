"""Losses: (z, y) -> one number per sample. `__all__` is the registry."""

from likewise.losses.adaptive_hierarchical import AdaptiveHierarchical
from likewise.losses.angular import Angular
from likewise.losses.arc_face import ArcFace
from likewise.losses.circle import Circle
from likewise.losses.contrastive import Contrastive
from likewise.losses.cos_face import CosFace
from likewise.losses.cross_batch_memory import CrossBatchMemory
from likewise.losses.fast_ap import FastAP
from likewise.losses.forward_correction import ForwardCorrection
from likewise.losses.generalized_lifted import GeneralizedLifted
from likewise.losses.hierarchical import Hierarchical
from likewise.losses.histogram import Histogram
from likewise.losses.lifted_structure import LiftedStructure
from likewise.losses.margin import Margin
from likewise.losses.multi_similarity import MultiSimilarity
from likewise.losses.n_pair import NPair
from likewise.losses.norm_softmax import NormSoftmax
from likewise.losses.pair_super_loss import PairSuperLoss
from likewise.losses.proxy_anchor import ProxyAnchor
from likewise.losses.proxy_nca import ProxyNCA
from likewise.losses.quadruplet import Quadruplet
from likewise.losses.smooth_ap import SmoothAP
from likewise.losses.snr import SNR
from likewise.losses.soft_triple import SoftTriple
from likewise.losses.sup_con import SupCon
from likewise.losses.triplet import Triplet

__all__ = [
    "AdaptiveHierarchical",
    "Angular",
    "ArcFace",
    "Circle",
    "Contrastive",
    "CosFace",
    "CrossBatchMemory",
    "FastAP",
    "ForwardCorrection",
    "GeneralizedLifted",
    "Hierarchical",
    "Histogram",
    "LiftedStructure",
    "Margin",
    "MultiSimilarity",
    "NormSoftmax",
    "NPair",
    "PairSuperLoss",
    "ProxyAnchor",
    "ProxyNCA",
    "Quadruplet",
    "SmoothAP",
    "SNR",
    "SoftTriple",
    "SupCon",
    "Triplet",
]
