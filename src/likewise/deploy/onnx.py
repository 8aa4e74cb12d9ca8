"""A network as an ONNX file, which runs without torch, and what must be done to a picture before it."""

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
from likewise.config import Train
from likewise.data.augment import Plain
from likewise.deploy.model import Model
from likewise.deploy.model_card import fill
from likewise.io.files import write_json
from likewise.models.embedder import Embedder
from likewise.pretrained.weights import brief
from likewise.runs.folder import Run
from likewise.types import LikewiseError

OPSET = 18
"""Every torch from 2.6 on writes it, and every onnxruntime from 1.14 on reads it."""


class Graph(nn.Module):
    """What an ONNX file computes: the unit embedding, and the one before the norm where that is what is compared."""

    def __init__(self, embedder: Embedder, raw: bool):
        super().__init__()
        self.embedder, self.raw = embedder, raw

    def forward(
        self, x: Float[Tensor, "B ..."]
    ) -> Float[Tensor, "B D"] | tuple[Float[Tensor, "B D"], Float[Tensor, "B D"]]:
        out = self.embedder(x)
        return (out.z, out.e) if self.raw else out.z


def must_have_onnx() -> None:
    """Or an error before the work begins."""
    for name in ("onnx", "onnxscript", "onnxruntime"):
        if importlib.util.find_spec(name) is None:
            raise LikewiseError(
                f"export: an ONNX file needs {name}, which is not there; pip install 'likewise[onnx]', or --to safetensors"
            )


def write_onnx(folder: Path, model: Model, run: Run, config: Train) -> Callable:
    """The graph with normalisation in it, what must be done to a picture before, and the way to embed: that of example.py."""
    import onnx

    plain, raw = model.transform, model.similarity == "euclidean"
    names = ["x"] if plain is None else ["pixels"], ["z", "e"] if raw else ["z"]
    shape = (2, model.embedder.feature_dim) if plain is None else (2, 3, plain.size, plain.size)
    write_json(folder / "preprocess.json", {"input": names[0][0], "output": names[1][-1], **preprocessing(plain)})
    template = "example_features.txt" if plain is None else "example_onnx.txt"
    (folder / "example.py").write_text(fill(template, {}), "utf-8")
    try:
        with quietly():
            program = torch.onnx.export(
                Graph(model.embedder, raw).eval(), (torch.zeros(shape),), dynamo=True, opset_version=OPSET, verbose=False,
                input_names=names[0], output_names=names[1], dynamic_shapes=({0: torch.export.Dim("batch", max=2**31 - 1)},),
            )  # fmt: skip
        assert program is not None
        proto = program.model_proto
        for node in (*proto.graph.node, *(node for f in proto.functions for node in f.node)):
            del node.metadata_props[:]  # where in whose files the code stood
        about = {"likewise": __version__, "run": run.about["identity"], "similarity": model.similarity}
        about |= {"dim": str(model.dim)} | ({"size": str(plain.size)} if plain else {})
        onnx.helper.set_model_props(proto, about)
        onnx.checker.check_model(proto)
        onnx.save(proto, folder / "model.onnx")
        return runpy.run_path(str(folder / "example.py"))["embed"]  # our own text, as users will run it
    except OSError:
        raise
    except Exception as error:  # of many families: torch's, onnxscript's, protobuf's (beyond 2 GB)
        raise LikewiseError(
            f"export: {config.backbone} with {config.head} cannot be written as ONNX ({brief(error)}); use --to safetensors"
        ) from error


def preprocessing(plain: Plain | None) -> dict:
    """What evaluation does with a picture, in numbers."""
    if plain is None:
        return {}
    short = round(plain.size * 256 / 224) if plain.kind == "crop" else None
    return {
        "size": plain.size, "short_side": short, "shrink_first": plain.side, "crop": "center", "interpolation": "bilinear",
        "colours": "RGB", "range": [0, 1], "layout": "NCHW", "normalisation": "in the model",
    }  # fmt: skip


@contextmanager
def quietly() -> Iterator[None]:
    """Without what exporters tell their developers."""
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
