"""likewise: visual-similarity learning that people can trust, even when the labels are wrong.

    from likewise import train, evaluate, embed, losses

Importing it is cheap: torch and the networks are loaded when they are first used.
"""

from __future__ import annotations

import importlib
from os import PathLike
from typing import TYPE_CHECKING

from likewise._version import __version__ as __version__

if TYPE_CHECKING:
    from datasets import Dataset

    from likewise import confidence, data, losses, metrics, miners, models, noise, protocols, samplers, terms
    from likewise.deploy.model import Model
    from likewise.experiments.tune import Found
    from likewise.render.benchmark_table import Sheet
    from likewise.render.tables import Table
    from likewise.runs.folder import Run
    from likewise.types import Embedded

__all__ = [
    "train",
    "evaluate",
    "embed",
    "load",
    "compare",
    "bench",
    "tune",
    "losses",
    "miners",
    "samplers",
    "noise",
    "confidence",
    "terms",
    "protocols",
    "metrics",
    "models",
    "data",
]


def train(data: str | PathLike | Dataset, *, recipe: str | None = None, **settings) -> Run:
    """Train an embedding and evaluate it; the same as `likewise train`.

    Args:
        data: a folder, a table, a feature file, a name, or a Dataset of Hugging Face.
        recipe: named settings to start from.
        settings: fields of `likewise.config.Train`; parts may be given as objects or as specs.
    """
    from likewise.recipes import apply
    from likewise.training.fit import train as stage

    if hasattr(data, "save_to_disk"):
        from likewise.data.hugging_face import from_object

        data = from_object(data)
    return stage(apply(recipe, str(data), **_plain(settings)))


def evaluate(target: str | PathLike | Run, **settings) -> dict:
    """Scores of a run or an embedding file; the same as `likewise evaluate`."""
    from likewise.config import Evaluate
    from likewise.evaluation.evaluate import evaluate as stage
    from likewise.render.results import Scored

    return Scored(stage(Evaluate(target=str(getattr(target, "path", target)), **_plain(settings))))


def embed(run: str | PathLike | Run, data: str | PathLike, *, out: str | PathLike = "", **settings) -> Embedded:
    """Embeddings of data under a trained network; written to `out` (.npz) if given. The same as `likewise embed`."""
    from likewise.config import Embed
    from likewise.evaluation.embed_data import embed as stage

    return stage(Embed(run=str(getattr(run, "path", run)), data=str(data), out=str(out), **_plain(settings)))


def load(
    path: str | PathLike | Run, *, which: str = "best", device: str | None = None, allow_imports: bool = False
) -> Model:
    """The network of a run, or of what `likewise export --to safetensors` wrote: `load("runs/mine")(["a.jpg"])` embeds."""
    from likewise.deploy.model import load as stage

    place: str | PathLike = getattr(path, "path", path)  # pyright: ignore[reportAssignmentType] - of a Run
    return stage(place, which=which, device=device, allow_imports=allow_imports)


def compare(run_a: str | PathLike | Run, run_b: str | PathLike | Run, **settings) -> dict:
    """What changes from one run to another, with intervals; the same as `likewise compare`."""
    from likewise.config import Compare
    from likewise.evaluation.compare import compare as stage
    from likewise.render.results import Compared

    sides = {"run_a": str(getattr(run_a, "path", run_a)), "run_b": str(getattr(run_b, "path", run_b))}
    return Compared(stage(Compare(**sides, **_plain(settings))))


def bench(grid: str | PathLike, **settings) -> Sheet | Table:
    """Train every cell of a paper's table, by name, or of a grid file; the same as `likewise bench`."""
    from likewise.config import Bench
    from likewise.experiments.bench import bench as stage

    return stage(Bench(grid=str(grid), **_plain(settings)))


def tune(config: str | PathLike, **settings) -> Found:
    """Search for the best settings on validation classes; the same as `likewise tune`."""
    from likewise.config import Tune
    from likewise.experiments.tune import tune as stage

    return stage(Tune(config=str(getattr(config, "path", config)), **_plain(settings)))


def _plain(settings: dict) -> dict:
    """Python values as the command line has them: parts become specs, paths and counts text, numbers plain."""
    from likewise.config import Train, duration_fields, spec_fields
    from likewise.config.spec import spec

    parts, counts = spec_fields(Train), duration_fields(Train)

    def text(part) -> str:
        return part if isinstance(part, str) else f"{part.__name__}()" if isinstance(part, type) else spec(part)

    plain = {}
    for name, value in settings.items():
        value = value.item() if hasattr(value, "dtype") and hasattr(value, "item") else value
        if name in parts and value is not None:
            value = tuple(map(text, value)) if isinstance(value, list | tuple) else text(value)
        if name in ("terms", "loggers", "metrics") and isinstance(value, str):
            value = (value,)
        elif isinstance(value, PathLike) or (name in counts and isinstance(value, int)):
            value = str(value)
        plain[name] = tuple(value) if isinstance(value, list) else value
    return plain


def __getattr__(name: str):
    if name in __all__:
        return importlib.import_module(f"likewise.{name}")
    raise AttributeError(f"likewise has no '{name}'; it has: {', '.join(__all__)}")
