"""The spectrum: that of unit embeddings, whatever they are compared by, and none where there are too few values."""

import numpy as np
import torch
from likewise.config import Report
from torch.nn import functional as F

from likewise.report.section import Study
from likewise.report.sections.spectrum import of_run
from likewise.report.target import ReportTarget


def study(z, similarity):
    return Study(ReportTarget("me", similarity=similarity), Report(), [], "", [], z=z)


def test_the_spectrum_is_of_unit_embeddings():
    z = torch.randn(20, 5, generator=torch.Generator().manual_seed(0))
    raw, unit = of_run(study(z, "euclidean")), of_run(study(F.normalize(z, dim=1), "cosine"))
    assert np.allclose(raw.value, unit.value, atol=1e-6) and np.isclose(raw.value.sum(), 1, atol=1e-5)
    assert of_run(study(z[:, :2], "cosine")) is None and of_run(study(None, "cosine")) is None
