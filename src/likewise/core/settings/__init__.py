"""Settings of every command, without torch: fields are flags, the texts below them are their help."""

from likewise.core.settings.experiments import Bench, Demo, Published, Tune
from likewise.core.settings.field_types import duration_fields, spec_fields, texts_of
from likewise.core.settings.label_settings import Apply, Audit, Clean, Noise, Receive, Review, Send
from likewise.core.settings.run_settings import (
    Calibrate,
    Compare,
    Doctor,
    Embed,
    Evaluate,
    Export,
    Hierarchy,
    List,
    Report,
    Search,
    ShowRecipe,
)
from likewise.core.settings.setting_values import check, to_dict
from likewise.core.settings.training_settings import (
    SETTINGS_OUTSIDE_IDENTITY,
    SPECS,
    Train,
    default_metrics,
    default_select,
    merged_settings,
)

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
    "ShowRecipe",
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
