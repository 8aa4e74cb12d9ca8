"""Write a network as an ONNX file, which runs without torch, and its image preprocessing as JSON."""

from __future__ import annotations

import importlib.util
import logging
import runpy
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor, nn

from likewise._version import __version__
from likewise.core.files import write_json
from likewise.core.settings import Train
from likewise.core.types import LikewiseError
from likewise.data.augment import Plain
from likewise.deploy.model import Model
from likewise.deploy.model_card import GALLERY_FILE, fill
from likewise.models.embedder import Embedder
from likewise.models.pretrained.weights import brief
from likewise.runs.calibration import read_calibration
from likewise.runs.folder import Run

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
                f"export: an ONNX file needs {name}, which is not installed; pip install 'likewise[onnx]', or --to safetensors"
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
