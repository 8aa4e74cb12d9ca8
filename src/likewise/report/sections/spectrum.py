"""Section "Spectrum": how many directions an embedding uses."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from torch.nn import functional as F

from likewise.metrics import spectrum
from likewise.report.section import Section, Study


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Singular values of the embeddings, largest first, summing to 1, and how fast they fall."""

    value: Float[np.ndarray, "S"]
    rho: float


def of_run(study: Study) -> Spectrum | None:
    """Return the spectrum of the normalised embeddings; None where too few values are left once the largest is left out."""
    if study.z is None or min(study.z.shape) <= 2:
        return None
    unit = study.z if study.one.similarity == "cosine" else F.normalize(study.z, dim=1)
    return Spectrum(spectrum.spectrum(unit).numpy(), spectrum.spectral_decay(unit))


SECTION = Section(
    "spectrum",
    "Spectrum",
    "Singular values of the embedding",
    "How many directions the embedding uses. The flatter the line, the more; \N{GREEK SMALL LETTER RHO} is how far it is "
    "from flat.",
    of_run=of_run,
    is_first=True,
)
