"""Shared by figures: spectra of the training embeddings of runs, computed once and stored in the run folder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from likewise.core.errors import LikewiseError
from likewise.core.files import read_json, write_json
from likewise.core.progress import bar
from likewise.core.render.figures import Estimate
from likewise.core.settings import Bench
from likewise.papers.experiments.figures._groups import SeedGroup
from likewise.runs.folder import Run
from likewise.runs.scores import REWRITE_HINT

SPECTRA_FILE = "spectra.json"
"""File of the run folder: spectral decay and spectra of its training embeddings."""


class Spectra(NamedTuple):
    """Spectral decay, singular values of all embeddings, and mean singular values of the classes; both spectra sum to 1."""

    rho: float
    whole: Float[np.ndarray, "S"]
    classes: Float[np.ndarray, "R"]


def measure_spectra(groups: Sequence[SeedGroup], config: Bench) -> tuple[list[list[Spectra]], list[str]]:
    """Return the spectra of the training embeddings of all runs of each group, and notes about runs that have none."""
    found, notes = [], []
    with bar("training embeddings", sum(len(group.runs) for group in groups), quiet=config.quiet) as progress:
        for group in groups:
            found.append([])
            for t in group.runs:
                try:
                    found[-1].append(training_spectra(t.job.run, config))
                except LikewiseError as error:
                    notes.append(f"{group.row}: the training samples could not be embedded: {error}")
                progress.advance(1)
    return found, list(dict.fromkeys(notes))


def training_spectra(run: Run, config: Bench) -> Spectra:
    """Return rho and the spectra of the training embeddings of a run. Computed once, and stored in its folder."""
    file = run.path / SPECTRA_FILE
    if not file.exists():
        write_json(file, compute_spectra(run, config))
    about = read_json(file, "bench", hint=REWRITE_HINT)
    return Spectra(about["rho"], np.array(about["spectrum"]), np.array(about["class_spectrum"]))


def compute_spectra(run: Run, config: Bench) -> dict:
    """Return the content of spectra.json. `rho` is the value of `likewise evaluate RUN --split train --metrics rho`."""
    from torch.nn.functional import normalize

    from likewise.runs.open import OpenRun
    from likewise.score.checks import rows_of
    from likewise.score.metrics.spectrum import class_spectrum, measure, spectrum

    opened = OpenRun(run, device=config.device, allow_imports=config.allow_imports, quiet=True, say=lambda line: None)
    e = opened.embed(opened.items, rows_of(opened.protocol, opened.items, "train"), title="embed train split")
    unit = normalize(e.z, dim=1)
    return {
        "split": "train", "samples": len(unit), "rho": measure(["rho"], e.z, e.y)["rho"],
        "spectrum": spectrum(unit).tolist(), "class_spectrum": class_spectrum(unit, e.y).tolist(),
    }  # fmt: skip


def rho_of(spectra: Sequence[Spectra]) -> Estimate:
    """Return the spectral decay over seeds; NaN without any."""
    return Estimate.of([one.rho for one in spectra]) if spectra else Estimate(np.nan, np.nan, 0)
