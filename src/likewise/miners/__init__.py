"""Miners: which pairs or triplets of a batch a loss learns from. `__all__` is the registry."""

from likewise.miners.hard_pairs import HardPairs
from likewise.miners.semi_hard import SemiHard

__all__ = ["HardPairs", "SemiHard"]
