"""load: the network of a run or of an export, as a function from images to embeddings.

With a gallery, also to the class, probability and nearest neighbour of each image, or unknown.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Shaped
from PIL import Image
from torch import Tensor

from likewise.core.devices import choose_device
from likewise.core.files import load_arrays
from likewise.core.notebook import table, view
from likewise.core.settings import Search, Train, check
from likewise.core.types import Items, LikewiseError
from likewise.data.augment import Plain
from likewise.data.features import read_embeddings
from likewise.data.images import check_shape, read_image, to_rgb, upright
from likewise.deploy.calibration.fit_calibration import calibrate_gallery
from likewise.deploy.index import stored_rows
from likewise.deploy.index.known_unknown import NO_CLASS, labelled_vectors
from likewise.deploy.index.open_index import Network, path_of, rows_of
from likewise.deploy.index.vector_index import Index
from likewise.deploy.model_card import GALLERY_FILE
from likewise.models.embedder import Embedder, check_range
from likewise.models.lora import merged
from likewise.runs.calibration import CALIBRATION_FILE, Calibration, read_calibration
from likewise.runs.embeddings import EMBEDDINGS_FILE, origin, rows_in
from likewise.runs.folder import Run
from likewise.runs.network import load_into, make_embedder, to_device, transforms
from likewise.runs.open import OpenRun

FORMAT = 1
"""Version of the config.json of an export."""

NETWORK_SETTINGS = ("backbone", "head", "dim", "pool", "layer_norm", "augment", "short_side")
"""The settings that define a network and its image transform; the image size is stored beside them."""

BATCH_SIZE = 64

ImageLike = str | os.PathLike | Image.Image
Images = ImageLike | Iterable[ImageLike] | Tensor | np.ndarray


class Model:
    """A network in evaluation mode, as a function from images to embeddings.

    `transform` is the image transform; None for feature vectors. `similarity` is that of its embeddings: "cosine" (they have
    unit length) or "euclidean". `folder`: the run or export, where `identify` looks for the calibration of this network.
    """

    def __init__(
        self,
        embedder: Embedder,
        transform: Plain | None,
        similarity: str,
        device: torch.device,
        folder: Path | None = None,
    ):
        self.embedder, self.transform = to_device(embedder, device).eval(), transform
        self.similarity, self.device, self.dim, self.folder = similarity, device, embedder.dim, folder
        self._galleries: dict[str | None, Gallery] = {}

    def __repr__(self) -> str:
        sees = f"{self.transform.size} px" if self.transform else f"{self.embedder.feature_dim} features"
        return f"Model({self.embedder.backbone_name}, {sees} -> {self.dim} numbers, {self.similarity}, {self.device})"

    @torch.no_grad()
    def __call__(self, images: Images) -> Float[np.ndarray, "N D"]:
        """Return the embeddings of images, one row for each.

        Args:
            images: paths or PIL images, one or many; or a batch as one tensor: of transformed pixels (uint8, or float in
                [0, 1]), or of features.
        """
        found = [np.zeros((0, self.dim), np.float32)]
        for x in self.batches(images):
            out = self.embedder(x.to(self.device))
            found.append((out.z if self.similarity == "cosine" else out.e).float().cpu().numpy())
        return np.concatenate(found)

    def identify(self, images: Images, index: str | os.PathLike | None = None) -> Identified:
        """Return for every image its class, or that it is unknown, with a probability and the nearest neighbour.

            for one in likewise.load("runs/mine").identify(["a.jpg", "b.jpg"], index="my-index"):
                print("unknown" if one.is_unknown else one.label, one.probability, one.neighbour.path)

        Needs `likewise calibrate`. The gallery is read once; load the model again after changes of the index.

        Args:
            images: as in a call of the model.
            index: the gallery, a folder that `likewise search --save` wrote. None: the embeddings that evaluation stored.
        """
        if self.folder is None:
            raise LikewiseError(
                "identify: the model must be the best network of a calibrated run, or its export; load it without checkpoint"
            )
        key = None if index is None else os.fspath(index)
        if key not in self._galleries:
            self._galleries[key] = open_gallery(self.folder, index)
        return identify(self(images), self._galleries[key])

    def merged_embedder(self) -> Embedder:
        """Return the network for an export, whose weights contain the changes of LoRA."""
        return merged(self.embedder)

    def batches(self, images: Images) -> Iterator[Tensor]:
        """Yield the input of the network in batches."""
        if isinstance(images, Tensor | np.ndarray):
            yield from self.checked(torch.as_tensor(images)).split(BATCH_SIZE)
            return
        alone = isinstance(images, ImageLike) or not isinstance(images, Iterable)
        several: list[Any] = [images] if alone else list(images)  # pyright: ignore[reportArgumentType]
        for start in range(0, len(several), BATCH_SIZE):
            yield torch.stack([self.preprocess(one) for one in several[start : start + BATCH_SIZE]])

    def preprocess(self, image: ImageLike) -> Tensor:
        """Return the transformed pixels of one image."""
        if self.transform is None:
            raise LikewiseError(
                f"Model: the input must be feature vectors, an array of shape (N, {self.embedder.feature_dim}), "
                f"got {type(image).__name__}; compute the features first"
            )
        if isinstance(image, Image.Image):
            return self.transform(check_shape(to_rgb(upright(image)), "Model"))
        if isinstance(image, str | os.PathLike):
            return self.transform(read_image(Path(image).expanduser()))
        raise LikewiseError(
            f"Model: an image must be a path or a PIL image, got {type(image).__name__}; "
            "convert it with PIL.Image.fromarray, or give a batch of pixels as one tensor"
        )

    def checked(self, x: Shaped[Tensor, "..."]) -> Tensor:
        """Return a batch after a check of its shape. Other image sizes would give worse embeddings, so they are an error."""
        if self.transform is None:
            return x.float() if x.is_floating_point() else x  # the network raises for other dtypes
        size = self.transform.size
        if x.ndim != 4 or tuple(x.shape[1:]) != (3, size, size):
            raise LikewiseError(
                f"Model: a batch of pixels must have the shape (N, 3, {size}, {size}), got {tuple(x.shape)}; "
                "give paths or PIL images, or make each with model.transform(image)"
            )
        if x.is_floating_point():
            check_range(x.cpu())
        return x


def load(
    path: str | os.PathLike, *, checkpoint: str = "best", device: str | None = None, allow_imports: bool = False
) -> Model:
    """Return the network of a run, or of a folder that `likewise export --to safetensors` wrote. Runs no code of it.

    Args:
        checkpoint: the network of a run: "best" on validation, "last", or "untrained".
        device: cpu, cuda, mps; None: the GPU if there is one.
        allow_imports: let specs import components by dotted name, which runs their code.
    """
    run = Run(Path(path))
    if (run.path / "model.onnx").exists():
        raise LikewiseError(
            f"load: '{path}' is an ONNX export, which runs without likewise (see its example.py); "
            "give the run, or export it with --to safetensors"
        )
    if not (run.path / "config.json").is_file():
        what = "a folder without a config.json" if run.path.is_dir() else "no folder"
        raise LikewiseError(
            f"load: the path must be a run folder, or one that `likewise export --to safetensors` wrote, got '{path}', {what}"
        )
    about = run.read_json("config.json")
    if isinstance(about, dict) and "export" in about:
        return open_export(run, about, choose_device(device), allow_imports)
    return model_of(OpenRun(run, checkpoint=checkpoint, device=device, allow_imports=allow_imports))


def model_of(opened: OpenRun) -> Model:
    """Return the network of an open run, ready for use."""
    if opened.checkpoint not in ("best", "last", "untrained"):
        raise LikewiseError(f"load: checkpoint must be best, last or untrained, got '{opened.checkpoint}'")
    folder = opened.run.path if opened.checkpoint == "best" else None
    return Model(opened.network, opened.transform, opened.similarity, opened.device, folder)


def settings_to_rebuild(config: Train, model: Model) -> dict:
    """Return the entries of an export's config.json that `open_export` reads."""
    # the size is stored, because the default of the backbone may change with the version of timm
    size = model.transform.size if model.transform else None
    kept = {name: getattr(config, name) for name in NETWORK_SETTINGS}
    width = model.embedder.feature_dim if model.transform is None else None
    return {"export": FORMAT, "similarity": model.similarity, "features": width, "settings": kept | {"size": size}}


def open_export(folder: Run, about: dict, device: torch.device, allow_imports: bool) -> Model:
    """Return the network of an export, from its config.json and its weights."""
    if not isinstance(about["export"], int) or about["export"] > FORMAT:
        raise LikewiseError(
            f"load: '{folder.path}' was written by a newer version of likewise (format {about['export']}, this version reads "
            f"up to {FORMAT}); update likewise"
        )
    settings, similarity = about.get("settings"), about.get("similarity")
    if (
        not isinstance(settings, dict)
        or settings.keys() != {*NETWORK_SETTINGS, "size"}
        or similarity not in ("cosine", "euclidean")
    ):
        raise LikewiseError(f"load: {folder.path / 'config.json'} is damaged; export the run again")
    config = Train(data="", allow_imports=allow_imports, **settings)
    check(config)
    embedder = make_embedder(config, about.get("features"), reseed=False, empty=True)
    load_into(embedder, folder.load_tensors("model.safetensors"), folder.path / "model.safetensors")
    return Model(embedder, transforms(config, embedder)[1], similarity, device, folder.path)


class Neighbour(NamedTuple):
    """The nearest row of the gallery."""

    row: int
    similarity: float
    label: str
    path: str


@dataclass(frozen=True)
class Identity:
    """What an image shows.

    Args:
        label: the class of the nearest neighbour; None unless the image is of a known class.
        probability: probability that the nearest neighbour has the class of the image, if that class is in the gallery.
        is_unknown: whether the image is of no known class; None if the calibration refused a threshold.
        neighbour: the nearest row of the gallery, also of an unknown image.
    """

    label: str | None
    probability: float
    is_unknown: bool | None
    neighbour: Neighbour


class Identified(list[Identity]):
    """One `Identity` for every image."""

    @view
    def _repr_html_(self) -> str:
        heads = ("class", "probability", "nearest row", "its class", "similarity")
        lines = [
            (one.label or ("unknown" if one.is_unknown else "not decided"), f"{100 * one.probability:.0f} %",
             one.neighbour.row, one.neighbour.label, f"{one.neighbour.similarity:.4f}")
            for one in self
        ]  # fmt: skip
        return table("identified", heads, lines)


class Gallery(NamedTuple):
    """Rows to search in, and the calibration for them."""

    index: Index
    calibration: Calibration


def open_gallery(folder: Path, place: str | os.PathLike | None) -> Gallery:
    """Return the gallery of a calibrated run: the saved index at `place`, or without one the embeddings of its test split.

    Args:
        folder: the run folder, another folder with its calibration.json and calibration.npz, or an export with a gallery.
    """
    if place is None and (folder / GALLERY_FILE).exists():
        return exported_gallery(folder)
    index = open_rows(folder, place)
    if index.rows.labels is not None:
        raise LikewiseError(f"identify: {NO_CLASS}; use a gallery with one label per row")
    return Gallery(index, calibrate_gallery(folder, *labelled_vectors(index.rows)))


def exported_gallery(folder: Path) -> Gallery:
    """Return the gallery that was exported with a network, and its calibration."""
    calibration = read_calibration(folder)
    if calibration is None:
        raise LikewiseError(f"identify: '{folder}' has a gallery without {CALIBRATION_FILE}; export the run again")
    advice = "export the run again"
    stored = load_arrays(folder / GALLERY_FILE, "identify", advice, {"z": ("f", 2), "label": ("U", 1)})
    z, label = stored["z"], stored["label"]
    if len(label) != len(z) or not len(z) or not np.isfinite(z).all():
        raise LikewiseError(
            f"identify: {folder / GALLERY_FILE} is damaged (z must be finite vectors with one label each); {advice}"
        )
    classes, y = np.unique(label, return_inverse=True)
    items = Items("gallery", y.astype(np.int64), tuple(classes.tolist()), x=z)
    return Gallery(Index(rows_of(items, np.arange(len(z)), calibration.similarity)), calibration)


def open_rows(folder: Path, place: str | os.PathLike | None) -> Index:
    """Return the index at `place`, which the network of the run must have embedded, or the embeddings in the run folder."""
    if place is not None:
        path = Path(place).expanduser()
        if not stored_rows.is_index(path):
            raise LikewiseError(f"identify: index must be a folder that `likewise search --save` wrote, got '{place}'")
        index, run = Index.open(path), Run(folder)
        if "format" in run.read_json("config.json"):  # a run; an export has no checksum of its network
            Network(run, index.about["made_by"], index.rows.similarity, Search(str(path))).check_same_network()
    else:
        file = folder / EMBEDDINGS_FILE
        if not file.exists():
            raise LikewiseError(
                f"identify: '{folder}' must have a gallery to look in, but has no {EMBEDDINGS_FILE}; run `likewise evaluate "
                f"{folder}`, or give a saved index: identify(images, index=FOLDER)"
            )
        items, made_by = read_embeddings(str(file)), origin(file)
        index = Index(rows_of(items, rows_in(made_by, len(items)), made_by.get("similarity", "cosine")))
    if not len(index.rows):
        raise LikewiseError(
            "identify: the gallery must have a row, got none; add images: likewise search INDEX --add DATA"
        )
    return index


def identify(z: Float[np.ndarray, "N D"], gallery: Gallery) -> Identified:
    """Return what the images of these embeddings show, by their nearest neighbours in the gallery."""
    index, known = gallery
    hits = [found[0] for found in index.find(z, 1)] if len(z) else []
    sim = np.asarray([hit.similarity for hit in hits])
    probability = known.probability(sim)
    unknown = [None] * len(hits) if known.unknown.value is None else known.is_unknown(sim).tolist()
    made = Identified()
    for hit, chance, is_unknown in zip(hits, probability.tolist(), unknown, strict=True):
        row, label = int(index.rows.table["row"][hit.place]), index.rows.label(hit.place)
        near = Neighbour(row, float(hit.similarity), label, path_of(index, hit.place))
        made.append(Identity(label if is_unknown is False else None, chance, is_unknown, near))
    return made
