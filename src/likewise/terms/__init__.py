"""Terms: additions to the objective that need more than embeddings and labels. The classes imported here are the registry."""

from likewise.terms.dcml import DCML as DCML
from likewise.terms.di_va import DiVA as DiVA
from likewise.terms.divide_conquer import DivideConquer as DivideConquer
from likewise.terms.ensemble import Ensemble as Ensemble
from likewise.terms.intra_batch import IntraBatch as IntraBatch
from likewise.terms.language_guidance import LanguageGuidance as LanguageGuidance
from likewise.terms.mic import MIC as MIC
from likewise.terms.s2_sd import S2SD as S2SD
from likewise.terms.self_distillation import SelfDistillation as SelfDistillation

__all__ = sorted((name for name in dir() if name[0].isupper()), key=str.casefold)  # pyright: ignore[reportUnsupportedDunderAll]
