"""Losses: (z, y) -> one value per sample. The classes imported here are the registry."""

from likewise.losses.adaptive_hierarchical import AdaptiveHierarchical as AdaptiveHierarchical
from likewise.losses.angular import Angular as Angular
from likewise.losses.arc_face import ArcFace as ArcFace
from likewise.losses.circle import Circle as Circle
from likewise.losses.contrastive import Contrastive as Contrastive
from likewise.losses.cos_face import CosFace as CosFace
from likewise.losses.cross_batch_memory import CrossBatchMemory as CrossBatchMemory
from likewise.losses.fast_ap import FastAP as FastAP
from likewise.losses.forward_correction import ForwardCorrection as ForwardCorrection
from likewise.losses.generalized_lifted import GeneralizedLifted as GeneralizedLifted
from likewise.losses.hierarchical import Hierarchical as Hierarchical
from likewise.losses.hierarchical_triplet import HierarchicalTriplet as HierarchicalTriplet
from likewise.losses.histogram import Histogram as Histogram
from likewise.losses.lifted_structure import LiftedStructure as LiftedStructure
from likewise.losses.listwise_kl import ListwiseKL as ListwiseKL
from likewise.losses.log_ratio import LogRatio as LogRatio
from likewise.losses.margin import Margin as Margin
from likewise.losses.multi_similarity import MultiSimilarity as MultiSimilarity
from likewise.losses.n_pair import NPair as NPair
from likewise.losses.norm_softmax import NormSoftmax as NormSoftmax
from likewise.losses.pair_super_loss import PairSuperLoss as PairSuperLoss
from likewise.losses.proxy_anchor import ProxyAnchor as ProxyAnchor
from likewise.losses.proxy_nca import ProxyNCA as ProxyNCA
from likewise.losses.quadruplet import Quadruplet as Quadruplet
from likewise.losses.smooth_ap import SmoothAP as SmoothAP
from likewise.losses.snr import SNR as SNR
from likewise.losses.snr_contrastive import SNRContrastive as SNRContrastive
from likewise.losses.soft_triple import SoftTriple as SoftTriple
from likewise.losses.softmax import Softmax as Softmax
from likewise.losses.sup_con import SupCon as SupCon
from likewise.losses.triplet import Triplet as Triplet
from likewise.losses.triplet_nca import TripletNCA as TripletNCA

__all__ = sorted((name for name in dir() if name[0].isupper()), key=str.casefold)  # pyright: ignore[reportUnsupportedDunderAll]
