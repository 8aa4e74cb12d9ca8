"""`likewise export`: the network of a run as ONNX or safetensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from likewise.core.settings import Export
    from likewise.deploy.export import Exported


def export(config: Export, say=print) -> Exported:
    """Write the network, compare it with the original, and return the folder and the comparison."""
    from likewise.deploy.export import export as work

    return work(config, say)
