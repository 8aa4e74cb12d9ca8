"""Confidences: sample weights and relabelling during training. The classes imported here are the registry."""

from likewise.learn.confidence.co_teaching import CoTeaching as CoTeaching
from likewise.learn.confidence.co_teaching_plus import CoTeachingPlus as CoTeachingPlus
from likewise.learn.confidence.label_posterior import LabelPosterior as LabelPosterior
from likewise.learn.confidence.label_posterior import LabelSetPosterior as LabelSetPosterior
from likewise.learn.confidence.n2_d2 import N2D2 as N2D2
from likewise.learn.confidence.prism import PRISM as PRISM
from likewise.learn.confidence.proc_sim import ProcSim as ProcSim
from likewise.learn.confidence.super_loss import SuperLoss as SuperLoss

__all__ = sorted((name for name in dir() if name[0].isupper()), key=str.casefold)  # pyright: ignore[reportUnsupportedDunderAll]
