"""Losses: (z, y) -> one value per sample. The classes imported here are the registry."""

from likewise.learn.losses.adaptive_hierarchical import AdaptiveHierarchical as AdaptiveHierarchical
from likewise.learn.losses.angular import Angular as Angular
from likewise.learn.losses.arc_face import ArcFace as ArcFace
from likewise.learn.losses.circle import Circle as Circle
from likewise.learn.losses.contrastive import Contrastive as Contrastive
from likewise.learn.losses.cos_face import CosFace as CosFace
from likewise.learn.losses.cross_batch_memory import CrossBatchMemory as CrossBatchMemory
from likewise.learn.losses.fast_ap import FastAP as FastAP
from likewise.learn.losses.forward_correction import ForwardCorrection as ForwardCorrection
from likewise.learn.losses.generalized_lifted import GeneralizedLifted as GeneralizedLifted
from likewise.learn.losses.hierarchical import Hierarchical as Hierarchical
from likewise.learn.losses.hierarchical_triplet import HierarchicalTriplet as HierarchicalTriplet
from likewise.learn.losses.histogram import Histogram as Histogram
from likewise.learn.losses.lifted_structure import LiftedStructure as LiftedStructure
from likewise.learn.losses.listwise_kl import ListwiseKL as ListwiseKL
from likewise.learn.losses.log_ratio import LogRatio as LogRatio
from likewise.learn.losses.margin import Margin as Margin
from likewise.learn.losses.multi_similarity import MultiSimilarity as MultiSimilarity
from likewise.learn.losses.n_pair import NPair as NPair
from likewise.learn.losses.norm_softmax import NormSoftmax as NormSoftmax
from likewise.learn.losses.pair_super_loss import PairSuperLoss as PairSuperLoss
from likewise.learn.losses.proxy_anchor import ProxyAnchor as ProxyAnchor
from likewise.learn.losses.proxy_nca import ProxyNCA as ProxyNCA
from likewise.learn.losses.quadruplet import Quadruplet as Quadruplet
from likewise.learn.losses.smooth_ap import SmoothAP as SmoothAP
from likewise.learn.losses.snr import SNR as SNR
from likewise.learn.losses.snr_contrastive import SNRContrastive as SNRContrastive
from likewise.learn.losses.soft_triple import SoftTriple as SoftTriple
from likewise.learn.losses.softmax import Softmax as Softmax
from likewise.learn.losses.sup_con import SupCon as SupCon
from likewise.learn.losses.triplet import Triplet as Triplet
from likewise.learn.losses.triplet_nca import TripletNCA as TripletNCA

__all__ = sorted((name for name in dir() if name[0].isupper()), key=str.casefold)  # pyright: ignore[reportUnsupportedDunderAll]
