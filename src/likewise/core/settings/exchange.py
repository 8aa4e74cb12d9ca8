"""The settings of send and receive: rows to other tools, and vectors, labels and decisions back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from likewise.core.settings.cli_types import File, Folder, Location, Positional, called

ToolName = Literal["label-studio", "hugging-face", "csv", "parquet", "cvat"]
"""The tools, as in `likewise.curate.exchange.TOOL_BY_NAME`."""


@dataclass(frozen=True)
class Send:
    """Send rows to another tool: labels with what an audit found about them, embeddings, images."""

    target: Annotated[Positional[str], called("TARGET")]
    """The folder of an audit, a run folder, embeddings (.npz), or any DATA of `likewise train`."""
    to: ToolName
    """The tool."""
    out: Location
    """Where to: a folder (label-studio, hugging-face, cvat), or a file (.csv, .parquet)."""
    columns: tuple[str, ...] = ()
    """New names of columns, as OURS=THEIRS, such as path=image label=class (csv). By default our names."""
    top: int | None = None
    """Number of rows to send: the most suspect of an audit, or the first of a file. By default all."""
    embeddings: File | None = None
    """Embeddings (.npz) of the rows of an audit, to send with it. By default none."""
    labels: File | None = None
    """Labels for embeddings without labels: a table (.csv) with the column `label`, or an array (.npy). By default the labels in
    the file of embeddings."""
    similarity: Literal["cosine", "euclidean"] | None = None
    """Similarity by which the tool compares vectors. By default the one in the file of embeddings, or cosine."""
    url: str | None = None
    """Address at which Label Studio finds the folder of the images, such as https://images.example/birds. By default its local
    files."""
    root: Folder | None = None
    """Current folder of the images, if they were moved. By default the folder in the audit or the data."""
    replace: bool = False
    """Replace existing files of these names. Without it, an existing one is an error."""
    allow_imports: bool = False
    """Allow the data to be a reader of your own by dotted name, which runs its code."""
    quiet: bool = False
    """Print nothing."""


@dataclass(frozen=True)
class Receive:
    """Receive decisions, vectors or labels from another tool."""

    source: Annotated[Positional[str], called("SOURCE")]
    """An exported file (label-studio: JSON or JSON-MIN; cvat: XML or zip; csv; parquet), or a folder (hugging-face)."""
    from_: ToolName
    """The tool."""
    into: Location
    """An audit folder for decisions, a .npz file for vectors, or a .csv file for labels."""
    columns: tuple[str, ...] = ()
    """Names of columns in the source, as OURS=THEIRS, such as path=image label=class (csv). By default our names."""
    reviewer: str | None = None
    """Reviewer of decisions from a tool that does not name its annotators. By default the name of the tool."""
    replace: bool = False
    """Replace an existing file. Without it, an existing one is an error. Decisions in an audit are never replaced."""
    quiet: bool = False
    """Print nothing."""
