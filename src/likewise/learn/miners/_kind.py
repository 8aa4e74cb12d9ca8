"""Check that a miner yields what a loss uses: pairs or triplets."""

from __future__ import annotations

from typing import Literal

from likewise.core.contracts import Miner
from likewise.core.types import LikewiseError


def check_miner_kind(miner: Miner | None, kind: Literal["pairs", "triplets"], loss: str, example: str) -> None:
    """Raise if a miner does not yield the kind (pairs or triplets) that a loss uses. For constructors of losses.

    Args:
        loss: name of the loss, for the error.
        example: a miner that would fit, for the error.
    """
    if miner is not None and miner.yields != kind:
        raise LikewiseError(
            f"{loss}: miner must yield {kind}, got {type(miner).__name__}, which yields {miner.yields}; use {example}"
        )
