"""Section "Spectrum": singular values of the embeddings."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from torch.nn import functional as F

from likewise.report.section import Section, Study
from likewise.score.metrics import spectrum


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Singular values of the embeddings, largest first, with sum 1, and their spectral decay rho."""

    value: Float[np.ndarray, "S"]
    rho: float


def of_run(study: Study) -> Spectrum | None:
    """Return the spectrum of the normalised embeddings; None for two or fewer samples or dimensions."""
    if study.z is None or min(study.z.shape) <= 2:
        return None
    unit = study.z if study.one.similarity == "cosine" else F.normalize(study.z, dim=1)
    return Spectrum(spectrum.spectrum(unit).numpy(), spectrum.spectral_decay(unit))


SECTION = Section(
    "spectrum",
    "Spectrum",
    "Singular values of the embedding",
    "A flat line means that the embedding uses all directions alike. \N{GREEK SMALL LETTER RHO} measures the distance from a "
    "flat spectrum.",
    of_run=of_run,
    folded=True,
    is_first=True,
)
