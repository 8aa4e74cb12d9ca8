"""Terms: additions to the objective that need more than embeddings and labels. The classes imported here are the registry."""

from likewise.learn.terms.dcml import DCML as DCML
from likewise.learn.terms.di_va import DiVA as DiVA
from likewise.learn.terms.divide_conquer import DivideConquer as DivideConquer
from likewise.learn.terms.ensemble import Ensemble as Ensemble
from likewise.learn.terms.intra_batch import IntraBatch as IntraBatch
from likewise.learn.terms.language_guidance import LanguageGuidance as LanguageGuidance
from likewise.learn.terms.mic import MIC as MIC
from likewise.learn.terms.s2_sd import S2SD as S2SD
from likewise.learn.terms.self_distillation import SelfDistillation as SelfDistillation

__all__ = sorted((name for name in dir() if name[0].isupper()), key=str.casefold)  # pyright: ignore[reportUnsupportedDunderAll]
