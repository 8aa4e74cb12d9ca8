"""Terms: additions to the objective that need more than embeddings and labels. The classes imported here are the registry."""

from likewise.terms.ensemble import Ensemble as Ensemble
from likewise.terms.language_guidance import LanguageGuidance as LanguageGuidance
from likewise.terms.s2_sd import S2SD as S2SD
from likewise.terms.self_distillation import SelfDistillation as SelfDistillation

__all__ = sorted((name for name in dir() if name[0].isupper()), key=str.casefold)  # pyright: ignore[reportUnsupportedDunderAll]
