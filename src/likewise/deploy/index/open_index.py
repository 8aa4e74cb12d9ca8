"""Open the index of a target, and the network that embeds images for it."""

from __future__ import annotations

import dataclasses
import os
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int
from PIL import Image
from torch import Tensor

from likewise.core.settings import Embed, Search
from likewise.core.types import Items, LikewiseError
from likewise.core.vectors import in_memory
from likewise.data.features import read_embeddings
from likewise.data.images import file_of, read_image
from likewise.data.label_sets import labels_by_class
from likewise.deploy.index import stored_rows
from likewise.deploy.index.stored_rows import Rows, pack, prepare_vectors
from likewise.deploy.index.vector_index import Index
from likewise.runs.embeddings import ALL_EMBEDDINGS_FILE, EMBEDDINGS_FILE, origin, rows_in, save_embeddings
from likewise.runs.folder import Run, find_target, is_folder_of_run
from likewise.runs.open import OpenRun, read_config


def blank_image() -> Image.Image:
    """Return a grey placeholder for a row without an image."""
    return Image.new("RGB", (64, 64), "#e6e9ef")


def open_index(config: Search, say: Callable[[str], None]) -> tuple[Index, Network | None]:
    """Return the index of a target, and the network of its run or None. A run without embeddings is embedded first."""
    target = find_target(config.target, "search")
    is_run = is_folder_of_run(target) and not stored_rows.is_index(target)
    if config.split == "test" and not is_run:
        raise LikewiseError(
            f"search: --split test is for a run folder, but '{target}' is not one; drop --split, or give the run"
        )
    if stored_rows.is_index(target):
        index = Index.open_unchecked(target) if only_serves(config) else Index.open(target, config.index)
        made_by, path = index.about["made_by"], config.model or index.about["made_by"].get("run")
        run = Run(path) if path and (config.model or os.path.isdir(path)) else None
        return index, run and Network(run, made_by, index.rows.similarity, config)
    if (
        target.is_dir()
        and not (target / "config.json").exists()
        and any((target / name).exists() for name in stored_rows.DATA_FILES)
    ):
        stored_rows.read(target)  # an incomplete index: raises
    gallery, run, made_by = open_embeddings(config, say)
    similarity = made_by.get("similarity", "cosine")
    # saving the index adds the run and the checksum of its network
    source = {"checkpoint": made_by.get("checkpoint", "best"), "trained": trained_classes(gallery) if is_run else []}
    index = Index(rows_of(gallery, rows_in(made_by, len(gallery)), similarity), source)
    return index, run and Network(run, source, similarity, config)


def only_serves(config: Search) -> bool:
    """Return whether the command starts the page and does nothing else before."""
    return config.serve and config.query is None and not (config.add or config.remove or config.index or config.save)


def open_embeddings(config: Search, say: Callable[[str], None]) -> tuple[Items, Run | None, dict]:
    """Return the embeddings of a run or a file, the run or None, and the origin that the file records."""
    target = find_target(config.target, "search")
    if not is_folder_of_run(target):
        items, made_by = read_embeddings(str(target)), origin(target)
        path = config.model or made_by.get("run")
        return items, Run(path) if path and (config.model or os.path.isdir(path)) else None, made_by
    run = Run(target)
    if config.model:
        raise LikewiseError(f"search: '{target}' is a run and has its own network; omit --model")
    items, made_by = gallery_of_run(run, config, say)
    return items, run, made_by


def scope_of(config: Search, network: Network | None) -> str:
    """Return what is searched, in words: the data of a run or its test split, or the name of a file or an index."""
    target = Path(config.target).expanduser()
    if stored_rows.is_index(target) or network is None or target.resolve() != network.run.path.resolve():
        return target.resolve().name
    data = read_config(network.run, allow_imports=config.allow_imports).data
    name = os.path.basename(os.path.normpath(data))
    return f"the test split of {name} only" if config.split == "test" else f"all of {name}"


def count_rows(rows: Rows) -> str:
    """Return the number of rows and of classes in words."""
    classes, row = len(rows.used_classes), "image" if len(rows.text) else "row"
    if rows.labels is not None:
        labels = len({name for label in rows.used_classes.tolist() for name in rows.labels[label]})
        return f"{len(rows):,} {row}{'s' * (len(rows) != 1)}, {labels:,} label{'s' * (labels != 1)}"
    return f"{len(rows):,} {row}{'s' * (len(rows) != 1)}, {classes:,} class{'es' * (classes != 1)}"


def rows_of(items: Items, row: Int[np.ndarray, "N"], similarity: str) -> Rows:
    """Return items with features as the rows of an index, sorted by row number."""
    order = np.argsort(row)
    paths = [""] * len(items) if items.path is None else [file_of(items, place) for place in order.tolist()]
    box = None if items.box is None else items.box[order]
    table, text = pack(row[order], items.y[order], paths, box)
    assert items.x is not None
    vectors = in_memory(items.x) if (np.diff(order) == 1).all() else items.x[order]
    here, labels = np.ones(len(items), bool), labels_by_class(items)
    return Rows(prepare_vectors(vectors, similarity), table, text, items.class_name, here, similarity, labels)


class Network:
    """The network that embedded the rows of an index, opened when the first image is embedded."""

    def __init__(self, run: Run, made_by: dict, similarity: str, config: Search):
        self.run, self.made_by, self.similarity, self.config = run, made_by, similarity, config
        self.checkpoint = made_by.get("checkpoint", "best")
        self._opened: OpenRun | None = None

    @property
    def opened(self) -> OpenRun:
        """Return the opened run; raise if its network is not the one of the index, or does not take images."""
        if self._opened is None:
            run, config = self.run, self.config
            opened = OpenRun(run, checkpoint=self.checkpoint, device=config.device, allow_imports=config.allow_imports)
            if run.about["features"] is not None:
                raise LikewiseError(
                    f"search: '{run.path}' was trained on features and cannot embed images; query by row number, or search with "
                    'the backbone, which needs no training:\n  likewise train PHOTOS --head "Identity()" --epochs 0 --protocol '
                    '"UnseenClasses(train=1, val=0.9)" --out runs/search\n  likewise search runs/search --query photo.jpg'
                )
            self.check_same_network()
            self._opened = opened
        return self._opened

    def stamp(self) -> dict:
        """Return what identifies the network: its run folder, the run's identity, and a checksum of the weights."""
        return network_stamp(self.run, self.checkpoint)

    def is_same(self) -> bool:
        """Return whether the network is the one that embedded the rows of the index."""
        now = self.stamp()
        return all(self.made_by.get(name, now[name]) == now[name] for name in ("identity", "weights"))

    def check_same_network(self) -> None:
        """Raise unless the network is the one that embedded the rows of the index."""
        if not self.is_same():
            raise LikewiseError(
                f"search: the index must be searched with the network that embedded it ({self.made_by['run']}), got another "
                f"network ('{self.run.path}') or changed weights; give that run with --model, or save a new index from this run"
            )

    def see(self, image: Image.Image) -> Tensor:
        """Return the network input of an image."""
        transform = self.opened.transform
        assert transform is not None  # `opened` raises for networks on features
        return transform(image)

    @torch.inference_mode()
    def embed(self, inputs: list[Tensor]) -> Float[np.ndarray, "n D"]:
        """Return the embeddings of network inputs."""
        out = self.opened.network(torch.stack(inputs).to(self.opened.device))
        return (out.e if self.similarity == "euclidean" else out.z).float().cpu().numpy()


def embed_added(network: Network | None, config: Search, say: Callable[[str], None]) -> Items:
    """Return the data of --add with its embeddings, under absolute paths."""
    if network is None:
        raise LikewiseError(
            "search: --add needs the network that embedded the index, but its run was not found; give --model RUN"
        )
    from likewise.score.embed_data import embed

    network.check_same_network()
    shared = {name: getattr(config, name) for name in ("device", "workers", "strict", "allow_imports", "quiet")}
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "new.npz")
        embed(
            Embed(run=str(network.run.path), data=config.add or "", out=file, checkpoint=network.checkpoint, **shared),
            say,
        )
        return dataclasses.replace(read_embeddings(file), root="")  # its paths are absolute


def path_of(index: Index, place: int) -> str:
    """Return the path of a row's image, or ""; images that were added on the web page are in the folder of the index."""
    path = index.rows.path(place)
    return os.path.join(index.folder or "", path) if path else ""


def row_image(index: Index, place: int) -> Image.Image:
    """Return the image of a row, or a blank image if the row has none."""
    path = path_of(index, place)
    return read_image(Path(path), index.rows.box(place)) if path else blank_image()


SEARCHED_SPLITS = ("train", "val", "test")
"""The splits of a gallery of all images. A row of two splits, such as a training row in a test gallery, counts as the first."""


def gallery_of_run(run: Run, config: Search, say: Callable[[str], None]) -> tuple[Items, dict]:
    """Return the embeddings of a run for `config.split`, and their origin. Embeddings that do not exist yet are written first."""
    file = run.path / (EMBEDDINGS_FILE if config.split == "test" else ALL_EMBEDDINGS_FILE)
    if not (file.exists() if config.split == "test" else is_current(file, run)):
        options = {name: getattr(config, name) for name in ("device", "allow_imports", "workers", "quiet")}
        opened = OpenRun(run, say=say, **options)
        write_test_split(opened) if config.split == "test" else write_all(opened, file)
    return read_embeddings(str(file)), origin(file)


def write_test_split(opened: OpenRun) -> None:
    """Evaluate a run, which writes the embeddings of its test split."""
    from likewise.core.settings import Evaluate
    from likewise.score.evaluate import evaluate_run

    if not opened.protocol.has_test_split:
        raise LikewiseError(
            f"search: '{opened.run.path}' must have a test split for --split test, but all of its data trained; "
            "drop --split test to search all images"
        )
    evaluate_run(opened, Evaluate(str(opened.run.path), metrics=opened.settings.metrics))


def write_all(opened: OpenRun, file: Path) -> None:
    """Embed all rows that are in a split, and write them with their splits and a checksum of the network."""
    from likewise.score.scoring import as_compared

    items, protocol = opened.items, opened.protocol
    split = np.full(len(items), "", "<U5")
    for part in reversed(SEARCHED_SPLITS):
        if part != "test" or protocol.has_test_split:
            split[protocol.rows(items, part)] = part
    rows = np.flatnonzero(split != "")
    stamp = network_stamp(opened.run, opened.checkpoint)
    e = as_compared(opened.embed(items, rows, title="embed all images"), opened.similarity)
    made_by = {"run": opened.run.path, "checkpoint": opened.checkpoint, "similarity": opened.similarity}
    save_embeddings(file, e, items, made_by | {"checksum": stamp["weights"]}, split[rows])


def is_current(file: Path, run: Run) -> bool:
    """Whether the file has the embeddings of the present network of the run."""
    if not file.exists():
        return False
    made_by = origin(file)
    return made_by.get("checksum") == str(network_stamp(run, made_by.get("checkpoint", "best"))["weights"])


def network_stamp(run: Run, checkpoint: str) -> dict:
    """Return what identifies a network: its run folder, the run's identity, and a checksum of the weights."""
    file = run.path / run.network(checkpoint)
    weights = zlib.crc32(file.read_bytes()) if checkpoint != "untrained" and file.exists() else 0
    return {"run": str(run.path.absolute()), "identity": run.about["identity"], "weights": weights}


def trained_classes(items: Items) -> list[str]:
    """Return the names of the classes with a training row; [] if the embeddings do not record their splits."""
    if items.split is None:
        return []
    return [items.class_name[label] for label in np.unique(items.y[items.split == "train"])]
