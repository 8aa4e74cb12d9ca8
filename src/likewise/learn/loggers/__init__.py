"""Loggers: they send the log of a training to other tools. The classes imported here are the registry."""

from likewise.learn.loggers.ml_flow import MLflow as MLflow
from likewise.learn.loggers.tensor_board import TensorBoard as TensorBoard
from likewise.learn.loggers.wand_b import WandB as WandB

__all__ = sorted((name for name in dir() if name[0].isupper()), key=str.casefold)  # pyright: ignore[reportUnsupportedDunderAll]
