"""Every setting of every command, without torch: fields are flags, the texts below them are their help."""

from likewise.configs.asking import Compare, Embed, Evaluate, Hierarchy, List, RecipeDiff, RecipeShow
from likewise.configs.audit import Audit, Review
from likewise.configs.checks import check, to_dict
from likewise.configs.many import Bench, Demo, Published, Tune
from likewise.configs.noise import Noise
from likewise.configs.showing import Export, Report, Search
from likewise.configs.train import KEPT_OUT, Train

__all__ = [
    "KEPT_OUT",
    "Audit",
    "Bench",
    "Compare",
    "Demo",
    "Embed",
    "Evaluate",
    "Export",
    "Hierarchy",
    "List",
    "Noise",
    "Published",
    "RecipeDiff",
    "RecipeShow",
    "Report",
    "Review",
    "Search",
    "Train",
    "Tune",
    "check",
    "to_dict",
]
