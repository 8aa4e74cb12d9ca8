"""The settings of noise: data with injected label noise, written as a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from likewise.core.settings.cli_types import File, Folder, Positional, Spec, called


@dataclass(frozen=True)
class Noise:
    """Make training labels wrong on purpose, and write the data as a table for `likewise train`. Test labels do not change."""

    data: Annotated[Positional[str], called("DATA")]
    """Any DATA of `likewise train`."""
    model: Spec
    """The noise model, as a spec such as "Uniform(share=0.2)" or "Semantic(share=0.2)"; `likewise list noise` shows all."""
    out: File
    """Table to write (.csv; .parquet for features), with the true labels in the column `label_clean`, or `labels_clean` if
    samples have several; figures (.png) are written next to it."""
    drop_wrong: bool = False
    """Drop the rows with wrong labels in place of writing them: the oracle baseline for robust training."""
    seed: int = 0
    """Seed of the noise; `likewise train --noise` with the same seed and protocol changes the same labels."""
    taxonomy: str | None = None
    """Taxonomy: cub200, cars196-type, cars196-deep, a .json or .csv file, or wordnet:ROOT. By default the taxonomy of the
    data."""
    root: Folder | None = None
    """Folder with the original download of a named data set, or the folder that the paths of a table start from. By default the
    folder of the table."""
    protocol: Spec | None = None
    """The rule that assigns rows to splits, as a spec; the table has the result in its column `split`. By default the default of
    `likewise train`.

    To train on the table with a closed set of classes, use --protocol "SeenClasses(own_split=True)"."""
    strict: bool = False
    """Stop at the first image that cannot be decoded. By default such images are skipped, counted and listed."""
    allow_imports: bool = False
    """Allow specs to import components by dotted name, which runs their code."""
    quiet: bool = False
    """Print no tables."""
