"""The settings of audit and of review: what is found in a data set, and what people make of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from likewise.config.cli_types import Positional, called


@dataclass(frozen=True)
class Audit:
    """Find labels that are probably wrong, classes that are really one, test errors and the samples that cause them."""

    targets: Annotated[Positional[tuple[str, ...]], called("RUN_OR_EMBEDDINGS")] = ()
    """A run folder, or embeddings (.npz, .npy, .parquet); with --overlap, several runs."""
    labels: str | None = None
    """Labels of embeddings that have none: a table (.csv) with `label`, one line a row, or an array (.npy)."""
    out: str | None = None
    """Folder of the audit. By default `audit` in the run's folder, or audit/NAME for embeddings."""
    influence: Literal["finite", "first", "kronecker", "lissa", "deep"] = "finite"
    """How causes are found: by a finite step of the head, at first order, with a Hessian, or through all layers."""
    heads: int = 1
    """Other heads that a finite step looks at: the repaired one, the worsened one, then others at random."""
    pairs: int = 50
    """Test errors of each kind for which causes are looked for, the worst first; all are listed."""
    groups: int = 10
    """Test classes with most errors for which causes are looked for, over all errors of the class."""
    worst_by: Literal["count", "rate"] = "count"
    """What makes a class one of the worst: how many errors it has, or which share of it is wrong."""
    verify: bool = False
    """Act on the causes: weigh training samples 2 or 0, fine-tune the head, and see whether the pairs move as they should."""
    retrain: bool = False
    """Train anew with the labels that the audit suggests, and compare on the test split, query by query."""
    overlap: bool = False
    """Compare the most wrong test classes of several runs: do models agree on what is hard?"""
    k: int = 10
    """Causes listed for an error, in each direction; with --overlap, classes that a run names."""
    data: str | None = None
    """Where the run's data stands now, if it has moved."""
    root: str | None = None
    """Where the pictures of a table or a named data set stand now, if they have moved; for embeddings, where paths start."""
    checkpoint: Literal["best", "last", "untrained"] = "best"
    """Which network of the run: best on validation (the last where there was none), last, or untrained."""
    seed: int = 0
    """Of folds, of batches for losses that compare samples, and of random choices to compare with."""
    device: str | None = None
    """cpu, cuda, mps. By default the GPU if there is one."""
    workers: int = -1
    """Processes that read pictures; -1 chooses."""
    allow_imports: bool = False
    """Let the run's specs import parts by dotted name, which runs their code."""
    quiet: bool = False
    """No progress bar, no table."""


@dataclass(frozen=True)
class Review:
    """Open a page in the browser on which people judge what an audit found, and from which they take corrected labels."""

    audit: Annotated[Positional[str], called("AUDIT")]
    """The folder of an audit, or the run it stands in."""
    host: str = "127.0.0.1"
    """Address to serve on. Any other than this machine's own lets other machines in, with the token."""
    port: int = 8017
    """Its port; 0: any that is free."""
    token_file: str | None = None
    """File that holds the token for opening the page. By default the environment variable LIKEWISE_TOKEN, or else a new
    random token. The printed address contains it."""
    store: str | None = None
    """File of decisions. By default decisions.sqlite in the audit's folder."""
    root: str | None = None
    """Where the pictures stand now, if they have moved."""
