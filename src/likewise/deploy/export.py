"""export: a run -> its network for use elsewhere, compared with the original, and described in a model card."""

from __future__ import annotations

import importlib.util
import logging
import os
import runpy
import shutil
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Shaped
from PIL import Image
from torch import Tensor, nn

from likewise._version import __version__
from likewise.core.contracts import Protocol
from likewise.core.errors import pip_install, print_text
from likewise.core.files import DISK_FULL_ERRNOS, write_json
from likewise.core.notebook import table, view
from likewise.core.progress import bar
from likewise.core.retrieval.ranking import nearest
from likewise.core.settings import Export, Search, Train, check, to_dict
from likewise.core.types import Items, LikewiseError
from likewise.data.augment import Plain
from likewise.data.images import file_of, image_of
from likewise.deploy.index.known_unknown import IndexCalibration, is_same_checkpoint, labelled_vectors
from likewise.deploy.index.open_index import open_index
from likewise.deploy.index.vector_index import Index
from likewise.deploy.model import Model, load, model_of, settings_to_rebuild
from likewise.deploy.model_card import DECISION_FILES, GALLERY_FILE, Card, code, fill, write_card
from likewise.models.embedder import Embedder
from likewise.models.pretrained.weights import brief
from likewise.runs.calibration import Calibration, read_calibration, write_calibration
from likewise.runs.folder import Run
from likewise.runs.open import OpenRun
from likewise.runs.training_files import read_sample_weights
from likewise.runs.usage import cost

EXPORT_FILES = {
    "onnx": ("model.onnx", "preprocess.json", "README.md", "example.py"),
    "safetensors": ("model.safetensors", "config.json", "README.md", "example.py"),
}

CPU_DEVICE = torch.device("cpu")


@dataclass(frozen=True)
class Exported:
    """The folder of an export, its files, and how they compare with the run's network."""

    folder: Path
    files: tuple[str, ...]
    parity: Parity

    def __fspath__(self) -> str:
        """Return the folder, so that an export can be used as a path."""
        return str(self.folder)

    @view
    def _repr_html_(self) -> str:
        lines = [("folder", self.folder), ("files", ", ".join(self.files)), ("checked on", self.parity)]
        return table("exported network", (), lines)


def export(config: Export, say=print) -> Exported:
    """Export the network of a run into a folder. If its embeddings differ from the run's, raises and deletes the folder."""
    check(config)
    if config.to == "onnx":
        check_onnx_packages()
    run = Run(config.run)
    out = Path(config.out).expanduser().absolute() if config.out else run.path / f"export-{config.to}"
    opened = OpenRun(
        run, checkpoint=config.checkpoint, device=CPU_DEVICE, data=config.data if config.parity_samples else None,
        root=config.root if config.parity_samples else None, allow_imports=config.allow_imports,
        workers=0, quiet=config.quiet, say=say,
    )  # fmt: skip
    items = data_of(opened) if config.parity_samples else None
    check_output_path(out)
    model = model_of(opened)
    given, of = parity_inputs(model, opened.protocol, items, config.parity_samples)
    with folder_aside(out) as aside, bar("write and compare", 2, quiet=config.quiet) as progress:
        calibration = write_identification(aside, run, config.checkpoint, config.gallery, say)
        embed = (write_onnx if config.to == "onnx" else write_safetensors)(aside, model, run, opened.settings)
        progress.advance()
        parity = compare(model, embed, given, of)
        card = replace(describe(opened, config, items, model, parity, out), calibration=calibration)
        (aside / "README.md").write_text(write_card(card), "utf-8")
        progress.advance()
        files = *EXPORT_FILES[config.to], *(name for name in DECISION_FILES if (aside / name).exists())
    return Exported(out, files, parity)


def open_calibrated_index(
    run: Run, checkpoint: str, gallery: str | os.PathLike, say: Callable[[str], None]
) -> tuple[Index, IndexCalibration]:
    """Return the index of a target of `likewise search` and its calibration; raise unless this network embedded it."""
    target = Path(gallery).expanduser()
    own = target.resolve() == run.path.resolve()
    config = Search(target=str(target), model=None if own else str(run.path), device="cpu", quiet=True)
    index, network = open_index(config, say)
    assert network is not None  # the run is given
    if network.run.path.resolve() != run.path.resolve():
        raise LikewiseError(f"export: the gallery must be embedded by the run '{run.path}', got '{target}'")
    network.check_same_network()
    if not is_same_checkpoint(run, network.checkpoint, checkpoint):
        raise LikewiseError(
            f"export: the gallery must be embedded by the checkpoint {checkpoint} of the run, got {network.checkpoint}; "
            f"embed it again, or take the checkpoint {network.checkpoint}"
        )
    return index, IndexCalibration(index, network)


def write_identification(
    folder: Path, run: Run, checkpoint: str, gallery: str | os.PathLike | None, say
) -> Calibration | None:
    """Write the calibration of a run into an export, and the gallery if there is one; return it, None if there is none.

    Without a gallery, it is the calibration for the validation gallery of the run.
    """
    if gallery is None:
        calibration = read_calibration(run.path)
        if calibration is None or not is_same_checkpoint(run, calibration.about.get("checkpoint", "best"), checkpoint):
            return None
    else:
        index, calibrated = open_calibrated_index(run, checkpoint, gallery, say)
        calibration = calibrated.current()
        if calibration is None:
            raise LikewiseError(f"export: --gallery needs a calibrated run; {calibrated.hint}")
        z, names = labelled_vectors(index.rows)
        np.savez(folder / GALLERY_FILE, z=z, label=np.asarray(names, str))
    write_calibration(folder, calibration)
    return calibration


def data_of(opened: OpenRun) -> Items:
    """Return the data of the run; if it cannot be loaded, the error names the option that needs no data."""
    try:
        return opened.items
    except LikewiseError as error:
        raise LikewiseError(f"{error}; or compare on synthetic samples: --parity-samples 0") from None


def write_safetensors(folder: Path, model: Model, run: Run, config: Train) -> Callable:
    """Write the weights of the network and its settings, and return a function that embeds with them."""
    about = {"identity": run.about["identity"], "likewise": __version__, **settings_to_rebuild(config, model)}
    write_json(folder / "config.json", about)
    Run(folder).save_tensors("model.safetensors", model.merged_embedder().state_dict())
    facts = {"pictures": model.transform is not None, "gallery": (folder / GALLERY_FILE).exists()}
    (folder / "example.py").write_text(fill("example_load.txt", facts), "utf-8")
    return load(folder, device="cpu", allow_imports=config.allow_imports)


def check_output_path(out: Path) -> None:
    """Raise unless the folder is new, empty, or an earlier export, whose files will be replaced."""
    if not out.exists():
        return
    there = {p.name for p in out.iterdir()} - {"__pycache__"} if out.is_dir() else {out.name}
    if there and not (out.is_dir() and is_export(out, there)):
        known = {*EXPORT_FILES["onnx"], *EXPORT_FILES["safetensors"]}
        first = min(there, key=lambda name: (name in known, name))
        raise LikewiseError(
            f"export: --out must be a new folder or an earlier export, got '{out}', which holds {first}; give another folder"
        )


def is_export(folder: Path, there: set[str]) -> bool:
    """Return whether the folder has the files of an export and no others."""
    there = there - {*DECISION_FILES}
    if there == set(EXPORT_FILES["onnx"]):
        return True
    try:
        return there == set(EXPORT_FILES["safetensors"]) and "export" in Run(folder).read_json("config.json")
    except LikewiseError:
        return False


@contextmanager
def folder_aside(out: Path) -> Iterator[Path]:
    """Yield a temporary folder; its files replace those in `out` on success, and are deleted on an error."""
    aside = out.with_name(f".{out.name}.{os.getpid()}.part")
    try:
        aside.mkdir(parents=True)
        yield aside
        shutil.rmtree(aside / "__pycache__", ignore_errors=True)
        out.mkdir(exist_ok=True)  # an existing folder is not replaced: it may be the working directory of a process
        for old in out.iterdir():
            shutil.rmtree(old) if old.is_dir() else old.unlink()
        for new in aside.iterdir():
            new.rename(out / new.name)
    except OSError as error:
        hint = "free some space" if error.errno in DISK_FULL_ERRNOS else "give another folder with --out"
        raise LikewiseError(f"export: '{out}' cannot be written ({error.strerror or error}); {hint}") from None
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def describe(opened: OpenRun, config: Export, items: Items | None, model: Model, parity: Parity, out: Path) -> Card:
    """Return the facts of the model card, from the run folder."""
    run, settings = opened.run, opened.settings
    checkpoint = (
        "only" if config.checkpoint != "untrained" and run.network("best") == run.network("last") else config.checkpoint
    )
    scores = run.scores if run.done and checkpoint in ("best", "only") else None
    if (settings.epochs if settings.steps is None else settings.steps) == 0:
        checkpoint = "untrained"
    data = {"name": items.name if items else Path(settings.data).name}
    if items:
        sizes = {split: len(opened.protocol.rows(items, split)) for split in ("train", "val", "test")}
        data |= {"samples": f"{len(items)} ({', '.join(f'{n} {split}' for split, n in sizes.items() if n)})"}
        data |= {"classes": str(items.classes)}
    return Card(
        name=run.path.resolve().name,
        folder=out.name,
        to=config.to,
        checkpoint=checkpoint,
        dim=model.dim,
        similarity=model.similarity,
        preprocess=preprocessing(model.transform) or None,
        boxed=items is not None and items.box is not None,
        config=to_dict(settings),
        data=data | {"fingerprint": run.about["data"]},
        labels=labels(opened, items),
        scores=scores,
        checked=f"Compared with the run's own network, on the CPU in float32, on {parity}.",
        made=made(run, checkpoint != "untrained"),
        finished=run.done,
        choice=run.backbone_note,
        has_gallery=config.gallery is not None,
    )


def labels(opened: OpenRun, items: Items | None) -> tuple[str, ...]:
    """Return sentences about injected noise, wrong labels, and the samples that were dropped or relabelled."""
    settings = opened.settings
    noise = f"Label noise injected: {code(settings.noise)}." if settings.noise else "No label noise was injected."
    lines = [noise, *([] if items is None else known_wrong(opened))]
    if not settings.confidence:
        return (*lines, "All labels were used in training.")
    lines.append(f"Sample weights were computed during training by {code(settings.confidence)}.")
    final = read_sample_weights(opened.run.path, "export")
    if final is not None:
        out, kept = final.dropped, final.weight[final.weight > 0]
        lines.append(
            f"At the end, {int(out.sum())} of {len(out)} training samples were dropped ({out.mean():.1%}) and "
            f"{int(final.relabelled.sum())} relabelled."
        )
        if len(kept) and kept.min() < kept.max():
            lines.append(f"The other samples had weights from {kept.min():.3g} to {kept.max():.3g}.")
    return tuple(lines)


def known_wrong(opened: OpenRun) -> Iterator[str]:
    """Yield a sentence with the share of wrong training labels, if the true labels are known."""
    given = opened.noisy_items
    rows = opened.protocol.rows(given, "train")
    if given.y_clean is not None and len(rows):
        wrong = (given.y != given.y_clean)[rows]
        yield f"{wrong.mean():.1%} of {len(rows)} training labels are wrong, by the true labels of this data."


def made(run: Run, trained: bool) -> dict[str, str]:
    """Return versions, and for a trained network also hardware, time and energy, as far as the run has recorded them."""
    took = cost(run)
    versions = run.environment.get("versions", {})
    energy, others = (
        sum((took["energy_joules"] or {}).values()),
        ", including other processes on this machine" * bool(took["shared"]),
    )
    found = {
        "versions": ", ".join(f"{name} {version}" for name, version in versions.items() if version),
        "commit of likewise": took["commit"],
        "hardware": trained and took["device"],
        "training": trained and took["train_seconds"] and f"{took['train_seconds']:.0f} s",
        "energy": trained and energy and f"{energy / 3.6e6:.3g} kWh, by hardware counters" + others,
        "run": run.about["identity"],
    }
    return {name: str(value) for name, value in found.items() if value}


ONNX_OPSET = 18
"""Version of the ONNX operators: torch writes it from 2.6 on, onnxruntime reads it from 1.14 on."""


class Graph(nn.Module):
    """The graph of the ONNX file: returns the unit embedding, and with `raw` also the embedding before normalisation."""

    def __init__(self, embedder: Embedder, raw: bool):
        super().__init__()
        self.embedder, self.raw = embedder, raw

    def forward(
        self, x: Float[Tensor, "B ..."]
    ) -> Float[Tensor, "B D"] | tuple[Float[Tensor, "B D"], Float[Tensor, "B D"]]:
        out = self.embedder(x)
        return (out.z, out.e) if self.raw else out.z


def check_onnx_packages() -> None:
    """Raise unless the packages for ONNX are installed."""
    for name in ("onnx", "onnxscript", "onnxruntime"):
        if importlib.util.find_spec(name) is None:
            raise LikewiseError(
                f"export: an ONNX file needs {name}, which is not installed; {pip_install('likewise[onnx]')}, or --to safetensors"
            )


def write_onnx(folder: Path, model: Model, run: Run, config: Train) -> Callable:
    """Write model.onnx, preprocess.json and example.py, and return the `embed` function of example.py."""
    import onnx

    plain, raw = model.transform, model.similarity == "euclidean"
    names = ["x"] if plain is None else ["pixels"], ["z", "e"] if raw else ["z"]
    shape = (2, model.embedder.feature_dim) if plain is None else (2, 3, plain.size, plain.size)
    write_json(folder / "preprocess.json", {"input": names[0][0], "output": names[1][-1], **preprocessing(plain)})
    template = "example_features.txt" if plain is None else "example_onnx.txt"
    (folder / "example.py").write_text(fill(template, example_facts(folder, model)), "utf-8")
    try:
        with quietly():
            program = torch.onnx.export(
                Graph(model.merged_embedder(), raw).eval(), (torch.zeros(shape),), dynamo=True, opset_version=ONNX_OPSET,
                verbose=False, input_names=names[0], output_names=names[1],
                dynamic_shapes=({0: torch.export.Dim("batch", max=2**31 - 1)},),
            )  # fmt: skip
        assert program is not None
        proto = program.model_proto
        for node in (*proto.graph.node, *(node for f in proto.functions for node in f.node)):
            del node.metadata_props[:]  # paths of the source code on this machine
        about = {"likewise": __version__, "run": run.about["identity"], "similarity": model.similarity}
        about |= {"dim": str(model.dim)} | ({"size": str(plain.size)} if plain else {})
        onnx.helper.set_model_props(proto, about)
        onnx.checker.check_model(proto)
        onnx.save(proto, folder / "model.onnx")
        return runpy.run_path(str(folder / "example.py"))["embed"]  # the code that users will run
    except OSError:
        raise
    except Exception as error:  # torch, onnxscript and protobuf (beyond 2 GB) have no common base class
        raise LikewiseError(
            f"export: {config.backbone} with {config.head} cannot be written as ONNX ({brief(error)}); use --to safetensors"
        ) from error


def example_facts(folder: Path, model: Model) -> dict:
    """Return what example.py depends on: whether the folder has a calibration and a gallery."""
    calibration = read_calibration(folder)
    of = {} if calibration is None else calibration.gallery
    return {
        "calibrated": calibration is not None, "gallery": (folder / GALLERY_FILE).exists(),
        "cosine": model.similarity == "cosine", "rows": of.get("rows", "?"), "classes": of.get("classes", "?"),
    }  # fmt: skip


def preprocessing(plain: Plain | None) -> dict:
    """Return the image preprocessing of evaluation as numbers; {} for feature vectors."""
    if plain is None:
        return {}
    return {
        "size": plain.size, "short_side": plain.short_side, "shrink_first": plain.side, "crop": "center",
        "interpolation": plain.preprocess.interpolation, "colours": "RGB", "range": [0, 1], "layout": "NCHW",
        "normalisation": "in the model",
    }  # fmt: skip


@contextmanager
def quietly() -> Iterator[None]:
    """Suppress warnings and log messages of the ONNX exporters, which are meant for their developers."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "torch.export", "onnxscript", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for logger in loggers:
                logger.setLevel(logging.ERROR)
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


PARITY_TOLERANCE = 1e-4
"""Largest allowed difference of embeddings, relative to the largest norm. Another order of float32 sums gives about 1e-6."""

SYNTHETIC_SAMPLES = 16
"""Number of synthetic images or vectors for a comparison without data."""


@dataclass(frozen=True)
class Parity:
    """Comparison of the embeddings of an export and of the run.

    Attributes:
        samples, of: number and kind of the samples.
        difference: largest difference, relative to the largest norm.
        cosine: smallest cosine of the two embeddings of a sample.
        neighbours: share of samples with the same nearest neighbour; None for a single sample.
    """

    samples: int
    of: str
    difference: float
    cosine: float
    neighbours: float | None

    def __str__(self) -> str:
        near = "" if self.neighbours is None else f", the same nearest neighbour for {self.neighbours:.1%}"
        apart = f"differ by {self.difference:.1e} at most" if self.difference else "are equal to the bit"
        return (
            f"{self.samples} {self.of}: embeddings {apart} (up to {PARITY_TOLERANCE:g} is allowed), "
            f"cosine {self.cosine:.6f} at least{near}"
        )


def parity_inputs(
    model: Model, protocol: Protocol, items: Items | None, count: int
) -> tuple[Sequence | np.ndarray, str]:
    """Return the samples for the comparison, and their kind in words: spread over the test split, or synthetic."""
    if items is None:
        rng, kind = np.random.default_rng(0), "images" if model.transform else "vectors"
        if model.transform is None:
            made = rng.normal(size=(SYNTHETIC_SAMPLES, model.embedder.feature_dim)).astype(np.float32)
        else:
            made = [synthetic_image(rng) for _ in range(SYNTHETIC_SAMPLES)]
        return made, f"synthetic {kind} (no data)"
    rows = protocol.rows(items, "test")
    source, rows = ("test split", rows) if len(rows) else ("data", np.arange(len(items)))
    rows = rows[np.linspace(0, len(rows) - 1, min(count, len(rows))).astype(int)]
    if items.x is not None:
        return items.x[rows].astype(np.float32), f"vectors of the {source}"
    whole = items.box is None
    return [file_of(items, r) if whole else image_of(items, r) for r in rows.tolist()], f"images of the {source}"


def synthetic_image(rng: np.random.Generator) -> Image.Image:
    """Return an image of random smooth colours and random size."""
    coarse = Image.fromarray(rng.integers(0, 256, (8, 8, 3), dtype=np.uint8))
    return coarse.resize(tuple(rng.integers(40, 400, 2).tolist()), Image.Resampling.BICUBIC)


def compare(model: Model, embed: Callable, given: Sequence | Shaped[np.ndarray, "N F"], of: str) -> Parity:
    """Compare the embeddings of samples by the network of the run and by `embed` of the export; raises if they differ."""
    own = model(given)
    try:
        other = np.concatenate([embed(given[start : start + 32]) for start in range(0, len(given), 32)])
    except Exception as error:  # onnxruntime has several unrelated exception classes
        raise LikewiseError(f"export: example.py fails on the data ({brief(error)}); nothing was written") from error
    if other.shape != own.shape:
        raise LikewiseError(
            f"export: embeddings must have the shape {own.shape}, got {other.shape}; nothing was written"
        )
    length = [np.linalg.norm(z.astype(np.float64), axis=1) for z in (own, other)]
    difference = float(np.abs(own - other).max() / max(length[0].max(), 1e-12))
    if not difference <= PARITY_TOLERANCE:  # also raises for NaN
        raise LikewiseError(
            f"export: embeddings must equal those of the run up to {PARITY_TOLERANCE:g}, got a difference of "
            f"{difference:.2g} on {len(given)} {of}; nothing was written. Please report it with the versions of torch and "
            "onnxruntime"
        )
    cosine = (own.astype(np.float64) * other).sum(1) / np.maximum(length[0] * length[1], 1e-12)
    same = None
    if len(own) > 1:
        tables, rows = [torch.as_tensor(z) for z in (own, other)], torch.arange(len(own))
        near = [nearest(z, z, 1, own=rows, similarity=model.similarity)[0] for z in tables]
        same = float((near[0] == near[1]).float().mean())
    return Parity(len(given), of, difference, float(cosine.min()), same)


def show_exported(found: Exported, config: Export) -> None:
    """Print the folder, its files, and how the exported network was checked."""
    print_text(f"export: {found.folder} ({', '.join(found.files)})\nchecked on {found.parity}")
