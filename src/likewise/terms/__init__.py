"""What the objective adds beside the loss. `__all__` is the registry."""

from likewise.terms.ensemble import Ensemble
from likewise.terms.language_guidance import LanguageGuidance
from likewise.terms.s2_sd import S2SD
from likewise.terms.self_distillation import SelfDistillation

__all__ = ["Ensemble", "LanguageGuidance", "S2SD", "SelfDistillation"]
