"""How far to believe each label while training. `__all__` is the registry."""

from likewise.confidence.co_teaching import CoTeaching
from likewise.confidence.co_teaching_plus import CoTeachingPlus
from likewise.confidence.label_posterior import LabelPosterior
from likewise.confidence.prism import PRISM
from likewise.confidence.proc_sim import ProcSim
from likewise.confidence.super_loss import SuperLoss

__all__ = [
    "CoTeaching",
    "CoTeachingPlus",
    "LabelPosterior",
    "PRISM",
    "ProcSim",
    "SuperLoss",
]
