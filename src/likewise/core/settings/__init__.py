"""Settings of every command, without torch: fields are flags, the texts below them are their help."""

from likewise.core.settings.audit import Apply, Audit, Clean, Review
from likewise.core.settings.checks import check, to_dict
from likewise.core.settings.cli_types import duration_fields, spec_fields, texts_of
from likewise.core.settings.doctor import Doctor
from likewise.core.settings.evaluate import (
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
from likewise.core.settings.exchange import Receive, Send
from likewise.core.settings.experiments import Bench, Demo, Published, Tune
from likewise.core.settings.noise import Noise
from likewise.core.settings.present import Export, Report, Search
from likewise.core.settings.train import SETTINGS_OUTSIDE_IDENTITY, SPECS, Train, merged_settings

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
