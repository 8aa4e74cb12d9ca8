"""likewise: visual-similarity learning that people can trust, even when the labels are wrong.

    from likewise import train, evaluate, embed, losses

Importing it is cheap: torch and the networks are loaded when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from likewise.run import Run
    from likewise.types import Embedded

__version__ = "0.1.0"
__all__ = ["train", "evaluate", "embed", "losses", "miners", "samplers", "noise", "protocols", "metrics", "models", "data"]


def train(data: str, *, recipe: str | None = None, **settings) -> Run:
    """Train an embedding and evaluate it; the same as `likewise train`.

    Args:
        data: a folder, a table, a feature file, or a name.
        recipe: named settings to start from.
        settings: fields of `likewise.configs.Train`; parts may be given as objects or as specs.
    """
    from likewise.recipes import apply
    from likewise.stages.train import train as stage

    return stage(apply(recipe, str(data), **_texts(settings)))


def evaluate(target: str | Run, **settings) -> dict:
    """Scores of a run or an embedding file; the same as `likewise evaluate`."""
    from likewise.configs import Evaluate
    from likewise.stages.evaluate import evaluate as stage

    return stage(Evaluate(target=str(getattr(target, "path", target)), **settings))


def embed(run: str | Run, data: str, *, out: str = "", **settings) -> Embedded:
    """Embeddings of data under a trained network; written to `out` (.npz) if given. The same as `likewise embed`."""
    from likewise.configs import Embed
    from likewise.stages.embed import embed as stage

    return stage(Embed(run=str(getattr(run, "path", run)), data=str(data), out=out, **settings))


def _texts(settings: dict) -> dict:
    """Parts given as objects become the specs that build them: a run's settings are text."""
    from likewise.spec import spec

    parts = ("loss", "sampler", "protocol", "noise", "head")
    return {k: spec(v) if k in parts and v is not None and not isinstance(v, str) else v for k, v in settings.items()}


def __getattr__(name: str):
    if name in __all__:
        return importlib.import_module(f"likewise.{name}")
    raise AttributeError(f"likewise has no '{name}'; it has: {', '.join(__all__)}")
