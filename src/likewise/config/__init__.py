"""Settings of every command, without torch: fields are flags, the texts below them are their help."""

from likewise.config.audit import Apply, Audit, Clean, Review
from likewise.config.checks import check, to_dict
from likewise.config.cli_types import duration_fields, spec_fields, texts_of
from likewise.config.doctor import Doctor
from likewise.config.evaluate import (
    Calibrate,
    Compare,
    Embed,
    Evaluate,
    Hierarchy,
    List,
    RecipeDiff,
    RecipeShow,
    default_metrics,
    default_select,
)
from likewise.config.exchange import Receive, Send
from likewise.config.experiments import Bench, Demo, Published, Tune
from likewise.config.noise import Noise
from likewise.config.present import Export, Report, Search
from likewise.config.train import SETTINGS_OUTSIDE_IDENTITY, SPECS, Train, merged_settings

__all__ = [
    "SETTINGS_OUTSIDE_IDENTITY",
    "SPECS",
    "Apply",
    "Audit",
    "Bench",
    "Calibrate",
    "Clean",
    "Compare",
    "Demo",
    "Doctor",
    "Embed",
    "Evaluate",
    "Export",
    "Hierarchy",
    "List",
    "Noise",
    "Published",
    "Receive",
    "RecipeDiff",
    "RecipeShow",
    "Report",
    "Review",
    "Search",
    "Send",
    "Train",
    "Tune",
    "check",
    "default_metrics",
    "default_select",
    "duration_fields",
    "merged_settings",
    "spec_fields",
    "texts_of",
    "to_dict",
]
