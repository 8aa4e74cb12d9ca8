"""Loggers: where the log of a training also goes. `__all__` is the registry."""

from likewise.loggers.ml_flow import MLflow
from likewise.loggers.tensor_board import TensorBoard
from likewise.loggers.wand_b import WandB

__all__ = ["MLflow", "TensorBoard", "WandB"]
