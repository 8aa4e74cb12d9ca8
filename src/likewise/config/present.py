"""The settings of commands that put a result before people and programs: a page, a search, a model to take away."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from likewise.config.cli_types import Positional, called


@dataclass(frozen=True)
class Report:
    """Write one HTML page about runs, which opens anywhere, offline: scores, curves, a map of the embedding, galleries,
    confusions, doubts about labels."""

    runs: Annotated[Positional[tuple[str, ...]], called("RUNS")] = ()
    """Run folders, or files of embeddings; several are shown side by side."""
    out: str | None = None
    """File to write (.html). By default report.html in the folder of a single run, or here."""
    map: Literal["auto", "pca", "tsne", "umap", "none"] = "auto"
    """How the map of the embedding is drawn: PCA is there at once, t-SNE and UMAP take minutes and `likewise[map]`. By default
    PCA, and t-SNE beside it where it is installed and the set is not huge."""
    max_images: int = 3000
    """How many samples have their picture in the page, at most. Pictures become smaller, and then fewer, for it to stay below
    15 MB; only maps of a million samples can make it larger."""
    k: int = 8
    """How many neighbours a query shows."""
    top: int = 40
    """How many queries a gallery shows, and how many doubted labels are listed."""
    data: str | None = None
    """Where the runs' data stands now, if it has moved."""
    root: str | None = None
    """Where the pictures of a table or a named data set stand now, if they have moved."""
    seed: int = 0
    """Seed of what is drawn at random: samples, pairs, the map."""
    device: str | None = None
    """cpu, cuda, mps, for runs that were not evaluated yet. By default the GPU if there is one."""
    workers: int = -1
    """Processes that read pictures; -1 chooses."""
    allow_imports: bool = False
    """Let the runs' specs import parts by dotted name, which runs their code."""
    quiet: bool = False
    """No progress bar."""


@dataclass(frozen=True)
class Search:
    """Find the nearest neighbours of a picture: one answer, or a page in the browser that answers until Ctrl-C."""

    target: Annotated[Positional[str], called("TARGET")]
    """Where to look: a run folder (its test split), embeddings made by `likewise embed`, or a folder made with --save."""
    query: str | None = None
    """A picture file, or a row of the data (as in per_query.parquet and in the answers)."""
    model: str | None = None
    """Run whose network embeds pictures, for embeddings that do not say which made them."""
    k: int = 5
    """How many neighbours."""
    out: str | None = None
    """Save a picture of query and neighbours here (.png)."""
    index: Literal["exact", "hnsw", "ivfpq"] | None = None
    """How to look: exact compares with every row; hnsw and ivfpq (of faiss, `likewise[faiss]`) are for millions of rows and miss
    some, how many is measured and said. By default exact, or what a saved index is."""
    save: str | None = None
    """Keep the index in this folder, which is then a TARGET that opens at once."""
    add: str | None = None
    """Embed this data (anything `likewise embed` takes) and add it to the saved index."""
    skip_bad: bool = False
    """With --add, go on without pictures that cannot be read, counting them."""
    remove: tuple[int, ...] = ()
    """Take these rows out of the saved index."""
    serve: bool = False
    """Serve a page to drop pictures on."""
    host: str = "127.0.0.1"
    """Address to serve on. Any other than this machine's own lets other machines in, with the token."""
    port: int = 8018
    """Port to serve on; 0 is any free one."""
    token_file: str | None = None
    """File that holds the token for opening the page. By default the environment variable LIKEWISE_TOKEN, or else a new
    random token. The printed address contains it."""
    max_upload: str = "20MB"
    """The largest picture that the page takes."""
    device: str | None = None
    """cpu, cuda, mps. By default the GPU if there is one."""
    workers: int = -1
    """Processes that read pictures; -1 chooses."""
    allow_imports: bool = False
    """Let the run's specs import parts by dotted name, which runs their code."""
    quiet: bool = False
    """No progress bar."""


@dataclass(frozen=True)
class Export:
    """Write a run's network for use elsewhere, check that it gives the same embeddings, and describe it in a model card."""

    run: Annotated[Positional[str], called("RUN")]
    """A run folder."""
    to: Literal["onnx", "safetensors"] = "onnx"
    """onnx: runs without torch (needs `likewise[onnx]`). safetensors: weights and settings, opened by `likewise.load`."""
    out: str | None = None
    """Folder to write. By default export-TO in the run's."""
    checkpoint: Literal["best", "last", "untrained"] = "best"
    """Which network of the run."""
    parity_samples: int = 64
    """Pictures of the run's data by which both are compared; 0: made-up ones, where the data is gone."""
    data: str | None = None
    """Where the run's data stands now, if it has moved."""
    root: str | None = None
    """Where the pictures of a table or a named data set stand now, if they have moved."""
    allow_imports: bool = False
    """Let the run's specs import parts by dotted name, which runs their code."""
    quiet: bool = False
    """No progress bar."""
