"""The settings of noise: labels spoiled on purpose, as a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from likewise.config.cli_types import Positional, Spec, called


@dataclass(frozen=True)
class Noise:
    """Spoil training labels on purpose, and write the data as a table that `likewise train` takes. Test labels stay."""

    data: Annotated[Positional[str], called("DATA")]
    """Anything `likewise train` takes."""
    model: Spec
    """How labels go wrong, such as "Uniform(share=0.2)" or "Semantic(share=0.2)"; see `likewise list noise`."""
    out: str
    """Table to write (.csv; .parquet for features), with the true labels in `label_clean`. Pictures stand beside it (.png)."""
    drop_wrong: bool = False
    """Leave the wrong rows out of the table: what could be learned by someone who knew them, to measure others by."""
    seed: int = 0
    """Of the noise: `likewise train --noise` with the same seed and protocol spoils the same labels."""
    taxonomy: str | None = None
    """The class tree, if not the data's own: cub200, cars196-type, cars196-deep, a .json or .csv file, or wordnet:ROOT."""
    root: str | None = None
    """Where the data's paths start, as in train."""
    protocol: Spec | None = None
    """Which rows train, as in train; the table's `split` says it. Train a closed set with SeenClasses(own_split=True) then."""
    allow_imports: bool = False
    """Let specs import parts by dotted name, which runs their code."""
    quiet: bool = False
    """No tables."""
