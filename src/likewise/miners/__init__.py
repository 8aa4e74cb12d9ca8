"""Miners: which pairs or triplets of a batch a loss learns from. `__all__` is the registry."""

from likewise.miners.batch_hard import BatchHard
from likewise.miners.distance_weighted import DistanceWeighted
from likewise.miners.easy_positive import EasyPositive
from likewise.miners.hard_pairs import HardPairs
from likewise.miners.random import Random
from likewise.miners.semi_hard import SemiHard
from likewise.miners.soft_hard import SoftHard
from likewise.miners.switch import Switch
from likewise.miners.tsint import TSINT

__all__ = [
    "BatchHard", "DistanceWeighted", "EasyPositive", "HardPairs", "Random", "SemiHard", "SoftHard", "Switch", "TSINT",
]  # fmt: skip
